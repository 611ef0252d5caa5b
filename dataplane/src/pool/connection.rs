//! A server connection in a session's hands, and the ways back.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::Arc;

use super::inner::Listed;
use super::key::PoolKey;
use super::row::{RowCells, ServerRow};
use super::slots::Grant;
use super::{Dialect, Pool};
use crate::config::{HostgroupId, ServerAddress};
use crate::stats::Counter;
use crate::tls::ServerTls;
use crate::worker::link::{IdleCheck, Link};
use crate::worker::session::SessionEntry;

/// A connection with what the pool knows of it. It holds a slot of its row.
pub(crate) struct Entry<D: Dialect> {
    pub(crate) backend: D::Backend,
    pub(crate) row: Arc<ServerRow>,
    pub(crate) tls: ServerTls,
    pub(crate) key: PoolKey,
    /// Ticks of the worker's clock.
    pub(crate) born: u64,
    pub(crate) last_used: u64,
}

impl<D: Dialect> Entry<D> {
    /// Whether the server is still there and silent (or said what the dialect accepts).
    pub(crate) fn is_alive(&mut self) -> bool {
        loop {
            match D::link(&mut self.backend).check_idle() {
                IdleCheck::Quiet => return true,
                IdleCheck::Closed => return false,
                IdleCheck::Bytes(bytes) if D::on_idle_bytes(&mut self.backend, &bytes) => {}
                IdleCheck::Bytes(_) => return false,
            }
        }
    }
}

impl<D: Dialect> Listed for Box<Entry<D>> {
    fn peer(&self) -> u64 {
        self.row.peer
    }

    fn tls(&self) -> &ServerTls {
        &self.tls
    }

    fn key(&self) -> &PoolKey {
        &self.key
    }
}

/// A backend on its way to another worker.
pub(super) struct Transfer<D: Dialect> {
    pub(super) parcel: D::Parcel,
    /// Age in ticks: clocks of workers differ.
    pub(super) age: u64,
}

/// A connection that a session holds; derefs to the dialect's backend.
///
/// `release` makes it idle again, which is right only if it is in a clean state: nothing outstanding, no transaction, no
/// session state that the next client must not see. Dropping it closes the connection.
pub struct PooledConnection<D: Dialect> {
    /// `None` only while it is being released.
    entry: Option<Box<Entry<D>>>,
    pool: Rc<Pool<D>>,
    session: Rc<SessionEntry>,
}

impl<D: Dialect> PooledConnection<D> {
    /// Takes an entry that holds a slot and is counted nowhere.
    pub(super) fn new(pool: Rc<Pool<D>>, session: Rc<SessionEntry>, entry: Box<Entry<D>>) -> Self {
        let cells = entry.row.cells(pool.worker);
        cells.used.add(1);
        cells.max_used.raise_to(cells.used.get());
        session.hold(entry.row.id);
        Self { entry: Some(entry), pool, session }
    }

    /// The server's socket.
    pub fn link(&mut self) -> &mut Link {
        D::link(&mut self.entry_mut().backend)
    }

    /// The hostgroup by which it was chosen.
    #[must_use]
    pub fn hostgroup(&self) -> HostgroupId {
        self.entry_ref().row.hostgroup()
    }

    /// The server.
    #[must_use]
    pub fn address(&self) -> &ServerAddress {
        self.entry_ref().row.address()
    }

    /// This worker's counters of the server's row: queries and bytes are the session's to count.
    #[must_use]
    pub fn cells(&self) -> &RowCells {
        self.entry_ref().row.cells(self.pool.worker)
    }

    /// Whether the server is ONLINE: a pinned connection of another one should be given up as soon as its state allows.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.entry_ref().row.keeps_connections()
    }

    /// Changes to an idle connection of the same kind that is `wanted`, the youngest first, and leaves this one in its place, which
    /// must be clean. `false` = there is none among the youngest few. No wait, no allocation.
    pub fn prefer(&mut self, wanted: impl Fn(&D::Backend) -> bool) -> bool {
        let pool = Rc::clone(&self.pool);
        let mine = self.entry.as_mut().expect("a connection is taken out only when it is consumed");
        let mut idle = pool.idle.borrow_mut();
        let others = idle.youngest(mine.row.peer, &mine.tls, &mine.key);
        // Of the same row, so that its counters stay right.
        let found = others.iter().rposition(|other| other.row.id == mine.row.id && wanted(&other.backend));
        let Some(at) = found.filter(|at| others[*at].is_alive()) else { return false };
        std::mem::swap(&mut others[at], mine);
        // It was in use until now.
        others[at].last_used = pool.ticker.now();
        others[at..].rotate_left(1);
        true
    }

    /// Makes the connection idle, or gives it to the first who waits for the server. Closes it if the server is not ONLINE
    /// any more, has too many connections, or the connection is too old.
    pub fn release(mut self) {
        if let Some(entry) = self.take() {
            let row = &entry.row;
            let age = self.pool.ticker.now().saturating_sub(entry.born);
            if !row.keeps_connections() || row.slots.held() > row.max() || age >= self.pool.max_age.get() {
                self.pool.close(entry);
            } else {
                self.pool.give_back(entry);
            }
        }
    }

    fn take(&mut self) -> Option<Box<Entry<D>>> {
        let entry = self.entry.take()?;
        entry.row.cells(self.pool.worker).used.sub(1);
        self.session.let_go(entry.row.id);
        Some(entry)
    }

    fn entry_ref(&self) -> &Entry<D> {
        self.entry.as_ref().expect("a connection is taken out only when it is consumed")
    }

    fn entry_mut(&mut self) -> &mut Entry<D> {
        self.entry.as_mut().expect("a connection is taken out only when it is consumed")
    }
}

impl<D: Dialect> Deref for PooledConnection<D> {
    type Target = D::Backend;

    fn deref(&self) -> &D::Backend {
        &self.entry_ref().backend
    }
}

impl<D: Dialect> DerefMut for PooledConnection<D> {
    fn deref_mut(&mut self) -> &mut D::Backend {
        &mut self.entry_mut().backend
    }
}

impl<D: Dialect> Drop for PooledConnection<D> {
    fn drop(&mut self) {
        if let Some(entry) = self.take() {
            let row = Arc::clone(&entry.row);
            drop(entry);
            row.slots.put_back(row.max());
        }
    }
}

impl<D: Dialect> fmt::Debug for PooledConnection<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledConnection").field("row", &self.entry.as_ref().map(|entry| &entry.row)).finish_non_exhaustive()
    }
}

impl<D: Dialect> Pool<D> {
    /// Says good-bye, closes, and gives the slot back.
    pub(super) fn close(&self, mut entry: Box<Entry<D>>) {
        D::link(&mut entry.backend).send_at_once(D::goodbye());
        let row = Arc::clone(&entry.row);
        drop(entry);
        row.slots.put_back(row.max());
    }

    /// Gives a healthy connection (counted nowhere) to the first waiter of its row, else to the idle list. A waiter with
    /// another key gets the slot instead.
    pub(super) fn give_back(&self, mut entry: Box<Entry<D>>) {
        while let Some(waiter) = entry.row.slots.next_waiter(self.worker) {
            if waiter.tls != entry.tls || waiter.key != entry.key {
                return self.close_for(entry, |grant| waiter.grant(grant));
            }
            if waiter.worker != self.worker {
                return self.send_over(*entry, |grant| waiter.grant(grant));
            }
            let name = waiter.name();
            self.handed.borrow_mut().insert(name, entry);
            if waiter.grant(Grant::Local).is_ok() {
                return;
            }
            // It gave up in this moment.
            match self.handed.borrow_mut().remove(&name) {
                Some(back) => entry = back,
                None => return,
            }
        }
        entry.last_used = self.ticker.now();
        entry.row.cells(self.worker).free.add(1);
        self.idle.borrow_mut().push(entry);
    }

    /// Takes back what was put down for a waiter of this worker.
    pub(super) fn take_handed(&self, name: usize) -> Option<Box<Entry<D>>> {
        self.handed.borrow_mut().remove(&name)
    }

    fn close_for(&self, mut entry: Box<Entry<D>>, grant: impl FnOnce(Grant) -> Result<(), Grant>) {
        D::link(&mut entry.backend).send_at_once(D::goodbye());
        let row = Arc::clone(&entry.row);
        drop(entry);
        if grant(Grant::Slot).is_err() {
            row.slots.put_back(row.max());
        }
    }

    fn send_over(&self, entry: Entry<D>, grant: impl FnOnce(Grant) -> Result<(), Grant>) {
        let age = self.ticker.now().saturating_sub(entry.born);
        let Entry { backend, row, .. } = entry;
        let given = match D::pack(backend) {
            Ok(parcel) => Grant::Parcel(Box::new(Transfer::<D> { parcel, age })),
            Err(error) => {
                tracing::debug!(%error, server = %row.address(), "connection cannot change its worker");
                Grant::Slot
            }
        };
        let is_parcel = matches!(given, Grant::Parcel(_));
        if grant(given).is_err() {
            row.slots.put_back(row.max());
        } else if is_parcel {
            self.handed_over().add(1);
        }
    }

    fn handed_over(&self) -> &Counter {
        &self.shared.seats[self.worker].cells.protocol(D::PROTOCOL).handed_over
    }
}
