//! What a statement that is sent does to the session: pins, and portals whose end does something to parameters.

use std::rc::Rc;

use quorumsql_wire::pgsql::backend::TransactionStatus;
use quorumsql_wire::pgsql::frontend::Bind;
use quorumsql_wire::sql::{Class, Effects};

use super::{Attached, Exchange};
use crate::session::pgsql::changes::{Change, is_followed, is_unnamed};
use crate::session::pgsql::pins::{Pin, PinSet};
use crate::session::pgsql::prepared::Statement;

/// Portals that are followed at a time.
const PORTALS: usize = 64;

/// Functions that work on large objects, of PostgreSQL's `pg_proc.dat`: clients call them by number.
const LARGE_OBJECTS: [u32; 13] = [715, 952, 953, 954, 955, 956, 957, 958, 964, 1004, 3170, 3171, 3172];
/// Numbers below are the server's own (`FirstNormalObjectId`).
const FIRST_OF_USERS: u32 = 16384;

impl Exchange<'_> {
    /// Notes a portal whose statement does something to parameters or makes a pin; `bind` if its values are at hand.
    pub(super) fn note_portal(&mut self, portal: &[u8], statement: Option<&Rc<Statement>>, bind: Option<&Bind<'_>>) {
        let leaves = |statement: &&Rc<Statement>| statement.change.is_some() || Pin::of(statement.effects) != PinSet::NONE;
        let mut statement = statement.filter(leaves).map(Rc::clone);
        if let Some((Statement { change: Some(change @ Change::Bound(_)), effects, .. }, bind)) = statement.as_deref().zip(bind) {
            statement = Some(Rc::new(Statement { change: Some(change.bind(bind)), effects: *effects, ..Statement::default() }));
        }
        let Some(server) = &mut self.server else { return };
        server.portals.retain(|(known, _)| **known != *portal);
        match statement {
            Some(_) if server.portals.len() >= PORTALS => server.pins.add(Pin::Unnamed),
            Some(statement) => server.portals.push((portal.into(), statement)),
            None => {}
        }
    }
}

impl Attached {
    /// Marks the connection where a statement that may run on it leaves behind what nobody can tell.
    pub(super) fn note_effects(&mut self, class: Class, effects: Effects, delay: u32) {
        if !matches!(class, Class::Read | Class::Empty | Class::Neutral | Class::Set | Class::Transaction(_))
            || effects.intersects(Effects::CALLS_UNKNOWN | Effects::NEXTVAL)
        {
            self.conn.writer = self.session;
        }
        if effects.is_empty() || self.unit.multiplex == Some(2) {
            return;
        }
        if effects.intersects(Effects::CALLS_UNKNOWN | Effects::EXECUTE_TEXT | Effects::HIDDEN) {
            self.conn.unsure = self.session;
        }
        if effects.intersects(Effects::NEXTVAL) && delay > 0 && self.conn.status == TransactionStatus::Idle {
            self.pins.add(Pin::Sequence);
            self.sequence_left = delay;
        }
    }

    /// The same of a function that is called by its number, with which the message begins: one of the server's own may be `set_config`.
    pub(super) fn note_function_call(&mut self, call: &[u8]) {
        let number = call.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        if number.is_some_and(|number| LARGE_OBJECTS.contains(&number)) {
            return;
        }
        (self.conn.writer, self.conn.unsure) = (self.session, self.session);
        if number.is_some_and(|number| number < FIRST_OF_USERS) {
            self.pins.add(Pin::Hidden);
        }
    }

    /// What ties the session to the connection once the statement runs that is sent: it does something that lives there and is not followed.
    pub(super) fn pins_of(&self, effects: Effects, changes: Option<&[Change]>) -> PinSet {
        if effects.is_empty() || self.unit.multiplex == Some(2) {
            return PinSet::NONE;
        }
        let mut pins = Pin::of(effects);
        if effects.intersects(Effects::SESSION_SETTING | Effects::SET_CONFIG) && !changes.is_some_and(|all| is_followed(effects, all)) {
            pins.add(if is_unnamed(changes) { Pin::Unnamed } else { Pin::Set });
        }
        pins
    }

    /// Another unit begins: one less of those for which a sequence keeps the connection.
    pub(super) fn count_sequence(&mut self) {
        if self.pins.has(Pin::Sequence) {
            self.sequence_left = self.sequence_left.saturating_sub(1);
            if self.sequence_left == 0 {
                self.pins.remove(Pin::Sequence);
            }
        }
    }

    /// Whether a statement of this name was prepared as text, or will have been when the server reads what is sent next in the batch.
    pub(super) fn holds_text(&self, name: &[u8]) -> bool {
        let known = || self.text_names.iter().any(|known| known.as_bytes() == name);
        self.pins.has(Pin::Prepare) && self.due.prepares(name).unwrap_or_else(known)
    }

    /// The named statement that was bound to a portal, if it was bound last.
    pub(super) fn bound_to(&self, portal: &[u8]) -> Option<&Rc<Statement>> {
        self.bound.as_ref().filter(|(name, _)| **name == *portal).map(|(_, statement)| statement)
    }

    /// The statement of a portal, if it does something to parameters or makes a pin.
    pub(super) fn portal(&self, name: &[u8]) -> Option<Rc<Statement>> {
        self.portals.iter().find(|(known, _)| **known == *name).map(|(_, statement)| Rc::clone(statement))
    }
}
