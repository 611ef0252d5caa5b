//! Statements are counted by digest, with their time and rows (`stats_mysql_query_digest`).

use std::sync::Arc;

use quorumsql_wire::sql::Scan;

use super::Client;
use super::statement::Routed;
use crate::config::Protocol;
use crate::stats::digests::{DigestEntry, DigestKey};
use crate::worker::ticker::micros;

/// Rows of the statement that runs.
#[derive(Clone, Copy, Default)]
pub(super) struct RowCounts {
    pub(super) affected: u64,
    pub(super) sent: u64,
}

/// A statement that is being counted.
pub(super) struct Counting {
    entry: Arc<DigestEntry>,
    /// Of [`micros`].
    started: u64,
}

impl Client {
    /// The start of a statement; `None` = `mysql-query_digests` is off.
    pub(super) fn start_count(&mut self) -> Option<u64> {
        self.rows = RowCounts::default();
        self.ctx.config().variables(Protocol::Mysql).query_digests.then(micros)
    }

    /// Finds where the statement is counted, now that it is known where it runs.
    pub(super) fn counting(&self, started: Option<u64>, routed: &Routed, scan: &Scan) -> Option<Counting> {
        let started = started?;
        let config = self.ctx.config();
        let variables = config.variables(Protocol::Mysql);
        let key = DigestKey {
            hostgroup: match routed {
                Routed::Run(plan) => Some(plan.hostgroup),
                Routed::Answered(_) => None,
            },
            schema: &self.state.schema,
            user: &self.identity.user.name,
            client: if variables.query_digests_track_hostname { &self.identity.client_addr } else { "" },
            digest: scan.digest,
            text: &scan.digest_text[..scan.digest_text.len().min(variables.digest_options.max_digest_length)],
        };
        let entry = self.ctx.digests(Protocol::Mysql).borrow_mut().entry(&key, self.ctx.ticker().now());
        Some(Counting { entry, started })
    }

    /// The statement has ended.
    pub(super) fn end_count(&self, counting: Option<Counting>) {
        let Some(Counting { entry, started }) = counting else { return };
        let taken = micros().saturating_sub(started);
        let mut digests = self.ctx.digests(Protocol::Mysql).borrow_mut();
        digests.record(&entry, self.ctx.ticker().now(), taken, self.rows.affected, self.rows.sent);
    }
}
