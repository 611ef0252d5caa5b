//! What the log store keeps in memory: the marks, and the newest entries.

use std::{collections::BTreeMap, ops::Range};

use crate::type_config::{Entry, LogId, Vote};

/// Entries kept in memory, by size of their encoding (S9).
const TAIL_BYTES: usize = 32 << 20;
/// So many entries are never purged for their size: a follower that is a little behind needs no snapshot.
const MIN_KEPT: u64 = 256;

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

    /// Last index of what lies before the newest 32 MiB and 256 entries and is in a snapshot.
    pub(super) fn surplus(&self, snapshot: u64) -> Option<u64> {
        let kept_from = self.tail_start().min(self.end().saturating_sub(MIN_KEPT));
        let upto = kept_from.checked_sub(1)?.min(snapshot);
        (self.older_bytes > 0 && upto >= self.first()).then_some(upto)
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

#[cfg(test)]
mod tests {
    use openraft::EntryPayload;

    use super::*;
    use crate::type_config::log_id;

    /// `count` entries from index 1 on that count as `bytes` each.
    fn filled(count: u64, bytes: usize) -> State {
        let mut state = State::default();
        for index in 1..=count {
            state.push(Entry { log_id: log_id(1, index), payload: EntryPayload::Blank }, bytes);
            state.evict(u64::MAX);
        }
        state
    }

    #[test]
    fn at_most_32_mib_of_durable_entries_stay_in_memory() {
        let mut state = filled(100, 1 << 20);
        assert_eq!((state.tail_start(), state.tail_bytes, state.log_bytes()), (69, TAIL_BYTES, 100 << 20));
        // What is not durable cannot be read elsewhere.
        state.push(Entry { log_id: log_id(1, 101), payload: EntryPayload::Blank }, TAIL_BYTES);
        state.evict(60);
        assert_eq!(state.tail_start(), 69);
    }

    #[test]
    fn purging_by_size_keeps_32_mib_and_256_entries_and_what_no_snapshot_holds() {
        for (count, bytes, snapshot, expected) in [
            (1000, 1 << 10, 1000, None),
            (1000, 64 << 10, 1000, Some(488)),
            (1000, 64 << 10, 300, Some(300)),
            (1000, 1 << 20, 1000, Some(744)),
            (200, 1 << 20, 200, None),
        ] {
            assert_eq!(filled(count, bytes).surplus(snapshot), expected, "{count} entries of {bytes} bytes");
        }
        let mut state = filled(1000, 64 << 10);
        state.purge(log_id(1, 488));
        assert_eq!((state.surplus(1000), state.log_bytes()), (None, TAIL_BYTES));
    }
}
