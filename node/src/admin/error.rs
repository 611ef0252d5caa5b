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

/// An error of a statement that ran here.
pub(crate) fn engine_error(error: &EngineError) -> SqlError {
    match error {
        EngineError::Locked => SqlError::new(1205, "HY000", "55P03", error.to_string()),
        EngineError::Interrupted => SqlError::new(3024, "HY000", "57014", format!("{PREFIX}interrupted: the statement ran too long")),
        EngineError::Sql(_) | EngineError::Constraint { .. } | EngineError::TooLarge | EngineError::Parameters { .. } => {
            sql_error(error.to_string())
        }
    }
}

/// A refusal of consensus; SQL errors of the leader carry the prefix that clients know.
pub(crate) fn rejection(rejection: Rejection) -> SqlError {
    let Rejection { mysql_code, mysql_state, pgsql_state, message } = rejection;
    let message = if mysql_code == 1045 && !message.starts_with(PREFIX) { format!("{PREFIX}{message}") } else { message };
    SqlError { mysql_code, mysql_state, pgsql_state, message }
}
