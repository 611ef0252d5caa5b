//! Statements about the server and the session, which SQLite never sees: SET, SHOW, USE, transaction control.

use super::Server;
use super::dialect::verb;
use crate::sql_server::lexer::{Kind, Token, tokens};
use crate::sql_server::{Face, Rows, SqlError, Value};

/// What a statement is, where it is not plain SQL.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Chatter {
    /// `SET GLOBAL read_only`.
    ReadOnly(bool),
    /// `SET autocommit`.
    Autocommit(bool),
    /// Accepted, nothing to do.
    Ignored,
    /// `USE name`.
    Use(String),
    /// `BEGIN`, `START TRANSACTION`.
    Begin,
    /// `COMMIT`, `END`.
    Commit,
    /// `ROLLBACK`, but not to a savepoint.
    Rollback,
    /// A ready answer.
    Answer(Rows),
    /// A query on the catalogue.
    Catalogue(&'static str),
}

/// What the server says about itself and the session.
pub(super) struct Facts<'a> {
    pub(super) server: &'a Server,
    pub(super) face: Face,
    pub(super) database: &'a str,
    pub(super) autocommit: bool,
    pub(super) connection_id: u32,
}

/// Recognises `sql`; `None` = it is for SQLite.
pub(super) fn recognise(sql: &str, facts: &Facts<'_>) -> Result<Option<Chatter>, SqlError> {
    let tokens = tokens(sql);
    let word = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.is(text));
    Ok(Some(match verb(sql).as_str() {
        "SET" => set(&tokens[1..], facts.face)?,
        "SHOW" => show(&tokens[1..], facts)?,
        "USE" => Chatter::Use(tokens.get(1).map(Token::unquoted).unwrap_or_default()),
        "BEGIN" => Chatter::Begin,
        "START" if word(1, "TRANSACTION") => Chatter::Begin,
        "COMMIT" | "END" => Chatter::Commit,
        "ROLLBACK" | "ABORT" if !(word(1, "TO") || word(2, "TO")) => Chatter::Rollback,
        "DISCARD" | "RESET" | "LISTEN" | "UNLISTEN" | "ANALYZE" | "FLUSH" => Chatter::Ignored,
        _ => return Ok(None),
    }))
}

/// The value of `@@name` or `@@global.name` as a literal.
pub(super) fn variable(name: &str, facts: &Facts<'_>) -> Option<String> {
    let bare = bare_name(name);
    let (_, value) = variables(facts).into_iter().find(|(known, _)| *known == bare)?;
    Some(match value {
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => format!("'{}'", text.replace('\'', "''")),
        _ => "NULL".into(),
    })
}

/// `current_setting(name)` and `SHOW name` of PostgreSQL.
pub(super) fn setting(name: &str, server: &Server) -> Option<String> {
    let on = |on: bool| if on { "on" } else { "off" }.to_owned();
    Some(match name.to_ascii_lowercase().as_str() {
        "server_version" => super::PGSQL_VERSION.into(),
        "server_version_num" => "150000".into(),
        "transaction_read_only" | "in_hot_standby" => on(server.is_read_only()),
        "default_transaction_read_only" => "off".into(),
        "transaction_isolation" | "transaction isolation level" | "default_transaction_isolation" => "read committed".into(),
        "standard_conforming_strings" | "integer_datetimes" => "on".into(),
        "server_encoding" | "client_encoding" => "UTF8".into(),
        "timezone" => "UTC".into(),
        "datestyle" => "ISO, MDY".into(),
        "search_path" => "\"$user\", public".into(),
        "port" => server.pgsql_port.to_string(),
        "max_connections" => "1000".into(),
        "application_name" => String::new(),
        _ => return None,
    })
}

fn bare_name(name: &str) -> String {
    let name = name.trim_start_matches('@').to_ascii_lowercase();
    ["global.", "session.", "local."].iter().find_map(|scope| name.strip_prefix(scope)).map_or(name.clone(), str::to_owned)
}

/// MySQL's variables, numbers where they are numbers or flags.
fn variables(facts: &Facts<'_>) -> Vec<(&'static str, Value)> {
    let number = |number: i64| Value::Integer(number);
    let text = |text: &str| Value::Text(text.into());
    let read_only = i64::from(facts.server.is_read_only());
    vec![
        ("autocommit", number(facts.autocommit.into())),
        ("auto_increment_increment", number(1)),
        ("character_set_client", text("utf8mb4")),
        ("character_set_connection", text("utf8mb4")),
        ("character_set_results", text("utf8mb4")),
        ("character_set_server", text("utf8mb4")),
        ("collation_connection", text("utf8mb4_general_ci")),
        ("collation_server", text("utf8mb4_general_ci")),
        ("hostname", text(&facts.server.host_name())),
        ("innodb_read_only", number(read_only)),
        ("interactive_timeout", number(28_800)),
        ("license", text("Apache-2.0")),
        ("lower_case_table_names", number(0)),
        ("max_allowed_packet", number(67_108_864)),
        ("net_write_timeout", number(60)),
        ("performance_schema", number(0)),
        ("port", number(facts.server.mysql_port.into())),
        ("pseudo_thread_id", number(facts.connection_id.into())),
        ("read_only", number(read_only)),
        ("server_id", number(facts.server.id.into())),
        ("socket", text("")),
        ("sql_mode", text("ANSI_QUOTES")),
        ("super_read_only", number(read_only)),
        ("system_time_zone", text("UTC")),
        ("time_zone", text("SYSTEM")),
        ("transaction_isolation", text("REPEATABLE-READ")),
        ("tx_isolation", text("REPEATABLE-READ")),
        ("version", text(super::MYSQL_VERSION)),
        ("version_comment", text("embedded backend of the quorumsql demo")),
        ("wait_timeout", number(28_800)),
    ]
}

fn set(rest: &[Token<'_>], face: Face) -> Result<Chatter, SqlError> {
    let global = rest.first().is_some_and(|token| token.is("GLOBAL") || token.text.to_ascii_lowercase().starts_with("@@global."));
    let skip = usize::from(rest.first().is_some_and(|token| ["GLOBAL", "SESSION", "LOCAL"].iter().any(|word| token.is(word))));
    let name = rest.get(skip).map(|token| bare_name(token.text)).unwrap_or_default();
    let value = rest.get(skip + 1..).unwrap_or_default().iter().find(|token| !(token.is_sign('=') || token.is_sign(':') || token.is("TO")));
    let flag = || match value.map(|token| token.unquoted().to_ascii_lowercase()).as_deref() {
        Some("1" | "on" | "true") => Ok(true),
        Some("0" | "off" | "false") => Ok(false),
        other => {
            let value = other.unwrap_or_default();
            let message = match face {
                Face::Mysql => format!("Variable '{name}' can't be set to the value of '{value}'"),
                Face::Pgsql => format!("parameter \"{name}\" requires a Boolean value"),
            };
            Err(SqlError::new(1231, "42000", "22023", message))
        }
    };
    match name.as_str() {
        "read_only" | "super_read_only" if global => flag().map(Chatter::ReadOnly),
        "autocommit" if face == Face::Mysql => flag().map(Chatter::Autocommit),
        _ => Ok(Chatter::Ignored),
    }
}

fn show(rest: &[Token<'_>], facts: &Facts<'_>) -> Result<Chatter, SqlError> {
    if facts.face == Face::Pgsql {
        let name = rest.iter().map(|token| token.text).collect::<Vec<_>>().join(" ");
        let value = setting(&name, facts.server)
            .ok_or_else(|| SqlError::new(1193, "HY000", "42704", format!("unrecognized configuration parameter \"{name}\"")))?;
        return Ok(Chatter::Answer(Rows::text(&[name.as_str()], vec![vec![Value::Text(value)]])));
    }
    let words: Vec<String> = rest.iter().filter(|token| token.kind == Kind::Word).map(|token| token.text.to_ascii_uppercase()).collect();
    let subject = words.iter().find(|word| !["GLOBAL", "SESSION", "FULL", "LOCAL"].contains(&word.as_str())).map(String::as_str);
    Ok(match subject {
        Some("VARIABLES") => Chatter::Answer(show_variables(rest, facts)),
        Some("TABLES") => Chatter::Catalogue(
            "SELECT name AS Tables_in_demo FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
        ),
        Some("DATABASES" | "SCHEMAS") => Chatter::Answer(Rows::text(&["Database"], vec![vec![Value::Text("demo".into())]])),
        Some("STATUS") => Chatter::Answer(Rows::text(&["Variable_name", "Value"], Vec::new())),
        Some("WARNINGS" | "ERRORS") => Chatter::Answer(Rows::text(&["Level", "Code", "Message"], Vec::new())),
        Some("SLAVE" | "REPLICA") => Chatter::Answer(Rows::text(&["Replica_IO_State"], Vec::new())),
        Some("PROCESSLIST") => Chatter::Answer(Rows::text(&["Id", "User", "Host", "db", "Command", "Time", "State", "Info"], Vec::new())),
        other => {
            let message = format!(
                "SHOW {} is not known to the embedded backend of the demo, current database {}",
                other.unwrap_or_default(),
                facts.database
            );
            return Err(SqlError::new(1235, "42000", "0A000", message));
        }
    })
}

/// `SHOW VARIABLES [LIKE 'pattern']`, also `WHERE Variable_name = '…'`: every quoted text is a pattern.
fn show_variables(rest: &[Token<'_>], facts: &Facts<'_>) -> Rows {
    let patterns: Vec<String> =
        rest.iter().filter(|token| matches!(token.kind, Kind::String | Kind::DoubleQuoted)).map(Token::unquoted).collect();
    let flags = ["autocommit", "innodb_read_only", "performance_schema", "read_only", "super_read_only"];
    let rows = variables(facts)
        .into_iter()
        .filter(|(name, _)| patterns.is_empty() || patterns.iter().any(|pattern| like(pattern, name)))
        .map(|(name, value)| {
            let shown = match value {
                Value::Integer(number) if flags.contains(&name) => if number == 1 { "ON" } else { "OFF" }.to_owned(),
                Value::Integer(number) => number.to_string(),
                Value::Text(text) => text,
                _ => String::new(),
            };
            vec![Value::Text(name.into()), Value::Text(shown)]
        })
        .collect();
    Rows::text(&["Variable_name", "Value"], rows)
}

/// SQL's LIKE on short names, without escapes.
fn like(pattern: &str, text: &str) -> bool {
    match pattern.chars().next() {
        None => text.is_empty(),
        Some('%') => text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| like(&pattern[1..], &text[at..])),
        Some(first) => text.chars().next().is_some_and(|other| {
            (first == '_' || first.eq_ignore_ascii_case(&other)) && like(&pattern[first.len_utf8()..], &text[other.len_utf8()..])
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn statements_about_the_session_are_recognised() {
        let server = Server { id: 2, mysql_port: 1, pgsql_port: 2, read_only: AtomicBool::new(true), file: "x".into() };
        let facts = |face| Facts { server: &server, face, database: "demo", autocommit: true, connection_id: 1 };
        for (face, sql, expected) in [
            (Face::Mysql, "SET GLOBAL read_only=1", Some(Chatter::ReadOnly(true))),
            (Face::Mysql, "set @@global.read_only := OFF", Some(Chatter::ReadOnly(false))),
            (Face::Mysql, "SET read_only = 1", Some(Chatter::Ignored)),
            (Face::Mysql, "SET autocommit=0", Some(Chatter::Autocommit(false))),
            (Face::Mysql, "SET NAMES utf8mb4 COLLATE utf8mb4_bin", Some(Chatter::Ignored)),
            (Face::Pgsql, "SET application_name TO 'x'", Some(Chatter::Ignored)),
            (Face::Mysql, "USE `demo`", Some(Chatter::Use("demo".into()))),
            (Face::Pgsql, "BEGIN ISOLATION LEVEL SERIALIZABLE", Some(Chatter::Begin)),
            (Face::Mysql, "START TRANSACTION READ ONLY", Some(Chatter::Begin)),
            (Face::Mysql, "ROLLBACK TO SAVEPOINT a", None),
            (Face::Mysql, "ROLLBACK WORK TO a", None),
            (Face::Pgsql, "ROLLBACK", Some(Chatter::Rollback)),
            (Face::Mysql, "SELECT 1", None),
            (
                Face::Mysql,
                "SHOW VARIABLES WHERE Variable_name = 'server_id'",
                Some(Chatter::Answer(Rows::text(
                    &["Variable_name", "Value"],
                    vec![vec![Value::Text("server_id".into()), Value::Text("2".into())]],
                ))),
            ),
        ] {
            assert_eq!(recognise(sql, &facts(face)).unwrap(), expected, "{sql}");
        }
        assert_eq!(variable("@@session.server_id", &facts(Face::Mysql)).as_deref(), Some("2"));
        assert_eq!(variable("@@unknown", &facts(Face::Mysql)), None);
        assert!(like("%only", "read_only") && like("read_onl_", "read_only") && !like("read", "read_only"));
    }
}
