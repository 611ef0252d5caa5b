//! The replicated state: one SQLite file, changed only by applied entries (raft-and-storage.md section 4).
//!
//! Pure with respect to consensus: no openraft, no clock, no randomness. Equal entries in equal order give equal rows,
//! hashes and results on every node. `apply` is the only writer that commits; the proposer speculates on its own
//! connection under the same writer lock and always rolls back.

mod error;
mod result;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use tokio::sync::watch;

use crate::command::Applied;

pub(crate) use error::StorageError;
pub(crate) use result::{ApplyOutcome, ApplyResult};

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
#[derive(Debug)]
pub(crate) struct StateMachine {
    watch: watch::Sender<Applied>,
}

impl StateMachine {
    /// Opens or creates `state.db` at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, StorageError> {
        let _ = path;
        Err(StorageError::Stopped)
    }

    /// Term, index and membership of what is applied. Cheap.
    pub(crate) fn applied(&self) -> AppliedState {
        AppliedState::default()
    }

    /// Applies entries in one transaction; blocks. The caller has waited until its own log holds them durably (R2).
    /// After an error nothing is applied any more.
    pub(crate) fn apply(&self, batch: Vec<ApplyEntry>) -> Result<Vec<ApplyResult>, StorageError> {
        let _ = batch;
        Err(StorageError::Stopped)
    }

    /// Writes a snapshot into `dir` and keeps the newest two there; blocks, but not `apply`.
    pub(crate) fn build_snapshot(&self, dir: &Path) -> Result<SnapshotFile, StorageError> {
        let _ = dir;
        Err(StorageError::Stopped)
    }

    /// Replaces the whole state by a received snapshot; blocks.
    pub(crate) fn install_snapshot(&self, file: &Path, term: u64, index: u64, membership: Vec<u8>) -> Result<(), StorageError> {
        let _ = (file, term, index, membership);
        Err(StorageError::Stopped)
    }

    /// Published after each applied batch and each installed snapshot.
    pub(crate) fn watch(&self) -> watch::Receiver<Applied> {
        self.watch.subscribe()
    }
}
