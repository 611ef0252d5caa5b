//! `PREPARE`, `EXECUTE` and `DEALLOCATE` as text, beside Parse, Bind and Close: one name space for the client, though servers know what was
//! prepared by protocol by names of ours (pgsql-dataplane.md 4.6).
//!
//! `EXECUTE` and `DEALLOCATE` of such a statement are sent with our name in place of the client's, behind what prepares it there;
//! `DEALLOCATE` alone in a simple query is answered here. What cannot be is refused, and fails the transaction as if the server had refused it.

use std::rc::Rc;

use quorumsql_wire::pgsql::backend;
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frontend::{self, Target};
use quorumsql_wire::pgsql::sqlstate;
use quorumsql_wire::sql::{Effects, PreparedName, PreparedUse, Scan, pgsql_prepared_names};

use super::Exchange;
use super::batch::unknown_statement;
use super::request::Done;
use crate::session::pgsql::changes::Change;
use crate::session::pgsql::pins::PinSet;
use crate::session::pgsql::prepared::{Statement, is_ours, next_id};
use crate::session::pgsql::responses::{Audience, Expected, Named};

/// Mentions that one text may have.
const MENTIONS: usize = 100;

/// The text of a Query as a server is to read it.
pub(super) struct OurText {
    pub(super) text: Vec<u8>,
    /// Names that the server is to forget behind it.
    pub(super) occupied: Vec<String>,
}

impl Exchange<'_> {
    /// A Query that names prepared statements: how it is dealt with here, if it is.
    pub(super) fn by_name(&mut self, sql: &[u8], scan: &Scan) -> Option<Done> {
        if !is_naming(scan.effects) {
            return None;
        }
        let names = match mentions(sql) {
            Ok(names) => names,
            Err(fields) => return Some(self.refuse_query(&fields)),
        };
        if let ([PreparedName { using: PreparedUse::Deallocate | PreparedUse::DeallocateAll, .. }], 1) = (&names[..], scan.statements) {
            return self.deallocate(&names[0]);
        }
        // What stands before a PREPARE of a name that is taken runs; the server itself refuses it there.
        let in_batch = self.server.as_ref().is_some_and(|server| server.due.is_in_batch());
        let is_late = |name: &&PreparedName| name.using == PreparedUse::Prepare && scan.statements > 1 && !in_batch;
        let refused = names.iter().find_map(|name| self.refused(name).or_else(|| self.taken(name).filter(|_| !is_late(&name))));
        refused.map(|fields| self.refuse_query(&fields))
    }

    /// `DEALLOCATE` that is alone: of what was prepared by protocol it is answered here.
    fn deallocate(&mut self, name: &PreparedName) -> Option<Done> {
        let is_quiet = self.server.as_ref().is_none_or(|server| server.due.is_empty());
        let in_batch = self.server.as_ref().is_some_and(|server| server.due.is_in_batch());
        let tag = match name.using {
            PreparedUse::DeallocateAll if self.server.is_none() => {
                self.client.statements.clear();
                "DEALLOCATE ALL"
            }
            _ if is_ours(name.name.as_bytes()) => return Some(self.refuse_query(&unknown_statement(name.name.as_bytes()))),
            _ if !self.client.statements.contains_key(name.name.as_bytes()) => return None,
            // If the batch fails, it has not happened.
            _ if in_batch => {
                self.client.ctx.stats(crate::config::Protocol::Pgsql).queries.add(1);
                let forgets = Some(name.name.as_bytes().into());
                return Some(self.answer_in_batch(|out| backend::command_complete(out, "DEALLOCATE"), forgets));
            }
            _ if !is_quiet => return Some(Done::Later),
            _ => {
                self.client.statements.remove(name.name.as_bytes());
                "DEALLOCATE"
            }
        };
        self.client.ctx.stats(crate::config::Protocol::Pgsql).queries.add(1);
        Some(self.answer_query(|out| backend::command_complete(out, tag)))
    }

    /// A statement of a batch that names prepared ones: what the server knows by the same name, or by a name of ours.
    pub(super) fn check_names(&self, statement: &Statement) -> Result<(), ErrorFields> {
        // Of several statements the server parses none.
        if !is_naming(statement.effects) || statement.inner.is_some() || statement.effects.intersects(Effects::MULTI) {
            return Ok(());
        }
        for name in mentions(&statement.sql)? {
            if name.using != PreparedUse::Prepare && self.client.statements.contains_key(name.name.as_bytes()) {
                let text =
                    format!("prepared statement \"{}\" is younger than the statement that names it: parse that one again", name.name);
                return Err(ErrorFields::error(sqlstate::FEATURE_NOT_SUPPORTED, text));
            }
            if let Some(fields) = self.refused(&name) {
                return Err(fields);
            }
        }
        Ok(())
    }

    /// Why a mention cannot be sent.
    fn refused(&self, name: &PreparedName) -> Option<ErrorFields> {
        let key = name.name.as_bytes();
        match name.using {
            PreparedUse::Prepare if is_ours(key) => {
                let text = format!("prepared statement name \"{}\" is reserved", name.name);
                Some(ErrorFields::error(sqlstate::FEATURE_NOT_SUPPORTED, text))
            }
            PreparedUse::Execute | PreparedUse::Deallocate if is_ours(key) => Some(unknown_statement(key)),
            _ => None,
        }
    }

    /// Why a PREPARE cannot succeed: the client holds a statement of the name by protocol.
    fn taken(&self, name: &PreparedName) -> Option<ErrorFields> {
        let is_taken = name.using == PreparedUse::Prepare && self.client.statements.contains_key(name.name.as_bytes());
        is_taken.then(|| already_exists(&name.name))
    }

    /// The same of the statement of a portal that is to be executed.
    pub(super) fn taken_by_protocol(&self, statement: &Statement) -> Option<ErrorFields> {
        match &statement.change {
            Some(Change::Prepare(name)) if self.client.statements.contains_key(name.as_bytes()) => Some(already_exists(name)),
            _ => None,
        }
    }

    /// The text of a Query with our names in place of the client's; what it names is prepared before it, and makes its own pins. `None` = it is sent as it is.
    pub(super) fn with_our_names(&mut self, sql: &[u8], effects: Effects, delay: u32, pins: &mut PinSet) -> Option<OurText> {
        if !is_naming(effects) || self.client.statements.is_empty() {
            return None;
        }
        let (mut text, mut done) = (Vec::new(), 0);
        let (mut occupied, mut gone) = (Vec::new(), Vec::new());
        for name in pgsql_prepared_names(sql, MENTIONS)? {
            if name.using == PreparedUse::DeallocateAll {
                break;
            }
            let Some(statement) = self.client.statements.get(name.name.as_bytes()).map(Rc::clone) else { continue };
            // Behind its DEALLOCATE a name is the server's.
            if gone.contains(&name.name) {
                continue;
            }
            if name.using == PreparedUse::Prepare {
                self.occupy(name.name.as_bytes(), true);
                occupied.push(name.name);
                continue;
            }
            self.prepare_apart(&statement);
            if let Some(server) = &mut self.server {
                match name.using {
                    PreparedUse::Deallocate => server.conn.prepared.doubt(statement.id),
                    _ => {
                        // What it sets is not followed here.
                        server.note_effects(statement.class, statement.effects, delay);
                        pins.join(server.pins_of(statement.effects, None));
                    }
                }
            }
            text.extend_from_slice(&sql[done..name.place.start]);
            quote(&mut text, &statement);
            done = name.place.end;
            if name.using == PreparedUse::Deallocate {
                gone.push(name.name);
            }
        }
        if done == 0 && occupied.is_empty() {
            return None;
        }
        text.extend_from_slice(&sql[done..]);
        Some(OurText { text, occupied })
    }

    /// Has the server know a name that the client holds by protocol, with nothing behind it, while a Query runs that must find it taken.
    pub(super) fn occupy(&mut self, name: &[u8], begin: bool) {
        let mut bytes = Vec::with_capacity(name.len() + 16);
        if begin {
            frontend::parse(&mut bytes, name, b"", b"");
        } else {
            frontend::close(&mut bytes, Target::Statement, name);
        }
        frontend::sync(&mut bytes);
        self.append(&bytes);
        self.push(Expected::Prepare(0));
    }

    /// The same of a statement that is parsed: one whose text names a statement of the client's is the client's alone.
    pub(super) fn with_our_name(&self, statement: Rc<Statement>) -> Rc<Statement> {
        if !is_naming(statement.effects) || self.client.statements.is_empty() {
            return statement;
        }
        let Some(name) = pgsql_prepared_names(&statement.sql, 1).and_then(|mut names| names.pop()) else { return statement };
        let inner = match self.client.statements.get(name.name.as_bytes()) {
            Some(inner) if name.using != PreparedUse::Prepare => Rc::clone(inner),
            _ => return statement,
        };
        let mut sql = statement.sql[..name.place.start].to_vec();
        quote(&mut sql, &inner);
        sql.extend_from_slice(&statement.sql[name.place.end..]);
        Rc::new(Statement {
            id: next_id(),
            sql: sql.into(),
            types: statement.types.clone(),
            scanned: Rc::clone(&statement.scanned),
            class: statement.class.join(inner.class),
            effects: statement.effects | inner.effects,
            change: if name.using == PreparedUse::Execute { inner.change.clone() } else { statement.change.clone() },
            inner: Some(Named { name: name.name.into_bytes().into(), statement: inner }),
            schema: statement.schema,
            ..Statement::default()
        })
    }

    /// Makes sure that the connection holds what the text of `statement` names.
    pub(super) fn provide_inner(&mut self, statement: &Statement) -> Result<(), ErrorFields> {
        let Some(Named { name, statement: inner }) = &statement.inner else { return Ok(()) };
        if self.client.statements.get(name).is_none_or(|known| known.id != inner.id) {
            return Err(unknown_statement(name));
        }
        self.prepare(inner, Audience::Proxy, None);
        if let (Some(Change::Deallocate(_)), Some(server)) = (&statement.change, &mut self.server) {
            server.conn.prepared.doubt(inner.id);
        }
        Ok(())
    }

    /// Refuses a Query: in a transaction the server fails in its place.
    fn refuse_query(&mut self, fields: &ErrorFields) -> Done {
        self.client.ctx.stats(crate::config::Protocol::Pgsql).queries.add(1);
        if self.server.is_none() {
            self.say_error(fields, true);
            return Done::Consumed;
        }
        self.fail_query(fields)
    }

    /// Makes the server fail in place of a Query, and with it the transaction or batch that is open.
    pub(super) fn fail_query(&mut self, fields: &ErrorFields) -> Done {
        self.begin_unit(false);
        let done = self.poison(fields);
        let mut sync = Vec::with_capacity(5);
        frontend::sync(&mut sync);
        self.append(&sync);
        self.push(Expected::Sync);
        if let Some(server) = &mut self.server {
            server.counts.ready();
            server.conn.prepared.unnamed = 0;
        }
        done
    }
}

/// Whether a text of these effects may name a prepared statement.
fn is_naming(effects: Effects) -> bool {
    effects.intersects(Effects::PREPARE_TEXT | Effects::EXECUTE_TEXT | Effects::MAY_UNPIN)
}

/// PostgreSQL's words for a name that is taken.
pub(super) fn already_exists(name: &str) -> ErrorFields {
    ErrorFields::error(sqlstate::DUPLICATE_PREPARED_STATEMENT, format!("prepared statement \"{name}\" already exists"))
}

/// What a text names, within bounds.
fn mentions(sql: &[u8]) -> Result<Vec<PreparedName>, ErrorFields> {
    let text = || format!("a query cannot name more than {MENTIONS} prepared statements");
    pgsql_prepared_names(sql, MENTIONS).ok_or_else(|| ErrorFields::error(sqlstate::PROGRAM_LIMIT_EXCEEDED, text()))
}

/// Our name for a statement, as an identifier.
fn quote(text: &mut Vec<u8>, statement: &Statement) {
    text.push(b'"');
    text.extend_from_slice(&statement.server_name());
    text.push(b'"');
}
