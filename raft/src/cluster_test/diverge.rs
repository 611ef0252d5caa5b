//! A node whose tables differ is found, judged by the majority and stopped; the others go on and are equal.

use super::*;
use crate::{Leave, root_hash};

fn position_of(nodes: &[Node], id: u64) -> usize {
    nodes.iter().position(|node| node.on().identity().node_id == id).unwrap()
}

async fn leader_of(nodes: &[Node]) -> usize {
    let status = nodes[0].until("led", |status| status.leader_id.is_some()).await;
    position_of(nodes, status.leader_id.unwrap())
}

async fn leave_of(node: &Node) -> Leave {
    tokio::time::timeout(PATIENCE, node.on().must_leave()).await.expect("the node has to leave")
}

/// Writes through any of `nodes` until one is accepted.
async fn insert_somewhere(nodes: &mut [Node], host: &str) -> Committed {
    let begin = Instant::now();
    loop {
        for node in &mut *nodes {
            let sql = format!("REPLACE INTO mysql_servers (hostgroup_id, hostname, port) VALUES (10, '{host}', 3306)");
            if let Outcome::Committed(committed) = node.submit(sql).await {
                return committed;
            }
        }
        assert!(begin.elapsed() < PATIENCE, "no node accepts a change");
    }
}

fn root(node: &Node) -> u128 {
    root_hash(&node.on().reader().unwrap()).unwrap()
}

/// The node has stopped because of `table`, keeps a copy, and does not start again.
async fn assert_contradicted(mut node: Node, table: &str) {
    let leave = leave_of(&node).await;
    assert_eq!(leave.exit_code, 79);
    assert!(leave.reason.contains("a majority of voters has other tables at index"), "{}", leave.reason);
    assert!(leave.reason.contains(table), "{}", leave.reason);
    let status = node.until("stopped", |status| status.consensus_stopped.is_some()).await;
    assert!(status.config_diverged);
    assert_eq!(status.consensus_stopped.as_deref(), Some(leave.reason.as_str()));
    assert!(node.on().barrier(ReadLevel::Linearizable, Duration::from_secs(1)).await.is_err());
    let mark = node.on().barrier(ReadLevel::Auto, Duration::from_secs(1)).await.unwrap();
    assert!(mark.warning.is_some_and(|warning| warning.contains("configuration diverged")));
    node.kill();
    let copies = std::fs::read_dir(&node.options.data_dir).unwrap().flatten();
    let copy = copies.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains("state.db.diverged-")).unwrap();
    rusqlite::Connection::open(copy).unwrap().query_row("SELECT last_index FROM raft_meta", [], |row| row.get::<_, i64>(0)).unwrap();
    let refused = loop {
        match Consensus::start(node.options.clone(), Arc::new(AcceptAll)).await.err().unwrap() {
            StartError::Listen { .. } => tokio::time::sleep(Duration::from_millis(20)).await,
            refused => break refused,
        }
    };
    assert_eq!(refused.exit_code(), 79);
    assert!(refused.to_string().contains("replace it"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_follower_that_differs_stops_and_the_others_go_on() {
    let mut nodes = cluster(3, LogStoreKind::Sqlite).await;
    let leader = leader_of(&nodes).await;
    let different = nodes.remove((leader + 1) % 3);
    different.on().core().state.omit("mysql_servers");
    for host in ["a", "b"] {
        insert_somewhere(&mut nodes, host).await;
    }
    assert_contradicted(different, "memory mysql_servers: 0 rows, hash 0x00000000000000000000000000000000 here; 1 rows, hash 0x").await;
    let last = insert_somewhere(&mut nodes, "c").await;
    for node in &nodes {
        let status = node.until("level", |status| status.applied_index >= last.index).await;
        assert_eq!((status.consensus_stopped, status.config_diverged), (None, false));
        assert_eq!(node.hosts(), ["a", "b", "c"]);
    }
    assert_eq!(root(&nodes[0]), root(&nodes[1]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_leader_that_a_majority_contradicts_is_the_minority() {
    let mut nodes = cluster(3, LogStoreKind::Sled).await;
    let leader = leader_of(&nodes).await;
    nodes[leader].on().core().state.omit("mysql_query_rules");
    // Acknowledged by a leader that does not have the row itself.
    let sql = "INSERT INTO mysql_query_rules (rule_id, active) VALUES (7, 1)";
    assert!(matches!(nodes[leader].submit(sql.into()).await, Outcome::Committed(_)));
    nodes[leader].insert("a").await;
    let different = nodes.remove(leader);
    assert_contradicted(different, "memory mysql_query_rules").await;
    let last = insert_somewhere(&mut nodes, "b").await;
    for node in &nodes {
        let status = node.until("level", |status| status.applied_index >= last.index).await;
        assert_eq!((status.consensus_stopped, status.config_diverged), (None, false));
        assert_eq!(node.hosts(), ["a", "b"]);
        let rules: i64 = node.on().reader().unwrap().query_row("SELECT count(*) FROM mysql_query_rules", [], |row| row.get(0)).unwrap();
        assert_eq!(rules, 1);
    }
    assert_eq!(root(&nodes[0]), root(&nodes[1]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn rows_changed_behind_the_back_are_found_by_the_next_change_of_them() {
    let mut nodes = cluster(3, LogStoreKind::Sqlite).await;
    let leader = leader_of(&nodes).await;
    let first = nodes[leader].insert("a").await;
    let altered = nodes.remove((leader + 1) % 3);
    altered.until("level", |status| status.applied_index >= first.index).await;
    altered.on().core().state.on_writer(|connection| connection.execute("UPDATE mysql_servers SET weight = 77", []).unwrap());
    for node in &mut nodes {
        let Outcome::Committed(_) = node.submit("UPDATE mysql_servers SET weight = weight + 1".into()).await else { panic!("refused") };
    }
    assert_contradicted(altered, "memory mysql_servers: 1 rows").await;
    assert_eq!(nodes[0].hosts(), ["a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn without_a_majority_consensus_stops_everywhere() {
    let mut nodes = cluster(2, LogStoreKind::Sqlite).await;
    nodes[1].on().core().state.omit("mysql_servers");
    nodes[0].insert("a").await;
    // Whether this one is answered depends on who is asked first.
    drop(nodes[0].submit("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (10, 'b')".into()).await);
    for node in &nodes {
        let status = node.until("stopped", |status| status.consensus_stopped.is_some()).await;
        assert!(status.config_diverged);
        let reason = status.consensus_stopped.unwrap();
        assert!(reason.contains("no majority of voters agrees: memory mysql_servers"), "{reason}");
        assert!(futures::FutureExt::now_or_never(node.on().must_leave()).is_none(), "the data plane goes on");
        // Nobody knows who is wrong: rows are served, but never as current.
        assert!(node.on().barrier(ReadLevel::Linearizable, Duration::from_secs(1)).await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_altered_state_is_noticed_at_start_and_names_the_table() {
    let mut nodes = cluster(1, LogStoreKind::Sqlite).await;
    nodes[0].insert("a").await;
    nodes[0].kill();
    let file = nodes[0].options.data_dir.join("state.db");
    rusqlite::Connection::open(file).unwrap().execute("UPDATE mysql_servers SET weight = 77", []).unwrap();
    let refused = loop {
        match Consensus::start(nodes[0].options.clone(), Arc::new(AcceptAll)).await.err().unwrap() {
            StartError::Diverged(text) => break text,
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    assert!(refused.contains("memory mysql_servers: 1 rows, hash 0x"), "{refused}");
    assert_eq!(StartError::Diverged(refused).exit_code(), 79);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_entry_of_a_newer_level_ends_the_process_with_78() {
    let nodes = cluster(1, LogStoreKind::Sqlite).await;
    let core = nodes[0].on().core().clone();
    let entry = quorumsql_proto::log::LogEntry { format: 1, required_level: 9, ..Default::default() };
    let payload = crate::type_config::Payload(prost::Message::encode_to_vec(&entry).into());
    let write = async move { drop(core.raft.client_write(payload).await) };
    nodes[0].on().run(write).await;
    let leave = leave_of(&nodes[0]).await;
    assert_eq!(leave.exit_code, 78);
    assert!(leave.reason.starts_with("entry ") && leave.reason.ends_with(" needs feature level 9, this build knows 1"), "{}", leave.reason);
    nodes[0].until("stopped", |status| status.consensus_stopped.is_some()).await;
}
