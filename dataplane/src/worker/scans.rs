//! What one worker remembers of statement texts: a text that differs from an earlier one only in its literals is not read again.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::sql::{Dialect, Scan, ScanOptions, scan_mysql, scan_pgsql, skeleton};
use xxhash_rust::xxh3::xxh3_64;

use crate::config::{HostgroupId, Protocol};
use crate::identity::Identity;
use crate::origin::{Last, Origin};
use crate::rules::LastVerdict;
use crate::stats::digests::DigestEntry;

/// Texts per generation. Two generations are kept: what was not used while one filled up is forgotten.
const GENERATION: usize = 2048;
/// Bytes of texts per generation.
const GENERATION_BYTES: usize = 2 << 20;

/// What is known of a statement text, and what came of it last. Derefs to the scan.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    scan: Scan,
    /// The rules that its last execution had to try.
    pub(super) verdict: LastVerdict,
    /// Where its last execution was counted, and whose that was.
    counted: Last<Arc<DigestEntry>>,
}

impl Scanned {
    /// Of a text that has been scanned.
    pub(crate) fn new(scan: Scan) -> Rc<Self> {
        Rc::new(Self { scan, ..Self::default() })
    }

    /// One to hold for long: this one, unless its buffer is larger than what is in it.
    pub(crate) fn kept(self: Rc<Self>) -> Rc<Self> {
        let fits = self.scan.digest_text.capacity() == self.scan.digest_text.len();
        if fits { self } else { Self::new(self.scan.clone()) }
    }

    /// Where the last execution was counted, if one of `origin` that ran on `hostgroup` is counted there, too.
    pub(super) fn counted(&self, origin: &Arc<Origin>, hostgroup: Option<HostgroupId>, by_client: bool) -> Option<Arc<DigestEntry>> {
        self.counted.get(origin, |entry| entry.may_count(hostgroup, by_client), |entry| entry.is_of(origin))
    }

    pub(super) fn set_counted(&self, origin: &Arc<Origin>, entry: &Arc<DigestEntry>) {
        self.counted.set(origin, Arc::clone(entry));
    }
}

impl Deref for Scanned {
    type Target = Scan;

    fn deref(&self) -> &Scan {
        &self.scan
    }
}

/// The texts of one protocol. Bounded; forgets everything when digests are to be made in another way.
#[derive(Debug)]
pub(super) struct Scans {
    dialect: Dialect,
    options: ScanOptions,
    young: Generation,
    old: Generation,
    /// The skeleton that is being looked for.
    skeleton: Vec<u8>,
    /// What is not remembered is read into this one, if nobody holds it any more.
    spare: Rc<Scanned>,
}

#[derive(Debug, Default)]
struct Generation {
    entries: HashMap<u64, Entry, BuildHasherDefault<Identity>>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    skeleton: Box<[u8]>,
    scanned: Rc<Scanned>,
}

impl Entry {
    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of::<Scanned>() + self.skeleton.len() + self.scanned.digest_text.len()
    }
}

impl Scans {
    pub(super) fn new(protocol: Protocol) -> Self {
        let (dialect, options) = match protocol {
            Protocol::Mysql => (Dialect::Mysql, ScanOptions::MYSQL),
            Protocol::Pgsql => (Dialect::Pgsql, ScanOptions::PGSQL),
        };
        let (young, old) = Default::default();
        Self { dialect, options, young, old, skeleton: Vec::new(), spare: Rc::default() }
    }

    /// Scans `sql`, or finds what the scan of another text of its skeleton gave.
    pub(super) fn scan(&mut self, sql: &[u8], options: &ScanOptions) -> Rc<Scanned> {
        self.check(options);
        if !skeleton(sql, self.dialect, &mut self.skeleton) {
            return self.read(sql, options);
        }
        let hash = xxh3_64(&self.skeleton);
        if let Some(scanned) = self.find(hash) {
            return scanned;
        }
        let scanned = self.read(sql, options);
        if scanned.is_of_skeleton() {
            // A copy, because the buffer of the spare one is as large as the largest text was.
            let scanned = Scanned::new(scanned.scan.clone());
            self.add(hash, Entry { skeleton: self.skeleton.as_slice().into(), scanned: Rc::clone(&scanned) });
            return scanned;
        }
        scanned
    }

    /// How strings are read is the session's; texts with a skeleton have none that could be read in two ways.
    fn check(&mut self, options: &ScanOptions) {
        let ScanOptions { backslash_escapes, ansi_quotes, .. } = self.options;
        let options = ScanOptions { backslash_escapes, ansi_quotes, ..*options };
        if self.options != options {
            self.options = options;
            (self.young, self.old) = Default::default();
        }
    }

    fn read(&mut self, sql: &[u8], options: &ScanOptions) -> Rc<Scanned> {
        if Rc::get_mut(&mut self.spare).is_none() {
            self.spare = Rc::default();
        }
        if let Some(Scanned { scan, verdict, counted }) = Rc::get_mut(&mut self.spare) {
            match self.dialect {
                Dialect::Mysql => scan_mysql(sql, options, scan),
                Dialect::Pgsql => scan_pgsql(sql, options, scan),
            }
            verdict.clear();
            counted.clear();
        }
        Rc::clone(&self.spare)
    }

    fn find(&mut self, hash: u64) -> Option<Rc<Scanned>> {
        let known = |entry: &&Entry| *entry.skeleton == *self.skeleton;
        if let Some(entry) = self.young.entries.get(&hash).filter(known) {
            return Some(Rc::clone(&entry.scanned));
        }
        self.old.entries.get(&hash).filter(known)?;
        let entry = self.old.entries.remove(&hash)?;
        let scanned = Rc::clone(&entry.scanned);
        self.add(hash, entry);
        Some(scanned)
    }

    fn add(&mut self, hash: u64, entry: Entry) {
        let bytes = entry.bytes();
        if self.young.entries.len() >= GENERATION || self.young.bytes + bytes > GENERATION_BYTES {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.bytes += bytes;
        if let Some(replaced) = self.young.entries.insert(hash, entry) {
            self.young.bytes -= replaced.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use quorumsql_wire::sql::Class;

    use super::*;

    fn scan(scans: &mut Scans, sql: &str) -> Rc<Scanned> {
        scans.scan(sql.as_bytes(), &ScanOptions::MYSQL)
    }

    #[test]
    fn what_is_held_for_long_holds_no_more_than_it_needs() {
        let mut scans = Scans::new(Protocol::Mysql);
        scan(&mut scans, &format!("SET @a = '{}', @b = 2", "x".repeat(10_000)));
        scan(&mut scans, &format!("DO {}1", "1, ".repeat(1000)));
        let (plain, unplain) = (scan(&mut scans, "SELECT 1 FROM t"), scan(&mut scans, "DO RELEASE_ALL_LOCKS()"));
        assert!(unplain.digest_text.capacity() > unplain.digest_text.len());
        assert!(Rc::ptr_eq(&plain, &Rc::clone(&plain).kept()));
        let kept = Rc::clone(&unplain).kept();
        assert_eq!((&kept.digest_text, kept.digest), (&unplain.digest_text, unplain.digest));
        assert_eq!(kept.digest_text.capacity(), kept.digest_text.len());
    }

    #[test]
    fn another_literal_is_not_another_text() {
        let mut scans = Scans::new(Protocol::Mysql);
        let one = scan(&mut scans, "SELECT c FROM t WHERE id=1 AND a='x'");
        let other = scan(&mut scans, "SELECT c FROM t WHERE id=22 AND a='yy'");
        assert!(Rc::ptr_eq(&one, &other));
        assert_eq!(other.digest_text, b"SELECT c FROM t WHERE id=? AND a=?");
        let different = scan(&mut scans, "SELECT d FROM t WHERE id=22 AND a='yy'");
        assert_ne!(different.digest, one.digest);
    }

    #[test]
    fn what_has_no_skeleton_is_read_every_time() {
        let mut scans = Scans::new(Protocol::Mysql);
        let first = scan(&mut scans, "SELECT /* a */ 1");
        assert_eq!((first.class, first.digest_text.as_slice()), (Class::Read, b"SELECT ?".as_slice()));
        let second = scan(&mut scans, "SET a = 1");
        assert_eq!((first.class, second.class), (Class::Read, Class::Set), "one that is held is left alone");
        drop(first);
        let third = scan(&mut scans, "DELETE FROM t -- all");
        assert_eq!((second.class, third.class), (Class::Set, Class::Write));
        assert!(scans.young.entries.is_empty());
    }

    #[test]
    fn other_options_make_other_digests() {
        let mut scans = Scans::new(Protocol::Mysql);
        let text = b"SELECT a FROM T";
        let one = scans.scan(text, &ScanOptions::MYSQL);
        let quotes = scans.scan(text, &ScanOptions { ansi_quotes: true, ..ScanOptions::MYSQL });
        assert!(Rc::ptr_eq(&one, &quotes), "how quotes are read does not matter without any");
        let lower = scans.scan(text, &ScanOptions { lowercase: true, ..ScanOptions::MYSQL });
        assert_eq!(lower.digest_text, b"select a from t");
    }

    #[test]
    fn the_memory_is_bounded_and_keeps_what_is_used() {
        let mut scans = Scans::new(Protocol::Mysql);
        let kept = scan(&mut scans, "SELECT kept FROM t");
        for number in 0..3 * GENERATION {
            scan(&mut scans, &format!("SELECT a{number} FROM t"));
            assert!(Rc::ptr_eq(&kept, &scan(&mut scans, "SELECT kept FROM t")), "{number}");
        }
        assert!(scans.young.entries.len() + scans.old.entries.len() <= 2 * GENERATION);
        let long = "a".repeat(4000);
        for number in 0..2000 {
            scan(&mut scans, &format!("SELECT {long}{number} FROM t"));
        }
        assert!(scans.young.bytes <= GENERATION_BYTES && scans.old.bytes <= GENERATION_BYTES);
    }
}
