//! The replicated state: one SQLite file, changed only by applied entries (raft-and-storage.md section 4).
//!
//! Pure with respect to consensus: no openraft, no clock, no randomness. Equal entries in equal order give equal rows,
//! hashes and results on every node. `apply` is the only writer that commits; the proposer speculates on its own
//! connection under the same writer lock and always rolls back.

pub(crate) mod apply;
pub(crate) mod change;
mod changes;
mod connection;
mod error;
mod hash;
mod history;
mod layer_copy;
mod nodes;
mod requests;
mod result;
pub(crate) mod row;
pub(crate) mod schema;
mod snapshot;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::watch;

use crate::busy::Busy;
use crate::command::{Applied, RequestId};

pub(crate) use connection::{open as open_connection, savepoint};
pub(crate) use error::StorageError;
pub use hash::{module_hash, root_hash};
pub use history::{RevisionChange, changes_of};
pub(crate) use result::{ApplyOutcome, ApplyResult, cut};
use schema::Meta;

/// Highest feature level that this build understands.
pub(crate) const FEATURE_LEVEL: u32 = 1;

/// What a log entry carries.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Payload {
    /// Nothing (a new leader's first entry).
    Blank,
    /// A membership, opaque to the state machine.
    Membership(Vec<u8>),
    /// An encoded `LogEntry`.
    Data(Bytes),
}

/// A committed entry.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ApplyEntry {
    /// Its term.
    pub(crate) term: u64,
    /// Its index.
    pub(crate) index: u64,
    /// Its content.
    pub(crate) payload: Payload,
}

/// Up to where this state has come.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct AppliedState {
    /// Term of the last applied entry; 0 = none.
    pub(crate) term: u64,
    /// Its index; 0 = none.
    pub(crate) index: u64,
    /// The last membership, as consensus gave it; empty = none.
    pub(crate) membership: Vec<u8>,
}

/// A snapshot on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SnapshotFile {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Term of the last entry in it.
    pub(crate) term: u64,
    /// Index of the last entry in it.
    pub(crate) index: u64,
    /// Membership in it.
    pub(crate) membership: Vec<u8>,
    /// Bytes.
    pub(crate) size: u64,
    /// Of the whole file.
    pub(crate) sha256: [u8; 32],
}

/// The replicated state of this node.
pub(crate) struct StateMachine {
    path: PathBuf,
    /// The committing connection. Its lock is the single writer lock: the proposer holds it while it speculates.
    writer: Mutex<Writer>,
    applied: Mutex<AppliedState>,
    watch: watch::Sender<Applied>,
    /// Why nothing is applied any more.
    failure: watch::Sender<Option<String>>,
    committing: Arc<Busy>,
}

/// The connection that commits.
pub(crate) struct Writer {
    connection: Connection,
    /// Set after an error: nothing is applied any more.
    stopped: bool,
}

impl fmt::Debug for StateMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMachine").field("path", &self.path).field("applied", &self.watch.borrow()).finish_non_exhaustive()
    }
}

impl StateMachine {
    /// Opens or creates `state.db` at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, StorageError> {
        let connection = connection::open(path)?;
        schema::prepare(&connection)?;
        let meta = Meta::read(&connection)?;
        let machine = Self {
            path: path.to_path_buf(),
            writer: Mutex::new(Writer { connection, stopped: false }),
            applied: Mutex::new(AppliedState::default()),
            watch: watch::Sender::new(Applied::default()),
            failure: watch::Sender::new(None),
            committing: Busy::new(),
        };
        machine.publish(&meta);
        Ok(machine)
    }

    /// Where `state.db` is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Term, index and membership of what is applied. Cheap.
    pub(crate) fn applied(&self) -> AppliedState {
        self.applied.lock().clone()
    }

    /// Applies entries in one transaction; blocks. The caller has waited until its own log holds them durably (R2).
    /// After an error nothing is applied any more.
    pub(crate) fn apply(&self, batch: Vec<ApplyEntry>) -> Result<Vec<ApplyResult>, StorageError> {
        let mut writer = self.writer.lock();
        if writer.stopped {
            return Err(StorageError::Stopped);
        }
        let outcome = apply_batch(&mut writer.connection, batch, &self.committing);
        match outcome {
            Ok((meta, results)) => {
                self.publish(&meta);
                Ok(results)
            }
            Err(error) => {
                writer.stopped = true;
                tracing::error!(%error, "apply failed: this node takes no further part in consensus");
                self.fail(&error);
                Err(error)
            }
        }
    }

    /// Runs `work` with the single writer lock held: nothing is applied or installed meanwhile.
    pub(crate) fn exclusively<T>(&self, work: impl FnOnce() -> T) -> T {
        let _writer = self.writer.lock();
        work()
    }

    /// Writes a snapshot into `dir`, where older ones stay; blocks, but not `apply`.
    pub(crate) fn build_snapshot(&self, dir: &Path) -> Result<SnapshotFile, StorageError> {
        snapshot::build(&self.path, dir).inspect_err(|error| self.fail(error))
    }

    /// Replaces the whole state by a received snapshot, whose bytes the caller has checked against their SHA-256; blocks.
    /// A refused file leaves everything as it was; an error while copying stops this state machine.
    pub(crate) fn install_snapshot(&self, file: &Path, term: u64, index: u64, membership: Vec<u8>) -> Result<(), StorageError> {
        snapshot::verify(file, term, index)?;
        let mut writer = self.writer.lock();
        if writer.stopped {
            return Err(StorageError::Stopped);
        }
        let outcome = snapshot::install(&mut writer.connection, file, membership);
        match outcome {
            Ok(meta) => {
                self.publish(&meta);
                Ok(())
            }
            Err(error) => {
                writer.stopped = true;
                self.fail(&error);
                Err(error)
            }
        }
    }

    /// Says that this node's `state.db` cannot be relied on any more; the first reason stays.
    pub(crate) fn fail(&self, error: &StorageError) {
        self.failure.send_if_modified(|failure| {
            let first = failure.is_none();
            if first {
                *failure = Some(error.to_string());
            }
            first
        });
    }

    /// Follows [`Self::fail`].
    pub(crate) fn failure(&self) -> watch::Receiver<Option<String>> {
        self.failure.subscribe()
    }

    /// For how long the commit under way has lasted (S11).
    pub(crate) fn committing_for(&self) -> Duration {
        self.committing.elapsed()
    }

    /// The committing connection, to make it fail.
    #[cfg(test)]
    pub(crate) fn on_writer<T>(&self, work: impl FnOnce(&mut Connection) -> T) -> T {
        work(&mut self.writer.lock().connection)
    }

    /// Whether the stored hashes are those of the rows.
    #[cfg(test)]
    pub(crate) fn hashes_hold(&self) -> bool {
        self.on_writer(|connection| hash::stored(connection).unwrap() == hash::recompute(connection).unwrap())
    }

    /// Published after each applied batch and each installed snapshot.
    pub(crate) fn watch(&self) -> watch::Receiver<Applied> {
        self.watch.subscribe()
    }

    fn publish(&self, meta: &Meta) {
        *self.applied.lock() = AppliedState { term: meta.last_term, index: meta.last_index, membership: meta.membership.clone() };
        self.watch.send_replace(Applied { index: meta.last_index, revision: meta.runtime_revision, runtime_index: meta.runtime_index });
    }
}

fn apply_batch(connection: &mut Connection, batch: Vec<ApplyEntry>, committing: &Busy) -> Result<(Meta, Vec<ApplyResult>), StorageError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut meta = Meta::read(&transaction)?;
    let mut results = Vec::with_capacity(batch.len());
    for ApplyEntry { term, index, payload } in batch {
        let result = match payload {
            Payload::Blank => ApplyResult::ok(index),
            Payload::Membership(membership) => {
                meta.membership = membership;
                ApplyResult::ok(index)
            }
            Payload::Data(_) if meta.last_index != 0 && index != meta.last_index + 1 => {
                return Err(StorageError::Damaged { index, reason: format!("entry {} was expected", meta.last_index + 1) });
            }
            Payload::Data(bytes) => apply::apply_entry(&transaction, &mut meta, term, index, &apply::decode(index, bytes)?)?,
        };
        meta.last_term = term;
        meta.last_index = index;
        results.push(result);
    }
    meta.write(&transaction)?;
    committing.during(|| transaction.commit())?;
    Ok((meta, results))
}

/// What `connection` knows about a request: its result, a refusal if it comes too late, or nothing.
pub(crate) fn known_result(connection: &Connection, index: u64, id: &RequestId) -> Result<Option<ApplyResult>, StorageError> {
    requests::lookup(connection, index, &id.client, id.seq)
}
