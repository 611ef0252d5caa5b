//! What MySQL and PostgreSQL write and SQLite does not know: taken out or replaced before SQLite sees it. Pure.

use crate::sql_server::lexer::{Kind, Token, tokens};

/// The statement for SQLite. `variable` gives the value of a `@@name` as an SQL literal; unknown ones are left alone.
pub(super) fn rewrite(sql: &str, variable: &dyn Fn(&str) -> Option<String>) -> String {
    let tokens = tokens(sql);
    let mut edits = Edits { sql, text: String::with_capacity(sql.len()), copied: 0 };
    let mut at = 0;
    while at < tokens.len() {
        at += edit(&tokens, at, &mut edits, variable);
    }
    edits.finish()
}

/// The first word, in upper case.
pub(super) fn verb(sql: &str) -> String {
    tokens(sql).iter().find(|token| token.kind == Kind::Word).map(|token| token.text.to_ascii_uppercase()).unwrap_or_default()
}

/// What casts say about the types of a statement that SQLite, which has none, cannot tell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Casts {
    /// Parameters (`$n`) that are numbers.
    pub(super) numbers: Vec<usize>,
    /// The statement is an expression over int4: its integers are int4, as PostgreSQL has it.
    pub(super) int4: bool,
}

/// Reads the casts of `sql`.
pub(super) fn casts(sql: &str) -> Casts {
    let tokens = tokens(sql);
    let mut casts = Casts::default();
    let mut wide = tokens.iter().any(|token| token.is("FROM"));
    for window in tokens.windows(4) {
        if !(window[1].is_sign(':') && window[2].is_sign(':')) {
            continue;
        }
        let named = |names: &[&str]| names.iter().any(|name| window[3].is(name));
        let (narrow, large) =
            (named(&["int2", "smallint", "int", "int4", "integer"]), named(&["int8", "bigint", "float8", "double", "numeric"]));
        casts.int4 |= narrow;
        wide |= large;
        if let (true, Some(number)) = (narrow || large, window[0].text.strip_prefix('$').and_then(|digits| digits.parse().ok())) {
            casts.numbers.push(number);
        }
    }
    casts.int4 &= !wide;
    casts
}

struct Edits<'a> {
    sql: &'a str,
    text: String,
    copied: usize,
}

impl Edits<'_> {
    /// Replaces the text from `start` to `end`.
    fn replace(&mut self, start: usize, end: usize, with: &str) {
        self.text.push_str(&self.sql[self.copied..start]);
        self.text.push_str(with);
        self.copied = end;
    }

    fn finish(mut self) -> String {
        self.text.push_str(&self.sql[self.copied..]);
        self.text
    }
}

/// Looks at the tokens from `at` on, edits, and says how many were used up.
fn edit(tokens: &[Token<'_>], at: usize, edits: &mut Edits<'_>, variable: &dyn Fn(&str) -> Option<String>) -> usize {
    let token = &tokens[at];
    let word = |offset: usize, text: &str| tokens.get(at + offset).is_some_and(|token| token.is(text));
    let sign = |offset: usize, text: char| tokens.get(at + offset).is_some_and(|token| token.is_sign(text));
    match token.kind {
        Kind::SystemVariable => {
            if let Some(value) = variable(token.text) {
                // The column is called as it was written, not as it was replaced.
                let name = if is_select_item(tokens, at) { format!(" AS \"{}\"", token.text) } else { String::new() };
                edits.replace(token.start, token.end(), &(value + &name));
            }
            1
        }
        Kind::Sign if sign(0, ':') && sign(1, ':') => {
            let end = type_end(tokens, at + 2);
            edits.replace(token.start, tokens[end - 1].end(), "");
            end - at
        }
        Kind::Word if word(0, "FOR") && (word(1, "UPDATE") || word(1, "SHARE") || word(1, "NO") || word(1, "KEY")) => {
            let end = locking_end(tokens, at);
            edits.replace(token.start, tokens[end - 1].end(), "");
            end - at
        }
        Kind::Word if word(0, "LOCK") && word(1, "IN") && word(2, "SHARE") && word(3, "MODE") => {
            edits.replace(token.start, tokens[at + 3].end(), "");
            4
        }
        Kind::Word if word(0, "E") && tokens.get(at + 1).is_some_and(|next| next.kind == Kind::String && next.start == token.end()) => {
            let text = unescaped(&tokens[at + 1].unquoted()).replace('\'', "''");
            edits.replace(token.start, tokens[at + 1].end(), &format!("'{text}'"));
            2
        }
        Kind::Word if word(0, "pg_catalog") && sign(1, '.') => {
            edits.replace(token.start, tokens[at + 1].end(), "");
            2
        }
        Kind::Word if word(1, "AUTO_INCREMENT") => column(tokens, at, 2, edits),
        Kind::Word if word(1, "NOT") && word(2, "NULL") && word(3, "AUTO_INCREMENT") => column(tokens, at, 4, edits),
        Kind::Word if word(0, "SERIAL") || word(0, "BIGSERIAL") => column(tokens, at, 1, edits),
        Kind::Sign
            if sign(0, ')')
                && is_table_option(tokens.get(at + 1))
                && (!word(1, "DEFAULT") || word(2, "CHARSET") || word(2, "CHARACTER")) =>
        {
            let end = tokens.last().map_or(token.end(), Token::end);
            edits.replace(token.end(), end, "");
            tokens.len() - at
        }
        _ => 1,
    }
}

/// Whether the token at `at` is the whole of an item of a SELECT's list, without an alias.
fn is_select_item(tokens: &[Token<'_>], at: usize) -> bool {
    let starts = at > 0 && (tokens[at - 1].is("SELECT") || tokens[at - 1].is_sign(','));
    let ends = tokens.get(at + 1).is_none_or(|next| next.is_sign(',') || next.is_sign(';') || next.is("FROM") || next.is("LIMIT"));
    let depth = |sign: char| tokens[..at].iter().filter(|token| token.is_sign(sign)).count();
    starts && ends && tokens[0].is("SELECT") && depth('(') == depth(')')
}

/// What PostgreSQL's `E'…'` stands for, escapes by number left out.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        });
    }
    plain
}

/// `INT AUTO_INCREMENT PRIMARY KEY`, `SERIAL PRIMARY KEY` → SQLite's form; without PRIMARY KEY beside it just an integer.
fn column(tokens: &[Token<'_>], at: usize, mut length: usize, edits: &mut Edits<'_>) -> usize {
    let word = |offset: usize, text: &str| tokens.get(at + offset).is_some_and(|token| token.is(text));
    if word(length, "NOT") && word(length + 1, "NULL") {
        length += 2;
    }
    let key = word(length, "PRIMARY") && word(length + 1, "KEY");
    if key {
        length += 2;
    }
    edits.replace(tokens[at].start, tokens[at + length - 1].end(), if key { "INTEGER PRIMARY KEY AUTOINCREMENT" } else { "INTEGER" });
    length
}

/// What may follow the closing parenthesis of CREATE TABLE in MySQL and nowhere else.
fn is_table_option(token: Option<&Token<'_>>) -> bool {
    token.is_some_and(|token| ["ENGINE", "DEFAULT", "CHARSET", "CHARACTER", "COMMENT"].iter().any(|word| token.is(word)))
}

/// Offset after a type name: `int4`, `double precision`, `varchar(10)`, `int[]`.
fn type_end(tokens: &[Token<'_>], mut at: usize) -> usize {
    if tokens.get(at).is_some_and(Token::is_name) {
        let two_words = tokens[at].is("double") || tokens[at].is("character");
        at += 1;
        if two_words && tokens.get(at).is_some_and(|token| token.is("precision") || token.is("varying")) {
            at += 1;
        }
    }
    if tokens.get(at).is_some_and(|token| token.is_sign('(')) {
        at += tokens[at..].iter().position(|token| token.is_sign(')')).map_or(0, |end| end + 1);
    }
    at.min(tokens.len())
}

/// Offset after `FOR UPDATE OF t NOWAIT` and its kin.
fn locking_end(tokens: &[Token<'_>], at: usize) -> usize {
    let words = ["FOR", "NO", "KEY", "UPDATE", "SHARE", "OF", "NOWAIT", "SKIP", "LOCKED"];
    let mut end = at;
    while let Some(token) = tokens.get(end) {
        let listed = words.iter().any(|word| token.is(word));
        let after_of = end > at && (tokens[end - 1].is("OF") || tokens[end - 1].is_sign(',')) && token.is_name();
        if !(listed || after_of || (token.is_sign(',') && end > at)) {
            break;
        }
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_phrases_are_taken_out() {
        let variable = |name: &str| (name == "@@server_id").then(|| "7".to_owned());
        for (sql, expected) in [
            ("SELECT 1", "SELECT 1"),
            ("SELECT @@server_id, @@other", "SELECT 7 AS \"@@server_id\", @@other"),
            ("SELECT @@server_id AS x, max(1, @@server_id), @@server_id+1", "SELECT 7 AS x, max(1, 7), 7+1"),
            ("SELECT * FROM t FOR UPDATE", "SELECT * FROM t "),
            ("SELECT * FROM t WHERE a = 1 FOR NO KEY UPDATE OF t, u SKIP LOCKED", "SELECT * FROM t WHERE a = 1 "),
            ("SELECT 'FOR UPDATE' FROM t LOCK IN SHARE MODE", "SELECT 'FOR UPDATE' FROM t "),
            ("SELECT $1::int4 + x::double precision, 'a'::varchar(3)", "SELECT $1 + x, 'a'"),
            (r"SELECT set_config(E'a', E'it''s \\ \n', false)", "SELECT set_config('a', 'it''s \\ \n', false)"),
            ("SELECT pg_catalog.version()", "SELECT version()"),
            ("CREATE TABLE t (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY)", "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT)"),
            ("CREATE TABLE t (v VARCHAR(9) DEFAULT 'x')", "CREATE TABLE t (v VARCHAR(9) DEFAULT 'x')"),
            (
                "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=InnoDB",
                "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, v INT)",
            ),
            ("CREATE TABLE t (id SERIAL PRIMARY KEY)", "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT)"),
            ("CREATE TABLE t (a INT) DEFAULT CHARSET=utf8", "CREATE TABLE t (a INT)"),
        ] {
            assert_eq!(rewrite(sql, &variable), expected);
        }
        assert_eq!(casts("SELECT 40 + $1::int4"), Casts { numbers: vec![1], int4: true });
        assert_eq!(casts("SELECT $2::bigint + $1::int4"), Casts { numbers: vec![2, 1], int4: false });
        assert_eq!(casts("SELECT count(*) FROM t WHERE a = $1::int"), Casts { numbers: vec![1], int4: false });
        assert_eq!(verb("/* hint */ insert into t"), "INSERT");
    }
}
