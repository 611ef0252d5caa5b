//! SQL functions that clients expect and SQLite lacks (admin-commands.md 11 and 14).

use quorumsql_raft::sqlfn;
use regex::Regex;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Result};

/// Facts of a connection that functions tell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ClientFacts {
    /// Current schema or database.
    pub(crate) database: String,
    /// User name.
    pub(crate) user: String,
    /// Client address.
    pub(crate) host: String,
    /// Answer of `version()`.
    pub(crate) version: String,
    /// Connection id.
    pub(crate) connection_id: u32,
    /// Answer of `last_insert_id()`.
    pub(crate) last_insert_id: i64,
}

/// Registers them all.
///
/// # Errors
/// SQLite's.
pub(crate) fn register(connection: &Connection, facts: &ClientFacts) -> Result<()> {
    register_client(connection, facts)?;
    sqlfn::register(connection)?;
    register_time(connection)?;
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("regexp", 2, flags, |context| regexp(context))
}

fn register_client(connection: &Connection, facts: &ClientFacts) -> Result<()> {
    let account = format!("{}@{}", facts.user, facts.host);
    let texts = [
        ("database", &facts.database),
        ("schema", &facts.database),
        ("current_database", &facts.database),
        ("version", &facts.version),
        ("user", &account),
        ("current_user", &account),
        ("session_user", &account),
        ("system_user", &account),
    ];
    for (name, text) in texts {
        let text = text.clone();
        connection.create_scalar_function(name, 0, FunctionFlags::SQLITE_UTF8, move |_| Ok(text.clone()))?;
    }
    let numbers = [
        ("connection_id", i64::from(facts.connection_id)),
        ("pg_backend_pid", i64::from(facts.connection_id)),
        ("last_insert_id", facts.last_insert_id),
    ];
    for (name, number) in numbers {
        connection.create_scalar_function(name, 0, FunctionFlags::SQLITE_UTF8, move |_| Ok(number))?;
    }
    Ok(())
}

fn register_time(connection: &Connection) -> Result<()> {
    for name in ["now", "utc_timestamp"] {
        connection.create_scalar_function(name, 0, FunctionFlags::SQLITE_UTF8, |_| Ok(sqlfn::utc_text(unix_seconds())))?;
    }
    connection.create_scalar_function("unix_timestamp", 0, FunctionFlags::SQLITE_UTF8, |_| Ok(unix_seconds()))?;
    // This server's clock is UTC, so that the difference of NOW() and UTC_TIMESTAMP() is none.
    connection.create_scalar_function("timediff", 2, FunctionFlags::SQLITE_UTF8, |_| Ok("00:00:00".to_owned()))
}

fn unix_seconds() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

/// `text REGEXP pattern`; the compiled pattern is kept for the statement.
fn regexp(context: &Context<'_>) -> Result<Option<bool>> {
    let pattern = context
        .get_or_create_aux(0, |value| -> Result<Regex, Box<dyn std::error::Error + Send + Sync>> { Ok(Regex::new(value.as_str()?)?) })?;
    Ok(match context.get_raw(1) {
        ValueRef::Null => None,
        ValueRef::Text(text) => Some(pattern.is_match(&String::from_utf8_lossy(text))),
        ValueRef::Integer(number) => Some(pattern.is_match(&number.to_string())),
        _ => Some(false),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_answer_as_the_reference() {
        let connection = Connection::open_in_memory().unwrap();
        let facts = ClientFacts {
            database: "main".into(),
            user: "admin".into(),
            host: "127.0.0.1".into(),
            version: "1.0".into(),
            ..ClientFacts::default()
        };
        register(&connection, &facts).unwrap();
        for (sql, expected) in [
            ("mysql_native_password('secret')", "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7"),
            ("mysql_native_password()", "Invalid number of arguments"),
            ("mysql_native_password(1)", "Invalid argument type"),
            ("substr(caching_sha2_password('x', 'aaaaaaaaaaaaaaaaaaaa'), 1, 27)", "$A$005$aaaaaaaaaaaaaaaaaaaa"),
            ("caching_sha2_password('x', 'aaaaaaaaaaaaaaaaaaaaa')", "Invalid argument size"),
            ("length(caching_sha2_password('x'))", "70"),
            ("from_unixtime(0)", "1970-01-01 00:00:00"),
            ("from_unixtime(951782400)", "2000-02-29 00:00:00"),
            ("from_unixtime('x')", "Invalid argument type"),
            ("DATABASE() || ' ' || USER()", "main admin@127.0.0.1"),
            ("'pg_toast_1' REGEXP '^pg_toast'", "1"),
        ] {
            let found: String = connection.query_row(&format!("SELECT CAST({sql} AS TEXT)"), [], |row| row.get(0)).unwrap();
            assert_eq!(found, expected, "{sql}");
        }
    }
}
