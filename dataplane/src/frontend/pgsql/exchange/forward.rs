//! Messages of the client while a server connection is held: forwarded as they come, names of statements rewritten.

use std::rc::Rc;

use quorumsql_wire::pgsql::backend::TransactionStatus;
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frame::{self, HEADER_LENGTH, Header};
use quorumsql_wire::pgsql::frontend::{self, Bind, FrontendMessage, Parse, Target};
use quorumsql_wire::pgsql::sqlstate;
use quorumsql_wire::sql::{Class, Effects, Transaction};

use super::batch::unknown_statement;
use super::request::{Done, empty_body};
use super::route::Looked;
use super::{Attached, End, Exchange, Passing, SMALL_MESSAGE, Unit};
use crate::session::pgsql::changes::{Change, changes, is_followed};
use crate::session::pgsql::pins::Pin;
use crate::session::pgsql::prepared::{Held, PER_CLIENT_LIMIT, ServerName, Statement, is_ours, next_id};
use crate::session::pgsql::responses::{Audience, Expected, Named, Slot};

/// A statement that never exists on a server: describing it fails, and with it the transaction, exactly as if the server itself had refused
/// what stood in its place.
const POISON: &[u8] = b"__qsql_poison";

/// Portals that are followed at a time.
const PORTALS: usize = 64;

/// Bytes of a text in which a change of tables is looked for.
const SCHEMA_LOOK: usize = 4096;

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
                if self.whole(header, input, self.longest_statement())?.is_none() {
                    return Ok(Done::More(header.size()));
                }
                self.begin_unit(in_batch);
                if let Some(server) = &mut self.server {
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
                self.begin_unit(in_batch);
                self.forward_extended(message)
            }
        }
    }

    /// The client says good-bye: what it sent before is finished first. A batch without its Sync is not to be committed: the server gets the
    /// good-bye itself, and undoes it.
    fn on_leave(&mut self) -> Result<Done, End> {
        let Some(server) = &mut self.server else { return Err(End::Quiet) };
        // An open batch of which all is answered is undone by closing its connection.
        if server.due.is_empty() && server.to_server.is_none() {
            return Err(End::Quiet);
        }
        let was_leaving = std::mem::replace(&mut server.leaving, true);
        if !was_leaving && (server.due.is_in_batch() || server.due.is_copy_in()) {
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
        self.adapt(unit.effects);
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
        self.push(if ends_unit { Expected::Query(None) } else { Expected::DescribePortal });
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

    fn forward_query(&mut self, header: Header, input: &[u8]) -> Result<Done, End> {
        if header.body > self.longest_statement() {
            return Ok(self.too_big(header, input));
        }
        let Some(sql) = self.query_text(header, input)? else { return Ok(Done::More(header.size())) };
        if self.decided.is_none()
            && let Some(done) = self.look_at_query(sql)
        {
            return Ok(done);
        }
        self.begin_unit(false);
        if self.server.as_ref().is_some_and(|server| !matches!(server.unit.class, Class::Read | Class::LockingRead | Class::Write)) {
            self.note_schema_change(sql);
        }
        let changes = self.changes.take();
        let delay = self.config.pgsql.variables.auto_increment_delay_multiplex;
        let mut named = None;
        if let Some(server) = &mut self.server {
            let Unit { class, effects, .. } = server.unit;
            server.note_effects(class, effects, changes.as_deref(), delay);
            named = self.with_our_names(sql, effects, delay);
        }
        if let Some(server) = &mut self.server {
            server.conn.prepared.unnamed = 0;
            server.counts.query(self.counting.take());
        }
        self.push(Expected::Query(changes.map(Into::into)));
        let Some(text) = named else { return Ok(Done::AsIs) };
        let mut bytes = Vec::with_capacity(text.len() + 8);
        frontend::query(&mut bytes, &text);
        self.append(&bytes);
        Ok(Done::Consumed)
    }

    /// A Query that was not looked at yet: the rules may refuse it, and some are answered without the server.
    fn look_at_query(&mut self, sql: &[u8]) -> Option<Done> {
        let quiet = self.server.as_ref().is_some_and(|server| server.due.is_empty());
        let failed = self.status() == TransactionStatus::Failed;
        let scan = self.scan(sql);
        let mut done = None;
        if !failed {
            done = self.by_name(sql, &scan);
        }
        let mut multiplex = None;
        if done.is_none() && scan.statements > 0 {
            let looked = Looked { sql, scanned: &scan };
            match self.check_attached(looked, scan.class) {
                Ok(decision) => {
                    multiplex = decision.multiplex;
                    if let Some(text) = decision.ok_msg {
                        done = Some(if quiet { self.accept_query(&text, &scan) } else { Done::Later });
                    }
                }
                Err(fields) if quiet => {
                    self.say_error(&fields, true);
                    done = Some(Done::Consumed);
                }
                Err(_) => done = Some(Done::Later),
            }
        }
        let hostgroup = self.server.as_ref().map(|server| server.conn.hostgroup());
        match done {
            None if scan.statements > 0 => self.counting = self.digest_entry(hostgroup, &scan),
            Some(Done::Consumed) => self.count_here(&scan),
            _ => {}
        }
        if done.is_none() {
            self.decided = Some(Unit { class: scan.class, effects: scan.effects, evaluated: 0, multiplex });
            self.changes = changes(sql, scan.class, scan.effects);
        }
        done
    }

    fn forward_extended(&mut self, message: FrontendMessage<'_>) -> Result<Done, End> {
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
            FrontendMessage::Describe(Target::Portal, _) => {
                self.push(Expected::DescribePortal);
                Ok(Done::AsIs)
            }
            FrontendMessage::Execute { portal, .. } => {
                if let Some(server) = &mut self.server {
                    server.counts.execute(portal);
                }
                let statement = self.server.as_ref().and_then(|server| server.portal(portal));
                self.push(Expected::Execute(statement));
                Ok(Done::AsIs)
            }
            FrontendMessage::Close(Target::Statement, name) => {
                if self.client.statements.remove(name).is_none() && self.passes_unknown_names() && !is_ours(name) {
                    self.push(Expected::Close(Audience::Client));
                    return Ok(Done::AsIs);
                }
                if name.is_empty() {
                    self.client.unnamed = None;
                }
                self.push(Expected::OwnClose);
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
        if let Err(fields) = self.evaluate_in_batch(&statement) {
            return self.poison(&fields);
        }
        self.client.told.remove(&statement.id);
        if parse.name.is_empty() {
            let stamp = next_id();
            self.client.unnamed = Some((stamp, statement));
            if let Some(server) = &mut self.server {
                server.conn.prepared.unnamed = stamp;
            }
            self.push(Expected::Parse { audience: Audience::Client, slot: Slot::Unnamed, named: None });
            return Done::AsIs;
        }
        if self.client.statements.contains_key(parse.name) {
            let text = format!("prepared statement \"{}\" already exists", String::from_utf8_lossy(parse.name));
            return self.poison(&ErrorFields::error(sqlstate::DUPLICATE_PREPARED_STATEMENT, text));
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

    /// Sends a Parse of `statement` under our name, unless the server holds it; false = it does.
    fn prepare(&mut self, statement: &Rc<Statement>, audience: Audience, named: Option<&Named>) -> bool {
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

    fn forward_bind(&mut self, bind: Bind<'_>) -> Done {
        let known = self.known(bind.statement).map(Rc::clone);
        self.count_bind(bind.portal, known.as_ref());
        let statement = self.on_server(bind.statement, known.as_ref());
        self.note_portal(bind.portal, known.as_ref(), Some(&bind));
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
    fn forward_long_bind(&mut self, header: Header, input: &[u8], in_batch: bool) -> Result<Done, End> {
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
    fn on_named(&mut self, name: &[u8]) -> Result<Option<Rc<Statement>>, Done> {
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
        if let Err(fields) = self.evaluate_in_batch(&statement) {
            return Err(self.poison(&fields));
        }
        let delay = self.config.pgsql.variables.auto_increment_delay_multiplex;
        if let Some(server) = &mut self.server {
            server.unit.effects |= statement.effects;
            server.note_effects(statement.class, statement.effects, statement.change.as_ref().map(std::slice::from_ref), delay);
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

    /// Its client was told what rows `statement` has, and the server has parsed it just now: asks it whether they still look so. The message
    /// at the front waits for the answer.
    fn compare_shape(&mut self, name: &[u8], statement: Rc<Statement>) -> Done {
        let server_name = if name.is_empty() { ServerName::default() } else { statement.server_name() };
        let mut bytes = Vec::with_capacity(64);
        frontend::describe(&mut bytes, Target::Statement, &server_name);
        frame::encode(&mut bytes, b'H', |_| {});
        self.append(&bytes);
        self.push(Expected::OwnDescribe(statement));
        Done::Later
    }

    /// The client was told of rows that its statement does not have any more: PostgreSQL's words for it.
    fn refuse_reshaped(&mut self) -> Done {
        if let Some(server) = &mut self.server {
            server.reshaped = 0;
        }
        self.poison(&ErrorFields::error(sqlstate::FEATURE_NOT_SUPPORTED, "cached plan must not change result type"))
    }

    /// The client's unnamed statement was parsed on another connection, or has been replaced on this one (`true`).
    fn restore_unnamed(&mut self, statement: &Rc<Statement>) -> bool {
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

    /// Notes that plans are out of date behind this text for who prepares it from now on; who has prepared it before reads of it what the
    /// server says. What changes tables by other ways shows by its error, once per statement.
    fn note_schema_change(&self, sql: &[u8]) {
        let names = |word: &[u8]| sql.windows(word.len()).take(SCHEMA_LOOK).any(|window| window.eq_ignore_ascii_case(word));
        if names(b"alter") || names(b"drop") {
            let schema = &self.client.worker.schema;
            schema.set(schema.get() + 1);
        }
    }

    /// Rules for a statement of a batch, once per batch and statement.
    fn evaluate_in_batch(&mut self, statement: &Rc<Statement>) -> Result<(), ErrorFields> {
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

    /// Notes a portal whose statement does something to parameters; `bind` if its values are at hand.
    fn note_portal(&mut self, portal: &[u8], statement: Option<&Rc<Statement>>, bind: Option<&Bind<'_>>) {
        let mut statement = statement.filter(|statement| statement.change.is_some()).map(Rc::clone);
        if let Some((change @ Change::Bound(_), bind)) = statement.as_ref().and_then(|statement| statement.change.as_ref()).zip(bind) {
            statement = Some(Rc::new(Statement { change: Some(change.bind(bind)), ..Statement::default() }));
        }
        let Some(server) = &mut self.server else { return };
        server.portals.retain(|(known, _)| **known != *portal);
        match statement {
            Some(_) if server.portals.len() >= PORTALS => server.pins.add(Pin::Set),
            Some(statement) => server.portals.push((portal.into(), statement)),
            None => {}
        }
    }

    /// Whether the session is pinned by statements that only its server knows.
    fn passes_unknown_names(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.pins.has(Pin::Prepare))
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

    fn too_big_in_batch(&mut self, header: Header, input: &[u8]) -> Done {
        self.poison(&ErrorFields::error(sqlstate::PROGRAM_LIMIT_EXCEEDED, "Got a packet bigger than 'max_allowed_packet' bytes"));
        super::request::drop_message(header, input)
    }

    pub(super) fn push(&mut self, expected: Expected) {
        if let Some(server) = &mut self.server {
            server.due.push(expected);
        }
    }

    /// Says answers of our own that are due at once.
    fn say_own(&mut self) {
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
        self.due.is_empty() || (stays && !may_end)
    }

    /// Ties the session to the connection where a statement does something that lives there and is not followed, and marks the connection where
    /// nobody can tell.
    pub(super) fn note_effects(&mut self, class: Class, effects: Effects, changes: Option<&[Change]>, delay: u32) {
        if !matches!(class, Class::Read | Class::Empty | Class::Neutral | Class::Set | Class::Transaction(_))
            || effects.intersects(Effects::CALLS_UNKNOWN | Effects::NEXTVAL)
        {
            self.conn.writer = self.session;
        }
        if effects.is_empty() || self.unit.multiplex == Some(2) {
            return;
        }
        self.pins.add_effects(effects);
        if effects.intersects(Effects::SESSION_SETTING | Effects::SET_CONFIG) && !changes.is_some_and(|all| is_followed(effects, all)) {
            self.pins.add(Pin::Set);
        }
        if effects.intersects(Effects::CALLS_UNKNOWN | Effects::EXECUTE_TEXT | Effects::HIDDEN) {
            self.conn.unsure = self.session;
        }
        if effects.intersects(Effects::NEXTVAL) && delay > 0 && self.conn.status == TransactionStatus::Idle {
            self.pins.add(Pin::Sequence);
            self.sequence_left = delay;
        }
    }

    /// Another unit begins: one less of those for which a sequence keeps the connection.
    fn count_sequence(&mut self) {
        if self.pins.has(Pin::Sequence) {
            self.sequence_left = self.sequence_left.saturating_sub(1);
            if self.sequence_left == 0 {
                self.pins.remove(Pin::Sequence);
            }
        }
    }

    /// The statement of a portal, if it does something to parameters.
    fn portal(&self, name: &[u8]) -> Option<Rc<Statement>> {
        self.portals.iter().find(|(known, _)| **known == *name).map(|(_, statement)| Rc::clone(statement))
    }
}

/// The message at the front goes to the server as it comes, however much of it is there.
fn as_it_comes(header: Header, input: &[u8]) -> Done {
    if input.len() >= header.size() { Done::AsIs } else { Done::Started(0, Passing { left: header.size(), to_server: true }) }
}
