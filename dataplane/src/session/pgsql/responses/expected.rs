//! What can be due, and what becomes of it.

use std::collections::VecDeque;
use std::rc::Rc;

use super::super::changes::Change;
use super::super::pins::PinSet;
use super::super::prepared::Statement;

/// Whether the client sees the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Audience {
    /// It asked for it.
    Client,
    /// We asked for it.
    Proxy,
}

/// Where a Parse puts its statement on the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    /// Under our name for the statement with this id.
    Named(u64),
    /// It is the unnamed one.
    Unnamed,
}

/// A statement that the client has named in Parse; undone if the Parse turns out to have failed.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: Box<[u8]>,
    pub(crate) statement: Rc<Statement>,
}

/// One response, or group of responses, that is due.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    /// Everything up to one ReadyForQuery; what its statements do to parameters, in order, if any does, and the pins that they make.
    Query { changes: Option<VecDeque<Change>>, pins: PinSet },
    /// The same for a query of our own: the client sees nothing of it but parameters.
    OwnQuery,
    /// The same for a query that asks whether pins are over; its failure is none of the client's.
    Question,
    /// An empty query of ours, which ends the batch before it as any Query does: in place of its EmptyQueryResponse the client gets this
    /// answer of our own to its Query, with which its statement of a name is gone.
    Answer { text: Vec<u8>, forgets: Option<Box<[u8]>> },
    /// A batch of our own that prepares the statement with this id; the client sees nothing of it.
    Prepare(u64),
    /// FunctionCallResponse and ReadyForQuery.
    FunctionCall,
    /// ParseComplete.
    Parse { audience: Audience, slot: Slot, named: Option<Named> },
    /// BindComplete, for this statement of ours.
    Bind(Option<Rc<Statement>>),
    /// ParameterDescription, then RowDescription or NoData.
    DescribeStatement(Option<Rc<Statement>>),
    /// The same, for us: whether the statement has the rows that its client was told of.
    OwnDescribe(Rc<Statement>),
    /// RowDescription or NoData; the portal's statement if the client was not told yet what rows that has.
    DescribePortal(Option<Rc<Statement>>),
    /// Rows and an end, or COPY; the portal's statement, if that does anything to parameters, and the pins that it makes.
    Execute { statement: Option<Rc<Statement>>, pins: PinSet },
    /// CloseComplete.
    Close(Audience),
    /// ReadyForQuery.
    Sync,
    /// The client has ended a COPY that the server may not have begun yet; consumes nothing.
    CopyEnd,
    /// ParseComplete of our own.
    OwnParse(Named),
    /// CloseComplete of our own, for the client's statement, if it had one of the name.
    OwnClose(Option<Named>),
    /// What is sent next takes the place of the client's unnamed statement, which has this stamp; consumes nothing.
    Unnamed(u64, Rc<Statement>),
    /// An error by design: the server's text is replaced by this message.
    Poison(Vec<u8>),
}

impl Expected {
    /// Something of our own, with its own ReadyForQuery.
    pub(super) fn is_own(&self) -> bool {
        matches!(self, Self::OwnQuery | Self::Question | Self::Prepare(_))
    }

    /// The name that the client gives to a statement.
    pub(super) fn defines(&self) -> Option<&Named> {
        match self {
            Self::Parse { named: Some(named), .. } | Self::OwnParse(named) => Some(named),
            _ => None,
        }
    }

    /// Whether nothing was sent for it.
    pub(super) fn is_only_here(&self) -> bool {
        matches!(self, Self::OwnParse(_) | Self::OwnClose(_) | Self::CopyEnd | Self::Unnamed(..))
    }

    pub(super) fn ends_with_ready(&self) -> bool {
        matches!(self, Self::Query { .. } | Self::Answer { .. } | Self::FunctionCall | Self::Sync) || self.is_own()
    }
}

/// What to do with a message of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    /// The client gets it.
    Forward,
    /// The client does not see it.
    Swallow,
    /// The client gets this instead.
    Replace(Vec<u8>),
}

/// Something that the session must note.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// The client's statement of this name does not exist after all.
    Undefined(Named),
    /// The client's statement of this name, of which a Close was skipped, exists after all.
    NotClosedByClient(Named),
    /// The client's unnamed statement, of this stamp, is still there: what was to take its place was skipped.
    UnnamedLeft(u64, Rc<Statement>),
    /// The server does not hold what a Parse for this audience should have put there.
    NotParsed(Audience, Slot),
    /// The server still holds a statement that we meant to close.
    NotClosed,
    /// A Sync is not answered: it came during COPY.
    Ignored,
    /// The client's statement of this name is gone: it has been told.
    Forgotten(Box<[u8]>),
    /// The rows of the statement have this [`crate::session::pgsql::prepared::shape`].
    Described(Audience, Rc<Statement>, u64),
}

/// A unit of which not everything has been answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unfinished {
    /// A simple query.
    Query,
    /// A batch whose Sync was sent, or a function call.
    Batch,
    /// A batch whose Sync was not sent yet.
    OpenBatch,
}

/// The server said something that was not due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unexpected message \"{}\" from server", self.0 as char)]
pub(crate) struct Unexpected(pub(crate) u8);
