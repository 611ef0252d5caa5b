//! Workers: one thread per core, each with its own driver, sessions, buffers, idle server connections and counters.
//!
//! This is the only place of the data plane that knows sockets and what drives them. Everything here lives on one
//! thread (`Rc`, `Cell`); what workers share is in `Shared` and touched when sessions or connections start and end.
//!
//! # How a protocol uses it
//! ```text
//! // The worker calls this per client. The session's state goes into one box: the future of a waiting session must stay
//! // below 128 bytes, and an `async fn` stores its arguments twice.
//! pub(crate) fn spawn(link: Link, session: SessionGuard, ctx: Rc<WorkerContext>) {
//!     driver::spawn(serve(Box::new(Session { link, session, ctx, … })));
//! }
//! async fn serve(mut s: Box<Session>) {
//!     s.session.timer.arm(variables.connect_timeout_client);         // one deadline per session, armed anew per wait
//!     if Box::pin(s.login()).await.is_err() { return }               // waits by s.session.wait(&mut s.link), too
//!     loop {
//!         s.session.timer.arm(s.ctx.config().mysql.variables.wait_timeout);
//!         match s.session.wait(&mut s.link).await {                  // owns no buffer; `wait_busy` in a transaction
//!             Wake::Bytes(chunk) if chunk.is_empty() => return,      // client closed
//!             Wake::Bytes(chunk) => Box::pin(s.exchange(chunk)).await,
//!             Wake::Expired | Wake::Broken(_) => return,
//!             Wake::Signal(Signal::Drain) => …,                      // 1053 / 57P01, then return
//!             Wake::Signal(_) => return,                             // (KillQuery does not wake an idle session)
//!         }
//!     }
//! }
//! // In an exchange:
//! let config = ctx.config();                   // one atomic load; the statement keeps this snapshot to its end
//! let decision = ctx.evaluate(&config, Protocol::Mysql, &input, &scanned);
//! let chunk = link.recv().await?;              // or link.recv_more(&mut chunk) to complete a message
//! link.send(chunk).await?;                     // one write; the buffer goes back to the worker
//! let mut reply = ctx.chunks().take(); reply.extend_from_slice(b"…"); link.send(reply).await?;
//! backend.recv_watching(&mut client).await?;   // bytes of the server, or notice that the client has gone
//! poll_fn(|cx| …link.poll_recv(cx)…session.poll_interrupt(cx)…session.timer.poll_expired(cx)…)  // waits for several things
//! ctx.ticker().guard(limit, Box::pin(future)).await  // deadlines that are not per query
//! ```

mod acceptor;
pub mod chunk;
pub mod connect;
mod drain;
pub(crate) mod driver;
pub mod endpoint;
pub(crate) mod ids;
pub mod link;
mod metronome;
mod newcomers;
mod runtime;
pub(crate) mod scans;
pub mod session;
pub mod sessions;
pub mod snapshot;
mod socket;
#[cfg(test)]
pub(crate) mod testing;
pub mod ticker;
mod tls;
pub mod wait;

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};
use quorumsql_wire::sql::ScanOptions;

pub(crate) use acceptor::Acceptor;
pub(crate) use drain::Drain;
pub(crate) use metronome::Metronome;
pub(crate) use runtime::{Handlers, Message, Shared, WorkerSeat, start};

use crate::config::{HostgroupId, Protocol, RuntimeConfig, ServerAddress, Variables};
use crate::intern::Interner;
use crate::limits::ClientLimits;
use crate::origin::Origin;
use crate::pool::ServerRow;
use crate::rules::{Decision, Input, VerdictCache};
use crate::stats::digests::{DigestEntry, DigestKey, Digests, RowCounts};
use crate::stats::{ProtocolCells, index};
use chunk::ChunkPool;
use link::Link;
use scans::{Scanned, Scans};
use session::SessionGuard;
use sessions::Sessions;
use snapshot::Snapshot;
use ticker::Ticker;

type ConfigCache = Cache<Arc<ArcSwap<RuntimeConfig>>, Arc<RuntimeConfig>>;

/// Upkeep of a pool, without naming its dialect.
pub(crate) trait Sweep {
    /// Regular upkeep.
    fn sweep(&self, config: &Snapshot);
    /// Gives up idle connections of `row` for those who wait elsewhere.
    fn reclaim(&self, row: &Arc<ServerRow>);
    /// Gives idle connections to whom they have missed. Cheap; called every tick.
    fn serve_waiters(&self);
}

/// Everything that the sessions of one worker share.
pub struct WorkerContext {
    shared: Arc<Shared>,
    seat: Arc<WorkerSeat>,
    chunks: ChunkPool,
    ticker: Ticker,
    sessions: Rc<Sessions>,
    config: RefCell<ConfigCache>,
    snapshot: RefCell<Rc<Snapshot>>,
    extensions: RefCell<HashMap<TypeId, Rc<dyn Any>>>,
    random: Cell<u64>,
    /// Tick at which this worker learned that the node drains.
    draining_since: Cell<Option<u64>>,
    sweeps: RefCell<Vec<Rc<dyn Sweep>>>,
    /// Configurations that this worker has seen; the log index does not tell them apart, because observations of servers make
    /// new ones of the same index.
    generation: Cell<u64>,
    /// Generation and tick of the last sweep.
    swept: Cell<(u64, u64)>,
    scans: [RefCell<Scans>; 2],
    verdicts: [RefCell<VerdictCache>; 2],
    digests: [RefCell<Digests>; 2],
    origins: RefCell<Interner<Origin>>,
}

impl WorkerContext {
    pub(crate) fn new(shared: Arc<Shared>, seat: Arc<WorkerSeat>) -> Rc<Self> {
        let ticker = Ticker::new();
        let sessions = Sessions::new(Arc::clone(&shared.ids), Arc::clone(&seat), ticker.clone(), shared.seats.len());
        let mut config = Cache::new(Arc::clone(&shared.config));
        let snapshot = RefCell::new(Rc::new(Snapshot::new(Arc::clone(config.load()), &seat.cells, &shared.rows)));
        Rc::new(Self {
            chunks: ChunkPool::new(),
            ticker,
            sessions,
            config: RefCell::new(config),
            snapshot,
            extensions: RefCell::default(),
            // A seed of zero would make the generator stand still.
            random: Cell::new(random_u64() | 1),
            draining_since: Cell::new(None),
            sweeps: RefCell::default(),
            generation: Cell::new(1),
            swept: Cell::new((0, 0)),
            scans: [Protocol::Mysql, Protocol::Pgsql].map(|protocol| RefCell::new(Scans::new(protocol))),
            verdicts: Default::default(),
            digests: [0; 2].map(|_| RefCell::new(Digests::new(shared.seats.len()))),
            origins: RefCell::default(),
            shared,
            seat,
        })
    }

    /// The configuration in force, with what this worker derives from it. One atomic load unless it has changed.
    pub fn config(&self) -> Rc<Snapshot> {
        let mut cache = self.config.borrow_mut();
        let newest = cache.load();
        let mut snapshot = self.snapshot.borrow_mut();
        if !Arc::ptr_eq(newest, snapshot.config()) {
            self.generation.set(self.generation.get() + 1);
            *snapshot = Rc::new(Snapshot::new(Arc::clone(newest), &self.seat.cells, &self.shared.rows));
        }
        Rc::clone(&snapshot)
    }

    /// The worker's buffers.
    pub fn chunks(&self) -> &ChunkPool {
        &self.chunks
    }

    /// The worker's clock and deadlines.
    pub fn ticker(&self) -> &Ticker {
        &self.ticker
    }

    /// This worker's counters of one protocol.
    pub fn stats(&self, protocol: Protocol) -> &ProtocolCells {
        self.seat.cells.protocol(protocol)
    }

    /// Digest, class and effects of a statement's text, from this worker's memory if it has them.
    pub(crate) fn scan(&self, protocol: Protocol, sql: &[u8], options: &ScanOptions) -> Rc<Scanned> {
        self.scans[index(protocol)].borrow_mut().scan(sql, options)
    }

    /// Runs a statement through the rules of `config` with this worker's memory of verdicts and its hit counters. `scanned` is
    /// what its text scanned to.
    pub(crate) fn evaluate(&self, config: &Snapshot, protocol: Protocol, input: &Input<'_>, scanned: &Scanned) -> Decision {
        let rules = &config.side(protocol).rules;
        let cells = config.rule_cells(protocol);
        let mut verdicts = self.verdicts[index(protocol)].borrow_mut();
        rules.evaluate(input, &scanned.verdict, &mut verdicts, |position| cells.hit(position))
    }

    /// Where a statement is counted that ran on `hostgroup` (`None` = it was answered here); `None` = `query_digests` is off.
    /// `scanned` is what its text scanned to.
    pub(crate) fn digest_entry(
        &self,
        protocol: Protocol,
        variables: &Variables,
        origin: &Arc<Origin>,
        hostgroup: Option<HostgroupId>,
        scanned: &Scanned,
    ) -> Option<Arc<DigestEntry>> {
        if !variables.query_digests {
            return None;
        }
        let by_client = variables.query_digests_track_hostname;
        if let Some(last) = scanned.counted(origin, hostgroup, by_client) {
            return Some(last);
        }
        let text = &scanned.digest_text;
        let key = DigestKey {
            hostgroup,
            schema: &origin.schema,
            user: &origin.user,
            client: if by_client { &origin.client_addr } else { "" },
            digest: scanned.digest,
            text: &text[..text.len().min(variables.digest_options.max_digest_length)],
        };
        let entry = self.digests(protocol).borrow_mut().entry(&key, self.ticker.now());
        scanned.set_counted(origin, &entry);
        Some(entry)
    }

    /// Counts an execution that began at `started` (of [`ticker::micros`]) and ends now.
    pub(crate) fn count(&self, protocol: Protocol, entry: &Arc<DigestEntry>, started: u64, rows: RowCounts) {
        let taken = ticker::micros().saturating_sub(started);
        self.digests(protocol).borrow_mut().record(entry, self.ticker.now(), taken, rows);
    }

    /// One protocol's statements by digest.
    pub(crate) fn digests(&self, protocol: Protocol) -> &RefCell<Digests> {
        &self.digests[index(protocol)]
    }

    /// The origin of what `user` asks by `link` in `schema` (PostgreSQL: database).
    pub(crate) fn origin(&self, link: &Link, user: &str, schema: &str) -> Arc<Origin> {
        let (client, proxy) = (link.peer_addr(), link.local_addr());
        self.origins.borrow_mut().intern(Origin {
            user: user.into(),
            schema: schema.into(),
            client_addr: client.host().into(),
            proxy_addr: proxy.host().into(),
            proxy_port: proxy.port().unwrap_or_default(),
        })
    }

    /// The same in another schema.
    pub(crate) fn origin_in(&self, origin: &Origin, schema: &str) -> Arc<Origin> {
        self.origins.borrow_mut().intern(Origin { schema: schema.into(), ..origin.clone() })
    }

    /// This node's slot, the upper byte of connection ids.
    pub fn slot(&self) -> u8 {
        self.shared.slot
    }

    /// Number of this worker, from 0.
    pub fn index(&self) -> usize {
        self.seat.index
    }

    /// What all workers share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Opens a socket to a server with this worker's buffers. Wrap it into `ticker().guard(…)`.
    pub async fn connect(&self, address: &ServerAddress) -> io::Result<Link> {
        connect::connect(address, &self.chunks).await
    }

    /// A worker-wide object of type `T`, made at first use (a pool, caches of a protocol). Look it up once per session.
    pub fn extension<T: 'static>(self: &Rc<Self>, make: impl FnOnce(&Rc<Self>) -> T) -> Rc<T> {
        let known = self.extensions.borrow().get(&TypeId::of::<T>()).cloned();
        if let Some(known) = known.and_then(|any| any.downcast::<T>().ok()) {
            return known;
        }
        let made = Rc::new(make(self));
        self.extensions.borrow_mut().insert(TypeId::of::<T>(), Rc::clone(&made) as Rc<dyn Any>);
        made
    }

    /// A pseudo-random number (xorshift64*), for spreading, not for secrets.
    pub fn random(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Limits on clients, over all workers: call when a client has logged in, keep the permit for its session.
    pub fn limits(&self) -> &ClientLimits {
        &self.shared.limits
    }

    pub(crate) fn add_sweep(&self, sweep: Rc<dyn Sweep>) {
        self.sweeps.borrow_mut().push(sweep);
    }

    pub(crate) fn reclaim(&self, row: &Arc<ServerRow>) {
        for sweep in self.sweeps.borrow().iter() {
            sweep.reclaim(row);
        }
    }

    /// Registers a client of this worker that came by `listener`.
    pub(crate) fn open_session(&self, protocol: Protocol, listener: usize, link: &Link) -> SessionGuard {
        self.sessions.open(protocol, listener, link.peer_addr().clone())
    }

    pub(crate) fn sessions(&self) -> &Rc<Sessions> {
        &self.sessions
    }
}

impl fmt::Debug for WorkerContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerContext").field("index", &self.seat.index).finish_non_exhaustive()
    }
}

/// Random bits of the operating system; a constant if it has none, which costs spreading but no correctness.
pub(crate) fn random_u64() -> u64 {
    getrandom::u64().unwrap_or(0x9E37_79B9_7F4A_7C15)
}
