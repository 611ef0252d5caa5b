//! As much of PostgreSQL's catalog as psql's `\d` family reads.

use quorumsql_raft::tables as stored;
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;

use crate::sql_server::engine::EngineError;

/// First oid of a table; attributes and types need stable numbers only within a statement.
const FIRST_OID: usize = 16_384;

/// Catalog tables with the columns that psql 15 and drivers name. Only those of the first group have rows.
const TABLES: [(&str, &str); 24] = [
    ("pg_namespace", "oid INT, nspname TEXT, nspowner INT, nspacl TEXT"),
    (
        "pg_class",
        "oid INT, relname TEXT, relnamespace INT, reltype INT, reloftype INT, relowner INT, relam INT, relfilenode INT, reltablespace INT, relpages INT, \
         reltuples REAL, relallvisible INT, reltoastrelid INT, relhasindex INT, relisshared INT, relpersistence TEXT, relkind TEXT, relnatts INT, relchecks INT, \
         relhasrules INT, relhastriggers INT, relhassubclass INT, relrowsecurity INT, relforcerowsecurity INT, relispopulated INT, relreplident TEXT, \
         relispartition INT, relrewrite INT, relacl TEXT, reloptions TEXT, relpartbound TEXT",
    ),
    (
        "pg_attribute",
        "attrelid INT, attname TEXT, atttypid INT, attnum INT, attlen INT, atttypmod INT, attnotnull TEXT, atthasdef INT, attidentity TEXT, attgenerated TEXT, \
         attisdropped INT, attcollation INT, attcompression TEXT, attstattarget INT, attstorage TEXT, attfdwoptions TEXT, attacl TEXT, attislocal INT, attinhcount INT",
    ),
    (
        "pg_type",
        "oid INT, typname TEXT, typnamespace INT, typtype TEXT, typrelid INT, typelem INT, typcollation INT, typarray INT, typbasetype INT, typdelim TEXT",
    ),
    (
        "pg_database",
        "oid INT, datname TEXT, datdba INT, encoding INT, datlocprovider TEXT, datcollate TEXT, datctype TEXT, daticulocale TEXT, datacl TEXT, datallowconn INT, datistemplate INT",
    ),
    (
        "pg_roles",
        "oid INT, rolname TEXT, rolsuper TEXT, rolinherit TEXT, rolcreaterole TEXT, rolcreatedb TEXT, rolcanlogin TEXT, rolconnlimit INT, rolvaliduntil TEXT, rolreplication TEXT, rolbypassrls TEXT",
    ),
    ("pg_am", "oid INT, amname TEXT, amtype TEXT"),
    ("pg_attrdef", "oid INT, adrelid INT, adnum INT, adbin TEXT"),
    ("pg_collation", "oid INT, collname TEXT, collnamespace INT"),
    (
        "pg_index",
        "indexrelid INT, indrelid INT, indisprimary INT, indisunique INT, indisclustered INT, indisvalid INT, indisreplident INT, indkey TEXT",
    ),
    (
        "pg_constraint",
        "oid INT, conname TEXT, conrelid INT, confrelid INT, conindid INT, contype TEXT, conparentid INT, condeferrable INT, condeferred INT, conkey TEXT, connamespace INT",
    ),
    ("pg_inherits", "inhrelid INT, inhparent INT, inhseqno INT, inhdetachpending INT"),
    ("pg_policy", "oid INT, polname TEXT, polrelid INT, polcmd TEXT, polpermissive INT, polroles TEXT, polqual TEXT, polwithcheck TEXT"),
    ("pg_statistic_ext", "oid INT, stxrelid INT, stxnamespace INT, stxname TEXT, stxkind TEXT, stxstattarget INT"),
    ("pg_publication", "oid INT, pubname TEXT, puballtables INT"),
    ("pg_publication_rel", "oid INT, prpubid INT, prrelid INT, prqual TEXT, prattrs TEXT"),
    ("pg_publication_namespace", "oid INT, pnpubid INT, pnnspid INT"),
    ("pg_trigger", "oid INT, tgname TEXT, tgrelid INT, tgenabled TEXT, tgisinternal INT, tgparentid INT"),
    ("pg_rewrite", "oid INT, rulename TEXT, ev_class INT, ev_type TEXT, ev_enabled TEXT"),
    ("pg_description", "objoid INT, classoid INT, objsubid INT, description TEXT"),
    ("pg_foreign_table", "ftrelid INT, ftserver INT, ftoptions TEXT"),
    ("pg_foreign_server", "oid INT, srvname TEXT"),
    ("pg_proc", "oid INT, proname TEXT, pronamespace INT, prokind TEXT, prorettype INT"),
    ("pg_auth_members", "roleid INT, member INT, grantor INT, admin_option INT"),
];

/// Whether a statement may read the catalog.
pub(crate) fn is_named(sql: &str) -> bool {
    sql.to_ascii_lowercase().contains("pg_")
}

/// Makes and fills the catalog in the attached schema `pg_catalog`.
///
/// # Errors
/// SQLite's.
pub(crate) fn create(connection: &Connection, tables: &[String]) -> Result<(), EngineError> {
    for (name, columns) in TABLES {
        connection.execute_batch(&format!("CREATE TABLE pg_catalog.{name} ({columns})"))?;
    }
    connection.execute_batch(
        "INSERT INTO pg_catalog.pg_namespace VALUES (11, 'pg_catalog', 10, NULL), (2200, 'main', 10, NULL), (2201, 'stats', 10, NULL);
         INSERT INTO pg_catalog.pg_type (oid, typname, typnamespace, typtype, typcollation) VALUES (25, 'text', 11, 'b', 100), (20, 'int8', 11, 'b', 0);
         INSERT INTO pg_catalog.pg_collation VALUES (100, 'default', 11);
         INSERT INTO pg_catalog.pg_database (oid, datname, datdba, encoding, datlocprovider, datcollate, datctype, datallowconn, datistemplate)
             VALUES (1, 'main', 10, 6, 'c', 'C', 'C', 1, 0);
         INSERT INTO pg_catalog.pg_roles VALUES (10, 'admin', 't', 't', 'f', 'f', 't', -1, NULL, 'f', 'f');
         INSERT INTO pg_catalog.pg_am VALUES (2, 'heap', 't');",
    )?;
    for (at, name) in tables.iter().enumerate() {
        class(connection, FIRST_OID + at, name)?;
    }
    functions(connection)
}

fn class(connection: &Connection, oid: usize, name: &str) -> Result<(), EngineError> {
    let namespace = if name.starts_with("stats_") { 2201 } else { 2200 };
    connection.execute(
        "INSERT INTO pg_catalog.pg_class (oid, relname, relnamespace, relowner, relam, reltoastrelid, reloftype, reltablespace, relhasindex, relpersistence, relkind, \
         relchecks, relhasrules, relhastriggers, relrowsecurity, relforcerowsecurity, relreplident, relispartition) \
         VALUES (?1, ?2, ?3, 10, 2, 0, 0, 0, 0, 'p', 'r', 0, 0, 0, 0, 0, 'd', 0)",
        rusqlite::params![i64::try_from(oid).unwrap_or(i64::MAX), name, namespace],
    )?;
    let source = stored::table(name.strip_prefix("runtime_").unwrap_or(name));
    for (at, column) in source.map_or(&[][..], |table| table.columns).iter().enumerate() {
        connection.execute(
            "INSERT INTO pg_catalog.pg_attribute (attrelid, attname, atttypid, attnum, atttypmod, attnotnull, atthasdef, attidentity, attgenerated, attisdropped, attcollation, attcompression, attstorage) \
             VALUES (?1, ?2, 25, ?3, -1, ?4, 0, '', '', 0, 100, '', 'x')",
            rusqlite::params![
                i64::try_from(oid).unwrap_or(i64::MAX),
                column.name,
                i64::try_from(at + 1).unwrap_or(i64::MAX),
                if column.clause.contains("NOT NULL") { "t" } else { "f" }
            ],
        )?;
    }
    Ok(())
}

/// Functions of `pg_catalog`, reduced to what these tables can say.
fn functions(connection: &Connection) -> Result<(), EngineError> {
    let flags = FunctionFlags::SQLITE_UTF8;
    for name in ["pg_table_is_visible", "pg_type_is_visible", "pg_function_is_visible", "has_table_privilege", "has_schema_privilege"] {
        connection.create_scalar_function(name, -1, flags, |_| Ok(true))?;
    }
    connection.create_scalar_function("pg_get_userbyid", -1, flags, |_| Ok("admin".to_owned()))?;
    connection.create_scalar_function("format_type", -1, flags, |_| Ok("text".to_owned()))?;
    connection.create_scalar_function("pg_encoding_to_char", -1, flags, |_| Ok("UTF8".to_owned()))?;
    for name in [
        "pg_get_expr",
        "obj_description",
        "col_description",
        "shobj_description",
        "pg_get_indexdef",
        "pg_get_constraintdef",
        "array_to_string",
        "array_upper",
        "array_length",
        "string_agg",
        "pg_get_viewdef",
        "pg_get_partkeydef",
        "pg_relation_is_publishable",
        "pg_get_statisticsobjdef_columns",
        "to_regclass",
    ] {
        connection.create_scalar_function(name, -1, flags, |_| Ok(None::<String>))?;
    }
    connection.create_scalar_function("current_schema", 0, flags, |_| Ok("main".to_owned()))?;
    Ok(())
}
