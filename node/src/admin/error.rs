//! Errors of the admin interface in both dialects (admin-commands.md 12 and 13, raft-and-storage.md 4.7).

use quorumsql_raft::command::Rejection;

use crate::sql_server::SqlError;
use crate::sql_server::engine::EngineError;

/// What every text of an admin error begins with.
pub(crate) const PREFIX: &str = "ProxySQL Admin Error: ";

/// An error of the command layer.
pub(crate) fn handler_error(text: impl AsRef<str>) -> SqlError {
    SqlError::new(1045, "28000", "P0001", format!("{PREFIX}{}", text.as_ref()))
}

/// An error with SQLite's text.
pub(crate) fn sql_error(text: impl AsRef<str>) -> SqlError {
    SqlError::new(1045, "28000", "28000", format!("{PREFIX}{}", text.as_ref()))
}

/// SQLite's words for a statement that begins with nothing it knows.
pub(crate) fn syntax_error(near: &str) -> SqlError {
    sql_error(format!("near \"{near}\": syntax error"))
}

/// Tables of the reference that this version does not have, by the end of their names, and what to do without them.
const ABSENT: [(&str, &str); 9] = [
    ("_servers_ssl_params", "the variables mysql-ssl_p2s_* and pgsql-ssl_p2s_* set TLS for all servers with use_ssl=1"),
    ("_hostgroup_attributes", "the variables apply to all hostgroups"),
    ("_group_replication_hostgroups", "servers are followed by read_only (mysql_replication_hostgroups)"),
    ("_galera_hostgroups", "servers are followed by read_only (mysql_replication_hostgroups)"),
    ("_aws_aurora_hostgroups", "servers are followed by read_only (mysql_replication_hostgroups)"),
    ("_query_rules_fast_routing", "rules by username and schemaname do the same"),
    ("proxysql_servers", "nodes join the cluster with `quorumsql join`; stats_cluster_nodes lists them"),
    ("scheduler", "programs are to be run from outside"),
    ("restapi_routes", "gRPC and SQL are the interfaces"),
];

/// SQLite's text, with a word about a table that the reference has.
fn about_tables(text: String) -> String {
    let Some((_, table)) = text.split_once("no such table: ") else { return text };
    let name = table.rsplit('.').next().unwrap_or(table);
    match ABSENT.iter().find(|(end, _)| name.ends_with(end)) {
        Some((_, instead)) => format!("{text} (not available in this version: {instead})"),
        None => text,
    }
}

/// An error of a statement that ran here.
pub(crate) fn engine_error(error: &EngineError) -> SqlError {
    match error {
        EngineError::Locked => SqlError::new(1205, "HY000", "55P03", error.to_string()),
        EngineError::Interrupted => {
            SqlError::new(3024, "HY000", "57014", format!("{PREFIX}interrupted: the statement ran too long, or was killed"))
        }
        EngineError::Sql(_) | EngineError::Constraint { .. } | EngineError::TooLarge | EngineError::Parameters { .. } => {
            sql_error(about_tables(error.to_string()))
        }
    }
}

/// A refusal of consensus; SQL errors of the leader carry the prefix that clients know.
pub(crate) fn rejection(rejection: Rejection) -> SqlError {
    let Rejection { mysql_code, mysql_state, pgsql_state, message } = rejection;
    let message = about_tables(message);
    let message = if mysql_code == 1045 && !message.starts_with(PREFIX) { format!("{PREFIX}{message}") } else { message };
    SqlError { mysql_code, mysql_state, pgsql_state, message }
}
