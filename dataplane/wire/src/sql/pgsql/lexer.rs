//! Reads PostgreSQL text as the server does (manual 17, "Lexical Structure").

use super::literal::{self, IDENTIFIER, Prefix};
use crate::sql::bytes::{self, DIGIT, RARE_SPACE, SPACE};
use crate::sql::keyword::Keyword;
use crate::sql::token::Token;

/// Cursor over a statement text.
#[derive(Debug)]
pub(crate) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    backslash: bool,
    has_escaped_names: bool,
}

impl<'a> Lexer<'a> {
    /// `backslash`: backslash escapes in plain strings (`standard_conforming_strings=off`).
    pub(crate) fn new(text: &'a [u8], backslash: bool) -> Self {
        Self { text, at: 0, backslash, has_escaped_names: false }
    }

    /// A name with Unicode escapes has come: which one it is, nobody has looked.
    pub(crate) fn has_escaped_names(&self) -> bool {
        self.has_escaped_names
    }

    /// Where the token that came last ends.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Next token; [`Token::End`] for ever after the end.
    pub(crate) fn next(&mut self) -> Token<'a> {
        self.skip_blank();
        let start = self.at;
        let Some(&byte) = self.text.get(start) else { return Token::End };
        match byte {
            b'\'' => Token::String(self.string(start, self.backslash)),
            b'"' => Token::Quoted(self.name(start)),
            b'$' => self.dollar(),
            _ if bytes::is(byte, DIGIT) => {
                self.number();
                Token::Number(&self.text[start..self.at])
            }
            _ if bytes::is(byte, IDENTIFIER) => self.word(),
            _ => {
                self.at += 1;
                Token::Symbol(byte)
            }
        }
    }

    /// Digits, a fraction, an exponent. To servers before 15 whatever follows is the next token, to others it is an error.
    fn number(&mut self) {
        self.at = bytes::skip(self.text, self.at, DIGIT);
        if self.peek(0) == Some(b'.') {
            self.at = bytes::skip(self.text, self.at + 1, DIGIT);
        }
        let sign = usize::from(matches!(self.peek(1), Some(b'+' | b'-')));
        if matches!(self.peek(0), Some(b'e' | b'E')) && self.peek(1 + sign).is_some_and(|byte| bytes::is(byte, DIGIT)) {
            self.at = bytes::skip(self.text, self.at + 1 + sign, DIGIT);
        }
    }

    fn peek(&self, offset: usize) -> Option<u8> {
        self.text.get(self.at + offset).copied()
    }

    fn skip_blank(&mut self) {
        loop {
            self.at = bytes::skip(self.text, self.at, SPACE | RARE_SPACE);
            match (self.peek(0), self.peek(1)) {
                (Some(b'-'), Some(b'-')) => self.at = literal::line_comment_end(self.text, self.at),
                (Some(b'/'), Some(b'*')) => self.at = literal::block_comment_end(self.text, self.at),
                _ => return,
            }
        }
    }

    /// What is between the quote at `start` and the end of its constant, or the rest of the text.
    fn string(&mut self, start: usize, backslash: bool) -> &'a [u8] {
        self.inside(start, literal::string_end(self.text, start, backslash))
    }

    fn name(&mut self, start: usize) -> &'a [u8] {
        self.inside(start, bytes::quoted_end(self.text, start, false))
    }

    fn inside(&mut self, start: usize, end: Option<(usize, usize)>) -> &'a [u8] {
        let (close, end) = end.unwrap_or((self.text.len(), self.text.len()));
        self.at = end;
        &self.text[(start + 1).min(close)..close]
    }

    fn dollar(&mut self) -> Token<'a> {
        let start = self.at;
        if let Some(inner) = literal::dollar_quote_start(self.text, start) {
            let (close, end) = literal::dollar_quote_end(self.text, start, inner).unwrap_or((self.text.len(), self.text.len()));
            self.at = end;
            return Token::String(&self.text[inner..close]);
        }
        // `$1`.
        self.at = bytes::skip(self.text, start + 1, DIGIT);
        Token::Symbol(b'$')
    }

    fn word(&mut self) -> Token<'a> {
        let start = self.at;
        let end = bytes::skip(self.text, start, IDENTIFIER);
        self.at = end;
        match literal::prefix(self.text, start, end) {
            Some(Prefix::Escape) => Token::String(self.string(end, true)),
            Some(Prefix::Plain) => Token::String(self.string(end, self.backslash)),
            Some(Prefix::Bits) => Token::String(self.string(end, false)),
            Some(Prefix::Unicode) => Token::String(self.string(end + 1, self.backslash)),
            Some(Prefix::UnicodeIdentifier) => {
                self.has_escaped_names = true;
                Token::Quoted(self.name(end + 1))
            }
            None => {
                let word = &self.text[start..end];
                Token::Word(Keyword::find(word), word)
            }
        }
    }
}
