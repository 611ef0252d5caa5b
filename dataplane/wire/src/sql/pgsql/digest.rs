//! First pass of the PostgreSQL digest (pgsql-dataplane.md 5.8).

use super::literal::{self, IDENTIFIER, Prefix};
use crate::sql::ScanOptions;
use crate::sql::bytes::{self, DIGIT, SPACE};
use crate::sql::output::Output;

/// Fills `text` with the digest text of `sql`.
pub(super) fn normalize(sql: &[u8], options: &ScanOptions, text: &mut Vec<u8>) {
    let mut pass = Pass { sql, at: 0, previous: 0, array_tried: 0, options, out: Output::new(text, options, true) };
    while pass.at < sql.len() && !pass.out.is_full() {
        pass.step();
    }
    pass.out.finish();
}

struct Pass<'a> {
    sql: &'a [u8],
    at: usize,
    /// The input byte before, or what stands for it after a replaced piece.
    previous: u8,
    /// No ARRAY before this index is worth trying again: keeps the look-ahead linear.
    array_tried: usize,
    options: &'a ScanOptions,
    out: Output<'a>,
}

impl Pass<'_> {
    fn peek(&self, offset: usize) -> u8 {
        self.sql.get(self.at + offset).copied().unwrap_or(0)
    }

    fn goto(&mut self, at: usize, previous: u8) {
        self.at = at;
        self.previous = previous;
    }

    fn step(&mut self) {
        let byte = self.sql[self.at];
        if bytes::is(byte, DIGIT) || (byte == b'.' && self.starts_fraction()) {
            return self.number();
        }
        match byte {
            b'$' => self.dollar(),
            _ if bytes::is(byte, IDENTIFIER) => self.word(),
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => {
                self.out.blank();
                self.goto(self.at + 1, b' ');
            }
            b'-' if self.peek(1) == b'-' => self.goto(literal::line_comment_end(self.sql, self.at), b' '),
            b'/' if self.peek(1) == b'*' => self.comment(),
            b'\'' => self.string(self.at, self.options.backslash_escapes),
            b'"' => {
                let end = bytes::quoted_end(self.sql, self.at, false).map_or(self.sql.len(), |(_, end)| end);
                self.out.copy_exact(&self.sql[self.at..end]);
                self.goto(end, b'"');
            }
            _ => {
                self.out.byte(byte);
                self.goto(self.at + 1, byte);
            }
        }
    }

    /// A point that begins a number: `.5`, but not that of `t.5`.
    fn starts_fraction(&self) -> bool {
        bytes::is(self.peek(1), DIGIT) && !bytes::is(self.previous, IDENTIFIER) && !matches!(self.previous, b')' | b'"' | b']' | b'.')
    }

    fn comment(&mut self) {
        let end = literal::block_comment_end(self.sql, self.at);
        if self.options.keep_comment {
            self.out.copy(&self.sql[self.at..end]);
        }
        self.out.blank();
        self.goto(end, b' ');
    }

    /// At the opening quote `quote`.
    fn string(&mut self, quote: usize, backslash: bool) {
        match literal::string_end(self.sql, quote, backslash) {
            Some((_, end)) => self.replace(end),
            None => self.goto(self.sql.len(), 0),
        }
    }

    fn dollar(&mut self) {
        if let Some(inner) = literal::dollar_quote_start(self.sql, self.at) {
            match literal::dollar_quote_end(self.sql, self.at, inner) {
                Some((_, end)) => self.replace(end),
                None => self.goto(self.sql.len(), 0),
            }
            return;
        }
        // `$1`, which stays.
        let end = bytes::skip(self.sql, self.at, IDENTIFIER);
        self.out.copy(&self.sql[self.at..end]);
        self.goto(end, b'$');
    }

    fn word(&mut self) {
        let end = bytes::skip(self.sql, self.at, IDENTIFIER);
        match literal::prefix(self.sql, self.at, end) {
            Some(Prefix::Escape) => return self.string(end, true),
            Some(Prefix::Plain) => return self.string(end, self.options.backslash_escapes),
            Some(Prefix::Bits) => return self.string(end, false),
            Some(Prefix::Unicode) => {
                self.string(end + 1, self.options.backslash_escapes);
                return;
            }
            Some(Prefix::UnicodeIdentifier) => {
                self.out.copy(&self.sql[self.at..=end]);
                return self.goto(end + 1, b'&');
            }
            None => {}
        }
        let word = &self.sql[self.at..end];
        if word.eq_ignore_ascii_case(b"true")
            || word.eq_ignore_ascii_case(b"false")
            || (self.options.replace_null && word.eq_ignore_ascii_case(b"null"))
        {
            return self.replace(end);
        }
        if word.eq_ignore_ascii_case(b"array") && end > self.array_tried {
            match constant_array(self.sql, self.at, self.options) {
                Ok(end) => return self.replace(end),
                Err(tried) => self.array_tried = tried,
            }
        }
        if word.eq_ignore_ascii_case(b"uescape") && self.previous == b'?' {
            return self.uescape(end);
        }
        self.out.copy(word);
        self.goto(end, word[word.len() - 1]);
    }

    fn number(&mut self) {
        if bytes::is(self.previous, IDENTIFIER) && self.sql[self.at] != b'.' {
            // Digits of an identifier that a dollar sign or a replaced piece has split.
            let end = bytes::skip(self.sql, self.at, IDENTIFIER);
            self.out.copy(&self.sql[self.at..end]);
            return self.goto(end, self.sql[end - 1]);
        }
        let end = number_end(self.sql, self.at);
        let candidate = &self.sql[self.at..end];
        if is_number(candidate) {
            self.replace(end);
        } else {
            self.out.copy_candidate(candidate);
            self.goto(end, candidate[candidate.len() - 1]);
        }
    }

    /// A literal that ends at `end`: a `?` for it and for the casts behind it.
    fn replace(&mut self, end: usize) {
        self.out.literal();
        let mut at = end;
        let mut cast = false;
        while let Some(next) = cast_end(self.sql, at) {
            at = next;
            cast = true;
        }
        if cast {
            // The reference drops the blank with the cast; before a word it would glue.
            let next = bytes::skip(self.sql, at, SPACE);
            if self.sql.get(next).is_some_and(|byte| !bytes::is(*byte, IDENTIFIER) && !matches!(byte, b'"' | b'\'')) {
                at = next;
            }
        }
        self.goto(at, b'?');
        self.skip_uescape();
    }

    /// `UESCAPE 'c'` belongs to the constant before it.
    fn skip_uescape(&mut self) {
        let start = bytes::skip(self.sql, self.at, SPACE);
        if let Some(end) = word_at(self.sql, start, b"uescape") {
            self.uescape(end);
        }
    }

    /// Behind the word UESCAPE.
    fn uescape(&mut self, end: usize) {
        let quote = bytes::skip(self.sql, end, SPACE);
        let end = match bytes::quoted_end(self.sql, quote, false) {
            Some((_, close)) if self.sql[quote] == b'\'' => close,
            _ => end,
        };
        self.goto(end, b'?');
    }
}

/// End of the number, or of the word that begins with a digit, at `at`.
fn number_end(sql: &[u8], at: usize) -> usize {
    let mut end = at;
    while let Some(&byte) = sql.get(end) {
        let signed_exponent = end > at && matches!(byte, b'+' | b'-') && matches!(sql[end - 1], b'e' | b'E');
        if !bytes::is(byte, IDENTIFIER) && byte != b'.' && !signed_exponent {
            break;
        }
        end += 1;
    }
    end
}

/// Decimal with points, exponent and underscores, or `0x`, `0o`, `0b` and digits.
fn is_number(text: &[u8]) -> bool {
    if let [b'0', b'x' | b'X' | b'o' | b'O' | b'b' | b'B', digits @ ..] = text {
        return !digits.is_empty() && digits.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'_');
    }
    let mut previous = 0;
    text.iter().all(|&byte| {
        let fits = match byte {
            b'0'..=b'9' | b'.' | b'e' | b'E' | b'_' => true,
            b'+' | b'-' => matches!(previous, b'e' | b'E'),
            _ => false,
        };
        previous = byte;
        fits
    })
}

/// At a literal's end: index behind `::type`, `::type(n,m)`, `::type[]`, if one follows.
fn cast_end(sql: &[u8], at: usize) -> Option<usize> {
    let colons = bytes::skip(sql, at, SPACE);
    if !sql[colons..].starts_with(b"::") {
        return None;
    }
    let mut end = type_name_end(sql, bytes::skip(sql, colons + 2, SPACE))?;
    if sql.get(end) == Some(&b'(') {
        let close = end + 1 + sql[end + 1..].iter().position(|byte| !matches!(byte, b'0'..=b'9' | b',' | b' ' | b'-'))?;
        if sql[close] != b')' {
            return Some(end);
        }
        end = close + 1;
    }
    end = zone_end(sql, end);
    while sql.get(end) == Some(&b'[') {
        let close = bytes::skip(sql, end + 1, DIGIT);
        if sql.get(close) != Some(&b']') {
            break;
        }
        end = close + 1;
    }
    Some(end)
}

/// Type names, qualified ones and those of two words.
fn type_name_end(sql: &[u8], start: usize) -> Option<usize> {
    let mut from = start;
    loop {
        let end = match sql.get(from) {
            Some(b'"') => bytes::quoted_end(sql, from, false)?.1,
            _ => bytes::skip(sql, from, IDENTIFIER),
        };
        if end == from {
            return None;
        }
        if sql.get(end) != Some(&b'.') {
            let second = match () {
                () if sql[from..end].eq_ignore_ascii_case(b"double") => b"precision".as_slice(),
                () if sql[from..end].eq_ignore_ascii_case(b"character") => b"varying",
                () if sql[from..end].eq_ignore_ascii_case(b"bit") => b"varying",
                () => return Some(end),
            };
            return Some(word_behind(sql, end, second).unwrap_or(end));
        }
        from = end + 1;
    }
}

/// `with time zone`, `without time zone`.
fn zone_end(sql: &[u8], at: usize) -> usize {
    let zone = |with: &[u8]| word_behind(sql, word_behind(sql, word_behind(sql, at, with)?, b"time")?, b"zone");
    zone(b"with").or_else(|| zone(b"without")).unwrap_or(at)
}

/// Index behind `word`, if blanks and it come next.
fn word_behind(sql: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    let start = bytes::skip(sql, at, SPACE);
    if start > at { word_at(sql, start, word) } else { None }
}

/// Index behind `word`, if it is at `start`. Looks no further than that: this is asked behind every literal.
fn word_at(sql: &[u8], start: usize, word: &[u8]) -> Option<usize> {
    let end = start + word.len();
    let found = sql.get(start..end)?.eq_ignore_ascii_case(word);
    (found && sql.get(end).is_none_or(|byte| !bytes::is(*byte, IDENTIFIER))).then_some(end)
}

/// At the word ARRAY: `Ok(end)` if it is `ARRAY[…]` of constants, nested or not; else `Err` with the index where that was found.
fn constant_array(sql: &[u8], at: usize, options: &ScanOptions) -> Result<usize, usize> {
    let mut at = at;
    let mut depth = 0_usize;
    loop {
        let byte = *sql.get(at).ok_or(at)?;
        match byte {
            b'[' => {
                depth += 1;
                at += 1;
            }
            b']' if depth <= 1 => return if depth == 1 { Ok(at + 1) } else { Err(at) },
            b']' => {
                depth -= 1;
                at += 1;
            }
            b'\'' => at = literal::string_end(sql, at, options.backslash_escapes).ok_or(at)?.1,
            b',' | b' ' | b'\t' | b'\n' | b'\r' | b'-' | b'+' => {
                if depth == 0 && byte != b' ' {
                    return Err(at);
                }
                at += 1;
            }
            _ if bytes::is(byte, DIGIT) || byte == b'.' => {
                let end = number_end(sql, at);
                if !is_number(&sql[at..end]) {
                    return Err(end);
                }
                at = end;
            }
            _ => {
                let end = bytes::skip(sql, at, IDENTIFIER);
                let word = &sql[at..end];
                let constant = [b"array".as_slice(), b"true", b"false", b"null"].iter().any(|name| word.eq_ignore_ascii_case(name));
                let escape = literal::prefix(sql, at, end);
                if constant {
                    at = end;
                } else if let Some(prefix @ (Prefix::Escape | Prefix::Plain | Prefix::Bits)) = escape {
                    let backslash = prefix == Prefix::Escape || (prefix == Prefix::Plain && options.backslash_escapes);
                    at = literal::string_end(sql, end, backslash).ok_or(end)?.1;
                } else {
                    return Err(end.max(at + 1));
                }
            }
        }
    }
}
