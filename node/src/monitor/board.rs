//! What the checks have found, and what follows for one server by itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use quorumsql_dataplane::config::Protocol;
use rusqlite::types::Value as SqlValue;
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::check::{Check, Found, Kind, Round};
use crate::runtime::{Observed, ProtocolTargets, Seen, Targets};

/// Rows that are kept of one check of one server, however long the history is to be.
const MAX_LOG: usize = 1000;

/// A server: host and port.
pub(super) type Server = (String, u16);

/// A row of a `monitor.*_log` table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LogRow {
    /// Start of the check, microseconds since 1970.
    time_start_us: u64,
    /// How long a successful one took, microseconds; 0 if it failed.
    success_time_us: u64,
    /// Answer of the role check.
    read_only: Option<bool>,
    /// Why it failed.
    error: Option<String>,
}

impl LogRow {
    /// In the order of the table's columns.
    pub(super) fn values(self, (host, port): Server, kind: Kind) -> Vec<SqlValue> {
        let integer = |number: u64| SqlValue::Integer(i64::try_from(number).unwrap_or(i64::MAX));
        let mut values = vec![SqlValue::Text(host), integer(port.into()), integer(self.time_start_us), integer(self.success_time_us)];
        if kind == Kind::Role {
            values.push(self.read_only.map_or(SqlValue::Null, |on| integer(on.into())));
        }
        values.push(self.error.map_or(SqlValue::Null, SqlValue::Text));
        values
    }
}

/// All records, and the channel on which their summary is published.
pub(super) struct Board {
    records: Mutex<BTreeMap<(Protocol, Server), Record>>,
    observed: watch::Sender<Observed>,
}

/// What is known of one server.
#[derive(Debug, Default)]
struct Record {
    /// It is in a pair, so that its role is asked for.
    paired: bool,
    /// Missed pings from which on it counts as unreachable.
    tolerated: u32,
    /// For how long log rows are kept.
    history: Duration,
    /// Pings in a row that were not answered.
    missed: u32,
    /// Pings that ended, up to a few.
    pinged: bool,
    /// A ping was answered, ever.
    lived: bool,
    latency_us: u64,
    /// A role check ended.
    asked: bool,
    /// Last answer to it.
    read_only: Option<bool>,
    /// The last role check found nobody.
    role_unreachable: bool,
    /// Why the last check that found nobody did.
    trouble: Option<Arc<str>>,
    logs: BTreeMap<Kind, VecDeque<LogRow>>,
}

impl Board {
    pub(super) fn new() -> (Self, watch::Receiver<Observed>) {
        let (observed, receiver) = watch::channel(Observed::default());
        (Self { records: Mutex::default(), observed }, receiver)
    }

    /// Forgets servers that are no longer targets, and takes over the settings of those that are.
    pub(super) fn retain(&self, targets: &Arc<Targets>) {
        let mut records = self.records.lock();
        let mut kept = BTreeMap::new();
        for (protocol, side) in [(Protocol::Mysql, &targets.mysql), (Protocol::Pgsql, &targets.pgsql)] {
            self.retain_side(protocol, side, &mut records, &mut kept);
        }
        *records = kept;
        self.publish(&records);
    }

    fn retain_side(
        &self,
        protocol: Protocol,
        side: &ProtocolTargets,
        old: &mut BTreeMap<(Protocol, Server), Record>,
        kept: &mut BTreeMap<(Protocol, Server), Record>,
    ) {
        for target in side.servers.iter().filter(|_| side.enabled) {
            let key = (protocol, (target.host.clone(), target.port));
            let mut record = old.remove(&key).unwrap_or_default();
            record.paired = target.check.is_some();
            record.tolerated = side.ping.tolerated;
            record.history = side.history;
            kept.insert(key, record);
        }
    }

    /// Takes a result. One for a server that is no target any more changes nothing.
    pub(super) fn record(&self, check: &Check, round: Round) {
        let mut records = self.records.lock();
        let key = (check.protocol, (check.target.host.clone(), check.target.port));
        let Some(record) = records.get_mut(&key) else { return };
        record.log(check.kind, &round);
        let name = format!("{}:{}", check.target.host, check.target.port);
        match check.kind {
            Kind::Connect => {
                if let Err(failure) = &round.result {
                    warn!(server = name, error = failure.text, "monitor cannot connect");
                }
            }
            Kind::Ping => record.ping(&name, &round),
            Kind::Role => record.role(&name, &round),
        }
        self.publish(&records);
    }

    fn publish(&self, records: &BTreeMap<(Protocol, Server), Record>) {
        let seen = records.iter().map(|((protocol, (host, port)), record)| ((*protocol, host.clone(), *port), record.seen()));
        let now: Observed = seen.collect();
        self.observed.send_if_modified(|before| {
            let changed = *before != now;
            *before = now;
            changed
        });
    }

    pub(super) fn log(&self, protocol: Protocol, kind: Kind) -> Vec<(Server, LogRow)> {
        let records = self.records.lock();
        let of_protocol = records.iter().filter(|((of, _), _)| *of == protocol);
        of_protocol
            .flat_map(|((_, server), record)| record.logs.get(&kind).into_iter().flatten().map(|row| (server.clone(), row.clone())))
            .collect()
    }
}

impl Record {
    fn ping(&mut self, name: &str, round: &Round) {
        self.pinged = true;
        match &round.result {
            Ok(_) => {
                self.latency_us = (round.took.as_micros() as u64).max(1);
                self.answered(name);
            }
            Err(failure) if failure.answered => self.answered(name),
            Err(failure) => {
                self.missed = self.missed.saturating_add(1);
                self.trouble = Some(failure.text.as_str().into());
                if self.missed == self.tolerated {
                    error!(server = name, missed = self.missed, error = failure.text, "server missed its heartbeats, shunning it");
                }
            }
        }
    }

    fn answered(&mut self, name: &str) {
        if self.missed >= self.tolerated.max(1) {
            info!(server = name, "server answers again");
        }
        self.missed = 0;
        self.lived = true;
    }

    fn role(&mut self, name: &str, round: &Round) {
        self.asked = true;
        match &round.result {
            Ok(Found::ReadOnly(read_only)) => {
                if self.read_only != Some(*read_only) {
                    info!(server = name, read_only, "role of the server");
                }
                self.read_only = Some(*read_only);
                self.role_unreachable = false;
            }
            Ok(Found::Alive) => {}
            Err(failure) => {
                if !self.role_unreachable {
                    warn!(server = name, error = failure.text, "role check failed; the last answer stays");
                }
                self.role_unreachable = !failure.answered;
                if self.role_unreachable {
                    self.trouble = Some(failure.text.as_str().into());
                }
            }
        }
    }

    fn log(&mut self, kind: Kind, round: &Round) {
        let rows = self.logs.entry(kind).or_default();
        let start = micros(round.started);
        let oldest = start.saturating_sub(self.history.as_micros() as u64);
        while rows.len() >= MAX_LOG || rows.front().is_some_and(|row| row.time_start_us < oldest) {
            rows.pop_front();
        }
        let (success_time_us, read_only, error) = match &round.result {
            Ok(found) => {
                let read_only = if let Found::ReadOnly(on) = found { Some(*on) } else { None };
                (round.took.as_micros() as u64, read_only, None)
            }
            Err(failure) => (0, None, Some(failure.text.clone())),
        };
        rows.push_back(LogRow { time_start_us: start, success_time_us, read_only, error });
    }

    /// A server of a pair is seen once its role check has ended, one outside of pairs once a ping has.
    fn seen(&self) -> Seen {
        if !(if self.paired { self.asked } else { self.pinged }) {
            return Seen::Nothing;
        }
        // One that has never answered is not waited for: nothing good is known of it.
        let alive = self.missed < self.tolerated.max(1) && (self.lived || self.missed == 0);
        let role_known = !self.paired || self.read_only.is_some() || !self.role_unreachable;
        let read_only = if self.paired { self.read_only } else { None };
        let reachable = alive && role_known;
        let trouble = self.trouble.clone().filter(|_| !reachable);
        Seen::Probed { read_only, reachable, latency_us: self.latency_us, trouble }
    }
}

fn micros(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::super::check::Failure;
    use super::*;

    fn round(result: Result<Found, Failure>) -> Round {
        Round { started: UNIX_EPOCH + Duration::from_secs(1), took: Duration::from_micros(700), result }
    }

    fn refused() -> Round {
        round(Err(Failure { text: "refused".into(), answered: false }))
    }

    fn denied() -> Round {
        round(Err(Failure { text: "access denied".into(), answered: true }))
    }

    fn record(paired: bool) -> Record {
        Record { paired, tolerated: 3, history: Duration::from_secs(60), ..Record::default() }
    }

    fn probed(read_only: Option<bool>, reachable: bool, latency_us: u64) -> Seen {
        let trouble = (!reachable).then(|| "refused".into());
        Seen::Probed { read_only, reachable, latency_us, trouble }
    }

    #[test]
    fn a_server_of_a_pair_is_nothing_until_its_role_was_asked_for() {
        let mut one = record(true);
        one.ping("a", &round(Ok(Found::Alive)));
        assert_eq!(one.seen(), Seen::Nothing);
        one.role("a", &round(Ok(Found::ReadOnly(true))));
        assert_eq!(one.seen(), probed(Some(true), true, 700));
        let mut other = record(false);
        assert_eq!(other.seen(), Seen::Nothing);
        other.ping("a", &round(Ok(Found::Alive)));
        assert_eq!(other.seen(), probed(None, true, 700));
    }

    #[test]
    fn failed_checks_keep_the_last_role() {
        let mut one = record(true);
        one.role("a", &round(Ok(Found::ReadOnly(false))));
        one.role("a", &refused());
        one.role("a", &denied());
        assert_eq!(one.seen(), probed(Some(false), true, 0));
    }

    #[test]
    fn a_server_that_was_never_there_is_unreachable_at_once() {
        let mut one = record(true);
        one.role("a", &refused());
        assert_eq!(one.seen(), probed(None, false, 0));
        // A wrong password of the monitor takes no server out of use.
        one.role("a", &denied());
        one.ping("a", &denied());
        assert_eq!(one.seen(), probed(None, true, 0));
    }

    #[test]
    fn missed_pings_count_in_a_row() {
        let mut one = record(false);
        one.ping("a", &round(Ok(Found::Alive)));
        one.ping("a", &refused());
        one.ping("a", &refused());
        assert_eq!(one.seen(), probed(None, true, 700));
        one.ping("a", &refused());
        assert_eq!(one.seen(), probed(None, false, 700));
        one.ping("a", &round(Ok(Found::Alive)));
        assert_eq!(one.seen(), probed(None, true, 700));
    }

    #[test]
    fn logs_are_bounded() {
        let mut one = record(false);
        for _ in 0..MAX_LOG + 5 {
            one.log(Kind::Ping, &refused());
        }
        assert_eq!(one.logs[&Kind::Ping].len(), MAX_LOG);
        one.history = Duration::from_secs(1);
        one.log(Kind::Ping, &Round { started: UNIX_EPOCH + Duration::from_secs(10), ..refused() });
        assert_eq!(one.logs[&Kind::Ping].len(), 1);
    }
}
