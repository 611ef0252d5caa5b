//! Statements that a unit needs on its connection: prepared there under our names before it, and compared with what the client was told.

use std::rc::Rc;

use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frame;
use quorumsql_wire::pgsql::frontend::{self, Target};
use quorumsql_wire::pgsql::sqlstate;

use super::Exchange;
use super::request::Done;
use crate::session::pgsql::prepared::{Held, ServerName, Statement};
use crate::session::pgsql::responses::{Audience, Expected, Named, Slot};

/// Bytes of a text in which a change of tables is looked for.
const SCHEMA_LOOK: usize = 4096;

impl Exchange<'_> {
    /// Sends a Parse of `statement` under our name, unless the server holds it; false = it does.
    pub(super) fn prepare(&mut self, statement: &Rc<Statement>, audience: Audience, named: Option<&Named>) -> bool {
        let Some((bytes, closes)) = self.parse_of(statement) else { return false };
        if closes {
            self.push(Expected::Close(Audience::Proxy));
        }
        self.append(&bytes);
        self.push(Expected::Parse { audience, slot: Slot::Named(statement.id), named: named.cloned() });
        true
    }

    /// The same in a batch of our own before a Query. If it fails, the Query fails for want of the statement.
    pub(super) fn prepare_apart(&mut self, statement: &Rc<Statement>) {
        let Some((mut bytes, _)) = self.parse_of(statement) else { return };
        frontend::sync(&mut bytes);
        self.append(&bytes);
        self.push(Expected::Prepare(statement.id));
    }

    /// Parse of a statement under our name, behind the Close of one that has to go (`true`); `None` = the server holds it.
    fn parse_of(&mut self, statement: &Rc<Statement>) -> Option<(Vec<u8>, bool)> {
        let server = self.server.as_mut()?;
        let generation = statement.generation.get();
        let evicted = match server.conn.prepared.touch(statement.id, generation) {
            Held::Yes => return None,
            Held::Stale => Some(statement.id),
            Held::No => server.conn.prepared.evict(server.mark),
        };
        let mut bytes = Vec::with_capacity(statement.sql.len() + 64);
        if let Some(evicted) = evicted {
            frontend::close(&mut bytes, Target::Statement, &ServerName::of(evicted));
        }
        frontend::parse(&mut bytes, &statement.server_name(), &statement.sql, &statement.types);
        server.conn.prepared.add(statement.id, generation);
        Some((bytes, evicted.is_some()))
    }

    /// The client's unnamed statement was parsed on another connection, or has been replaced on this one (`true`).
    pub(super) fn restore_unnamed(&mut self, statement: &Rc<Statement>) -> bool {
        let (Some(server), Some((stamp, _))) = (&mut self.server, &self.client.unnamed) else { return false };
        if server.conn.prepared.unnamed == *stamp {
            return false;
        }
        server.conn.prepared.unnamed = *stamp;
        let mut bytes = Vec::with_capacity(statement.sql.len() + 16);
        frontend::parse(&mut bytes, b"", &statement.sql, &statement.types);
        self.append(&bytes);
        self.push(Expected::Parse { audience: Audience::Proxy, slot: Slot::Unnamed, named: None });
        true
    }

    /// Its client was told what rows `statement` has, and the server has parsed it just now: asks it whether they still look so. The message
    /// at the front waits for the answer.
    pub(super) fn compare_shape(&mut self, name: &[u8], statement: Rc<Statement>) -> Done {
        let server_name = if name.is_empty() { ServerName::default() } else { statement.server_name() };
        let mut bytes = Vec::with_capacity(64);
        frontend::describe(&mut bytes, Target::Statement, &server_name);
        frame::encode(&mut bytes, b'H', |_| {});
        self.append(&bytes);
        self.push(Expected::OwnDescribe(statement));
        Done::Later
    }

    /// The client was told of rows that its statement does not have any more: PostgreSQL's words for it.
    pub(super) fn refuse_reshaped(&mut self) -> Done {
        if let Some(server) = &mut self.server {
            server.reshaped = 0;
        }
        self.poison(&ErrorFields::error(sqlstate::FEATURE_NOT_SUPPORTED, "cached plan must not change result type"))
    }

    /// Notes that plans are out of date behind this text for who prepares it from now on; who has prepared it before reads of it what the
    /// server says. What changes tables by other ways shows by its error, once per statement.
    pub(super) fn note_schema_change(&self, sql: &[u8]) {
        let names = |word: &[u8]| sql.windows(word.len()).take(SCHEMA_LOOK).any(|window| window.eq_ignore_ascii_case(word));
        if names(b"alter") || names(b"drop") {
            let schema = &self.client.worker.schema;
            schema.set(schema.get() + 1);
        }
    }
}
