//! Statements are counted by digest, with their time and rows (`stats_mysql_query_digest`).

use std::sync::Arc;
use std::time::Instant;

use quorumsql_wire::sql::Scan;

use super::Client;
use super::statement::Routed;
use crate::config::Protocol;
use crate::stats::digests::{DigestEntry, DigestKey};

/// Rows of the statement that runs.
#[derive(Clone, Copy, Default)]
pub(super) struct RowCounts {
    pub(super) affected: u64,
    pub(super) sent: u64,
}

/// A statement that is being counted.
pub(super) struct Counting {
    entry: Arc<DigestEntry>,
    started: Instant,
}

impl Client {
    /// The start of a statement; `None` = `mysql-query_digests` is off.
    pub(super) fn start_count(&mut self) -> Option<Instant> {
        self.rows = RowCounts::default();
        self.ctx.config().variables(Protocol::Mysql).query_digests.then(Instant::now)
    }

    /// Finds where the statement is counted, now that it is known where it runs.
    pub(super) fn counting(&self, started: Option<Instant>, routed: &Routed, scan: &Scan) -> Option<Counting> {
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
        let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut digests = self.ctx.digests(Protocol::Mysql).borrow_mut();
        digests.record(&entry, self.ctx.ticker().now(), micros, self.rows.affected, self.rows.sent);
    }
}
