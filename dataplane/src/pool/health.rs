//! Shunning: a server that fails to connect too often within a second is left alone for a while (mysql-dataplane 9.4).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::config::Variables;

const WINDOW: Duration = Duration::from_secs(1);

/// Connect failures of one server row, seen by all workers of this node. Locked on failures and while shunned only.
#[derive(Debug, Default)]
pub(crate) struct Health {
    shunned: AtomicBool,
    failures: Mutex<Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    window_start: Option<Instant>,
    count: u32,
    last: Option<Instant>,
    /// Text of the last one.
    error: String,
}

/// Why a shunned server may be taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recovery {
    /// The shun time has passed.
    Regular,
    /// No other candidate is left: a tenth of the time is enough.
    LastResort,
}

impl Health {
    pub(crate) fn is_shunned(&self) -> bool {
        self.shunned.load(Ordering::Relaxed)
    }

    /// Counts a failure; returns the failures within the second if that shuns the server now.
    pub(crate) fn on_failure(&self, now: Instant, variables: &Variables) -> Option<u32> {
        let mut failures = self.failures.lock();
        if failures.window_start.is_none_or(|start| now.saturating_duration_since(start) >= WINDOW) {
            failures.window_start = Some(now);
            failures.count = 0;
        }
        failures.count += 1;
        failures.last = Some(now);
        let limit = variables.shun_on_failures.min(variables.connect_retries_on_failure.saturating_add(1));
        if limit == 0 || failures.count < limit {
            return None;
        }
        (!self.shunned.swap(true, Ordering::Relaxed)).then_some(failures.count)
    }

    /// Remembers why an attempt failed.
    pub(crate) fn note(&self, error: String) {
        self.failures.lock().error = error;
    }

    /// Why the last attempt that failed did; empty = none has.
    pub(crate) fn last_error(&self) -> String {
        self.failures.lock().error.clone()
    }

    /// Takes the server back if enough time has passed since its last failure; true if it is not shunned (any more).
    pub(crate) fn try_recover(&self, now: Instant, variables: &Variables, recovery: Recovery) -> bool {
        if !self.is_shunned() {
            return true;
        }
        let Some(wait) = recovery_time(variables, recovery) else { return false };
        let failures = self.failures.lock();
        let recovered = failures.last.is_none_or(|last| now.saturating_duration_since(last) > wait);
        if recovered {
            self.shunned.store(false, Ordering::Relaxed);
        }
        recovered
    }
}

/// `shun_recovery_time_sec`, capped one second below `connect_timeout_server_max` so that a lone server is retried before
/// its clients give up, at least one second; `None` = 0 = not by time.
pub(crate) fn recovery_time(variables: &Variables, recovery: Recovery) -> Option<Duration> {
    let second = Duration::from_secs(1);
    let cap = Duration::from_secs(variables.connect_timeout_server_max.as_secs()).saturating_sub(second);
    let time = variables.shun_recovery_time.min(cap).max(second);
    match recovery {
        Recovery::Regular if variables.shun_recovery_time.is_zero() => None,
        Recovery::Regular => Some(time),
        Recovery::LastResort => Some((time / 10).max(second)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn enough_failures_within_a_second_shun() {
        let (health, start, variables) = (Health::default(), Instant::now(), Variables::default());
        for millis in [0, 200, 400, 900] {
            assert_eq!(health.on_failure(start + ms(millis), &variables), None);
        }
        // A new second starts a new count.
        for millis in [1000, 1100, 1200, 1300] {
            assert_eq!(health.on_failure(start + ms(millis), &variables), None);
        }
        assert_eq!(health.on_failure(start + ms(1400), &variables), Some(5));
        assert_eq!(health.on_failure(start + ms(1500), &variables), None, "told once");
        assert!(health.is_shunned());
    }

    #[test]
    fn few_retries_lower_the_limit_and_zero_switches_off() {
        let start = Instant::now();
        let one = Variables { connect_retries_on_failure: 0, ..Variables::default() };
        assert_eq!(Health::default().on_failure(start, &one), Some(1));
        let off = Variables { shun_on_failures: 0, ..Variables::default() };
        let health = Health::default();
        assert!((0..100).all(|_| health.on_failure(start, &off).is_none()));
    }

    #[test]
    fn recovery_is_by_time_since_the_last_failure() {
        let variables = Variables { connect_retries_on_failure: 0, ..Variables::default() };
        let (health, start) = (Health::default(), Instant::now());
        health.on_failure(start, &variables);
        assert!(!health.try_recover(start + ms(9000), &variables, Recovery::Regular));
        assert!(!health.try_recover(start + ms(1000), &variables, Recovery::LastResort));
        assert!(health.try_recover(start + ms(1001), &variables, Recovery::LastResort));
        health.on_failure(start + ms(2000), &variables);
        assert!(health.try_recover(start + ms(11_001), &variables, Recovery::Regular));
        assert!(!health.is_shunned());
    }

    #[test]
    fn recovery_time_has_its_caps() {
        let with = |recovery, max| Variables {
            shun_recovery_time: Duration::from_secs(recovery),
            connect_timeout_server_max: ms(max),
            ..Variables::default()
        };
        for (variables, regular, last) in [
            (with(10, 10_000), Some(ms(9000)), Some(ms(1000))),
            (with(60, 100_000), Some(ms(60_000)), Some(ms(6000))),
            (with(5, 10), Some(ms(1000)), Some(ms(1000))),
            (with(0, 10_000), None, Some(ms(1000))),
        ] {
            assert_eq!(recovery_time(&variables, Recovery::Regular), regular);
            assert_eq!(recovery_time(&variables, Recovery::LastResort), last);
        }
    }
}
