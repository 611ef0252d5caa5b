//! What this node sees of the databases: every server is asked, again and again, whether it lives and what it is.
//!
//! ```text
//! runtime::targets ─► supervise ─► one task per (server, check) ─► board ─► watch<Observed> ─► runtime::placement
//!                                  connect, ping, role                 └──► result tables (`monitor.*_log`)
//! ```
//! Checks do not gate one another; a failed one keeps the last value (monitoring-and-failover.md E3). Observations are this
//! node's own: in memory, never replicated, saved or hashed. What follows from them is `runtime::placement`'s to say.

mod board;
mod check;
mod mysql;
mod pgsql;
mod task;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use quorumsql_dataplane::config::Protocol;
use rusqlite::types::Value as SqlValue;
use tokio::sync::watch;

use self::board::Board;
use self::check::{Check, Kind, Login};
use self::task::AbortOnDrop;
use crate::runtime::{Observed, ProtocolTargets, Targets};

/// The monitor of a node. Its checks end when it is dropped.
pub(crate) struct Monitor {
    board: Arc<Board>,
    _supervisor: AbortOnDrop,
}

impl Monitor {
    /// Starts checking `targets`, whatever they become; the receiver has what was found. Needs a tokio runtime.
    pub(crate) fn start(targets: watch::Receiver<Arc<Targets>>) -> (Self, watch::Receiver<Observed>) {
        let (board, observed) = Board::new();
        let board = Arc::new(board);
        let supervisor = AbortOnDrop::spawn(supervise(targets, Arc::clone(&board)));
        (Self { board, _supervisor: supervisor }, observed)
    }

    /// Rows of a `monitor.*_log` table, by server, oldest first.
    pub(crate) fn log_table(&self, table: &str) -> Vec<Vec<SqlValue>> {
        let (protocol, check) = match table.split_once("_server_") {
            Some(("mysql", check)) => (Protocol::Mysql, check),
            Some(("pgsql", check)) => (Protocol::Pgsql, check),
            _ => return Vec::new(),
        };
        let kind = match check {
            "connect_log" => Kind::Connect,
            "ping_log" => Kind::Ping,
            "read_only_log" => Kind::Role,
            _ => return Vec::new(),
        };
        self.board.log(protocol, kind).into_iter().map(|(server, row)| row.values(server, kind)).collect()
    }
}

/// Keeps exactly the checks running that the targets ask for; one whose settings change starts anew.
#[allow(clippy::mutable_key_type, reason = "TLS settings are hashed and compared by identity")]
async fn supervise(mut targets: watch::Receiver<Arc<Targets>>, board: Arc<Board>) {
    let mut running: HashMap<Check, AbortOnDrop> = HashMap::new();
    loop {
        let wanted: HashSet<Check> = {
            let targets = targets.borrow_and_update().clone();
            board.retain(&targets);
            checks(Protocol::Mysql, &targets.mysql).chain(checks(Protocol::Pgsql, &targets.pgsql)).collect()
        };
        running.retain(|check, _| wanted.contains(check));
        for check in wanted {
            running.entry(check).or_insert_with_key(|check| AbortOnDrop::spawn(check::run(check.clone(), Arc::clone(&board))));
        }
        if targets.changed().await.is_err() {
            return;
        }
    }
}

fn checks(protocol: Protocol, targets: &ProtocolTargets) -> impl Iterator<Item = Check> + '_ {
    let servers = if targets.enabled { targets.servers.as_slice() } else { &[] };
    let login = Arc::new(Login {
        username: targets.username.clone(),
        password: targets.password.clone(),
        dbname: targets.dbname.clone(),
        tls: targets.tls.clone(),
    });
    servers.iter().flat_map(move |target| {
        let login = Arc::clone(&login);
        let kinds = [(Kind::Connect, targets.connect), (Kind::Ping, targets.ping), (Kind::Role, targets.read_only)];
        kinds.into_iter().filter(|(kind, _)| *kind != Kind::Role || target.check.is_some()).map(move |(kind, schedule)| Check {
            protocol,
            kind,
            target: target.clone(),
            login: Arc::clone(&login),
            schedule,
        })
    })
}

#[cfg(test)]
mod live_test;
