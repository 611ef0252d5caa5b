//! Statements by digest: `stats_mysql_query_digest` and its twin (admin-tables.md 7, observability-and-operations.md 6.1).
//!
//! Each worker has a map of its own and counts without a lock; a reader asks every worker for its entries, which are shared
//! pointers to cells with one writer, and adds them up. Taking the map away (`…_reset`, TRUNCATE) happens on the worker's
//! thread between two statements, so that no count is lost or told twice.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Counter;
use super::histogram::{Histogram, Percentiles};
use crate::config::HostgroupId;
use crate::identity::Identity;
use crate::origin::Origin;
use crate::worker::ticker::TICK;

/// Most entries of a node, per protocol.
const MAX_ENTRIES: usize = 10_000;
/// Most bytes of a node's entries, per protocol.
const MAX_BYTES: usize = 64 << 20;
/// The text under which entries that had to make room go on.
const OTHER: &[u8] = b"<other>";

/// By what statements are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DigestKey<'a> {
    /// Where it ran; `None` = answered here.
    pub hostgroup: Option<HostgroupId>,
    /// Schema; PostgreSQL: database.
    pub schema: &'a str,
    /// User.
    pub user: &'a str,
    /// Client address; empty unless `query_digests_track_hostname`.
    pub client: &'a str,
    /// Hash of the text.
    pub digest: u64,
    /// Normalised text.
    pub text: &'a [u8],
}

impl DigestKey<'_> {
    fn hash(&self) -> u64 {
        let hostgroup = self.hostgroup.map_or(u64::MAX, |hostgroup| u64::from(hostgroup.0));
        let user = xxh3_64_with_seed(self.user.as_bytes(), self.digest ^ hostgroup.rotate_left(32));
        let schema = xxh3_64_with_seed(self.schema.as_bytes(), user);
        if self.client.is_empty() { schema } else { xxh3_64_with_seed(self.client.as_bytes(), schema) }
    }
}

/// Rows of one execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RowCounts {
    /// Affected.
    pub(crate) affected: u64,
    /// Returned.
    pub(crate) sent: u64,
}

/// The cells of one digest on one worker.
#[derive(Debug)]
pub(crate) struct DigestEntry {
    hostgroup: Option<HostgroupId>,
    schema: Box<str>,
    user: Box<str>,
    client: Box<str>,
    digest: u64,
    text: Box<[u8]>,
    first_tick: u64,
    last_tick: Counter,
    count: Counter,
    sum: Counter,
    min: Counter,
    max: Counter,
    rows_affected: Counter,
    rows_sent: Counter,
    histogram: Histogram,
    /// No longer in the map; a statement that still runs under it is counted under a new one.
    retired: AtomicBool,
}

impl DigestEntry {
    fn new(key: &DigestKey<'_>, tick: u64) -> Self {
        let last_tick = Counter::default();
        last_tick.add(tick);
        Self {
            hostgroup: key.hostgroup,
            schema: key.schema.into(),
            user: key.user.into(),
            client: key.client.into(),
            digest: key.digest,
            text: key.text.into(),
            first_tick: tick,
            last_tick,
            count: Counter::default(),
            sum: Counter::default(),
            min: Counter::default(),
            max: Counter::default(),
            rows_affected: Counter::default(),
            rows_sent: Counter::default(),
            histogram: Histogram::default(),
            retired: AtomicBool::new(false),
        }
    }

    fn key(&self) -> DigestKey<'_> {
        let Self { hostgroup, schema, user, client, digest, text, .. } = self;
        DigestKey { hostgroup: *hostgroup, schema, user, client, digest: *digest, text }
    }

    /// Whether a statement that ran on `hostgroup` may be counted here, with or without regard to the client.
    pub(crate) fn may_count(&self, hostgroup: Option<HostgroupId>, by_client: bool) -> bool {
        self.hostgroup == hostgroup && self.client.is_empty() != by_client && !self.retired.load(Ordering::Relaxed)
    }

    /// Whether sessions of `origin` are counted here, if the client is regarded or [`Self::may_count`] says that it is not.
    pub(crate) fn is_of(&self, origin: &Origin) -> bool {
        self.schema == origin.schema && self.user == origin.user && (self.client.is_empty() || self.client == origin.client_addr)
    }

    /// Counts one execution. Only the owning worker may call it.
    fn record(&self, tick: u64, micros: u64, rows: RowCounts) {
        let shortest = if self.count.get() == 0 { micros } else { self.min.get().min(micros) };
        self.min.set(shortest);
        self.count.add(1);
        self.sum.add(micros);
        self.max.raise_to(micros);
        self.last_tick.raise_to(tick);
        self.rows_affected.add(rows.affected);
        self.rows_sent.add(rows.sent);
        self.histogram.add(micros);
    }

    /// Takes over what `other` counted.
    fn fold(&self, other: &Self) {
        let shortest = if self.count.get() == 0 { other.min.get() } else { self.min.get().min(other.min.get()) };
        self.min.set(shortest);
        self.count.add(other.count.get());
        self.sum.add(other.sum.get());
        self.max.raise_to(other.max.get());
        self.last_tick.raise_to(other.last_tick.get());
        self.rows_affected.add(other.rows_affected.get());
        self.rows_sent.add(other.rows_sent.get());
        self.histogram.merge(&other.histogram);
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.schema.len() + self.user.len() + self.client.len() + self.text.len()
    }
}

type Entries = HashMap<u64, Arc<DigestEntry>, BuildHasherDefault<Identity>>;

/// The digests of one worker.
#[derive(Debug)]
pub(crate) struct Digests {
    entries: Entries,
    bytes: usize,
    max_entries: usize,
    max_bytes: usize,
}

impl Digests {
    /// The share of one of `workers`.
    pub(crate) fn new(workers: usize) -> Self {
        Self { entries: Entries::default(), bytes: 0, max_entries: MAX_ENTRIES / workers.max(1), max_bytes: MAX_BYTES / workers.max(1) }
    }

    /// The cells of `key`, made at its first statement. `tick` is the worker's time.
    pub(crate) fn entry(&mut self, key: &DigestKey<'_>, tick: u64) -> Arc<DigestEntry> {
        let hash = key.hash();
        let free = match self.find(hash, key) {
            Ok(entry) => return Arc::clone(entry),
            Err(free) => free,
        };
        let entry = Arc::new(DigestEntry::new(key, tick));
        if self.entries.len() < self.max_entries && self.bytes + entry.bytes() <= self.max_bytes {
            self.insert(free, &entry);
            return entry;
        }
        self.make_room(tick);
        if let Err(free) = self.find(hash, key) {
            self.insert(free, &entry);
        }
        entry
    }

    /// Counts an execution that took `micros` under the entry that was found for it when it began.
    pub(crate) fn record(&mut self, entry: &Arc<DigestEntry>, tick: u64, micros: u64, rows: RowCounts) {
        if entry.retired.load(Ordering::Relaxed) {
            return self.entry(&entry.key(), tick).record(tick, micros, rows);
        }
        entry.record(tick, micros, rows);
    }

    /// The entry of a key, or the slot that is free for it: keys of one hash take the slots behind it.
    fn find(&self, hash: u64, key: &DigestKey<'_>) -> Result<&Arc<DigestEntry>, u64> {
        let mut slot = hash;
        while let Some(entry) = self.entries.get(&slot) {
            if entry.key() == *key {
                return Ok(entry);
            }
            slot = slot.wrapping_add(1);
        }
        Err(slot)
    }

    fn insert(&mut self, slot: u64, entry: &Arc<DigestEntry>) {
        self.bytes += entry.bytes();
        self.entries.insert(slot, Arc::clone(entry));
    }

    /// All entries, shared.
    pub(crate) fn list(&self) -> Vec<Arc<DigestEntry>> {
        self.entries.values().cloned().collect()
    }

    /// All entries; the worker counts on from nothing.
    pub(crate) fn take(&mut self) -> Vec<Arc<DigestEntry>> {
        self.bytes = 0;
        let taken: Vec<_> = std::mem::take(&mut self.entries).into_values().collect();
        taken.iter().for_each(|entry| entry.retired.store(true, Ordering::Relaxed));
        taken
    }

    /// Folds the twentieth that ran least and longest ago into one entry, so that sums stay right.
    fn make_room(&mut self, tick: u64) {
        let key = DigestKey { hostgroup: None, schema: "", user: "", client: "", digest: 0, text: OTHER };
        let other = self.find(key.hash(), &key).cloned().unwrap_or_else(|_| Arc::new(DigestEntry::new(&key, tick)));
        let mut all: Vec<_> = std::mem::take(&mut self.entries).into_values().filter(|entry| !Arc::ptr_eq(entry, &other)).collect();
        all.sort_unstable_by_key(|entry| std::cmp::Reverse((entry.count.get(), entry.last_tick.get())));
        let kept = all.len() - all.len().div_ceil(20);
        for folded in all.drain(kept..) {
            folded.retired.store(true, Ordering::Relaxed);
            other.fold(&folded);
        }
        self.bytes = 0;
        for entry in all.iter().chain([&other]) {
            if let Err(free) = self.find(entry.key().hash(), &entry.key()) {
                self.insert(free, entry);
            }
        }
    }
}

/// A row of `stats_*_query_digest`, summed over the workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DigestRow {
    /// Where it ran; `None` = answered here.
    pub hostgroup: Option<HostgroupId>,
    /// Schema; PostgreSQL: database.
    pub schema: String,
    /// User.
    pub user: String,
    /// Client address; empty unless `query_digests_track_hostname`.
    pub client: String,
    /// Hash of the text; 0 = the entry of those that had to make room.
    pub digest: u64,
    /// Normalised text.
    pub text: Vec<u8>,
    /// Executions.
    pub count: u64,
    /// Seconds since the first execution.
    pub first_seen_ago: u64,
    /// Seconds since the last execution.
    pub last_seen_ago: u64,
    /// Microseconds of all executions.
    pub sum_time: u64,
    /// Microseconds of the shortest.
    pub min_time: u64,
    /// Microseconds of the longest.
    pub max_time: u64,
    /// Affected rows.
    pub rows_affected: u64,
    /// Rows returned.
    pub rows_sent: u64,
    /// Durations, for percentiles.
    pub percentiles: Percentiles,
}

type RowKey = (Option<HostgroupId>, String, String, String, u64, Vec<u8>);

/// The entries of several workers as rows; each worker with its own time in ticks.
#[derive(Debug, Default)]
pub(crate) struct Merged(BTreeMap<RowKey, DigestRow>);

impl Merged {
    /// Adds a worker's entries; `tick` is its time now.
    pub(crate) fn add(&mut self, entries: &[Arc<DigestEntry>], tick: u64) {
        for entry in entries.iter().filter(|entry| entry.count.get() > 0) {
            let key = entry.key();
            let ago = |then: u64| (TICK * u32::try_from(tick.saturating_sub(then)).unwrap_or(u32::MAX)).as_secs();
            let (first, last) = (ago(entry.first_tick), ago(entry.last_tick.get()));
            let (schema, user, client, text) = (key.schema.to_owned(), key.user.to_owned(), key.client.to_owned(), key.text.to_vec());
            let row = self.0.entry((key.hostgroup, schema.clone(), user.clone(), client.clone(), key.digest, text.clone())).or_insert_with(
                || {
                    let (min_time, last_seen_ago) = (u64::MAX, u64::MAX);
                    let zero = (0, 0, 0, 0, 0, 0);
                    let (count, first_seen_ago, sum_time, max_time, rows_affected, rows_sent) = zero;
                    let (hostgroup, digest, percentiles) = (key.hostgroup, key.digest, Percentiles::default());
                    DigestRow {
                        hostgroup,
                        schema,
                        user,
                        client,
                        digest,
                        text,
                        count,
                        first_seen_ago,
                        last_seen_ago,
                        sum_time,
                        min_time,
                        max_time,
                        rows_affected,
                        rows_sent,
                        percentiles,
                    }
                },
            );
            row.count += entry.count.get();
            row.first_seen_ago = row.first_seen_ago.max(first);
            row.last_seen_ago = row.last_seen_ago.min(last);
            row.sum_time += entry.sum.get();
            row.min_time = row.min_time.min(entry.min.get());
            row.max_time = row.max_time.max(entry.max.get());
            row.rows_affected += entry.rows_affected.get();
            row.rows_sent += entry.rows_sent.get();
            entry.histogram.add_to(&mut row.percentiles);
        }
    }

    /// The rows, in the order of their keys.
    pub(crate) fn into_rows(self) -> Vec<DigestRow> {
        self.0.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(digest: u64, text: &[u8]) -> DigestKey<'_> {
        DigestKey { hostgroup: Some(HostgroupId(1)), schema: "shop", user: "app", client: "", digest, text }
    }

    const fn rows_of(affected: u64, sent: u64) -> RowCounts {
        RowCounts { affected, sent }
    }

    fn rows(digests: &Digests) -> Vec<DigestRow> {
        let mut merged = Merged::default();
        merged.add(&digests.list(), 100);
        merged.into_rows()
    }

    #[test]
    fn workers_are_summed_by_key() {
        let (mut one, mut two) = (Digests::new(2), Digests::new(2));
        one.entry(&key(7, b"SELECT ?"), 10).record(20, 300, rows_of(0, 1));
        one.entry(&key(7, b"SELECT ?"), 30).record(30, 100, rows_of(2, 0));
        two.entry(&key(7, b"SELECT ?"), 50).record(90, 200, rows_of(0, 5));
        two.entry(&DigestKey { hostgroup: None, ..key(7, b"SELECT ?") }, 50).record(50, 1, rows_of(0, 0));
        let mut merged = Merged::default();
        merged.add(&one.list(), 100);
        merged.add(&two.list(), 100);
        let rows = merged.into_rows();
        assert_eq!(rows.len(), 2, "answered here and on a hostgroup are two rows");
        let row = &rows[1];
        assert_eq!((row.count, row.sum_time, row.min_time, row.max_time), (3, 600, 100, 300));
        assert_eq!((row.rows_affected, row.rows_sent, row.first_seen_ago, row.last_seen_ago), (2, 6, 9, 1));
    }

    #[test]
    fn a_full_map_keeps_its_sums() {
        let mut digests = Digests { max_entries: 100, ..Digests::new(1) };
        for digest in 1..=1000 {
            let entry = digests.entry(&key(digest, format!("SELECT {digest}").as_bytes()), digest);
            entry.record(digest, 10, rows_of(1, 1));
            if digest % 100 == 0 {
                (0..50).for_each(|_| entry.record(digest, 10, rows_of(1, 1)));
            }
        }
        let rows = rows(&digests);
        assert!(rows.len() <= 101, "{} entries", rows.len());
        assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 1000 + 10 * 50);
        assert_eq!(rows.iter().map(|row| row.sum_time).sum::<u64>(), 10 * (1000 + 10 * 50));
        let other = rows.iter().find(|row| row.digest == 0).expect("entry of the others");
        assert_eq!(other.text, OTHER);
        assert_eq!(rows.iter().filter(|row| row.count == 51).count(), 10, "what runs often stays");
    }

    #[test]
    fn entries_are_bounded_by_bytes() {
        let mut digests = Digests { max_bytes: 64 << 10, ..Digests::new(1) };
        for digest in 1..=500 {
            digests.entry(&key(digest, &[b'x'; 2048]), digest).record(digest, 1, rows_of(0, 0));
        }
        assert!(digests.bytes <= (64 << 10) + 4096, "{} bytes", digests.bytes);
        assert_eq!(rows(&digests).iter().map(|row| row.count).sum::<u64>(), 500);
    }

    #[test]
    fn taking_leaves_nothing_and_loses_nothing() {
        let mut digests = Digests::new(1);
        let running = digests.entry(&key(7, b"SELECT ?"), 1);
        digests.record(&running, 1, 5, rows_of(0, 0));
        assert_eq!(digests.take().len(), 1);
        digests.record(&running, 2, 5, rows_of(0, 0));
        digests.record(&running, 2, 5, rows_of(0, 0));
        assert_eq!(running.count.get(), 1, "what was taken stands still");
        assert_eq!(rows(&digests)[0].count, 2);
    }

    #[test]
    fn keys_with_one_hash_are_two_entries() {
        let mut digests = Digests::new(1);
        let (first, second) = (key(1, b"a"), key(1, b"b"));
        digests.entry(&first, 1).record(1, 1, rows_of(0, 0));
        digests.entry(&second, 1).record(1, 1, rows_of(0, 0));
        digests.entry(&second, 1).record(1, 1, rows_of(0, 0));
        let counts: Vec<_> = rows(&digests).into_iter().map(|row| (row.text, row.count)).collect();
        assert_eq!(counts, [(b"a".to_vec(), 1), (b"b".to_vec(), 2)]);
    }
}
