//! SQLite's errors in the words and codes that MySQL and PostgreSQL clients know.

use crate::sql_server::engine::EngineError;
use crate::sql_server::{Face, SqlError};

/// A write on a server that takes none.
pub(super) fn read_only(face: Face, verb: &str) -> SqlError {
    let message = match face {
        Face::Mysql => "The MySQL server is running with the --read-only option so it cannot execute this statement".to_owned(),
        Face::Pgsql => format!("cannot execute {} in a read-only transaction", verb.to_ascii_uppercase()),
    };
    SqlError::new(1290, "HY000", "25006", message)
}

/// Anything in a PostgreSQL transaction that has failed.
pub(super) fn failed_transaction() -> SqlError {
    SqlError::new(1105, "HY000", "25P02", "current transaction is aborted, commands ignored until end of transaction block")
}

/// The engine's errors.
pub(super) fn from_engine(face: Face, error: &EngineError) -> SqlError {
    match error {
        EngineError::Sql(message) => from_text(face, message),
        EngineError::Constraint { message, extended } => constraint(face, message, *extended),
        EngineError::Locked => SqlError::new(
            1213,
            "40001",
            "40001",
            by_face(
                face,
                "Deadlock found when trying to get lock; try restarting transaction",
                "could not serialize access due to concurrent update",
            ),
        ),
        EngineError::Interrupted => SqlError::new(
            1317,
            "70100",
            "57014",
            by_face(face, "Query execution was interrupted", "canceling statement due to user request"),
        ),
        EngineError::TooLarge => SqlError::new(1105, "HY000", "54000", error.to_string()),
        EngineError::Parameters { .. } => SqlError::new(1210, "HY000", "08P01", error.to_string()),
    }
}

fn by_face(face: Face, mysql: &str, pgsql: &str) -> String {
    match face {
        Face::Mysql => mysql.into(),
        Face::Pgsql => pgsql.into(),
    }
}

fn from_text(face: Face, message: &str) -> SqlError {
    if let Some(table) = message.strip_prefix("no such table: ") {
        let bare = table.rsplit('.').next().unwrap_or(table);
        return SqlError::new(
            1146,
            "42S02",
            "42P01",
            by_face(face, &format!("Table 'demo.{bare}' doesn't exist"), &format!("relation \"{table}\" does not exist")),
        );
    }
    if let Some(rest) = message.strip_prefix("no such column: ") {
        // SQLite adds advice to names in double quotes.
        let column = rest.split(" - ").next().unwrap_or(rest);
        return SqlError::new(
            1054,
            "42S22",
            "42703",
            by_face(face, &format!("Unknown column '{column}' in 'field list'"), &format!("column \"{column}\" does not exist")),
        );
    }
    if let Some(rest) = message.strip_prefix("no such function: ") {
        return SqlError::new(
            1305,
            "42000",
            "42883",
            by_face(face, &format!("FUNCTION demo.{rest} does not exist"), &format!("function {rest}() does not exist")),
        );
    }
    if let Some((name, _)) = message.strip_prefix("table ").and_then(|rest| rest.split_once(" already exists")) {
        let name = name.trim_matches(['"', '`']);
        return SqlError::new(
            1050,
            "42S01",
            "42P07",
            by_face(face, &format!("Table '{name}' already exists"), &format!("relation \"{name}\" already exists")),
        );
    }
    if let Some((near, _)) = message.strip_prefix("near \"").and_then(|rest| rest.split_once("\": ")) {
        let pgsql = format!("syntax error at or near \"{near}\"");
        return SqlError::new(
            1064,
            "42000",
            "42601",
            by_face(face, &format!("You have an error in your SQL syntax near '{near}'"), &pgsql),
        );
    }
    if message == "incomplete input" {
        return SqlError::new(
            1064,
            "42000",
            "42601",
            by_face(face, "You have an error in your SQL syntax near ''", "syntax error at end of input"),
        );
    }
    SqlError::new(1105, "HY000", "XX000", message)
}

/// Extended codes of SQLITE_CONSTRAINT (sqlite3.h).
fn constraint(face: Face, message: &str, extended: i32) -> SqlError {
    let subject = message.split_once("failed: ").map_or(message, |(_, subject)| subject);
    match extended {
        // PRIMARYKEY, UNIQUE, ROWID
        1555 | 2067 | 2579 => SqlError::new(
            1062,
            "23000",
            "23505",
            by_face(
                face,
                &format!("Duplicate entry for key '{subject}'"),
                &format!("duplicate key value violates unique constraint \"{subject}\""),
            ),
        ),
        // NOTNULL
        1299 => {
            let column = subject.rsplit('.').next().unwrap_or(subject);
            SqlError::new(
                1048,
                "23000",
                "23502",
                by_face(
                    face,
                    &format!("Column '{column}' cannot be null"),
                    &format!("null value in column \"{column}\" violates not-null constraint"),
                ),
            )
        }
        // FOREIGNKEY
        787 => SqlError::new(1452, "23000", "23503", message),
        // CHECK
        275 => SqlError::new(
            3819,
            "HY000",
            "23514",
            by_face(
                face,
                &format!("Check constraint '{subject}' is violated."),
                &format!("new row violates check constraint \"{subject}\""),
            ),
        ),
        _ => SqlError::new(1105, "23000", "23000", message),
    }
}
