//! First pass of the MySQL digest: literals and comments out (mysql-dataplane.md 7.1, "Pass 1").
//!
//! This is the reference's reading of the text, not the server's: backticks do not quote, `"` always does, backslashes
//! always escape. Hashes that users have stored depend on it.

use crate::sql::ScanOptions;
use crate::sql::bytes::{self, DIGIT, SPACE, WORD};
use crate::sql::output::Output;

/// Fills `text` with the digest text of `sql`.
pub(super) fn normalize(sql: &[u8], options: &ScanOptions, text: &mut Vec<u8>) {
    let mut pass = Pass { sql, at: 0, previous: 0, options, out: Output::new(text, options, false) };
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
    options: &'a ScanOptions,
    out: Output<'a>,
}

impl Pass<'_> {
    fn peek(&self, offset: usize) -> u8 {
        self.sql.get(self.at + offset).copied().unwrap_or(0)
    }

    fn step(&mut self) {
        let byte = self.sql[self.at];
        if bytes::is(byte, WORD) {
            return self.word(byte);
        }
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => {
                self.out.blank();
                self.advance(1, byte);
            }
            b'/' if self.peek(1) == b'*' => self.comment(),
            b'#' => self.line_comment(),
            b'-' if self.peek(1) == b'-' && self.previous != b'-' && bytes::is(self.peek(2), SPACE) => self.line_comment(),
            b'\'' | b'"' => self.string(),
            _ => {
                self.out.byte(byte);
                self.advance(1, byte);
            }
        }
    }

    fn advance(&mut self, count: usize, previous: u8) {
        self.at += count;
        self.previous = previous;
    }

    fn word(&mut self, first: u8) {
        let starts = !bytes::is(self.previous, WORD);
        if starts && bytes::is(first, DIGIT) {
            return self.number();
        }
        let end = bytes::skip(self.sql, self.at, WORD);
        let word = &self.sql[self.at..end];
        if starts && self.options.replace_null && word.eq_ignore_ascii_case(b"null") {
            self.out.literal();
            return self.advance(word.len(), b'?');
        }
        self.out.copy(word);
        self.advance(word.len(), word[word.len() - 1]);
    }

    fn number(&mut self) {
        let mut end = self.at;
        while let Some(&byte) = self.sql.get(end) {
            let signed_exponent = matches!(byte, b'+' | b'-') && matches!(self.sql[end - 1], b'e' | b'E');
            let point = byte == b'.' && end + 1 < self.sql.len();
            if !bytes::is(byte, WORD) && !point && !signed_exponent {
                break;
            }
            end += 1;
        }
        let candidate = &self.sql[self.at..end];
        if is_number(candidate) {
            self.out.literal();
            self.advance(candidate.len(), b'?');
        } else {
            self.out.copy_candidate(candidate);
            self.advance(candidate.len(), candidate[candidate.len() - 1]);
        }
    }

    fn string(&mut self) {
        match bytes::quoted_end(self.sql, self.at, true) {
            Some((_, end)) => {
                self.out.literal();
                self.at = end;
                self.previous = 0;
            }
            None => self.at = self.sql.len(),
        }
    }

    fn line_comment(&mut self) {
        let rest = &self.sql[self.at..];
        let length = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len());
        self.advance(length, b' ');
    }

    fn comment(&mut self) {
        let (end, closed) = bytes::comment_end(self.sql, self.at + 2);
        if closed {
            let body = &self.sql[self.at + 2..end - 2];
            if self.options.keep_comment {
                self.out.copy(b"/*");
                self.out.copy(body.strip_prefix(b"!").unwrap_or(body));
                self.out.copy(b"*/");
            } else if body.first() == Some(&b'!') {
                let start = body.iter().position(|byte| !matches!(byte, b'/' | b'*' | b'!' | b' ' | b'0'..=b'9')).unwrap_or(body.len());
                self.out.copy(&body[start..]);
            }
            self.out.blank();
        }
        self.advance(end - self.at, b' ');
    }
}

/// Digits, points and exponents, or `0x` and hex digits.
fn is_number(text: &[u8]) -> bool {
    if let [b'0', b'x', hex @ ..] = text {
        return !hex.is_empty() && hex.iter().all(u8::is_ascii_hexdigit);
    }
    let mut previous = 0;
    text.iter().all(|&byte| {
        let fits = match byte {
            b'0'..=b'9' | b'.' | b'e' | b'E' => true,
            b'+' | b'-' => matches!(previous, b'e' | b'E'),
            _ => false,
        };
        previous = byte;
        fits
    })
}
