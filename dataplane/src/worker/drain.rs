//! How the workers learn that the node drains: a flag that each looks at once per tick.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::ticker::TICK;

/// Whether the node drains, and how fast its idle sessions are to close.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    on: AtomicBool,
    /// Ticks over which the sessions of a worker are told.
    spread: AtomicU64,
}

impl Drain {
    /// Begins, or makes a drain that is going on end within `spread`.
    pub(crate) fn begin(&self, spread: Duration) {
        let ticks = u64::try_from(spread.as_millis() / TICK.as_millis()).unwrap_or(u64::MAX);
        self.spread.store(ticks, Ordering::Relaxed);
        self.on.store(true, Ordering::Release);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// Ticks of the whole spread.
    pub(crate) fn spread(&self) -> u64 {
        self.spread.load(Ordering::Relaxed)
    }
}
