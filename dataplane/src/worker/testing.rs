//! Workers without threads for tests: the test's own thread is all of them, and the clock moves when the test says so.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, mpsc};

use super::ids::Ids;
use super::link::Link;
use super::session::SessionGuard;
use super::{Drain, Handlers, Message, Shared, WorkerContext, WorkerSeat};
use crate::config::{Hostgroup, HostgroupId, Protocol, ProtocolConfig, RuntimeConfig, Server, ServerAddress, ServerStatus};
use crate::limits::ClientLimits;
use crate::pool::Rows;
use crate::stats::WorkerCells;
use crate::tls::ServerTls;

/// Workers that share one configuration.
pub(crate) struct Workers {
    pub(crate) contexts: Vec<Rc<WorkerContext>>,
    inboxes: Vec<mpsc::Receiver<Message>>,
}

/// A server of hostgroup `hostgroup`.
pub(crate) fn server(hostgroup: u32, host: &str, max_connections: u32) -> Server {
    Server {
        hostgroup: HostgroupId(hostgroup),
        address: ServerAddress { host: host.into(), port: 1 },
        status: ServerStatus::Online,
        weight: 1,
        max_connections,
        tls: ServerTls::Disable,
        latency_us: 0,
        trouble: None,
    }
}

/// A configuration with these MySQL servers.
pub(crate) fn config(index: u64, servers: &[Server]) -> Arc<RuntimeConfig> {
    let mut hostgroups: HashMap<HostgroupId, Hostgroup> = HashMap::new();
    for server in servers {
        let id = server.hostgroup;
        let hostgroup = hostgroups.entry(id).or_insert_with(|| Hostgroup { id, servers: Vec::new() });
        hostgroup.servers.push(Arc::new(server.clone()));
    }
    let hostgroups = hostgroups.into_iter().map(|(id, hostgroup)| (id, Arc::new(hostgroup))).collect();
    let mysql = Arc::new(ProtocolConfig { hostgroups, ..ProtocolConfig::default() });
    Arc::new(RuntimeConfig { index, revision: index, mysql, pgsql: Arc::default() })
}

impl Workers {
    /// `count` workers; the protocols' handlers drop the client.
    pub(crate) fn new(count: usize, config: Arc<RuntimeConfig>) -> Self {
        let ended = Arc::new(Notify::new());
        let (seats, inboxes): (Vec<_>, Vec<_>) =
            (0..count).map(|index| WorkerSeat::new(index, WorkerCells::new(&config), Arc::clone(&ended))).unzip();
        let rows = Rows::new(count);
        rows.apply(&config);
        let shared = Arc::new(Shared {
            slot: 1,
            config: Arc::new(ArcSwap::new(config)),
            ids: Arc::new(Ids::new(1, 0)),
            seats,
            drain: Drain::default(),
            ended,
            handlers: Handlers { mysql: |_, _, _| {}, pgsql: |_, _, _| {} },
            rows,
            limits: ClientLimits::default(),
            nodes: parking_lot::Mutex::default(),
            guard_told: crate::guard::Told::default(),
        });
        let contexts = shared.seats.iter().map(|seat| WorkerContext::new(Arc::clone(&shared), Arc::clone(seat))).collect();
        Self { contexts, inboxes }
    }

    /// Publishes another configuration.
    pub(crate) fn swap(&self, config: Arc<RuntimeConfig>) {
        let shared = self.contexts[0].shared();
        shared.rows.apply(&config);
        shared.config.store(config);
    }

    /// Moves the clocks of all workers by `ticks` of 100 ms, one by one.
    pub(crate) fn advance(&self, ticks: u64) {
        for ctx in &self.contexts {
            for _ in 0..ticks {
                ctx.on_tick(ctx.ticker().now() + 1);
            }
        }
    }

    /// Lets the workers do what they have in their inboxes.
    pub(crate) fn deliver(&mut self) {
        for (ctx, inbox) in self.contexts.iter().zip(&mut self.inboxes) {
            while let Ok(message) = inbox.try_recv() {
                if let Message::Run(work) = message {
                    work(ctx);
                }
            }
        }
    }
}

/// A client in memory: its own end, the worker's end, and its session.
pub(crate) fn client(ctx: &Rc<WorkerContext>, protocol: Protocol) -> (Link, Link, SessionGuard) {
    let (client, front) = Link::memory(1 << 16, ctx.chunks());
    ctx.seat.session_comes();
    let session = ctx.open_session(protocol, 0, &front);
    (client, front, session)
}

/// Polls once without a wake-up to follow.
pub(crate) fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
