//! What the server says: relayed by tag, rows never looked at, whole reads forwarded without a copy where nothing is to be changed.

use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::pgsql::backend::{self, TransactionStatus, tag};
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frame::HEADER_LENGTH;
use quorumsql_wire::pgsql::scanner::Step;
use quorumsql_wire::pgsql::sqlstate;

use super::{Attached, End, Exchange, QUERY_TIMEOUT};
use crate::session::pgsql::pins::Pin;
use crate::session::pgsql::prepared::{Names, renamed, shape};
use crate::session::pgsql::responses::{Audience, Named, Outcome, Reply, Slot, ends_connection};
use crate::worker::chunk::Chunk;

/// Names that are remembered of statements whose Parse has failed: what was sent since may name them.
const UNDEFINED: usize = 64;

/// Bytes for the client: a part of what the server sent, with changes.
struct Cut {
    /// `None` while nothing has been changed.
    edited: Option<Vec<u8>>,
    /// What of the chunk is in `edited` already, or left out.
    done: usize,
}

/// What one chunk told beside bytes for the client.
#[derive(Default)]
pub(super) struct Told {
    notes: Vec<Outcome>,
    /// The server discarded the session's state.
    pub(super) discarded: bool,
    /// The server dropped all prepared statements.
    pub(super) deallocated: bool,
    /// Names that were given to statements behind either.
    pub(super) kept: Vec<Box<[u8]>>,
    /// It dropped those of these names.
    pub(super) forgotten: Vec<String>,
    /// Parameters of the application's own that were named.
    pub(super) named: Vec<String>,
    /// The connection ends: why.
    lost: Option<String>,
    /// The server ends it because the client does not keep to the protocol: in its words.
    ended: Option<Box<ErrorFields>>,
    /// The server does not keep to the protocol: what is wrong.
    broken: Option<String>,
}

impl Exchange<'_> {
    /// Takes bytes of the server (with what was left of the read before).
    pub(super) fn on_server_bytes(&mut self, mut chunk: Chunk) -> Result<(), End> {
        let Some(server) = &mut self.server else { return Ok(()) };
        let mut told = Told::default();
        let mut cut = Cut { edited: None, done: 0 };
        let end = server.walk(&chunk, &self.client.statements, &mut cut, &mut told);
        if told.lost.is_none() && told.broken.is_none() && end < chunk.len() {
            // A full read has more behind it.
            let chunks = self.client.ctx.chunks();
            let mut rest = if chunk.spare() == 0 { chunks.take_large() } else { chunks.take() };
            rest.extend_from_slice(&chunk[end..]);
            server.conn.rest = Some(rest);
        }
        match cut.edited {
            None => {
                chunk.truncate(end);
                if !chunk.is_empty() {
                    self.say_chunk(chunk);
                }
            }
            Some(mut edited) => {
                edited.extend_from_slice(&chunk[cut.done..end]);
                if !edited.is_empty() {
                    self.say(&edited);
                }
            }
        }
        self.note(told.notes);
        if let Some(server) = &self.server
            && !Arc::ptr_eq(&self.client.settings, server.parameters.want())
        {
            self.client.settings = Arc::clone(server.parameters.want());
        }
        for name in told.named {
            if self.client.login.names.add(&name).is_err()
                && let Some(server) = &mut self.server
            {
                server.pins.add(Pin::Unnamed);
            }
        }
        for name in told.forgotten {
            self.client.statements.remove(name.as_bytes());
        }
        if told.deallocated || told.discarded {
            self.client.statements.retain(|name, _| told.kept.contains(name));
        }
        if let Some(server) = &self.server
            && server.due.is_skipping()
        {
            self.client.skip_to_sync = true;
        }
        if let Some(text) = told.broken {
            return Err(self.broken(text));
        }
        if let Some(fields) = told.ended {
            self.server = None;
            return Err(End::Fatal(*fields));
        }
        if let Some(cause) = told.lost {
            return self.lost(cause);
        }
        self.detach_if_free()
    }

    fn say_chunk(&mut self, chunk: Chunk) {
        self.client.ctx.stats(crate::config::Protocol::Pgsql).bytes_sent.add(chunk.len() as u64);
        match &mut self.out {
            Some(out) => out.extend_from_slice(&chunk),
            none => *none = Some(chunk),
        }
    }

    fn note(&mut self, notes: Vec<Outcome>) {
        for note in notes {
            match note {
                Outcome::Undefined(named) => {
                    if self.client.statements.get(&named.name).is_some_and(|known| known.id == named.statement.id) {
                        self.client.statements.remove(&named.name);
                    }
                    if let Some(server) = self.server.as_mut().filter(|server| server.undefined.len() < UNDEFINED) {
                        server.undefined.push(named);
                    }
                }
                Outcome::NotClosedByClient(Named { name, statement }) => {
                    self.client.statements.entry(name).or_insert(statement);
                }
                Outcome::UnnamedLeft(stamp, statement) => {
                    self.client.unnamed.get_or_insert((stamp, statement));
                }
                Outcome::Forgotten(name) => drop(self.client.statements.remove(&name)),
                Outcome::Described(Audience::Client, statement, shape) => self.client.note_told(statement.id, shape),
                Outcome::Described(Audience::Proxy, statement, shape) => {
                    if self.client.told.get(&statement.id).is_none_or(|told| *told == shape) {
                        continue;
                    }
                    statement.is_outdated.set(true);
                    if let Some(server) = &mut self.server {
                        server.reshaped = statement.id;
                        server.conn.prepared.doubt(statement.id);
                        server.conn.prepared.unnamed = 0;
                    }
                }
                Outcome::Ignored => {
                    if let Some(server) = &mut self.server {
                        server.counts.unready();
                    }
                }
                // Its name must not be used again there: the connection is closed when this session leaves it.
                Outcome::NotClosed => {
                    if let Some(server) = &mut self.server {
                        server.conn.tainted = true;
                    }
                }
                Outcome::NotParsed(audience, slot) => {
                    let Some(server) = &mut self.server else { continue };
                    match slot {
                        Slot::Named(id) => server.conn.prepared.doubt(id),
                        Slot::Unnamed => {
                            server.conn.prepared.unnamed = 0;
                            if audience == Audience::Client {
                                self.client.unnamed = None;
                            }
                        }
                    }
                }
            }
        }
    }
}

impl Attached {
    /// Walks over the messages in `chunk`; returns where the last one that can be forwarded ends.
    fn walk(&mut self, chunk: &[u8], names: &Names, cut: &mut Cut, told: &mut Told) -> usize {
        let mut at = 0;
        loop {
            let step = match self.conn.scanner.next(&chunk[at..]) {
                Ok(step) => step,
                Err(error) => {
                    told.broken = Some(format!("protocol error of the server: {error}"));
                    return at;
                }
            };
            let (message, body, size) = match step {
                Step::Need => return at,
                Step::Rest { size } => {
                    at += size;
                    self.insert_own(chunk, at, cut);
                    continue;
                }
                Step::Whole { tag, body, size } | Step::Start { tag, body, size } => (tag, body, size),
            };
            if message == tag::PARAMETER_STATUS {
                if let Some(text) = self.on_parameter(body) {
                    cut.replace(chunk, at, at + size, &text);
                }
                at += size;
                self.insert_own(chunk, at, cut);
                continue;
            }
            if let Err(cause) = self.on_body(message, body, told) {
                told.lost = Some(cause);
                return at;
            }
            if !self.due.is_own() {
                self.counts.on_message(message, body);
            }
            let mut own = std::mem::take(&mut self.own);
            let reply = self.due.on_message(message, &mut own, &mut told.notes);
            self.own = own;
            match reply {
                Ok(Reply::Forward) if message == tag::ERROR && self.expired => {
                    self.expired = false;
                    let mut text = Vec::with_capacity(128);
                    ErrorFields::error(sqlstate::QUERY_CANCELED, QUERY_TIMEOUT).encode(&mut text);
                    cut.replace(chunk, at, at + size, &text);
                }
                Ok(Reply::Forward) if message == tag::ERROR => {
                    if let Some(text) = renamed(&chunk[at..at + size], |id| self.name_of(id, names, &told.notes)) {
                        cut.replace(chunk, at, at + size, &text);
                    }
                }
                Ok(Reply::Forward) if message == tag::NOTIFICATION => {
                    if let Some(text) = self.own_notification(&chunk[at..at + size]) {
                        cut.replace(chunk, at, at + size, &text);
                    }
                }
                Ok(Reply::Forward) => {}
                Ok(Reply::Swallow) => cut.replace(chunk, at, at + size, &[]),
                Ok(Reply::Replace(text)) => cut.replace(chunk, at, at + size, &text),
                Err(unexpected) => {
                    told.broken = Some(unexpected.to_string());
                    return at;
                }
            }
            at += size;
            self.insert_own(chunk, at, cut);
        }
    }

    /// The client's name for a statement that it has, or that its Parse has not given it after all.
    fn name_of<'n>(&'n self, id: u64, names: &'n Names, notes: &'n [Outcome]) -> Option<&'n [u8]> {
        let known = names.iter().find(|(_, statement)| statement.id == id).map(|(name, _)| &**name);
        let noted = notes.iter().filter_map(|note| if let Outcome::Undefined(named) = note { Some(named) } else { None });
        known.or_else(|| self.undefined.iter().chain(noted).find(|named| named.statement.id == id).map(|named| &*named.name))
    }

    /// A notification that the session has sent itself, with the process id that it knows as its own; `None` = it is another's.
    fn own_notification(&self, message: &[u8]) -> Option<Vec<u8>> {
        let own = self.conn.key.as_ref()?.pid.to_be_bytes();
        let sender = message.get(HEADER_LENGTH..HEADER_LENGTH + 4)?;
        (sender == own).then(|| [&message[..HEADER_LENGTH], &self.session.to_be_bytes(), &message[HEADER_LENGTH + 4..]].concat())
    }

    /// Answers of our own come behind the message that made them due, once all of it is through.
    fn insert_own(&mut self, chunk: &[u8], at: usize, cut: &mut Cut) {
        if !self.own.is_empty() && self.conn.scanner.pending() == 0 {
            let own = std::mem::take(&mut self.own);
            cut.replace(chunk, at, at, &own);
        }
    }

    /// Reads the bodies that matter. `Err` = the connection is ending, and why.
    fn on_body(&mut self, message: u8, body: &[u8], told: &mut Told) -> Result<(), String> {
        match message {
            tag::ERROR => {
                let fields = ErrorFields::decode(body).map_err(|error| error.to_string())?;
                if ends_connection(fields.severity) {
                    let cause = fields.message.clone();
                    told.ended = (fields.code == sqlstate::PROTOCOL_VIOLATION).then(|| Box::new(fields));
                    return Err(cause);
                }
                if self.due.is_own_query() {
                    return Err(format!("the session's parameters cannot be set: {}", fields.message));
                }
                if !self.due.is_own() {
                    self.on_failed();
                }
                match (fields.code.as_str(), self.due.statement()) {
                    // A plan that does not fit its tables any more.
                    (sqlstate::FEATURE_NOT_SUPPORTED, Some(statement)) => statement.is_outdated.set(true),
                    // A statement that somebody has deallocated: prepared anew next time.
                    (sqlstate::INVALID_SQL_STATEMENT_NAME, Some(statement)) => statement.generation.set(statement.generation.get() + 1),
                    _ => {}
                }
            }
            tag::ROW_DESCRIPTION | tag::NO_DATA => {
                if let Some((statement, audience)) = self.due.described() {
                    told.notes.push(Outcome::Described(audience, Rc::clone(statement), shape(body)));
                }
            }
            tag::COMMAND_COMPLETE if !self.due.is_own() => self.on_complete(body, told),
            tag::PORTAL_SUSPENDED => self.pins.run(self.due.take_pins()),
            tag::COMMAND_COMPLETE => self.on_own_complete(body),
            tag::READY => {
                self.conn.status = TransactionStatus::decode(body).map_err(|error| error.to_string())?;
                if !self.due.is_own() {
                    self.on_ready();
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Cut {
    /// In place of `chunk[from..to]` the client gets `bytes`.
    fn replace(&mut self, chunk: &[u8], from: usize, to: usize, bytes: &[u8]) {
        let edited = self.edited.get_or_insert_with(|| Vec::with_capacity(chunk.len() + bytes.len()));
        edited.extend_from_slice(&chunk[self.done..from]);
        edited.extend_from_slice(bytes);
        self.done = to;
    }
}

/// ReadyForQuery with `status`.
pub(super) fn ready(out: &mut Vec<u8>, status: TransactionStatus) {
    backend::ready_for_query(out, status);
}
