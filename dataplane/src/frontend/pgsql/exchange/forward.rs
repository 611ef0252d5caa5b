//! Messages of the client while a server connection is held: forwarded as they come.

use quorumsql_wire::pgsql::backend::TransactionStatus;
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frame::{HEADER_LENGTH, Header};
use quorumsql_wire::pgsql::frontend::{self, FrontendMessage, Target};
use quorumsql_wire::pgsql::sqlstate;
use quorumsql_wire::sql::{Class, Effects, Transaction};

use super::request::{Done, empty_body};
use super::{Attached, End, Exchange, Passing, SMALL_MESSAGE};
use crate::session::pgsql::pins::{Pin, PinSet};
use crate::session::pgsql::responses::Expected;

/// A statement that never exists on a server: describing it fails, and with it the transaction, exactly as if the server itself had refused
/// what stood in its place.
const POISON: &[u8] = b"__qsql_poison";

impl Exchange<'_> {
    /// A message of a session that holds a connection.
    pub(super) fn on_attached(&mut self, header: Header, input: &[u8]) -> Result<Done, End> {
        let Some(server) = &mut self.server else { return Ok(Done::Later) };
        let in_batch = server.due.is_in_batch();
        match header.tag {
            b'X' => self.on_leave(),
            b'd' => Ok(as_it_comes(header, input)),
            b'c' | b'f' => {
                self.whole(header, input, SMALL_MESSAGE)?;
                if input.len() < header.size() {
                    return Ok(Done::More(header.size()));
                }
                if let Some(server) = &mut self.server {
                    server.due.on_copy_end();
                }
                Ok(Done::AsIs)
            }
            b'H' => {
                empty_body(header)?;
                Ok(Done::AsIs)
            }
            b'S' => {
                empty_body(header)?;
                self.client.skip_to_sync = false;
                if server.due.is_copy_in() {
                    // The server ignores it and answers nothing.
                    return Ok(Done::Consumed);
                }
                server.due.push(Expected::Sync);
                server.counts.ready();
                Ok(Done::AsIs)
            }
            _ if server.due.is_comparing() => Ok(Done::Later),
            // During COPY only its data may come; the server says so.
            _ if server.due.is_copy_in() => {
                self.whole(header, input, self.longest_statement())?;
                Ok(as_it_comes(header, input))
            }
            _ if !in_batch && !server.may_start_unit() => Ok(Done::Later),
            b'Q' => self.forward_query(header, input),
            b'F' => {
                let Some(FrontendMessage::FunctionCall(call)) = self.whole(header, input, self.longest_statement())? else {
                    return Ok(Done::More(header.size()));
                };
                self.begin_unit(in_batch);
                if let Some(server) = &mut self.server {
                    server.note_function_call(call);
                    server.counts.ready();
                }
                self.push(Expected::FunctionCall);
                Ok(Done::AsIs)
            }
            b'B' if header.body > SMALL_MESSAGE => self.forward_long_bind(header, input, in_batch),
            b'P' if header.body > self.longest_statement() => Ok(self.too_big_in_batch(header, input)),
            _ => {
                let cap = if header.tag == b'P' { usize::MAX } else { SMALL_MESSAGE };
                let Some(message) = self.whole(header, input, cap)? else { return Ok(Done::More(header.size())) };
                if let (FrontendMessage::Parse(parse), Some(server)) = (&message, &self.server)
                    && self.client.statements.contains_key(parse.name)
                    && server.due.will_show(parse.name)
                {
                    return Ok(Done::Later);
                }
                self.begin_unit(in_batch);
                self.forward_extended(message)
            }
        }
    }

    /// The client says good-bye: what it sent before is finished first. A batch without its Sync is not to be committed: the server gets the
    /// good-bye itself, and undoes it.
    pub(super) fn on_leave(&mut self) -> Result<Done, End> {
        // An open batch of which all is answered is undone by closing its connection.
        if self.is_quiet() {
            return Err(End::Quiet);
        }
        let Some(server) = &mut self.server else { return Ok(Done::Later) };
        server.leaving = true;
        if !server.terminated && (server.due.is_in_batch() || server.due.is_copy_in()) {
            server.terminated = true;
            let mut terminate = Vec::with_capacity(HEADER_LENGTH);
            frontend::terminate(&mut terminate);
            self.append(&terminate);
        }
        Ok(Done::Later)
    }

    /// Starts a unit: what was decided of it is taken over.
    pub(super) fn begin_unit(&mut self, in_batch: bool) {
        if in_batch {
            return;
        }
        self.config = self.client.ctx.config();
        let unit = self.decided.take().unwrap_or_default();
        // A Query that ends a batch is one transaction with it.
        if self.server.as_ref().is_some_and(|server| !server.due.is_in_batch()) {
            self.adapt(unit.effects);
        }
        if let Some(server) = &mut self.server {
            server.unit = unit;
            server.mark = server.conn.prepared.clock();
            server.conn.cells().queries.add(1);
            server.count_sequence();
            match unit.multiplex {
                Some(0) => server.pins.add(Pin::Rule),
                Some(1) => server.pins.remove(Pin::Rule),
                _ => {}
            }
        }
        self.client.ctx.stats(crate::config::Protocol::Pgsql).forwarded.add(1);
    }

    /// Statements of our own that the unit needs before it on a connection that the session has kept.
    fn adapt(&mut self, effects: Effects) {
        let Some(server) = &mut self.server else { return };
        if server.conn.status == TransactionStatus::Failed {
            return;
        }
        let mut sql = server.parameters.align();
        if sql.is_some() {
            server.parameters.on_aligned();
        }
        let (writer, session) = (server.conn.writer, server.session);
        if effects.intersects(Effects::LAST_INSERT_ID) && writer != 0 && writer != session {
            server.conn.writer = 0;
            sql = Some(format!("DISCARD SEQUENCES; {}", sql.unwrap_or_default()));
        }
        let Some(sql) = sql else { return };
        server.conn.prepared.unnamed = 0;
        let mut bytes = Vec::with_capacity(sql.len() + 8);
        frontend::query(&mut bytes, sql.as_bytes());
        self.append(&bytes);
        self.push(Expected::OwnQuery);
    }

    /// The message at the front, which is forwarded, will be refused.
    pub(super) fn forward_malformed(&mut self, tag: u8, ends_unit: bool) {
        let in_batch = self.server.as_ref().is_some_and(|server| server.due.is_in_batch());
        if matches!(tag, b'c' | b'f') {
            if let Some(server) = &mut self.server {
                server.due.on_copy_end();
            }
            return;
        }
        self.begin_unit(in_batch && tag != b'Q');
        self.push(if ends_unit { Expected::Query { changes: None, pins: PinSet::NONE } } else { Expected::DescribePortal(None) });
    }

    /// Makes the server fail where the client's message would have stood, and gives the client our reason.
    pub(super) fn poison(&mut self, fields: &ErrorFields) -> Done {
        let mut text = Vec::with_capacity(128);
        fields.encode(&mut text);
        let mut bytes = Vec::with_capacity(32);
        frontend::describe(&mut bytes, Target::Statement, POISON);
        self.append(&bytes);
        self.push(Expected::Poison(text));
        Done::Consumed
    }

    pub(super) fn too_big_in_batch(&mut self, header: Header, input: &[u8]) -> Done {
        self.poison(&ErrorFields::error(sqlstate::PROGRAM_LIMIT_EXCEEDED, "Got a packet bigger than 'max_allowed_packet' bytes"));
        super::request::drop_message(header, input)
    }

    pub(super) fn push(&mut self, expected: Expected) {
        if let Some(server) = &mut self.server {
            server.due.push(expected);
        }
    }

    /// Says answers of our own that are due at once.
    pub(super) fn say_own(&mut self) {
        let mut own = Vec::new();
        if let Some(server) = &mut self.server {
            server.due.pop_own(&mut own);
        }
        if !own.is_empty() {
            self.say(&own);
        }
    }

    /// Appends bytes of our own for the server.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        let chunks = self.client.ctx.chunks();
        if let Some(server) = &mut self.server {
            server.to_server.get_or_insert_with(|| chunks.take()).extend_from_slice(bytes);
        }
    }
}

impl Attached {
    /// Whether another unit may be sent: nothing is in flight, or what is in flight surely leaves the session on this connection.
    fn may_start_unit(&self) -> bool {
        if self.leaving {
            return false;
        }
        let stays = !self.pins.is_empty() || self.conn.status != TransactionStatus::Idle;
        let may_end = !matches!(
            self.unit.class,
            Class::Read | Class::LockingRead | Class::Write | Class::Empty | Class::Transaction(Transaction::Savepoint)
        );
        // Whether a name is taken is known when the PREPARE or DEALLOCATE before has been answered.
        let is_naming = || self.pins.has(Pin::Prepare) && self.due.is_naming();
        self.due.is_empty() || (stays && !may_end && !is_naming())
    }
}

/// The message at the front goes to the server as it comes, however much of it is there.
fn as_it_comes(header: Header, input: &[u8]) -> Done {
    if input.len() >= header.size() { Done::AsIs } else { Done::Started(0, Passing { left: header.size(), to_server: true }) }
}
