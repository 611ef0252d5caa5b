//! The sessions of one worker: their ids, what the process list shows, and how they are told to stop.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::chunk::Chunk;
use super::link::{Endpoint, Link};
use super::newcomers::{Newcomers, Place};
use super::runtime::WorkerSeat;
use super::ticker::{Ticker, Timer};
use crate::config::{HostgroupId, Protocol, ServerAddress};
use crate::origin::Origin;
use crate::pool::Rows;

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

    fn take(&self) -> u32 {
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

    fn put_back(&self, id: u32) {
        self.live.lock().remove(&id);
    }
}

/// What a session is told from outside. `Kill` and `Drain` stay set; `KillQuery` is taken by who sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Close the connection now (`KILL CONNECTION`, `pg_terminate_backend`).
    Kill,
    /// Abort the running statement (`KILL QUERY`, CancelRequest).
    KillQuery,
    /// The server that the session's connection belongs to is OFFLINE_HARD or gone: abort.
    ServerGone,
    /// Close as soon as no transaction is open; finish what runs.
    Drain,
}

impl Signal {
    const BY_URGENCY: [Self; 4] = [Self::Kill, Self::ServerGone, Self::KillQuery, Self::Drain];

    const fn bit(self) -> u8 {
        match self {
            Self::Kill => 1,
            Self::KillQuery => 2,
            Self::ServerGone => 4,
            Self::Drain => 8,
        }
    }
}

/// What the process list shows of a session beside its ends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionFacts {
    /// User name, empty before login.
    pub user: String,
    /// Schema or database.
    pub database: String,
    /// Hostgroup of the running or last statement.
    pub hostgroup: Option<HostgroupId>,
    /// `Sleep`, `Query`, `Connect` …
    pub command: &'static str,
}

/// A line of the process list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessRow {
    /// Connection id.
    pub id: u32,
    /// Worker.
    pub worker: usize,
    /// Protocol.
    pub protocol: Protocol,
    /// The client's end.
    pub client: Endpoint,
    /// Milliseconds since its activity changed, in ticks of 100.
    pub time_ms: u64,
    /// Server whose connection it holds now.
    pub server: Option<ServerAddress>,
    /// The rest.
    pub facts: SessionFacts,
}

/// One session, as its worker sees it.
pub struct SessionEntry {
    id: u32,
    protocol: Protocol,
    client: Endpoint,
    signals: Cell<u8>,
    waker: RefCell<Option<Waker>>,
    since: Cell<u64>,
    /// Ids of the rows whose connections it holds, the newest first; 0 = none. A session holds two at most: one that is put
    /// aside for a statement that goes elsewhere.
    holding: Cell<[u64; 2]>,
    /// The session's deadline: login, statement or idle, whatever it waits for.
    pub timer: Timer,
    /// Since login.
    origin: RefCell<Option<Arc<Origin>>>,
    /// Of the running or last statement.
    hostgroup: Cell<Option<HostgroupId>>,
    command: Cell<&'static str>,
    /// Its place among those who have not logged in.
    newcomer: Cell<Option<Place>>,
}

/// All sessions of one worker.
pub(crate) struct Sessions {
    ids: Arc<Ids>,
    seat: Arc<WorkerSeat>,
    ticker: Ticker,
    entries: RefCell<HashMap<u32, Rc<SessionEntry>>>,
    newcomers: RefCell<Newcomers>,
}

impl Sessions {
    /// The sessions of one of `workers`.
    pub(crate) fn new(ids: Arc<Ids>, seat: Arc<WorkerSeat>, ticker: Ticker, workers: usize) -> Rc<Self> {
        Rc::new(Self { ids, seat, ticker, entries: RefCell::default(), newcomers: RefCell::new(Newcomers::new(workers)) })
    }

    /// Registers a client of `listener` whose arrival its acceptor has counted already.
    pub(crate) fn open(self: &Rc<Self>, protocol: Protocol, listener: usize, client: Endpoint) -> SessionGuard {
        let entry = Rc::new(SessionEntry {
            id: self.ids.take(),
            protocol,
            client,
            signals: Cell::new(0),
            waker: RefCell::new(None),
            since: Cell::new(self.ticker.now()),
            holding: Cell::new([0; 2]),
            timer: self.ticker.timer(),
            origin: RefCell::default(),
            hostgroup: Cell::default(),
            command: Cell::default(),
            newcomer: Cell::new(None),
        });
        entry.newcomer.set(Some(self.newcomers.borrow_mut().add(listener, &entry, self.ticker.now())));
        self.entries.borrow_mut().insert(entry.id, Rc::clone(&entry));
        let cells = self.seat.cells.protocol(protocol);
        cells.created.add(1);
        cells.connected.add(1);
        SessionGuard { entry, sessions: Rc::clone(self) }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.borrow().len()
    }

    /// Signals one session; false if it is not here.
    pub(crate) fn signal(&self, id: u32, signal: Signal) -> bool {
        let entry = self.entries.borrow().get(&id).cloned();
        entry.map(|entry| entry.signal(signal)).is_some()
    }

    pub(crate) fn signal_all(&self, signal: Signal) {
        let entries: Vec<_> = self.entries.borrow().values().cloned().collect();
        for entry in entries {
            entry.signal(signal);
        }
    }

    /// Tells the share of the sessions that is due to drain, if all are to be told within `ticks` from now.
    pub(crate) fn drain_share(&self, ticks: u64) {
        let untold: Vec<_> = self.entries.borrow().values().filter(|entry| !entry.is_draining()).cloned().collect();
        let share = untold.len().div_ceil(usize::try_from(ticks).unwrap_or(usize::MAX).max(1));
        for entry in untold.into_iter().take(share) {
            entry.signal(Signal::Drain);
        }
    }

    /// Tells the sessions that hold a connection of one of these rows that it is to be cut.
    pub(crate) fn cut(&self, rows: &[u64]) {
        let entries: Vec<_> = self.entries.borrow().values().filter(|entry| entry.holds_any(rows)).cloned().collect();
        for entry in entries {
            entry.signal(Signal::ServerGone);
        }
    }

    pub(crate) fn process_list(&self, worker: usize, rows: &Rows) -> Vec<ProcessRow> {
        let row = |entry: &Rc<SessionEntry>| ProcessRow {
            id: entry.id,
            worker,
            protocol: entry.protocol,
            client: entry.client.clone(),
            time_ms: (self.ticker.now() - entry.since.get()) * 100,
            server: rows.address(entry.holding.get()[0]),
            facts: entry.facts(),
        };
        self.entries.borrow().values().map(row).collect()
    }
}

impl SessionEntry {
    /// Connection id on the wire: `slot << 24 | counter`.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn client(&self) -> &Endpoint {
        &self.client
    }

    /// Tells the session something and wakes it. Only from its own worker.
    pub fn signal(&self, signal: Signal) {
        self.signals.set(self.signals.get() | signal.bit());
        let waker = self.waker.borrow().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The most urgent signal that is set, without waiting. `KillQuery` and `ServerGone` are cleared by this.
    pub fn take_signal(&self) -> Option<Signal> {
        if self.holding.get() == [0; 2] {
            // The connection that was to be cut has been given up already.
            self.clear(Signal::ServerGone);
        }
        let set = self.signals.get();
        let signal = Signal::BY_URGENCY.into_iter().find(|signal| set & signal.bit() != 0)?;
        if matches!(signal, Signal::KillQuery | Signal::ServerGone) {
            self.clear(signal);
        }
        Some(signal)
    }

    /// Forgets a `KillQuery` that came when its statement had ended. `wait` does it, too.
    pub fn forget_kill_query(&self) {
        self.clear(Signal::KillQuery);
    }

    fn clear(&self, signal: Signal) {
        self.signals.set(self.signals.get() & !signal.bit());
    }

    fn is_draining(&self) -> bool {
        self.signals.get() & Signal::Drain.bit() != 0
    }

    /// Ready with a signal that is at least as urgent as `KillQuery` (a draining session finishes its statement).
    pub fn poll_interrupt(&self, cx: &mut Context<'_>) -> Poll<Signal> {
        if self.signals.get() & !Signal::Drain.bit() != 0
            && let Some(signal) = self.take_signal()
            && signal != Signal::Drain
        {
            return Poll::Ready(signal);
        }
        self.register(cx);
        Poll::Pending
    }

    /// Notes a change of activity for the process list. Costs two stores.
    pub fn note(&self, command: &'static str, now: u64) {
        self.command.set(command);
        self.since.set(now);
    }

    /// The session is, or has become, that of `origin`.
    pub(crate) fn set_origin(&self, origin: &Arc<Origin>) {
        *self.origin.borrow_mut() = Some(Arc::clone(origin));
    }

    /// Its statement runs there.
    pub(crate) fn set_hostgroup(&self, hostgroup: HostgroupId) {
        self.hostgroup.set(Some(hostgroup));
    }

    fn facts(&self) -> SessionFacts {
        let origin = self.origin.borrow();
        let text = |of: fn(&Origin) -> &str| origin.as_deref().map_or_else(String::new, |origin| of(origin).to_owned());
        SessionFacts {
            user: text(|origin| &origin.user),
            database: text(|origin| &origin.schema),
            hostgroup: self.hostgroup.get(),
            command: self.command.get(),
        }
    }

    pub(crate) fn hold(&self, row: u64) {
        self.holding.set([row, self.holding.get()[0]]);
    }

    pub(crate) fn let_go(&self, row: u64) {
        let [newest, older] = self.holding.get();
        self.holding.set(if newest == row { [older, 0] } else { [newest, 0] });
    }

    fn holds_any(&self, rows: &[u64]) -> bool {
        self.holding.get().iter().any(|held| rows.contains(held))
    }

    fn register(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }
}

impl fmt::Debug for SessionEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionEntry").field("id", &self.id).field("client", &self.client).finish_non_exhaustive()
    }
}

/// A session's registration; derefs to its entry. Dropping it ends the registration and counts a panic if there is one.
#[derive(Debug)]
pub struct SessionGuard {
    entry: Rc<SessionEntry>,
    sessions: Rc<Sessions>,
}

impl SessionGuard {
    /// The entry, for what outlives a borrow of the session.
    #[must_use]
    pub fn entry(&self) -> Rc<SessionEntry> {
        Rc::clone(&self.entry)
    }

    /// The client has logged in: it no longer counts among those who may be closed to make room.
    pub(crate) fn logged_in(&self) {
        if let Some(place) = self.entry.newcomer.take() {
            self.sessions.newcomers.borrow_mut().remove(place);
        }
    }

    /// Waits for bytes of the client, for `self.timer`, or for a signal other than `KillQuery`, which an idle session ignores.
    /// The future is three words and owns nothing: this is the wait of an idle session.
    pub fn wait<'a>(&'a self, link: &'a mut Link) -> Wait<'a> {
        Wait { entry: &self.entry, link, heeds_drain: true }
    }

    /// As `wait`, while a transaction or another state must be finished first: a drain does not end it.
    pub fn wait_busy<'a>(&'a self, link: &'a mut Link) -> Wait<'a> {
        Wait { entry: &self.entry, link, heeds_drain: false }
    }
}

impl Deref for SessionGuard {
    type Target = SessionEntry;

    fn deref(&self) -> &SessionEntry {
        &self.entry
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.logged_in();
        let cells = &self.sessions.seat.cells;
        if std::thread::panicking() {
            cells.panics.add(1);
            tracing::error!(session.id = self.entry.id, client = %self.entry.client, "session ended by a panic");
        }
        cells.protocol(self.entry.protocol).connected.sub(1);
        self.sessions.entries.borrow_mut().remove(&self.entry.id);
        self.sessions.ids.put_back(self.entry.id);
        self.sessions.seat.session_ended();
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// What ended the wait of an idle session.
#[derive(Debug)]
pub enum Wake {
    /// The client sent these bytes; empty = it closed.
    Bytes(Chunk),
    /// The session's timer is due.
    Expired,
    /// Told from outside.
    Signal(Signal),
    /// The socket broke.
    Broken(io::Error),
}

/// Future of [`SessionGuard::wait`]. Bytes of the client come before a drain, so that what was sent is still executed.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Wait<'a> {
    entry: &'a SessionEntry,
    link: &'a mut Link,
    heeds_drain: bool,
}

impl Future for Wait<'_> {
    type Output = Wake;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Wake> {
        let Self { entry, link, heeds_drain } = &mut *self;
        entry.forget_kill_query();
        if let Poll::Ready(signal) = entry.poll_interrupt(cx) {
            return Poll::Ready(Wake::Signal(signal));
        }
        match link.poll_recv(cx) {
            Poll::Ready(Ok(chunk)) => return Poll::Ready(Wake::Bytes(chunk)),
            Poll::Ready(Err(error)) => return Poll::Ready(Wake::Broken(error)),
            Poll::Pending => {}
        }
        if *heeds_drain && entry.is_draining() {
            return Poll::Ready(Wake::Signal(Signal::Drain));
        }
        entry.timer.poll_expired(cx).map(|()| Wake::Expired)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::worker::testing::{Workers, client, config, poll_once};

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

    #[test]
    fn an_idle_session_wakes_for_what_concerns_it() {
        let workers = Workers::new(1, config(1, &[]));
        let ctx = &workers.contexts[0];
        let (_far, mut front, session) = client(ctx, Protocol::Mysql);
        let entry = session.entry();
        let mut wake = |session: &SessionGuard, busy: bool| {
            let mut wait = if busy { session.wait_busy(&mut front) } else { session.wait(&mut front) };
            match poll_once(Pin::new(&mut wait)) {
                Poll::Ready(Wake::Signal(signal)) => Some(signal),
                Poll::Ready(other) => panic!("{other:?}"),
                Poll::Pending => None,
            }
        };
        for ignored in [Signal::KillQuery, Signal::ServerGone] {
            entry.signal(ignored);
            assert_eq!(wake(&session, false), None, "{ignored:?}");
            assert_eq!(entry.take_signal(), None);
        }
        entry.hold(1);
        entry.signal(Signal::ServerGone);
        assert_eq!(wake(&session, false), Some(Signal::ServerGone));
        entry.signal(Signal::Drain);
        assert_eq!(wake(&session, true), None);
        assert_eq!(wake(&session, false), Some(Signal::Drain));
        entry.signal(Signal::Kill);
        assert_eq!(wake(&session, true), Some(Signal::Kill));
        assert_eq!(wake(&session, false), Some(Signal::Kill), "stays");
    }

    #[test]
    fn a_drain_is_told_evenly_over_its_time() {
        let workers = Workers::new(1, config(1, &[]));
        let ctx = &workers.contexts[0];
        let clients: Vec<_> = (0..10).map(|_| client(ctx, Protocol::Mysql)).collect();
        let told = || clients.iter().filter(|(_, _, session)| session.is_draining()).count();
        ctx.shared().drain.begin(Duration::from_millis(400));
        let counts: Vec<usize> = (0..5)
            .map(|_| {
                workers.advance(1);
                told()
            })
            .collect();
        assert_eq!(counts, [3, 6, 8, 10, 10]);
    }

    #[test]
    fn two_held_connections_are_both_known() {
        let workers = Workers::new(1, config(1, &[]));
        let (_far, _front, session) = client(&workers.contexts[0], Protocol::Mysql);
        session.hold(7);
        session.hold(8);
        assert!(session.holds_any(&[7]) && session.holds_any(&[8]));
        session.let_go(8);
        assert!(session.holds_any(&[7]) && !session.holds_any(&[8]));
        session.hold(9);
        session.let_go(7);
        assert!(!session.holds_any(&[7]) && session.holds_any(&[9]));
    }

    #[test]
    fn bytes_come_before_a_drain_and_a_timer_ends_the_wait() {
        let workers = Workers::new(1, config(1, &[]));
        let (mut far, mut front, session) = client(&workers.contexts[0], Protocol::Mysql);
        session.timer.arm(Duration::from_millis(100));
        workers.advance(2);
        session.signal(Signal::Drain);
        far.send_at_once(b"last words");
        assert!(
            matches!(poll_once(Pin::new(&mut session.wait(&mut front))), Poll::Ready(Wake::Bytes(bytes)) if &bytes[..] == b"last words")
        );
        assert!(matches!(poll_once(Pin::new(&mut session.wait_busy(&mut front))), Poll::Ready(Wake::Expired)));
    }
}
