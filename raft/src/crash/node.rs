//! Loss of power under a whole node: identity, certificates, log, `state.db` and snapshots together.

use std::{path::Path, sync::Arc, time::Duration};

use super::{
    Acks, Dice, Orders,
    disk::{Loss, Recording},
    power::record,
};
use crate::{
    Consensus, LogStoreKind, RaftOptions, Timings,
    command::{Channel, Op, Origin, Outcome, ReadLevel, Request, RequestId, TableRows, Validator},
    identity::Layout,
    membership::init,
    state_machine::StateMachine,
};

/// Points tried for each kind of loss.
const POINTS: usize = 10;
/// Nodes that are started at the same time.
const AT_ONCE: usize = 5;
/// Enough for `state.db` to be checkpointed.
const OPERATIONS: u64 = 300;
/// A snapshot, a purge and a restart after so many of them.
const ROUND: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(60);

struct AcceptAll;

impl Validator for AcceptAll {
    fn validate(&self, _module: &str, _tables: &[TableRows]) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }
}

fn options(directory: &Path, log_store: LogStoreKind) -> RaftOptions {
    RaftOptions {
        data_dir: directory.to_owned(),
        name: "n1".into(),
        log_store,
        timings: Timings {
            heartbeat: Duration::from_millis(20),
            election_min: Duration::from_millis(60),
            election_max: Duration::from_millis(120),
            storage_timeout: PATIENCE,
        },
        peer_listen: "127.0.0.1:0".into(),
        advertise: "127.0.0.1:1".into(),
        build: "test".into(),
    }
}

async fn start(options: &RaftOptions) -> Result<Consensus, String> {
    let node = Consensus::start(options.clone(), Arc::new(AcceptAll)).await.map_err(|e| e.to_string())?;
    node.barrier(ReadLevel::Linearizable, PATIENCE).await.map_err(|e| e.message)?;
    Ok(node)
}

fn host(number: u64) -> String {
    format!("10.0.{}.{}", number / 256, number % 256)
}

/// A child's work: a cluster of one node, a row for each operation.
#[tokio::test]
async fn worker() {
    let Some(orders) = Orders::read() else { return };
    let options = options(&orders.directory, orders.store);
    init(&options, Vec::new()).await.unwrap();
    let mut acks = Acks::create(&orders.directory);
    acks.say(0);
    let mut node = start(&options).await.unwrap();
    for number in 1..=orders.operations {
        let sql = format!(
            "INSERT INTO mysql_servers (hostgroup_id, hostname, port, comment) VALUES (10, '{}', 3306, '{}')",
            host(number),
            "x".repeat(2000)
        );
        let op = Op::Sql { text: sql.clone(), params: Vec::new(), masked: sql };
        let origin = Origin { actor: "admin".into(), channel: Channel::Internal, node: 1, client_addr: String::new() };
        let request = Request { id: RequestId { client: [1; 16], seq: number }, origin, op, timeout: PATIENCE };
        let outcome = node.submit(request).await;
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
        acks.say(number);
        if number % ROUND == 0 {
            snapshot_and_purge(&node).await;
            node.shutdown().await;
            drop(node);
            node = start(&options).await.unwrap();
        }
    }
    std::process::exit(0);
}

async fn snapshot_and_purge(node: &Consensus) {
    let (core, applied) = (node.core().clone(), node.status().applied_index);
    let work = async move {
        core.raft.trigger().snapshot().await.unwrap();
        core.raft.wait(Some(PATIENCE)).metrics(|metrics| metrics.snapshot.is_some_and(|id| id.index >= applied), "snapshot").await.unwrap();
        core.raft.trigger().purge_log(applied - 20).await.unwrap();
        core.raft
            .wait(Some(PATIENCE))
            .metrics(|metrics| metrics.purged.is_some_and(|id| id.index >= applied - 20), "purged")
            .await
            .unwrap();
    };
    node.run(work).await;
}

/// `state.db` by itself may be older, but is whole; with the log, everything acknowledged is there once.
async fn check(directory: &Path, store: LogStoreKind, acknowledged: u64) -> Result<(), String> {
    {
        let state = StateMachine::open(&Layout::new(directory).state()).map_err(|e| e.to_string())?;
        let integrity: String = state.on_writer(|rows| rows.query_row("PRAGMA integrity_check", [], |row| row.get(0))).unwrap();
        if integrity != "ok" || !state.hashes_hold() {
            return Err(format!("state.db at {}: integrity {integrity}, hashes or rows are wrong", state.applied().index));
        }
    }
    let node = start(&options(directory, store)).await?;
    let hosts: Vec<String> = {
        let reader = node.reader().unwrap();
        let mut statement = reader.prepare("SELECT hostname FROM mysql_servers ORDER BY comment, rowid").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let hashes = node.core().state.hashes_hold();
    node.shutdown().await;
    // The row after the last acknowledged one may be there.
    let mut expected: Vec<String> = (1..=acknowledged).map(host).collect();
    expected.extend((hosts.len() as u64 > acknowledged).then(|| host(acknowledged + 1)));
    let mut found = hosts;
    found.sort();
    expected.sort();
    if found == expected && hashes { Ok(()) } else { Err(format!("{} rows after {acknowledged} acknowledged ones", found.len())) }
}

async fn failures(recording: &Arc<Recording>, store: LogStoreKind, loss: Loss, dice: &mut Dice) -> Vec<String> {
    let mut points: Vec<(usize, Dice)> = (0..POINTS).map(|_| (recording.point(dice), Dice(dice.next()))).collect();
    let mut failures = Vec::new();
    while !points.is_empty() {
        let some = points.split_off(points.len().saturating_sub(AT_ONCE));
        let checks = some.into_iter().map(|(point, mut dice)| async move {
            let directory = tempfile::tempdir().unwrap();
            recording.lose_power(point, loss, &mut dice, directory.path());
            let checked = check(directory.path(), store, recording.acknowledged(point)).await;
            checked.map_err(|what| format!("{loss:?} at {point}: {what}"))
        });
        failures.extend(futures::future::join_all(checks).await.into_iter().filter_map(Result::err));
    }
    failures
}

async fn the_node_survives(store: LogStoreKind) {
    let directory = tempfile::tempdir().unwrap();
    let recording = Arc::new(record(directory.path(), "crash::node::worker", store, OPERATIONS));
    let mut dice = Dice(5);
    for loss in Loss::ALL {
        assert_eq!(failures(&recording, store, loss, &mut dice).await, [""; 0], "{store:?}");
    }
    // A disk that ignores the flushes of `state.db` must be noticed, or this test sees nothing.
    let unsafe_state = Arc::new(Arc::into_inner(recording).unwrap().deaf("state.db"));
    assert!(!failures(&unsafe_state, store, Loss::Random, &mut dice).await.is_empty(), "{store:?}: lost flushes went unnoticed");
}

#[tokio::test]
async fn a_node_on_sled_survives_loss_of_power() {
    the_node_survives(LogStoreKind::Sled).await;
}

#[tokio::test]
async fn a_node_on_sqlite_survives_loss_of_power() {
    the_node_survives(LogStoreKind::Sqlite).await;
}
