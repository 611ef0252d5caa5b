//! A data plane that uses every core costs no leader its heartbeat: consensus has threads of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use quorumsql_chaos::cluster::Demo;

use super::support::{admin, eventually, leader, mysql, one, run};

/// Clients per node: more than cores.
const CLIENTS: usize = 8;
/// Messages of the leader that each follower gets while the load runs, at several a second.
const MESSAGES: u64 = 100;

fn messages(demo: &Demo, node: usize) -> u64 {
    let (_, body) = demo.http(node, "/metrics").expect("metrics");
    let line = body.lines().find(|line| line.starts_with("quorumsql_raft_leader_messages_total ")).expect("the metric");
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

#[test]
fn a_saturated_data_plane_changes_no_term() {
    let demo = Demo::start(3, &[]);
    run(async {
        let leads = leader(&demo, &[1]).await.expect("a leader");
        let term = one(&mut admin(&demo.host(1)).await, "SELECT MAX(term) FROM stats_cluster_nodes").await;
        let stop = Arc::new(AtomicBool::new(false));
        let (done, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut clients = Vec::new();
        for number in 0..3 * CLIENTS {
            let (host, stop) = (demo.host(number % 3 + 1), stop.clone());
            let (done, refused) = (done.clone(), refused.clone());
            clients.push(tokio::spawn(async move {
                let mut conn = mysql(&host).await;
                while !stop.load(Ordering::Relaxed) {
                    // On a machine that is busy with other things too, probes of the server may time out: that is no failure here.
                    match conn.query_drop("SELECT 1").await {
                        Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                        Err(error) if error.is_fatal() => panic!("{error}"),
                        Err(_) => refused.fetch_add(1, Ordering::Relaxed),
                    };
                }
            }));
        }
        eventually("the load to run", Duration::from_secs(60), async || done.load(Ordering::Relaxed) > 1_000).await;
        let followers: Vec<usize> = (1..=3).filter(|node| *node != leads).collect();
        for follower in followers {
            let from = messages(&demo, follower);
            eventually("heartbeats", Duration::from_secs(120), async || messages(&demo, follower) >= from + MESSAGES).await;
        }
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.expect("a client's task");
        }
        println!("{} queries meanwhile, {} refused", done.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
        for node in 1..=3 {
            let now = one(&mut admin(&demo.host(node)).await, "SELECT MAX(term) FROM stats_cluster_nodes").await;
            assert_eq!((now, leader(&demo, &[node]).await), (term.clone(), Some(leads)), "as node {node} sees it");
        }
    });
}
