//! The extended protocol before there is a connection: the batch is looked at as a whole, then routed as one.

use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::pgsql::backend;
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frame::{HEADER_LENGTH, Header};
use quorumsql_wire::pgsql::frontend::{Bind, FrontendMessage, Target};
use quorumsql_wire::pgsql::{frame, sqlstate};
use quorumsql_wire::sql::{Class, Effects};

use super::local::empty_tag;
use super::request::Done;
use super::route::{Looked, Route};
use super::{End, Exchange, Passing, SMALL_MESSAGE, Unit};
use crate::session::pgsql::prepared::{Statement, next_id};

/// Texts up to this length are shared among clients.
const SHARED_TEXT: usize = 64 * 1024;

/// What stands in the input up to the end of the batch.
#[derive(Default)]
struct Seen {
    /// The first statement that is named.
    first: Option<Rc<Statement>>,
    class: Class,
    effects: Effects,
    /// The first message names a statement that does not exist.
    unknown: Option<Box<[u8]>>,
    /// Another one is named.
    more: bool,
    /// Length up to and including the Sync, if it is there.
    synced: Option<usize>,
}

impl Exchange<'_> {
    /// The messages at the front belong to a batch: look ahead, route, then attach.
    pub(super) fn on_batch(&mut self, input: &[u8]) -> Result<Done, End> {
        self.config = self.client.ctx.config();
        let header = Header::decode(input, i32::MAX as usize).map_err(|_| End::Quiet)?;
        if let Some(header) = header
            && header.tag == b'P'
            && header.body > self.longest_statement()
        {
            return Ok(self.too_big(header, input));
        }
        let seen = match self.look_ahead(input) {
            Ok(seen) => seen,
            Err(wanted) => return Ok(Done::More(wanted)),
        };
        if let Some(done) = self.parse_without_server(input, &seen) {
            return Ok(done);
        }
        if let Some(name) = &seen.unknown {
            self.say_error(&unknown_statement(name), false);
            self.client.skip_to_sync = true;
            return Ok(Done::Started(0, Passing::default()));
        }
        let unit =
            Unit { class: seen.class, effects: seen.effects, evaluated: seen.first.as_ref().map_or(0, |first| first.id), multiplex: None };
        let Some(first) = seen.first else {
            // Nothing but portals, which do not exist: the server says so in its own words.
            self.decided = Some(unit);
            return Ok(Done::Attach(self.default_hostgroup()));
        };
        let looked = Looked { sql: &first.sql, scanned: &first.scanned };
        match self.route(looked, seen.class, seen.effects) {
            Route::To(hostgroup, multiplex) => {
                self.decided = Some(Unit { multiplex, ..unit });
                self.only = Some(first).filter(|first| first.change.is_some() && !seen.more && seen.synced.is_some());
                Ok(Done::Attach(hostgroup))
            }
            Route::Refused(fields) => {
                self.say_error(&fields, false);
                self.client.skip_to_sync = true;
                Ok(Done::Started(0, Passing::default()))
            }
            Route::Accepted(text) => match seen.synced {
                Some(length) => {
                    self.accept_batch(&input[..length], &text, &first);
                    Ok(Done::Started(length, Passing::default()))
                }
                None => {
                    let text = "a rule answers this statement itself, which needs the whole batch up to Sync at once";
                    self.say_error(&ErrorFields::error(sqlstate::FEATURE_NOT_SUPPORTED, text), false);
                    self.client.skip_to_sync = true;
                    Ok(Done::Started(0, Passing::default()))
                }
            },
        }
    }

    /// A batch that only prepares BEGIN, COMMIT and their like, which some server has parsed before: a client that prepares them one by one
    /// on many connections (pgbench) would otherwise wait for connections that its own transactions hold.
    fn parse_without_server(&mut self, input: &[u8], seen: &Seen) -> Option<Done> {
        let statement = seen.first.as_ref().filter(|first| first.surely_parses())?;
        let frame = frame::decode(input, SMALL_MESSAGE).ok().flatten()?;
        let FrontendMessage::Parse(parse) = FrontendMessage::decode(frame).ok()? else { return None };
        let is_all = seen.synced == Some(frame.size() + HEADER_LENGTH);
        if !is_all || parse.name.is_empty() || self.client.statements.contains_key(parse.name) {
            return None;
        }
        self.define(parse.name, Rc::clone(statement));
        self.say_with(backend::parse_complete);
        Some(Done::Consumed)
    }

    /// Collects what the batch does. `Err` = so many bytes of input are needed first.
    fn look_ahead(&mut self, input: &[u8]) -> Result<Seen, usize> {
        let mut seen = Seen::default();
        let mut parsed: Vec<(Box<[u8]>, Rc<Statement>)> = Vec::new();
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let Ok(header) = Header::decode(rest, i32::MAX as usize) else { break };
            let Some(header) = header else {
                if at >= SMALL_MESSAGE {
                    break;
                }
                return Err(at + HEADER_LENGTH);
            };
            let Some(body) = rest.get(HEADER_LENGTH..header.size()) else {
                if header.tag == b'P' && header.body <= self.longest_statement() {
                    return Err(at + header.size());
                }
                if at + header.size() <= SMALL_MESSAGE {
                    return Err(at + header.size());
                }
                match header.tag {
                    b'B' => self.see_bind_start(&rest[HEADER_LENGTH..], &parsed, &mut seen, at == 0, at + SMALL_MESSAGE)?,
                    _ => break,
                }
                break;
            };
            let Ok(message) = FrontendMessage::decode(frame::Frame { tag: header.tag, body }) else { break };
            match message {
                FrontendMessage::Parse(parse) => {
                    let statement = self.statement(parse.sql, parse.parameter_types);
                    seen.add(&statement);
                    parsed.retain(|(name, _)| **name != *parse.name);
                    parsed.push((parse.name.into(), statement));
                }
                FrontendMessage::Bind(Bind { statement: name, .. }) | FrontendMessage::Describe(Target::Statement, name) => {
                    self.see_name(name, &parsed, &mut seen, at == 0);
                }
                FrontendMessage::Sync => {
                    seen.synced = Some(at + header.size());
                    return Ok(seen);
                }
                FrontendMessage::Describe(Target::Portal, _) | FrontendMessage::Execute { .. } | FrontendMessage::Close(..) => {}
                // What comes after a Flush is not known yet.
                _ => break,
            }
            at += header.size();
        }
        seen.class = seen.class.join(Class::Other);
        Ok(seen)
    }

    /// A Bind that is too long to be looked at whole: the names at its start are enough.
    fn see_bind_start(
        &mut self,
        body: &[u8],
        parsed: &[(Box<[u8]>, Rc<Statement>)],
        seen: &mut Seen,
        at_front: bool,
        wanted: usize,
    ) -> Result<(), usize> {
        let mut names = body.split(|byte| *byte == 0);
        match (names.next(), names.next(), names.next()) {
            (Some(_), Some(name), Some(_)) => {
                self.see_name(name, parsed, seen, at_front);
                Ok(())
            }
            // Names as long as this are an error, which shows when the message is dealt with.
            _ if body.len() >= SMALL_MESSAGE => Ok(()),
            _ => Err(wanted),
        }
    }

    fn see_name(&self, name: &[u8], parsed: &[(Box<[u8]>, Rc<Statement>)], seen: &mut Seen, at_front: bool) {
        let statement = parsed.iter().find(|(known, _)| **known == *name).map(|(_, statement)| statement).or_else(|| self.known(name));
        match statement {
            Some(statement) => {
                let statement = Rc::clone(statement);
                seen.add(&statement);
            }
            None if at_front => seen.unknown = Some(name.into()),
            // The server's, or nobody's: it shows when the message is dealt with.
            None => {}
        }
    }

    /// The client's statement of this name.
    pub(super) fn known(&self, name: &[u8]) -> Option<&Rc<Statement>> {
        if name.is_empty() { self.client.unnamed.as_ref().map(|(_, statement)| statement) } else { self.client.statements.get(name) }
    }

    /// The statement with this text and these types, described once.
    pub(super) fn statement(&mut self, sql: &[u8], types: &[u8]) -> Rc<Statement> {
        let schema = self.client.worker.schema.get();
        // What is not ASCII is another text to a client of another encoding.
        let encoding = if sql.is_ascii() { None } else { self.client.settings.get("client_encoding") };
        let describe = || {
            let scan = self.scan(sql);
            Statement {
                id: next_id(),
                sql: sql.into(),
                types: types.into(),
                encoding: encoding.map(Into::into),
                class: scan.class,
                effects: scan.effects,
                change: self.changes(sql, &scan).and_then(|mut all| all.pop()),
                scanned: scan.kept(),
                schema,
                ..Statement::default()
            }
        };
        if sql.len() > SHARED_TEXT {
            return Rc::new(describe());
        }
        self.client.worker.registry.borrow_mut().statement((sql, encoding), types, schema, describe)
    }

    /// Answers a batch of which a rule says that all is well: every message gets what a statement without parameters and rows would get.
    fn accept_batch(&mut self, batch: &[u8], text: &Arc<str>, first: &Rc<Statement>) {
        let mut out = Vec::with_capacity(256);
        let tag = empty_tag(&first.scanned.digest_text);
        let mut rest = batch;
        while let Ok(Some(frame)) = frame::decode(rest, usize::MAX) {
            rest = &rest[frame.size()..];
            match FrontendMessage::decode(frame) {
                Ok(FrontendMessage::Parse(parse)) => {
                    let statement = self.statement(parse.sql, parse.parameter_types);
                    self.define(parse.name, statement);
                    backend::parse_complete(&mut out);
                }
                Ok(FrontendMessage::Bind(_)) => backend::bind_complete(&mut out),
                Ok(FrontendMessage::Describe(target, _)) => {
                    if target == Target::Statement {
                        backend::parameter_description(&mut out, &[]);
                    }
                    backend::no_data(&mut out);
                }
                Ok(FrontendMessage::Execute { .. }) => {
                    ErrorFields::notice(sqlstate::SUCCESSFUL_COMPLETION, &**text).encode(&mut out);
                    backend::command_complete(&mut out, &tag);
                }
                Ok(FrontendMessage::Close(target, name)) => {
                    if target == Target::Statement {
                        self.client.statements.remove(name);
                    }
                    backend::close_complete(&mut out);
                }
                Ok(FrontendMessage::Sync) => backend::ready_for_query(&mut out, self.status()),
                _ => {}
            }
        }
        self.say(&out);
    }

    /// Notes the client's name for a statement.
    pub(super) fn define(&mut self, name: &[u8], statement: Rc<Statement>) {
        if name.is_empty() {
            self.client.unnamed = Some((next_id(), statement));
        } else {
            self.client.statements.insert(name.into(), statement);
        }
    }
}

impl Seen {
    fn add(&mut self, statement: &Rc<Statement>) {
        // A statement that is parsed and bound in one batch counts once.
        if self.first.as_ref().is_none_or(|first| first.id != statement.id) {
            self.class = self.class.join(statement.class);
            self.more = self.first.is_some();
        }
        self.effects |= statement.effects;
        self.first.get_or_insert_with(|| Rc::clone(statement));
    }
}

/// PostgreSQL's words for a statement that was not prepared.
pub(super) fn unknown_statement(name: &[u8]) -> ErrorFields {
    let text = if name.is_empty() {
        "unnamed prepared statement does not exist".to_owned()
    } else {
        format!("prepared statement \"{}\" does not exist", String::from_utf8_lossy(name))
    };
    ErrorFields::error(sqlstate::INVALID_SQL_STATEMENT_NAME, text)
}
