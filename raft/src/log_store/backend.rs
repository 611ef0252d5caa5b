//! What a store must do to hold the log, and how an entry is cut into rows.
//!
//! All calls that change something come from the one writer thread; a backend never flushes by itself.

use std::{io, ops::Range, sync::Arc};

/// A key of the small values beside the entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MetaKey {
    /// Last vote.
    Vote,
    /// Last purged log id.
    Purged,
    /// Last known committed log id.
    Committed,
    /// Format of the store: 1.
    Format,
    /// Cluster, node and incarnation to which the log belongs.
    Identity,
}

impl MetaKey {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Vote => "vote",
            Self::Purged => "purged",
            Self::Committed => "committed",
            Self::Format => "format",
            Self::Identity => "identity",
        }
    }
}

/// An entry found at open.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Scanned {
    pub(crate) index: u64,
    /// The encoded entry, or what is wrong with it.
    pub(crate) bytes: Result<Vec<u8>, String>,
}

/// Holds entries by index. Errors are final: the caller stops at the first one.
pub(crate) trait Backend: Send {
    /// Adds entries in order.
    fn append(&mut self, entries: &[(u64, bytes::Bytes)]) -> io::Result<()>;

    /// Removes all entries after `index`, the last one first; `None` removes all.
    fn truncate_after(&mut self, index: Option<u64>) -> io::Result<()>;

    /// Removes all entries up to `index`. They may come back after a crash: the durable `purged` mark hides them.
    fn purge(&mut self, index: u64) -> io::Result<()>;

    /// Sets a small value.
    fn put_meta(&mut self, key: MetaKey, value: &[u8]) -> io::Result<()>;

    /// Makes everything before it durable.
    fn sync(&mut self) -> io::Result<()>;

    /// Reads a small value; one that fails its checksum is an error.
    fn meta(&mut self, key: MetaKey) -> io::Result<Option<Vec<u8>>>;

    /// Shows all entries from `from` on, in order, intact or not, one at a time: a log may be larger than memory should hold.
    fn scan(&mut self, from: u64, visit: &mut dyn FnMut(Scanned)) -> io::Result<()>;

    /// Makes files durable that the store wrote outside of what [`Self::sync`] covers, and counts them: none is expected (S6).
    fn sync_strays(&mut self) -> io::Result<usize> {
        Ok(0)
    }

    /// A handle for readers on other threads.
    fn reader(&self) -> Arc<dyn BackendReader>;
}

/// Reads entries that are no longer in memory.
pub(crate) trait BackendReader: Send + Sync {
    /// The intact entries of `range`, in order.
    fn read(&self, range: Range<u64>) -> io::Result<Vec<(u64, Vec<u8>)>>;
}

/// CRC32 before the value.
pub(crate) fn seal(value: &[u8]) -> Vec<u8> {
    let mut sealed = crc32fast::hash(value).to_be_bytes().to_vec();
    sealed.extend_from_slice(value);
    sealed
}

/// The value, if its CRC32 is right.
pub(crate) fn unseal(sealed: &[u8]) -> Option<&[u8]> {
    let (crc, value) = sealed.split_first_chunk::<4>()?;
    (crc32fast::hash(value) == u32::from_be_bytes(*crc)).then_some(value)
}

pub(crate) fn damaged(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}
