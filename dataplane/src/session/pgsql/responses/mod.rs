//! The queue of responses that a server owes (pgsql-dataplane.md 4.1).
//!
//! One entry per message that was sent, in order, and per answer that we give ourselves so that it keeps its place in a pipeline. Whatever does
//! not fit the head of the queue is a protocol error: nothing is ever "resynchronised". [`expected`] says what can be due, [`consume`] takes the
//! server's messages, [`statements`] looks at the statements that the queue is about.

mod consume;
mod expected;
mod statements;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub(crate) use consume::ends_connection;
pub(crate) use expected::{Audience, Expected, Named, Outcome, Reply, Slot, Unexpected, Unfinished};

/// Whether a COPY from the client is going on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum CopyIn {
    #[default]
    No,
    Active,
}

/// The queue of one server connection.
#[derive(Debug, Default)]
pub(crate) struct Responses {
    due: VecDeque<Expected>,
    copy_in: CopyIn,
    skipping: bool,
    /// The server is in a batch: something was sent to it behind the last Sync. With Flush all of it may be answered already, and
    /// still it is one transaction until Sync.
    open: bool,
}

impl Responses {
    /// With an empty queue that was used before.
    pub(crate) fn reusing(due: VecDeque<Expected>) -> Self {
        Self { due, ..Self::default() }
    }

    /// The queue, to be used again.
    pub(crate) fn into_queue(self) -> VecDeque<Expected> {
        self.due
    }

    /// Nothing is due.
    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// A message was sent, or an answer of our own falls due behind all others.
    pub(crate) fn push(&mut self, expected: Expected) {
        self.skipping &= !matches!(expected, Expected::Sync);
        if !expected.is_only_here() {
            self.open = !expected.ends_with_ready();
        }
        self.due.push_back(expected);
    }

    /// Nothing is due, and the server waits for no Sync.
    pub(crate) fn is_idle(&self) -> bool {
        self.due.is_empty() && !self.is_in_batch()
    }

    /// What something is due for.
    fn sent(&self) -> impl DoubleEndedIterator<Item = &Expected> {
        self.due.iter().filter(|due| !matches!(due, Expected::CopyEnd | Expected::Unnamed(..)))
    }

    /// Whether the server throws away what comes before the next Sync.
    pub(crate) fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// Whether a COPY from the client is going on: only its data may be sent.
    pub(crate) fn is_copy_in(&self) -> bool {
        self.copy_in == CopyIn::Active
    }

    /// Whether the client waits for a Sync of its own to be sent before it can get ReadyForQuery.
    pub(crate) fn is_in_batch(&self) -> bool {
        self.skipping || self.open || self.sent().next_back().is_some_and(|last| !last.ends_with_ready())
    }

    /// The kinds of units that are not finished, in order: whether a ReadyForQuery is due at the end of each (the last may be a batch
    /// whose Sync was not sent yet), and whether it is a simple query.
    pub(crate) fn unfinished(&self) -> Vec<Unfinished> {
        let mut units = Vec::new();
        let mut open = false;
        for due in self.sent().filter(|due| !due.is_own()) {
            open = true;
            if due.ends_with_ready() {
                units.push(if matches!(due, Expected::Query { .. } | Expected::Answer { .. }) {
                    Unfinished::Query
                } else {
                    Unfinished::Batch
                });
                open = false;
            }
        }
        if open || self.skipping || self.open {
            units.push(Unfinished::OpenBatch);
        }
        units
    }

    /// Whether the message at the front of the client waits for an [`Expected::OwnDescribe`].
    pub(crate) fn is_comparing(&self) -> bool {
        matches!(self.due.back(), Some(Expected::OwnDescribe(_)))
    }

    /// Whether the response at the head is to something of our own.
    pub(crate) fn is_own(&self) -> bool {
        self.due.front().is_some_and(Expected::is_own)
    }

    /// Whether the response at the head is that to a query of our own, which must succeed.
    pub(crate) fn is_own_query(&self) -> bool {
        matches!(self.due.front(), Some(Expected::OwnQuery))
    }

    /// Whether nothing was sent behind what the response at the head is to.
    pub(crate) fn is_last(&self) -> bool {
        self.due.len() == 1
    }

    /// Whether the response at the head answers a question, behind which nothing was sent.
    pub(crate) fn is_last_question(&self) -> bool {
        self.is_last() && matches!(self.due.front(), Some(Expected::Question))
    }

    /// The client sent CopyDone or CopyFail.
    pub(crate) fn on_copy_end(&mut self) {
        if self.copy_in == CopyIn::Active {
            self.copy_in = CopyIn::No;
        } else if self.due.iter().any(|due| matches!(due, Expected::Query { .. } | Expected::Execute { .. })) {
            self.due.push_back(Expected::CopyEnd);
        }
    }
}
