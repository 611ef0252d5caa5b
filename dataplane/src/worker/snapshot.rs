//! What one worker derives from a configuration. A statement takes one snapshot and keeps it to its end.

use std::ops::Deref;
use std::sync::Arc;

use crate::config::{Protocol, ProtocolConfig, RuntimeConfig};
use crate::stats::{RuleCells, WorkerCells, index};

/// A configuration as this worker uses it; derefs to it. Held behind an `Rc`, so that no reference count is shared among
/// workers per statement.
#[derive(Debug)]
pub struct Snapshot {
    config: Arc<RuntimeConfig>,
    rules: [Arc<RuleCells>; 2],
}

impl Snapshot {
    pub(crate) fn new(config: Arc<RuntimeConfig>, cells: &WorkerCells) -> Self {
        let rules = [Protocol::Mysql, Protocol::Pgsql].map(|protocol| cells.rules_for(protocol, &config));
        Self { config, rules }
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
