//! The extended protocol of a session that holds a connection: names of statements rewritten, everything else as it comes.

use std::rc::Rc;

use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frame::{HEADER_LENGTH, Header};
use quorumsql_wire::pgsql::frontend::{self, Bind, FrontendMessage, Parse, Target};
use quorumsql_wire::pgsql::sqlstate;
use quorumsql_wire::sql::Class;

use super::batch::unknown_statement;
use super::names::already_exists;
use super::request::Done;
use super::route::Looked;
use super::{Attached, End, Exchange, Passing, SMALL_MESSAGE};
use crate::session::pgsql::pins::{Pin, PinSet};
use crate::session::pgsql::prepared::{PER_CLIENT_LIMIT, Statement, is_ours, next_id};
use crate::session::pgsql::responses::{Audience, Expected, Named, Slot};

impl Exchange<'_> {
    pub(super) fn forward_extended(&mut self, message: FrontendMessage<'_>) -> Result<Done, End> {
        match message {
            FrontendMessage::Parse(parse) => Ok(self.forward_parse(parse)),
            FrontendMessage::Bind(bind) => Ok(self.forward_bind(bind)),
            FrontendMessage::Describe(Target::Statement, name) => Ok(match self.on_named(name) {
                Ok(None) => {
                    let statement = self.known(name).map(Rc::clone);
                    self.push(Expected::DescribeStatement(statement));
                    Done::AsIs
                }
                Ok(Some(statement)) => {
                    let mut bytes = Vec::with_capacity(32);
                    frontend::describe(&mut bytes, Target::Statement, &statement.server_name());
                    self.append(&bytes);
                    self.push(Expected::DescribeStatement(Some(statement)));
                    Done::Consumed
                }
                Err(done) => done,
            }),
            FrontendMessage::Describe(Target::Portal, portal) => {
                let bound = self.server.as_ref().and_then(|server| server.bound_to(portal));
                let untold = bound.filter(|statement| !self.client.told.contains_key(&statement.id)).map(Rc::clone);
                self.push(Expected::DescribePortal(untold));
                Ok(Done::AsIs)
            }
            FrontendMessage::Execute { portal, .. } => {
                let statement = self.server.as_ref().and_then(|server| server.portal(portal));
                if let Some(fields) = statement.as_ref().and_then(|statement| self.taken_by_protocol(statement)) {
                    return Ok(self.poison(&fields));
                }
                if let Some(server) = &mut self.server {
                    server.counts.execute(portal);
                    let pins = statement.as_ref().map_or(PinSet::NONE, |statement| {
                        server.pins_of(statement.effects, statement.change.as_ref().map(std::slice::from_ref))
                    });
                    server.pins.send(pins);
                    server.due.push(Expected::Execute { statement, pins });
                }
                Ok(Done::AsIs)
            }
            FrontendMessage::Close(Target::Statement, name) => {
                let closed = self.client.statements.remove_entry(name).map(|(name, statement)| Named { name, statement });
                if closed.is_none() && self.passes_unknown_names() && !is_ours(name) {
                    self.push(Expected::Close(Audience::Client));
                    return Ok(Done::AsIs);
                }
                if name.is_empty() {
                    self.replace_unnamed(None);
                }
                self.push(Expected::OwnClose(closed));
                self.say_own();
                Ok(Done::Consumed)
            }
            FrontendMessage::Close(Target::Portal, _) => {
                self.push(Expected::Close(Audience::Client));
                Ok(Done::AsIs)
            }
            _ => Err(End::Malformed),
        }
    }

    fn forward_parse(&mut self, parse: Parse<'_>) -> Done {
        let statement = self.statement(parse.sql, parse.parameter_types);
        let statement = self.with_our_name(statement);
        if let Err(fields) = self.evaluate_in_batch(&statement) {
            return self.poison(&fields);
        }
        self.client.told.remove(&statement.id);
        if parse.name.is_empty() {
            let stamp = next_id();
            let rewritten = statement.inner.is_some().then(|| Rc::clone(&statement));
            self.replace_unnamed(Some((stamp, statement)));
            if let Some(server) = &mut self.server {
                server.conn.prepared.unnamed = stamp;
            }
            self.push(Expected::Parse { audience: Audience::Client, slot: Slot::Unnamed, named: None });
            let Some(rewritten) = rewritten else { return Done::AsIs };
            let mut bytes = Vec::with_capacity(rewritten.sql.len() + 16);
            frontend::parse(&mut bytes, b"", &rewritten.sql, &rewritten.types);
            self.append(&bytes);
            return Done::Consumed;
        }
        let is_forgotten = |server: &Attached| server.due.prepares(parse.name) == Some(false);
        let is_held = self.client.statements.contains_key(parse.name) && !self.server.as_ref().is_some_and(is_forgotten);
        if is_held || self.server.as_ref().is_some_and(|server| server.holds_text(parse.name)) {
            // Whether the text can be parsed is told before.
            self.prepare(&statement, Audience::Proxy, None);
            return self.poison(&already_exists(&String::from_utf8_lossy(parse.name)));
        }
        if self.client.statements.len() >= PER_CLIENT_LIMIT {
            let text = format!("a session cannot have more than {PER_CLIENT_LIMIT} prepared statements");
            return self.poison(&ErrorFields::error(sqlstate::PROGRAM_LIMIT_EXCEEDED, text));
        }
        let named = Named { name: parse.name.into(), statement: Rc::clone(&statement) };
        self.client.statements.insert(parse.name.into(), Rc::clone(&statement));
        if self.prepare(&statement, Audience::Client, Some(&named)) {
            return Done::Consumed;
        }
        self.push(Expected::OwnParse(named));
        self.say_own();
        Done::Consumed
    }

    /// The client's unnamed statement gets another in its place, or none; in a batch that fails before, it stays.
    pub(super) fn replace_unnamed(&mut self, unnamed: Option<(u64, Rc<Statement>)>) {
        let before = std::mem::replace(&mut self.client.unnamed, unnamed);
        if let (Some((stamp, statement)), Some(server)) = (before, &mut self.server)
            && server.due.is_in_batch()
            && !server.due.is_empty()
        {
            server.due.push(Expected::Unnamed(stamp, statement));
        }
    }

    fn forward_bind(&mut self, bind: Bind<'_>) -> Done {
        let known = self.known(bind.statement).map(Rc::clone);
        self.count_bind(bind.portal, known.as_ref());
        let statement = self.on_server(bind.statement, known.as_ref());
        self.note_portal(bind.portal, known.as_ref(), Some(&bind));
        if let Some(server) = &mut self.server {
            server.bound = known.filter(|_| !bind.statement.is_empty()).map(|statement| (bind.portal.into(), statement));
        }
        match statement {
            Ok(None) => {
                self.push(Expected::Bind(None));
                Done::AsIs
            }
            Ok(Some(statement)) => {
                let mut bytes = Vec::with_capacity(bind.rest.len() + 64);
                frontend::bind(&mut bytes, bind.portal, &statement.server_name(), bind.rest);
                self.append(&bytes);
                self.push(Expected::Bind(Some(statement)));
                Done::Consumed
            }
            Err(done) => done,
        }
    }

    /// A Bind that is streamed: only the names at its start are looked at.
    pub(super) fn forward_long_bind(&mut self, header: Header, input: &[u8], in_batch: bool) -> Result<Done, End> {
        let body = &input[HEADER_LENGTH..input.len().min(header.size())];
        let mut ends = body.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(index, _)| index);
        let (Some(portal_end), Some(name_end)) = (ends.next(), ends.next()) else {
            if body.len() >= SMALL_MESSAGE {
                return Err(End::Malformed);
            }
            return Ok(Done::More(HEADER_LENGTH + SMALL_MESSAGE));
        };
        self.begin_unit(in_batch);
        let (portal, name) = (&body[..portal_end], &body[portal_end + 1..name_end]);
        let known = self.known(name).map(Rc::clone);
        self.count_bind(portal, known.as_ref());
        let statement = match self.on_server(name, known.as_ref()) {
            Ok(statement) => statement,
            Err(Done::Consumed) => return Ok(super::request::drop_message(header, input)),
            Err(done) => return Ok(done),
        };
        self.note_portal(portal, known.as_ref(), None);
        let start = HEADER_LENGTH + name_end + 1;
        let server_name = statement.as_ref().map(|statement| statement.server_name()).unwrap_or_default();
        let length = header.body - (name.len()) + server_name.len() + 4;
        let mut bytes = Vec::with_capacity(64 + portal.len());
        bytes.push(b'B');
        bytes.extend_from_slice(&u32::try_from(length).map_err(|_| End::Malformed)?.to_be_bytes());
        for text in [portal, &*server_name] {
            bytes.extend_from_slice(text);
            bytes.push(0);
        }
        self.append(&bytes);
        self.push(Expected::Bind(statement));
        Ok(Done::Started(start, Passing { left: header.size() - start, to_server: true }))
    }

    fn count_bind(&mut self, portal: &[u8], statement: Option<&Rc<Statement>>) {
        let hostgroup = self.server.as_ref().map(|server| server.conn.hostgroup());
        let entry = statement.and_then(|statement| self.digest_entry(hostgroup, &statement.scanned));
        if let Some(server) = &mut self.server {
            server.counts.bind(portal, entry);
        }
    }

    /// Makes sure that the server holds the client's statement `name`, notes its effects and returns it. `None` = the server knows it by the
    /// same name. `Err` = what becomes of the message instead.
    pub(super) fn on_named(&mut self, name: &[u8]) -> Result<Option<Rc<Statement>>, Done> {
        let known = self.known(name).map(Rc::clone);
        self.on_server(name, known.as_ref())
    }

    /// The same of the statement that the name is `known` to stand for.
    fn on_server(&mut self, name: &[u8], known: Option<&Rc<Statement>>) -> Result<Option<Rc<Statement>>, Done> {
        let Some(statement) = known.map(Rc::clone) else {
            // PREPARE as text makes statements that only the server knows.
            return if self.passes_unknown_names() && !is_ours(name) { Ok(None) } else { Err(self.poison(&unknown_statement(name))) };
        };
        if self.server.as_ref().is_some_and(|server| server.reshaped == statement.id) {
            return Err(self.refuse_reshaped());
        }
        if let Err(fields) = self.evaluate_in_batch(&statement).and_then(|()| self.provide_inner(&statement)) {
            return Err(self.poison(&fields));
        }
        let delay = self.config.pgsql.variables.auto_increment_delay_multiplex;
        if let Some(server) = &mut self.server {
            server.unit.effects |= statement.effects;
            server.note_effects(statement.class, statement.effects, delay);
        }
        if statement.class == Class::Ddl {
            self.note_schema_change(&statement.sql);
        }
        let is_parsed = if name.is_empty() { self.restore_unnamed(&statement) } else { self.prepare(&statement, Audience::Proxy, None) };
        if is_parsed && self.client.told.contains_key(&statement.id) {
            return Err(self.compare_shape(name, statement));
        }
        Ok((!name.is_empty()).then_some(statement))
    }

    /// Rules for a statement of a batch, once per batch and statement.
    pub(super) fn evaluate_in_batch(&mut self, statement: &Rc<Statement>) -> Result<(), ErrorFields> {
        self.check_names(statement)?;
        let Some(server) = &mut self.server else { return Ok(()) };
        if server.unit.evaluated == statement.id {
            return Ok(());
        }
        server.unit.evaluated = statement.id;
        server.unit.class = server.unit.class.join(statement.class);
        let looked = Looked { sql: &statement.sql, scanned: &statement.scanned };
        let decision = self.check_attached(looked, statement.class)?;
        if decision.ok_msg.is_some() {
            let text = "a rule answers this statement itself, which is not possible inside a transaction or batch of the extended protocol";
            return Err(ErrorFields::error(sqlstate::FEATURE_NOT_SUPPORTED, text));
        }
        if let (Some(server), Some(multiplex)) = (&mut self.server, decision.multiplex) {
            server.unit.multiplex = Some(multiplex);
        }
        Ok(())
    }

    /// Whether the session is pinned by statements that only its server knows.
    fn passes_unknown_names(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.pins.has(Pin::Prepare))
    }
}
