//! Simple queries before they have a connection, and those that are answered without a server.

use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::pgsql::backend;
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frame::Header;
use quorumsql_wire::pgsql::frontend::FrontendMessage;
use quorumsql_wire::pgsql::sqlstate;
use quorumsql_wire::sql::{Class, Effects, Scan};

use super::request::Done;
use super::route::{Looked, Route};
use super::{End, Exchange, Unit};
use crate::config::Protocol;
use crate::session::pgsql::changes::changes;
use crate::worker::scans::Scanned;

impl Exchange<'_> {
    /// Looks at a statement.
    pub(super) fn scan(&self, sql: &[u8]) -> Rc<Scanned> {
        self.client.ctx.scan(Protocol::Pgsql, sql, &self.config.pgsql.variables.digest_options)
    }

    /// A Query of a session without a connection.
    pub(super) fn on_query(&mut self, header: Header, input: &[u8]) -> Result<Done, End> {
        if header.body > self.longest_statement() {
            return Ok(self.too_big(header, input));
        }
        let Some(FrontendMessage::Query(sql)) = self.whole(header, input, usize::MAX)? else { return Ok(Done::More(header.size())) };
        self.config = self.client.ctx.config();
        let scan = self.scan(sql);
        self.on_scanned_query(sql, &scan)
    }

    fn on_scanned_query(&mut self, sql: &[u8], scan: &Scan) -> Result<Done, End> {
        if scan.statements == 0 {
            self.client.ctx.stats(Protocol::Pgsql).queries.add(1);
            return Ok(self.answer_query(backend::empty_query));
        }
        if let Some(done) = self.deallocate(sql, scan).or_else(|| self.discard_all(scan)) {
            self.count_here(scan.digest, &scan.digest_text);
            return Ok(done);
        }
        let looked = Looked { sql, digest: scan.digest, digest_text: &scan.digest_text };
        match self.route(looked, scan.class, scan.effects) {
            Route::To(hostgroup, multiplex) => {
                self.counting = self.digest_entry(Some(hostgroup), scan.digest, &scan.digest_text);
                self.decided = Some(Unit { class: scan.class, effects: scan.effects, evaluated: 0, multiplex });
                self.changes = changes(sql, scan.class, scan.effects);
                Ok(Done::Attach(hostgroup))
            }
            Route::Refused(fields) => {
                self.count_here(scan.digest, &scan.digest_text);
                self.say_error(&fields, true);
                Ok(Done::Consumed)
            }
            Route::Accepted(text) => {
                self.count_here(scan.digest, &scan.digest_text);
                Ok(self.accept_query(&text, scan))
            }
        }
    }

    /// Answers a Query by what `encode` writes and ReadyForQuery.
    pub(super) fn answer_query(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Done {
        let status = self.status();
        self.say_with(|out| {
            encode(out);
            backend::ready_for_query(out, status);
        });
        Done::Consumed
    }

    /// A rule's OK_msg: its text as a notice, then a tag as of a statement that touched nothing.
    pub(super) fn accept_query(&mut self, text: &Arc<str>, scan: &Scan) -> Done {
        let tag = empty_tag(&scan.digest_text);
        self.answer_query(|out| {
            ErrorFields::notice(sqlstate::SUCCESSFUL_COMPLETION, &**text).encode(out);
            backend::command_complete(out, &tag);
        })
    }

    /// `DISCARD ALL` of a session without a connection: nothing of it is on any server but its parameters, which the next connection gets.
    fn discard_all(&mut self, scan: &Scan) -> Option<Done> {
        if scan.statements != 1 || scan.effects != Effects::DISCARD_ALL {
            return None;
        }
        self.client.ctx.stats(Protocol::Pgsql).queries.add(1);
        self.client.statements.clear();
        self.client.unnamed = None;
        self.client.tell_parameters |= self.client.settings != self.client.start;
        self.client.settings = Arc::clone(&self.client.start);
        Some(self.answer_query(|out| backend::command_complete(out, "DISCARD ALL")))
    }

    /// `DEALLOCATE` of what the client has prepared by protocol: the server knows it by another name.
    pub(super) fn deallocate(&mut self, sql: &[u8], scan: &Scan) -> Option<Done> {
        if scan.statements != 1 || scan.class != Class::Neutral || !scan.effects.contains(Effects::MAY_UNPIN) {
            return None;
        }
        let name = deallocated_name(sql)?;
        match name {
            Deallocated::All if self.server.is_none() => {
                self.client.statements.clear();
                self.client.ctx.stats(Protocol::Pgsql).queries.add(1);
                Some(self.answer_query(|out| backend::command_complete(out, "DEALLOCATE ALL")))
            }
            Deallocated::All => None,
            Deallocated::Name(name) => {
                self.client.statements.remove(name.as_slice())?;
                self.client.ctx.stats(Protocol::Pgsql).queries.add(1);
                Some(self.answer_query(|out| backend::command_complete(out, "DEALLOCATE")))
            }
        }
    }

    /// The text of a simple query that has been framed.
    pub(super) fn query_text<'i>(&self, header: Header, input: &'i [u8]) -> Result<Option<&'i [u8]>, End> {
        match self.whole(header, input, usize::MAX)? {
            Some(FrontendMessage::Query(sql)) => Ok(Some(sql)),
            Some(_) => Err(End::Malformed),
            None => Ok(None),
        }
    }
}

/// What a DEALLOCATE names.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Deallocated {
    All,
    Name(Vec<u8>),
}

/// Reads `DEALLOCATE [PREPARE] name | ALL`; `None` = written in a way that is left to the server (comments, odd quotes).
fn deallocated_name(sql: &[u8]) -> Option<Deallocated> {
    let text = std::str::from_utf8(sql).ok()?.trim().trim_end_matches(';').trim_end();
    let mut words = text.split_ascii_whitespace();
    if !words.next()?.eq_ignore_ascii_case("deallocate") {
        return None;
    }
    let mut word = words.next()?;
    if word.eq_ignore_ascii_case("prepare")
        && let Some(name) = words.next()
    {
        word = name;
    }
    if words.next().is_some() {
        return None;
    }
    if word.eq_ignore_ascii_case("all") {
        return Some(Deallocated::All);
    }
    if let Some(quoted) = word.strip_prefix('"') {
        let name = quoted.strip_suffix('"')?;
        return (!name.contains('"')).then(|| Deallocated::Name(name.as_bytes().to_vec()));
    }
    let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80);
    is_plain.then(|| Deallocated::Name(word.to_ascii_lowercase().into_bytes()))
}

/// The tag of a statement that begins with the first word of `text` and touched nothing.
pub(super) fn empty_tag(text: &[u8]) -> String {
    let word: String = text.iter().take_while(|byte| byte.is_ascii_alphabetic()).map(|byte| byte.to_ascii_uppercase() as char).collect();
    match word.as_str() {
        "INSERT" => "INSERT 0 0".into(),
        "VALUES" | "TABLE" | "WITH" | "SELECT" => "SELECT 0".into(),
        "UPDATE" | "DELETE" | "MERGE" | "COPY" | "FETCH" | "MOVE" => format!("{word} 0"),
        "" => "SELECT 0".into(),
        _ => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deallocate_is_read_when_it_is_plain() {
        let name = |text: &str| Some(Deallocated::Name(text.as_bytes().to_vec()));
        for (sql, expected) in [
            ("DEALLOCATE a1", name("a1")),
            (" deallocate PREPARE A1 ; ", name("a1")),
            ("DEALLOCATE \"A1\"", name("A1")),
            ("DEALLOCATE prepare", name("prepare")),
            ("DEALLOCATE ALL", Some(Deallocated::All)),
            ("DEALLOCATE PREPARE ALL;", Some(Deallocated::All)),
            ("DEALLOCATE", None),
            ("DEALLOCATE /* x */ a1", None),
            ("DEALLOCATE \"a\"\"b\"", None),
            ("CLOSE x", None),
        ] {
            assert_eq!(deallocated_name(sql.as_bytes()), expected, "{sql}");
        }
    }

    #[test]
    fn tags_of_statements_that_did_nothing() {
        for (text, tag) in [
            ("select ?", "SELECT 0"),
            ("INSERT INTO t", "INSERT 0 0"),
            ("update t", "UPDATE 0"),
            ("create table t", "CREATE"),
            ("", "SELECT 0"),
        ] {
            assert_eq!(empty_tag(text.as_bytes()), tag);
        }
    }
}
