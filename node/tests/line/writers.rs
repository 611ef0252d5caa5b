//! Clients that insert unique rows and read all of them through all nodes, and keep what they were answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error};
use quorumsql_chaos::cluster::Demo;
use tokio::task::JoinHandle;

use super::history::{Answer, Operation, Seen};
use super::support::{ADMIN_MYSQL, Dice, admin, eventually, execute, try_mysql};

const CLIENTS: usize = 8;
/// After this many statements a client turns to another node.
const STATEMENTS_PER_CONNECTION: usize = 32;
/// Slower machines than any of ours stay below this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// Between a refusal and the next attempt.
const BREATH: Duration = Duration::from_millis(20);
/// *Outcome unknown* (raft-and-storage.md 4.7).
const UNKNOWN: u16 = 1105;

/// Running clients.
pub(crate) struct Writers {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Vec<Operation>>>,
}

struct Shared {
    hosts: Vec<String>,
    /// Key of the row that was there before.
    first: u64,
    begin: Instant,
    stop: AtomicBool,
    acknowledged: AtomicU64,
}

impl Writers {
    /// Inserts a first row and starts the clients.
    pub(crate) async fn start(demo: &Demo, dice: &mut Dice) -> Self {
        let mut conn = admin(&demo.host(1)).await;
        execute(&mut conn, &["INSERT INTO mysql_query_rules (active, comment) VALUES (0, 'first')"]).await;
        let first = conn.last_insert_id().expect("the key of an inserted row");
        let hosts = (1..=3).map(|node| demo.host(node)).collect();
        let begin = Instant::now();
        let shared = Arc::new(Shared { hosts, first, begin, stop: AtomicBool::new(false), acknowledged: AtomicU64::new(0) });
        let clients = (0..CLIENTS)
            .map(|number| Client { shared: shared.clone(), number, dice: Dice(dice.below(1 << 30) as u64), history: Vec::new() })
            .map(|client| tokio::spawn(client.work()))
            .collect();
        Self { shared, clients }
    }

    /// Waits until `more` further writes have been acknowledged.
    pub(crate) async fn progress(&self, more: u64) {
        let acknowledged = || self.shared.acknowledged.load(Ordering::Relaxed);
        let from = acknowledged();
        eventually("writes to be acknowledged", PATIENCE, async || acknowledged() >= from + more).await;
    }

    /// Ends the clients: everything that they were answered, the first row included.
    pub(crate) async fn finish(self) -> History {
        self.shared.stop.store(true, Ordering::Relaxed);
        let first = self.shared.first;
        let answer = Answer::Acknowledged { row: "first".into(), key: first };
        let mut operations = vec![Operation { invoked: Duration::ZERO, returned: Duration::ZERO, answer }];
        for client in self.clients {
            operations.extend(client.await.expect("a client that has not panicked"));
        }
        History { first, operations }
    }
}

/// What the clients did.
pub(crate) struct History {
    first: u64,
    pub(crate) operations: Vec<Operation>,
}

impl History {
    /// The rows of node `i`, in the order of their keys, once a leader confirms the read.
    pub(crate) async fn rows(&self, demo: &Demo, node: usize) -> Vec<(u64, String)> {
        let sql =
            format!("/* linearizable */ SELECT rule_id, comment FROM mysql_query_rules WHERE rule_id >= {} ORDER BY rule_id", self.first);
        let mut rows = None;
        eventually("a leader to confirm a read", PATIENCE, async || {
            rows = admin(&demo.host(node)).await.query(&sql).await.ok();
            rows.is_some()
        })
        .await;
        rows.expect("the rows were read")
    }

    /// What the run was worth.
    pub(crate) fn summary(&self) -> String {
        let count = |which: fn(&Answer) -> bool| self.operations.iter().filter(|operation| which(&operation.answer)).count();
        format!(
            "{} acknowledged, {} refused, {} unknown, {} reads",
            count(|answer| matches!(answer, Answer::Acknowledged { .. })),
            count(|answer| matches!(answer, Answer::Refused { .. })),
            count(|answer| matches!(answer, Answer::Unknown { .. })),
            count(|answer| matches!(answer, Answer::Read(_))),
        )
    }
}

struct Client {
    shared: Arc<Shared>,
    number: usize,
    dice: Dice,
    history: Vec<Operation>,
}

impl Client {
    async fn work(mut self) -> Vec<Operation> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let host = self.shared.hosts[self.dice.below(3)].clone();
            match patient(try_mysql(&host, ADMIN_MYSQL, "admin", "admin", None)).await {
                Ok(mut conn) => self.talk(&mut conn).await,
                Err(_) => tokio::time::sleep(BREATH).await,
            }
        }
        self.history
    }

    /// Until the connection breaks, it is another node's turn, or the end.
    async fn talk(&mut self, conn: &mut Conn) {
        for _ in 0..STATEMENTS_PER_CONNECTION {
            if self.shared.stop.load(Ordering::Relaxed) {
                return;
            }
            let invoked = self.shared.begin.elapsed();
            let (answer, goes_on) = self.ask(conn).await;
            let returned = self.shared.begin.elapsed();
            match &answer {
                Some(Answer::Acknowledged { .. }) => drop(self.shared.acknowledged.fetch_add(1, Ordering::Relaxed)),
                Some(Answer::Refused { .. }) | None => tokio::time::sleep(BREATH).await,
                Some(Answer::Unknown { .. } | Answer::Read(_)) => {}
            }
            self.history.extend(answer.map(|answer| Operation { invoked, returned, answer }));
            if !goes_on {
                return;
            }
        }
    }

    /// One statement: its answer (`None` = a read without one), and whether the connection goes on.
    async fn ask(&mut self, conn: &mut Conn) -> (Option<Answer>, bool) {
        let (row, first) = (format!("c{}-{}", self.number, self.history.len()), self.shared.first);
        let values = match self.dice.below(10) {
            0..=2 => {
                return match patient(read(conn, first)).await {
                    Ok(seen) => (Some(Answer::Read(seen)), true),
                    Err(error) => (None, code(&error).is_some()),
                };
            }
            // The key is taken: refused by whoever leads.
            3 => format!("(rule_id, active, comment) VALUES ({first}, 0, '{row}')"),
            _ => format!("(active, comment) VALUES (0, '{row}')"),
        };
        match patient(conn.query_drop(format!("INSERT INTO mysql_query_rules {values}"))).await {
            Ok(()) => (Some(Answer::Acknowledged { row, key: conn.last_insert_id().expect("the key of an inserted row") }), true),
            Err(error) => match code(&error) {
                Some(UNKNOWN) => (Some(Answer::Unknown { row }), true),
                Some(_) => (Some(Answer::Refused { row }), true),
                None => (Some(Answer::Unknown { row }), false),
            },
        }
    }
}

/// The code of a node's error; `None` = the connection broke.
fn code(error: &Error) -> Option<u16> {
    match error {
        Error::Server(refusal) => Some(refusal.code),
        _ => None,
    }
}

async fn read(conn: &mut Conn, first: u64) -> Result<Seen, Error> {
    let sql = format!(
        "/* linearizable */ SELECT @@quorumsql_applied_index, count(*), max(rule_id), comment FROM mysql_query_rules WHERE rule_id >= {first}"
    );
    let row: Option<(u64, usize, u64, String)> = conn.query_first(sql).await?;
    let (index, count, key, row) = row.expect("an aggregate has one row");
    Ok(Seen { index, count, last: (key, row) })
}

/// Every statement is answered, or its connection breaks: also when its node was paused.
async fn patient<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("an answer or a broken connection")
}
