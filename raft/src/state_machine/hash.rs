//! Running hashes of the tables (raft-and-storage.md 4.8): equal applied index, equal hashes.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;

use rusqlite::{Connection, OptionalExtension};
use siphasher::sip128::{Hasher128, SipHasher24};

use super::{StorageError, row};
use crate::command::{Layer, Value};
use crate::tables::{TABLES, TableDescription, module_of};

/// Fixed for ever: hashes of different builds are compared.
const KEY: &[u8; 16] = b"quorumsql tables";

/// Word for a layer in `table_hash`.
pub(crate) const fn layer_name(layer: Layer) -> &'static str {
    match layer {
        Layer::Memory => "memory",
        Layer::Runtime => "runtime",
        Layer::Disk => "disk",
    }
}

/// Hash of one row of one table; a table's hash is the sum modulo 2^128, so the order of changes does not matter.
pub(crate) fn row_hash(table: &TableDescription, row: &[Value]) -> u128 {
    let mut hasher = SipHasher24::new_with_key(KEY);
    hasher.write(table.name.as_bytes());
    hasher.write(&[0]);
    hasher.write(&row::encode(row));
    u128::from(hasher.finish128())
}

/// The name under which a row counts in `table_hash`: its module, or nothing for variables that no module has.
pub(crate) fn scope_of(table: &TableDescription, row: &[Value]) -> &'static str {
    let first_key = table.key_positions().first().and_then(|position| row.get(*position)).unwrap_or(&Value::Null);
    module_of(table, first_key).map_or("", |module| module.name)
}

/// A part of `table_hash`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TableHash {
    /// Rows.
    pub(crate) rows: i64,
    /// Sum of the rows' hashes.
    pub(crate) hash: u128,
    /// Counter of AUTOINCREMENT.
    pub(crate) autoincrement: i64,
}

/// Layer, module, table.
pub(crate) type HashKey = (String, String, String);

/// Everything that `table_hash` holds, without the parts that are empty: an emptied table and a new one are equal.
pub(crate) type Tables = BTreeMap<HashKey, TableHash>;

pub(crate) fn key(layer: Layer, module: &str, table: &str) -> HashKey {
    (layer_name(layer).to_owned(), module.to_owned(), table.to_owned())
}

pub(crate) fn read(connection: &Connection, layer: Layer, module: &str, table: &str) -> rusqlite::Result<TableHash> {
    let sql = r#"SELECT rows, hash, counter FROM table_hash WHERE layer = ?1 AND module = ?2 AND "table" = ?3"#;
    let found = connection.prepare_cached(sql)?.query_row((layer_name(layer), module, table), table_hash).optional()?;
    Ok(found.unwrap_or_default())
}

fn table_hash(row: &rusqlite::Row<'_>) -> rusqlite::Result<TableHash> {
    Ok(TableHash { rows: row.get(0)?, hash: u128::from_be_bytes(row.get(1)?), autoincrement: row.get(2)? })
}

pub(crate) fn write(connection: &Connection, layer: Layer, module: &str, table: &str, value: TableHash) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO table_hash VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let parameters = (layer_name(layer), module, table, value.rows, value.hash.to_be_bytes(), value.autoincrement);
    connection.prepare_cached(sql)?.execute(parameters)?;
    Ok(())
}

/// Counter of AUTOINCREMENT of a physical table.
pub(crate) fn autoincrement(connection: &Connection, physical: &str) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = ?1")?;
    Ok(statement.query_row([physical], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// What `table_hash` holds.
pub(crate) fn stored(connection: &Connection) -> rusqlite::Result<Tables> {
    let mut statement = connection.prepare_cached(r#"SELECT rows, hash, counter, layer, module, "table" FROM table_hash"#)?;
    let rows = statement.query_map([], |row| Ok(((row.get(3)?, row.get(4)?, row.get(5)?), table_hash(row)?)))?;
    rows.filter(|row| !matches!(row, Ok((_, hash)) if *hash == TableHash::default())).collect()
}

/// What [`stored`] must be, from the rows themselves. Reads every row.
pub(crate) fn recompute(connection: &Connection) -> rusqlite::Result<Tables> {
    let mut found = Tables::new();
    for table in TABLES {
        for layer in [Layer::Memory, Layer::Runtime, Layer::Disk] {
            let mut scopes: BTreeMap<&'static str, TableHash> = BTreeMap::new();
            row::for_each(connection, table, layer, |row| {
                let hash = scopes.entry(scope_of(table, row)).or_default();
                hash.rows += 1;
                hash.hash = hash.hash.wrapping_add(row_hash(table, row));
            })?;
            let counter = if table.autoincrement { autoincrement(connection, &table.physical(layer))? } else { 0 };
            if counter != 0 {
                scopes.entry(scope_of(table, &[])).or_default().autoincrement = counter;
            }
            found.extend(scopes.into_iter().map(|(module, hash)| (key(layer, module, table.name), hash)));
        }
    }
    Ok(found)
}

/// What the rows of a whole file must be: those of the hashes stored with them. Reads every row.
pub(crate) fn verified(connection: &Connection, index: u64) -> Result<Tables, StorageError> {
    let (stored, rows) = (stored(connection)?, recompute(connection)?);
    if stored == rows {
        return Ok(stored);
    }
    let differences = differences(&rows, "by the rows", &stored, "by the hashes");
    Err(StorageError::Altered { index, differences })
}

/// Which tables of which layer differ, and how: `memory mysql_servers: 3 rows, hash 0x… here; 2 rows, hash 0x… there`.
pub(crate) fn differences(ours: &Tables, here: &str, theirs: &Tables, there: &str) -> String {
    let parts = |tables: &Tables, key: &HashKey| {
        let found = tables.get(key).copied().unwrap_or_default();
        let counter = if found.autoincrement == 0 { String::new() } else { format!(", counter {}", found.autoincrement) };
        format!("{} rows, hash 0x{:032x}{counter}", found.rows, found.hash)
    };
    let keys: BTreeSet<&HashKey> = ours.keys().chain(theirs.keys()).filter(|key| ours.get(*key) != theirs.get(*key)).collect();
    let lines = keys.into_iter().map(|key| {
        let (layer, module, table) = key;
        let module = if table == "global_variables" { format!(" ({})", module.to_lowercase()) } else { String::new() };
        format!("{layer} {table}{module}: {} {here}; {} {there}", parts(ours, key), parts(theirs, key))
    });
    lines.collect::<Vec<_>>().join(" | ")
}

/// One hash over all tables and layers at the applied index: equal on all nodes at an equal index.
///
/// # Errors
/// Of SQLite.
pub fn root_hash(connection: &Connection) -> rusqlite::Result<u128> {
    Ok(root_of(&stored(connection)?))
}

/// The root of known hashes.
pub(crate) fn root_of(tables: &Tables) -> u128 {
    combine(tables.iter())
}

fn combine<'a>(parts: impl Iterator<Item = (&'a HashKey, &'a TableHash)>) -> u128 {
    let mut hasher = SipHasher24::new_with_key(KEY);
    for ((layer, module, table), value) in parts {
        for word in [layer, module, table] {
            hasher.write(word.as_bytes());
            hasher.write(&[0]);
        }
        hasher.write(&value.rows.to_be_bytes());
        hasher.write(&value.hash.to_be_bytes());
        hasher.write(&value.autoincrement.to_be_bytes());
    }
    u128::from(hasher.finish128())
}

/// Hash of a module in a layer as tables and tools show it: `0x` and 16 hex digits; equal on all nodes at equal applied index.
///
/// # Errors
/// Of SQLite.
pub fn module_hash(connection: &Connection, module: &str, layer: Layer) -> rusqlite::Result<String> {
    let parts = stored(connection)?;
    let hash = combine(parts.iter().filter(|((found, name, _), _)| found == layer_name(layer) && name == module));
    Ok(format!("0x{:016X}", u64::try_from(hash >> 64).unwrap_or_default()))
}

/// Rows and hash of the runtime layer, for history.
pub(crate) fn runtime_summary(connection: &Connection) -> rusqlite::Result<(i64, u128)> {
    let parts = stored(connection)?;
    let runtime = || parts.iter().filter(|((layer, _, _), _)| layer == layer_name(Layer::Runtime));
    Ok((runtime().map(|(_, value)| value.rows).sum(), combine(runtime())))
}
