//! What SQLite cannot say: `@@name`, `main.runtime_t`, and PostgreSQL's casts and operators in catalog queries.

use rusqlite::Connection;

use crate::sql_server::Face;
use crate::sql_server::engine::EngineError;
use crate::sql_server::functions::{ClientFacts, register};
use crate::sql_server::lexer::{Kind, Token, tokens};

/// A statement for SQLite.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rewritten {
    /// Its text.
    pub(crate) sql: String,
    /// It asks for nothing but one variable, which does not exist: no row.
    pub(crate) nothing: bool,
}

/// Tables that users see in `main` and that are made in TEMP.
fn is_made_in_temp(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("runtime_") || name == "node_overrides"
}

/// Rewrites `sql`; `variable` gives the values of `@@` names.
pub(crate) fn statement(sql: &str, face: Face, variable: impl Fn(&str) -> Option<String>) -> Rewritten {
    let found = tokens(sql);
    let catalog = face == Face::Pgsql && sql.to_ascii_lowercase().contains("pg_catalog");
    let mut rewriter = Rewriter { sql, found: &found, at: 0, copied: 0, out: String::with_capacity(sql.len()), unknown: 0, variables: 0 };
    while rewriter.at < found.len() {
        let replaced = rewriter.variable(&variable)
            || rewriter.main_runtime()
            || (catalog && rewriter.catalog())
            || (face == Face::Pgsql && rewriter.cast());
        if !replaced {
            rewriter.at += 1;
        }
    }
    let tail = &sql[rewriter.copied..];
    rewriter.out.push_str(tail);
    Rewritten { nothing: rewriter.variables == 1 && rewriter.unknown == 1 && found.len() <= 4, sql: rewriter.out }
}

struct Rewriter<'a> {
    sql: &'a str,
    found: &'a [Token<'a>],
    at: usize,
    copied: usize,
    out: String,
    unknown: usize,
    variables: usize,
}

impl<'a> Rewriter<'a> {
    fn token(&self, offset: usize) -> Option<&'a Token<'a>> {
        self.found.get(self.at + offset)
    }

    /// Puts `text` in the place of the next `count` tokens.
    fn replace(&mut self, count: usize, text: &str) -> bool {
        let (Some(first), Some(last)) = (self.token(0), self.token(count.saturating_sub(1))) else { return false };
        self.out.push_str(&self.sql[self.copied..first.start]);
        self.out.push_str(text);
        self.copied = last.end();
        self.at += count;
        true
    }

    /// `@@name` becomes a literal, and keeps its name as a column.
    fn variable(&mut self, value: impl Fn(&str) -> Option<String>) -> bool {
        let Some(token) = self.token(0).filter(|token| token.kind == Kind::SystemVariable) else { return false };
        let literal = value(token.text).map_or_else(|| "NULL".to_owned(), |text| format!("'{}'", text.replace('\'', "''")));
        self.variables += 1;
        self.unknown += usize::from(literal == "NULL");
        let before = self.at.checked_sub(1).and_then(|at| self.found.get(at));
        let starts = before.is_some_and(|token| token.is("SELECT") || token.is_sign(','));
        let ends = self.token(1).is_none_or(|next| next.is_sign(',') || next.is_sign(';') || next.is("LIMIT") || next.is("FROM"));
        let name = if starts && ends { format!(" AS \"{}\"", token.text.replace('"', "\"\"")) } else { String::new() };
        self.replace(1, &format!("{literal}{name}"))
    }

    /// `main.runtime_t` → `temp.runtime_t`.
    fn main_runtime(&mut self) -> bool {
        let is_main = self.token(0).is_some_and(|token| token.is_name() && token.unquoted().eq_ignore_ascii_case("main"));
        let dotted = self.token(1).is_some_and(|token| token.is_sign('.'));
        let made = self.token(2).is_some_and(|token| token.is_name() && is_made_in_temp(&token.unquoted()));
        is_main && dotted && made && self.replace(1, "temp")
    }

    /// `x::type` → `x`.
    fn cast(&mut self) -> bool {
        let colons = self.token(0).is_some_and(|token| token.is_sign(':')) && self.token(1).is_some_and(|token| token.is_sign(':'));
        if !colons || !self.token(2).is_some_and(Token::is_name) {
            return false;
        }
        let qualified = self.token(3).is_some_and(|token| token.is_sign('.'));
        let mut count = if qualified { 5 } else { 3 };
        while self.token(count).is_some_and(|token| token.kind == Kind::Name && token.text == "[]") {
            count += 1;
        }
        self.replace(count, "")
    }

    /// Tokens from the parenthesis at `offset` to the one that closes it.
    fn call_length(&self, offset: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for (at, token) in self.found.get(self.at + offset..)?.iter().enumerate() {
            if token.is_sign('(') {
                depth += 1;
            } else if token.is_sign(')') {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
        }
        None
    }

    /// The forms in which psql asks the catalog.
    fn catalog(&mut self) -> bool {
        let sign = |offset: usize, sign: char| self.token(offset).is_some_and(|token| token.is_sign(sign));
        let word = |offset: usize, word: &str| self.token(offset).is_some_and(|token| token.is(word));
        let is_call = sign(3, '(');
        if word(0, "OPERATOR") && sign(1, '(') && word(2, "pg_catalog") && sign(3, '.') {
            // OPERATOR ( pg_catalog . ~ )
            return self.replace(6, "REGEXP");
        }
        if word(0, "COLLATE") && word(1, "pg_catalog") && sign(2, '.') {
            return self.replace(4, "");
        }
        let makes_rows = word(2, "generate_series") || word(2, "unnest");
        if word(0, "pg_catalog") && sign(1, '.') && is_call && makes_rows {
            // Only asked about rows of tables that are empty here.
            return self.call_length(3).is_some_and(|length| self.replace(3 + length, "(SELECT NULL)"));
        }
        if word(0, "pg_catalog") && sign(1, '.') && is_call {
            return self.replace(2, "");
        }
        let is_subscript =
            self.token(0).is_some_and(|token| token.text.starts_with('[') && token.start > 0 && !self.sql[..token.start].ends_with(' '));
        if is_subscript {
            return self.replace(1, "");
        }
        // ARRAY(SELECT …) and = ANY (…): there is at most one element in what is asked here.
        if (word(0, "array") || word(0, "any")) && sign(1, '(') {
            return self.replace(1, "");
        }
        if sign(0, '!') && sign(1, '~') {
            return self.replace(2, " NOT REGEXP ");
        }
        if sign(0, '~') {
            return self.replace(1, " REGEXP ");
        }
        if word(0, "E") && self.token(1).is_some_and(|token| token.kind == Kind::String) {
            return self.replace(1, "");
        }
        false
    }
}

/// Functions whose value is put into a write before it leaves this node: the leader does not have them, and clear passwords
/// and clocks do not belong into the log.
const EVALUATED: [&str; 7] =
    ["mysql_native_password", "caching_sha2_password", "from_unixtime", "now", "utc_timestamp", "unix_timestamp", "current_user"];

/// Calls of [`EVALUATED`] with literal arguments become their values.
///
/// # Errors
/// SQLite's.
pub(crate) fn evaluate_functions(sql: &str, client: &ClientFacts) -> Result<String, EngineError> {
    let found = tokens(sql);
    let calls: Vec<(usize, usize)> = (0..found.len()).filter_map(|at| call_of(&found, at).map(|end| (found[at].start, end))).collect();
    if calls.is_empty() {
        return Ok(sql.to_owned());
    }
    let connection = Connection::open_in_memory()?;
    register(&connection, client)?;
    let mut out = String::with_capacity(sql.len());
    let mut copied = 0;
    for (start, end) in calls {
        out.push_str(&sql[copied..start]);
        let literal: String = connection.query_row(&format!("SELECT quote({})", &sql[start..end]), [], |row| row.get(0))?;
        out.push_str(&literal);
        copied = end;
    }
    out.push_str(&sql[copied..]);
    Ok(out)
}

/// The end of a call that begins at token `at`.
fn call_of(found: &[Token<'_>], at: usize) -> Option<usize> {
    EVALUATED.iter().find(|name| found[at].is(name))?;
    found.get(at + 1).filter(|token| token.is_sign('('))?;
    for token in &found[at + 2..] {
        match token.kind {
            Kind::String | Kind::DoubleQuoted | Kind::Number => {}
            Kind::Sign if token.is_sign(',') || token.is_sign('-') => {}
            Kind::Sign if token.is_sign(')') => return Some(token.end()),
            _ => return None,
        }
    }
    None
}

/// `$n` → `?n`: SQLite numbers `$2, $1` by their first appearance, PostgreSQL's clients by the digits.
pub(crate) fn numbered_parameters(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len());
    let mut copied = 0;
    for token in tokens(sql).iter().filter(|token| token.kind == Kind::Parameter && token.text.starts_with('$')) {
        out.push_str(&sql[copied..token.start]);
        out.push('?');
        copied = token.start + 1;
    }
    out.push_str(&sql[copied..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(sql: &str, face: Face) -> Rewritten {
        statement(sql, face, |name| match name {
            "@@a" => Some("it's".into()),
            "@@mysql-b" => Some("2".into()),
            _ => None,
        })
    }

    #[test]
    fn variables_become_literals_with_their_names() {
        for (sql, expected, nothing) in [
            ("SELECT @@a, @@mysql-b LIMIT 1", "SELECT 'it''s' AS \"@@a\", '2' AS \"@@mysql-b\" LIMIT 1", false),
            ("SELECT @@a AS x", "SELECT 'it''s' AS x", false),
            ("select concat(@@a, ' ')", "select concat('it''s', ' ')", false),
            ("SELECT @@none", "SELECT NULL AS \"@@none\"", true),
            (
                "SELECT * FROM main.runtime_mysql_users, \"main\" . mysql_users",
                "SELECT * FROM temp.runtime_mysql_users, \"main\" . mysql_users",
                false,
            ),
        ] {
            assert_eq!(rewritten(sql, Face::Mysql), Rewritten { sql: expected.into(), nothing }, "{sql}");
        }
    }

    #[test]
    fn catalog_queries_lose_what_sqlite_does_not_know() {
        for (sql, expected) in [
            (
                "SELECT pg_catalog.pg_table_is_visible(c.oid) FROM pg_catalog.pg_class c WHERE n.nspname !~ '^pg_toast'",
                "SELECT pg_table_is_visible(c.oid) FROM pg_catalog.pg_class c WHERE n.nspname  NOT REGEXP  '^pg_toast'",
            ),
            (
                "SELECT 1 FROM pg_catalog.pg_class WHERE c.relname OPERATOR(pg_catalog.~) '^(t)$' COLLATE pg_catalog.default",
                "SELECT 1 FROM pg_catalog.pg_class WHERE c.relname REGEXP '^(t)$' ",
            ),
            ("SELECT c.oid::pg_catalog.regclass, 1::int", "SELECT c.oid, 1"),
        ] {
            assert_eq!(rewritten(sql, Face::Pgsql).sql, expected, "{sql}");
        }
    }

    #[test]
    fn calls_with_literals_become_values_before_a_write_leaves() {
        let client = ClientFacts { user: "admin".into(), host: "::1".into(), ..ClientFacts::default() };
        for (sql, expected) in [
            (
                "INSERT INTO mysql_users (username, password) VALUES ('now()', MYSQL_NATIVE_PASSWORD( 'secret' ))",
                "INSERT INTO mysql_users (username, password) VALUES ('now()', '*14E65567ABDB5135D0CFD9A70B3032C179A49EE7')",
            ),
            ("UPDATE t SET comment = current_user() || from_unixtime(0)", "UPDATE t SET comment = 'admin@::1' || '1970-01-01 00:00:00'"),
            ("UPDATE t SET a = mysql_native_password(password)", "UPDATE t SET a = mysql_native_password(password)"),
        ] {
            assert_eq!(evaluate_functions(sql, &client).unwrap(), expected, "{sql}");
        }
    }

    #[test]
    fn dollar_parameters_are_numbered() {
        assert_eq!(numbered_parameters("UPDATE t SET a=$2, b='$1' WHERE c=$1"), "UPDATE t SET a=?2, b='$1' WHERE c=?1");
    }

    #[test]
    fn any_text_is_rewritten_without_panic() {
        bolero::check!().with_type::<String>().for_each(|sql| {
            let _ = rewritten(sql, Face::Pgsql);
            let _ = rewritten(&format!("pg_catalog.{sql}"), Face::Pgsql);
        });
    }
}
