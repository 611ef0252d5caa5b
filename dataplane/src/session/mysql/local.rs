//! Statements that need no server (mysql-dataplane 3.2). Matching is on the text as it came.

use quorumsql_wire::sql::{Class, Effects, Scan, Transaction};

use super::set::{self, SetStatement};

/// What a statement is, before a server is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Local {
    /// `USE schema`.
    Use(String),
    /// A SET.
    Set(SetStatement),
    /// COMMIT or ROLLBACK and nothing else: nothing to do unless a transaction is open.
    EndTransaction,
    /// `SELECT CONNECTION_ID()`; the text is the column's name.
    ConnectionId(String),
    /// One of the exact forms that read the last insert id; the text is the column's name.
    LastInsertId(String),
    /// SHOW WARNINGS, SHOW ERRORS.
    ShowWarnings,
    /// SHOW COUNT(*) WARNINGS.
    CountWarnings,
    /// `KILL [CONNECTION | QUERY] id`.
    Kill {
        /// Connection id.
        id: u32,
        /// Only its statement.
        query_only: bool,
    },
}

/// Recognises a statement that may be answered here; whether it is depends on the session.
pub(crate) fn recognise(sql: &[u8], scan: &Scan) -> Option<Local> {
    if scan.statements != 1 {
        return None;
    }
    let text = std::str::from_utf8(sql).ok()?;
    let trimmed = text.trim_matches([' ', '\t', '\n', '\r']);
    let statement = trimmed.strip_suffix(';').unwrap_or(trimmed).trim_end();
    match scan.class {
        Class::Use => use_schema(statement).map(Local::Use),
        Class::Set => Some(Local::Set(set::parse(sql))),
        Class::Transaction(Transaction::Commit | Transaction::Rollback) => {
            (is(statement, "commit") || is(statement, "rollback")).then_some(Local::EndTransaction)
        }
        Class::Kill => kill(statement),
        Class::Neutral if scan.effects.contains(Effects::SHOW_WARNINGS) => {
            Some(if statement.contains('(') { Local::CountWarnings } else { Local::ShowWarnings })
        }
        Class::Read if is(text, "SELECT CONNECTION_ID()") => Some(Local::ConnectionId(text["SELECT ".len()..].to_owned())),
        Class::Read if scan.effects.contains(Effects::LAST_INSERT_ID) => {
            const COLUMNS: [&str; 2] = ["LAST_INSERT_ID()", "@@IDENTITY"];
            const TAILS: [&str; 3] = ["", " LIMIT 1", " FROM DUAL"];
            let column = |name: &&str| {
                let written = starts_with(text, "SELECT ").and_then(|rest| rest.get(..name.len()));
                written.filter(|written| is(written, name))
            };
            let column = COLUMNS.iter().find_map(column)?;
            let tail = &text["SELECT ".len() + column.len()..];
            TAILS.iter().any(|known| is(tail, known)).then(|| Local::LastInsertId(column.to_owned()))
        }
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

/// `USE name` or ``USE `name` ``.
fn use_schema(statement: &str) -> Option<String> {
    let (word, rest) = statement.split_at_checked(3)?;
    if !is(word, "use") {
        return None;
    }
    let name = rest.trim();
    if let Some(quoted) = name.strip_prefix('`') {
        let inner = quoted.strip_suffix('`')?;
        let unescaped = inner.replace("``", "`");
        // An odd number of backquotes inside would end the name early.
        return (inner.matches('`').count().is_multiple_of(2) && !unescaped.is_empty()).then_some(unescaped);
    }
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '-'));
    (plain && rest.starts_with([' ', '\t', '\n', '\r'])).then(|| name.to_owned())
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
        recognise(sql.as_bytes(), &scan)
    }

    #[test]
    fn schemas() {
        assert_eq!(of("USE shop"), Some(Local::Use("shop".into())));
        assert_eq!(of("use `my ``shop`;"), Some(Local::Use("my `shop".into())));
        assert_eq!(of("USE shop; SELECT 1"), None);
        assert_eq!(of("USE /* x */ shop"), None);
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
    fn forms_that_the_session_can_answer() {
        assert_eq!(of("select connection_id()"), Some(Local::ConnectionId("connection_id()".into())));
        assert_eq!(of("SELECT LAST_INSERT_ID()"), Some(Local::LastInsertId("LAST_INSERT_ID()".into())));
        assert_eq!(of("select last_insert_id() from dual"), Some(Local::LastInsertId("last_insert_id()".into())));
        assert_eq!(of("select @@identity LIMIT 1"), Some(Local::LastInsertId("@@identity".into())));
        assert_eq!(of("SELECT LAST_INSERT_ID() + 1"), None);
        assert_eq!(of("SELECT LAST_INSERT_ID(é)"), None);
        assert_eq!(of("SHOW WARNINGS"), Some(Local::ShowWarnings));
        assert_eq!(of("SHOW COUNT(*) WARNINGS"), Some(Local::CountWarnings));
        assert_eq!(of("KILL 7"), Some(Local::Kill { id: 7, query_only: false }));
        assert_eq!(of("kill query 7"), Some(Local::Kill { id: 7, query_only: true }));
        assert_eq!(of("KILL HARD 7"), None);
        assert_eq!(of("SELECT 1"), None);
    }
}
