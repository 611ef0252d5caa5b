//! SET and RESET of PostgreSQL, read into their parts (pgsql-dataplane.md 3.8).

use super::lexer::Lexer;
use super::session::plain_string;
use crate::sql::keyword::Keyword;
use crate::sql::token::Token;

/// Most values of one parameter.
const MAX_VALUES: usize = 64;

/// A SET or RESET that was understood. Names are as the server compares them: lower case unless quoted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PgsqlSet {
    /// `SET [SESSION | LOCAL] name = value, …`; also TIME ZONE, NAMES, SCHEMA, XML OPTION.
    Parameter {
        /// SET LOCAL: for the transaction only.
        local: bool,
        /// Its name.
        name: String,
        /// Its values, unquoted; `None` = DEFAULT.
        values: Option<Vec<String>>,
    },
    /// `RESET name`.
    Reset(String),
    /// `RESET ALL`.
    ResetAll,
    /// `SET ROLE`, `RESET ROLE`; `true` if the role is what it was at login.
    Role(bool),
    /// `SET SESSION AUTHORIZATION`; `true` if DEFAULT or RESET.
    SessionAuthorization(bool),
    /// `SET TRANSACTION modes`: for the transaction only.
    Transaction(TransactionModes),
    /// `SET SESSION CHARACTERISTICS AS TRANSACTION modes`.
    Characteristics(TransactionModes),
    /// `SET SEED`.
    Seed,
}

/// Transaction modes that were given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransactionModes {
    /// Isolation level, in lower case.
    pub isolation: Option<&'static str>,
    /// READ ONLY or READ WRITE.
    pub read_only: Option<bool>,
    /// DEFERRABLE or NOT DEFERRABLE.
    pub deferrable: Option<bool>,
}

/// Reads a SET or RESET; `None` if it is none, is followed by another statement, or was not understood.
#[must_use]
pub fn parse_pgsql_set(sql: &[u8], backslash_escapes: bool) -> Option<PgsqlSet> {
    let mut parser = Parser { sql, lexer: Lexer::new(sql, backslash_escapes), token: Token::End };
    parser.advance();
    let set = if parser.keyword(Keyword::Reset) {
        parser.reset()?
    } else if parser.keyword(Keyword::Set) {
        parser.set()?
    } else {
        return None;
    };
    while parser.symbol(b';') {}
    (parser.token == Token::End).then_some(set)
}

struct Parser<'a> {
    sql: &'a [u8],
    lexer: Lexer<'a>,
    token: Token<'a>,
}

impl Parser<'_> {
    fn advance(&mut self) {
        self.token = self.lexer.next();
    }

    fn is(&self, wanted: Keyword) -> bool {
        matches!(self.token, Token::Word(word, _) if word == wanted)
    }

    fn keyword(&mut self, wanted: Keyword) -> bool {
        let found = self.is(wanted);
        if found {
            self.advance();
        }
        found
    }

    fn symbol(&mut self, wanted: u8) -> bool {
        let found = self.token == Token::Symbol(wanted);
        if found {
            self.advance();
        }
        found
    }

    fn reset(&mut self) -> Option<PgsqlSet> {
        if self.keyword(Keyword::All) {
            return Some(PgsqlSet::ResetAll);
        }
        if self.keyword(Keyword::Role) {
            return Some(PgsqlSet::Role(true));
        }
        if self.keyword(Keyword::Session) {
            return self.keyword(Keyword::Authorization).then_some(PgsqlSet::SessionAuthorization(true));
        }
        if self.keyword(Keyword::Time) {
            return self.keyword(Keyword::Zone).then(|| PgsqlSet::Reset("timezone".into()));
        }
        if self.keyword(Keyword::Transaction) {
            self.keyword(Keyword::Isolation).then_some(())?;
            return self.keyword(Keyword::Level).then(|| PgsqlSet::Reset("transaction_isolation".into()));
        }
        self.name().map(PgsqlSet::Reset)
    }

    fn set(&mut self) -> Option<PgsqlSet> {
        if self.keyword(Keyword::Transaction) {
            return self.modes().map(PgsqlSet::Transaction);
        }
        let mut local = false;
        if self.keyword(Keyword::Session) {
            if self.keyword(Keyword::Characteristics) {
                let as_transaction = self.keyword(Keyword::As) && self.keyword(Keyword::Transaction);
                return as_transaction.then(|| self.modes())?.map(PgsqlSet::Characteristics);
            }
            if self.keyword(Keyword::Authorization) {
                return self.authorization();
            }
        } else {
            local = self.keyword(Keyword::Local);
            if local && self.keyword(Keyword::Session) {
                self.keyword(Keyword::Authorization).then_some(())?;
                return Some(PgsqlSet::Parameter { local, name: "session_authorization".into(), values: self.values()? });
            }
        }
        match self.token {
            Token::Word(Keyword::Time, _) => {
                self.advance();
                self.keyword(Keyword::Zone).then_some(())?;
                let default = self.is(Keyword::Local);
                let values = if default { self.default() } else { self.values()? };
                Some(PgsqlSet::Parameter { local, name: "timezone".into(), values })
            }
            Token::Word(Keyword::Names, _) => self.special(local, "client_encoding"),
            Token::Word(Keyword::Schema, _) => self.special(local, "search_path"),
            Token::Word(Keyword::Xml, _) => {
                self.advance();
                self.is(Keyword::Option).then(|| self.special(local, "xmloption"))?
            }
            Token::Word(Keyword::Role, _) => self.role(local),
            Token::Word(Keyword::Seed, _) => self.seed(),
            _ => self.parameter(local),
        }
    }

    fn parameter(&mut self, local: bool) -> Option<PgsqlSet> {
        let name = self.name()?;
        (self.keyword(Keyword::To) || self.symbol(b'=')).then_some(())?;
        Some(PgsqlSet::Parameter { local, name, values: self.values()? })
    }

    /// `NAMES 'x'` and its like: the word stands for a parameter. `SET names = x` is no such thing in PostgreSQL.
    fn special(&mut self, local: bool, name: &str) -> Option<PgsqlSet> {
        self.advance();
        let values = if self.token == Token::End { None } else { self.values()? };
        Some(PgsqlSet::Parameter { local, name: name.into(), values })
    }

    fn seed(&mut self) -> Option<PgsqlSet> {
        self.advance();
        (self.keyword(Keyword::To) || self.symbol(b'=')).then_some(())?;
        self.values()?;
        Some(PgsqlSet::Seed)
    }

    /// `SET ROLE x`, `SET role = x`.
    fn role(&mut self, local: bool) -> Option<PgsqlSet> {
        self.advance();
        if !self.keyword(Keyword::To) {
            self.symbol(b'=');
        }
        let values = self.values()?;
        if local {
            return Some(PgsqlSet::Parameter { local, name: "role".into(), values });
        }
        Some(PgsqlSet::Role(values.is_none_or(|values| values.len() == 1 && values[0].eq_ignore_ascii_case("none"))))
    }

    fn authorization(&mut self) -> Option<PgsqlSet> {
        let default = self.values()?.is_none();
        Some(PgsqlSet::SessionAuthorization(default))
    }

    /// Consumes DEFAULT (or LOCAL in its place).
    fn default(&mut self) -> Option<Vec<String>> {
        self.advance();
        None
    }

    /// A parameter's name: `Outer.Inner` or quoted.
    fn name(&mut self) -> Option<String> {
        let mut name = self.identifier()?;
        while self.symbol(b'.') {
            name.push('.');
            name.push_str(&self.identifier()?);
        }
        Some(name)
    }

    fn identifier(&mut self) -> Option<String> {
        let name = match self.token {
            Token::Word(_, word) => std::str::from_utf8(word).ok()?.to_ascii_lowercase(),
            Token::Quoted(inner) => std::str::from_utf8(inner).ok()?.replace("\"\"", "\""),
            _ => return None,
        };
        self.advance();
        Some(name)
    }

    /// Outer `None`: not understood; inner `None`: DEFAULT.
    fn values(&mut self) -> Option<Option<Vec<String>>> {
        if self.keyword(Keyword::Default) {
            return Some(None);
        }
        let mut values = vec![self.value()?];
        while self.symbol(b',') {
            if values.len() == MAX_VALUES {
                return None;
            }
            values.push(self.value()?);
        }
        Some(Some(values))
    }

    fn value(&mut self) -> Option<String> {
        let mut sign = "";
        if self.symbol(b'-') {
            sign = "-";
        } else {
            self.symbol(b'+');
        }
        let value = match self.token {
            Token::Number(number) => format!("{sign}{}", std::str::from_utf8(number).ok()?),
            _ if !sign.is_empty() => return None,
            Token::String(inner) => plain_string(self.sql, inner)?,
            Token::Word(..) | Token::Quoted(_) => return self.identifier(),
            _ => return None,
        };
        self.advance();
        Some(value)
    }

    fn modes(&mut self) -> Option<TransactionModes> {
        let mut modes = TransactionModes::default();
        loop {
            if self.keyword(Keyword::Isolation) {
                self.keyword(Keyword::Level).then_some(())?;
                modes.isolation = Some(self.isolation()?);
            } else if self.keyword(Keyword::Read) {
                let only = self.keyword(Keyword::Only);
                (only || self.keyword(Keyword::Write)).then_some(())?;
                modes.read_only = Some(only);
            } else if self.keyword(Keyword::Not) {
                self.keyword(Keyword::Deferrable).then_some(())?;
                modes.deferrable = Some(false);
            } else if self.keyword(Keyword::Deferrable) {
                modes.deferrable = Some(true);
            } else {
                return None;
            }
            if !self.symbol(b',') && !matches!(self.token, Token::Word(..)) {
                return Some(modes);
            }
        }
    }

    fn isolation(&mut self) -> Option<&'static str> {
        if self.keyword(Keyword::Serializable) {
            return Some("serializable");
        }
        if self.keyword(Keyword::Repeatable) {
            return self.keyword(Keyword::Read).then_some("repeatable read");
        }
        self.keyword(Keyword::Read).then_some(())?;
        if self.keyword(Keyword::Committed) {
            return Some("read committed");
        }
        self.keyword(Keyword::Uncommitted).then_some("read uncommitted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(local: bool, name: &str, values: Option<&[&str]>) -> PgsqlSet {
        let values = values.map(|values| values.iter().map(|value| (*value).to_owned()).collect());
        PgsqlSet::Parameter { local, name: name.into(), values }
    }

    #[test]
    fn every_form_of_set_and_reset() {
        let modes = |isolation, read_only, deferrable| TransactionModes { isolation, read_only, deferrable };
        let table = [
            ("SET search_path = a, \"B c\", 'd'", parameter(false, "search_path", Some(&["a", "B c", "d"]))),
            ("set session Extra_Float_Digits to 3;", parameter(false, "extra_float_digits", Some(&["3"]))),
            ("SET LOCAL statement_timeout = -1", parameter(true, "statement_timeout", Some(&["-1"]))),
            ("SET app.user TO 'it''s'", parameter(false, "app.user", Some(&["it's"]))),
            ("SET timezone TO DEFAULT", parameter(false, "timezone", None)),
            ("SET TIME ZONE 'UTC'", parameter(false, "timezone", Some(&["UTC"]))),
            ("SET TIME ZONE LOCAL", parameter(false, "timezone", None)),
            ("SET TIME ZONE -7", parameter(false, "timezone", Some(&["-7"]))),
            ("SET NAMES 'utf8'", parameter(false, "client_encoding", Some(&["utf8"]))),
            ("SET SCHEMA 'x'", parameter(false, "search_path", Some(&["x"]))),
            ("SET XML OPTION DOCUMENT", parameter(false, "xmloption", Some(&["document"]))),
            ("RESET statement_timeout", PgsqlSet::Reset("statement_timeout".into())),
            ("RESET ALL", PgsqlSet::ResetAll),
            ("RESET ROLE", PgsqlSet::Role(true)),
            ("SET ROLE NONE", PgsqlSet::Role(true)),
            ("SET ROLE admin", PgsqlSet::Role(false)),
            ("SET LOCAL ROLE admin", parameter(true, "role", Some(&["admin"]))),
            ("SET LOCAL SESSION AUTHORIZATION bob", parameter(true, "session_authorization", Some(&["bob"]))),
            ("SET SESSION AUTHORIZATION DEFAULT", PgsqlSet::SessionAuthorization(true)),
            ("SET SESSION AUTHORIZATION 'bob'", PgsqlSet::SessionAuthorization(false)),
            ("SET SEED TO 0.5", PgsqlSet::Seed),
            (
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
                PgsqlSet::Transaction(modes(Some("repeatable read"), Some(true), None)),
            ),
            (
                "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY NOT DEFERRABLE",
                PgsqlSet::Characteristics(modes(None, Some(true), Some(false))),
            ),
        ];
        for (sql, want) in table {
            assert_eq!(parse_pgsql_set(sql.as_bytes(), false), Some(want), "{sql}");
        }
    }

    #[test]
    fn what_is_not_understood_is_not_read() {
        for sql in [
            "SET a = E'x\\n'",
            "SET",
            "SET a",
            "SET a =",
            "SET a = (1)",
            "SET a = 1; SELECT 1",
            "SELECT 1",
            "RESET",
            "SET a = 1,",
            "SET TRANSACTION",
        ] {
            assert_eq!(parse_pgsql_set(sql.as_bytes(), false), None, "{sql}");
        }
    }
}
