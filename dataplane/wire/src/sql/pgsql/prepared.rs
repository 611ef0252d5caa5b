//! Names of prepared statements in text: `PREPARE`, `EXECUTE` and `DEALLOCATE` share one name space with the protocol's Parse.

use std::ops::Range;

use super::lexer::Lexer;
use super::session::name;
use crate::sql::keyword::Keyword;
use crate::sql::token::Token;

/// What a text does with a prepared statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PreparedUse {
    /// `PREPARE name AS …`.
    Prepare,
    /// `EXECUTE name`, also behind EXPLAIN and `CREATE TABLE … AS`.
    Execute,
    /// `DEALLOCATE name`.
    Deallocate,
    /// `DEALLOCATE ALL`.
    DeallocateAll,
}

/// One mention of a prepared statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreparedName {
    /// What is done with it.
    pub using: PreparedUse,
    /// Its name as the server compares it; empty for [`PreparedUse::DeallocateAll`].
    pub name: String,
    /// Where the name stands in the text, its quotes included.
    pub place: Range<usize>,
}

/// The prepared statements that `sql` names, in order. `None` = more than `limit`.
#[must_use]
pub fn pgsql_prepared_names(sql: &[u8], limit: usize) -> Option<Vec<PreparedName>> {
    let mut reader = Reader { sql, lexer: Lexer::new(sql, false) };
    let mut found = Vec::new();
    let (mut lead, mut previous, mut depth) = (None, Keyword::Unknown, 0_usize);
    loop {
        let token = reader.lexer.next();
        let mut keyword = Keyword::Unknown;
        match token {
            Token::End => return Some(found),
            Token::Symbol(b';') if depth == 0 => {
                (lead, previous) = (None, Keyword::Unknown);
                continue;
            }
            Token::Symbol(b'(') => depth += 1,
            Token::Symbol(b')') => depth = depth.saturating_sub(1),
            Token::Word(word, _) => keyword = word,
            _ => {}
        }
        let using = match (lead, keyword) {
            (None, Keyword::Prepare) => Some(PreparedUse::Prepare),
            (None, Keyword::Deallocate) => Some(PreparedUse::Deallocate),
            (None | Some(Keyword::Explain), Keyword::Execute) => Some(PreparedUse::Execute),
            (_, Keyword::Execute) if previous == Keyword::As => Some(PreparedUse::Execute),
            _ => None,
        };
        lead = lead.or(Some(keyword));
        previous = keyword;
        let Some(name) = using.and_then(|using| reader.name(using)) else { continue };
        if found.len() == limit {
            return None;
        }
        found.push(name);
    }
}

struct Reader<'a> {
    sql: &'a [u8],
    lexer: Lexer<'a>,
}

impl Reader<'_> {
    /// The name behind the word that came last; what does not read as a name is the server's to refuse.
    fn name(&mut self, using: PreparedUse) -> Option<PreparedName> {
        let mut token = self.lexer.next();
        if using == PreparedUse::Prepare && matches!(token, Token::Word(Keyword::Transaction, _)) {
            return None;
        }
        let mut end = self.lexer.position();
        // `DEALLOCATE PREPARE x`, or a statement of the name "prepare".
        if using == PreparedUse::Deallocate && matches!(token, Token::Word(Keyword::Prepare, _)) {
            let mut ahead = Lexer::new(&self.sql[end..], false);
            if matches!(ahead.next(), Token::Word(..) | Token::Quoted(_)) {
                token = self.lexer.next();
                end = self.lexer.position();
            }
        }
        if using == PreparedUse::Deallocate && matches!(token, Token::Word(Keyword::All, _)) {
            return Some(PreparedName { using: PreparedUse::DeallocateAll, name: String::new(), place: end..end });
        }
        let length = match token {
            Token::Word(_, word) => word.len(),
            Token::Quoted(inner) => inner.len() + 2,
            _ => return None,
        };
        Some(PreparedName { using, name: name(token)?, place: end.checked_sub(length)?..end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is done, with which name, and how that is written.
    type Mention = (PreparedUse, &'static str, &'static str);

    #[test]
    fn names_in_every_position() {
        use PreparedUse::{Deallocate, DeallocateAll, Execute, Prepare};
        let cases: [(&str, &[Mention]); 15] = [
            ("EXECUTE a1(1, 'x')", &[(Execute, "a1", "a1")]),
            ("/* c */ execute -- d\n A1 ;", &[(Execute, "a1", "A1")]),
            ("EXECUTE \"A \"\"b\"", &[(Execute, "A \"b", "\"A \"\"b\"")]),
            ("EXPLAIN (ANALYZE, COSTS off) EXECUTE x", &[(Execute, "x", "x")]),
            ("CREATE TABLE t AS EXECUTE x(1); EXECUTE y", &[(Execute, "x", "x"), (Execute, "y", "y")]),
            ("PREPARE p (int) AS SELECT $1", &[(Prepare, "p", "p")]),
            ("DEALLOCATE PREPARE P", &[(Deallocate, "p", "P")]),
            ("DEALLOCATE prepare", &[(Deallocate, "prepare", "prepare")]),
            ("DEALLOCATE /* x */ \"all\"", &[(Deallocate, "all", "\"all\"")]),
            ("DEALLOCATE PREPARE ALL", &[(DeallocateAll, "", "")]),
            ("PREPARE TRANSACTION 'x'", &[]),
            ("CREATE TRIGGER t AFTER INSERT ON x FOR EACH ROW EXECUTE FUNCTION f()", &[]),
            ("GRANT EXECUTE ON FUNCTION f TO x", &[]),
            ("SELECT 'EXECUTE x', execute FROM t", &[]),
            ("EXECUTE", &[]),
        ];
        for (sql, expected) in cases {
            let found = pgsql_prepared_names(sql.as_bytes(), 10).unwrap();
            let seen: Vec<_> = found.iter().map(|found| (found.using, found.name.as_str(), &sql[found.place.clone()])).collect();
            assert_eq!(seen, expected, "{sql}");
        }
        assert_eq!(pgsql_prepared_names(b"EXECUTE a; EXECUTE b; EXECUTE c", 2), None);
    }
}
