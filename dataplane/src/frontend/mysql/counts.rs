//! Statements that ask for `FOUND_ROWS()` or `ROW_COUNT()` in an expression, so that only a server can answer them.

use quorumsql_wire::sql::Effects;

use super::exchange::Work;
use crate::backend::mysql::counts::MAX_FOUND;
use crate::session::mysql::state::Last;

/// Whether a statement shows the counts of the statement before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AsksCounts {
    Yes,
    No,
}

/// Judges what is to be sent. What stands behind another statement of its text asks for the counts of that.
pub(super) fn asks(effects: Effects, work: &Work<'_>) -> AsksCounts {
    if !effects.contains(Effects::FOUND_ROWS) {
        return AsksCounts::No;
    }
    match work.sql() {
        Some(sql) if !(effects.contains(Effects::MULTI) && is_behind_another(sql)) => AsksCounts::Yes,
        _ => AsksCounts::No,
    }
}

/// Why a statement cannot be told the counts: the connection that knew them has been given to others, and a wrong number is worse
/// than none. `None` = they can be made anew there.
pub(super) fn lost(last: &Last, work: &Work<'_>) -> Option<&'static str> {
    let sql = work.sql()?;
    // Rows that have been changed cannot be changed again.
    if last.row_count > 0 && position(sql, b"row_count").is_some() {
        return Some(
            "ROW_COUNT() in an expression, when the connection of the statement before was given back; use a transaction, or SELECT ROW_COUNT()",
        );
    }
    (last.found_rows > MAX_FOUND && position(sql, b"found_rows").is_some()).then_some(
        "FOUND_ROWS() in an expression, when the connection of the statement before was given back; use a transaction, or SELECT FOUND_ROWS()",
    )
}

fn position(sql: &[u8], function: &[u8]) -> Option<usize> {
    sql.windows(function.len()).position(|part| part.eq_ignore_ascii_case(function))
}

/// Whether a semicolon stands before the first of the functions; with comments before it that is not judged.
fn is_behind_another(sql: &[u8]) -> bool {
    let first = [&b"row_count"[..], b"found_rows"].iter().filter_map(|function| position(sql, function)).min();
    let mut quote = None;
    let mut bytes = sql[..first.unwrap_or(0)].iter();
    while let Some(&byte) = bytes.next() {
        match (quote, byte) {
            (None, b';') => return true,
            (None, b'#' | b'/' | b'-') => return false,
            (None, b'\'' | b'"' | b'`') => quote = Some(byte),
            (Some(b'\'' | b'"'), b'\\') => drop(bytes.next()),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_behind_another_statement() {
        for sql in ["UPDATE t SET a = 1; SELECT ROW_COUNT()", "INSERT INTO `t;` VALUES ('it\\'s', \"a;\");\nSELECT 1 WHERE row_count() = 1"]
        {
            assert!(is_behind_another(sql.as_bytes()), "{sql}");
        }
        for sql in
            ["SELECT ';', FOUND_ROWS(); SELECT 2", "SELECT ROW_COUNT() + 1; SELECT 1", "/* ; */ SELECT ROW_COUNT(); DO 1", "DO 1; DO 2"]
        {
            assert!(!is_behind_another(sql.as_bytes()), "{sql}");
        }
    }
}
