//! Statements are counted by digest, with their time and rows (`stats_mysql_query_digest`).

use std::sync::Arc;

use super::Client;
use super::statement::Routed;
use crate::config::Protocol;
use crate::stats::digests::{DigestEntry, RowCounts};
use crate::worker::scans::Scanned;
use crate::worker::snapshot::Snapshot;
use crate::worker::ticker::micros;

/// A statement that is being counted.
pub(super) struct Counting {
    entry: Arc<DigestEntry>,
    /// Of [`micros`].
    started: u64,
}

impl Client {
    /// The start of a statement; `None` = `mysql-query_digests` is off.
    pub(super) fn start_count(&mut self, config: &Snapshot) -> Option<u64> {
        self.rows = RowCounts::default();
        config.variables(Protocol::Mysql).query_digests.then(micros)
    }

    /// Finds where the statement is counted, now that it is known where it runs.
    pub(super) fn counting(&self, config: &Snapshot, started: Option<u64>, routed: &Routed, scan: &Scanned) -> Option<Counting> {
        let started = started?;
        let hostgroup = match routed {
            Routed::Run(plan) => Some(plan.hostgroup),
            Routed::Answered(_) => None,
        };
        let variables = config.variables(Protocol::Mysql);
        let entry = self.ctx.digest_entry(Protocol::Mysql, variables, &self.state.origin, hostgroup, scan)?;
        Some(Counting { entry, started })
    }

    /// The statement has ended.
    pub(super) fn end_count(&self, counting: Option<Counting>) {
        if let Some(Counting { entry, started }) = counting {
            self.ctx.count(Protocol::Mysql, &entry, started, self.rows);
        }
    }
}
