//! Simple queries before they have a connection, and those that are answered without a server.

use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::pgsql::backend;
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frame::Header;
use quorumsql_wire::pgsql::frontend::{self, FrontendMessage};
use quorumsql_wire::pgsql::sqlstate;
use quorumsql_wire::sql::{Effects, Encoding, Scan, ScanOptions};

use super::request::Done;
use super::route::{Looked, Route};
use super::{End, Exchange, Unit};
use crate::config::Protocol;
use crate::session::pgsql::changes::{Change, changes};
use crate::session::pgsql::responses::Expected;
use crate::worker::scans::Scanned;

impl Exchange<'_> {
    /// Looks at a statement.
    pub(super) fn scan(&self, sql: &[u8]) -> Rc<Scanned> {
        let options = ScanOptions { backslash_escapes: self.escapes(), ..self.config.pgsql.variables.digest_options };
        self.client.ctx.scan(Protocol::Pgsql, &self.encoding(sql).plain(sql), &options)
    }

    /// What a statement that was scanned so does to parameters.
    pub(super) fn changes(&self, sql: &[u8], scan: &Scan) -> Option<Vec<Change>> {
        let plain = self.encoding(sql).plain(sql);
        let changes = changes(&plain, scan.class, scan.effects)?;
        // A name or value in it may not be the client's.
        Some(if *plain == *sql { changes } else { vec![Change::Unnamed] })
    }

    /// Whether backslashes escape in plain strings: only a session that keeps its connection can have turned
    /// `standard_conforming_strings` off.
    fn escapes(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.conn.reported("standard_conforming_strings") == Some("off"))
    }

    /// How `sql` is to be read; as most texts, if it is ASCII.
    fn encoding(&self, sql: &[u8]) -> Encoding {
        let named = || self.client.settings.get("client_encoding").map_or(Encoding::Plain, Encoding::of_pgsql);
        if sql.is_ascii() { Encoding::Plain } else { named() }
    }

    /// A Query of a session without a connection.
    pub(super) fn on_query(&mut self, header: Header, input: &[u8]) -> Result<Done, End> {
        if header.body > self.longest_statement() {
            return Ok(self.too_big(header, input));
        }
        let Some(FrontendMessage::Query(sql)) = self.whole(header, input, usize::MAX)? else { return Ok(Done::More(header.size())) };
        self.config = self.client.ctx.config();
        self.client.unnamed = None;
        let scan = self.scan(sql);
        self.on_scanned_query(sql, &scan)
    }

    fn on_scanned_query(&mut self, sql: &[u8], scan: &Scanned) -> Result<Done, End> {
        if scan.statements == 0 {
            self.client.ctx.stats(Protocol::Pgsql).queries.add(1);
            return Ok(self.answer_query(backend::empty_query));
        }
        if let Some(done) = self.by_name(sql, scan).or_else(|| self.discard_all(scan)) {
            self.count_here(scan);
            return Ok(done);
        }
        let looked = Looked { sql, scanned: scan };
        match self.route(looked, scan.class, scan.effects) {
            Route::To(hostgroup, multiplex) => {
                self.counting = self.digest_entry(Some(hostgroup), scan);
                self.decided = Some(Unit { class: scan.class, effects: scan.effects, evaluated: 0, multiplex });
                self.changes = self.changes(sql, scan);
                Ok(Done::Attach(hostgroup))
            }
            Route::Refused(fields) => {
                self.count_here(scan);
                self.say_error(&fields, true);
                Ok(Done::Consumed)
            }
            Route::Accepted(text) => {
                self.count_here(scan);
                Ok(self.accept_query(&text, scan))
            }
        }
    }

    /// Answers a Query by what `encode` writes and ReadyForQuery.
    pub(super) fn answer_query(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Done {
        if self.server.as_ref().is_some_and(|server| server.due.is_in_batch()) {
            return self.answer_in_batch(encode, None);
        }
        let status = self.status();
        self.say_with(|out| {
            encode(out);
            backend::ready_for_query(out, status);
        });
        Done::Consumed
    }

    /// The same where the server waits for a Sync: a Query ends the batch before it, so the server is sent one, and says how the batch ends. With the
    /// answer the client's statement `forgets` is gone.
    pub(super) fn answer_in_batch(&mut self, encode: impl FnOnce(&mut Vec<u8>), forgets: Option<Box<[u8]>>) -> Done {
        let (mut answer, mut query) = (Vec::with_capacity(64), Vec::with_capacity(8));
        encode(&mut answer);
        frontend::query(&mut query, b"");
        self.append(&query);
        self.push(Expected::Answer { text: answer, forgets });
        if let Some(server) = &mut self.server {
            server.counts.ready();
            server.conn.prepared.unnamed = 0;
        }
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

    /// `DISCARD ALL` of a session without a connection and with the parameters that it began with: nothing of it is on any server.
    fn discard_all(&mut self, scan: &Scan) -> Option<Done> {
        if scan.statements != 1 || scan.effects != Effects::DISCARD_ALL || self.client.settings != self.client.start {
            return None;
        }
        self.client.ctx.stats(Protocol::Pgsql).queries.add(1);
        self.client.statements.clear();
        self.client.unnamed = None;
        Some(self.answer_query(|out| backend::command_complete(out, "DISCARD ALL")))
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
