//! What this process is doing with its life: starting, serving, draining. Read by health checks, metrics and gRPC.

use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio::sync::watch;

/// The stages, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stage {
    /// Traffic listeners are not open yet, or a server of a pair has not been probed.
    Starting,
    /// In service.
    Serving,
    /// Finishing what runs; load balancers shall go elsewhere.
    Draining,
    /// Stopping now.
    Stopping,
}

/// The stage of this process, for all who ask.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    stage: watch::Sender<Stage>,
    started: Instant,
    started_at: SystemTime,
    shutdown: watch::Sender<u32>,
    longest_wait: Mutex<Option<Duration>>,
}

impl Lifecycle {
    /// At the start of the process.
    pub(crate) fn new() -> Self {
        Self {
            stage: watch::Sender::new(Stage::Starting),
            started: Instant::now(),
            started_at: SystemTime::now(),
            shutdown: watch::Sender::new(0),
            longest_wait: Mutex::default(),
        }
    }

    /// Where it is.
    pub(crate) fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Goes on to `stage`; never back.
    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.send_if_modified(|current| {
            let forward = stage > *current;
            if forward {
                *current = stage;
            }
            forward
        });
    }

    /// Asks for an orderly end, as SIGTERM does; asking again hurries it.
    pub(crate) fn request_shutdown(&self) {
        self.shutdown.send_modify(|count| *count += 1);
    }

    /// No wait of the drain is to be longer than `most`.
    pub(crate) fn cut_waits(&self, most: Duration) {
        *self.longest_wait.lock() = Some(most);
    }

    /// What [`Self::cut_waits`] said.
    pub(crate) fn longest_wait(&self) -> Option<Duration> {
        *self.longest_wait.lock()
    }

    /// Follows the number of requests to stop.
    pub(crate) fn shutdown_requests(&self) -> watch::Receiver<u32> {
        self.shutdown.subscribe()
    }

    /// Seconds since the start.
    pub(crate) fn uptime_seconds(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// Wall clock of the start, seconds since 1970.
    pub(crate) fn started_at_seconds(&self) -> u64 {
        self.started_at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_never_goes_back() {
        let life = Lifecycle::new();
        life.enter(Stage::Draining);
        life.enter(Stage::Serving);
        assert_eq!(life.stage(), Stage::Draining);
    }
}
