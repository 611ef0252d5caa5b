//! Getting a connection: choose a server, take an idle connection, open one, or wait for one.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use super::connection::{Entry, PooledConnection, Transfer};
use super::error::{AcquireError, ConnectError};
use super::health::{Recovery, recovery_time};
use super::key::PoolKey;
use super::row::ServerRow;
use super::slots::{Grant, Waiter};
use super::{Dialect, Pool, Suits};
use crate::config::{HostgroupId, Server, ServerStatus, Variables};
use crate::routing;
use crate::worker::WorkerContext;
use crate::worker::link::Link;
use crate::worker::session::{SessionGuard, Signal};
use crate::worker::snapshot::{Candidate, Snapshot};

/// Who wants a connection, and of what kind.
pub struct Request<'a, D: Dialect> {
    /// The session; a signal to it ends the wait.
    pub session: &'a SessionGuard,
    /// Its client; if it closes, the wait ends.
    pub client: &'a mut Link,
    /// What the connection must be like.
    pub key: &'a PoolKey,
    /// What a new connection needs to log in, and what an idle one must suit.
    pub login: &'a D::Login,
    /// Where.
    pub hostgroup: HostgroupId,
}

impl<D: Dialect> fmt::Debug for Request<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("hostgroup", &self.hostgroup).finish_non_exhaustive()
    }
}

/// Most ticks between two attempts at a server that is coming up (one second); the first waits for one, each for one more than the last.
const PATIENCE: u64 = 10;

/// What the hostgroup offers at this moment.
enum Choice<D: Dialect> {
    /// An idle connection.
    Connection(Box<Entry<D>>),
    /// The right to open one.
    Slot(Slot, Arc<Server>),
    /// All candidates are at their limit; wait for this one.
    Full(Arc<ServerRow>, Arc<Server>),
    /// No server is ONLINE.
    Nobody,
}

/// A slot that goes back unless it is used.
struct Slot(Option<Arc<ServerRow>>);

impl Slot {
    fn new(row: &Arc<ServerRow>) -> Self {
        Self(Some(Arc::clone(row)))
    }

    fn row(&self) -> &Arc<ServerRow> {
        self.0.as_ref().expect("a slot is consumed once")
    }

    fn keep(mut self) -> Arc<ServerRow> {
        self.0.take().expect("a slot is consumed once")
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(row) = self.0.take() {
            row.slots.put_back(row.max());
        }
    }
}

impl<D: Dialect> Pool<D> {
    /// A connection for a statement. Ready at once if an idle one is there; otherwise opens one or waits, for
    /// `connect_timeout_server_max` in all; the session counts what fails. Cancel-safe: a place in a queue, a slot or a half-open connection is given up.
    pub async fn acquire(self: &Rc<Self>, config: &Snapshot, request: Request<'_, D>) -> Result<PooledConnection<D>, AcquireError> {
        let session = request.session.entry();
        let entry = match self.choose(config, request.key, request.login, request.hostgroup, None) {
            Choice::Connection(entry) => entry,
            other => Box::pin(self.acquire_watched(other, config, request)).await?,
        };
        Ok(PooledConnection::new(Rc::clone(self), session, entry))
    }

    /// Waits, with an eye on the deadline, the client and the session's signals.
    async fn acquire_watched(
        self: &Rc<Self>,
        choice: Choice<D>,
        config: &Snapshot,
        request: Request<'_, D>,
    ) -> Result<Box<Entry<D>>, AcquireError> {
        let Request { session, client, key, login, hostgroup } = request;
        let started = Instant::now();
        let limit = self.ticker.timer();
        limit.arm(config.side(D::PROTOCOL).variables.connect_timeout_server_max);
        let cause = RefCell::new(String::new());
        let mut search = pin!(self.search(choice, key, login, hostgroup, &cause));
        poll_fn(|cx| {
            if let Poll::Ready(result) = search.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            if let Poll::Ready(signal) = session.poll_interrupt(cx) {
                return Poll::Ready(Err(AcquireError::Interrupted(signal)));
            }
            if client.poll_closed(cx).is_ready() {
                return Poll::Ready(Err(AcquireError::ClientGone));
            }
            limit
                .poll_expired(cx)
                .map(|()| Err(AcquireError::Timeout { hostgroup, waited: started.elapsed(), cause: cause.borrow().clone() }))
        })
        .await
    }

    /// Opens and waits until there is a connection or no sense in going on.
    async fn search(
        self: &Rc<Self>,
        mut choice: Choice<D>,
        key: &PoolKey,
        login: &D::Login,
        hostgroup: HostgroupId,
        cause: &RefCell<String>,
    ) -> Result<Box<Entry<D>>, AcquireError> {
        let (mut failures, mut patience) = (0, 0);
        let mut avoid = None;
        loop {
            let Some(ctx) = self.ctx.upgrade() else { return Err(AcquireError::Interrupted(Signal::Kill)) };
            let config = ctx.config();
            let variables = &config.side(D::PROTOCOL).variables;
            match choice {
                Choice::Connection(entry) => return Ok(entry),
                Choice::Slot(slot, server) => {
                    let row = Arc::clone(slot.row());
                    match self.open(&ctx, slot, &server, key, login, variables).await {
                        Ok(entry) => return Ok(entry),
                        Err(error) => {
                            avoid = Some(row.id);
                            *cause.borrow_mut() = format!("{}: {error}", server.address);
                            if error.is_starting() {
                                patience = (patience + 1).min(PATIENCE);
                                self.wait_ticks(patience).await;
                            } else {
                                failures += 1;
                            }
                            if !error.is_retried() || failures > variables.connect_retries_on_failure {
                                return Err(give_up(error, hostgroup, cause));
                            }
                        }
                    }
                }
                Choice::Full(row, server) => {
                    *cause.borrow_mut() = format!("{} connections of {} are in use", row.slots.held(), server.address);
                    match self.wait_for(&ctx, &row, &server, key).await {
                        Some(Won::Entry(entry)) if D::suits(&entry.backend, login) != Suits::Not => return Ok(entry),
                        Some(Won::Entry(mut entry)) => {
                            choice = Choice::Slot(Self::slot_of(&mut entry), server);
                            continue;
                        }
                        Some(Won::Slot(slot)) => {
                            choice = Choice::Slot(slot, server);
                            continue;
                        }
                        None => {}
                    }
                }
                Choice::Nobody => {
                    if cause.borrow().is_empty() {
                        *cause.borrow_mut() = nobody(config.candidates(D::PROTOCOL, hostgroup));
                    }
                    self.ticker.next_tick().await;
                }
            }
            choice = self.choose(&ctx.config(), key, login, hostgroup, avoid);
        }
    }

    /// Closes a connection and keeps its slot.
    fn slot_of(entry: &mut Entry<D>) -> Slot {
        D::link(&mut entry.backend).send_at_once(D::goodbye());
        Slot::new(&entry.row)
    }

    async fn wait_ticks(&self, count: u64) {
        let timer = self.ticker.timer();
        timer.arm_at(self.ticker.now() + count);
        timer.expired().await;
    }

    /// Chooses a server by weight and takes what it has; servers at their limit leave the choice to the others.
    fn choose(&self, config: &Snapshot, key: &PoolKey, login: &D::Login, hostgroup: HostgroupId, avoid: Option<u64>) -> Choice<D> {
        let candidates = config.candidates(D::PROTOCOL, hostgroup);
        let variables = &config.side(D::PROTOCOL).variables;
        let mut full: Vec<usize> = Vec::new();
        loop {
            let usable = |index: usize| {
                let candidate = &candidates[index];
                candidate.open && !full.contains(&index) && is_healthy(candidate, variables, Recovery::Regular)
            };
            let weight = |index: usize| if usable(index) { candidates[index].server.weight } else { 0 };
            let others = |index: usize| if avoid == Some(candidates[index].row.id) { 0 } else { weight(index) };
            let random = if candidates.len() > 1 { self.random() } else { 0 };
            let picked = match avoid {
                None => routing::pick(candidates.len(), weight, random),
                // The server that has just failed is the last choice.
                Some(_) => routing::pick(candidates.len(), others, random).or_else(|| routing::pick(candidates.len(), weight, random)),
            };
            let Some(index) = picked else { break };
            match self.take(&candidates[index], key, login) {
                Choice::Full(..) => full.push(index),
                found => return found,
            }
        }
        if let Some(&first) = full.first() {
            return Choice::Full(Arc::clone(&candidates[first].row), Arc::clone(&candidates[first].server));
        }
        self.last_resort(candidates, variables, hostgroup, key, login)
    }

    /// No candidate is left: servers that this data plane shunned are taken back after a tenth of the time.
    fn last_resort(
        &self,
        candidates: &[Candidate],
        variables: &Variables,
        hostgroup: HostgroupId,
        key: &PoolKey,
        login: &D::Login,
    ) -> Choice<D> {
        for candidate in candidates.iter().filter(|candidate| candidate.open) {
            if is_healthy(candidate, variables, Recovery::LastResort) {
                let seconds = recovery_time(variables, Recovery::LastResort).unwrap_or_default().as_secs();
                tracing::warn!(
                    "Hostgroup {} has no servers available! Checking servers shunned for more than {seconds} second(s)",
                    hostgroup.0
                );
                return self.take(candidate, key, login);
            }
        }
        Choice::Nobody
    }

    /// An idle connection of the candidate, or a slot, if need be that of an idle connection that does not suit.
    fn take(&self, candidate: &Candidate, key: &PoolKey, login: &D::Login) -> Choice<D> {
        let Candidate { server, row, .. } = candidate;
        let full = || Choice::Full(Arc::clone(row), Arc::clone(server));
        if row.slots.has_waiters() {
            return full();
        }
        while let Some(mut entry) = self.pop_idle(row, server, key, login) {
            if !entry.is_alive() {
                self.discard(entry);
                continue;
            }
            if entry.row.id == row.id {
                return Choice::Connection(entry);
            }
            // The same server in another hostgroup: the connection moves over to this row's account, if that has room.
            if !row.slots.try_take(row.max()) {
                self.give_back(entry);
                return full();
            }
            let former = std::mem::replace(&mut entry.row, Arc::clone(row));
            former.slots.put_back(former.max());
            return Choice::Connection(entry);
        }
        if row.slots.try_take(row.max()) {
            return Choice::Slot(Slot::new(row), Arc::clone(server));
        }
        let other = self.idle.borrow_mut().take_first(|entry| entry.row.id == row.id);
        if let Some(other) = other {
            row.cells(self.worker).free.sub(1);
            self.close(other);
            if row.slots.try_take(row.max()) {
                return Choice::Slot(Slot::new(row), Arc::clone(server));
            }
        }
        full()
    }

    fn pop_idle(&self, row: &ServerRow, server: &Server, key: &PoolKey, login: &D::Login) -> Option<Box<Entry<D>>> {
        let entry = self.idle.borrow_mut().pop(row.peer, &server.tls, key, |entry| D::suits(&entry.backend, login))?;
        entry.row.cells(self.worker).free.sub(1);
        Some(entry)
    }

    /// Drops a connection that is broken.
    pub(super) fn discard(&self, entry: Box<Entry<D>>) {
        let row = Arc::clone(&entry.row);
        drop(entry);
        row.slots.put_back(row.max());
    }

    fn random(&self) -> u64 {
        self.ctx.upgrade().map_or(0, |ctx| ctx.random())
    }

    /// One attempt, under `connect_timeout_server`.
    async fn open(
        &self,
        ctx: &Rc<WorkerContext>,
        slot: Slot,
        server: &Arc<Server>,
        key: &PoolKey,
        login: &D::Login,
        variables: &Variables,
    ) -> Result<Box<Entry<D>>, ConnectError> {
        let attempt = D::connect(Rc::clone(ctx), Arc::clone(server), key.clone(), login);
        let outcome = self.ticker.guard(variables.connect_timeout_server, pin!(attempt)).await;
        let cells = slot.row().cells(self.worker);
        match outcome.unwrap_or(Err(ConnectError::Timeout)) {
            Ok(backend) => {
                cells.ok.add(1);
                let born = self.ticker.now();
                let entry = Entry { backend, row: slot.keep(), tls: server.tls.clone(), key: key.clone(), born, last_used: born };
                Ok(Box::new(entry))
            }
            Err(error) => {
                cells.err.add(1);
                slot.row().health.note(error.to_string());
                tracing::debug!(server = %server.address, %error, "cannot open a server connection");
                if error.shuns() {
                    count_failure(slot.row(), variables);
                }
                Err(error)
            }
        }
    }

    /// Waits in the row's queue; `None` = choose anew.
    async fn wait_for(self: &Rc<Self>, ctx: &Rc<WorkerContext>, row: &Arc<ServerRow>, server: &Server, key: &PoolKey) -> Option<Won<D>> {
        let place = Place { pool: self, row: Arc::clone(row), waiter: Waiter::new(self.worker, server.tls.clone(), key.clone()) };
        row.slots.enqueue(&place.waiter, row.max());
        if !row.keeps_connections() {
            // It went out of service while this waiter was queued: nobody would send it away.
            drop(place);
            self.ticker.next_tick().await;
            return None;
        }
        self.reclaim_elsewhere(row);
        match poll_fn(|cx| place.waiter.poll(cx)).await {
            Grant::Slot => Some(Won::Slot(Slot::new(row))),
            Grant::Local => self.take_handed(place.waiter.name()).map(Won::Entry),
            Grant::Retry => None,
            Grant::Parcel(parcel) => Some(self.unpack(ctx, Slot::new(row), server, key, parcel)),
        }
    }

    /// Asks workers that have idle connections of the row to give one up for those who wait.
    fn reclaim_elsewhere(&self, row: &Arc<ServerRow>) {
        for worker in row.free_elsewhere(self.worker) {
            let row = Arc::clone(row);
            // If its inbox is full, its next tick does it.
            let _ = self.shared.run_on(worker, move |ctx| ctx.reclaim(&row));
        }
    }

    fn unpack(&self, ctx: &Rc<WorkerContext>, slot: Slot, server: &Server, key: &PoolKey, parcel: Box<dyn std::any::Any + Send>) -> Won<D> {
        let now = self.ticker.now();
        let transfer = parcel.downcast::<Transfer<D>>();
        let backend = transfer.ok().map(|transfer| (transfer.age, D::unpack(transfer.parcel, ctx)));
        match backend {
            Some((age, Ok(backend))) => {
                let born = now.saturating_sub(age);
                let (row, key) = (slot.keep(), key.clone());
                Won::Entry(Box::new(Entry { backend, row, tls: server.tls.clone(), key, born, last_used: now }))
            }
            _ => Won::Slot(slot),
        }
    }
}

/// What a wait in the queue brought.
enum Won<D: Dialect> {
    Entry(Box<Entry<D>>),
    Slot(Slot),
}

/// A place in a queue; what is granted to one that is given up goes to the next.
struct Place<'a, D: Dialect> {
    pool: &'a Rc<Pool<D>>,
    row: Arc<ServerRow>,
    waiter: Arc<Waiter>,
}

impl<D: Dialect> Drop for Place<'_, D> {
    fn drop(&mut self) {
        let grant = self.waiter.cancel();
        self.row.slots.remove(&self.waiter);
        match grant {
            Some(Grant::Slot | Grant::Parcel(_)) => self.row.slots.put_back(self.row.max()),
            Some(Grant::Local) => {
                if let Some(entry) = self.pool.take_handed(self.waiter.name()) {
                    self.pool.give_back(entry);
                }
            }
            Some(Grant::Retry) | None => {}
        }
    }
}

fn is_healthy(candidate: &Candidate, variables: &Variables, recovery: Recovery) -> bool {
    let health = &candidate.row.health;
    !health.is_shunned() || health.try_recover(Instant::now(), variables, recovery)
}

/// Why no server can be taken: how each is, with the monitor's or else the last attempt's error.
fn nobody(candidates: &[Candidate]) -> String {
    const NAMED: usize = 4;
    let mut text = "no server of the hostgroup is ONLINE".to_owned();
    for Candidate { server, row, .. } in candidates.iter().take(NAMED) {
        let status = if row.health.is_shunned() { ServerStatus::Shunned } else { server.status };
        let error = server.trouble.as_deref().map_or_else(|| row.health.last_error(), str::to_owned);
        let parts = if error.is_empty() { "" } else { ": " };
        text.push_str(&format!("; {} is {}{parts}{error}", server.address, status.as_str()));
    }
    text
}

fn count_failure(row: &ServerRow, variables: &Variables) {
    if let Some(errors) = row.health.on_failure(Instant::now(), variables) {
        let seconds = recovery_time(variables, Recovery::Regular).unwrap_or_default().as_secs();
        tracing::error!("Shunning server {} with {errors} errors/sec. Shunning for {seconds} seconds", row.address());
        row.slots.dismiss();
    }
}

fn give_up(error: ConnectError, hostgroup: HostgroupId, cause: &RefCell<String>) -> AcquireError {
    match error {
        ConnectError::Server { error, .. } => AcquireError::Refused(error),
        _ => AcquireError::Failed { hostgroup, cause: cause.take() },
    }
}
