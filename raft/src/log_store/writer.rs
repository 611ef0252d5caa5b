//! The one thread that writes the log: it drains its queue, writes all, makes one durable point, answers all (S3, S4).

use std::{io, sync::Arc, thread, time::Duration};

use bytes::Bytes;
use openraft::storage::IOFlushed;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use super::backend::{Backend, MetaKey};
use crate::{busy::Busy, type_config::TypeConfig};

/// Commands that may wait; a full queue makes openraft wait.
const QUEUE: usize = 1024;
/// Bytes of entries that may wait to be durable; more make openraft wait.
const QUEUE_BYTES: usize = 64 << 20;
/// Commands answered by one durable point.
const BATCH: usize = 512;

/// Where the answer to a command goes.
pub(crate) type Done = oneshot::Sender<io::Result<()>>;

/// A share of the bytes that may wait.
pub(crate) type Room = OwnedSemaphorePermit;

pub(crate) enum Command {
    Append {
        entries: Vec<(u64, Bytes)>,
        last: u64,
        callback: IOFlushed<TypeConfig>,
        /// Given back when it is answered.
        room: Room,
    },
    Truncate {
        after: Option<u64>,
        done: Done,
    },
    Purge {
        mark: Vec<u8>,
        index: u64,
        done: Done,
    },
    Meta {
        key: MetaKey,
        value: Vec<u8>,
        done: Done,
    },
    /// Written in order, but nobody waits for it (R3).
    Committed {
        value: Vec<u8>,
    },
    Close {
        done: Done,
    },
}

/// How far the log is durable; an error is for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// All entries below this index are durable.
    pub(crate) flushed_below: u64,
    /// Why the writer has stopped.
    pub(crate) failed: Option<String>,
    /// Files found beside the log that should not exist (S6).
    pub(crate) strays: usize,
}

/// The sending end of the writer's queue.
#[derive(Clone)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Command>,
    room: Arc<Semaphore>,
    progress: watch::Receiver<Progress>,
    busy: Arc<Busy>,
}

impl Writer {
    /// A queue and the loop that empties it, which the caller makes run.
    pub(crate) fn new(backend: Box<dyn Backend>, flushed_below: u64) -> (Self, WriterLoop) {
        let (queue, commands) = mpsc::channel(QUEUE);
        let (published, progress) = watch::channel(Progress { flushed_below, ..Progress::default() });
        let busy = Busy::new();
        let writes = WriterLoop { backend, commands, progress: published, busy: busy.clone() };
        (Self { queue, room: Arc::new(Semaphore::new(QUEUE_BYTES)), progress, busy }, writes)
    }

    /// Waits until entries of this size may enter the queue; one that is larger than the queue enters an empty one.
    pub(crate) async fn room(&self, bytes: usize) -> io::Result<Room> {
        let share = u32::try_from(bytes.min(QUEUE_BYTES)).unwrap_or(u32::MAX);
        self.room.clone().acquire_many_owned(share).await.map_err(io::Error::other)
    }

    pub(crate) async fn send(&self, command: Command) -> io::Result<()> {
        self.queue.send(command).await.map_err(|_| io::Error::other("the log writer has stopped"))
    }

    /// Sends what `command` makes and waits until it is durable.
    pub(crate) async fn call(&self, command: impl FnOnce(Done) -> Command) -> io::Result<()> {
        let (done, answer) = oneshot::channel();
        self.send(command(done)).await?;
        answer.await.map_err(|_| io::Error::other("the log writer has stopped"))?
    }

    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// For how long the current durable point has been under way (S11).
    pub(crate) fn busy_for(&self) -> Duration {
        self.busy.elapsed()
    }
}

/// The receiving end: the only one that writes.
pub(crate) struct WriterLoop {
    backend: Box<dyn Backend>,
    pub(crate) commands: mpsc::Receiver<Command>,
    progress: watch::Sender<Progress>,
    busy: Arc<Busy>,
}

impl WriterLoop {
    /// Runs it on a thread of its own.
    pub(crate) fn spawn(self) -> io::Result<()> {
        thread::Builder::new().name("raft-log".into()).spawn(move || self.run()).map(drop)
    }

    fn run(mut self) {
        let mut failed: Option<String> = None;
        while let Some(first) = self.commands.blocking_recv() {
            let mut batch = vec![first];
            while batch.len() < BATCH {
                let Ok(next) = self.commands.try_recv() else { break };
                batch.push(next);
            }
            let result = match &failed {
                Some(reason) => Err(io::Error::other(reason.clone())),
                None => self.busy.clone().during(|| self.write(&batch)),
            };
            if let (Err(e), None) = (&result, &failed) {
                tracing::error!(error = %e, "raft log: storage error, this node takes no part in consensus any more");
                failed = Some(e.to_string());
                self.progress.send_modify(|progress| progress.failed = Some(e.to_string()));
            }
            if self.answer(batch, &result) {
                return;
            }
        }
    }

    fn write(&mut self, batch: &[Command]) -> io::Result<()> {
        let _span = tracing::info_span!("raft.append", raft.commands = batch.len()).entered();
        let purge = self.stage(batch)?;
        self.sync(purge)
    }

    /// Hands a batch to the backend, in order; returns up to where it purges.
    pub(crate) fn stage(&mut self, batch: &[Command]) -> io::Result<Option<u64>> {
        let mut purge = None;
        for command in batch {
            match command {
                Command::Append { entries, .. } => self.backend.append(entries)?,
                Command::Truncate { after, .. } => self.backend.truncate_after(*after)?,
                Command::Purge { mark, index, .. } => {
                    self.backend.put_meta(MetaKey::Purged, mark)?;
                    purge = purge.max(Some(*index));
                }
                Command::Meta { key, value, .. } => self.backend.put_meta(*key, value)?,
                Command::Committed { value } => self.backend.put_meta(MetaKey::Committed, value)?,
                Command::Close { .. } => {}
            }
        }
        Ok(purge)
    }

    /// Makes what was staged durable.
    pub(crate) fn sync(&mut self, purge: Option<u64>) -> io::Result<()> {
        self.backend.sync()?;
        // Rows go only after the mark that hides them is durable; when they come back after a crash, it still does.
        if let Some(index) = purge {
            self.backend.purge(index)?;
            let strays = self.backend.sync_strays()?;
            self.progress.send_if_modified(|progress| std::mem::replace(&mut progress.strays, strays) != strays);
            self.backend.sync()?;
        }
        Ok(())
    }

    /// Answers every command; `true` = closed.
    pub(crate) fn answer(&self, batch: Vec<Command>, result: &io::Result<()>) -> bool {
        let copy = || match result {
            Ok(()) => Ok(()),
            Err(e) => Err(io::Error::new(e.kind(), e.to_string())),
        };
        if result.is_ok() {
            self.progress.send_modify(|progress| progress.flushed_below = flushed_below(progress.flushed_below, &batch));
        }
        let mut closed = false;
        for command in batch {
            match command {
                Command::Append { callback, room, .. } => {
                    drop(room);
                    callback.io_completed(copy());
                }
                Command::Truncate { done, .. } | Command::Purge { done, .. } | Command::Meta { done, .. } => drop(done.send(copy())),
                Command::Committed { .. } => {}
                Command::Close { done } => {
                    closed = true;
                    drop(done.send(copy()));
                }
            }
        }
        closed
    }
}

/// The durable end of the log after a batch.
fn flushed_below(before: u64, batch: &[Command]) -> u64 {
    batch.iter().fold(before, |below, command| match command {
        Command::Append { last, .. } => below.max(last + 1),
        Command::Truncate { after, .. } => below.min(after.map_or(0, |after| after + 1)),
        Command::Purge { index, .. } => below.max(index + 1),
        Command::Meta { .. } | Command::Committed { .. } | Command::Close { .. } => below,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        ops::Range,
        sync::atomic::{AtomicBool, Ordering},
    };

    use super::{
        super::backend::{BackendReader, Scanned},
        *,
    };

    /// Fails its durable points once it is told to.
    #[derive(Clone, Default)]
    struct Failing {
        broken: Arc<AtomicBool>,
    }

    impl Backend for Failing {
        fn append(&mut self, _: &[(u64, Bytes)]) -> io::Result<()> {
            Ok(())
        }
        fn truncate_after(&mut self, _: Option<u64>) -> io::Result<()> {
            Ok(())
        }
        fn purge(&mut self, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn put_meta(&mut self, _: MetaKey, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
        fn sync(&mut self) -> io::Result<()> {
            if self.broken.load(Ordering::SeqCst) { Err(io::Error::other("no space")) } else { Ok(()) }
        }
        fn meta(&mut self, _: MetaKey) -> io::Result<Option<Vec<u8>>> {
            Ok(None)
        }
        fn scan(&mut self, _: u64, _: &mut dyn FnMut(Scanned)) -> io::Result<()> {
            Ok(())
        }
        fn reader(&self) -> Arc<dyn BackendReader> {
            Arc::new(self.clone())
        }
    }

    impl BackendReader for Failing {
        fn read(&self, _: Range<u64>) -> io::Result<Vec<(u64, Vec<u8>)>> {
            Ok(Vec::new())
        }
    }

    #[tokio::test]
    async fn an_error_is_final_even_if_the_disk_recovers() {
        let disk = Failing::default();
        let (writer, writes) = Writer::new(Box::new(disk.clone()), 5);
        writes.spawn().unwrap();
        let vote = |done| Command::Meta { key: MetaKey::Vote, value: vec![1], done };
        writer.call(vote).await.unwrap();
        disk.broken.store(true, Ordering::SeqCst);
        assert!(writer.call(vote).await.is_err());
        disk.broken.store(false, Ordering::SeqCst);
        assert!(writer.call(vote).await.is_err());
        let progress = writer.progress().borrow().clone();
        assert_eq!(progress, Progress { flushed_below: 5, failed: Some("no space".into()), strays: 0 });
    }

    #[test]
    fn the_durable_end_follows_appends_truncations_and_purges() {
        let done = || oneshot::channel().0;
        let room = || Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let append = |last| Command::Append { entries: Vec::new(), last, callback: IOFlushed::noop(), room: room() };
        assert_eq!(flushed_below(0, &[append(9)]), 10);
        assert_eq!(flushed_below(10, &[Command::Truncate { after: Some(3), done: done() }, append(4)]), 5);
        assert_eq!(flushed_below(10, &[Command::Truncate { after: None, done: done() }]), 0);
        assert_eq!(flushed_below(10, &[Command::Purge { mark: Vec::new(), index: 99, done: done() }]), 100);
    }
}
