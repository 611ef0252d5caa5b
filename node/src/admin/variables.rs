//! Values of variables: replicated rows, overrides of this node, this node's own facts; and those that only clients ask for.

use std::collections::BTreeMap;

use quorumsql_raft::tables;
use rusqlite::Connection;

use super::context::Context;
use crate::sql_server::engine::EngineError;

/// From which rows values are read; overrides have no layers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layered {
    /// `global_variables`: what `SET` has changed and `LOAD` has not yet.
    Memory,
    /// Committed RUNTIME.
    Runtime,
}

/// All variables with their values on this node.
///
/// # Errors
/// SQLite's.
pub(crate) fn effective(context: &Context, connection: &Connection, layer: Layered) -> Result<BTreeMap<String, String>, EngineError> {
    let mut values = rows(connection, "base_runtime_global_variables")?;
    if layer == Layered::Memory {
        // LOAD keeps the value of a variable whose row was deleted.
        values.extend(rows(connection, "global_variables")?);
    }
    let node_id = i64::try_from(context.consensus.identity().node_id).unwrap_or(i64::MAX);
    values.extend(pairs(connection, "SELECT name, value FROM main.node_overrides WHERE node_id = ?1", node_id)?);
    values.extend(context.facts.variables());
    Ok(values)
}

/// Variables whose row in MEMORY says something else than what is in force: `name` → the value in force.
///
/// # Errors
/// SQLite's.
pub(crate) fn staged(connection: &Connection) -> Result<BTreeMap<String, String>, EngineError> {
    let (memory, mut runtime) = (rows(connection, "global_variables")?, rows(connection, "base_runtime_global_variables")?);
    runtime.retain(|name, value| memory.get(name).is_some_and(|staged| staged != value));
    Ok(runtime)
}

fn rows(connection: &Connection, table: &str) -> Result<BTreeMap<String, String>, EngineError> {
    pairs(connection, &format!("SELECT variable_name, variable_value FROM main.{table} WHERE ?1 = ?1"), 0)
}

fn pairs(connection: &Connection, sql: &str, node_id: i64) -> Result<BTreeMap<String, String>, EngineError> {
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([node_id], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The value in force, else the default of variables.tsv.
pub(crate) fn value_or_default<'a>(values: &'a BTreeMap<String, String>, name: &str) -> &'a str {
    values.get(name).map(String::as_str).or_else(|| tables::variable(name).map(|variable| variable.default)).unwrap_or("")
}

/// A duration in milliseconds.
pub(crate) fn milliseconds(values: &BTreeMap<String, String>, name: &str) -> std::time::Duration {
    std::time::Duration::from_millis(value_or_default(values, name).trim().parse().unwrap_or(5_000))
}

/// What to tell someone who sets a variable that is decided by this node's bootstrap file; the rows then change nothing.
pub(crate) fn decided_by_the_bootstrap_file(name: &str) -> Option<String> {
    let key = match name {
        "mysql-threads" | "pgsql-threads" => "node.threads",
        "admin-mysql_ifaces" => "listen.admin_mysql",
        "admin-pgsql_ifaces" => "listen.admin_pgsql",
        _ => return None,
    };
    Some(format!("{name} shows {key} of each node's bootstrap file: the value is stored and has no effect"))
}

/// `name:password;name:password`, with text or a stored hash as the password.
pub(crate) fn credentials(list: &str) -> impl Iterator<Item = (&str, &str)> {
    list.split(';').filter_map(|pair| pair.trim().split_once(':'))
}

/// Session variables of MySQL and MariaDB that drivers ask for (admin-commands.md 11), and what is answered.
const CLIENT_VARIABLES: [(&str, &str); 51] = [
    ("auto_increment_increment", "1"),
    ("autocommit", "1"),
    ("character_set_client", "utf8"),
    ("character_set_connection", "utf8"),
    ("character_set_database", "utf8"),
    ("character_set_results", "utf8"),
    ("character_set_server", "utf8"),
    ("collation_connection", "utf8_general_ci"),
    ("collation_database", "utf8_general_ci"),
    ("collation_server", "utf8_general_ci"),
    ("default_storage_engine", "SQLite"),
    ("foreign_key_checks", "1"),
    ("have_query_cache", "NO"),
    ("hostname", ""),
    ("init_connect", ""),
    ("innodb_read_only", "0"),
    ("innodb_version", ""),
    ("interactive_timeout", "28800"),
    ("license", ""),
    ("lower_case_file_system", "OFF"),
    ("lower_case_table_names", ""),
    ("max_connections", "1024"),
    ("net_buffer_length", "16384"),
    ("net_read_timeout", "30"),
    ("net_write_timeout", "60"),
    ("performance_schema", "0"),
    ("port", "6032"),
    ("protocol_version", "10"),
    ("query_cache_size", "0"),
    ("query_cache_type", "OFF"),
    ("read_only", "0"),
    ("server_id", "0"),
    ("session_track_gtids", "OFF"),
    ("skip_networking", "0"),
    ("socket", ""),
    ("sql_auto_is_null", "0"),
    ("sql_mode", ""),
    ("sql_select_limit", "18446744073709551615"),
    ("ssl_ca", ""),
    ("super_read_only", "0"),
    ("system_time_zone", "UTC"),
    ("time_zone", "SYSTEM"),
    ("timestamp", "0"),
    ("transaction_isolation", "READ-COMMITTED"),
    ("transaction_read_only", "0"),
    ("tx_isolation", "READ-COMMITTED"),
    ("tx_read_only", "0"),
    ("unique_checks", "1"),
    ("version_comment", "(ProxySQL Admin Module)"),
    ("version_compile_os", "Linux"),
    ("wait_timeout", "28800"),
];

/// Names with a value in [`client_variable`].
pub(crate) fn client_variable_names() -> impl Iterator<Item = &'static str> {
    CLIENT_VARIABLES.iter().map(|(name, _)| *name).chain(["max_allowed_packet", "version"])
}

/// The answer to `@@name` for names that no module has.
pub(crate) fn client_variable(values: &BTreeMap<String, String>, name: &str) -> Option<String> {
    match name {
        "max_allowed_packet" => Some(value_or_default(values, "mysql-max_allowed_packet").to_owned()),
        "version" => Some(env!("CARGO_PKG_VERSION").to_owned()),
        _ => CLIENT_VARIABLES.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()),
    }
}

/// `global.x`, `session.x` and `local.x` are `x`; names are in lower case.
pub(crate) fn plain_name(name: &str) -> String {
    let name = name.trim_start_matches('@').to_ascii_lowercase();
    ["global.", "session.", "local."].iter().find_map(|scope| name.strip_prefix(scope).map(str::to_owned)).unwrap_or(name)
}
