//! What `/metrics` shows: this node only, from counters that are read without stopping a worker.

use quorumsql_dataplane::Stats;
use quorumsql_dataplane::config::Protocol;
use quorumsql_raft::{ClusterStatus, LogStatus};

use super::Facts;
use super::exposition::{Exposition, Kind};
use crate::lifecycle::{Lifecycle, Stage};
use crate::telemetry;

/// All families.
pub(super) fn render(facts: &Facts) -> String {
    let mut out = Exposition::default();
    process(&mut out, &facts.life);
    raft(&mut out, &facts.consensus.status());
    raft_log(&mut out, facts.consensus.log());
    let config = facts.dataplane.config();
    out.single("quorumsql_runtime_index", Kind::Gauge, "Log index of the configuration in force", config.index);
    out.single("quorumsql_revision", Kind::Gauge, "Revision of RUNTIME in force", config.revision);
    let stats = facts.dataplane.stats();
    sessions(&mut out, &stats);
    pools(&mut out, &stats);
    rules(&mut out, &stats);
    out.finish()
}

fn process(out: &mut Exposition, life: &Lifecycle) {
    out.family("quorumsql_build_info", Kind::Gauge, "Version of the binary").sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    out.single("quorumsql_start_time_seconds", Kind::Gauge, "Wall clock of the start", life.started_at_seconds());
    out.single("proxysql_uptime_seconds_total", Kind::Counter, "Seconds since the start", life.uptime_seconds());
    out.single("quorumsql_draining", Kind::Gauge, "1 while the node drains", u8::from(life.stage() >= Stage::Draining));
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, std::iter::Iterator::count);
    out.single("quorumsql_open_fds", Kind::Gauge, "Open file descriptors", open);
    let mut messages = out.family("quorumsql_log_messages_total", Kind::Counter, "Messages logged, by level");
    for (level, count) in telemetry::message_counts() {
        messages.sample(&[("level", level)], count);
    }
}

fn raft(out: &mut Exposition, status: &ClusterStatus) {
    let own = status.members.iter().find(|member| member.node_id == status.node_id).map_or("none", |member| member.role);
    let mut role = out.family("quorumsql_raft_role", Kind::Gauge, "1 for the role that this node has");
    for name in ["leader", "follower", "candidate", "learner"] {
        role.sample(&[("role", name)], u8::from(name == own));
    }
    out.single("quorumsql_raft_term", Kind::Gauge, "Current term", status.term);
    out.single("quorumsql_raft_applied_index", Kind::Gauge, "Index of the last applied entry", status.applied_index);
    out.single("quorumsql_raft_leader_id", Kind::Gauge, "Node id of the leader; 0 = none known", status.leader_id.unwrap_or(0));
    out.single(
        "quorumsql_raft_has_quorum",
        Kind::Gauge,
        "1 while configuration can be written",
        u8::from(status.read_only_reason.is_none()),
    );
    out.single(
        "quorumsql_raft_stopped",
        Kind::Gauge,
        "1 when this node takes no part in consensus any more",
        u8::from(status.consensus_stopped.is_some()),
    );
    out.single(
        "quorumsql_raft_leader_messages_total",
        Kind::Counter,
        "Messages of leaders, heartbeats among them, that were accepted",
        status.leader_messages,
    );
    out.single(
        "quorumsql_config_diverged",
        Kind::Gauge,
        "1 when the configuration of this node differs from that of a majority, or there is no majority",
        u8::from(status.config_diverged),
    );
    out.single("quorumsql_raft_voters", Kind::Gauge, "Voters in the membership", status.voters);
    out.single("quorumsql_raft_voters_reachable", Kind::Gauge, "Voters that answer, this node included", status.voters_reachable);
    if let Some(millis) = status.leader_contact_ms {
        out.single("quorumsql_raft_leader_contact_seconds", Kind::Gauge, "Time since the leader was last heard", seconds(millis));
    }
    let mut lag = out.family("quorumsql_raft_peer_lag_entries", Kind::Gauge, "Entries that a member is behind");
    for member in &status.members {
        lag.sample(&[("peer", &member.name)], member.lag_entries);
    }
}

fn raft_log(out: &mut Exposition, log: LogStatus) {
    out.single("quorumsql_raft_log_bytes", Kind::Gauge, "Bytes of the log's entries that are not purged", log.bytes);
    out.single("quorumsql_raft_unflushed_entries", Kind::Gauge, "Entries that are not durable on this node yet", log.unflushed_entries);
    out.single("quorumsql_raft_log_blobs", Kind::Gauge, "Files that the log store should not have written", log.strays);
}

fn sessions(out: &mut Exposition, stats: &Stats) {
    let protocols = [("mysql", Protocol::Mysql), ("pgsql", Protocol::Pgsql)].map(|(label, protocol)| (label, stats.sessions(protocol)));
    let mut connected = out.family("quorumsql_client_connections", Kind::Gauge, "Client connections now");
    for (protocol, sessions) in protocols {
        connected.sample(&[("protocol", protocol)], sessions.connected);
    }
    let mut total = out.family("quorumsql_client_connections_total", Kind::Counter, "Client connections accepted and aborted");
    for (protocol, sessions) in protocols {
        total.sample(&[("protocol", protocol), ("status", "created")], sessions.created);
        total.sample(&[("protocol", protocol), ("status", "aborted")], sessions.aborted);
    }
    let mut handshakes = out.family("quorumsql_tls_handshakes_total", Kind::Counter, "TLS handshakes with clients, by outcome");
    for (protocol, sessions) in protocols {
        handshakes.sample(&[("protocol", protocol), ("outcome", "ok")], sessions.tls_handshakes);
        handshakes.sample(&[("protocol", protocol), ("outcome", "failed")], sessions.tls_failed);
    }
    let mut queries = out.family(
        "quorumsql_queries_total",
        Kind::Counter,
        "Statements: received, forwarded to a server, changed by the routing guard, left without a server",
    );
    for (protocol, sessions) in protocols {
        for (outcome, count) in [
            ("received", sessions.queries),
            ("forwarded", sessions.forwarded),
            ("guarded", sessions.guarded),
            ("no_server", sessions.acquire_failed),
        ] {
            queries.sample(&[("protocol", protocol), ("outcome", outcome)], count);
        }
    }
    let mut bytes = out.family("quorumsql_client_bytes_total", Kind::Counter, "Bytes from and to clients");
    for (protocol, sessions) in protocols {
        bytes.sample(&[("protocol", protocol), ("traffic_flow", "received")], sessions.bytes_recv);
        bytes.sample(&[("protocol", protocol), ("traffic_flow", "sent")], sessions.bytes_sent);
    }
    let mut workers = out.family("quorumsql_worker_sessions", Kind::Gauge, "Sessions of each worker");
    for (worker, count) in stats.workers.iter().enumerate() {
        workers.sample(&[("worker", &worker.to_string())], count);
    }
    out.single("quorumsql_session_panics_total", Kind::Counter, "Sessions that ended by a panic", stats.panics);
}

fn pools(out: &mut Exposition, stats: &Stats) {
    let rows: Vec<_> = stats
        .pool
        .iter()
        .map(|row| {
            let protocol = if row.protocol == Protocol::Mysql { "mysql" } else { "pgsql" };
            (protocol, row.address.to_string(), row.hostgroup.0.to_string(), row)
        })
        .collect();
    let mut connections = out.family("quorumsql_pool_connections", Kind::Gauge, "Server connections, used and free");
    for (protocol, endpoint, hostgroup, row) in &rows {
        for (status, count) in [("used", row.used), ("free", row.free)] {
            connections.sample(&[("protocol", protocol), ("hostgroup", hostgroup), ("endpoint", endpoint), ("status", status)], count);
        }
    }
    let mut opened = out.family("quorumsql_pool_connections_total", Kind::Counter, "Server connections opened and failed");
    for (protocol, endpoint, hostgroup, row) in &rows {
        for (status, count) in [("ok", row.ok), ("err", row.err)] {
            opened.sample(&[("protocol", protocol), ("hostgroup", hostgroup), ("endpoint", endpoint), ("status", status)], count);
        }
    }
    let mut queries = out.family("quorumsql_pool_queries_total", Kind::Counter, "Statements sent to a server");
    for (protocol, endpoint, hostgroup, row) in &rows {
        queries.sample(&[("protocol", protocol), ("hostgroup", hostgroup), ("endpoint", endpoint)], row.queries);
    }
    let mut bytes = out.family("quorumsql_pool_bytes_total", Kind::Counter, "Bytes from and to a server");
    for (protocol, endpoint, hostgroup, row) in &rows {
        for (flow, count) in [("recv", row.bytes_recv), ("sent", row.bytes_sent)] {
            bytes.sample(&[("protocol", protocol), ("hostgroup", hostgroup), ("endpoint", endpoint), ("traffic_flow", flow)], count);
        }
    }
    let mut status = out.family("quorumsql_server_status", Kind::Gauge, "1 for the status that a server has on this node");
    for (protocol, endpoint, hostgroup, row) in &rows {
        status.sample(&[("protocol", protocol), ("hostgroup", hostgroup), ("endpoint", endpoint), ("status", row.status.as_str())], 1);
    }
    let mut latency = out.family("quorumsql_server_ping_seconds", Kind::Gauge, "Last ping of the monitor; 0 = none yet");
    for (protocol, endpoint, hostgroup, row) in &rows {
        let value = std::time::Duration::from_micros(row.latency_us).as_secs_f64();
        latency.sample(&[("protocol", protocol), ("hostgroup", hostgroup), ("endpoint", endpoint)], value);
    }
}

fn rules(out: &mut Exposition, stats: &Stats) {
    let protocols = [("mysql", Protocol::Mysql), ("pgsql", Protocol::Pgsql)].map(|(label, protocol)| (label, stats.rules(protocol)));
    let mut hits = out.family("quorumsql_rule_hits_total", Kind::Counter, "Statements that a rule matched");
    for (protocol, rules) in protocols {
        for rule in rules.iter().take(MAX_RULES) {
            hits.sample(&[("protocol", protocol), ("rule_id", &rule.rule_id.0.to_string())], rule.hits);
        }
    }
    let mut guarded =
        out.family("quorumsql_rule_guarded_total", Kind::Counter, "Statements of a rule that the routing guard sent elsewhere or refused");
    for (protocol, rules) in protocols {
        for rule in rules.iter().take(MAX_RULES) {
            guarded.sample(&[("protocol", protocol), ("rule_id", &rule.rule_id.0.to_string())], rule.guarded);
        }
    }
}

/// Most rules of a protocol that are exposed; `stats_*_query_rules` shows all.
const MAX_RULES: usize = 5_000;

fn seconds(millis: u64) -> f64 {
    std::time::Duration::from_millis(millis).as_secs_f64()
}
