//! The Raft log: entries, vote and commit mark, durable before anybody is told so.
//!
//! ```text
//! openraft ─► LogStore ─► in-memory tail (readable at once) ─► queue ─► writer thread ─► Backend (sled | sqlite) ─► disk
//!                                                                           └─► callbacks, Progress (R2 waits for it)
//! ```
//! Writes of vote and log are strictly ordered: one queue, one thread. The newest 32 MiB are read from memory, older entries from
//! the backend. Any error is final for this node's part in consensus (S10).

mod backend;
#[cfg(debug_assertions)]
mod faults;
mod sled;
mod sqlite;
mod tail;
mod writer;

use std::{
    fmt::Debug,
    io,
    ops::{Bound, Range, RangeBounds},
    path::Path,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use openraft::{
    LogState, RaftLogReader,
    storage::{IOFlushed, RaftLogStorage},
};
use parking_lot::Mutex;
use prost::Message;
use quorumsql_proto::peer as pb;
use tokio::sync::watch;

#[cfg(test)]
pub(crate) use self::backend::Scanned;
use self::{
    backend::damaged,
    tail::State,
    writer::{Command, Writer},
};
pub(crate) use self::{
    backend::{Backend, BackendReader, MetaKey},
    writer::{Progress, WriterLoop},
};
use crate::{
    blocking,
    error::StartError,
    handle::{LogStatus, LogStoreKind},
    network::convert,
    type_config::{Entry, LogId, TypeConfig, Vote},
};

/// One read for replication returns at most this much, and at least one entry.
const READ_BYTES: usize = 1 << 20;
const FORMAT: &[u8] = b"1";

/// The log of this node. Clones are one log.
#[derive(Clone)]
pub(crate) struct LogStore {
    shared: Arc<Shared>,
    writer: Writer,
}

/// What to do about a log that cannot be read any more.
pub(crate) const REMEDY: &str = "; the log is damaged: remove this member (`quorumsql ctl remove ID` through another node), \
    set its data directory aside and join it again; a cluster's only voter is helped by `quorumsql raft-rebuild`";

/// Reads the log and the vote; any number of them.
#[derive(Clone)]
pub(crate) struct LogReader {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    older: Arc<dyn BackendReader>,
    progress: watch::Receiver<Progress>,
}

impl LogStore {
    /// Opens the log under `raft/`, verifying every entry (S8). `owner` must equal what an earlier open wrote.
    pub(crate) fn open(directory: &Path, kind: LogStoreKind, owner: &str) -> Result<Self, StartError> {
        let (sled, sqlite) = (directory.join("log"), directory.join("log.sqlite"));
        let (other, name) = match kind {
            LogStoreKind::Sled => (&sqlite, "sqlite"),
            LogStoreKind::Sqlite => (&sled, "sled"),
        };
        // A second, empty log would have forgotten this node's vote.
        if other.exists() {
            return Err(StartError::Options(format!("this node's raft log is {}: set [raft] log_store = \"{name}\"", other.display())));
        }
        let path = match kind {
            LogStoreKind::Sled => sled,
            LogStoreKind::Sqlite => sqlite,
        };
        let opened: io::Result<Box<dyn Backend>> = match kind {
            LogStoreKind::Sled => sled::SledBackend::open(&path).map(|backend| Box::new(backend) as _),
            LogStoreKind::Sqlite => sqlite::SqliteBackend::open(&path).map(|backend| Box::new(backend) as _),
        };
        let recover = |backend| {
            #[cfg(debug_assertions)]
            let backend = faults::wrap(backend, directory);
            Self::recover(backend, owner, WriterLoop::spawn)
        };
        opened.map_err(storage).and_then(recover).map_err(|error| at(&path, error))
    }

    /// Reads what `backend` holds; `run` makes the writer's loop run.
    pub(crate) fn recover(
        mut backend: Box<dyn Backend>,
        owner: &str,
        run: impl FnOnce(WriterLoop) -> io::Result<()>,
    ) -> Result<Self, StartError> {
        check_owner(backend.as_mut(), owner)?;
        let mut state = State::default();
        state.vote = read_meta::<pb::Vote>(backend.as_mut(), MetaKey::Vote)?.map(|vote| convert::vote_from(&vote));
        state.purged = read_meta::<pb::LogId>(backend.as_mut(), MetaKey::Purged)?.map(|id| convert::log_id_from(&id));
        state.committed = read_meta::<pb::LogId>(backend.as_mut(), MetaKey::Committed)?.map(|id| convert::log_id_from(&id));
        state.last = state.purged;
        load_entries(backend.as_mut(), &mut state)?;
        let flushed_below = state.end();
        let older = backend.reader();
        let (writer, writes) = Writer::new(backend, flushed_below);
        run(writes).map_err(storage)?;
        let shared = Shared { state: Mutex::new(state), older, progress: writer.progress() };
        Ok(Self { shared: Arc::new(shared), writer })
    }

    /// How far the log is durable, for R2 and for the supervisor.
    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.writer.progress()
    }

    /// For how long the durable point under way has lasted (S11).
    pub(crate) fn busy_for(&self) -> Duration {
        self.writer.busy_for()
    }

    /// Size of the entries that are not purged.
    pub(crate) fn bytes(&self) -> usize {
        self.shared.state.lock().log_bytes()
    }

    /// Up to which index the log should be purged, given what a snapshot holds: what is older than the newest 32 MiB.
    pub(crate) fn surplus(&self, snapshot: u64) -> Option<u64> {
        self.shared.state.lock().surplus(snapshot)
    }

    /// Size and health, for metrics.
    pub(crate) fn status(&self) -> LogStatus {
        let progress = self.shared.progress.borrow().clone();
        let state = self.shared.state.lock();
        LogStatus {
            bytes: state.log_bytes(),
            unflushed_entries: state.end().saturating_sub(progress.flushed_below),
            strays: progress.strays,
        }
    }

    /// The last log id, if any entry was ever appended or installed.
    pub(crate) fn last(&self) -> Option<LogId> {
        self.shared.state.lock().last
    }

    /// Waits until everything is durable and ends the writer.
    pub(crate) async fn close(&self) -> io::Result<()> {
        self.writer.call(|done| Command::Close { done }).await
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let state = self.shared.state.lock();
        Ok(LogState { last_purged_log_id: state.purged, last_log_id: state.last })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        LogReader { shared: self.shared.clone() }
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let value = convert::vote_to(vote).encode_to_vec();
        self.writer.call(|done| Command::Meta { key: MetaKey::Vote, value, done }).await?;
        self.shared.state.lock().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        let Some(committed) = committed else { return Ok(()) };
        self.shared.state.lock().committed = Some(committed);
        self.writer.send(Command::Committed { value: convert::log_id_to(&committed).encode_to_vec() }).await
    }

    /// Never beyond what the log holds (R3): the mark is not flushed with the entries that it names.
    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        let state = self.shared.state.lock();
        Ok(state.committed.min(state.last))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let encode = |entry: Entry| {
            let bytes: Bytes = convert::entry_to(&entry).encode_to_vec().into();
            (entry, bytes)
        };
        let entries: Vec<_> = entries.into_iter().map(encode).collect();
        let Some(last) = entries.last().map(|(entry, _)| entry.log_id.index) else {
            callback.io_completed(Ok(()));
            return Ok(());
        };
        let room = self.writer.room(entries.iter().map(|(_, bytes)| bytes.len()).sum()).await?;
        let mut rows = Vec::with_capacity(entries.len());
        {
            let mut state = self.shared.state.lock();
            for (entry, bytes) in entries {
                rows.push((entry.log_id.index, bytes.clone()));
                state.push(entry, bytes.len());
            }
            let flushed_below = self.shared.progress.borrow().flushed_below;
            state.evict(flushed_below);
        }
        self.writer.send(Command::Append { entries: rows, last, callback, room }).await
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let after = last_log_id.map(|id| id.index);
        self.shared.state.lock().truncate(last_log_id);
        self.writer.call(|done| Command::Truncate { after, done }).await
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        let mark = convert::log_id_to(&log_id).encode_to_vec();
        self.shared.state.lock().purge(log_id);
        self.writer.call(|done| Command::Purge { mark, index: log_id.index, done }).await
    }
}

impl RaftLogReader<TypeConfig> for LogReader {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(&mut self, range: RB) -> Result<Vec<Entry>, io::Error> {
        self.read(bounds(&range), usize::MAX).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.shared.state.lock().vote)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        self.read(start..end, READ_BYTES).await
    }
}

impl LogReader {
    /// Everything that the log holds of `wanted`; with a limit, at least one entry and then whole entries up to it.
    async fn read(&self, wanted: Range<u64>, max_bytes: usize) -> io::Result<Vec<Entry>> {
        let (older, newer) = {
            let state = self.shared.state.lock();
            let range = wanted.start.max(state.first())..wanted.end.min(state.end());
            let boundary = state.tail_start().clamp(range.start, range.end.max(range.start));
            (range.start..boundary, state.take(boundary..range.end, max_bytes))
        };
        if older.is_empty() {
            return Ok(newer);
        }
        let reader = self.shared.older.clone();
        let (mut entries, complete) = blocking::run(move || read_older(reader.as_ref(), older, max_bytes)).await??;
        if complete && max_bytes == usize::MAX {
            entries.extend(newer);
        }
        match entries.windows(2).find(|pair| pair[0].log_id.index + 1 != pair[1].log_id.index) {
            Some(pair) => Err(damaged(format!("no entry after index {}", pair[0].log_id.index))),
            None => Ok(entries),
        }
    }
}

/// Entries from the backend, in steps, until the limit; `true` = the whole range.
fn read_older(reader: &dyn BackendReader, range: Range<u64>, max_bytes: usize) -> io::Result<(Vec<Entry>, bool)> {
    const STEP: u64 = 256;
    let (mut entries, mut size, mut from) = (Vec::new(), 0, range.start);
    while from < range.end {
        let to = range.end.min(from + STEP);
        for (index, bytes) in reader.read(from..to)? {
            if size + bytes.len() > max_bytes && !entries.is_empty() {
                return Ok((entries, false));
            }
            size += bytes.len();
            entries.push(decode_entry(&bytes, index).map_err(damaged)?);
        }
        from = to;
    }
    Ok((entries, true))
}

fn decode_entry(bytes: &[u8], index: u64) -> Result<Entry, String> {
    let entry = pb::Entry::decode(bytes).map_err(|e| e.to_string())?;
    let entry = convert::entry_from(entry).map_err(|e| e.to_string())?;
    if entry.log_id.index == index { Ok(entry) } else { Err(format!("holds entry {}", entry.log_id.index)) }
}

fn bounds(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}

fn read_meta<M: Message + Default>(backend: &mut dyn Backend, key: MetaKey) -> Result<Option<M>, StartError> {
    let Some(bytes) = backend.meta(key).map_err(storage)? else { return Ok(None) };
    M::decode(&bytes[..]).map(Some).map_err(|e| StartError::Storage(format!("raft log, {}: {e}", key.name())))
}

/// Reads every entry after the purged mark, keeping the newest in memory. Only the last one may be damaged: its write was under way
/// when the node died, so it was never acknowledged, and it is removed (S8).
fn load_entries(backend: &mut dyn Backend, state: &mut State) -> Result<(), StartError> {
    // A log that was never purged begins where its first entry was put.
    let mut expected = state.purged.map(|id| id.index + 1);
    let mut wrong: Option<(u64, String)> = None;
    let mut refused = None;
    let from = state.first();
    let scanned = backend.scan(from, &mut |row| {
        let index = *expected.get_or_insert(row.index);
        if refused.is_some() {
            return;
        }
        if wrong.is_some() || row.index != index {
            // Something follows what is damaged or missing.
            refused = Some(wrong.take().unwrap_or_else(|| (index, "missing".to_owned())));
            return;
        }
        match row.bytes.and_then(|bytes| decode_entry(&bytes, index).map(|entry| (entry, bytes.len()))) {
            Ok((entry, bytes)) => {
                state.push(entry, bytes);
                state.evict(u64::MAX);
            }
            Err(reason) => wrong = Some((index, reason)),
        }
        expected = Some(index + 1);
    });
    scanned.map_err(storage)?;
    if let Some((index, reason)) = refused {
        return Err(StartError::LogDamaged { index, reason });
    }
    if let Some((index, reason)) = wrong {
        tracing::warn!(index, reason, "raft log: the last entry is incomplete and removed");
        backend.truncate_after(index.checked_sub(1)).and_then(|()| backend.sync()).map_err(storage)?;
    }
    Ok(())
}

/// A log belongs to one node of one cluster for ever.
fn check_owner(backend: &mut dyn Backend, owner: &str) -> Result<(), StartError> {
    match backend.meta(MetaKey::Format).map_err(storage)? {
        None => {
            backend.put_meta(MetaKey::Format, FORMAT).map_err(storage)?;
            backend.put_meta(MetaKey::Identity, owner.as_bytes()).map_err(storage)?;
            backend.sync().map_err(storage)
        }
        Some(format) if format != FORMAT => {
            Err(StartError::Storage(format!("raft log has format {}, this build knows 1", String::from_utf8_lossy(&format))))
        }
        Some(_) => match backend.meta(MetaKey::Identity).map_err(storage)? {
            Some(found) if found == owner.as_bytes() => Ok(()),
            found => Err(StartError::Identity(format!(
                "the raft log belongs to {}, this node is {owner}",
                found.map_or_else(|| "nobody".into(), |found| String::from_utf8_lossy(&found).into_owned())
            ))),
        },
    }
}

fn storage(e: io::Error) -> StartError {
    let remedy = if e.kind() == io::ErrorKind::InvalidData { REMEDY } else { "" };
    StartError::Storage(format!("raft log: {e}{remedy}"))
}

/// The same error with the place of the log.
fn at(path: &Path, error: StartError) -> StartError {
    match error {
        StartError::Storage(text) => StartError::Storage(format!("{}: {text}", path.display())),
        StartError::LogDamaged { index, reason } => StartError::LogDamaged { index, reason: format!("{reason} in {}", path.display()) },
        other => other,
    }
}

#[cfg(test)]
mod tests;
