//! What the monitor has to probe, and how: derived from committed rows, published when it changes.

use std::collections::BTreeMap;
use std::time::Duration;

use quorumsql_dataplane::config::{Protocol, ServerStatus};

use super::build::Effective;
use super::rows::CheckType;
use super::source::Committed;
use super::variables::Prefixed;
use crate::tls::ServerSide;

/// Both protocols.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Targets {
    pub(crate) mysql: ProtocolTargets,
    pub(crate) pgsql: ProtocolTargets,
}

/// The servers of one protocol and the variables `*-monitor_*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ProtocolTargets {
    /// `monitor_enabled`.
    pub(crate) enabled: bool,
    /// Each server once, in the order (hostname, port); rows that are OFFLINE_SOFT or OFFLINE_HARD everywhere are left out.
    pub(crate) servers: Vec<Target>,
    /// `monitor_username`.
    pub(crate) username: String,
    /// `monitor_password`.
    pub(crate) password: String,
    /// `monitor_dbname` (PostgreSQL).
    pub(crate) dbname: String,
    /// How connections to servers with `use_ssl` are protected.
    pub(crate) tls: ServerSide,
    /// `monitor_connect_*`.
    pub(crate) connect: Schedule,
    /// `monitor_ping_*`; `tolerated` = `ping_max_failures`.
    pub(crate) ping: Schedule,
    /// `monitor_read_only_*`; `tolerated` = `read_only_max_timeout_count`.
    pub(crate) read_only: Schedule,
    /// `monitor_history`: how long rows stay in the `*_log` tables.
    pub(crate) history: Duration,
}

/// When one kind of check runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Schedule {
    /// Between two checks of a server.
    pub(crate) interval: Duration,
    /// For one check, everything included.
    pub(crate) timeout: Duration,
    /// Consecutive failures from which on they have an effect.
    pub(crate) tolerated: u32,
}

/// One server.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) use_ssl: bool,
    /// What tells writer from reader; `None` = the server is in no pair.
    pub(crate) check: Option<CheckType>,
}

/// What follows from the committed rows.
pub(crate) fn targets(effective: &Effective) -> Targets {
    let [mysql, pgsql] = &effective.server_sides;
    Targets { mysql: side(&effective.committed, Protocol::Mysql, mysql), pgsql: side(&effective.committed, Protocol::Pgsql, pgsql) }
}

fn side(committed: &Committed, protocol: Protocol, tls: &ServerSide) -> ProtocolTargets {
    let from = committed.variables.of(protocol);
    let text = |name: &str, default: &str| from.text(name).unwrap_or(default).to_owned();
    ProtocolTargets {
        enabled: from.flag("monitor_enabled", true),
        servers: servers(committed, protocol),
        username: text("monitor_username", "monitor"),
        password: text("monitor_password", "monitor"),
        dbname: text("monitor_dbname", "postgres"),
        tls: tls.clone(),
        connect: schedule(&from, "connect", (120_000, 600), None),
        ping: schedule(&from, "ping", (8_000, 1_000), Some("ping_max_failures")),
        read_only: schedule(&from, "read_only", (1_000, 800), Some("read_only_max_timeout_count")),
        history: from.millis("monitor_history", Duration::from_secs(7_200)),
    }
}

fn schedule(from: &Prefixed<'_>, check: &str, (interval, timeout): (u64, u64), tolerated: Option<&str>) -> Schedule {
    Schedule {
        interval: from.millis(&format!("monitor_{check}_interval"), Duration::from_millis(interval)),
        timeout: from.millis(&format!("monitor_{check}_timeout"), Duration::from_millis(timeout)),
        tolerated: tolerated.map_or(1, |name| from.number(&format!("monitor_{name}"), 3)),
    }
}

fn servers(committed: &Committed, protocol: Protocol) -> Vec<Target> {
    let servers = &committed.side(protocol).servers;
    let mut targets: BTreeMap<(&str, u16), Target> = BTreeMap::new();
    for row in &servers.rows {
        if matches!(row.status, ServerStatus::OfflineSoft | ServerStatus::OfflineHard) {
            continue;
        }
        let pair = servers.pairs.iter().find(|pair| pair.writer == row.hostgroup || pair.reader == row.hostgroup);
        let target = targets.entry((&row.host, row.port)).or_insert_with(|| Target {
            host: row.host.clone(),
            port: row.port,
            use_ssl: row.use_ssl,
            check: None,
        });
        target.check = target.check.or(pair.map(|pair| pair.check));
    }
    targets.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::super::source::tests::state;
    use super::*;

    #[test]
    fn each_server_is_probed_once_and_offline_rows_are_not() {
        let connection = state();
        connection
            .execute_batch(
                "INSERT INTO base_runtime_mysql_servers VALUES (7, 'a', 3306, 'ONLINE', 1, 100, 0, 0, ''), (20, 'b', 3306, 'OFFLINE_SOFT', 1, 100, 0, 0, ''), (7, 'c', 3306, 'ONLINE', 1, 100, 0, 1, '');
                 INSERT INTO base_runtime_global_variables VALUES ('mysql-monitor_ping_interval', '250'), ('mysql-monitor_ping_max_failures', '5')",
            )
            .unwrap();
        let committed = Committed::default().refresh(&connection, 1).unwrap();
        let targets = targets(&Effective { committed, ..Effective::default() });
        let found: Vec<(&str, Option<CheckType>)> =
            targets.mysql.servers.iter().map(|target| (target.host.as_str(), target.check)).collect();
        assert_eq!(found, [("a", Some(CheckType::ReadOnly)), ("c", None)]);
        assert_eq!(targets.mysql.ping, Schedule { interval: Duration::from_millis(250), timeout: Duration::from_secs(1), tolerated: 5 });
        assert!(targets.mysql.enabled && targets.pgsql.servers.is_empty());
    }
}
