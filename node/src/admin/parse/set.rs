//! SET (admin-commands.md 5 and 11).

use super::{Command, Cursor, refused};
use crate::sql_server::lexer::Kind;

/// A SET statement with an effect, or with an answer of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SetCommand {
    /// A replicated variable in MEMORY.
    Variable {
        /// With its prefix.
        name: String,
        /// As text.
        value: String,
    },
    /// `SET NODE n name=value`; DEFAULT removes the override.
    Node {
        /// Whose.
        node_id: u64,
        /// Variable.
        name: String,
        /// `None` = remove.
        value: Option<String>,
    },
    /// `SET CONNECTION read_level='local'`.
    ReadLevel(String),
    /// `SET CONNECTION read_after=index`: reads wait until this node has applied it.
    ReadAfter(u64),
    /// Not a variable of ours and not a client's: answered as the reference does.
    Unknown(String),
}

/// First words and names that clients and drivers set, in both protocols.
const CLIENT_WORDS: [&str; 51] = [
    "NAMES",
    "CHARACTER",
    "CHARSET",
    "AUTOCOMMIT",
    "TRANSACTION",
    "SQL_AUTO_IS_NULL",
    "SQL_SAFE_UPDATES",
    "SQL_MODE",
    "SQL_QUOTE_SHOW_CREATE",
    "SQL_LOG_BIN",
    "SQL_NOTES",
    "SQL_SELECT_LIMIT",
    "SQL_BIG_SELECTS",
    "CHARACTER_SET_RESULTS",
    "CHARACTER_SET_CLIENT",
    "CHARACTER_SET_CONNECTION",
    "COLLATION_CONNECTION",
    "FOREIGN_KEY_CHECKS",
    "UNIQUE_CHECKS",
    "NET_WRITE_TIMEOUT",
    "NET_READ_TIMEOUT",
    "WAIT_TIMEOUT",
    "INTERACTIVE_TIMEOUT",
    "MAX_EXECUTION_TIME",
    "LOCK_WAIT_TIMEOUT",
    "INNODB_LOCK_WAIT_TIMEOUT",
    "TX_ISOLATION",
    "TRANSACTION_ISOLATION",
    "TRANSACTION_READ_ONLY",
    "TX_READ_ONLY",
    "TIME_ZONE",
    "TIMEZONE",
    "TIME",
    "GROUP_CONCAT_MAX_LEN",
    "CLIENT_ENCODING",
    "CLIENT_MIN_MESSAGES",
    "APPLICATION_NAME",
    "DATESTYLE",
    "INTERVALSTYLE",
    "EXTRA_FLOAT_DIGITS",
    "STANDARD_CONFORMING_STRINGS",
    "STATEMENT_TIMEOUT",
    "LOCK_TIMEOUT",
    "IDLE_IN_TRANSACTION_SESSION_TIMEOUT",
    "SEARCH_PATH",
    "BYTEA_OUTPUT",
    "DEFAULT_TRANSACTION_ISOLATION",
    "DEFAULT_TRANSACTION_READ_ONLY",
    "SYNCHRONOUS_COMMIT",
    "ROW_SECURITY",
    "ROLE",
];

/// `cursor` stands on SET.
pub(super) fn parse(cursor: &mut Cursor<'_>) -> Command {
    cursor.next();
    if cursor.accept("NODE") {
        return node(cursor);
    }
    if cursor.accept("CONNECTION") {
        return connection(cursor);
    }
    while cursor.accept("GLOBAL") || cursor.accept("SESSION") || cursor.accept("LOCAL") {}
    match assignment(cursor) {
        Ok((name, value)) if is_ours(&name) => {
            if name == "mysql-init_connect" {
                return refused(
                    "ERROR: Global variable 'mysql-init_connect' is not configurable using SET command. You must run UPDATE global_variables",
                );
            }
            if name.is_empty() || value.is_empty() {
                return Command::Syntax { near: "SET".into() };
            }
            Command::Set(SetCommand::Variable { name, value: literal(&value) })
        }
        Ok((name, _)) | Err(name) if is_client_word(&name) => Command::Ignored,
        Ok((name, _)) => Command::Set(SetCommand::Unknown(name)),
        Err(_) => Command::Syntax { near: "SET".into() },
    }
}

fn node(cursor: &mut Cursor<'_>) -> Command {
    let Some(node_id) = cursor.next().and_then(|token| token.text.parse().ok()) else {
        return refused("SET NODE needs a node id and name=value");
    };
    match assignment(cursor) {
        Ok((name, value)) if is_ours(&name) && !value.is_empty() => {
            let value = if value.eq_ignore_ascii_case("DEFAULT") { None } else { Some(literal(&value)) };
            Command::Set(SetCommand::Node { node_id, name, value })
        }
        _ => refused("SET NODE needs a variable with its prefix: SET NODE 3 mysql-interfaces='…'"),
    }
}

fn connection(cursor: &mut Cursor<'_>) -> Command {
    match assignment(cursor) {
        Ok((name, value)) if name == "read_level" => Command::Set(SetCommand::ReadLevel(literal(&value).to_ascii_lowercase())),
        Ok((name, value)) if name == "read_after" => literal(&value)
            .parse()
            .map_or_else(|_| refused("read_after is a log index"), |index| Command::Set(SetCommand::ReadAfter(index))),
        _ => refused("SET CONNECTION knows read_level = 'auto', 'local' or 'linearizable', and read_after = index"),
    }
}

/// `name = value`, `name := value`, `name TO value`; an error is the first word of what has no sign.
fn assignment(cursor: &mut Cursor<'_>) -> Result<(String, String), String> {
    let Some(first) = cursor.peek() else { return Err(String::new()) };
    let start = first.start;
    while let Some(token) = cursor.next() {
        let sign = token.is_sign('=')
            || (token.is("TO") && token.start > start)
            || (token.is_sign(':') && cursor.peek().is_some_and(|next| next.is_sign('=')));
        if sign {
            let name = cursor.sql.get(start..token.start).unwrap_or("").trim();
            cursor.accept_sign('=');
            return Ok((plain_name(name), cursor.rest().to_owned()));
        }
    }
    Err(first.text.to_owned())
}

/// Names are found in any case; ours are then spelt as in `global_variables` (`mysql-query_cache_size_MB`).
fn plain_name(name: &str) -> String {
    let name = name.trim_matches(['`', '"', '\'']).trim_start_matches("@@").to_ascii_lowercase();
    let name = ["global.", "session.", "local."].iter().find_map(|scope| name.strip_prefix(scope)).unwrap_or(&name);
    let name: String = name.split_whitespace().collect();
    let known = quorumsql_raft::tables::variables().iter().find(|variable| variable.name.eq_ignore_ascii_case(&name));
    known.map_or(name, |variable| variable.name.to_owned())
}

fn is_ours(name: &str) -> bool {
    ["mysql-", "pgsql-", "admin-", "ldap-", "sqliteserver-", "clickhouse-"].iter().any(|prefix| name.starts_with(prefix))
}

/// The name up to its first blank or sign decides (`SET NAMES utf8`, `SET TRANSACTION ISOLATION …`, `SET @old=…`).
fn is_client_word(name: &str) -> bool {
    let word: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    name.starts_with('@')
        || CLIENT_WORDS.iter().any(|known| known.eq_ignore_ascii_case(&word))
        || name.eq_ignore_ascii_case("characteristics")
}

/// A quoted text without its quotes, anything else as written.
fn literal(value: &str) -> String {
    let found = crate::sql_server::lexer::tokens(value);
    match found.as_slice() {
        [only] if matches!(only.kind, Kind::String | Kind::DoubleQuoted | Kind::Name) => only.unquoted(),
        _ => value.trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn variables_are_set_with_and_without_quotes() {
        for (sql, name, value) in [
            ("SET mysql-max_connections=3000", "mysql-max_connections", "3000"),
            ("set mysql-max_connections = '3000'", "mysql-max_connections", "3000"),
            ("SET admin-read_only=true", "admin-read_only", "true"),
            ("SET GLOBAL mysql-server_version = \"8.0.30\"", "mysql-server_version", "8.0.30"),
            ("SET `mysql-interfaces`='0.0.0.0:6033;/tmp/x.sock'", "mysql-interfaces", "0.0.0.0:6033;/tmp/x.sock"),
            ("SET @@mysql-wait_timeout := -1", "mysql-wait_timeout", "-1"),
            ("SET pgsql-server_version TO '16'", "pgsql-server_version", "16"),
            ("SET mysql-monitor_password='it''s'", "mysql-monitor_password", "it's"),
            ("SET mysql-query_cache_size_MB=64", "mysql-query_cache_size_MB", "64"),
            ("SET MYSQL-query_cache_size_mb=64", "mysql-query_cache_size_MB", "64"),
        ] {
            let expected = SetCommand::Variable { name: name.into(), value: value.into() };
            assert_eq!(parse(sql), Command::Set(expected), "{sql}");
        }
    }

    #[test]
    fn what_clients_set_is_ignored() {
        for sql in [
            "SET NAMES utf8mb4",
            "set autocommit=0",
            "SET AUTOCOMMIT = 0",
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "SET character_set_results = NULL",
            "SET client_encoding TO 'UTF8'",
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
            "SET extra_float_digits = 3",
            "SET @saved = @@sql_mode",
        ] {
            assert_eq!(parse(sql), Command::Ignored, "{sql}");
        }
        assert_eq!(parse("SET foo=1"), Command::Set(SetCommand::Unknown("foo".into())));
        assert!(matches!(parse("SET mysql-init_connect='x'"), Command::Refused(_)));
    }

    #[test]
    fn overrides_name_their_node() {
        let set = |value: Option<&str>| {
            Command::Set(SetCommand::Node { node_id: 3, name: "mysql-interfaces".into(), value: value.map(str::to_owned) })
        };
        assert_eq!(parse("SET NODE 3 mysql-interfaces='127.0.0.1:6033'"), set(Some("127.0.0.1:6033")));
        assert_eq!(parse("SET NODE 3 mysql-interfaces=DEFAULT"), set(None));
        assert!(matches!(parse("SET NODE three mysql-interfaces='x'"), Command::Refused(_)));
        assert_eq!(parse("SET CONNECTION read_level='LOCAL'"), Command::Set(SetCommand::ReadLevel("local".into())));
        assert_eq!(parse("SET CONNECTION read_after=12"), Command::Set(SetCommand::ReadAfter(12)));
    }
}
