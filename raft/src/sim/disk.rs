//! The disk under a simulated log: what was written is durable only after a flush, which takes time on the simulated clock. A crash
//! keeps a beginning of what was written since.

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;

use super::dice::Dice;
use crate::log_store::{Backend, BackendReader, MetaKey, Scanned, WriterLoop};

/// What survives a crash of the writes that were not flushed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tail {
    Dropped,
    /// Any number of them, in order.
    SomeKept,
}

/// Outlives the processes that write it. Clones are one disk.
#[derive(Clone)]
pub(crate) struct Disk(Arc<Inner>);

struct Inner {
    content: Mutex<Content>,
    flush: Mutex<Range<Duration>>,
    /// The mutant: says that it has flushed, and then flushes.
    lies: AtomicBool,
    dice: Dice,
}

#[derive(Default)]
struct Content {
    entries: BTreeMap<u64, Bytes>,
    meta: BTreeMap<&'static str, Vec<u8>>,
    unflushed: Vec<Write>,
}

enum Write {
    Entry(u64, Bytes),
    Truncate(Option<u64>),
    Purge(u64),
    Meta(MetaKey, Vec<u8>),
}

impl Content {
    fn settle(&mut self, count: usize) {
        for write in self.unflushed.drain(..count) {
            match write {
                Write::Entry(index, bytes) => drop(self.entries.insert(index, bytes)),
                Write::Truncate(after) => drop(self.entries.split_off(&after.map_or(0, |after| after + 1))),
                Write::Purge(index) => self.entries = self.entries.split_off(&(index + 1)),
                Write::Meta(key, value) => drop(self.meta.insert(key.name(), value)),
            }
        }
    }
}

impl Disk {
    pub(crate) fn new(dice: Dice, flush: Range<Duration>) -> Self {
        let inner = Inner { content: Mutex::default(), flush: Mutex::new(flush), lies: AtomicBool::new(false), dice };
        Self(Arc::new(inner))
    }

    pub(crate) fn flushes_within(&self, flush: Range<Duration>) {
        *self.0.flush.lock() = flush;
    }

    pub(crate) fn lies(&self) {
        self.0.lies.store(true, Ordering::Relaxed);
    }

    /// The process that wrote is dead; how many writes were lost.
    pub(crate) fn crash(&self, tail: Tail) -> usize {
        let mut content = self.0.content.lock();
        let unflushed = content.unflushed.len();
        let kept = match tail {
            Tail::Dropped => 0,
            Tail::SomeKept => usize::try_from(self.0.dice.below(unflushed as u64 + 1)).expect("fits"),
        };
        content.settle(kept);
        content.unflushed.clear();
        unflushed - kept
    }

    /// Index after the last durable entry.
    pub(crate) fn durable_below(&self) -> u64 {
        self.0.content.lock().entries.keys().next_back().map_or(0, |last| last + 1)
    }

    /// The log writer's task: as its thread, but flushing takes simulated time.
    pub(crate) async fn write(self, mut writes: WriterLoop) {
        while let Some(first) = writes.commands.recv().await {
            let mut batch = vec![first];
            while let Ok(next) = writes.commands.try_recv() {
                batch.push(next);
            }
            let purge = writes.stage(&batch).expect("this disk has no errors");
            let flush = self.0.dice.in_range(&self.0.flush.lock());
            if self.0.lies.load(Ordering::Relaxed) {
                writes.answer(std::mem::take(&mut batch), &Ok(()));
            }
            tokio::time::sleep(flush).await;
            writes.sync(purge).expect("this disk has no errors");
            if writes.answer(batch, &Ok(())) {
                return;
            }
        }
    }
}

impl Backend for Disk {
    fn append(&mut self, entries: &[(u64, Bytes)]) -> io::Result<()> {
        let writes = entries.iter().map(|(index, bytes)| Write::Entry(*index, bytes.clone()));
        self.0.content.lock().unflushed.extend(writes);
        Ok(())
    }

    fn truncate_after(&mut self, index: Option<u64>) -> io::Result<()> {
        self.0.content.lock().unflushed.push(Write::Truncate(index));
        Ok(())
    }

    fn purge(&mut self, index: u64) -> io::Result<()> {
        self.0.content.lock().unflushed.push(Write::Purge(index));
        Ok(())
    }

    fn put_meta(&mut self, key: MetaKey, value: &[u8]) -> io::Result<()> {
        self.0.content.lock().unflushed.push(Write::Meta(key, value.to_vec()));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut content = self.0.content.lock();
        let all = content.unflushed.len();
        content.settle(all);
        Ok(())
    }

    fn meta(&mut self, key: MetaKey) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.content.lock().meta.get(key.name()).cloned())
    }

    fn scan(&mut self, from: u64, visit: &mut dyn FnMut(Scanned)) -> io::Result<()> {
        let content = self.0.content.lock();
        content.entries.range(from..).for_each(|(index, bytes)| visit(Scanned { index: *index, bytes: Ok(bytes.to_vec()) }));
        Ok(())
    }

    fn reader(&self) -> Arc<dyn BackendReader> {
        Arc::new(self.clone())
    }
}

impl BackendReader for Disk {
    fn read(&self, range: Range<u64>) -> io::Result<Vec<(u64, Vec<u8>)>> {
        Ok(self.0.content.lock().entries.range(range).map(|(index, bytes)| (*index, bytes.to_vec())).collect())
    }
}
