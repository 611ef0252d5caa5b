//! SET and USE of MySQL, read into their parts (mysql-dataplane.md 4.1–4.8). What to do with them is the session's to say.

use super::lexer::Lexer;
use crate::sql::keyword::Keyword;
use crate::sql::token::Token;

/// Most items of one SET.
const MAX_ITEMS: usize = 256;

/// A SET statement that was understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MysqlSet {
    /// `SET a = 1, SESSION b = 2, NAMES utf8 …`, in order.
    Items(Vec<SetItem>),
    /// `SET [SESSION | GLOBAL] TRANSACTION …`.
    Transaction {
        /// `None` = the next transaction only.
        scope: Option<SetScope>,
        /// `READ-COMMITTED` and the like, in upper case with dashes.
        isolation: Option<&'static str>,
        /// READ ONLY or READ WRITE.
        read_only: Option<bool>,
    },
}

/// One part of a SET list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetItem {
    /// A system variable.
    Variable {
        /// Its scope, `Session` if none was given.
        scope: SetScope,
        /// Its name in lower case.
        name: String,
        /// The value.
        value: SetValue,
    },
    /// `@name = …`.
    UserVariable,
    /// `NAMES charset [COLLATE collation]`; `None` = DEFAULT.
    Names {
        /// Character set.
        charset: Option<String>,
        /// Collation, if given.
        collation: Option<String>,
    },
    /// `CHARACTER SET charset`, `CHARSET charset`; `None` = DEFAULT.
    CharacterSet(Option<String>),
}

/// Whom a variable is set for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetScope {
    /// `SESSION`, `LOCAL`, `@@session.`, `@@local.`, `@@`, nothing.
    Session,
    /// `GLOBAL`, `@@global.`.
    Global,
    /// `PERSIST`, `PERSIST_ONLY`.
    Persist,
}

/// A value as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetValue {
    /// `DEFAULT`.
    Default,
    /// A bare word, such as `ON`, `utf8mb4`, `NULL`.
    Word(String),
    /// A string constant, unescaped.
    String(String),
    /// Digits, perhaps with sign and point.
    Number(String),
    /// Anything else, as text.
    Expression(String),
}

/// Reads a SET; `None` if it is none, is followed by another statement, or has a form with no place here (PASSWORD, ROLE,
/// RESOURCE GROUP, STATEMENT): then only a server can run it. Text that is not UTF-8 is not understood either.
#[must_use]
pub fn parse_mysql_set(sql: &[u8], backslash_escapes: bool) -> Option<MysqlSet> {
    let mut parser = Parser { sql, lexer: Lexer::new(sql, backslash_escapes, false), token: Token::End, backslash_escapes };
    parser.advance();
    parser.keyword(Keyword::Set)?;
    let scope = parser.scope();
    let set = if parser.keyword(Keyword::Transaction).is_some() {
        parser.transaction(scope)?
    } else {
        let mut items = vec![parser.item(scope)?];
        while parser.symbol(b',') {
            if items.len() == MAX_ITEMS {
                return None;
            }
            let scope = parser.scope();
            items.push(parser.item(scope)?);
        }
        MysqlSet::Items(items)
    };
    parser.at_end().then_some(set)
}

/// The database of `USE db`; `None` if the text is not just that.
#[must_use]
pub fn parse_mysql_use(sql: &[u8]) -> Option<String> {
    let mut parser = Parser { sql, lexer: Lexer::new(sql, true, false), token: Token::End, backslash_escapes: true };
    parser.advance();
    parser.keyword(Keyword::Use)?;
    let name = match parser.token {
        Token::Quoted(name) => text(name)?.replace("``", "`"),
        Token::Word(_, name) | Token::Number(name) => text(name)?,
        _ => return None,
    };
    parser.advance();
    (!name.is_empty() && parser.at_end()).then_some(name)
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

struct Parser<'a> {
    sql: &'a [u8],
    lexer: Lexer<'a>,
    token: Token<'a>,
    backslash_escapes: bool,
}

impl<'a> Parser<'a> {
    fn advance(&mut self) {
        self.token = self.lexer.next();
    }

    fn keyword(&mut self, wanted: Keyword) -> Option<()> {
        let Token::Word(word, _) = self.token else { return None };
        (word == wanted).then(|| self.advance())
    }

    fn symbol(&mut self, wanted: u8) -> bool {
        let found = self.token == Token::Symbol(wanted);
        if found {
            self.advance();
        }
        found
    }

    /// Nothing but semicolons is left.
    fn at_end(&mut self) -> bool {
        while self.symbol(b';') {}
        self.token == Token::End && !self.lexer.is_ambiguous()
    }

    fn scope(&mut self) -> Option<SetScope> {
        let Token::Word(word, _) = self.token else { return None };
        let scope = match word {
            Keyword::Session | Keyword::Local => SetScope::Session,
            Keyword::Global => SetScope::Global,
            Keyword::Persist | Keyword::PersistOnly => SetScope::Persist,
            _ => return None,
        };
        self.advance();
        Some(scope)
    }

    fn item(&mut self, scope: Option<SetScope>) -> Option<SetItem> {
        match self.token {
            Token::UserVariable if scope.is_none() => {
                self.advance();
                self.assign()?;
                self.value()?;
                Some(SetItem::UserVariable)
            }
            Token::SystemVariable(prefix, name) if scope.is_none() => {
                let scope = match Keyword::find(prefix) {
                    Keyword::Session | Keyword::Local => SetScope::Session,
                    Keyword::Global => SetScope::Global,
                    Keyword::Persist | Keyword::PersistOnly => SetScope::Persist,
                    _ if prefix.is_empty() => SetScope::Session,
                    _ => return None,
                };
                self.variable(scope, name)
            }
            Token::Word(Keyword::Names, _) if scope.is_none() => self.names(),
            Token::Word(Keyword::Charset, _) if scope.is_none() => {
                self.advance();
                self.charset().map(SetItem::CharacterSet)
            }
            Token::Word(Keyword::Character, _) if scope.is_none() => {
                self.advance();
                self.keyword(Keyword::Set)?;
                self.charset().map(SetItem::CharacterSet)
            }
            Token::Word(Keyword::Password | Keyword::Role | Keyword::Resource | Keyword::Statement, _) if scope.is_none() => None,
            Token::Word(_, name) | Token::Quoted(name) => self.variable(scope.unwrap_or(SetScope::Session), name),
            _ => None,
        }
    }

    fn variable(&mut self, scope: SetScope, name: &[u8]) -> Option<SetItem> {
        let name = text(name)?.to_ascii_lowercase();
        self.advance();
        self.assign()?;
        Some(SetItem::Variable { scope, name, value: self.value()? })
    }

    /// `=` or `:=`.
    fn assign(&mut self) -> Option<()> {
        self.symbol(b':');
        self.symbol(b'=').then_some(())
    }

    fn names(&mut self) -> Option<SetItem> {
        self.advance();
        let charset = self.charset()?;
        let collation = if self.keyword(Keyword::Collate).is_some() { self.charset()? } else { None };
        Some(SetItem::Names { charset, collation })
    }

    /// Name of a character set or collation; `Some(None)` = DEFAULT.
    fn charset(&mut self) -> Option<Option<String>> {
        let name = match self.token {
            Token::Word(Keyword::Default, _) => None,
            Token::Word(_, name) | Token::Quoted(name) | Token::String(name) => Some(text(name)?.to_ascii_lowercase()),
            _ => return None,
        };
        self.advance();
        Some(name)
    }

    /// Everything to the next comma or semicolon outside of parentheses.
    fn value(&mut self) -> Option<SetValue> {
        let (first, start) = (self.token, self.lexer.span().start);
        let mut tokens = 0_u32;
        let mut last = first;
        let mut end = start;
        let mut depth = 0_u32;
        loop {
            match self.token {
                Token::End => break,
                Token::Symbol(b',' | b';') if depth == 0 => break,
                Token::Symbol(b'(') => depth += 1,
                Token::Symbol(b')') => depth = depth.checked_sub(1)?,
                _ => {}
            }
            tokens += 1;
            last = self.token;
            end = self.lexer.span().end;
            self.advance();
        }
        let raw = || text(&self.sql[start..end]);
        Some(match (tokens, first, last) {
            (0, ..) => return None,
            (1, Token::Word(Keyword::Default, _), _) => SetValue::Default,
            (1, Token::Word(_, word), _) => SetValue::Word(text(word)?),
            (1, Token::Quoted(word), _) => SetValue::Word(text(word)?.replace("``", "`")),
            (1, Token::String(inner), _) => SetValue::String(self.unescape(inner, self.sql[start])?),
            (1, Token::Number(number), _) => SetValue::Number(text(number)?),
            (2, Token::Symbol(b'-' | b'+'), Token::Number(_)) => SetValue::Number(raw()?),
            _ if depth > 0 => return None,
            _ => SetValue::Expression(raw()?),
        })
    }

    /// The content of a string constant in `quote`s (manual "String Literals").
    fn unescape(&self, inner: &[u8], quote: u8) -> Option<String> {
        let mut out = Vec::with_capacity(inner.len());
        let mut bytes = inner.iter().copied();
        while let Some(byte) = bytes.next() {
            match byte {
                b'\\' if self.backslash_escapes => match bytes.next()? {
                    b'0' => out.push(0),
                    b'b' => out.push(8),
                    b'n' => out.push(b'\n'),
                    b'r' => out.push(b'\r'),
                    b't' => out.push(b'\t'),
                    b'Z' => out.push(26),
                    other => out.push(other),
                },
                // A doubled quote: the lexer has seen that its twin follows.
                _ if byte == quote => out.push(bytes.next()?),
                _ => out.push(byte),
            }
        }
        String::from_utf8(out).ok()
    }

    fn transaction(&mut self, scope: Option<SetScope>) -> Option<MysqlSet> {
        let (mut isolation, mut read_only) = (None, None);
        loop {
            if self.keyword(Keyword::Isolation).is_some() {
                self.keyword(Keyword::Level)?;
                isolation = Some(self.isolation()?);
            } else {
                self.keyword(Keyword::Read)?;
                read_only = Some(self.keyword(Keyword::Only).is_some());
                if read_only == Some(false) {
                    self.keyword(Keyword::Write)?;
                }
            }
            if !self.symbol(b',') {
                return Some(MysqlSet::Transaction { scope, isolation, read_only });
            }
        }
    }

    fn isolation(&mut self) -> Option<&'static str> {
        if self.keyword(Keyword::Serializable).is_some() {
            return Some("SERIALIZABLE");
        }
        if self.keyword(Keyword::Repeatable).is_some() {
            self.keyword(Keyword::Read)?;
            return Some("REPEATABLE-READ");
        }
        self.keyword(Keyword::Read)?;
        if self.keyword(Keyword::Committed).is_some() {
            return Some("READ-COMMITTED");
        }
        self.keyword(Keyword::Uncommitted)?;
        Some("READ-UNCOMMITTED")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(sql: &str) -> Option<Vec<SetItem>> {
        match parse_mysql_set(sql.as_bytes(), true) {
            Some(MysqlSet::Items(items)) => Some(items),
            _ => None,
        }
    }

    fn variable(scope: SetScope, name: &str, value: SetValue) -> SetItem {
        SetItem::Variable { scope, name: name.into(), value }
    }

    #[test]
    fn assignments_of_every_spelling() {
        use SetScope::{Global, Persist, Session};
        let word = |text: &str| SetValue::Word(text.into());
        let string = |text: &str| SetValue::String(text.into());
        let number = |text: &str| SetValue::Number(text.into());
        let expression = |text: &str| SetValue::Expression(text.into());
        let names = |charset: Option<&str>, collation: Option<&str>| SetItem::Names {
            charset: charset.map(Into::into),
            collation: collation.map(Into::into),
        };
        let table = [
            ("SET autocommit=0", vec![variable(Session, "autocommit", number("0"))]),
            ("set @@AutoCommit := ON /* x */ ;", vec![variable(Session, "autocommit", word("ON"))]),
            ("SET @@session.sql_mode='A,B'", vec![variable(Session, "sql_mode", string("A,B"))]),
            ("SET LOCAL `sql_mode` = \"it''s\\'\\n\"", vec![variable(Session, "sql_mode", string("it''s'\n"))]),
            ("SET sql_mode = 'it''s'", vec![variable(Session, "sql_mode", string("it's"))]),
            ("SET GLOBAL max_connections=100", vec![variable(Global, "max_connections", number("100"))]),
            ("SET PERSIST a=DEFAULT", vec![variable(Persist, "a", SetValue::Default)]),
            ("SET @@global.a=-1.5", vec![variable(Global, "a", number("-1.5"))]),
            (
                "SET SESSION sql_mode=(SELECT CONCAT(@@sql_mode, ',PIPES')), time_zone = '+00:00'",
                vec![
                    variable(Session, "sql_mode", expression("(SELECT CONCAT(@@sql_mode, ',PIPES'))")),
                    variable(Session, "time_zone", string("+00:00")),
                ],
            ),
            ("SET time_zone=@OLD", vec![variable(Session, "time_zone", expression("@OLD"))]),
            ("SET @a=1, @b:='x'", vec![SetItem::UserVariable, SetItem::UserVariable]),
            ("SET NAMES utf8mb4", vec![names(Some("utf8mb4"), None)]),
            ("SET NAMES 'UTF8MB4' COLLATE 'utf8mb4_unicode_ci';", vec![names(Some("utf8mb4"), Some("utf8mb4_unicode_ci"))]),
            ("SET NAMES DEFAULT, a=1", vec![names(None, None), variable(Session, "a", number("1"))]),
            ("/*!40101 SET NAMES utf8 */", vec![names(Some("utf8"), None)]),
            ("SET CHARACTER SET utf8", vec![SetItem::CharacterSet(Some("utf8".into()))]),
            ("SET CHARSET 'latin1'", vec![SetItem::CharacterSet(Some("latin1".into()))]),
        ];
        for (sql, want) in table {
            assert_eq!(items(sql), Some(want), "{sql}");
        }
    }

    #[test]
    fn transaction_characteristics() {
        let table = [
            ("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", None, Some("SERIALIZABLE"), None),
            ("SET SESSION TRANSACTION READ ONLY", Some(SetScope::Session), None, Some(true)),
            (
                "set session transaction isolation level repeatable read, read write",
                Some(SetScope::Session),
                Some("REPEATABLE-READ"),
                Some(false),
            ),
            ("SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED", Some(SetScope::Global), Some("READ-COMMITTED"), None),
        ];
        for (sql, scope, isolation, read_only) in table {
            assert_eq!(parse_mysql_set(sql.as_bytes(), true), Some(MysqlSet::Transaction { scope, isolation, read_only }), "{sql}");
        }
    }

    #[test]
    fn what_only_a_server_understands_is_not_read() {
        for sql in [
            "SET PASSWORD='x'",
            "SET ROLE 'admin'",
            "SET RESOURCE GROUP rg",
            "SET STATEMENT max_statement_time=10 FOR SELECT 1",
            "SET sql_mode='ANSI'; SELECT 1",
            "SET a=",
            "SET a",
            "SET",
            "SELECT 1",
            "SET a=1,",
            "SET a=(1",
            "SET a=1)",
            "SET x.y.z=1",
        ] {
            let parsed = parse_mysql_set(sql.as_bytes(), true);
            assert_eq!(parsed, None, "{sql}");
        }
    }

    #[test]
    fn use_names_a_database() {
        for (sql, want) in [
            ("USE db", Some("db")),
            ("use `a``b` ;", Some("a`b")),
            ("/* x */ USE /* y */ 1db", Some("1db")),
            ("USE db; SELECT 1", None),
            ("USE", None),
            ("USE ``", None),
            ("USE 'db'", None),
        ] {
            assert_eq!(parse_mysql_use(sql.as_bytes()).as_deref(), want, "{sql}");
        }
    }
}
