//! One line in the log for each caller that is turned away, and no flood of them.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Lines that may come at once.
const BURST: u32 = 50;
/// Afterwards one line in this time.
const REFILL: Duration = Duration::from_millis(200);

/// Says who was refused and why.
pub(crate) struct Refusals {
    state: Mutex<State>,
}

struct State {
    /// Lines that may still be written.
    left: u32,
    filled: Instant,
    /// Refusals without a line since the last one.
    silent: u64,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { state: Mutex::new(State { left: BURST, filled: Instant::now(), silent: 0 }) }
    }
}

impl Refusals {
    /// `what` was asked for: a path, or `tls`.
    pub(crate) fn log(&self, peer: Option<SocketAddr>, what: &str, reason: &str) {
        let Some(silent) = self.state.lock().take(Instant::now()) else { return };
        let peer = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
        tracing::warn!(peer, what, reason, "peer refused");
        if silent > 0 {
            tracing::warn!(silent, "further peers were refused without a line");
        }
    }
}

impl State {
    /// A turn to write, with the number of those that had none.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let earned = u32::try_from(now.saturating_duration_since(self.filled).as_millis() / REFILL.as_millis()).unwrap_or(BURST);
        if earned > 0 {
            self.left = self.left.saturating_add(earned).min(BURST);
            self.filled = now;
        }
        let Some(left) = self.left.checked_sub(1) else {
            self.silent += 1;
            return None;
        };
        self.left = left;
        Some(std::mem::take(&mut self.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_instead_of_written() {
        let start = Instant::now();
        let mut state = State { left: BURST, filled: start, silent: 0 };
        let written = (0..BURST + 7).filter(|_| state.take(start).is_some()).count();
        assert_eq!((written, state.silent), (50, 7));
        assert_eq!(state.take(start + REFILL), Some(7));
        assert_eq!(state.take(start + REFILL), None);
        assert_eq!(state.take(start + REFILL * 1000), Some(1));
        assert_eq!(state.left, BURST - 1);
    }
}
