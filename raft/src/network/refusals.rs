//! One line in the log for each kind of caller that is turned away, and no flood of them.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Lines that may come at once.
const BURST: u32 = 50;
/// Afterwards one line in this time.
const REFILL: Duration = Duration::from_millis(200);
/// The same refusal is written again after this time, with a count.
const REPEAT: Duration = Duration::from_secs(60);
/// Refusals that are remembered; beyond these, each has its own line.
const REMEMBERED: usize = 256;

/// Says who was refused and why.
pub(crate) struct Refusals {
    state: Mutex<State>,
}

/// Who asked for what, and why not.
type Refusal = (Option<IpAddr>, String, String);

struct State {
    /// Lines that may still be written.
    left: u32,
    filled: Instant,
    /// Refusals without a line since the last one.
    silent: u64,
    /// When a refusal was last written, and how often it came since.
    known: HashMap<Refusal, (Instant, u64)>,
}

/// A turn to write.
#[derive(PartialEq, Eq, Debug)]
struct Turn {
    /// How often the same was refused since its last line.
    repeated: u64,
    /// How many others had no line.
    silent: u64,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { state: Mutex::new(State::new(Instant::now())) }
    }
}

impl Refusals {
    /// `what` was asked for: a path, or `tls`.
    pub(crate) fn log(&self, peer: Option<SocketAddr>, what: &str, reason: &str) {
        let refusal = (peer.map(|peer| peer.ip()), what.to_owned(), reason.to_owned());
        let Some(Turn { repeated, silent }) = self.state.lock().take(refusal, Instant::now()) else { return };
        let peer = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
        if repeated > 0 {
            tracing::warn!(peer, what, reason, repeated, "peer refused again");
        } else {
            tracing::warn!(peer, what, reason, "peer refused");
        }
        if silent > 0 {
            tracing::warn!(silent, "further peers were refused without a line");
        }
    }
}

impl State {
    fn new(now: Instant) -> Self {
        Self { left: BURST, filled: now, silent: 0, known: HashMap::new() }
    }

    fn take(&mut self, refusal: Refusal, now: Instant) -> Option<Turn> {
        let age = |at: Instant| now.saturating_duration_since(at);
        if let Some((_, count)) = self.known.get_mut(&refusal).filter(|(at, _)| age(*at) < REPEAT) {
            *count += 1;
            return None;
        }
        let earned = u32::try_from(age(self.filled).as_millis() / REFILL.as_millis()).unwrap_or(BURST);
        if earned > 0 {
            self.left = self.left.saturating_add(earned).min(BURST);
            self.filled = now;
        }
        let Some(left) = self.left.checked_sub(1) else {
            self.silent += 1;
            return None;
        };
        self.left = left;
        let repeated = self.known.get(&refusal).map_or(0, |(_, count)| *count);
        if self.known.len() >= REMEMBERED {
            self.known.retain(|_, (at, _)| age(*at) < REPEAT);
        }
        if self.known.len() < REMEMBERED {
            self.known.insert(refusal, (now, 0));
        }
        Some(Turn { repeated, silent: std::mem::take(&mut self.silent) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(reason: usize) -> Refusal {
        (None, "tls".into(), reason.to_string())
    }

    #[test]
    fn a_flood_is_counted_instead_of_written() {
        let start = Instant::now();
        let mut state = State::new(start);
        let written = (0..57).filter(|reason| state.take(refusal(*reason), start).is_some()).count();
        assert_eq!((written, state.silent), (50, 7));
        assert_eq!(state.take(refusal(100), start + REFILL), Some(Turn { repeated: 0, silent: 7 }));
        assert_eq!(state.take(refusal(101), start + REFILL), None);
        assert_eq!(state.take(refusal(102), start + REFILL * 1000), Some(Turn { repeated: 0, silent: 1 }));
        assert_eq!(state.left, BURST - 1);
    }

    #[test]
    fn one_that_comes_again_and_again_has_a_line_a_minute() {
        let start = Instant::now();
        let mut state = State::new(start);
        let half_seconds =
            (0..240).filter_map(|half| state.take(refusal(0), start + Duration::from_millis(500) * half)).collect::<Vec<_>>();
        assert_eq!(half_seconds, [Turn { repeated: 0, silent: 0 }, Turn { repeated: 119, silent: 0 }]);
        assert_eq!(state.take(refusal(1), start), Some(Turn { repeated: 0, silent: 0 }), "another reason is news");
        let many = (0..REMEMBERED * 2).filter(|reason| state.take(refusal(*reason), start + REPEAT * 9).is_some()).count();
        assert!(many <= BURST as usize && state.known.len() <= REMEMBERED);
    }
}
