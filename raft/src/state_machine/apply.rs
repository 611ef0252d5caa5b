//! One entry against the tables: request ids, base check, operation, book-keeping.
//!
//! The same function runs at apply on every node and, speculatively, on the leader's proposer connection: what the
//! leader proposes has already been applied once to the rows that it depends on.

use prost::Message;
use quorumsql_proto::log as pb;
use rusqlite::Connection;

use super::changes::Changes;
use super::connection::savepoint;
use super::hash::{HashKey, TableHash};
use super::result::ApplyResult;
use super::schema::Meta;
use super::{ApplyOutcome, FEATURE_LEVEL, StorageError, change, layer_copy, nodes, requests};

/// What an operation needs to know about its entry, and where it records what it did.
pub(crate) struct Context<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) term: u64,
    pub(crate) index: u64,
    pub(crate) entry: &'a pb::LogEntry,
    pub(crate) meta: &'a mut Meta,
    pub(crate) changes: Changes,
}

impl Context<'_> {
    /// Who wrote the entry, as shown to other editors: `admin@10.0.0.7`.
    pub(crate) fn author(&self) -> String {
        match self.entry.client_addr.as_str() {
            "" => self.entry.actor.clone(),
            address => format!("{}@{address}", self.entry.actor),
        }
    }

    /// The entry can't be what a leader of this protocol writes.
    pub(crate) fn damaged(&self, reason: impl Into<String>) -> StorageError {
        StorageError::Damaged { index: self.index, reason: reason.into() }
    }

    pub(crate) fn diverged(&self, reason: impl Into<String>) -> StorageError {
        StorageError::Diverged { index: self.index, at: self.index.saturating_sub(1), reason: reason.into() }
    }

    pub(crate) fn refused(&self, outcome: ApplyOutcome, message: impl Into<String>) -> ApplyResult {
        ApplyResult::refused(self.index, outcome, message)
    }
}

/// Reads an entry; what this build cannot understand stops the node, it is never skipped.
pub(crate) fn decode(index: u64, bytes: bytes::Bytes) -> Result<pb::LogEntry, StorageError> {
    let entry = pb::LogEntry::decode(bytes).map_err(|error| {
        tracing::error!(index, %error, "entry cannot be decoded");
        StorageError::newer(index, FEATURE_LEVEL + 1)
    })?;
    let unknown = entry.op.is_none() || entry.format != 1;
    if entry.required_level > FEATURE_LEVEL || unknown {
        return Err(StorageError::newer(index, entry.required_level.max(FEATURE_LEVEL + u32::from(unknown))));
    }
    Ok(entry)
}

/// What an entry did: its result, and the new hashes of the tables that it changed.
pub(crate) struct Effect {
    pub(crate) result: ApplyResult,
    pub(crate) hashes: Vec<(HashKey, TableHash)>,
}

impl From<ApplyResult> for Effect {
    fn from(result: ApplyResult) -> Self {
        Self { result, hashes: Vec::new() }
    }
}

/// Applies one entry. A result that is not `Ok` has no effect but the request id's.
pub(crate) fn apply_entry(
    connection: &Connection,
    meta: &mut Meta,
    term: u64,
    index: u64,
    entry: &pb::LogEntry,
) -> Result<Effect, StorageError> {
    if let Some(earlier) = requests::answered(connection, index, entry)? {
        return Ok(earlier.into());
    }
    if !fits(meta, entry) {
        return Ok(ApplyResult::refused(index, ApplyOutcome::Retry, "").into());
    }
    let before = meta.clone();
    let effect = savepoint(connection, || {
        let mut context = Context { connection, term, index, entry, meta, changes: Changes::default() };
        let result = operate(&mut context)?;
        if result.outcome != ApplyOutcome::Ok {
            return Ok((false, result.into()));
        }
        context.finish()?;
        Ok::<_, StorageError>((true, Effect { result, hashes: context.changes.hashes }))
    });
    if !matches!(&effect, Ok(Effect { result, .. }) if result.outcome == ApplyOutcome::Ok) {
        *meta = before;
    }
    let effect = effect?;
    requests::remember(connection, entry, &effect.result)?;
    Ok(effect)
}

/// An entry that fits nobody's rows: the tables of the leader that wrote it differed from those of the majority.
pub(crate) fn refuse(connection: &Connection, index: u64, entry: &pb::LogEntry, reason: &str) -> Result<Effect, StorageError> {
    let message = format!("no effect: the tables of the leader that computed this change differed from those of the majority: {reason}");
    let result = ApplyResult::refused(index, ApplyOutcome::Refused, message);
    requests::remember(connection, entry, &result)?;
    Ok(result.into())
}

/// Whether the rows on which the entry was computed are the present ones.
fn fits(meta: &Meta, entry: &pb::LogEntry) -> bool {
    match entry.base_index {
        None => true,
        Some(base) if entry.batch_position == 0 => meta.last_data_index == base,
        Some(_) => meta.last_batch == entry.batch && meta.last_batch_position.checked_add(1) == Some(entry.batch_position),
    }
}

fn operate(context: &mut Context<'_>) -> Result<ApplyResult, StorageError> {
    use pb::log_entry::Op;
    match &context.entry.op {
        Some(Op::Change(op)) => change::apply(context, op),
        Some(Op::LayerCopy(op)) => layer_copy::apply(context, op),
        Some(Op::Bootstrap(op)) => nodes::bootstrap(context, op),
        Some(Op::NodeAlloc(op)) => nodes::allocate(context, op),
        Some(Op::NodeUpsert(op)) => nodes::upsert(context, op),
        Some(Op::NodeRemove(op)) => nodes::remove(context, op),
        Some(Op::NodeOverride(op)) => nodes::set_override(context, op),
        Some(Op::JoinToken(op)) => nodes::add_token(context, op),
        Some(Op::Tick(pb::Tick {})) => Ok(ApplyResult::ok(context.index)),
        None => Err(context.damaged("no operation")),
    }
}
