//! The leader's one task that turns requests into entries (raft-and-storage.md 4.4).

mod authorizer;
mod batch;
mod speculation;
#[cfg(test)]
mod tests;
mod work;
mod worker;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use quorumsql_proto::log as pb;
use tokio::sync::{mpsc, watch};

use crate::command::{Origin, Outcome, Rejection, Request, RequestId, Validator};
use crate::state_machine::{ApplyResult, StateMachine};
pub(crate) use batch::MAX_HISTORY_BYTES;
use work::{Answer, Task, What};
use worker::Worker;

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

/// Requests that may wait.
const QUEUE_LENGTH: usize = 256;
/// Bytes of requests that may wait.
const QUEUE_BYTES: usize = 8 << 20;

/// Handle of the task.
#[derive(Clone, Debug)]
pub(crate) struct Proposer {
    queue: mpsc::Sender<Task>,
    queued_bytes: Arc<AtomicUsize>,
    lead: Arc<watch::Sender<Option<u64>>>,
}

impl Proposer {
    /// Starts the task on the current tokio runtime; it ends when the last handle is dropped.
    pub(crate) fn start<L: Log>(state: Arc<StateMachine>, log: Arc<L>, validator: Arc<dyn Validator>) -> Self {
        let (proposer, task) = Self::new(state, log, validator);
        tokio::spawn(task);
        proposer
    }

    /// A handle and the task behind it, which the caller spawns.
    pub(crate) fn new<L: Log>(
        state: Arc<StateMachine>,
        log: Arc<L>,
        validator: Arc<dyn Validator>,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, tasks) = mpsc::channel(QUEUE_LENGTH);
        let (lead, leading) = watch::channel(None);
        let task = worker::run(Worker::new(state, log, validator, leading), tasks);
        (Self { queue, queued_bytes: Arc::default(), lead: Arc::new(lead) }, task)
    }

    /// Tells it that this node leads in `term` (it opens for work once an entry of that term is applied), or that it does not.
    pub(crate) fn lead(&self, term: Option<u64>) {
        self.lead.send_if_modified(|leading| std::mem::replace(leading, term) != term);
    }

    /// Executes a request of an admin connection. Dropping the future does not undo it.
    pub(crate) async fn execute(&self, request: Request) -> ProposerAnswer {
        let Request { id, origin, op, timeout } = request;
        let what = match What::of(op) {
            Ok(what) => what,
            Err(rejection) => return ProposerAnswer::Outcome(Outcome::Rejected(rejection)),
        };
        let (answer, warnings) = self.submit(id, origin, what, timeout).await;
        ProposerAnswer::Outcome(match answer {
            Answer::NotLeader => return ProposerAnswer::NotLeader,
            Answer::Rejected(rejection) => Outcome::Rejected(rejection),
            Answer::Unknown => Outcome::Unknown(Rejection::no_answer(timeout.as_millis(), &id.client, id.seq)),
            Answer::Unchanged(mut committed) => {
                committed.warnings.extend(warnings);
                Outcome::Committed(committed)
            }
            Answer::Applied(result) => match result.into_committed() {
                Ok(mut committed) => {
                    committed.warnings.extend(warnings);
                    Outcome::Committed(committed)
                }
                Err(rejection) => Outcome::Rejected(rejection),
            },
        })
    }

    /// Proposes an operation of this crate: `NodeAlloc`, `NodeUpsert`, `NodeRemove`, `Bootstrap`, `Tick`.
    pub(crate) async fn command(&self, id: RequestId, origin: Origin, op: pb::log_entry::Op, timeout: Duration) -> CommandAnswer {
        match self.submit(id, origin, What::Op(Box::new(op)), timeout).await.0 {
            Answer::Applied(result) => CommandAnswer::Applied(result),
            Answer::Unchanged(committed) => CommandAnswer::Applied(ApplyResult::ok(committed.index)),
            Answer::Rejected(rejection) => CommandAnswer::Rejected(rejection),
            Answer::Unknown => CommandAnswer::Unknown(Rejection::no_answer(timeout.as_millis(), &id.client, id.seq)),
            Answer::NotLeader => CommandAnswer::NotLeader,
        }
    }

    async fn submit(&self, id: RequestId, origin: Origin, what: What, timeout: Duration) -> (Answer, Vec<String>) {
        if self.lead.borrow().is_none() {
            return (Answer::NotLeader, Vec::new());
        }
        let size = what.size();
        let _share = match Share::take(&self.queued_bytes, size) {
            Some(share) => share,
            None => return (Answer::Rejected(Rejection::queue_full()), Vec::new()),
        };
        let (task, reply) = Task::new(id, origin, what, timeout);
        let (progress, deadline) = (task.progress.clone(), task.deadline);
        match self.queue.try_send(task) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return (Answer::Rejected(Rejection::queue_full()), Vec::new()),
            Err(mpsc::error::TrySendError::Closed(_)) => return (Answer::NotLeader, Vec::new()),
        }
        match tokio::time::timeout_at(deadline, reply).await {
            Ok(Ok(answer)) => answer,
            // The worker is gone together with its runtime, or the time is over.
            Ok(Err(_)) | Err(_) if !progress.abandon() => (Answer::Unknown, Vec::new()),
            Ok(Err(_)) | Err(_) => (Answer::Rejected(not_executed(timeout)), Vec::new()),
        }
    }
}

fn not_executed(timeout: Duration) -> Rejection {
    Rejection::read_only(format!(
        "configuration is read-only: the leader did not come to this change within {} ms; it has no effect",
        timeout.as_millis()
    ))
}

/// A request's part of the bytes that may wait.
struct Share {
    bytes: Arc<AtomicUsize>,
    size: usize,
}

impl Share {
    fn take(bytes: &Arc<AtomicUsize>, size: usize) -> Option<Self> {
        let before = bytes.fetch_add(size, Ordering::Relaxed);
        let share = Self { bytes: bytes.clone(), size };
        (before == 0 || before + size <= QUEUE_BYTES).then_some(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.size, Ordering::Relaxed);
    }
}
