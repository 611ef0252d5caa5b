//! What is remembered per digest: the rules that are still to be tried.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::rc::Rc;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::evaluate::Input;
use crate::identity::Identity;
use crate::origin::{Last, Origin};

/// Entries per generation. Two generations are kept: what was not used while one filled up is forgotten.
const GENERATION: usize = 4096;
/// Bytes of texts and lists per generation.
const GENERATION_BYTES: usize = 4 << 20;
/// Statements with a longer digest text are not remembered.
pub(super) const MAX_TEXT: usize = 4096;

/// A worker's memory of which rules apply to which digest. Bounded; forgets everything when the rules change.
#[derive(Debug, Default)]
pub struct VerdictCache {
    stamp: u64,
    young: Generation,
    old: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    entries: HashMap<u64, Rc<Entry>, BuildHasherDefault<Identity>>,
    bytes: usize,
}

/// The rules that are still to be tried for a combination.
#[derive(Debug)]
pub(super) struct Entry {
    stamp: u64,
    digest: u64,
    text: Box<[u8]>,
    /// One of those that it holds for.
    origin: Arc<Origin>,
    pub(super) candidates: Box<[u32]>,
}

impl Entry {
    fn is_for(&self, input: &Input<'_>) -> bool {
        self.digest == input.digest && *self.text == *input.digest_text && self.is_from(input.origin)
    }

    /// Whether it holds for statements of `origin`, whatever the client's address.
    fn is_from(&self, origin: &Arc<Origin>) -> bool {
        let Origin { user, schema, client_addr: _, proxy_addr, proxy_port } = &**origin;
        let own = &*self.origin;
        Arc::ptr_eq(&self.origin, origin)
            || (own.proxy_port == *proxy_port && own.user == *user && own.schema == *schema && own.proxy_addr == *proxy_addr)
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.len() + 4 * self.candidates.len()
    }
}

/// What was found for one text the last time, beside what is known of the text.
#[derive(Debug, Default)]
pub(crate) struct LastVerdict(Last<Rc<Entry>>);

impl LastVerdict {
    /// Forgets it.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// What holds for `input`, whose text is the one that this belongs to.
    pub(super) fn get(&self, stamp: u64, input: &Input<'_>) -> Option<Rc<Entry>> {
        self.0.get(input.origin, |entry| entry.stamp == stamp, |entry| entry.is_from(input.origin))
    }

    pub(super) fn set(&self, origin: &Arc<Origin>, entry: Rc<Entry>) {
        self.0.set(origin, entry);
    }
}

impl VerdictCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Combinations that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.young.entries.len() + self.old.entries.len()
    }

    /// True if nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rules to try for `input` by the rule set that `stamp` names.
    pub(super) fn find(&mut self, stamp: u64, input: &Input<'_>) -> Option<&Rc<Entry>> {
        if self.stamp != stamp {
            *self = Self { stamp, ..Self::default() };
        }
        let key = key(input);
        if self.old.entries.get(&key).is_some_and(|entry| entry.is_for(input))
            && let Some(entry) = self.old.entries.remove(&key)
        {
            self.add(key, entry);
        }
        self.young.entries.get(&key).filter(|entry| entry.is_for(input))
    }

    /// Remembers `candidates` for `input`, which [`VerdictCache::find`] did not know.
    pub(super) fn insert(&mut self, input: &Input<'_>, candidates: Box<[u32]>) -> Rc<Entry> {
        let entry = Rc::new(Entry {
            stamp: self.stamp,
            digest: input.digest,
            text: input.digest_text.into(),
            origin: Arc::clone(input.origin),
            candidates,
        });
        self.add(key(input), Rc::clone(&entry));
        entry
    }

    fn add(&mut self, key: u64, entry: Rc<Entry>) {
        let bytes = entry.bytes();
        if bytes > GENERATION_BYTES {
            return;
        }
        if self.young.entries.len() >= GENERATION || self.young.bytes + bytes > GENERATION_BYTES {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.bytes += bytes;
        if let Some(replaced) = self.young.entries.insert(key, entry) {
            self.young.bytes -= replaced.bytes();
        }
    }
}

/// The digest hash spreads already; user, schema and listener are mixed in. Entries are compared in full.
fn key(input: &Input<'_>) -> u64 {
    let origin = input.origin;
    let user = xxh3_64_with_seed(origin.user.as_bytes(), input.digest);
    let schema = xxh3_64_with_seed(origin.schema.as_bytes(), user);
    xxh3_64_with_seed(origin.proxy_addr.as_bytes(), schema ^ u64::from(origin.proxy_port))
}
