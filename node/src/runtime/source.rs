//! Reads the committed RUNTIME rows, and only those of modules that changed since the last time.

use std::collections::HashMap;
use std::sync::Arc;

use quorumsql_dataplane::config::{Protocol, User};
use quorumsql_dataplane::rules::RuleRow;
use quorumsql_raft::command::{TableRows, Value};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::rows::{self, Pair, ServerRow};
use super::variables::{VariableMap, prefix};

/// Why committed rows cannot be put in force. LOAD validates, so this is a damaged file or rows of another version.
#[derive(thiserror::Error, Debug)]
pub(crate) enum SourceError {
    /// SQLite's.
    #[error("cannot read the committed configuration: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A row that does not parse.
    #[error("committed configuration: {0}")]
    Row(String),
}

/// Parsed rows of one protocol.
#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    pub(crate) servers: Arc<Servers>,
    pub(crate) users: Arc<HashMap<String, Arc<User>>>,
    pub(crate) rules: Arc<Vec<RuleRow>>,
}

/// Module `… SERVERS`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers {
    /// Column names of `*_servers`.
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<ServerRow>,
    pub(crate) pairs: Vec<Pair>,
}

/// Everything that RUNTIME says, for this node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Committed {
    /// Log index of the last entry that changed RUNTIME or overrides.
    pub(crate) index: u64,
    pub(crate) revision: u64,
    pub(crate) mysql: Side,
    pub(crate) pgsql: Side,
    pub(crate) variables: Arc<VariableMap>,
    /// This node's rows of `node_overrides`, also in `variables`.
    pub(crate) overrides: Vec<(String, String)>,
    /// By module: the log index that changed it last.
    indexes: HashMap<String, u64>,
}

impl Committed {
    /// What is committed now, reusing the parts of `self` whose module has not changed.
    pub(crate) fn refresh(&self, connection: &Connection, node_id: u64) -> Result<Self, SourceError> {
        // One transaction: all tables are of the same log index.
        let transaction = connection.unchecked_transaction()?;
        let indexes = module_indexes(&transaction)?;
        let (index, revision) = transaction.query_row("SELECT runtime_index, runtime_revision FROM raft_meta WHERE id = 1", [], |row| {
            Ok((unsigned(row.get(0)?), unsigned(row.get(1)?)))
        })?;
        let changed = |module: &str| match (indexes.get(module), self.indexes.get(module)) {
            (Some(now), Some(before)) => now != before,
            _ => true,
        };
        let overrides = node_overrides(&transaction, node_id)?;
        let variables_changed =
            ["MYSQL VARIABLES", "PGSQL VARIABLES", "ADMIN VARIABLES"].into_iter().any(changed) || overrides != self.overrides;
        let variables = if variables_changed {
            let cluster = rows::variables(&table(&transaction, "global_variables", "variable_name")?).map_err(SourceError::Row)?;
            Arc::new(VariableMap::new(cluster, overrides.iter().cloned()))
        } else {
            self.variables.clone()
        };
        let committed = Self {
            index,
            revision,
            mysql: self.mysql.refresh(&transaction, Protocol::Mysql, changed)?,
            pgsql: self.pgsql.refresh(&transaction, Protocol::Pgsql, changed)?,
            variables,
            overrides,
            indexes,
        };
        transaction.finish()?;
        Ok(committed)
    }

    /// The side of `protocol`.
    pub(crate) fn side(&self, protocol: Protocol) -> &Side {
        match protocol {
            Protocol::Mysql => &self.mysql,
            Protocol::Pgsql => &self.pgsql,
        }
    }
}

impl Side {
    fn refresh(&self, connection: &Connection, protocol: Protocol, changed: impl Fn(&str) -> bool) -> Result<Self, SourceError> {
        let name = prefix(protocol);
        let module = |rest: &str| format!("{} {rest}", name.to_ascii_uppercase());
        let mut side = self.clone();
        if changed(&module("SERVERS")) {
            let servers = table(connection, &format!("{name}_servers"), "hostgroup_id, hostname, port")?;
            let pairs = table(connection, &format!("{name}_replication_hostgroups"), "writer_hostgroup")?;
            side.servers = Arc::new(Servers {
                rows: rows::servers(&servers).map_err(SourceError::Row)?,
                pairs: rows::pairs(&pairs).map_err(SourceError::Row)?,
                columns: servers.columns,
            });
        }
        if changed(&module("USERS")) {
            let users = rows::users(&table(connection, &format!("{name}_users"), "username, backend")?).map_err(SourceError::Row)?;
            side.users = Arc::new(users.into_iter().map(|user| (user.name.clone(), Arc::new(user))).collect());
        }
        if changed(&module("QUERY RULES")) {
            let rules = table(connection, &format!("{name}_query_rules"), "rule_id")?;
            side.rules = Arc::new(rows::rules(&rules, protocol).map_err(SourceError::Row)?.0);
        }
        Ok(side)
    }
}

/// SQLite's integers are signed; ours here never are.
fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

fn module_indexes(connection: &Connection) -> Result<HashMap<String, u64>, rusqlite::Error> {
    let mut statement = connection.prepare("SELECT module, runtime_index FROM module_state")?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, unsigned(row.get(1)?))))?;
    rows.collect()
}

fn node_overrides(connection: &Connection, node_id: u64) -> Result<Vec<(String, String)>, rusqlite::Error> {
    let mut statement = connection.prepare("SELECT name, value FROM node_overrides WHERE node_id = ?1 ORDER BY name")?;
    let rows = statement.query_map([i64::try_from(node_id).unwrap_or(i64::MAX)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

/// All rows of the RUNTIME layer of `name` (a constant of this file), in key order.
fn table(connection: &Connection, name: &str, key: &str) -> Result<TableRows, rusqlite::Error> {
    let mut statement = connection.prepare(&format!("SELECT * FROM base_runtime_{name} ORDER BY {key}"))?;
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let width = columns.len();
    let rows = statement.query_map([], |row| (0..width).map(|at| Ok(value(row.get_ref(at)?))).collect::<Result<Vec<Value>, _>>())?;
    Ok(TableRows { table: name.to_owned(), columns, rows: rows.collect::<Result<_, _>>()? })
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A `state.db` with the tables that are read here, reduced to the columns that matter.
    pub(in crate::runtime) fn state() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        for name in ["mysql", "pgsql"] {
            let schema = if name == "mysql" { ("default_schema,", "schemaname") } else { ("", "database") };
            connection
                .execute_batch(&format!(
                    "CREATE TABLE base_runtime_{name}_servers (hostgroup_id INT, hostname VARCHAR, port INT, status VARCHAR, weight INT, max_connections INT, max_latency_ms INT, use_ssl INT, comment VARCHAR);
                     CREATE TABLE base_runtime_{name}_replication_hostgroups (writer_hostgroup INT, reader_hostgroup INT, check_type VARCHAR, comment VARCHAR);
                     CREATE TABLE base_runtime_{name}_users (username, password, active, use_ssl, default_hostgroup, {} transaction_persistent, frontend, backend, max_connections, attributes);
                     CREATE TABLE base_runtime_{name}_query_rules (rule_id INTEGER PRIMARY KEY, active, username, {}, flagIN DEFAULT 0, client_addr, proxy_addr, proxy_port, digest, match_digest, match_pattern, negate_match_pattern DEFAULT 0, re_modifiers, flagOUT, destination_hostgroup, error_msg, OK_msg, multiplex, apply DEFAULT 0);",
                    schema.0, schema.1
                ))
                .unwrap();
        }
        connection
            .execute_batch(
                "CREATE TABLE base_runtime_global_variables (variable_name, variable_value);
                 CREATE TABLE node_overrides (node_id, name, value, author, \"index\");
                 CREATE TABLE raft_meta (id, runtime_index, runtime_revision);
                 INSERT INTO raft_meta VALUES (1, 30, 3);
                 CREATE TABLE module_state (module, runtime_revision, runtime_index);
                 INSERT INTO module_state VALUES ('MYSQL SERVERS', 3, 30), ('MYSQL QUERY RULES', 2, 20), ('MYSQL USERS', 0, 0), ('PGSQL SERVERS', 0, 0),
                    ('PGSQL USERS', 0, 0), ('PGSQL QUERY RULES', 0, 0), ('MYSQL VARIABLES', 1, 10), ('PGSQL VARIABLES', 1, 10), ('ADMIN VARIABLES', 1, 10);
                 INSERT INTO base_runtime_mysql_servers VALUES (10, 'a', 3306, 'ONLINE', 1, 100, 0, 0, 'first');
                 INSERT INTO base_runtime_mysql_replication_hostgroups VALUES (10, 20, 'read_only', '');
                 INSERT INTO base_runtime_mysql_query_rules (rule_id, active, match_digest, destination_hostgroup, apply) VALUES (1, 1, '^SELECT', 20, 1);
                 INSERT INTO base_runtime_mysql_users VALUES ('demo', 'demo', 1, 0, 10, NULL, 1, 1, 1, 10, '');
                 INSERT INTO base_runtime_global_variables VALUES ('mysql-max_connections', '5');
                 INSERT INTO node_overrides VALUES (7, 'mysql-max_connections', '6', 'admin', 1);",
            )
            .unwrap();
        connection
    }

    #[test]
    fn only_changed_modules_are_read_again() {
        let connection = state();
        let first = Committed::default().refresh(&connection, 1).unwrap();
        assert_eq!((first.revision, first.mysql.servers.rows.len(), first.mysql.users.len()), (3, 1, 1));
        assert_eq!(first.variables.get("mysql-max_connections"), Some("5"));
        // Rows that change without their module's index moving cannot happen; here it shows what is read.
        connection
            .execute_batch("DELETE FROM base_runtime_mysql_servers; DELETE FROM base_runtime_mysql_query_rules; UPDATE module_state SET runtime_index = 31 WHERE module = 'MYSQL QUERY RULES'; UPDATE raft_meta SET runtime_index = 31, runtime_revision = 4")
            .unwrap();
        let second = first.refresh(&connection, 1).unwrap();
        assert!(Arc::ptr_eq(&first.mysql.servers, &second.mysql.servers) && Arc::ptr_eq(&first.variables, &second.variables));
        assert_eq!((second.mysql.rules.len(), second.index, second.revision), (0, 31, 4));
    }

    #[test]
    fn overrides_of_this_node_win_and_are_noticed() {
        let connection = state();
        let node = Committed::default().refresh(&connection, 7).unwrap();
        assert_eq!(node.variables.get("mysql-max_connections"), Some("6"));
        connection.execute_batch("DELETE FROM node_overrides").unwrap();
        assert_eq!(node.refresh(&connection, 7).unwrap().variables.get("mysql-max_connections"), Some("5"));
    }

    #[test]
    fn a_row_that_does_not_parse_is_named() {
        let connection = state();
        connection.execute_batch("UPDATE base_runtime_mysql_servers SET status = 'UP'").unwrap();
        let error = Committed::default().refresh(&connection, 1).unwrap_err().to_string();
        assert_eq!(error, "committed configuration: mysql_servers (10, a, 3306): status `UP` is no status");
    }
}
