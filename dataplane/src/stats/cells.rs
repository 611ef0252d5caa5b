//! The counters of one worker. Only the worker writes them, so adding is a load and a store, no locked instruction;
//! other threads read them when statistics are asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::config::{Protocol, RuntimeConfig};
use crate::rules::RuleSet;

/// A counter with one writing thread.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`. Only the owning worker may call it: two writers would lose counts.
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Takes `count` off, down to zero. Same rule as `add`.
    pub fn sub(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).saturating_sub(count), Ordering::Relaxed);
    }

    /// Raises the counter to `value` if it is lower. Same rule as `add`.
    pub fn raise_to(&self, value: u64) {
        if value > self.get() {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    /// Replaces the value. Same rule as `add`.
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The present value, from any thread.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one worker counts for one protocol.
#[derive(Debug, Default)]
pub struct ProtocolCells {
    /// Client connections that were accepted.
    pub created: Counter,
    /// Client connections that exist now.
    pub connected: Counter,
    /// Client connections that ended without a good login or by an error.
    pub aborted: Counter,
    /// TLS handshakes with clients that succeeded.
    pub tls_handshakes: Counter,
    /// TLS handshakes with clients that failed.
    pub tls_failed: Counter,
    /// Statements of clients.
    pub queries: Counter,
    /// Statements that went to a server.
    pub forwarded: Counter,
    /// Statements for which the routing guard changed the destination or refused.
    pub guarded: Counter,
    /// Bytes from clients.
    pub bytes_recv: Counter,
    /// Bytes to clients.
    pub bytes_sent: Counter,
    /// Statements for which no server connection could be had.
    pub acquire_failed: Counter,
    /// Connections that went to another worker at a server's limit.
    pub handed_over: Counter,
}

/// Hits of the rules of one `RuleSet`, by position.
#[derive(Debug, Default)]
pub struct RuleCells {
    pub(crate) rules: Arc<RuleSet>,
    hits: Box<[RuleCell]>,
}

#[derive(Debug, Default)]
struct RuleCell {
    hits: Counter,
    guarded: Counter,
}

impl RuleCells {
    pub(crate) fn new(rules: Arc<RuleSet>) -> Self {
        let hits = rules.ids().map(|_| RuleCell::default()).collect();
        Self { rules, hits }
    }

    /// The rule at `position` matched a statement.
    pub fn hit(&self, position: usize) {
        if let Some(cell) = self.hits.get(position) {
            cell.hits.add(1);
        }
    }

    /// The routing guard overruled the rule at `position`.
    pub fn guarded(&self, position: usize) {
        if let Some(cell) = self.hits.get(position) {
            cell.guarded.add(1);
        }
    }

    /// Hits and guarded hits of the rule at `position`.
    #[must_use]
    pub fn get(&self, position: usize) -> (u64, u64) {
        self.hits.get(position).map_or((0, 0), |cell| (cell.hits.get(), cell.guarded.get()))
    }
}

/// All counters of one worker.
#[derive(Debug)]
pub struct WorkerCells {
    protocols: [ProtocolCells; 2],
    /// Session tasks that ended by a panic.
    pub panics: Counter,
    /// Locked when the worker sees a new configuration and when statistics are read, not per query.
    rules: Mutex<[Arc<RuleCells>; 2]>,
}

impl WorkerCells {
    pub(crate) fn new(config: &RuntimeConfig) -> Self {
        let cells = |protocol| Arc::new(RuleCells::new(Arc::clone(&config.side(protocol).rules)));
        let rules = [cells(Protocol::Mysql), cells(Protocol::Pgsql)];
        Self { protocols: Default::default(), panics: Counter::default(), rules: Mutex::new(rules) }
    }

    /// Counters of one protocol.
    #[must_use]
    pub fn protocol(&self, protocol: Protocol) -> &ProtocolCells {
        &self.protocols[index(protocol)]
    }

    /// The rule counters for `config`: those in use if its rules are still the same, else new ones at zero.
    pub(crate) fn rules_for(&self, protocol: Protocol, config: &RuntimeConfig) -> Arc<RuleCells> {
        let rules = &config.side(protocol).rules;
        let mut cells = self.rules.lock();
        let cells = &mut cells[index(protocol)];
        if !Arc::ptr_eq(&cells.rules, rules) {
            *cells = Arc::new(RuleCells::new(Arc::clone(rules)));
        }
        Arc::clone(cells)
    }

    /// The rule counters in use, if they belong to `rules`.
    pub(crate) fn rules_of(&self, protocol: Protocol, rules: &Arc<RuleSet>) -> Option<Arc<RuleCells>> {
        let cells = Arc::clone(&self.rules.lock()[index(protocol)]);
        Arc::ptr_eq(&cells.rules, rules).then_some(cells)
    }
}

pub(crate) fn index(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Mysql => 0,
        Protocol::Pgsql => 1,
    }
}
