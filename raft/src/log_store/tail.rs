//! What the log store keeps in memory: the marks, and the newest entries.

use std::{collections::BTreeMap, ops::Range};

use crate::type_config::{Entry, LogId, Vote};

/// Entries kept in memory, by size of their encoding (S9).
const TAIL_BYTES: usize = 32 << 20;

#[derive(Default)]
pub(super) struct State {
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
    pub(super) purged: Option<LogId>,
    pub(super) last: Option<LogId>,
    tail: BTreeMap<u64, InMemory>,
    tail_bytes: usize,
    /// Of the entries that left the tail and are not purged.
    older_bytes: usize,
}

struct InMemory {
    entry: Entry,
    bytes: usize,
}

impl State {
    /// Index of the first entry that may exist.
    pub(super) fn first(&self) -> u64 {
        self.purged.map_or(0, |id| id.index + 1)
    }

    /// Index after the last entry.
    pub(super) fn end(&self) -> u64 {
        self.last.map_or(0, |id| id.index + 1)
    }

    /// First index that is in memory; the end of the log when none is.
    pub(super) fn tail_start(&self) -> u64 {
        self.tail.keys().next().copied().unwrap_or_else(|| self.end())
    }

    pub(super) fn log_bytes(&self) -> usize {
        self.tail_bytes + self.older_bytes
    }

    pub(super) fn push(&mut self, entry: Entry, bytes: usize) {
        self.last = Some(entry.log_id);
        self.tail_bytes += bytes;
        self.tail.insert(entry.log_id.index, InMemory { entry, bytes });
    }

    /// Forgets the oldest entries over the limit, only such as are durable: those can be read from the backend.
    pub(super) fn evict(&mut self, flushed_below: u64) {
        while self.tail_bytes > TAIL_BYTES {
            let Some(first) = self.tail.first_entry().filter(|first| *first.key() < flushed_below) else { return };
            let bytes = first.remove().bytes;
            self.tail_bytes -= bytes;
            self.older_bytes += bytes;
        }
    }

    pub(super) fn truncate(&mut self, last: Option<LogId>) {
        let removed = self.tail.split_off(&last.map_or(0, |id| id.index + 1));
        self.tail_bytes -= removed.values().map(|row| row.bytes).sum::<usize>();
        // A position after the end removes nothing.
        if last.map(|id| id.index) < self.last.map(|id| id.index) {
            self.last = last.max(self.purged);
        }
    }

    pub(super) fn purge(&mut self, purged: LogId) {
        let tail_start = self.tail_start();
        let (first, next) = (self.first(), purged.index + 1);
        self.older_bytes = match tail_start.saturating_sub(first) {
            older if next < tail_start && older > 0 => self.older_bytes / older as usize * (tail_start - next) as usize,
            _ => 0,
        };
        let kept = self.tail.split_off(&next);
        self.tail = kept;
        self.tail_bytes = self.tail.values().map(|row| row.bytes).sum();
        self.purged = self.purged.max(Some(purged));
        self.last = self.last.max(Some(purged));
    }

    /// Entries of `range` that are in memory: whole entries up to the limit, at least one.
    pub(super) fn take(&self, range: Range<u64>, max_bytes: usize) -> Vec<Entry> {
        let (mut taken, mut size) = (Vec::new(), 0);
        if range.is_empty() {
            return taken;
        }
        for row in self.tail.range(range).map(|(_, row)| row) {
            size += row.bytes;
            if size > max_bytes && !taken.is_empty() {
                break;
            }
            taken.push(row.entry.clone());
        }
        taken
    }
}
