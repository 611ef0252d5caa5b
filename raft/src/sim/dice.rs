//! Seeded random numbers, one independent stream a purpose, so that one more draw here does not change all draws there.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A stream of SplitMix64.
pub(crate) struct Dice(AtomicU64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// The stream of one purpose: equal seeds and labels give equal streams.
    pub(crate) fn of(seed: u64, labels: &[u64]) -> Self {
        Self::new(labels.iter().fold(mix(seed), |seed, label| mix(seed ^ mix(*label))))
    }

    pub(crate) fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        mix(self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }

    /// 0 … `end` - 1.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(crate) fn in_range(&self, range: &Range<Duration>) -> Duration {
        let width = u64::try_from((range.end - range.start).as_micros()).expect("a short range");
        range.start + Duration::from_micros(self.below(width))
    }

    pub(crate) fn percent(&self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

const fn mix(seed: u64) -> u64 {
    let z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
