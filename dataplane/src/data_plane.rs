//! The handle of the data plane: start, listen, swap, count, drain.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::config::{Protocol, RuntimeConfig};
use crate::explain::{self, Question, Step};
use crate::guard::Told;
use crate::limits::ClientLimits;
use crate::pool::Rows;
use crate::stats::digests::Merged;
use crate::stats::{self, DigestRow, Stats, WorkerCells};
use crate::worker::ids::Ids;
use crate::worker::session::Signal;
use crate::worker::sessions::ProcessRow;
use crate::worker::{self, Acceptor, Drain, Handlers, Message, Metronome, Shared, WorkerSeat};

/// Facts that do not change while the process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataPlaneOptions {
    /// Number of workers; 0 counts as 1.
    pub threads: usize,
    /// This member's slot, 1…127: the upper byte of connection ids.
    pub slot: u8,
}

/// The running data plane. Cheap to clone; [`DataPlane::shutdown`] ends it.
#[derive(Clone)]
pub struct DataPlane {
    plane: Arc<Plane>,
}

struct Plane {
    shared: Arc<Shared>,
    acceptors: Mutex<Vec<Acceptor>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    metronome: Mutex<Option<Metronome>>,
    /// Held while a configuration is swapped in.
    swaps: Mutex<()>,
}

impl DataPlane {
    /// Starts the workers; nothing is listened on yet.
    pub fn start(options: DataPlaneOptions, config: Arc<RuntimeConfig>) -> io::Result<Self> {
        let handlers = Handlers { mysql: crate::frontend::mysql::spawn, pgsql: crate::frontend::pgsql::spawn };
        Self::start_with(options, config, handlers)
    }

    pub(crate) fn start_with(options: DataPlaneOptions, config: Arc<RuntimeConfig>, handlers: Handlers) -> io::Result<Self> {
        let ended = Arc::new(Notify::new());
        let (seats, inboxes): (Vec<_>, Vec<_>) =
            (0..options.threads.max(1)).map(|index| WorkerSeat::new(index, WorkerCells::new(&config), Arc::clone(&ended))).unzip();
        #[expect(clippy::cast_possible_truncation, reason = "random bits")]
        let first_id = worker::random_u64() as u32;
        let rows = Rows::new(seats.len());
        rows.apply(&config);
        let shared = Arc::new(Shared {
            slot: options.slot,
            config: Arc::new(ArcSwap::new(config)),
            ids: Arc::new(Ids::new(options.slot, first_id)),
            seats,
            drain: Drain::default(),
            ended,
            handlers,
            rows,
            limits: ClientLimits::default(),
            nodes: Mutex::default(),
            guard_told: Told::default(),
        });
        let plane = Plane {
            shared: Arc::clone(&shared),
            acceptors: Mutex::default(),
            threads: Mutex::default(),
            metronome: Mutex::default(),
            swaps: Mutex::default(),
        };
        let plane = Self { plane: Arc::new(plane) };
        for (seat, inbox) in shared.seats.iter().zip(inboxes) {
            let thread = worker::start(Arc::clone(&shared), Arc::clone(seat), inbox)?;
            plane.plane.threads.lock().push(thread);
        }
        *plane.plane.metronome.lock() = Some(Metronome::start(shared.seats.clone())?);
        Ok(plane)
    }

    /// Listens on `address` (`ip:port`, port 0 = any free one; or `/path` of a Unix socket) and returns the address in use.
    pub fn listen(&self, protocol: Protocol, address: &str) -> io::Result<String> {
        if self.plane.shared.drain.is_on() {
            return Err(io::Error::other("the data plane is draining"));
        }
        let acceptor = Acceptor::start(Arc::clone(&self.plane.shared), protocol, address)?;
        let bound = acceptor.address().to_owned();
        self.plane.acceptors.lock().push(acceptor);
        Ok(bound)
    }

    /// Publishes `config`: every statement that starts after the return sees it, running ones keep theirs.
    pub fn swap(&self, config: Arc<RuntimeConfig>) {
        let _turn = self.plane.swaps.lock();
        self.plane.shared.rows.apply(&config);
        self.plane.shared.config.store(config);
    }

    /// Names the members of the cluster by slot, for messages about sessions of other nodes.
    pub fn set_nodes(&self, nodes: impl IntoIterator<Item = (u8, String)>) {
        *self.plane.shared.nodes.lock() = nodes.into_iter().collect();
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<RuntimeConfig> {
        self.plane.shared.config.load_full()
    }

    /// All counters, summed over the workers.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = &self.plane.shared;
        let config = self.config();
        let mut sum = Stats::default();
        for seat in &shared.seats {
            sum.add_worker(&seat.cells);
            sum.workers.push(seat.sessions());
        }
        sum.pool = shared.rows.stats();
        sum.rules = [Protocol::Mysql, Protocol::Pgsql]
            .map(|protocol| stats::sum_rules(protocol, &config, shared.seats.iter().map(|seat| &seat.cells)));
        sum
    }

    /// What would become of a statement now.
    #[must_use]
    pub fn explain(&self, question: &Question) -> Vec<Step> {
        explain::explain(&self.config(), &self.plane.shared.rows.stats(), question)
    }

    /// Statements by digest, summed over the workers; `take` empties them. Waits for each worker to answer.
    pub async fn digests(&self, protocol: Protocol, take: bool) -> Vec<DigestRow> {
        let mut merged = Merged::default();
        for seat in &self.plane.shared.seats {
            let (answer, answered) = oneshot::channel();
            let ask = Message::Run(Box::new(move |ctx| {
                let mut digests = ctx.digests(protocol).borrow_mut();
                let entries = if take { digests.take() } else { digests.list() };
                // The asker may have given up.
                let _ = answer.send((entries, ctx.ticker().now()));
            }));
            if seat.inbox.send(ask).await.is_ok()
                && let Ok((entries, now)) = answered.await
            {
                merged.add(&entries, now);
            }
        }
        merged.into_rows()
    }

    /// The process list of all workers. Waits for each to answer, which a worker does between two events.
    pub async fn process_list(&self) -> Vec<ProcessRow> {
        let mut rows = Vec::new();
        for seat in &self.plane.shared.seats {
            let (answer, answered) = oneshot::channel();
            let ask = Message::Run(Box::new(move |ctx| {
                // The asker may have given up.
                let _ = answer.send(ctx.sessions().process_list(ctx.index(), &ctx.shared().rows));
            }));
            if seat.inbox.send(ask).await.is_ok()
                && let Ok(part) = answered.await
            {
                rows.extend(part);
            }
        }
        rows
    }

    /// Signals the session with this connection id; false if there is none.
    pub async fn signal(&self, id: u32, signal: Signal) -> bool {
        for seat in &self.plane.shared.seats {
            let (answer, answered) = oneshot::channel();
            let ask = Message::Run(Box::new(move |ctx| {
                let _ = answer.send(ctx.sessions().signal(id, signal));
            }));
            if seat.inbox.send(ask).await.is_ok() && answered.await.unwrap_or(false) {
                return true;
            }
        }
        false
    }

    /// Stops accepting. Idle sessions close, busy ones finish their statement or transaction first; see `drained`.
    /// Blocks until the listeners are closed.
    pub fn begin_drain(&self) {
        self.begin_drain_over(Duration::ZERO);
    }

    /// As `begin_drain`, with the sessions told evenly over `spread`, so that their clients do not all reconnect at once.
    pub fn begin_drain_over(&self, spread: Duration) {
        self.plane.shared.drain.begin(spread);
        self.plane.acceptors.lock().clear();
    }

    /// Tells every session that is left to close at once: what runs for it on a server is aborted. The last step of a drain;
    /// wait with `drained` for their ends.
    pub async fn kill_sessions(&self) {
        for seat in &self.plane.shared.seats {
            let tell = Message::Run(Box::new(|ctx| ctx.sessions().signal_all(Signal::Kill)));
            // A worker that has ended has no sessions.
            let _ = seat.inbox.send(tell).await;
        }
    }

    /// Waits until no session is left or `deadline` has passed; returns how many are left. Runs on any tokio runtime.
    pub async fn drained(&self, deadline: Duration) -> usize {
        let left = || self.plane.shared.seats.iter().map(|seat| seat.sessions()).sum::<usize>();
        let none_left = async {
            loop {
                let ended = self.plane.shared.ended.notified();
                tokio::pin!(ended);
                // Registered before the count is read, so that no end is missed.
                ended.as_mut().enable();
                if left() == 0 {
                    return;
                }
                ended.await;
            }
        };
        // On expiry the number says it.
        let _ = tokio::time::timeout(deadline, none_left).await;
        left()
    }

    /// Stops listeners and workers and waits for their threads; sessions that are left are cut.
    pub fn shutdown(&self) {
        self.begin_drain();
        self.plane.metronome.lock().take();
        for seat in &self.plane.shared.seats {
            let mut stop = Message::Stop;
            while let Err(tokio::sync::mpsc::error::TrySendError::Full(again)) = seat.inbox.try_send(stop) {
                stop = again;
                std::thread::yield_now();
            }
        }
        for thread in self.plane.threads.lock().drain(..) {
            // A panic of the thread has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for DataPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataPlane").field("shared", &self.plane.shared).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod relay_tests;
#[cfg(test)]
mod tests;
