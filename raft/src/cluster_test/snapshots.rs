//! A node joins by snapshot while the cluster goes on.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::{network::CHUNK_BYTES, root_hash};

const USERS: usize = 20_000;
const USERS_A_STATEMENT: usize = 2_000;

/// Writes until told to stop; how many were acknowledged, all of which must be.
async fn write(consensus: Consensus, stop: Arc<AtomicBool>) -> i64 {
    let mut seq = 0;
    while !stop.load(Ordering::Relaxed) {
        seq += 1;
        let text = format!("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (1, 'h{seq}')");
        let op = Op::Sql { text: text.clone(), params: Vec::new(), masked: text };
        let request = Request { id: RequestId { client: [9; 16], seq }, origin: origin(), op, timeout: Duration::from_secs(20) };
        let outcome = consensus.submit(request).await;
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    }
    seq.cast_signed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_learner_of_a_large_cluster_ends_equal_although_writes_go_on() {
    let mut nodes = cluster(1, LogStoreKind::Sqlite).await;
    for first in (0..USERS).step_by(USERS_A_STATEMENT) {
        let rows: Vec<String> =
            (first..first + USERS_A_STATEMENT).map(|user| format!("('user{user}', 'a password of some length {user}')")).collect();
        let outcome = nodes[0].submit(format!("INSERT INTO mysql_users (username, password) VALUES {}", rows.join(","))).await;
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(write(nodes[0].on().clone(), stop.clone()));

    nodes[0].snapshot_and_purge().await;
    let token = nodes[0].on().create_join_token(false, Duration::from_secs(60), origin()).await.unwrap();
    let mut learner = Node::new("n2", LogStoreKind::Sqlite);
    join(&learner.options, &token, &nodes[0].options.advertise, None).await.unwrap();
    learner.start().await;
    let target = nodes[0].on().status().applied_index;
    learner.until("caught up", |status| status.applied_index >= target).await;
    stop.store(true, Ordering::Relaxed);
    let written = writer.await.unwrap();

    let received = learner.on().core().snapshots.current().unwrap().snapshot.size;
    assert!(received > 2 * CHUNK_BYTES as u64, "{received} bytes came by snapshot");
    let last = nodes[0].insert("the last one").await;
    learner.until("equal", |status| status.applied_index >= last.index).await;
    let hash = |node: &Node| root_hash(&node.on().reader().unwrap()).unwrap();
    assert_eq!(hash(&learner), hash(&nodes[0]));
    let count = |sql: &str| learner.on().reader().unwrap().query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM mysql_users"), USERS as i64);
    assert_eq!(count("SELECT count(*) FROM mysql_servers"), written + 1);
}
