//! The beat of all workers' tickers: one thread that puts a word into their inboxes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::runtime::{Message, WorkerSeat};
use super::ticker::TICK;

/// Beats until it is dropped.
pub(crate) struct Metronome {
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Metronome {
    /// Starts the thread.
    pub(crate) fn start(seats: Vec<Arc<WorkerSeat>>) -> io::Result<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stopped);
        let thread = thread::Builder::new().name("metronome".into()).spawn(move || beat(&seats, &seen))?;
        Ok(Self { stopped, thread: Some(thread) })
    }
}

impl Drop for Metronome {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// A worker whose inbox is full misses a beat: the ticker goes by the clock, so that it only notices deadlines later.
fn beat(seats: &[Arc<WorkerSeat>], stopped: &AtomicBool) {
    let started = Instant::now();
    while !stopped.load(Ordering::Acquire) {
        let into = started.elapsed().as_nanos() % TICK.as_nanos();
        thread::park_timeout(TICK - Duration::from_nanos(u64::try_from(into).unwrap_or(0)));
        for seat in seats {
            let _ = seat.inbox.try_send(Message::Tick);
        }
    }
}
