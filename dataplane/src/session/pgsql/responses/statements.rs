//! The statements that the queue is about: what the one at the head does, and which names those have that are due.

use std::rc::Rc;

use super::super::changes::Change;
use super::super::pins::PinSet;
use super::super::prepared::Statement;
use super::{Audience, Expected, Named, Responses, Slot};

/// Responses that are looked at for names: a client that pipelines more is told of a name as it was before.
const LOOK: usize = 1000;

impl Responses {
    /// The prepared statement that the response at the head is about.
    pub(crate) fn statement(&self) -> Option<&Rc<Statement>> {
        match self.due.front() {
            Some(Expected::Bind(statement) | Expected::DescribeStatement(statement)) => statement.as_ref(),
            _ => None,
        }
    }

    /// The statement whose rows the message at the head describes.
    pub(crate) fn described(&self) -> Option<(&Rc<Statement>, Audience)> {
        match self.due.front() {
            Some(Expected::DescribeStatement(statement) | Expected::DescribePortal(statement)) => {
                statement.as_ref().map(|statement| (statement, Audience::Client))
            }
            Some(Expected::OwnDescribe(statement)) => Some((statement, Audience::Proxy)),
            _ => None,
        }
    }

    /// The statement at the head has been completed: what it does to parameters.
    pub(crate) fn complete(&mut self) -> Option<Change> {
        match self.due.front_mut()? {
            Expected::Query { changes, .. } => changes.as_mut()?.pop_front(),
            Expected::Execute { statement, .. } => statement.as_ref()?.change.clone(),
            _ => None,
        }
    }

    /// The statement at the head runs, or has: the pins that it makes, once.
    pub(crate) fn take_pins(&mut self) -> PinSet {
        match self.due.front_mut() {
            Some(Expected::Query { pins, .. } | Expected::Execute { pins, .. }) => std::mem::take(pins),
            _ => PinSet::default(),
        }
    }

    /// What the statement at the head, which has failed, would have done to parameters.
    pub(crate) fn failing(&self) -> Option<Change> {
        match self.due.front()? {
            Expected::Query { changes, .. } => changes.as_ref()?.front().cloned(),
            Expected::Execute { statement, .. } => statement.as_ref()?.change.clone(),
            _ => None,
        }
    }

    /// What was sent last, the latest first.
    fn latest(&self) -> impl Iterator<Item = &Expected> {
        self.due.iter().rev().take(LOOK)
    }

    /// Whether more is due than is looked at.
    pub(crate) fn is_long(&self) -> bool {
        self.due.len() > LOOK
    }

    /// The statements to which the client has given names since what the response at the head is to.
    pub(crate) fn defined(&self) -> impl Iterator<Item = &Named> {
        self.latest().filter_map(Expected::defines)
    }

    /// Whether the client has given this name to a statement since.
    pub(crate) fn defines(&self, name: &[u8]) -> bool {
        self.defined().any(|named| *named.name == *name)
    }

    /// Whether it shows by itself, with the end of a batch that was sent, that the client has a statement of this name.
    pub(crate) fn will_show(&self, name: &[u8]) -> bool {
        let mut ends = false;
        for due in self.latest() {
            if due.defines().is_some_and(|named| *named.name == *name) {
                return ends;
            }
            ends |= due.ends_with_ready();
        }
        false
    }

    /// The statements that are parsed under our names behind it.
    pub(crate) fn parsed(&self) -> impl Iterator<Item = u64> {
        self.latest().filter_map(|due| match due {
            Expected::Parse { slot: Slot::Named(id), .. } | Expected::Prepare(id) => Some(*id),
            _ => None,
        })
    }

    /// What is due changes which statements there are as text.
    pub(crate) fn is_naming(&self) -> bool {
        let names = |change: &Change| matches!(change, Change::Prepare(_) | Change::Deallocate(_) | Change::DeallocateAll);
        self.latest().any(|due| match due {
            Expected::Query { changes, .. } => changes.iter().flatten().any(names),
            Expected::Execute { statement: Some(statement), .. } => statement.change.as_ref().is_some_and(names),
            _ => false,
        })
    }

    /// Whether the last of what is due of a batch, if it succeeds, leaves a statement of this name that was prepared as text. `None` = nothing
    /// is about it.
    pub(crate) fn prepares(&self, name: &[u8]) -> Option<bool> {
        self.latest().find_map(|due| match due {
            Expected::Execute { statement: Some(statement), .. } => match &statement.change {
                Some(Change::Prepare(known)) if known.as_bytes() == name => Some(true),
                Some(Change::Deallocate(known)) if known.as_bytes() == name => Some(false),
                Some(Change::DeallocateAll) => Some(false),
                _ => None,
            },
            _ => None,
        })
    }
}
