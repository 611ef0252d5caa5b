//! One session, as its worker sees it: what it is doing, and how it is told to stop.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::endpoint::Endpoint;
use super::link::Link;
use super::newcomers::Place;
use super::sessions::{ProcessRow, SessionFacts, Sessions};
use super::ticker::{Ticker, Timer};
use super::wait::Wait;
use crate::config::{HostgroupId, Protocol};
use crate::origin::Origin;
use crate::pool::Rows;

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

impl SessionEntry {
    /// A session that begins.
    pub(super) fn new(id: u32, protocol: Protocol, client: Endpoint, ticker: &Ticker) -> Self {
        Self {
            id,
            protocol,
            client,
            signals: Cell::new(0),
            waker: RefCell::new(None),
            since: Cell::new(ticker.now()),
            holding: Cell::new([0; 2]),
            timer: ticker.timer(),
            origin: RefCell::default(),
            hostgroup: Cell::default(),
            command: Cell::default(),
            newcomer: Cell::new(None),
        }
    }

    /// Connection id on the wire: `slot << 24 | counter`.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn client(&self) -> &Endpoint {
        &self.client
    }

    /// It has not logged in, and has this place among those.
    pub(super) fn is_newcomer(&self, place: Place) {
        self.newcomer.set(Some(place));
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

    pub(super) fn is_draining(&self) -> bool {
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

    /// Its line of the process list of `worker`, whose clock shows `now`.
    pub(super) fn row(&self, worker: usize, now: u64, rows: &Rows) -> ProcessRow {
        let origin = self.origin.borrow();
        let text = |of: fn(&Origin) -> &str| origin.as_deref().map_or_else(String::new, |origin| of(origin).to_owned());
        ProcessRow {
            id: self.id,
            worker,
            protocol: self.protocol,
            client: self.client.clone(),
            time_ms: (now - self.since.get()) * 100,
            server: rows.address(self.holding.get()[0]),
            facts: SessionFacts {
                user: text(|origin| &origin.user),
                database: text(|origin| &origin.schema),
                hostgroup: self.hostgroup.get(),
                command: self.command.get(),
            },
        }
    }

    pub(crate) fn hold(&self, row: u64) {
        self.holding.set([row, self.holding.get()[0]]);
    }

    pub(crate) fn let_go(&self, row: u64) {
        let [newest, older] = self.holding.get();
        self.holding.set(if newest == row { [older, 0] } else { [newest, 0] });
    }

    pub(super) fn holds_any(&self, rows: &[u64]) -> bool {
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
    /// Of a session that `sessions` knows.
    pub(super) fn new(entry: Rc<SessionEntry>, sessions: Rc<Sessions>) -> Self {
        Self { entry, sessions }
    }

    /// The entry, for what outlives a borrow of the session.
    #[must_use]
    pub fn entry(&self) -> Rc<SessionEntry> {
        Rc::clone(&self.entry)
    }

    /// The client has logged in: it no longer counts among those who may be closed to make room.
    pub(crate) fn logged_in(&self) {
        if let Some(place) = self.entry.newcomer.take() {
            self.sessions.logged_in(place);
        }
    }

    /// Waits for bytes of the client, for `self.timer`, or for a signal other than `KillQuery`, which an idle session ignores.
    /// The future is three words and owns nothing: this is the wait of an idle session.
    pub fn wait<'a>(&'a self, link: &'a mut Link) -> Wait<'a> {
        Wait::new(&self.entry, link, true)
    }

    /// As `wait`, while a transaction or another state must be finished first: a drain does not end it.
    pub fn wait_busy<'a>(&'a self, link: &'a mut Link) -> Wait<'a> {
        Wait::new(&self.entry, link, false)
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
        if std::thread::panicking() {
            tracing::error!(session.id = self.entry.id, client = %self.entry.client, "session ended by a panic");
        }
        self.sessions.close(self.entry.id, self.entry.protocol);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::testing::{Workers, client, config};

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
}
