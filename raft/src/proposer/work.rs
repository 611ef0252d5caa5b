//! A request on its way through the proposer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use quorumsql_proto::log as pb;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::command::{Committed, LayerCopy, Op, Origin, Rejection, RequestId, Value};
use crate::state_machine::ApplyResult;
use crate::tables::check_variable;

/// What is to be done.
#[derive(Debug)]
pub(super) enum What {
    /// A statement of a user, to be run on the leader's rows.
    Sql { text: String, params: Vec<Value>, masked: String },
    /// LOAD or SAVE.
    LayerCopy(LayerCopy),
    /// An operation that needs no rows to be computed.
    Op(Box<pb::log_entry::Op>),
}

impl What {
    pub(super) fn of(op: Op) -> Result<Self, Rejection> {
        Ok(match op {
            Op::Sql { text, params, masked } => Self::Sql { text, params, masked },
            Op::LayerCopy(copy) => Self::LayerCopy(copy),
            Op::NodeOverride { node_id, name, value } => {
                if let Some(value) = &value {
                    check_variable(&name, value).map_err(Rejection::admin)?;
                }
                Self::Op(Box::new(pb::log_entry::Op::NodeOverride(pb::NodeOverride { node_id, name, value })))
            }
            Op::JoinToken { sha256, voter, expires_ms } => {
                let token_sha256 = Bytes::copy_from_slice(&sha256);
                Self::Op(Box::new(pb::log_entry::Op::JoinToken(pb::JoinToken { token_sha256, voter, expires_ms })))
            }
            Op::RemoveNode { node_id, force: _ } => Self::Op(Box::new(pb::log_entry::Op::NodeRemove(pb::NodeRemove { node_id }))),
        })
    }

    /// Bytes that it occupies in the queue, roughly.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Sql { text, params, masked } => text.len() + masked.len() + params.iter().map(Value::size).sum::<usize>(),
            Self::LayerCopy(_) => 256,
            Self::Op(op) => op.encoded_len(),
        }
    }
}

/// How far a task has come, seen by both ends.
///
/// `QUEUED ─► TAKEN` by the proposer, `QUEUED ─► ABANDONED` by a caller whose time is over: exactly one of them happens.
#[derive(Debug, Default)]
pub(super) struct Progress(AtomicU8);

const QUEUED: u8 = 0;
const TAKEN: u8 = 1;
const ABANDONED: u8 = 2;

impl Progress {
    pub(super) fn take(&self) -> bool {
        let outcome = self.0.compare_exchange(QUEUED, TAKEN, Ordering::AcqRel, Ordering::Acquire);
        outcome.is_ok() || outcome == Err(TAKEN)
    }

    pub(super) fn abandon(&self) -> bool {
        self.0.compare_exchange(QUEUED, ABANDONED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// A request in the queue.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: RequestId,
    pub(super) origin: Origin,
    pub(super) what: What,
    pub(super) deadline: Instant,
    /// When its statement is interrupted: early enough for the answer to arrive.
    pub(super) statement_deadline: Instant,
    pub(super) progress: Arc<Progress>,
    /// Warnings of the validator; they are for this client and not part of the result.
    warnings: Mutex<Vec<String>>,
    /// How often its entry met other rows than those on which it was computed.
    retries: u32,
    pub(super) reply: oneshot::Sender<(Answer, Vec<String>)>,
}

impl Task {
    pub(super) fn new(id: RequestId, origin: Origin, what: What, timeout: Duration) -> (Self, oneshot::Receiver<(Answer, Vec<String>)>) {
        let (reply, receiver) = oneshot::channel();
        let now = Instant::now();
        let deadline = now.checked_add(timeout).unwrap_or(now);
        let statement_deadline = now.checked_add(timeout - timeout / 8).unwrap_or(now);
        let progress = Arc::new(Progress::default());
        (Self { id, origin, what, deadline, statement_deadline, progress, warnings: Mutex::default(), retries: 0, reply }, receiver)
    }

    pub(super) fn add_warnings(&self, warnings: Vec<String>) {
        *self.warnings.lock() = warnings;
    }

    pub(super) fn retries(&self) -> u32 {
        self.retries
    }

    /// For another attempt.
    pub(super) fn once_more(mut self) -> Self {
        self.retries += 1;
        self
    }

    /// Tells the caller; a caller that is gone does not matter.
    pub(super) fn answer(self, answer: Answer) {
        let _ = self.reply.send((answer, self.warnings.into_inner()));
    }
}

/// How a task ended.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Answer {
    /// Its entry was applied, now or at an earlier attempt.
    Applied(ApplyResult),
    /// Nothing had to be replicated.
    Unchanged(Committed),
    /// It has no effect.
    Rejected(Rejection),
    /// It may still be applied.
    Unknown,
    /// Nothing was proposed.
    NotLeader,
}

/// What computing a task gave.
#[derive(Debug)]
pub(super) enum Computed {
    /// An entry to propose.
    Entry(Bytes),
    /// It is done without one.
    Answer(Answer),
    /// Belongs into a later batch.
    Deferred,
}
