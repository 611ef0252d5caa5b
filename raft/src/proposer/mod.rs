//! The leader's one task that turns requests into entries (raft-and-storage.md 4.4).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorumsql_proto::log as pb;

use crate::command::{Origin, Outcome, Rejection, Request, RequestId, Validator};
use crate::state_machine::{ApplyResult, StateMachine};

/// Why an entry was not applied, as far as the leader knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ProposeError {
    /// Refused: this node does not lead (any more). The entry has no effect.
    NotLeader {
        /// Who leads, if known.
        leader: Option<u64>,
    },
    /// Refused: the leader has not heard from a quorum for too long. The entry has no effect; try again.
    LeaseExpired,
    /// Leadership was lost before the answer: it may still be applied.
    Discarded,
    /// Consensus on this node has ended: it may still be applied.
    Fatal(String),
}

/// The log as the proposer sees it; implemented with openraft.
pub(crate) trait Log: Send + Sync + 'static {
    /// Appends the entries in order in this term only, and waits until they are applied here. One answer for each.
    fn propose(&self, term: u64, entries: Vec<Bytes>) -> impl Future<Output = Vec<Result<ApplyResult, ProposeError>>> + Send;
}

/// What the proposer answers.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ProposerAnswer {
    /// It is decided (or unknown).
    Outcome(Outcome),
    /// Nothing was proposed: ask the leader, with the same request id, after a short back-off.
    NotLeader,
}

/// The answer to an entry made by this crate itself.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum CommandAnswer {
    /// It was applied, with this result (look at its `outcome`).
    Applied(ApplyResult),
    /// It has no effect and never will.
    Rejected(Rejection),
    /// It may still be applied.
    Unknown(Rejection),
    /// Nothing was proposed.
    NotLeader,
}

/// Handle of the task.
#[derive(Clone, Debug)]
pub(crate) struct Proposer {
    state: Arc<StateMachine>,
}

impl Proposer {
    /// Starts the task on the current tokio runtime; it ends when the last handle is dropped.
    pub(crate) fn start<L: Log>(state: Arc<StateMachine>, log: Arc<L>, validator: Arc<dyn Validator>) -> Self {
        let _ = (log, validator);
        Self { state }
    }

    /// Tells it that this node leads in `term` (it opens for work once an entry of that term is applied), or that it does not.
    pub(crate) fn lead(&self, term: Option<u64>) {
        let _ = (term, &self.state);
    }

    /// Executes a request of an admin connection.
    pub(crate) async fn execute(&self, request: Request) -> ProposerAnswer {
        let _ = request;
        ProposerAnswer::NotLeader
    }

    /// Proposes an operation of this crate: `NodeAlloc`, `NodeUpsert`, `NodeRemove`, `Bootstrap`, `Tick`.
    pub(crate) async fn command(&self, id: RequestId, origin: Origin, op: pb::log_entry::Op, timeout: Duration) -> CommandAnswer {
        let _ = (id, origin, op, timeout);
        CommandAnswer::NotLeader
    }
}
