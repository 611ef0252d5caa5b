//! Where PostgreSQL's comments and constants end (manual 17, "Lexical Structure"). Shared by digest and lexer.

use crate::sql::bytes::{self, DIGIT, HIGH, WORD};

/// Bytes of an unquoted identifier.
pub(super) const IDENTIFIER: u8 = WORD | HIGH;

/// At `--`: index of the line's end.
pub(super) fn line_comment_end(sql: &[u8], at: usize) -> usize {
    sql[at..].iter().position(|byte| matches!(byte, b'\n' | b'\r')).map_or(sql.len(), |offset| at + offset)
}

/// At `/*`: index behind the matching `*/`, or the end. Comments nest.
pub(super) fn block_comment_end(sql: &[u8], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = at;
    while at < sql.len() {
        match (sql[at], sql.get(at + 1)) {
            (b'/', Some(b'*')) => {
                depth += 1;
                at += 2;
            }
            (b'*', Some(b'/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    sql.len()
}

/// At `$`: the index behind `$tag$`, if one opens here.
pub(super) fn dollar_quote_start(sql: &[u8], at: usize) -> Option<usize> {
    let tag = at + 1;
    if sql.get(tag).is_some_and(|byte| bytes::is(*byte, DIGIT)) {
        return None;
    }
    let length = sql.get(tag..)?.iter().position(|byte| *byte == b'$' || !bytes::is(*byte, IDENTIFIER))?;
    (sql[tag + length] == b'$').then_some(tag + length + 1)
}

/// At `$tag$` whose end is `inner`: start of the closing tag and index behind it; `None` if it never closes.
pub(super) fn dollar_quote_end(sql: &[u8], at: usize, inner: usize) -> Option<(usize, usize)> {
    let tag = &sql[at..inner];
    let mut from = inner;
    loop {
        let dollar = bytes::find(sql, from, b'$');
        let rest = sql.get(dollar..)?;
        if rest.is_empty() {
            return None;
        }
        if rest.starts_with(tag) {
            return Some((dollar, dollar + tag.len()));
        }
        from = dollar + 1;
    }
}

/// The constant that starts with the quote at `start`, as [`bytes::quoted_end`], through all its continuations: behind blanks with a newline, and
/// comments to a line's end, another quote goes on with it, in the same way (`quotecontinue` in PostgreSQL's `scan.l`).
pub(super) fn string_end(sql: &[u8], start: usize, backslash: bool) -> Option<(usize, usize)> {
    let (mut close, mut end) = bytes::quoted_end(sql, start, backslash)?;
    while let Some(quote) = continuation(sql, end) {
        (close, end) = bytes::quoted_end(sql, quote, backslash)?;
    }
    Some((close, end))
}

/// Behind a constant: the quote that goes on with it.
fn continuation(sql: &[u8], mut at: usize) -> Option<usize> {
    let mut has_newline = false;
    loop {
        match sql.get(at)? {
            b'\'' => return has_newline.then_some(at),
            b'\n' | b'\r' => has_newline = true,
            b' ' | b'\t' | 0x0b | 0x0c => {}
            b'-' if sql.get(at + 1) == Some(&b'-') => {
                at = line_comment_end(sql, at);
                continue;
            }
            _ => return None,
        }
        at += 1;
    }
}

/// What kind of constant or identifier a word directly before a quote makes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Prefix {
    /// `E'…'`: backslashes escape.
    Escape,
    /// `N'…'`: as without it.
    Plain,
    /// `B'…'`, `X'…'`: backslashes never escape.
    Bits,
    /// `U&'…'`: index of the quote is one further.
    Unicode,
    /// `U&"…"`.
    UnicodeIdentifier,
}

/// The prefix that `sql[at..end]`, a whole word, is of the quote that follows.
pub(super) fn prefix(sql: &[u8], at: usize, end: usize) -> Option<Prefix> {
    if end != at + 1 {
        return None;
    }
    match (sql[at], sql.get(end), sql.get(end + 1)) {
        (b'e' | b'E', Some(b'\''), _) => Some(Prefix::Escape),
        (b'n' | b'N', Some(b'\''), _) => Some(Prefix::Plain),
        (b'b' | b'B' | b'x' | b'X', Some(b'\''), _) => Some(Prefix::Bits),
        (b'u' | b'U', Some(b'&'), Some(b'\'')) => Some(Prefix::Unicode),
        (b'u' | b'U', Some(b'&'), Some(b'"')) => Some(Prefix::UnicodeIdentifier),
        _ => None,
    }
}
