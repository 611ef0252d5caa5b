//! Failures that end this node's part in consensus. Logical failures of an entry are results, never these.

use std::io;

/// The state machine cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StorageError {
    /// SQLite failed.
    #[error("state.db: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A file operation around snapshots failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// An entry cannot be read; the process must stop (exit 78).
    #[error("entry {index} needs feature level {needed}, this build knows {known}")]
    FeatureLevel {
        /// Its index.
        index: u64,
        /// Level it asks for.
        needed: u32,
        /// Level of this build.
        known: u32,
    },
    /// An entry does not decode, or names what cannot be; the process must stop (exit 78).
    #[error("entry {index} is damaged: {reason}")]
    Damaged {
        /// Its index.
        index: u64,
        /// What is wrong.
        reason: String,
    },
    /// The rows of this node are not those on which the leader computed the entry: divergence. The voters decide who is wrong.
    #[error("entry {index} does not fit this node's rows: {reason}")]
    Diverged {
        /// Its index.
        index: u64,
        /// The index at which the leader's tables are known, or taken, to differ.
        at: u64,
        /// What differs.
        reason: String,
    },
    /// The rows in `state.db` are not those that were applied: somebody else, or the disk, has changed them.
    #[error("state.db at index {index}: the rows do not have the hashes stored with them: {differences}")]
    Altered {
        /// Applied index of the file.
        index: u64,
        /// Which tables, and how.
        differences: String,
    },
    /// A snapshot or `state.db` is not what it says it is.
    #[error("{0}")]
    Refused(String),
    /// An earlier error; nothing is applied after it.
    #[error("state machine stopped after an earlier error")]
    Stopped,
}

impl StorageError {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }

    /// Whether SQLite could not read or write the file, or found it damaged. A full disk is not among them: SQLite says so too when
    /// an AUTOINCREMENT key has reached its end.
    pub(crate) fn is_broken_file(&self) -> bool {
        use rusqlite::ErrorCode::{CannotOpen, DatabaseCorrupt, NotADatabase, SystemIoFailure};
        let Self::Sqlite(error) = self else { return false };
        matches!(error.sqlite_error_code(), Some(SystemIoFailure | DatabaseCorrupt | NotADatabase | CannotOpen))
    }

    /// An entry that does not decode is one of a newer build, as far as this one can tell.
    pub(crate) fn newer(index: u64, needed: u32) -> Self {
        Self::FeatureLevel { index, needed, known: super::FEATURE_LEVEL }
    }

    /// Whether the process has to exit with 78 because it can't understand the log.
    pub(crate) fn is_undecodable(&self) -> bool {
        matches!(self, Self::FeatureLevel { .. } | Self::Damaged { .. })
    }
}
