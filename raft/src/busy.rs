//! For how long an operation on a disk has been under way: what hangs in the kernel can only be watched from outside (S11).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// When the operation under way began, in milliseconds since this was made, plus one; 0 = none.
#[derive(Debug)]
pub(crate) struct Busy {
    epoch: Instant,
    since: AtomicU64,
}

impl Busy {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { epoch: Instant::now(), since: AtomicU64::new(0) })
    }

    /// Does `work`, one at a time, and lets others see how long it takes.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.since.store(self.now() + 1, Ordering::Relaxed);
        let result = work();
        self.since.store(0, Ordering::Relaxed);
        result
    }

    /// Zero when nothing is under way.
    pub(crate) fn elapsed(&self) -> Duration {
        match self.since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_millis((self.now() + 1).saturating_sub(since)),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_work_under_way_takes_time() {
        let busy = Busy::new();
        assert_eq!(busy.elapsed(), Duration::ZERO);
        busy.during(|| {
            while busy.elapsed() < Duration::from_millis(2) {
                std::thread::yield_now();
            }
        });
        assert_eq!(busy.elapsed(), Duration::ZERO);
    }
}
