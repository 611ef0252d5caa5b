//! Ids of sessions.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

/// Bits of an id below the slot.
const COUNTER_BITS: u32 = 24;
const COUNTER_MASK: u32 = (1 << COUNTER_BITS) - 1;

/// Hands out connection ids `slot << 24 | counter`, unique among the live sessions of all workers. The counter starts at
/// random, so that an id kept from before a restart does not hit a new session. Locked when a session starts and ends.
#[derive(Debug)]
pub(crate) struct Ids {
    slot: u8,
    next: AtomicU32,
    live: Mutex<HashSet<u32>>,
}

impl Ids {
    pub(crate) fn new(slot: u8, start: u32) -> Self {
        Self { slot, next: AtomicU32::new(start), live: Mutex::default() }
    }

    pub(super) fn take(&self) -> u32 {
        let mut live = self.live.lock();
        loop {
            let counter = self.next.fetch_add(1, Ordering::Relaxed) & COUNTER_MASK;
            let id = u32::from(self.slot) << COUNTER_BITS | counter;
            // Fewer than 2^24 sessions fit into a process, so that a free id is found.
            if counter != 0 && live.insert(id) {
                return id;
            }
        }
    }

    pub(super) fn put_back(&self, id: u32) {
        self.live.lock().remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_skip_live_sessions_and_zero() {
        let ids = Ids::new(5, COUNTER_MASK - 1);
        let taken: Vec<u32> = (0..3).map(|_| ids.take()).collect();
        assert_eq!(taken, [5 << 24 | (COUNTER_MASK - 1), 5 << 24 | COUNTER_MASK, 5 << 24 | 1]);
        ids.next.store(COUNTER_MASK, Ordering::Relaxed);
        assert_eq!(ids.take(), 5 << 24 | 2);
        ids.put_back(taken[1]);
        ids.next.store(COUNTER_MASK, Ordering::Relaxed);
        assert_eq!(ids.take(), taken[1]);
    }
}
