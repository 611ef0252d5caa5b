//! A statement without its literals: texts of one skeleton scan alike.
//!
//! Reading a text twice (digest, class) costs more than anything else that is done with a short statement. Most statements
//! differ from an earlier one in nothing but numbers and strings; [`skeleton`] takes these out in one cheap pass, so that the
//! [`Scan`] of the earlier one can be used again. It knows only what all readings of a text agree on, and says
//! `false` to everything else: comments, escapes, doubled quotes, variables, hexadecimal numbers, names beyond ASCII.

use super::{Class, Scan};

/// Whose text it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// MySQL and MariaDB.
    Mysql,
    /// PostgreSQL.
    Pgsql,
}

impl Dialect {
    /// What encloses names.
    const fn name_quote(self) -> u8 {
        match self {
            Self::Mysql => b'`',
            Self::Pgsql => b'"',
        }
    }
}

/// Longer texts have none.
pub const MAX_SKELETON: usize = 4096;

/// Stands for a number. No text that has a skeleton contains these two.
const NUMBER: u8 = 1;
/// Stands for a string.
const STRING: u8 = 2;

const LETTER: u8 = 1;
const DIGIT: u8 = 2;
/// Blanks and symbols that mean nothing to a lexer.
const PLAIN: u8 = 4;

static CLASSES: [u8; 256] = {
    let plain = b" \t\n\r,().=<>*+%;!|&^~?:[]{}";
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = match i as u8 {
            b'A'..=b'Z' | b'a'..=b'z' | b'_' => LETTER,
            b'0'..=b'9' => DIGIT,
            _ => 0,
        };
        i += 1;
    }
    let mut i = 0;
    while i < plain.len() {
        table[plain[i] as usize] = PLAIN;
        i += 1;
    }
    table
};

#[inline]
fn skip(sql: &[u8], mut at: usize, mask: u8) -> usize {
    while at < sql.len() && CLASSES[usize::from(sql[at])] & mask != 0 {
        at += 1;
    }
    at
}

/// Fills `out` with the skeleton of `sql`; `false` = it has none. Linear, and allocates only to grow `out`.
pub fn skeleton(sql: &[u8], dialect: Dialect, out: &mut Vec<u8>) -> bool {
    out.clear();
    if sql.len() > MAX_SKELETON {
        return false;
    }
    // What lies between `kept` and `at` goes out as it is.
    let (mut kept, mut at) = (0, 0);
    while at < sql.len() {
        let byte = sql[at];
        let end = match CLASSES[usize::from(byte)] {
            LETTER => Some(skip(sql, at + 1, LETTER | DIGIT)),
            PLAIN => Some(skip(sql, at + 1, PLAIN)),
            DIGIT => {
                let Some(end) = number_end(sql, at) else { return false };
                out.extend_from_slice(&sql[kept..at]);
                out.push(NUMBER);
                (kept, at) = (end, end);
                continue;
            }
            _ if byte == b'\'' => {
                let Some(end) = string_end(sql, at) else { return false };
                out.extend_from_slice(&sql[kept..at]);
                out.push(STRING);
                (kept, at) = (end, end);
                continue;
            }
            _ => special_end(sql, at, dialect),
        };
        let Some(end) = end else { return false };
        at = end;
    }
    out.extend_from_slice(&sql[kept..]);
    true
}

/// Digits, and perhaps a fraction, that nothing continues.
fn number_end(sql: &[u8], start: usize) -> Option<usize> {
    let mut end = skip(sql, start, DIGIT);
    if sql.get(end) == Some(&b'.') {
        let fraction = skip(sql, end + 1, DIGIT);
        if fraction == end + 1 {
            return None;
        }
        end = fraction;
    }
    match sql.get(end) {
        Some(b'.' | b'$' | 0x80..) => None,
        Some(next) if CLASSES[usize::from(*next)] & LETTER != 0 => None,
        _ => Some(end),
    }
}

/// A string without anything that could be an escape.
fn string_end(sql: &[u8], start: usize) -> Option<usize> {
    let length = sql[start + 1..].iter().position(|byte| matches!(byte, b'\'' | b'\\' | 0))?;
    let close = start + 1 + length;
    (sql[close] == b'\'' && sql.get(close + 1) != Some(&b'\'')).then_some(close + 1)
}

/// A symbol that begins something else in another place, a quoted name, a parameter.
fn special_end(sql: &[u8], at: usize, dialect: Dialect) -> Option<usize> {
    let next = sql.get(at + 1).copied().unwrap_or(0);
    match sql[at] {
        b'-' if next != b'-' => Some(at + 1),
        b'/' if next != b'*' => Some(at + 1),
        b'$' if dialect == Dialect::Pgsql => {
            let end = skip(sql, at + 1, DIGIT);
            let alone = at == 0 || CLASSES[usize::from(sql[at - 1])] & (LETTER | DIGIT) == 0;
            let ends = sql.get(end).is_none_or(|byte| CLASSES[usize::from(*byte)] & PLAIN != 0 && *byte != b'.');
            (alone && end > at + 1 && ends).then_some(end)
        }
        quote if quote == dialect.name_quote() => {
            let end = skip(sql, at + 1, LETTER | DIGIT);
            (end > at + 1 && sql.get(end) == Some(&quote) && sql.get(end + 1) != Some(&quote)).then_some(end + 1)
        }
        _ => None,
    }
}

impl Scan {
    /// Whether this is what every text of the same skeleton scans to. Of SET, DO and the like the strings matter.
    #[must_use]
    pub fn is_of_skeleton(&self) -> bool {
        self.statements == 1 && matches!(self.class, Class::Read | Class::LockingRead | Class::Write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{ScanOptions, scan_mysql, scan_pgsql};

    fn of(sql: &str, dialect: Dialect) -> Option<String> {
        let mut out = b"left over".to_vec();
        skeleton(sql.as_bytes(), dialect, &mut out).then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn literals_go_and_everything_else_stays() {
        let both = [
            ("SELECT c FROM sbtest1 WHERE id=5012", "SELECT c FROM sbtest1 WHERE id=\u{1}"),
            ("select a1,t.b from t where x='abc' and y>-1.5", "select a1,t.b from t where x=\u{2} and y>-\u{1}"),
            ("SELECT x'ff', 'ü' /2", "SELECT x\u{2}, \u{2} /\u{1}"),
            ("", ""),
        ];
        for (sql, expected) in both {
            for dialect in [Dialect::Mysql, Dialect::Pgsql] {
                assert_eq!(of(sql, dialect).as_deref(), Some(expected), "{sql}");
            }
        }
        assert_eq!(of("SELECT `a1` FROM `t` LIMIT 1", Dialect::Mysql).as_deref(), Some("SELECT `a1` FROM `t` LIMIT \u{1}"));
        assert_eq!(
            of("SELECT \"A1\" FROM t WHERE a=$1 AND b=2", Dialect::Pgsql).as_deref(),
            Some("SELECT \"A1\" FROM t WHERE a=$1 AND b=\u{1}")
        );
    }

    #[test]
    fn whatever_readings_could_differ_about_has_none() {
        let both = [
            "a -- b",
            "a /* b */",
            "a # b",
            "'it''s'",
            "'a\\'b'",
            "'open",
            "@a",
            "0x1f",
            "1e5",
            "1.",
            "1.2.3",
            "1a",
            "ä",
            "a$b",
            "$$a$$",
            "\u{1}",
            "a\0",
            "\"a b\"",
            "`a b`",
            "1$",
            "\\",
        ];
        for sql in both {
            for dialect in [Dialect::Mysql, Dialect::Pgsql] {
                assert_eq!(of(sql, dialect), None, "{sql}");
            }
        }
        for (sql, dialect) in [("$1", Dialect::Mysql), ("$1a", Dialect::Pgsql), ("`a`", Dialect::Pgsql), ("\"a\"", Dialect::Mysql)] {
            assert_eq!(of(sql, dialect), None, "{sql}");
        }
        assert_eq!(of(&"a".repeat(MAX_SKELETON + 1), Dialect::Mysql), None);
    }

    /// Puts other literals into a skeleton.
    fn refill(skeleton: &[u8], literals: &[u8]) -> Vec<u8> {
        const NUMBERS: [&str; 4] = ["7", "0", "123456789012345678901234567890", "3.25"];
        const STRINGS: [&str; 5] = ["''", "'x'", "'a b -- c'", "'/* \" ` # @x ; ü'", "'12'"];
        let mut at = literals.iter().cycle();
        let mut text = Vec::new();
        for byte in skeleton {
            let pick = usize::from(at.next().copied().unwrap_or(0));
            match *byte {
                NUMBER => text.extend_from_slice(NUMBERS[pick % NUMBERS.len()].as_bytes()),
                STRING => text.extend_from_slice(STRINGS[pick % STRINGS.len()].as_bytes()),
                other => text.push(other),
            }
        }
        text
    }

    const PIECES: [&str; 48] = [
        "SELECT ",
        "select",
        " FROM ",
        "INSERT INTO ",
        "UPDATE ",
        " FOR UPDATE",
        " INTO ",
        "OUTFILE ",
        "VALUES",
        "(",
        ")",
        ",",
        " ",
        "\n",
        "=",
        "-",
        "+",
        "*",
        "/",
        ".",
        ";",
        ":",
        "::",
        "?",
        "1",
        "22",
        "3.5",
        "'a'",
        "'bc'",
        "''",
        "E",
        "N",
        "U&",
        "_utf8",
        "x",
        "t1",
        "`q`",
        "\"q\"",
        "$1",
        "ARRAY[",
        "]",
        "true",
        "null",
        "UESCAPE",
        "LIMIT ",
        "nextval(",
        "SQL_CALC_FOUND_ROWS ",
        "WITH a AS (",
    ];

    #[test]
    fn texts_of_one_skeleton_scan_alike() {
        type ScanText = fn(&[u8], &ScanOptions, &mut Scan);
        let dialects = [(Dialect::Mysql, ScanOptions::MYSQL, scan_mysql as ScanText), (Dialect::Pgsql, ScanOptions::PGSQL, scan_pgsql)];
        bolero::check!().with_type::<(u8, Vec<u8>, Vec<u8>)>().for_each(|(seed, pieces, literals)| {
            let text: Vec<u8> = pieces.iter().flat_map(|piece| PIECES[usize::from(*piece) % PIECES.len()].bytes()).collect();
            for (dialect, base, scan_text) in dialects {
                let bit = |n: u8| seed & (1 << n) != 0;
                let options = ScanOptions {
                    lowercase: bit(0),
                    replace_null: bit(1),
                    no_digits: bit(2),
                    max_query_length: if bit(3) { 24 } else { 65_000 },
                    backslash_escapes: bit(4),
                    ansi_quotes: bit(5),
                    groups_grouping_limit: usize::from(seed >> 6),
                    ..base
                };
                let (mut one, mut other) = (Vec::new(), Vec::new());
                if !skeleton(&text, dialect, &mut one) {
                    continue;
                }
                let refilled = refill(&one, literals);
                assert!(skeleton(&refilled, dialect, &mut other) || refilled.len() > MAX_SKELETON);
                let (mut first, mut second) = (Scan::new(), Scan::new());
                scan_text(&text, &options, &mut first);
                // How a session reads strings does not matter either.
                let other_session = ScanOptions { backslash_escapes: bit(6), ansi_quotes: bit(7), ..options };
                scan_text(&refilled, &other_session, &mut second);
                if one == other && first.is_of_skeleton() {
                    assert_eq!(format!("{first:?}"), format!("{second:?}"), "{}\n{}", text.escape_ascii(), refilled.escape_ascii());
                }
            }
        });
    }
}
