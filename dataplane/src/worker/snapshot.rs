//! What one worker derives from a configuration. A statement takes one snapshot and keeps it to its end.

use std::ops::Deref;
use std::sync::Arc;

use crate::config::{HostgroupId, Protocol, ProtocolConfig, RuntimeConfig, Server, Variables};
use crate::pool::{Rows, ServerRow};
use crate::routing;
use crate::stats::{RuleCells, WorkerCells, index};

/// A configuration as this worker uses it; derefs to it. Held behind an `Rc`, so that no reference count is shared among
/// workers per statement.
#[derive(Debug)]
pub struct Snapshot {
    config: Arc<RuntimeConfig>,
    rules: [Arc<RuleCells>; 2],
    /// In the order of their numbers.
    hostgroups: [Vec<(HostgroupId, Vec<Candidate>)>; 2],
}

/// A server of a hostgroup with what all workers share of it.
#[derive(Debug)]
pub struct Candidate {
    /// The configured row.
    pub server: Arc<Server>,
    /// Limits, health and counters.
    pub row: Arc<ServerRow>,
    /// Whether the configuration lets new work go there.
    pub open: bool,
}

impl Snapshot {
    pub(crate) fn new(config: Arc<RuntimeConfig>, cells: &WorkerCells, rows: &Rows) -> Self {
        let protocols = [Protocol::Mysql, Protocol::Pgsql];
        let rules = protocols.map(|protocol| cells.rules_for(protocol, &config));
        let hostgroups = protocols.map(|protocol| hostgroups(protocol, &config, rows));
        Self { config, rules, hostgroups }
    }

    /// The servers of a hostgroup; none if there is no such hostgroup.
    #[must_use]
    pub fn candidates(&self, protocol: Protocol, hostgroup: HostgroupId) -> &[Candidate] {
        let hostgroups = &self.hostgroups[index(protocol)];
        match hostgroups.binary_search_by_key(&hostgroup, |(id, _)| *id) {
            Ok(position) => &hostgroups[position].1,
            Err(_) => &[],
        }
    }

    /// The configuration itself.
    #[must_use]
    pub fn config(&self) -> &Arc<RuntimeConfig> {
        &self.config
    }

    /// This worker's counters of the protocol's rules: `hit(position)`, `guarded(position)`.
    #[must_use]
    pub fn rule_cells(&self, protocol: Protocol) -> &RuleCells {
        &self.rules[index(protocol)]
    }

    /// One protocol's variables. Borrow them from the snapshot on the query path: a clone of the `Arc` behind them writes to
    /// memory that all workers share.
    #[must_use]
    pub fn variables(&self, protocol: Protocol) -> &Variables {
        &self.config.side(protocol).variables
    }

    /// One protocol's configuration.
    #[must_use]
    pub fn side(&self, protocol: Protocol) -> &ProtocolConfig {
        self.config.side(protocol)
    }
}

impl Deref for Snapshot {
    type Target = RuntimeConfig;

    fn deref(&self) -> &RuntimeConfig {
        &self.config
    }
}

fn hostgroups(protocol: Protocol, config: &RuntimeConfig, rows: &Rows) -> Vec<(HostgroupId, Vec<Candidate>)> {
    let candidate = |server: &Arc<Server>| Candidate {
        server: Arc::clone(server),
        row: rows.row(protocol, server),
        open: routing::is_candidate(server),
    };
    let hostgroups = &config.side(protocol).hostgroups;
    let mut list: Vec<_> = hostgroups.values().map(|hostgroup| (hostgroup.id, hostgroup.servers.iter().map(candidate).collect())).collect();
    list.sort_by_key(|(id, _)| *id);
    list
}
