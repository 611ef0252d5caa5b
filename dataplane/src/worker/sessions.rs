//! All sessions of one worker: how they begin and end, what the process list shows, and how all are told to stop.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use super::endpoint::Endpoint;
use super::ids::Ids;
use super::newcomers::{Newcomers, Place};
use super::runtime::WorkerSeat;
use super::session::{SessionEntry, SessionGuard, Signal};
use super::ticker::Ticker;
use crate::config::{HostgroupId, Protocol, ServerAddress};
use crate::pool::Rows;

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
        let entry = Rc::new(SessionEntry::new(self.ids.take(), protocol, client, &self.ticker));
        entry.is_newcomer(self.newcomers.borrow_mut().add(listener, &entry, self.ticker.now()));
        self.entries.borrow_mut().insert(entry.id(), Rc::clone(&entry));
        let cells = self.seat.cells.protocol(protocol);
        cells.created.add(1);
        cells.connected.add(1);
        SessionGuard::new(entry, Rc::clone(self))
    }

    /// A client has logged in, and leaves the place that it had until then.
    pub(super) fn logged_in(&self, place: Place) {
        self.newcomers.borrow_mut().remove(place);
    }

    /// A session has ended, by a panic if the thread is panicking.
    pub(super) fn close(&self, id: u32, protocol: Protocol) {
        let cells = &self.seat.cells;
        if std::thread::panicking() {
            cells.panics.add(1);
        }
        cells.protocol(protocol).connected.sub(1);
        self.entries.borrow_mut().remove(&id);
        self.ids.put_back(id);
        self.seat.session_ended();
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
        let now = self.ticker.now();
        self.entries.borrow().values().map(|entry| entry.row(worker, now, rows)).collect()
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::config::Protocol;
    use crate::worker::testing::{Workers, client, config};

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
}
