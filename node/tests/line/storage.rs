//! The leader's disk hangs, then the next leader's disk is full: both end their part in consensus and say so, all nodes go on
//! serving, and what was acknowledged is there after their restart.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use quorumsql_chaos::cluster::Demo;

use super::support::{ADMIN_MYSQL, admin, eventually, fingerprint, leader, mysql, one, pg_one, pgsql, run, text, try_mysql};

const LIMIT: Duration = Duration::from_secs(60);
/// Of each node's disk; a node begins with a few MiB.
const MEBIBYTES: u32 = 64;
/// Debug builds look for injected faults when this is set.
const FAULTS: (&str, &str) = ("QUORUMSQL_STORAGE_FAULTS", "1");

#[test]
fn a_leader_whose_disk_hangs_or_is_full_steps_down_and_serves_on() {
    let mut demo = Demo::start_with(3, &[], &[FAULTS]);
    run(async {
        let mut acknowledged = vec![add(&demo, 1, "before", 0).await];

        let slow = leader(&demo, &[1, 2, 3]).await.expect("a leader");
        let fault = demo.node_dir(slow).join("data/raft/fault");
        fs::write(&fault, "delay 600000").expect("the fault is set");
        acknowledged.push(add(&demo, slow % 3 + 1, "slow", 0).await);
        says_that_it_stopped(&demo, slow, "raft log: a durable point takes longer than 5000 ms").await;
        acknowledged.push(add(&demo, slow % 3 + 1, "while one is stopped", 0).await);
        fs::remove_file(&fault).expect("the fault is removed");
        repaired(&mut demo, slow).await;

        for node in 1..=3 {
            demo.kill(node);
            demo.move_to_small_disk(node, MEBIBYTES);
            started(&mut demo, node).await;
        }
        let full = leader(&demo, &[1, 2, 3]).await.expect("a leader");
        let filler = demo.node_dir(full).join("data/filler");
        fill(&filler);
        // Large enough for the log, or for state.db, to ask for more space.
        acknowledged.push(add(&demo, full % 3 + 1, "full", 300_000).await);
        says_that_it_stopped(&demo, full, "").await;
        acknowledged.push(add(&demo, full % 3 + 1, "while one is full", 0).await);
        fs::remove_file(&filler).expect("the disk has space again");
        repaired(&mut demo, full).await;

        let mut all = Vec::new();
        for node in 1..=3 {
            let mut conn = admin(&demo.host(node)).await;
            let hosts = text(&mut conn, "SELECT hostname FROM mysql_servers").await.concat();
            assert!(acknowledged.iter().all(|host| hosts.contains(host)), "node {node}: {acknowledged:?} of {hosts:?}");
            all.push(fingerprint(&demo.host(node)).await);
        }
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "the nodes differ");
    });
}

/// Adds a row through `node` until that is acknowledged: while leadership changes it may be refused, or its outcome be unknown.
async fn add(demo: &Demo, node: usize, name: &str, comment: usize) -> String {
    let (mut attempt, mut added) = (0, String::new());
    eventually(&format!("a change to be accepted: {name}"), LIMIT, async || {
        attempt += 1;
        added = format!("{name} {attempt}");
        let Ok(mut conn) = try_mysql(&demo.host(node), ADMIN_MYSQL, "admin", "admin", None).await else { return false };
        let comment = "x".repeat(comment);
        conn.query_drop(format!("INSERT INTO mysql_servers (hostgroup_id, hostname, comment) VALUES (99, '{added}', '{comment}')"))
            .await
            .is_ok()
    })
    .await;
    added
}

/// Writes until nothing fits any more.
fn fill(filler: &Path) {
    let mut file = fs::File::create(filler).expect("the filler is created");
    for size in [1 << 20, 4096, 1] {
        let block = vec![0; size];
        while file.write_all(&block).is_ok() {}
    }
}

/// Health, log, metric and tables say that `node` takes no part any more; it serves traffic and admin reads.
async fn says_that_it_stopped(demo: &Demo, node: usize, reason: &str) {
    let body = format!("degraded: consensus stopped: {reason}");
    eventually("the node to say that it stopped", LIMIT, async || {
        demo.http(node, "/readyz").is_some_and(|(code, text)| code == 200 && text.starts_with(&body))
    })
    .await;
    let (_code, metrics) = demo.http(node, "/metrics").expect("metrics");
    assert!(metrics.lines().any(|line| line == "quorumsql_raft_stopped 1"), "{metrics}");
    let log = fs::read_to_string(demo.node_dir(node).join("log")).unwrap_or_default();
    assert!(log.contains("consensus stopped on this node"), "no line in the log");

    let role = format!("SELECT role FROM stats_cluster_nodes WHERE slot = {node}");
    for seen_from in [node, node % 3 + 1] {
        eventually("stats_cluster_nodes to say so", LIMIT, async || {
            let Ok(mut conn) = try_mysql(&demo.host(seen_from), ADMIN_MYSQL, "admin", "admin", None).await else { return false };
            one(&mut conn, &role).await == "stopped"
        })
        .await;
    }
    let mut conn = admin(&demo.host(node)).await;
    let refused = conn.query_drop("DELETE FROM mysql_servers").await.expect_err("a stopped node accepts nothing").to_string();
    assert!(refused.contains("configuration is read-only: consensus stopped on node"), "{refused}");
    assert_eq!(one(&mut mysql(&demo.host(node)).await, "SELECT 40 + 2").await, "42");
    assert_eq!(pg_one(&pgsql(&demo.host(node)).await, "SELECT 40 + 2").await, "42");
}

/// Ends the node and starts it again, as an operator does, and waits until it takes part.
async fn repaired(demo: &mut Demo, node: usize) {
    demo.kill(node);
    started(demo, node).await;
}

async fn started(demo: &mut Demo, node: usize) {
    demo.restart(node);
    eventually("the node to take part again", LIMIT, async || {
        let Ok(mut conn) = try_mysql(&demo.host(node), ADMIN_MYSQL, "admin", "admin", None).await else { return false };
        conn.query_drop("UPDATE mysql_servers SET weight = weight + 1 WHERE hostgroup_id = 99").await.is_ok()
            && one(&mut conn, &format!("SELECT role FROM stats_cluster_nodes WHERE slot = {node}")).await != "stopped"
    })
    .await;
}
