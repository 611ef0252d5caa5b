//! A worker's thread: its inbox, and the one ticker that drives its deadlines.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::WorkerContext;
use super::acceptor::Accepted;
use super::drain::Drain;
use super::driver::{self, Driver};
use super::ids::Ids;
use super::link::Link;
use super::session::{SessionGuard, Signal};
use super::ticker::TICK;
use crate::config::{Protocol, RuntimeConfig};
use crate::guard::Told;
use crate::limits::ClientLimits;
use crate::pool::Rows;
use crate::stats::WorkerCells;

/// Accepted clients that may wait for a busy worker before its acceptors wait, too.
const INBOX: usize = 1024;

/// Ticks between two sweeps of the pools (one second).
const SWEEP_TICKS: u64 = 10;

/// Starts the task of a client (`driver::spawn` of the protocol's `serve`, without a box around it).
pub(crate) type Serve = fn(Link, SessionGuard, Rc<WorkerContext>);

/// The two protocols' entry points.
#[derive(Clone, Copy)]
pub(crate) struct Handlers {
    pub(crate) mysql: Serve,
    pub(crate) pgsql: Serve,
}

/// What all workers share. Nothing in it is written per query.
pub(crate) struct Shared {
    pub(crate) slot: u8,
    pub(crate) config: Arc<ArcSwap<RuntimeConfig>>,
    pub(crate) ids: Arc<Ids>,
    pub(crate) seats: Vec<Arc<WorkerSeat>>,
    pub(crate) drain: Drain,
    /// Told whenever a session ends.
    pub(crate) ended: Arc<Notify>,
    pub(crate) handlers: Handlers,
    pub(crate) rows: Rows,
    pub(crate) limits: ClientLimits,
    /// Names of the cluster's members by slot.
    pub(crate) nodes: Mutex<HashMap<u8, String>>,
    /// What the log has of the routing guard.
    pub(crate) guard_told: Told,
}

/// What others know of a worker.
pub(crate) struct WorkerSeat {
    pub(crate) index: usize,
    pub(crate) cells: WorkerCells,
    pub(crate) inbox: mpsc::Sender<Message>,
    sessions: AtomicUsize,
    ended: Arc<Notify>,
}

/// Something to do on a worker's thread.
pub(crate) type Work = Box<dyn FnOnce(&Rc<WorkerContext>) + Send>;

/// What is put into a worker's inbox.
pub(crate) enum Message {
    /// A client of a listener, counted in the seat's sessions already.
    Accept(Protocol, usize, Accepted),
    /// Something to do on the worker's thread.
    Run(Work),
    /// Time has passed.
    Tick,
    /// End; tasks that are left are dropped.
    Stop,
}

impl WorkerSeat {
    pub(crate) fn new(index: usize, cells: WorkerCells, ended: Arc<Notify>) -> (Arc<Self>, mpsc::Receiver<Message>) {
        let (inbox, messages) = mpsc::channel(INBOX);
        (Arc::new(Self { index, cells, inbox, sessions: AtomicUsize::new(0), ended }), messages)
    }

    /// Sessions of this worker, those on their way to it included.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    pub(crate) fn session_comes(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn session_ended(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
        self.ended.notify_waiters();
    }
}

impl Shared {
    /// Name of the member in a slot.
    pub(crate) fn node_name(&self, slot: u8) -> Option<String> {
        self.nodes.lock().get(&slot).cloned()
    }

    /// Asks another thread's worker to run `work`; dropped without being run if its inbox is full or it has ended.
    pub(crate) fn run_on(&self, worker: usize, work: impl FnOnce(&Rc<WorkerContext>) + Send + 'static) -> bool {
        self.seats.get(worker).is_some_and(|seat| seat.inbox.try_send(Message::Run(Box::new(work))).is_ok())
    }

    fn serve(&self, protocol: Protocol) -> Serve {
        match protocol {
            Protocol::Mysql => self.handlers.mysql,
            Protocol::Pgsql => self.handlers.pgsql,
        }
    }
}

/// Starts the thread of one worker and waits until its driver stands.
pub(crate) fn start(shared: Arc<Shared>, seat: Arc<WorkerSeat>, messages: mpsc::Receiver<Message>) -> io::Result<JoinHandle<()>> {
    let (started, standing) = std::sync::mpsc::sync_channel(1);
    let name = format!("worker-{}", seat.index);
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let (driver, outcome) = match Driver::new() {
            Ok(driver) => (Some(driver), Ok(())),
            Err(error) => (None, Err(error)),
        };
        // The starter waits for this word.
        let _ = started.send(outcome);
        if let Some(driver) = driver {
            driver.block_on(run(WorkerContext::new(shared, seat), messages));
        }
    })?;
    standing.recv().unwrap_or_else(|_| Err(io::Error::other("worker thread ended at its start")))?;
    Ok(thread)
}

async fn run(ctx: Rc<WorkerContext>, mut messages: mpsc::Receiver<Message>) {
    let started = Instant::now();
    while let Some(message) = messages.recv().await {
        match message {
            Message::Accept(protocol, listener, socket) => accept(&ctx, protocol, listener, socket),
            Message::Run(work) => {
                let ctx = Rc::clone(&ctx);
                // In a task, so that a panic ends the work and not the worker.
                driver::spawn(async move { work(&ctx) });
            }
            Message::Tick => {
                // After a time in which this worker was too busy for its sockets, what they have brought comes before deadlines.
                driver::next_turn().await;
                let tick = started.elapsed().as_millis() / TICK.as_millis();
                ctx.on_tick(u64::try_from(tick).unwrap_or(u64::MAX));
            }
            Message::Stop => return,
        }
    }
}

fn accept(ctx: &Rc<WorkerContext>, protocol: Protocol, listener: usize, socket: Accepted) {
    let link = match socket {
        Accepted::Tcp(socket) => Link::tcp(socket, ctx.chunks().clone()),
        Accepted::Unix(socket) => Link::unix(socket, ctx.chunks().clone()),
    };
    match link {
        Ok(link) => serve(ctx, protocol, listener, link),
        // The client has gone already.
        Err(error) => {
            tracing::debug!(%error, "accepted socket is unusable");
            ctx.seat.session_ended();
        }
    }
}

/// Starts a session on `link`, which came by `listener` and has been counted in the seat's sessions.
fn serve(ctx: &Rc<WorkerContext>, protocol: Protocol, listener: usize, link: Link) {
    let session = ctx.open_session(protocol, listener, &link);
    if ctx.shared.drain.is_on() {
        session.signal(Signal::Drain);
    }
    ctx.shared.serve(protocol)(link, session, Rc::clone(ctx));
}

impl WorkerContext {
    /// Once per tick: deadlines, draining, upkeep of the pools.
    pub(crate) fn on_tick(self: &Rc<Self>, tick: u64) {
        self.ticker.advance_to(tick);
        let config = self.config();
        let (generation, at) = self.swept.get();
        let changed = generation != self.generation.get();
        if changed {
            self.sessions.cut(&self.shared.rows.cut());
        }
        let sweeps = self.sweeps.borrow().clone();
        if changed || tick >= at + SWEEP_TICKS {
            self.swept.set((self.generation.get(), tick));
            sweeps.iter().for_each(|sweep| sweep.sweep(&config));
        } else {
            sweeps.iter().for_each(|sweep| sweep.serve_waiters());
        }
        if self.shared.drain.is_on() {
            let since = self.draining_since.get().unwrap_or(tick);
            self.draining_since.set(Some(since));
            self.sessions.drain_share(self.shared.drain.spread().saturating_sub(tick - since));
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("slot", &self.slot).field("workers", &self.seats.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for WorkerSeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerSeat").field("index", &self.index).field("sessions", &self.sessions()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use tokio::sync::oneshot;

    use super::*;
    use crate::worker::testing::{Workers, config, server};

    /// A worker that did not look at its sockets for longer than a deadline (it was busy, or its machine was).
    #[test]
    fn what_came_in_time_is_read_before_a_deadline_that_passed_meanwhile() {
        driver::block_on(async {
            let workers = Workers::new(1, config(1, &[server(1, "a", 1)]));
            let ctx = Rc::clone(&workers.contexts[0]);
            let (messages, inbox) = mpsc::channel(4);
            driver::spawn(run(Rc::clone(&ctx), inbox));
            let (mut far, near) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            let mut link = Link::unix(near, ctx.chunks().clone()).unwrap();
            let ticker = ctx.ticker().clone();
            let (tell, told) = oneshot::channel();
            driver::spawn(async move {
                let read = ticker.guard(TICK, Box::pin(link.recv())).await;
                tell.send(read.map(|read| read.unwrap().to_vec())).unwrap();
            });
            // Both wait.
            driver::next_turn().await;
            far.write_all(b"answer").unwrap();
            std::thread::sleep(TICK * 3);
            messages.try_send(Message::Tick).unwrap();
            assert_eq!(told.await.unwrap().as_deref(), Ok(&b"answer"[..]));
        });
    }
}
