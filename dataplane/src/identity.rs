//! A hasher for keys that are hashes already.

use std::hash::Hasher;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Passes a `u64` through.
#[derive(Debug, Default)]
pub(crate) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
