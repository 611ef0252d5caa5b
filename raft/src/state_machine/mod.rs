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
mod omission;
mod overview;
mod requests;
mod result;
mod roots;
pub(crate) mod row;
pub(crate) mod schema;
mod snapshot;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use quorumsql_proto::log as pb;
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::watch;

use crate::busy::Busy;
use crate::command::{Applied, RequestId};

pub(crate) use connection::{open as open_connection, savepoint};
pub(crate) use error::StorageError;
pub(crate) use hash::{TableHash, Tables, differences, root_of};
pub use hash::{module_hash, root_hash};
pub use history::{RevisionChange, changes_of};
use omission::Omission;
pub(crate) use overview::config_state;
pub use overview::{ModuleLayer, NodeConfig, module_layers};
pub(crate) use result::{ApplyOutcome, ApplyResult, cut};
use roots::Roots;
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
    roots: Mutex<Roots>,
    watch: watch::Sender<Applied>,
    /// Why nothing is applied any more.
    failure: watch::Sender<Option<String>>,
    committing: Arc<Busy>,
    omission: Omission,
}

/// The connection that commits.
struct Writer {
    connection: Connection,
    halt: Halt,
}

/// Whether entries may be applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Halt {
    Running,
    /// An entry contradicted the rows: only what the voters have judged may follow.
    Contradicted,
    /// An error: nothing is applied any more.
    Stopped,
}

impl fmt::Debug for StateMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMachine").field("path", &self.path).field("applied", &self.watch.borrow()).finish_non_exhaustive()
    }
}

impl StateMachine {
    /// Opens or creates `state.db` at `path`, and compares its rows with their hashes.
    pub(crate) fn open(path: &Path) -> Result<Self, StorageError> {
        let connection = connection::open(path)?;
        schema::prepare(&connection)?;
        let meta = Meta::read(&connection)?;
        let tables = hash::verified(&connection, meta.last_index)?;
        let machine = Self {
            path: path.to_path_buf(),
            writer: Mutex::new(Writer { connection, halt: Halt::Running }),
            applied: Mutex::new(AppliedState::default()),
            roots: Mutex::new(Roots::new(meta.last_index, tables)),
            watch: watch::Sender::new(Applied::default()),
            failure: watch::Sender::new(None),
            committing: Busy::new(),
            omission: Omission::from_environment(),
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
    ///
    /// After an error nothing is applied any more; after `Diverged`, nothing but what the voters have judged.
    pub(crate) fn apply(&self, batch: Vec<ApplyEntry>) -> Result<Vec<ApplyResult>, StorageError> {
        self.apply_as(batch, None)
    }

    /// As [`Self::apply`]. The voters have decided that this node's rows are right although entry `judged` contradicts them: it is
    /// applied if it fits, else it has no effect, which is so on every node of the majority.
    pub(crate) fn apply_judged(&self, batch: Vec<ApplyEntry>, judged: u64) -> Result<Vec<ApplyResult>, StorageError> {
        self.apply_as(batch, Some(judged))
    }

    fn apply_as(&self, batch: Vec<ApplyEntry>, judged: Option<u64>) -> Result<Vec<ApplyResult>, StorageError> {
        let mut writer = self.writer.lock();
        match writer.halt {
            Halt::Running => {}
            Halt::Contradicted if judged.is_some() => writer.halt = Halt::Running,
            Halt::Contradicted | Halt::Stopped => return Err(StorageError::Stopped),
        }
        let before = self.applied.lock().index;
        match self.apply_batch(&mut writer.connection, batch, judged) {
            Ok((meta, results)) => {
                self.publish(&meta);
                Ok(results)
            }
            Err(error) => {
                self.roots.lock().rewind(before);
                tracing::error!(%error, "apply failed");
                if matches!(error, StorageError::Diverged { .. }) {
                    writer.halt = Halt::Contradicted;
                } else {
                    writer.halt = Halt::Stopped;
                    self.fail(&error);
                }
                Err(error)
            }
        }
    }

    fn apply_batch(
        &self,
        connection: &mut Connection,
        batch: Vec<ApplyEntry>,
        judged: Option<u64>,
    ) -> Result<(Meta, Vec<ApplyResult>), StorageError> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut meta = Meta::read(&transaction)?;
        let mut results = Vec::with_capacity(batch.len());
        for ApplyEntry { term, index, payload } in batch {
            // Entries without data may follow a gap: openraft's own suite does that, and there is nothing in them to lose.
            if matches!(payload, Payload::Data(_)) && meta.last_index != 0 && index != meta.last_index + 1 {
                return Err(StorageError::Damaged { index, reason: format!("entry {} was expected", meta.last_index + 1) });
            }
            let effect = match payload {
                Payload::Blank => ApplyResult::ok(index).into(),
                Payload::Membership(membership) => {
                    meta.membership = membership;
                    ApplyResult::ok(index).into()
                }
                Payload::Data(bytes) => {
                    let entry = self.omission.spare(apply::decode(index, bytes)?);
                    if judged == Some(index) {
                        apply_if_it_fits(&transaction, &mut meta, term, index, &entry)?
                    } else {
                        compare(&self.roots, index, &entry)?;
                        apply::apply_entry(&transaction, &mut meta, term, index, &entry)?
                    }
                }
            };
            meta.last_term = term;
            meta.last_index = index;
            self.roots.lock().push(index, effect.hashes);
            results.push(effect.result);
        }
        meta.write(&transaction)?;
        self.committing.during(|| transaction.commit())?;
        Ok((meta, results))
    }

    /// Nothing is applied any more.
    pub(crate) fn halt(&self) {
        self.writer.lock().halt = Halt::Stopped;
    }

    /// What the next entry of a leader says about its tables.
    pub(crate) fn expect(&self) -> pb::Expect {
        let (index, root) = self.roots.lock().newest();
        pb::Expect { index, root: Bytes::copy_from_slice(&root.to_be_bytes()) }
    }

    /// This node's root at `index`; `None` = not applied yet, or too long ago.
    pub(crate) fn root_at(&self, index: u64) -> Option<u128> {
        self.roots.lock().at(index)
    }

    /// Hashes of all tables at `index`, as [`Self::root_at`].
    pub(crate) fn tables_at(&self, index: u64) -> Option<Tables> {
        self.roots.lock().tables_at(index)
    }

    /// What this node has to say when its tables at `at` are in doubt: if its rows do not even have its own hashes, the hashes of
    /// the rows, which count at the applied index. Reads every row; blocks.
    pub(crate) fn testify(&self, at: u64) -> Result<(u64, Tables), StorageError> {
        let writer = self.writer.lock();
        let rows = hash::recompute(&writer.connection)?;
        let roots = self.roots.lock();
        match roots.tables_at(at) {
            Some(tables) if rows == *roots.tables() => Ok((at, tables)),
            _ => Ok((roots.newest().0, rows)),
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

    /// A copy of everything as a file that does not exist yet; blocks, but not `apply`.
    pub(crate) fn copy_to(&self, file: &Path) -> Result<(), StorageError> {
        snapshot::copy(&self.path, file)
    }

    /// Whether `file` is what it is said to be, and its rows have the hashes stored in it. Reads every row; blocks.
    pub(crate) fn verify_snapshot(file: &Path, term: u64, index: u64) -> Result<(), StorageError> {
        snapshot::verify(file, term, index).map(drop)
    }

    /// Replaces the whole state by a received snapshot, whose bytes the caller has checked against their SHA-256; blocks.
    /// A refused file leaves everything as it was; an error while copying stops this state machine.
    pub(crate) fn install_snapshot(&self, file: &Path, term: u64, index: u64, membership: Vec<u8>) -> Result<(), StorageError> {
        let tables = snapshot::verify(file, term, index)?;
        let mut writer = self.writer.lock();
        if writer.halt != Halt::Running {
            return Err(StorageError::Stopped);
        }
        let outcome = snapshot::install(&mut writer.connection, file, membership);
        match outcome {
            Ok(meta) => {
                *self.roots.lock() = Roots::new(meta.last_index, tables);
                self.publish(&meta);
                Ok(())
            }
            Err(error) => {
                writer.halt = Halt::Stopped;
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

    /// From now on changes of `table` are left out on this node.
    #[cfg(test)]
    pub(crate) fn omit(&self, table: &str) {
        self.omission.set(table);
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

fn apply_if_it_fits(
    connection: &Connection,
    meta: &mut Meta,
    term: u64,
    index: u64,
    entry: &pb::LogEntry,
) -> Result<apply::Effect, StorageError> {
    match apply::apply_entry(connection, meta, term, index, entry) {
        Err(StorageError::Diverged { reason, .. }) => apply::refuse(connection, index, entry, &reason),
        applied => applied,
    }
}

/// What the leader's tables were when it computed the entry, and what they were here. An index that is no longer remembered, or was
/// applied before the last start, cannot be compared; a later entry tells.
fn compare(roots: &Mutex<Roots>, index: u64, entry: &pb::LogEntry) -> Result<(), StorageError> {
    let Some(expect) = &entry.expect else { return Ok(()) };
    let Ok(leaders) = <[u8; 16]>::try_from(&expect.root[..]).map(u128::from_be_bytes) else {
        return Err(StorageError::Damaged { index, reason: "the root of the leader's tables is no root".into() });
    };
    match roots.lock().at(expect.index) {
        Some(own) if own != leaders => {
            let reason = format!("at index {} the root of its tables was {own:032x}, the leader's {leaders:032x}", expect.index);
            Err(StorageError::Diverged { index, at: expect.index, reason })
        }
        _ => Ok(()),
    }
}

/// What `connection` knows about a request: its result, a refusal if it comes too late, or nothing.
pub(crate) fn known_result(connection: &Connection, index: u64, id: &RequestId) -> Result<Option<ApplyResult>, StorageError> {
    requests::lookup(connection, index, &id.client, id.seq)
}
