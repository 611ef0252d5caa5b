//! Statements are counted by digest, with their time and rows (`stats_pgsql_query_digest`): a Query as a whole, in the
//! extended protocol each Execute.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::pgsql::backend::tag;

use super::Exchange;
use crate::config::{HostgroupId, Protocol};
use crate::stats::digests::{DigestEntry, RowCounts};
use crate::worker::WorkerContext;
use crate::worker::scans::Scanned;
use crate::worker::ticker::micros;

/// Named portals of one connection whose statements are remembered; more are not counted.
const MAX_PORTALS: usize = 64;

/// A statement that is being counted.
pub(in crate::frontend::pgsql) struct Running {
    entry: Arc<DigestEntry>,
    /// Of [`micros`].
    started: u64,
    rows: RowCounts,
}

/// What was sent, in order: what is counted, and every end of a unit.
pub(in crate::frontend::pgsql) enum Sent {
    Query(Running),
    Execute(Running),
    /// Sync, a function call, a Query that is not counted: one ReadyForQuery.
    Ready,
}

/// The statements in flight on one connection.
pub(super) struct Counts {
    ctx: Rc<WorkerContext>,
    sent: VecDeque<Sent>,
    /// What was bound to the unnamed portal.
    unnamed: Option<Arc<DigestEntry>>,
    /// What was bound to which named one.
    portals: Vec<(Box<[u8]>, Arc<DigestEntry>)>,
}

impl Counts {
    /// With an empty queue that was used before.
    pub(super) fn new(ctx: &Rc<WorkerContext>, sent: VecDeque<Sent>) -> Self {
        Self { ctx: Rc::clone(ctx), sent, unnamed: None, portals: Vec::new() }
    }

    /// The queue, to be used again.
    pub(super) fn into_queue(self) -> VecDeque<Sent> {
        self.sent
    }

    /// A Query was sent.
    pub(super) fn query(&mut self, entry: Option<Arc<DigestEntry>>) {
        self.sent.push_back(entry.map_or(Sent::Ready, |entry| Sent::Query(Running::new(entry))));
    }

    /// A Bind was sent.
    pub(super) fn bind(&mut self, portal: &[u8], entry: Option<Arc<DigestEntry>>) {
        let Some(entry) = entry else { return };
        if portal.is_empty() {
            self.unnamed = Some(entry);
            return;
        }
        match self.portals.iter().position(|(name, _)| **name == *portal) {
            Some(known) => self.portals[known].1 = entry,
            None if self.portals.len() < MAX_PORTALS => self.portals.push((portal.into(), entry)),
            None => {}
        }
    }

    /// An Execute was sent.
    pub(super) fn execute(&mut self, portal: &[u8]) {
        let bound = match portal {
            b"" => self.unnamed.as_ref(),
            _ => self.portals.iter().find(|(name, _)| **name == *portal).map(|(_, entry)| entry),
        };
        if let Some(entry) = bound {
            self.sent.push_back(Sent::Execute(Running::new(Arc::clone(entry))));
        }
    }

    /// A Sync or a function call was sent.
    pub(super) fn ready(&mut self) {
        self.sent.push_back(Sent::Ready);
    }

    /// One Sync that was sent is not answered.
    pub(super) fn unready(&mut self) {
        if let Some(index) = self.sent.iter().position(|sent| matches!(sent, Sent::Ready)) {
            self.sent.remove(index);
        }
    }

    /// The server has said `message`.
    pub(super) fn on_message(&mut self, message: u8, body: &[u8]) {
        match message {
            tag::COMMAND_COMPLETE => {
                let (affected, sent) = rows_of(body);
                if let Some(Sent::Query(running) | Sent::Execute(running)) = self.sent.front_mut() {
                    running.rows.affected += affected;
                    running.rows.sent += sent;
                }
                self.end_execute();
            }
            tag::EMPTY_QUERY | tag::PORTAL_SUSPENDED | tag::ERROR => self.end_execute(),
            tag::READY => self.end_unit(),
            _ => {}
        }
    }

    fn end_execute(&mut self) {
        if matches!(self.sent.front(), Some(Sent::Execute(_)))
            && let Some(Sent::Execute(running)) = self.sent.pop_front()
        {
            running.end(&self.ctx);
        }
    }

    /// What is left before a Sync did not run: an error came before it.
    fn end_unit(&mut self) {
        while let Some(sent) = self.sent.pop_front() {
            match sent {
                Sent::Query(running) => return running.end(&self.ctx),
                Sent::Ready => return,
                Sent::Execute(_) => {}
            }
        }
    }
}

impl Running {
    fn new(entry: Arc<DigestEntry>) -> Self {
        Self { entry, started: micros(), rows: RowCounts::default() }
    }

    fn end(self, ctx: &WorkerContext) {
        ctx.count(Protocol::Pgsql, &self.entry, self.started, self.rows);
    }
}

impl Exchange<'_> {
    /// Where a statement is counted; `None` = `pgsql-query_digests` is off.
    pub(super) fn digest_entry(&self, hostgroup: Option<HostgroupId>, scanned: &Scanned) -> Option<Arc<DigestEntry>> {
        let variables = &self.config.pgsql.variables;
        self.client.ctx.digest_entry(Protocol::Pgsql, variables, &self.client.origin, hostgroup, scanned)
    }

    /// Counts a statement that was answered here.
    pub(super) fn count_here(&self, scanned: &Scanned) {
        if let Some(entry) = self.digest_entry(None, scanned) {
            Running::new(entry).end(&self.client.ctx);
        }
    }
}

/// Affected and returned rows of a CommandComplete: `SELECT 5`, `INSERT 0 1`, `COPY 3`.
fn rows_of(body: &[u8]) -> (u64, u64) {
    let body = body.strip_suffix(b"\0").unwrap_or(body);
    let count = body.rsplit(|byte| *byte == b' ').next().and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()).unwrap_or(0);
    let returns = [&b"SELECT "[..], b"FETCH ", b"SHOW "].iter().any(|tag| body.starts_with(tag));
    if returns { (0, count) } else { (count, 0) }
}

#[cfg(test)]
mod tests {
    use super::rows_of;

    #[test]
    fn rows_of_command_tags() {
        let table: [(&[u8], (u64, u64)); 8] = [
            (b"SELECT 5\0", (0, 5)),
            (b"FETCH 2\0", (0, 2)),
            (b"INSERT 0 3\0", (3, 0)),
            (b"UPDATE 4\0", (4, 0)),
            (b"COPY 7\0", (7, 0)),
            (b"BEGIN\0", (0, 0)),
            (b"CREATE TABLE\0", (0, 0)),
            (b"SHOW\0", (0, 0)),
        ];
        for (body, want) in table {
            assert_eq!(rows_of(body), want, "{}", String::from_utf8_lossy(body));
        }
    }
}
