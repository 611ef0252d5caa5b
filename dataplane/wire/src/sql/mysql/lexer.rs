//! Reads MySQL text as the server does (MySQL 8.4 and MariaDB 10.11, `sql_lex.cc`), not as the digest does.

use std::ops::Range;

use crate::sql::bytes::{self, DIGIT, HIGH, RARE_SPACE, SPACE, WORD};
use crate::sql::keyword::Keyword;
use crate::sql::token::Token;

/// Cursor over a statement text.
#[derive(Debug)]
pub(crate) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    start: usize,
    backslash: bool,
    ansi_quotes: bool,
    executable: bool,
    ambiguous: bool,
}

impl<'a> Lexer<'a> {
    /// `backslash`: backslash escapes are on (no NO_BACKSLASH_ESCAPES); `ansi_quotes`: double quotes hold a name.
    pub(crate) fn new(text: &'a [u8], backslash: bool, ansi_quotes: bool) -> Self {
        Self { text, at: 0, start: 0, backslash, ansi_quotes, executable: false, ambiguous: false }
    }

    /// The next token came from a `/*! … */` comment.
    pub(crate) fn in_executable_comment(&self) -> bool {
        self.executable
    }

    /// Servers of different versions may read the text up to here differently.
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.ambiguous
    }

    /// Where the last token is in the text.
    pub(crate) fn span(&self) -> Range<usize> {
        self.start..self.at
    }

    /// Next token; [`Token::End`] for ever after the end.
    pub(crate) fn next(&mut self) -> Token<'a> {
        self.skip_blank();
        let start = self.at;
        self.start = start;
        let Some(&byte) = self.text.get(start) else {
            self.ambiguous |= self.executable;
            return Token::End;
        };
        match byte {
            b'"' if self.ansi_quotes => Token::Quoted(self.quoted(false)),
            b'\'' | b'"' => Token::String(self.quoted(self.backslash)),
            b'`' => Token::Quoted(self.quoted(false)),
            b'@' => self.variable(),
            _ if bytes::is(byte, DIGIT) => self.number(),
            _ if bytes::is(byte, WORD | HIGH) => {
                let word = self.word();
                Token::Word(Keyword::find(word), word)
            }
            _ => {
                self.at += 1;
                Token::Symbol(byte)
            }
        }
    }

    fn peek(&self, offset: usize) -> Option<u8> {
        self.text.get(self.at + offset).copied()
    }

    /// Blanks and comments; an executable comment is entered, its end is left.
    fn skip_blank(&mut self) {
        loop {
            self.at = bytes::skip(self.text, self.at, SPACE | RARE_SPACE);
            match (self.peek(0), self.peek(1)) {
                (Some(b'/'), Some(b'*')) => self.comment(),
                (Some(b'*'), Some(b'/')) if self.executable => {
                    self.executable = false;
                    self.at += 2;
                }
                (Some(b'#'), _) => self.line_comment(),
                // The server asks for a space or control character after the dashes; the end of the text is one.
                (Some(b'-'), Some(b'-')) if self.peek(2).is_none_or(|byte| byte <= b' ' || byte == 0x7f) => self.line_comment(),
                _ => return,
            }
        }
    }

    /// At `/*`.
    fn comment(&mut self) {
        let bang = match (self.peek(2), self.peek(3)) {
            (Some(b'!'), _) => 3,
            (Some(b'M'), Some(b'!')) => 4,
            _ => {
                self.ambiguous |= self.executable;
                self.at = bytes::comment_end(self.text, self.at + 2).0;
                return;
            }
        };
        self.ambiguous |= self.executable;
        self.executable = true;
        self.at += bang;
        let digits = bytes::skip(self.text, self.at, DIGIT).min(self.at + 6);
        self.at = digits.min(self.text.len());
    }

    /// At `#` or `--`.
    fn line_comment(&mut self) {
        let end = bytes::find(self.text, self.at, b'\n');
        // A NUL ends the comment for the server, and the end of an executable comment in it counts for old ones.
        self.ambiguous |= self.executable || self.text[self.at..end].contains(&0);
        self.at = end;
    }

    /// At a quote: what is between it and its end, or the rest of the text.
    fn quoted(&mut self, backslash: bool) -> &'a [u8] {
        let start = self.at;
        let (close, end) = bytes::quoted_end(self.text, start, backslash).unwrap_or((self.text.len(), self.text.len()));
        self.at = end;
        let inner = &self.text[(start + 1).min(close)..close];
        // A server that skips the executable comment would end it inside this string.
        self.ambiguous |= self.executable && bytes::comment_end(inner, 0).1;
        inner
    }

    fn word(&mut self) -> &'a [u8] {
        let start = self.at;
        self.at = bytes::skip(self.text, start, WORD | HIGH);
        &self.text[start..self.at]
    }

    /// A number, or an identifier that begins with a digit. A number with a fraction or an exponent ends with it, whatever follows: behind
    /// `1.0FOR` comes FOR, while `1FOR` is a name.
    fn number(&mut self) -> Token<'a> {
        let start = self.at;
        let is_fraction = start > 0 && self.text[start - 1] == b'.';
        self.at = bytes::skip(self.text, start, DIGIT);
        let has_fraction = self.peek(0) == Some(b'.') && self.peek(1).is_none_or(|byte| bytes::is(byte, DIGIT));
        if has_fraction && !is_fraction {
            self.at = bytes::skip(self.text, self.at + 1, DIGIT);
        }
        let has_exponent = self.exponent();
        if !has_exponent && !has_fraction && !is_fraction {
            self.word();
        }
        Token::Number(&self.text[start..self.at])
    }

    /// The exponent of a number, if it is whole.
    fn exponent(&mut self) -> bool {
        let sign = usize::from(matches!(self.peek(1), Some(b'+' | b'-')));
        let is_exponent = matches!(self.peek(0), Some(b'e' | b'E')) && self.peek(1 + sign).is_some_and(|byte| bytes::is(byte, DIGIT));
        if is_exponent {
            self.at = bytes::skip(self.text, self.at + 1 + sign, DIGIT);
        }
        is_exponent
    }

    /// At `@`. An `@` that touches a quote before it is part of an account name.
    fn variable(&mut self) -> Token<'a> {
        let account = self.at > 0 && matches!(self.text[self.at - 1], b'\'' | b'"' | b'`');
        self.at += 1;
        if self.peek(0) == Some(b'@') {
            self.at += 1;
            return self.system_variable();
        }
        match self.peek(0) {
            Some(quote @ (b'\'' | b'"')) => {
                self.quoted(self.backslash && !(self.ansi_quotes && quote == b'"'));
            }
            Some(b'`') => {
                self.quoted(false);
            }
            // A host name or a variable name may contain dots.
            _ => loop {
                self.word();
                if self.peek(0) != Some(b'.') {
                    break;
                }
                self.at += 1;
            },
        }
        if account { Token::Symbol(b'@') } else { Token::UserVariable }
    }

    /// Behind `@@`.
    fn system_variable(&mut self) -> Token<'a> {
        let mut scope: &[u8] = &[];
        let mut name = self.variable_part();
        while self.peek(0) == Some(b'.') {
            self.at += 1;
            scope = name;
            name = self.variable_part();
        }
        Token::SystemVariable(scope, name)
    }

    fn variable_part(&mut self) -> &'a [u8] {
        if self.peek(0) == Some(b'`') { self.quoted(false) } else { self.word() }
    }
}
