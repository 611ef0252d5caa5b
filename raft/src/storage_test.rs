//! Disks that fail or hang under a leader: its part in consensus ends, the others go on, nothing acknowledged is lost.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    LogStoreKind,
    cluster_test::{Node, PATIENCE, cluster},
    command::{Outcome, ReadLevel},
};

/// What happens to one node's storage.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The log's durable point fails with EIO.
    LogError,
    /// The log's durable point fails with ENOSPC.
    LogFull,
    /// The log's durable point does not end.
    LogHangs,
    /// `state.db` cannot grow.
    StateFull,
    /// A commit to `state.db` does not end.
    CommitHangs,
    /// A snapshot cannot be written.
    SnapshotFails,
}

impl Fault {
    /// What the node says of it.
    fn reason(self) -> &'static str {
        match self {
            Self::LogError => "raft log: Input/output error",
            Self::LogFull => "raft log: No space left on device",
            Self::LogHangs => "raft log: a durable point takes longer than",
            Self::StateFull => "state.db: database or disk is full",
            Self::CommitHangs => "state.db: a commit takes longer than",
            Self::SnapshotFails => "snapshot directory: ",
        }
    }

    /// `hanging` = whether a commit that hangs shall go on hanging.
    async fn inject(self, node: &Node, hanging: &Arc<AtomicBool>) {
        let core = node.on().core().clone();
        let control = |text: &str| fs::write(node.options.data_dir.join("raft/fault"), text).unwrap();
        match self {
            Self::LogError => control("errno 5"),
            Self::LogFull => control("errno 28"),
            Self::LogHangs => control("delay 600000"),
            Self::StateFull => core.state.on_writer(|connection| connection.pragma_update(None, "max_page_count", 1).unwrap()),
            Self::CommitHangs => {
                let hanging = hanging.clone();
                hanging.store(true, Ordering::SeqCst);
                let hook = move || {
                    while hanging.load(Ordering::SeqCst) {
                        thread::sleep(Duration::from_millis(5)); // the commit takes its time
                    }
                    false
                };
                core.state.on_writer(|connection| connection.commit_hook(Some(hook)).unwrap());
            }
            Self::SnapshotFails => {
                let directory = core.layout.snapshots();
                let _absent = fs::remove_dir_all(&directory);
                fs::write(&directory, "").unwrap();
                node.on().run(async move { core.raft.trigger().snapshot().await.unwrap() }).await;
            }
        }
    }

    fn heal(node: &Node, hanging: &AtomicBool) {
        hanging.store(false, Ordering::SeqCst);
        let _absent = fs::remove_file(node.options.data_dir.join("raft/fault"));
        let snapshots = node.options.data_dir.join("snapshots");
        if snapshots.is_file() {
            fs::remove_file(snapshots).unwrap();
        }
    }
}

/// Waits for a durable point that hung: in this process its thread outlives the node, and would write under the hands of the next one.
async fn settled(node: &Node) {
    while node.on().core().log.busy_for() > Duration::ZERO {
        tokio::time::sleep(Duration::from_millis(1)).await; // the pause between two looks
    }
}

/// Inserts until one insert is acknowledged: all others may or may not be there.
async fn acknowledged(node: &mut Node, name: &str, size: usize) -> String {
    let begin = Instant::now();
    for attempt in 0.. {
        let host = format!("{name}-{attempt}");
        let comment = "x".repeat(size);
        let sql = format!("INSERT INTO mysql_servers (hostgroup_id, hostname, port, comment) VALUES (10, '{host}', 3306, '{comment}')");
        match node.submit(sql).await {
            Outcome::Committed(_) => return host,
            other => assert!(begin.elapsed() < PATIENCE, "{name}: {other:?}"),
        }
    }
    unreachable!("it returns or panics");
}

/// Does each fault to whoever leads, and repairs it by a restart.
async fn leaders_fail(log_store: LogStoreKind, faults: &[Fault]) {
    let mut nodes = cluster(3, log_store).await;
    let hanging = Arc::new(AtomicBool::new(false));
    let mut all = Vec::new();
    for fault in faults {
        let status = nodes[0].until("led", |status| status.leader_id.is_some() && status.read_only_reason.is_none()).await;
        let leader = nodes.iter().position(|node| Some(node.on().identity().node_id) == status.leader_id).unwrap();
        let other = (leader + 1) % 3;
        all.push(acknowledged(&mut nodes[leader], &format!("before-{fault:?}"), 0).await);
        fault.inject(&nodes[leader], &hanging).await;
        all.push(acknowledged(&mut nodes[other], &format!("during-{fault:?}"), 100_000).await);

        // The node says so, serves what it has, and accepts nothing.
        let stopped = nodes[leader].until("stopped", |status| status.consensus_stopped.is_some()).await;
        let reason = stopped.consensus_stopped.unwrap();
        // Whoever meets the error first says it: openraft puts its own words before ours.
        assert!(reason.contains(fault.reason()), "{fault:?}: {reason}");
        let Outcome::Rejected(refusal) = nodes[leader].submit("DELETE FROM mysql_servers".into()).await else {
            panic!("{fault:?}: a stopped node accepted a change")
        };
        assert!(refusal.message.contains("consensus stopped on node"), "{}", refusal.message);
        assert!(nodes[leader].hosts().contains(&all[all.len() - 2]), "{fault:?}: reads go on");
        let mark = nodes[leader].on().barrier(ReadLevel::Auto, Duration::from_millis(250)).await.unwrap();
        assert!(mark.warning.is_some_and(|warning| warning.contains("consensus stopped")));

        // The others have another leader and show what became of the old one.
        let old = nodes[leader].on().identity().node_id;
        let role = |status: &crate::ClusterStatus| status.members.iter().find(|member| member.node_id == old).unwrap().role;
        nodes[other]
            .until("led by another", |status| status.leader_id.is_some_and(|leader| leader != old) && role(status) == "stopped")
            .await;

        // A restart repairs it.
        Fault::heal(&nodes[leader], &hanging);
        settled(&nodes[leader]).await;
        nodes[leader].kill();
        nodes[leader].start().await;
        all.push(acknowledged(&mut nodes[leader], &format!("after-{fault:?}"), 0).await);
        nodes[other].until("whole", |status| status.voters_reachable == 3 && role(status) != "stopped").await;
    }
    for node in &nodes {
        node.on().barrier(ReadLevel::Linearizable, Duration::from_secs(20)).await.unwrap();
        let hosts = node.hosts();
        assert!(all.iter().all(|host| hosts.contains(host)), "{}: {hosts:?}", node.options.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_leader_whose_log_in_sled_fails_steps_down() {
    leaders_fail(LogStoreKind::Sled, &[Fault::LogError, Fault::LogFull, Fault::LogHangs]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_leader_whose_log_in_sqlite_fails_steps_down() {
    leaders_fail(LogStoreKind::Sqlite, &[Fault::LogError, Fault::LogFull, Fault::LogHangs]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_leader_whose_state_fails_steps_down() {
    leaders_fail(LogStoreKind::Sqlite, &[Fault::StateFull, Fault::CommitHangs, Fault::SnapshotFails]).await;
}
