//! Qualified names in SQLite's dialect: `disk.mysql_servers` and its like become the physical tables behind them.
//!
//! Only names are looked at, by a tokenizer that knows literals, quoted identifiers and comments; everything else of a
//! statement stays byte for byte as it was written.

use std::ops::Range;

/// What a piece of a statement is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenKind {
    /// Blanks and comments.
    Space,
    /// A bare word: name or keyword.
    Word,
    /// `"name"`, `` `name` `` or `[name]`. A double-quoted text may be a string as well: SQLite decides by context.
    Quoted,
    /// `'text'`, `x'00'`.
    Literal,
    /// A number or a parameter.
    Number,
    /// One byte of anything else.
    Other,
}

/// A piece of a statement; the pieces follow one another without gaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// Kind.
    pub kind: TokenKind,
    /// Bytes of the statement.
    pub range: Range<usize>,
}

/// Cuts a statement into tokens. Unterminated literals and comments reach to the end; SQLite will complain.
#[must_use]
pub fn tokens(sql: &str) -> Vec<Token> {
    let bytes = sql.as_bytes();
    let mut found = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let (kind, end) = next(bytes, start);
        found.push(Token { kind, range: start..end });
        start = end;
    }
    found
}

fn next(bytes: &[u8], start: usize) -> (TokenKind, usize) {
    let rest = &bytes[start..];
    let until = |position: Option<usize>, extra: usize| position.map_or(bytes.len(), |found| start + found + extra);
    match rest[0] {
        b' ' | b'\t' | b'\n' | b'\r' | 0x0c => {
            (TokenKind::Space, until(rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c)), 0))
        }
        b'-' if rest.starts_with(b"--") => (TokenKind::Space, until(rest.iter().position(|byte| *byte == b'\n'), 1)),
        b'/' if rest.starts_with(b"/*") => (TokenKind::Space, until(rest[2..].windows(2).position(|pair| pair == b"*/"), 4)),
        b'\'' => (TokenKind::Literal, quoted(bytes, start, b'\'')),
        b'x' | b'X' if rest.get(1) == Some(&b'\'') => (TokenKind::Literal, quoted(bytes, start + 1, b'\'')),
        quote @ (b'"' | b'`') => (TokenKind::Quoted, quoted(bytes, start, quote)),
        b'[' => (TokenKind::Quoted, until(rest.iter().position(|byte| *byte == b']'), 1)),
        byte if is_name(byte) && !byte.is_ascii_digit() => (TokenKind::Word, until(rest.iter().position(|byte| !is_name(*byte)), 0)),
        byte if byte.is_ascii_digit() || matches!(byte, b'?' | b':' | b'@' | b'#') => {
            let end = rest[1..].iter().position(|byte| !is_name(*byte) && *byte != b'.').map(|found| found + 1);
            (TokenKind::Number, until(end, 0))
        }
        _ => (TokenKind::Other, start + 1),
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

/// End of a text in quotes, where a doubled quote stands for one.
fn quoted(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut position = start + 1;
    while position < bytes.len() {
        if bytes[position] == quote {
            if bytes.get(position + 1) != Some(&quote) {
                return position + 1;
            }
            position += 1;
        }
        position += 1;
    }
    bytes.len()
}

/// The name that a `Word` or `Quoted` token stands for.
#[must_use]
pub fn name_of(sql: &str, token: &Token) -> Option<String> {
    let text = &sql[token.range.clone()];
    match token.kind {
        TokenKind::Word => Some(text.to_string()),
        TokenKind::Quoted => {
            let quote = text.chars().next()?;
            let close = if quote == '[' { ']' } else { quote };
            let inner = text.strip_prefix(quote)?.strip_suffix(close)?;
            Some(if quote == '[' { inner.to_string() } else { inner.replace(&format!("{quote}{quote}"), &quote.to_string()) })
        }
        _ => None,
    }
}

/// Replaces each `schema.name` for which `resolve(schema, name)` (both without quotes, as written) returns a new name.
///
/// Columns written as `name.column` follow: where a statement uses `disk.t` and no other table `t`, its `t.column` becomes
/// the new name's as well, as it would be with a database `disk`.
#[must_use]
pub fn rewrite_qualified(sql: &str, resolve: impl Fn(&str, &str) -> Option<String>) -> String {
    let tokens = tokens(sql);
    let solid: Vec<usize> = (0..tokens.len()).filter(|position| tokens[*position].kind != TokenKind::Space).collect();
    let is_dot = |position: usize| solid.get(position).is_some_and(|token| &sql[tokens[*token].range.clone()] == ".");
    let name = |position: usize| solid.get(position).and_then(|token| name_of(sql, &tokens[*token]));
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let mut renamed: Vec<(String, String)> = Vec::new();
    let mut kept: Vec<String> = Vec::new();
    let mut columns: Vec<(usize, String)> = Vec::new();
    let mut position = 0;
    while position < solid.len() {
        let Some(first) = name(position) else {
            position += 1;
            continue;
        };
        let qualified = is_dot(position + 1);
        let replacement = if qualified { name(position + 2).and_then(|second| Some((resolve(&first, &second)?, second))) } else { None };
        match replacement {
            Some((new, old)) => {
                let range = tokens[solid[position]].range.start..tokens[solid[position + 2]].range.end;
                edits.push((range, new.clone()));
                if new.eq_ignore_ascii_case(&old) {
                    kept.push(old.to_ascii_lowercase());
                } else {
                    renamed.push((old.to_ascii_lowercase(), new));
                }
                position += 3;
            }
            None if qualified => {
                columns.push((position, first.to_ascii_lowercase()));
                position += 3;
            }
            None => {
                kept.push(first.to_ascii_lowercase());
                position += 1;
            }
        }
    }
    for (position, table) in columns {
        if let Some((_, new)) = renamed.iter().find(|(old, _)| *old == table)
            && !kept.contains(&table)
        {
            edits.push((tokens[solid[position]].range.clone(), new.clone()));
        }
    }
    apply_edits(sql, edits)
}

fn apply_edits(sql: &str, mut edits: Vec<(Range<usize>, String)>) -> String {
    edits.sort_by_key(|(range, _)| range.start);
    let mut text = String::with_capacity(sql.len() + 16 * edits.len());
    let mut position = 0;
    for (range, new) in edits {
        text.push_str(&sql[position..range.start]);
        text.push_str(&new);
        position = range.end;
    }
    text.push_str(&sql[position..]);
    text
}

/// The physical or mirrored name behind `main.t`, `disk.t`, `main.runtime_t` for the replicated tables; `None` for others.
#[must_use]
pub fn replicated_name(schema: &str, name: &str) -> Option<String> {
    let bare = name.get(.."runtime_".len()).filter(|prefix| prefix.eq_ignore_ascii_case("runtime_")).map(|prefix| &name[prefix.len()..]);
    match (schema.to_ascii_lowercase().as_str(), bare) {
        ("main", Some(bare)) => crate::tables::table(bare).map(|table| table.runtime_name()),
        ("main", None) => crate::tables::table(name).map(|table| table.name.to_string()),
        ("disk", None) => crate::tables::table(name).map(|table| table.physical(crate::command::Layer::Disk)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_qualified_names_of_known_tables_change() {
        let cases = [
            ("SELECT * FROM disk.mysql_servers", "SELECT * FROM disk_mysql_servers"),
            ("select 1 from DISK . `Mysql_Servers` s", "select 1 from disk_mysql_servers s"),
            (
                "INSERT INTO main.mysql_servers SELECT * FROM disk.mysql_servers",
                "INSERT INTO mysql_servers SELECT * FROM disk_mysql_servers",
            ),
            (
                "SELECT 'disk.mysql_servers', \"disk.mysql_servers\" -- disk.mysql_servers\n",
                "SELECT 'disk.mysql_servers', \"disk.mysql_servers\" -- disk.mysql_servers\n",
            ),
            (
                "/* disk.mysql_users */ SELECT x'00', 'it''s disk.mysql_users'",
                "/* disk.mysql_users */ SELECT x'00', 'it''s disk.mysql_users'",
            ),
            ("DELETE FROM disk.mysql_servers WHERE mysql_servers.port=1", "DELETE FROM disk_mysql_servers WHERE disk_mysql_servers.port=1"),
            (
                "SELECT mysql_servers.port FROM mysql_servers JOIN disk.mysql_servers d ON d.port=mysql_servers.port",
                "SELECT mysql_servers.port FROM mysql_servers JOIN disk_mysql_servers d ON d.port=mysql_servers.port",
            ),
            ("SELECT disk.mysql_users.username FROM disk.mysql_users", "SELECT disk_mysql_users.username FROM disk_mysql_users"),
            ("SELECT disk.port FROM mysql_servers AS disk", "SELECT disk.port FROM mysql_servers AS disk"),
            ("SELECT * FROM main.runtime_mysql_users", "SELECT * FROM runtime_mysql_users"),
            ("SELECT * FROM disk.no_such, main.sqlite_master", "SELECT * FROM disk.no_such, main.sqlite_master"),
            ("SELECT 1.5, ?1, :a, 'open", "SELECT 1.5, ?1, :a, 'open"),
        ];
        for (sql, expected) in cases {
            assert_eq!(rewrite_qualified(sql, replicated_name), expected);
        }
    }

    #[test]
    fn tokens_cover_every_byte_of_any_text() {
        for sql in ["", "a", "'", "''", "'''", "[x", "\"ä\"\"b\"", "/* x", "/*/", "-- y", "x'0", "ä.ö", "1e5.x", "\u{0}\u{7f}€"] {
            let mut position = 0;
            for token in tokens(sql) {
                assert_eq!(token.range.start, position, "{sql:?}");
                assert!(sql.is_char_boundary(token.range.end), "{sql:?}");
                position = token.range.end;
            }
            assert_eq!(position, sql.len(), "{sql:?}");
        }
    }
}
