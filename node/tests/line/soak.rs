//! Writes and linearizable reads through all nodes while nodes are killed and paused, or leadership goes round
//! (raft-and-storage.md 10.5): nothing that was acknowledged is lost, nothing that was refused is there, nothing is there twice, and
//! all answers are those of one order.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use quorumsql_chaos::cluster::{Demo, binary, gone};
use quorumsql_chaos::process::{Signal, wait_for};

use super::history::check;
use super::leader_killed::assert_equal_tables;
use super::support::{Dice, admin, eventually, leader, one, run, seed};
use super::writers::{History, PATIENCE, Writers};

/// How long the faults go on, in seconds.
const SECONDS: &str = "QUORUMSQL_SOAK_SECONDS";
const LOG_STORE: &str = "QUORUMSQL_RAFT__LOG_STORE";
const TRANSFERS: usize = 20;

#[test]
fn acknowledged_writes_survive_kills_and_pauses() {
    let seed = seed();
    let mut dice = Dice(seed);
    let store = ["sled", "sqlite"][dice.below(2)];
    let mut demo = Demo::start_with(3, &[], &[(LOG_STORE, store)]);
    run(async {
        let writers = Writers::start(&demo, &mut dice).await;
        let (kills, pauses) = disturb(&mut demo, &writers, &mut dice, store).await;
        all_ready(&demo).await;
        let history = writers.finish().await;
        println!("log store {store}, {kills} kills, {pauses} pauses: {}", history.summary());
        assert_one_order(&demo, &history, seed).await;
    });
    for node in 1..=3 {
        stop_and_check(&demo, node);
    }
}

#[test]
fn writes_are_there_once_while_leadership_goes_round() {
    let seed = seed();
    let demo = Demo::start(3, &[]);
    run(async {
        let mut conn = admin(&demo.host(1)).await;
        let mut ids = Vec::new();
        for slot in 1..=3 {
            ids.push(one(&mut conn, &format!("SELECT node_id FROM stats_cluster_nodes WHERE slot = {slot}")).await);
        }
        let writers = Writers::start(&demo, &mut Dice(seed)).await;
        let mut leads = leader(&demo, &[1]).await.expect("a leader");
        for through in 0..TRANSFERS {
            leads = leads % 3 + 1;
            transfer(&demo, 1 + through % 3, &ids[leads - 1]);
            writers.progress(8).await;
        }
        let history = writers.finish().await;
        println!("{TRANSFERS} transfers: {}", history.summary());
        assert_one_order(&demo, &history, seed).await;
    });
}

/// One fault after the other until the time is over, and how many there were; after each, writes are acknowledged again.
async fn disturb(demo: &mut Demo, writers: &Writers, dice: &mut Dice, store: &str) -> (usize, usize) {
    let length = std::env::var(SECONDS).ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(120);
    let end = Instant::now() + Duration::from_secs(length);
    let (mut kills, mut pauses) = (0, 0);
    while Instant::now() < end {
        let victims = victims(demo, dice).await;
        // Elections take a second: some faults are shorter, most are longer.
        let hold = Duration::from_millis(300 + dice.below(4000) as u64);
        if dice.below(2) == 0 {
            kills += victims.len();
            victims.iter().for_each(|node| demo.kill(*node));
            tokio::time::sleep(hold).await; // how long the fault lasts
            victims.iter().for_each(|node| demo.restart_with(*node, &[(LOG_STORE, store)]));
        } else {
            pauses += victims.len();
            victims.iter().for_each(|node| demo.signal(*node, Signal::STOP));
            tokio::time::sleep(hold).await; // how long the fault lasts
            victims.iter().for_each(|node| demo.signal(*node, Signal::CONT));
        }
        writers.progress(8).await;
        // In two rounds of three the next fault comes before everybody has caught up.
        if dice.below(3) == 0 {
            all_ready(demo).await;
        }
    }
    (kills, pauses)
}

/// One node or two, in every other round with the leader.
async fn victims(demo: &Demo, dice: &mut Dice) -> Vec<usize> {
    let (first, two, with_leader) = (1 + dice.below(3), dice.below(3) == 0, dice.below(2) == 0);
    let leads = tokio::time::timeout(Duration::from_secs(5), leader(demo, &[1, 2, 3])).await.ok().flatten();
    let first = leads.filter(|_| with_leader).unwrap_or(first);
    if two { vec![first, first % 3 + 1] } else { vec![first] }
}

/// `ctl transfer-leadership` at node `through`.
fn transfer(demo: &Demo, through: usize, to: &str) {
    let endpoint = format!("{}:6034", demo.host(through));
    let output = Command::new(binary()).args(["ctl", "--endpoint", &endpoint, "transfer-leadership", "--to", to]).output();
    let output = output.expect("the binary runs");
    assert!(output.status.success(), "transfer to {to}: {}", String::from_utf8_lossy(&output.stderr));
}

async fn all_ready(demo: &Demo) {
    for node in 1..=3 {
        eventually("a node to be ready", PATIENCE, async || demo.http(node, "/readyz").is_some_and(|(code, _)| code == 200)).await;
    }
}

/// The answers are those of one order, and all nodes have its rows and equal tables.
async fn assert_one_order(demo: &Demo, history: &History, seed: u64) {
    let table = history.rows(demo, 1).await;
    assert_eq!(check(&history.operations, &table), Ok(()), "seed {seed}");
    for node in [2, 3] {
        assert!(history.rows(demo, node).await == table, "seed {seed}: nodes 1 and {node} have other rows");
    }
    assert_equal_tables(demo).await;
    for node in 1..=3 {
        let (_, metrics) = demo.http(node, "/metrics").expect("metrics");
        assert!(metrics.contains("quorumsql_config_diverged 0"), "node {node}");
    }
}

/// Ends node `i` as an operator does, and checks what it leaves behind.
fn stop_and_check(demo: &Demo, node: usize) {
    let pid = demo.pid(node);
    demo.signal(node, Signal::TERM);
    wait_for("a node to stop", PATIENCE, || gone(pid).then_some(()));
    assert_eq!(integrity(&demo.node_dir(node).join("data/state.db")), "ok", "state.db of node {node}");
    let log = demo.logs(node);
    let panic = log.lines().find(|line| line.contains("panic: ") || line.contains("panicked at"));
    assert_eq!(panic, None, "node {node}");
}

fn integrity(file: &Path) -> String {
    let connection = rusqlite::Connection::open(file).expect("state.db opens");
    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("an answer")
}
