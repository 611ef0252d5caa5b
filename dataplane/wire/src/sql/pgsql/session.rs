//! The statements of a text by what they do to the session's parameters (pgsql-dataplane.md 3.7, 3.8).

use super::body::Body;
use super::lexer::Lexer;
use super::prepared::{PreparedName, PreparedUse, pgsql_prepared_names};
use super::set::{PgsqlSet, parse_pgsql_set};
use crate::sql::keyword::Keyword;
use crate::sql::token::Token;

/// One call of `set_config` in a list of SELECT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PgsqlConfig {
    /// Parameter.
    pub name: PgsqlConfigValue,
    /// Its new value.
    pub value: PgsqlConfigValue,
    /// For the transaction only.
    pub local: bool,
}

/// A name or value in a call of `set_config`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PgsqlConfigValue {
    /// A string.
    Literal(String),
    /// `$n`, which Bind has; counted from 1.
    Bound(u16),
}

/// What one statement does to the session's parameters, once it has succeeded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PgsqlSession {
    /// Nothing that shows in its text.
    Nothing,
    /// SET or RESET.
    Set(PgsqlSet),
    /// SELECT of calls of `set_config` and perhaps of `current_setting`, and nothing else.
    SetConfig(Vec<PgsqlConfig>),
    /// SAVEPOINT of this name.
    Savepoint(String),
    /// ROLLBACK TO the savepoint of this name.
    RollbackTo(String),
    /// `UNLISTEN *`.
    UnlistenAll,
    /// `PREPARE` of this name.
    Prepare(String),
    /// `DEALLOCATE` of this name.
    Deallocate(String),
    /// `DEALLOCATE ALL` or `DISCARD ALL`.
    DeallocateAll,
    /// A SET, RESET or savepoint statement that was not understood.
    Unread,
}

/// Whether every call of `set_config` in `sql` says as a literal which parameter it sets, and it is none of an application's own, which have a
/// dot in their names.
#[must_use]
pub fn sets_only_plain_names(sql: &[u8]) -> bool {
    let mut words = Words { lexer: Lexer::new(sql, false) };
    loop {
        let is_call = match words.lexer.next() {
            Token::End => return true,
            Token::Word(word, _) => word == Keyword::SetConfig,
            Token::Quoted(name) => name == b"set_config" || words.lexer.has_escaped_names(),
            _ => false,
        };
        if is_call && words.symbol(b'(').is_some() {
            let name = words.literal(sql).filter(|_| words.symbol(b',').is_some());
            if name.is_none_or(|name| name.contains('.')) {
                return false;
            }
        }
    }
}

/// Reads the statements of `sql` that are not empty, in order; `limit` bounds how many. `None` = there are more.
#[must_use]
pub fn parse_pgsql_session(sql: &[u8], backslash_escapes: bool, limit: usize) -> Option<Vec<PgsqlSession>> {
    let mut lexer = Lexer::new(sql, backslash_escapes);
    let mut statements = Vec::new();
    let (mut start, mut depth, mut is_empty, mut in_body) = (0, 0_usize, true, None::<Body>);
    let mut previous = Keyword::Unknown;
    loop {
        let token = lexer.next();
        let is_end = token == Token::End || (token == Token::Symbol(b';') && depth == 0 && in_body.is_none_or(Body::is_over));
        if is_end {
            if !is_empty {
                if statements.len() == limit {
                    return None;
                }
                let end = if token == Token::End { sql.len() } else { lexer.position() };
                statements.push(statement(&sql[start..end], backslash_escapes));
            }
            if token == Token::End {
                return Some(statements);
            }
            (start, is_empty, previous, in_body) = (lexer.position(), true, Keyword::Unknown, None);
            continue;
        }
        is_empty = false;
        match token {
            Token::Symbol(b'(') => depth += 1,
            Token::Symbol(b')') => depth = depth.saturating_sub(1),
            // The body of a routine: its semicolons separate no statements of the text.
            Token::Word(word, text) => match &mut in_body {
                Some(body) => body.on_word(Some(previous), word, text),
                None if word == Keyword::Atomic && previous == Keyword::Begin => in_body = Some(Body::default()),
                None => {}
            },
            _ => {}
        }
        previous = if let Token::Word(word, _) = token { word } else { Keyword::Unknown };
    }
}

fn statement(sql: &[u8], backslash: bool) -> PgsqlSession {
    let mut words = Words { lexer: Lexer::new(sql, backslash) };
    let read = match words.lexer.next() {
        Token::Word(Keyword::Set | Keyword::Reset, _) => parse_pgsql_set(sql, backslash).map(PgsqlSession::Set),
        Token::Word(Keyword::Savepoint, _) => words.last_name().map(PgsqlSession::Savepoint),
        Token::Word(Keyword::Rollback | Keyword::Abort, _) => match words.rollback_to() {
            Some(name) => name.map(PgsqlSession::RollbackTo),
            None => Some(PgsqlSession::Nothing),
        },
        Token::Word(Keyword::Unlisten, _) if words.lexer.next() == Token::Symbol(b'*') => Some(PgsqlSession::UnlistenAll),
        Token::Word(Keyword::Prepare | Keyword::Deallocate, _) => Some(prepared(sql)),
        Token::Word(Keyword::Discard, _) if matches!(words.lexer.next(), Token::Word(Keyword::All, _)) => Some(PgsqlSession::DeallocateAll),
        Token::Word(Keyword::Select, _) => Some(words.set_config(sql).map_or(PgsqlSession::Nothing, PgsqlSession::SetConfig)),
        _ => Some(PgsqlSession::Nothing),
    };
    read.unwrap_or(PgsqlSession::Unread)
}

fn prepared(sql: &[u8]) -> PgsqlSession {
    match pgsql_prepared_names(sql, 1).and_then(|mut names| names.pop()) {
        Some(PreparedName { using: PreparedUse::Prepare, name, .. }) => PgsqlSession::Prepare(name),
        Some(PreparedName { using: PreparedUse::Deallocate, name, .. }) => PgsqlSession::Deallocate(name),
        Some(PreparedName { using: PreparedUse::DeallocateAll, .. }) => PgsqlSession::DeallocateAll,
        _ => PgsqlSession::Nothing,
    }
}

struct Words<'a> {
    lexer: Lexer<'a>,
}

impl Words<'_> {
    /// A name, and nothing behind it.
    fn last_name(&mut self) -> Option<String> {
        let name = name(self.lexer.next())?;
        self.is_at_end().then_some(name)
    }

    fn is_at_end(&mut self) -> bool {
        matches!(self.lexer.next(), Token::End | Token::Symbol(b';'))
    }

    /// Behind ROLLBACK: `[WORK | TRANSACTION] TO [SAVEPOINT] name`. Outer `None`: it is no ROLLBACK TO.
    fn rollback_to(&mut self) -> Option<Option<String>> {
        let mut token = self.lexer.next();
        if matches!(token, Token::Word(Keyword::Work | Keyword::Transaction, _)) {
            token = self.lexer.next();
        }
        if !matches!(token, Token::Word(Keyword::To, _)) {
            return None;
        }
        let first = self.lexer.next();
        let is_word = matches!(first, Token::Word(Keyword::Savepoint, _));
        let second = self.lexer.next();
        Some(match (is_word, second) {
            (true, Token::Word(..) | Token::Quoted(_)) => name(second).filter(|_| self.is_at_end()),
            (_, Token::End | Token::Symbol(b';')) => name(first),
            _ => None,
        })
    }

    /// Behind SELECT: a list of `set_config('name' | $n, 'value' | $n, true | false)` and `current_setting('name')` of parameters of the server's
    /// own, with or without a name for the column.
    fn set_config(&mut self, sql: &[u8]) -> Option<Vec<PgsqlConfig>> {
        let mut calls = Vec::new();
        loop {
            let mut word = self.lexer.next();
            if matches!(word, Token::Word(_, schema) if schema.eq_ignore_ascii_case(b"pg_catalog")) {
                (self.lexer.next() == Token::Symbol(b'.')).then_some(())?;
                word = self.lexer.next();
            }
            self.symbol(b'(')?;
            match word {
                Token::Word(Keyword::SetConfig, _) => calls.push(self.call(sql)?),
                Token::Word(_, name) if name.eq_ignore_ascii_case(b"current_setting") => {
                    // Of a parameter that this statement may be the first to name, the client sees whether it is.
                    self.literal(sql).filter(|name| !name.contains('.'))?;
                    self.symbol(b')')?;
                }
                _ => return None,
            }
            let mut behind = self.lexer.next();
            if matches!(behind, Token::Word(_, word) if word.eq_ignore_ascii_case(b"as")) {
                matches!(self.lexer.next(), Token::Word(..) | Token::Quoted(_)).then_some(())?;
                behind = self.lexer.next();
            }
            match behind {
                Token::Symbol(b',') => {}
                Token::End | Token::Symbol(b';') => return Some(calls),
                _ => return None,
            }
        }
    }

    /// The arguments of `set_config` and the parenthesis behind them.
    fn call(&mut self, sql: &[u8]) -> Option<PgsqlConfig> {
        let name = self.value(sql)?;
        self.symbol(b',')?;
        let value = self.value(sql)?;
        self.symbol(b',')?;
        let local = match self.lexer.next() {
            Token::Word(Keyword::True, _) => true,
            Token::Word(Keyword::False, _) => false,
            _ => return None,
        };
        self.symbol(b')')?;
        Some(PgsqlConfig { name, value, local })
    }

    fn value(&mut self, sql: &[u8]) -> Option<PgsqlConfigValue> {
        match self.lexer.next() {
            Token::String(inner) => plain_string(sql, inner).map(PgsqlConfigValue::Literal),
            Token::Symbol(b'$') => {
                let before = sql.get(..self.lexer.position())?;
                let digits = &before[before.iter().rposition(|byte| *byte == b'$')? + 1..];
                std::str::from_utf8(digits).ok()?.parse().ok().map(PgsqlConfigValue::Bound)
            }
            _ => None,
        }
    }

    fn symbol(&mut self, wanted: u8) -> Option<()> {
        (self.lexer.next() == Token::Symbol(wanted)).then_some(())
    }

    fn literal(&mut self, sql: &[u8]) -> Option<String> {
        match self.lexer.next() {
            Token::String(inner) => plain_string(sql, inner),
            _ => None,
        }
    }
}

/// The value of a string literal whose inside is the part `inner` of `sql`; `None` = it has escapes, which are not evaluated here.
pub(super) fn plain_string(sql: &[u8], inner: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(inner).ok()?;
    let start = (inner.as_ptr() as usize).checked_sub(sql.as_ptr() as usize)?;
    // Only a backslash or a prefix makes a string more than what is between its quotes.
    match sql.get(start.checked_sub(1)?)? {
        // A quote that is not doubled: the constant goes on in another line.
        b'\'' if text.replace("''", "").contains('\'') => None,
        b'\'' if !text.contains('\\') => Some(text.replace("''", "'")),
        b'\'' => {
            let before = start.checked_sub(2).map_or(b' ', |at| sql[at]);
            let has_prefix = before.is_ascii_alphanumeric() || matches!(before, b'&' | b'_' | b'$') || before >= 0x80;
            (!has_prefix).then(|| text.replace("''", "'"))
        }
        b'$' => Some(text.to_owned()),
        _ => None,
    }
}

/// A name as the server compares it.
pub(super) fn name(token: Token<'_>) -> Option<String> {
    match token {
        Token::Word(_, word) => Some(std::str::from_utf8(word).ok()?.to_ascii_lowercase()),
        Token::Quoted(inner) => Some(std::str::from_utf8(inner).ok()?.replace("\"\"", "\"")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> Vec<PgsqlSession> {
        parse_pgsql_session(sql.as_bytes(), false, 100).expect("there are few")
    }

    #[test]
    fn statements_are_told_apart() {
        use PgsqlSession::{Deallocate, DeallocateAll, Nothing, Prepare, RollbackTo, Savepoint, Set, SetConfig, UnlistenAll, Unread};
        let parameter = |name: &str, values: &[&str]| {
            let values = Some(values.iter().map(|value| (*value).to_owned()).collect());
            Set(PgsqlSet::Parameter { local: false, name: name.into(), values })
        };
        let call = |name: &str, value, local| PgsqlConfig { name: PgsqlConfigValue::Literal(name.into()), value, local };
        let config = |value: &str, local| SetConfig(vec![call("app.x", PgsqlConfigValue::Literal(value.into()), local)]);
        let bound = PgsqlConfig { name: PgsqlConfigValue::Bound(1), value: PgsqlConfigValue::Bound(2), local: true };
        for (sql, expected) in [
            ("", vec![]),
            (";; -- nothing", vec![]),
            ("SELECT 1;SET a = 1 ; RESET b", vec![Nothing, parameter("a", &["1"]), Set(PgsqlSet::Reset("b".into()))]),
            ("SELECT ';'; SET a = ';'", vec![Nothing, parameter("a", &[";"])]),
            ("CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END", vec![Nothing]),
            ("CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2); SET a = 1", vec![Nothing, parameter("a", &["1"])]),
            ("SAVEPOINT One; ROLLBACK TO SAVEPOINT \"One\"", vec![Savepoint("one".into()), RollbackTo("One".into())]),
            ("rollback work to savepoint", vec![RollbackTo("savepoint".into())]),
            ("ROLLBACK; ABORT AND CHAIN; RELEASE x", vec![Nothing, Nothing, Nothing]),
            ("SET a", vec![Unread]),
            ("PREPARE A AS SELECT 1; EXECUTE a; DEALLOCATE PREPARE a", vec![Prepare("a".into()), Nothing, Deallocate("a".into())]),
            ("DEALLOCATE ALL; PREPARE TRANSACTION 'x'", vec![DeallocateAll, Nothing]),
            ("DISCARD ALL; DISCARD PLANS", vec![DeallocateAll, Nothing]),
            ("UNLISTEN c; UNLISTEN *", vec![Nothing, UnlistenAll]),
            ("SELECT set_config('app.x', 'it''s', false)", vec![config("it's", false)]),
            ("SELECT pg_catalog.set_config('app.x', '', true);", vec![config("", true)]),
            ("SELECT set_config('app.x', E'a\\n', true)", vec![Nothing]),
            ("SELECT set_config('app.x', $1, true)", vec![SetConfig(vec![call("app.x", PgsqlConfigValue::Bound(1), true)])]),
            ("SELECT set_config('app.x', $65536, true)", vec![Nothing]),
            ("SELECT set_config($1, $2, true)", vec![SetConfig(vec![bound])]),
            ("SELECT set_config($1 || 'x', $2, true)", vec![Nothing]),
            ("SELECT set_config('app.x', $1 || 'a', true)", vec![Nothing]),
            ("SELECT current_setting('a') AS cur, set_config('app.x', '', false) AS \"New\"", vec![config("", false)]),
            ("SELECT current_setting('a.b'), set_config('app.x', '', false)", vec![Nothing]),
            ("SELECT current_setting($1), set_config('app.x', '', false)", vec![Nothing]),
            ("SELECT set_config('app.x', '', false) AS", vec![Nothing]),
            ("SELECT set_config('app.x', 'y', false) FROM t", vec![Nothing]),
            ("SELECT set_config('app.x', 'y', false), 1", vec![Nothing]),
        ] {
            assert_eq!(read(sql), expected, "{sql}");
        }
        assert_eq!(parse_pgsql_session(b"a;b;c", false, 2), None);
    }

    #[test]
    fn names_that_are_surely_those_of_the_server() {
        for (sql, expected) in [
            ("SELECT 1", true),
            ("SELECT set_config('jit', 'off', false), a FROM t", true),
            ("SELECT set_config, 'a.b' FROM t; UPDATE pg_settings SET setting = 'a.b'", true),
            ("SELECT set_config('jit', 'off', false), pg_catalog.set_config('a.b', 'c', true) FROM t", false),
            ("SELECT \"set_config\"('a.b', 'c', true) FROM t", false),
            ("SELECT set_config('a' || '.b', 'c', true)", false),
            ("SELECT set_config('a'\n'.b', 'c', true)", false),
            ("SELECT set_config(name, 'c', true) FROM t", false),
            ("SELECT set_config(E'a\\x2eb', 'c', true) FROM t", false),
        ] {
            assert_eq!(sets_only_plain_names(sql.as_bytes()), expected, "{sql}");
        }
    }

    #[test]
    fn strings_with_escapes_are_left_alone() {
        for (sql, expected) in [
            ("'a'", Some("a")),
            ("'it''s'", Some("it's")),
            ("'a\\b'", Some("a\\b")),
            ("E'a'", Some("a")),
            ("E'a\\b'", None),
            ("U&'\\0061'", None),
            ("$$it''s$$", Some("it''s")),
            ("$x$a$x$", Some("a")),
        ] {
            let mut lexer = Lexer::new(sql.as_bytes(), false);
            let Token::String(inner) = lexer.next() else { panic!("{sql}") };
            assert_eq!(plain_string(sql.as_bytes(), inner).as_deref(), expected, "{sql}");
        }
    }
}
