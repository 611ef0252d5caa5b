//! The rows of `*_servers` as all workers share them: slots, health, counters. Rows outlive configurations, so that limits
//! and counters go on when one is swapped.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::health::Health;
use super::slots::Slots;
use crate::config::{HostgroupId, Protocol, RuntimeConfig, Server, ServerAddress, ServerStatus};
use crate::stats::{Counter, PoolRow};

/// Rows that no configuration has any more are forgotten beyond this number.
const KEEP_REMOVED: usize = 1024;

/// One server in one hostgroup.
pub struct ServerRow {
    /// Unique in the life of the process, never 0.
    pub(crate) id: u64,
    /// Equal for rows of the same protocol and address.
    pub(crate) peer: u64,
    protocol: Protocol,
    hostgroup: HostgroupId,
    address: ServerAddress,
    pub(crate) slots: Slots,
    pub(crate) health: Health,
    max: AtomicU32,
    state: AtomicU8,
    latency_us: AtomicU64,
    cells: Box<[RowCells]>,
}

/// What one worker counts for a row.
#[derive(Debug, Default)]
pub struct RowCells {
    pub(crate) used: Counter,
    pub(crate) free: Counter,
    pub(crate) ok: Counter,
    pub(crate) err: Counter,
    pub(crate) max_used: Counter,
    /// Statements sent.
    pub queries: Counter,
    /// Bytes sent.
    pub bytes_sent: Counter,
    /// Bytes received.
    pub bytes_recv: Counter,
}

/// What a row is now: its configured status, or how it left the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Configured(ServerStatus),
    /// Gone from this hostgroup, but ONLINE in another one: running work may finish.
    Moved,
    /// Gone.
    Removed,
}

impl State {
    fn code(self) -> u8 {
        match self {
            Self::Configured(ServerStatus::Online) => 0,
            Self::Configured(ServerStatus::Shunned) => 1,
            Self::Configured(ServerStatus::OfflineSoft) => 2,
            Self::Moved => 3,
            Self::Configured(ServerStatus::Unreachable) => 4,
            Self::Configured(ServerStatus::OfflineHard) => 5,
            Self::Removed => 6,
        }
    }

    fn of(code: u8) -> Self {
        match code {
            0 => Self::Configured(ServerStatus::Online),
            1 => Self::Configured(ServerStatus::Shunned),
            2 => Self::Configured(ServerStatus::OfflineSoft),
            3 => Self::Moved,
            4 => Self::Configured(ServerStatus::Unreachable),
            5 => Self::Configured(ServerStatus::OfflineHard),
            _ => Self::Removed,
        }
    }
}

impl ServerRow {
    /// Most connections, as the newest configuration says; 0 for a removed row.
    pub(crate) fn max(&self) -> u32 {
        self.max.load(Ordering::Relaxed)
    }

    /// Whether idle connections may be kept and used again.
    pub(crate) fn keeps_connections(&self) -> bool {
        self.state() == State::Configured(ServerStatus::Online) && !self.health.is_shunned()
    }

    /// Whether running work is to be cut (mysql-dataplane 9.5): OFFLINE_HARD, unreachable or removed.
    pub(crate) fn is_cut(&self) -> bool {
        match self.state() {
            State::Configured(ServerStatus::OfflineHard | ServerStatus::Unreachable) | State::Removed => true,
            State::Configured(ServerStatus::Online | ServerStatus::Shunned | ServerStatus::OfflineSoft) | State::Moved => false,
        }
    }

    fn state(&self) -> State {
        State::of(self.state.load(Ordering::Relaxed))
    }

    /// The server.
    #[must_use]
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// The hostgroup.
    #[must_use]
    pub fn hostgroup(&self) -> HostgroupId {
        self.hostgroup
    }

    /// The counters of one worker.
    pub(crate) fn cells(&self, worker: usize) -> &RowCells {
        &self.cells[worker]
    }

    /// Whether a worker other than `worker` has idle connections.
    pub(crate) fn free_elsewhere(&self, worker: usize) -> impl Iterator<Item = usize> + '_ {
        self.cells.iter().enumerate().filter(move |(index, cells)| *index != worker && cells.free.get() > 0).map(|(index, _)| index)
    }

    fn update(&self, server: &Server) {
        self.latency_us.store(server.latency_us, Ordering::Relaxed);
        let online = State::Configured(ServerStatus::Online);
        let state = State::Configured(server.status);
        let before = State::of(self.state.swap(state.code(), Ordering::Relaxed));
        let max = self.max.swap(server.max_connections, Ordering::Relaxed);
        if state != online && before == online {
            self.slots.dismiss();
        } else if server.max_connections > max {
            self.slots.serve_waiters(server.max_connections);
        }
    }

    fn leave(&self, state: State) {
        self.state.store(state.code(), Ordering::Relaxed);
        self.max.store(0, Ordering::Relaxed);
        self.slots.dismiss();
    }

    fn is_removed(&self) -> bool {
        matches!(self.state(), State::Moved | State::Removed)
    }

    fn stats(&self) -> PoolRow {
        let sum = |counter: fn(&RowCells) -> &Counter| self.cells.iter().map(|cells| counter(cells).get()).sum();
        PoolRow {
            protocol: self.protocol,
            hostgroup: self.hostgroup,
            address: self.address.clone(),
            status: match self.state() {
                State::Configured(ServerStatus::Online) if self.health.is_shunned() => ServerStatus::Shunned,
                State::Configured(status) => status,
                State::Moved => ServerStatus::OfflineSoft,
                State::Removed => ServerStatus::OfflineHard,
            },
            used: sum(|cells| &cells.used),
            free: sum(|cells| &cells.free),
            ok: sum(|cells| &cells.ok),
            err: sum(|cells| &cells.err),
            // The workers' maxima need not have been at the same time.
            max_used: sum(|cells| &cells.max_used).min(u64::from(self.slots.peak())),
            queries: sum(|cells| &cells.queries),
            bytes_sent: sum(|cells| &cells.bytes_sent),
            bytes_recv: sum(|cells| &cells.bytes_recv),
            latency_us: self.latency_us.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for ServerRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRow").field("hostgroup", &self.hostgroup).field("address", &self.address).finish_non_exhaustive()
    }
}

type RowKey = (Protocol, HostgroupId, ServerAddress);

/// All rows of this process. Locked when a configuration is swapped in and when statistics are read.
#[derive(Debug)]
pub(crate) struct Rows {
    workers: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    rows: HashMap<RowKey, Arc<ServerRow>>,
    last_id: u64,
}

impl Rows {
    pub(crate) fn new(workers: usize) -> Self {
        Self { workers, table: Mutex::default() }
    }

    /// Brings status and limits of all rows to `config`; call it before the configuration is published.
    pub(crate) fn apply(&self, config: &RuntimeConfig) {
        let mut table = self.table.lock();
        let mut present = std::collections::HashSet::new();
        for protocol in [Protocol::Mysql, Protocol::Pgsql] {
            for server in config.side(protocol).hostgroups.values().flat_map(|hostgroup| &hostgroup.servers) {
                let row = table.row(protocol, server, self.workers);
                row.update(server);
                present.insert(row.id);
            }
        }
        for row in table.rows.values().filter(|row| !present.contains(&row.id)) {
            row.leave(how_left(row, config));
        }
        if table.rows.len() > present.len() + KEEP_REMOVED {
            table.rows.retain(|_, row| !row.is_removed() || row.slots.held() > 0);
        }
    }

    /// The row of `server`, made if it is new.
    pub(crate) fn row(&self, protocol: Protocol, server: &Server) -> Arc<ServerRow> {
        self.table.lock().row(protocol, server, self.workers)
    }

    /// Ids of the rows whose running work is to be cut.
    pub(crate) fn cut(&self) -> Vec<u64> {
        self.table.lock().rows.values().filter(|row| row.is_cut() && row.slots.held() > 0).map(|row| row.id).collect()
    }

    /// The address of the row with this id.
    pub(crate) fn address(&self, id: u64) -> Option<ServerAddress> {
        self.table.lock().rows.values().find(|row| row.id == id).map(|row| row.address.clone())
    }

    /// Rows of the present configuration, and removed ones that still have connections, in the order of their keys.
    pub(crate) fn stats(&self) -> Vec<PoolRow> {
        let table = self.table.lock();
        let shown = table.rows.values().filter(|row| !row.is_removed() || row.slots.held() > 0);
        let mut rows: Vec<PoolRow> = shown.map(|row| row.stats()).collect();
        drop(table);
        rows.sort_by(|a, b| (a.protocol, a.hostgroup, &a.address).cmp(&(b.protocol, b.hostgroup, &b.address)));
        rows
    }
}

/// Work on a server that left a hostgroup may finish if the server is still in service elsewhere, unless it left the writer
/// side of a domain: what is open there would go on writing to a former writer.
fn how_left(row: &ServerRow, config: &RuntimeConfig) -> State {
    let side = config.side(row.protocol);
    let elsewhere = |server: &Arc<Server>| server.address == row.address && server.status == ServerStatus::Online;
    let in_service = side.hostgroups.values().flat_map(|hostgroup| &hostgroup.servers).any(elsewhere);
    let was_writer = side.domains.iter().any(|domain| domain.writer == row.hostgroup);
    if in_service && !was_writer { State::Moved } else { State::Removed }
}

impl Table {
    fn row(&mut self, protocol: Protocol, server: &Server, workers: usize) -> Arc<ServerRow> {
        let key = (protocol, server.hostgroup, server.address.clone());
        if let Some(row) = self.rows.get(&key) {
            return Arc::clone(row);
        }
        let id = self.last_id + 1;
        self.last_id = id;
        let sibling = self.rows.values().find(|row| row.protocol == protocol && row.address == server.address);
        let row = Arc::new(ServerRow {
            id,
            peer: sibling.map_or(id, |row| row.peer),
            protocol,
            hostgroup: server.hostgroup,
            address: server.address.clone(),
            slots: Slots::default(),
            health: Health::default(),
            max: AtomicU32::new(server.max_connections),
            state: AtomicU8::new(State::Configured(server.status).code()),
            latency_us: AtomicU64::new(server.latency_us),
            cells: (0..workers).map(|_| RowCells::default()).collect(),
        });
        self.rows.insert(key, Arc::clone(&row));
        row
    }
}
