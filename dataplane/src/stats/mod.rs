//! Counters of the data plane: cells per worker, summed when they are read.

mod cells;
pub(crate) mod digests;
mod histogram;

pub(crate) use cells::index;
pub use cells::{Counter, ProtocolCells, RuleCells, WorkerCells};
pub use digests::{DigestKey, DigestRow};
pub use histogram::Percentiles;

use crate::config::{HostgroupId, Protocol, RuleId, RuntimeConfig, ServerAddress, ServerStatus};

/// A rule's counters; they start at zero whenever the rules change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleHits {
    /// The rule.
    pub rule_id: RuleId,
    /// Statements that it matched.
    pub hits: u64,
    /// Of these, statements that the routing guard sent elsewhere or refused.
    pub guarded: u64,
}

/// A row of `stats_*_connection_pool`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolRow {
    /// Which data plane.
    pub protocol: Protocol,
    /// The server's hostgroup.
    pub hostgroup: HostgroupId,
    /// The server.
    pub address: ServerAddress,
    /// Its status, combined with shunning by this data plane.
    pub status: ServerStatus,
    /// Connections that sessions hold now.
    pub used: u64,
    /// Idle connections.
    pub free: u64,
    /// Connections that were opened.
    pub ok: u64,
    /// Attempts that failed.
    pub err: u64,
    /// Most connections used at once (sum of the workers' own maxima).
    pub max_used: u64,
    /// Statements that were sent to it.
    pub queries: u64,
    /// Bytes sent to it.
    pub bytes_sent: u64,
    /// Bytes received from it.
    pub bytes_recv: u64,
    /// Last monitor ping in microseconds; 0 = unknown.
    pub latency_us: u64,
}

/// Counters of one protocol, summed over the workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionStats {
    /// Client connections that exist now.
    pub connected: u64,
    /// Client connections that ended without a good login or by an error.
    pub aborted: u64,
    /// TLS handshakes with clients that succeeded.
    pub tls_handshakes: u64,
    /// TLS handshakes with clients that failed.
    pub tls_failed: u64,
    /// Client connections that were accepted.
    pub created: u64,
    /// Statements of clients.
    pub queries: u64,
    /// Statements that went to a server.
    pub forwarded: u64,
    /// Statements for which the routing guard changed the destination or refused.
    pub guarded: u64,
    /// Bytes from clients.
    pub bytes_recv: u64,
    /// Bytes to clients.
    pub bytes_sent: u64,
    /// Statements for which no server connection could be had.
    pub acquire_failed: u64,
    /// Connections that went to another worker at a server's limit.
    pub handed_over: u64,
}

/// All counters of the data plane at one moment (not one instant: workers go on while they are summed).
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// MySQL's and PostgreSQL's rules in evaluation order.
    pub rules: [Vec<RuleHits>; 2],
    /// Rows of the connection pools, both protocols.
    pub pool: Vec<PoolRow>,
    /// MySQL's and PostgreSQL's sessions.
    pub sessions: [SessionStats; 2],
    /// Sessions that each worker has.
    pub workers: Vec<usize>,
    /// Session tasks that ended by a panic.
    pub panics: u64,
}

impl Stats {
    /// Counters of one protocol's sessions.
    #[must_use]
    pub fn sessions(&self, protocol: Protocol) -> &SessionStats {
        &self.sessions[index(protocol)]
    }

    /// Counters of one protocol's rules.
    #[must_use]
    pub fn rules(&self, protocol: Protocol) -> &[RuleHits] {
        &self.rules[index(protocol)]
    }

    pub(crate) fn add_worker(&mut self, cells: &WorkerCells) {
        self.panics += cells.panics.get();
        for protocol in [Protocol::Mysql, Protocol::Pgsql] {
            let cells = cells.protocol(protocol);
            let sum = &mut self.sessions[index(protocol)];
            sum.connected += cells.connected.get();
            sum.tls_handshakes += cells.tls_handshakes.get();
            sum.tls_failed += cells.tls_failed.get();
            sum.aborted += cells.aborted.get();
            sum.created += cells.created.get();
            sum.queries += cells.queries.get();
            sum.forwarded += cells.forwarded.get();
            sum.guarded += cells.guarded.get();
            sum.bytes_recv += cells.bytes_recv.get();
            sum.bytes_sent += cells.bytes_sent.get();
            sum.acquire_failed += cells.acquire_failed.get();
            sum.handed_over += cells.handed_over.get();
        }
    }
}

/// Rule hits of one protocol under `config`; workers that have not seen it yet count as zero.
pub(crate) fn sum_rules<'a>(protocol: Protocol, config: &RuntimeConfig, workers: impl Iterator<Item = &'a WorkerCells>) -> Vec<RuleHits> {
    let rules = &config.side(protocol).rules;
    let mut rows: Vec<RuleHits> = rules.ids().map(|rule_id| RuleHits { rule_id, hits: 0, guarded: 0 }).collect();
    for cells in workers.filter_map(|worker| worker.rules_of(protocol, rules)) {
        for (position, row) in rows.iter_mut().enumerate() {
            let (hits, guarded) = cells.get(position);
            row.hits += hits;
            row.guarded += guarded;
        }
    }
    rows
}
