//! Statements that need no server (mysql-dataplane 3.2). Matching is on the text as it came.

use quorumsql_wire::sql::{Class, Effects, Scan, Transaction, parse_mysql_use};

use super::set::{self, DefaultNames, SetStatement};
use crate::config::Variables;

/// What a statement is, before a server is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Local {
    /// `USE schema`: its name is learned here, whether it exists only from a server.
    Use(String),
    /// A SET.
    Set(SetStatement),
    /// COMMIT or ROLLBACK and nothing else: nothing to do unless a transaction is open.
    EndTransaction,
    /// A question about the session.
    Ask(Question),
    /// `select $$`, by which clients tell versions apart.
    Dollars,
    /// SHOW WARNINGS, SHOW ERRORS.
    ShowWarnings,
    /// `PROXYSQL INTERNAL SESSION`; `false` = another word behind INTERNAL.
    Internal(bool),
    /// `KILL [CONNECTION | QUERY] id`.
    Kill {
        /// Connection id.
        id: u32,
        /// Only its statement.
        query_only: bool,
    },
}

/// A SELECT whose one row is known here; texts are the names of its columns as they were typed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Question {
    /// `SELECT CONNECTION_ID()`.
    ConnectionId(String),
    /// `SELECT FOUND_ROWS()`.
    FoundRows(String),
    /// `SELECT ROW_COUNT()`.
    RowCount(String),
    /// SHOW COUNT(*) WARNINGS, `SELECT @@warning_count, @@error_count`, …
    Diagnostics(Vec<String>),
    /// `select @@version_comment limit 1`.
    VersionComment,
    /// `select @@version`, `SELECT VERSION()`.
    Version(String),
    /// `select USER()`.
    User,
    /// `select DATABASE(), USER() limit 1`.
    DatabaseAndUser,
    /// `select @@character_set_client, …` of old drivers.
    CharacterSets,
}

const CHARACTER_SETS: &str =
    "select @@character_set_client, @@character_set_connection, @@character_set_server, @@character_set_database limit 1";

/// How a SET is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<'a> {
    /// Backslash escapes are on.
    backslash: bool,
    /// `SET NAMES DEFAULT`.
    default_names: DefaultNames<'a>,
}

impl<'a> Reading<'a> {
    /// As the variables and the session's `sql_mode` have it.
    pub(crate) fn new(variables: &'a Variables, backslash: Backslash) -> Self {
        let Variables { default_charset, default_collation_connection, .. } = variables;
        let default_names = DefaultNames { charset: default_charset, collation: default_collation_connection };
        Self { backslash: backslash == Backslash::Escapes, default_names }
    }
}

/// What a backslash in a string is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backslash {
    /// The start of an escape.
    Escapes,
    /// A character (`NO_BACKSLASH_ESCAPES`).
    Plain,
}

/// Recognises a statement that may be answered here; whether it is depends on the session.
pub(crate) fn recognise(sql: &[u8], scan: &Scan, reading: Reading<'_>) -> Option<Local> {
    if scan.statements != 1 {
        return None;
    }
    if scan.class == Class::Set {
        return Some(Local::Set(set::parse(sql, reading.backslash, &reading.default_names)));
    }
    if scan.class == Class::Read && scan.bare {
        return None;
    }
    let text = std::str::from_utf8(sql).ok()?;
    let trimmed = text.trim_matches([' ', '\t', '\n', '\r']);
    let statement = trimmed.strip_suffix(';').unwrap_or(trimmed).trim_end();
    match scan.class {
        Class::Use => parse_mysql_use(sql).map(Local::Use),
        Class::Transaction(Transaction::Commit | Transaction::Rollback) => {
            (is(statement, "commit") || is(statement, "rollback")).then_some(Local::EndTransaction)
        }
        Class::Kill => kill(statement),
        Class::Neutral if scan.effects.contains(Effects::SHOW_WARNINGS) => show_diagnostics(statement),
        Class::Read => question(text, scan),
        Class::Other => internal(text),
        _ => None,
    }
}

fn is(text: &str, form: &str) -> bool {
    text.eq_ignore_ascii_case(form)
}

/// What follows `start`.
fn starts_with<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(start.len())?;
    is(head, start).then_some(rest)
}

/// The plain forms; what has a LIMIT or a comment is for a server.
fn show_diagnostics(statement: &str) -> Option<Local> {
    let words: Vec<_> = statement.split_ascii_whitespace().map(str::to_ascii_lowercase).collect();
    let count = |name: &str| Some(Local::Ask(Question::Diagnostics(vec![name.to_owned()])));
    match &*words.iter().map(String::as_str).collect::<Vec<_>>() {
        ["show", "warnings" | "errors"] => Some(Local::ShowWarnings),
        ["show", "count(*)", "warnings"] => count("@@session.warning_count"),
        ["show", "count(*)", "errors"] => count("@@session.error_count"),
        _ => None,
    }
}

fn question(text: &str, scan: &Scan) -> Option<Local> {
    let typed = starts_with(text, "SELECT ")?;
    if scan.effects.contains(Effects::SHOW_WARNINGS) {
        const COUNTS: [&str; 4] = ["@@warning_count", "@@session.warning_count", "@@error_count", "@@session.error_count"];
        let columns: Vec<_> = typed.split(',').map(|column| column.trim().to_owned()).collect();
        let known = columns.iter().all(|column| COUNTS.iter().any(|count| is(column, count)));
        return known.then_some(Local::Ask(Question::Diagnostics(columns)));
    }
    let column = typed.to_owned();
    Some(Local::Ask(match () {
        () if is(typed, "CONNECTION_ID()") => Question::ConnectionId(column),
        () if is(typed, "FOUND_ROWS()") => Question::FoundRows(column),
        () if is(typed, "ROW_COUNT()") => Question::RowCount(column),
        () if text == "select @@version_comment limit 1" => Question::VersionComment,
        () if is(typed, "@@version") || is(typed, "VERSION()") => Question::Version(column),
        () if text == "select USER()" => Question::User,
        () if is(typed, "DATABASE(), USER() limit 1") => Question::DatabaseAndUser,
        () if is(text, CHARACTER_SETS) => Question::CharacterSets,
        () if typed == "$$" => return Some(Local::Dollars),
        () => return None,
    }))
}

fn internal(text: &str) -> Option<Local> {
    let rest = starts_with(text, "PROXYSQL INTERNAL ")?;
    Some(Local::Internal(is(rest.trim_end_matches([';', ' ']), "SESSION")))
}

fn kill(statement: &str) -> Option<Local> {
    let mut words = statement.split_ascii_whitespace();
    if !is(words.next()?, "kill") {
        return None;
    }
    let mut word = words.next()?;
    let query_only = is(word, "query");
    if query_only || is(word, "connection") {
        word = words.next()?;
    }
    let id = word.parse().ok()?;
    words.next().is_none().then_some(Local::Kill { id, query_only })
}

#[cfg(test)]
mod tests {
    use quorumsql_wire::sql::{ScanOptions, scan_mysql};

    use super::*;

    fn of(sql: &str) -> Option<Local> {
        let mut scan = Scan::new();
        scan_mysql(sql.as_bytes(), &ScanOptions::MYSQL, &mut scan);
        let reading = Reading { backslash: true, default_names: DefaultNames { charset: "utf8mb4", collation: "" } };
        recognise(sql.as_bytes(), &scan, reading)
    }

    #[test]
    fn schemas() {
        assert_eq!(of("USE shop"), Some(Local::Use("shop".into())));
        assert_eq!(of("use `my ``shop`;"), Some(Local::Use("my `shop".into())));
        assert_eq!(of("USE /* x */ shop -- y"), Some(Local::Use("shop".into())));
        assert_eq!(of("USE shop; SELECT 1"), None);
        assert_eq!(of("USE a b"), None);
    }

    #[test]
    fn ends_of_transactions() {
        for sql in ["commit", "COMMIT", "Rollback;", " COMMIT "] {
            assert_eq!(of(sql), Some(Local::EndTransaction), "{sql}");
        }
        for sql in ["COMMIT AND CHAIN", "COMMIT WORK", "ROLLBACK TO a", "commit; select 1"] {
            assert_eq!(of(sql), None, "{sql}");
        }
    }

    #[test]
    fn questions() {
        let counts = |columns: &[&str]| Question::Diagnostics(columns.iter().map(|column| (*column).to_owned()).collect());
        let cases = [
            ("select connection_id()", Question::ConnectionId("connection_id()".into())),
            ("SELECT FOUND_ROWS()", Question::FoundRows("FOUND_ROWS()".into())),
            ("SELECT row_count()", Question::RowCount("row_count()".into())),
            ("SHOW COUNT(*) WARNINGS", counts(&["@@session.warning_count"])),
            ("SHOW COUNT(*) ERRORS", counts(&["@@session.error_count"])),
            ("SELECT @@warning_count , @@session.error_count", counts(&["@@warning_count", "@@session.error_count"])),
            ("select @@version_comment limit 1", Question::VersionComment),
            ("SELECT @@version", Question::Version("@@version".into())),
            ("SELECT VERSION()", Question::Version("VERSION()".into())),
            ("select USER()", Question::User),
            ("SELECT database(), user() LIMIT 1", Question::DatabaseAndUser),
            (CHARACTER_SETS, Question::CharacterSets),
        ];
        for (sql, expected) in cases {
            assert_eq!(of(sql), Some(Local::Ask(expected)), "{sql}");
        }
        for sql in [
            "SELECT  CONNECTION_ID()",
            "SELECT @@version, 1",
            "SELECT @@version_comment limit 1",
            "SELECT USER()",
            "SELECT @@warning_count + 1",
            "SELECT LAST_INSERT_ID()",
            "SELECT LAST_INSERT_ID(é)",
            "SELECT 1",
        ] {
            assert_eq!(of(sql), None, "{sql}");
        }
    }

    #[test]
    fn the_rest() {
        assert_eq!(of("SHOW WARNINGS"), Some(Local::ShowWarnings));
        assert_eq!(of("show\terrors"), Some(Local::ShowWarnings));
        assert_eq!(of("SHOW ERRORS LIMIT 0"), None);
        assert_eq!(of("select $$"), Some(Local::Dollars));
        assert_eq!(of("proxysql internal session"), Some(Local::Internal(true)));
        assert_eq!(of("PROXYSQL INTERNAL nonsense"), Some(Local::Internal(false)));
        assert_eq!(of("KILL 7"), Some(Local::Kill { id: 7, query_only: false }));
        assert_eq!(of("kill query 7"), Some(Local::Kill { id: 7, query_only: true }));
        assert_eq!(of("KILL HARD 7"), None);
    }
}
