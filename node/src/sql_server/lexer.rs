//! Words, strings and signs of a statement: just enough to split packets, to recognise commands, and to rewrite names.
//!
//! SQLite's rules of quoting apply (a backslash is an ordinary character, quotes are doubled); comments are skipped.

/// What a token is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Identifier or keyword.
    Word,
    /// Number.
    Number,
    /// `'…'`.
    String,
    /// `"…"`, a name or (legacy) a string.
    DoubleQuoted,
    /// `` `…` `` or `[…]`.
    Name,
    /// `@@name`, with a scope such as `@@global.name`.
    SystemVariable,
    /// `?`, `?1`, `$1`, `:name`, `@name`.
    Parameter,
    /// One other character.
    Sign,
}

/// A token and where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token<'a> {
    /// What it is.
    pub(crate) kind: Kind,
    /// As written.
    pub(crate) text: &'a str,
    /// Offset in the statement.
    pub(crate) start: usize,
}

impl Token<'_> {
    /// Whether it is this keyword, in any case.
    pub(crate) fn is(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }

    /// Whether it is this sign.
    pub(crate) fn is_sign(&self, sign: char) -> bool {
        self.kind == Kind::Sign && self.text.starts_with(sign)
    }

    /// Offset after it.
    pub(crate) fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// The text without its quotes.
    pub(crate) fn unquoted(&self) -> String {
        let inner = |quote: char| {
            let body = self.text.get(1..self.text.len().saturating_sub(1)).unwrap_or("");
            body.replace(&format!("{quote}{quote}"), &quote.to_string())
        };
        match self.kind {
            Kind::String => inner('\''),
            Kind::DoubleQuoted => inner('"'),
            Kind::Name if self.text.starts_with('`') => inner('`'),
            Kind::Name => self.text.get(1..self.text.len().saturating_sub(1)).unwrap_or("").into(),
            _ => self.text.into(),
        }
    }

    /// Whether it can be an identifier.
    pub(crate) fn is_name(&self) -> bool {
        matches!(self.kind, Kind::Word | Kind::DoubleQuoted | Kind::Name)
    }
}

/// The tokens of a statement or of several; what is unterminated ends with the text.
pub(crate) fn tokens(sql: &str) -> Vec<Token<'_>> {
    let bytes = sql.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let kind = match bytes[at] {
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'-' if bytes.get(at + 1) == Some(&b'-') => {
                at = find(bytes, at, b"\n");
                continue;
            }
            b'#' => {
                at = find(bytes, at, b"\n");
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                at = find(bytes, at + 2, b"*/");
                continue;
            }
            b'\'' => quoted(bytes, &mut at, b'\'', Kind::String),
            b'"' => quoted(bytes, &mut at, b'"', Kind::DoubleQuoted),
            b'`' => quoted(bytes, &mut at, b'`', Kind::Name),
            b'[' => {
                at = find(bytes, at, b"]");
                Kind::Name
            }
            b'@' if bytes.get(at + 1) == Some(&b'@') => {
                at = variable_end(bytes, at + 2);
                Kind::SystemVariable
            }
            b'?' | b'@' | b'$' => {
                at = run(bytes, at + 1);
                Kind::Parameter
            }
            b':' if bytes.get(at + 1).is_some_and(|next| is_word(*next)) && !(at > 0 && bytes[at - 1] == b':') => {
                at = run(bytes, at + 1);
                Kind::Parameter
            }
            byte if byte.is_ascii_digit() => {
                at = run(bytes, at + 1);
                Kind::Number
            }
            byte if is_word(byte) => {
                at = run(bytes, at + 1);
                Kind::Word
            }
            _ => {
                at += 1;
                Kind::Sign
            }
        };
        found.push(Token { kind, text: &sql[start..at], start });
    }
    found
}

/// Splits a packet at its top-level semicolons; pieces without a token are left out.
pub(crate) fn statements(sql: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut used = false;
    for token in tokens(sql) {
        if token.is_sign(';') {
            if used {
                pieces.push(sql[start..token.start].trim());
            }
            start = token.end();
            used = false;
        } else {
            used = true;
        }
    }
    if used {
        pieces.push(sql[start..].trim());
    }
    pieces
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn run(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() && (is_word(bytes[at]) || bytes[at] == b'$') {
        at += 1;
    }
    at
}

/// `@@mysql-max_connections`: a dash belongs to the name where a letter follows.
fn variable_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        let joins = matches!(bytes[at], b'-' | b'.') && bytes.get(at + 1).is_some_and(u8::is_ascii_alphabetic);
        if !is_word(bytes[at]) && !joins {
            break;
        }
        at += 1;
    }
    at
}

/// Offset after the next `needle`, or the end.
fn find(bytes: &[u8], from: usize, needle: &[u8]) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    rest.windows(needle.len()).position(|window| window == needle).map_or(bytes.len(), |found| from + found + needle.len())
}

fn quoted(bytes: &[u8], at: &mut usize, quote: u8, kind: Kind) -> Kind {
    *at += 1;
    while *at < bytes.len() {
        if bytes[*at] == quote {
            if bytes.get(*at + 1) == Some(&quote) {
                *at += 1;
            } else {
                *at += 1;
                break;
            }
        }
        *at += 1;
    }
    *at = (*at).min(bytes.len());
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_split_outside_quotes_and_comments() {
        for (sql, expected) in [
            ("SELECT 1", vec!["SELECT 1"]),
            ("SELECT 1; SELECT ';' ;", vec!["SELECT 1", "SELECT ';'"]),
            ("/* ; */ SELECT `a;b`, \"x;\" -- ;\n; ;LOAD", vec!["/* ; */ SELECT `a;b`, \"x;\" -- ;", "LOAD"]),
            ("SELECT 'it''s; fine'; x", vec!["SELECT 'it''s; fine'", "x"]),
            (" ; -- nothing\n", vec![]),
            ("SELECT 'open ; end", vec!["SELECT 'open ; end"]),
        ] {
            assert_eq!(statements(sql), expected, "{sql}");
        }
    }

    #[test]
    fn tokens_carry_kind_and_text() {
        let found: Vec<(Kind, &str)> = tokens("SELECT @@global.read_only, @@mysql-wait_timeout,$1::int FROM \"t\"")
            .iter()
            .map(|token| (token.kind, token.text))
            .collect();
        assert_eq!(found[1], (Kind::SystemVariable, "@@global.read_only"));
        assert_eq!(found[3], (Kind::SystemVariable, "@@mysql-wait_timeout"));
        assert_eq!(found[5], (Kind::Parameter, "$1"));
        assert_eq!(found.last(), Some(&(Kind::DoubleQuoted, "\"t\"")));
    }

    #[test]
    fn any_text_is_lexed_without_gaps_in_order() {
        bolero::check!().with_type::<String>().for_each(|sql| {
            let mut end = 0;
            for token in tokens(sql) {
                assert!(token.start >= end && !token.text.is_empty());
                end = token.end();
                let _ = token.unquoted();
            }
            let _ = statements(sql);
        });
    }
}
