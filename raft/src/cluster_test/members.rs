//! Members leave, are replaced, and do not come back.

use std::collections::BTreeSet;

use openraft::{EntryPayload, Membership, RaftLogReader, entry::RaftPayload, raft::Precondition, storage::RaftLogStorage};

use super::*;

/// Sets of voters of every membership in a node's log, in order.
async fn memberships(node: &Node) -> Vec<Vec<BTreeSet<u64>>> {
    let mut log = node.on().core().log.clone();
    let entries = node.on().run(async move { log.get_log_reader().await.try_get_log_entries(..).await.unwrap() }).await;
    let of = |membership: Membership<u64, _>| membership.get_joint_config().clone();
    entries.iter().filter_map(|entry| entry.payload.get_membership().map(of)).collect()
}

fn id(node: &Node) -> u64 {
    node.on().identity().node_id
}

async fn leader(nodes: &[Node]) -> usize {
    let status = nodes[0].until("led", |status| status.leader_id.is_some()).await;
    nodes.iter().position(|node| Some(id(node)) == status.leader_id).unwrap()
}

async fn remove(through: &Node, node_id: u64, force: bool) -> Outcome {
    let mut client = [0; 16];
    getrandom::fill(&mut client).unwrap();
    let op = Op::RemoveNode { node_id, force };
    let request = Request { id: RequestId { client, seq: 1 }, origin: origin(), op, timeout: Duration::from_secs(20) };
    through.on().submit(request).await
}

fn committed(outcome: Outcome) -> Committed {
    match outcome {
        Outcome::Committed(committed) => committed,
        other => panic!("{other:?}"),
    }
}

fn rejected(outcome: Outcome) -> String {
    match outcome {
        Outcome::Rejected(rejection) => rejection.message,
        other => panic!("{other:?}"),
    }
}

async fn start_refusal(node: &Node) -> String {
    let begin = Instant::now();
    loop {
        match Consensus::start(node.options.clone(), Arc::new(AcceptAll)).await {
            Err(StartError::Removed(text)) => return text,
            // The lock of the log is free when the last thread of the old node has ended.
            Err(_) => assert!(begin.elapsed() < PATIENCE),
            Ok(_) => assert!(begin.elapsed() < PATIENCE, "it runs"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_dead_voter_is_replaced_in_one_change_and_does_not_come_back() {
    let mut nodes = cluster(3, LogStoreKind::Sqlite).await;
    let ids: Vec<u64> = nodes.iter().map(id).collect();
    let mut dead = nodes.remove(leader(&nodes).await);
    let old = id(&dead);
    dead.kill();
    nodes[0].insert("10.0.0.1").await;

    let token = |voter| nodes[1].on().create_join_token(voter, Duration::from_secs(60), origin());
    let mut heir = Node::new(&dead.options.name, LogStoreKind::Sqlite);
    let peer = &nodes[0].options.advertise;
    for (voter, replaces, reason) in
        [(true, 99, "node 99 is not a member"), (false, old, "needs a voter token"), (true, 0, "choose another one, or replace that node")]
    {
        let refused = join(&heir.options, &token(voter).await.unwrap(), peer, (replaces != 0).then_some(replaces)).await;
        assert!(refusal(refused).contains(reason), "{reason}");
    }
    let report = join(&heir.options, &token(true).await.unwrap(), peer, Some(old)).await.unwrap();
    let rival = Node::new("rival", LogStoreKind::Sqlite);
    let refused = join(&rival.options, &token(true).await.unwrap(), peer, Some(old)).await;
    assert!(refusal(refused).contains(&format!("node {} is about to replace node {old}", report.node_id)));
    heir.start().await;
    heir.insert("10.0.0.2").await;
    let is_gone = |status: &ClusterStatus| status.voters == 3 && status.members.iter().all(|member| member.node_id != old);
    for node in nodes.iter().chain([&heir]) {
        node.until("without the old one", is_gone).await;
    }

    let (three, after): (BTreeSet<u64>, BTreeSet<u64>) =
        (ids.iter().copied().collect(), ids.iter().copied().filter(|id| *id != old).chain([report.node_id]).collect());
    let seen = memberships(&nodes[0]).await;
    assert!(seen.iter().flatten().all(|voters| voters.len() <= 3), "{seen:?}");
    assert!(seen.ends_with(&[vec![three, after.clone()], vec![after]]), "{seen:?}");

    // The old node is told so at its start, again when nobody answers, and its id is not given again.
    let text = start_refusal(&dead).await;
    assert!(text.starts_with(&format!("node {old} was removed from cluster ")), "{text}");
    drop(nodes);
    assert_eq!(start_refusal(&dead).await, text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn members_are_removed_dead_and_alive_until_one_is_left() {
    let mut nodes = cluster(3, LogStoreKind::Sqlite).await;
    assert!(rejected(remove(&nodes[0], 99, true).await).contains("node 99 is not a member of this cluster"));

    // A node that joined and never ran.
    let token = nodes[0].on().create_join_token(true, Duration::from_secs(60), origin()).await.unwrap();
    let stillborn = Node::new("stillborn", LogStoreKind::Sqlite);
    let report = join(&stillborn.options, &token, &nodes[0].options.advertise, None).await.unwrap();
    committed(remove(&nodes[1], report.node_id, false).await);
    nodes[0].until("without it", |status| status.members.len() == 3).await;

    // The leader, asked through itself: it hands leadership over, learns that it is out, and serves on without consensus.
    let first = nodes.remove(leader(&nodes).await);
    let removed = committed(remove(&first, id(&first), false).await);
    let stopped = first.until("out", |status| status.consensus_stopped.is_some()).await;
    let text = format!("node {} was removed from cluster {} at index {}", stopped.node_id, stopped.cluster_id, removed.index);
    assert!(stopped.consensus_stopped.unwrap().starts_with(&text));
    assert!(first.on().barrier(ReadLevel::Auto, Duration::from_millis(250)).await.unwrap().warning.unwrap().contains(&text));
    nodes[0].insert("10.0.0.1").await;

    // One of the two that are left: both votes are needed for it.
    let mut last = nodes.remove(leader(&nodes).await);
    let other = nodes.remove(0);
    committed(remove(&other, id(&other), false).await);
    other.until("out", |status| status.consensus_stopped.is_some()).await;
    last.until("alone", |status| status.voters == 1 && status.members.len() == 1).await;
    assert!(rejected(remove(&last, id(&last), true).await).contains("is the last voter"));
    last.insert("10.0.0.2").await;

    // Slots are free again, ids are not.
    let token = last.on().create_join_token(false, Duration::from_secs(60), origin()).await.unwrap();
    let fresh = Node::new("fresh", LogStoreKind::Sqlite);
    let report = join(&fresh.options, &token, &last.options.advertise, None).await.unwrap();
    assert!(report.slot <= 2 && report.node_id > removed.index, "{report:?}");
    drop(first.consensus);
    assert!(start_refusal(&Node { consensus: None, ..first }).await.starts_with(&text));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_removal_that_would_cost_the_quorum_is_refused() {
    let mut nodes = cluster(3, LogStoreKind::Sqlite).await;
    let survivor = nodes.remove(leader(&nodes).await);
    let mut dead = nodes.remove(0);
    let (gone, other) = (id(&dead), id(&nodes[0]));
    dead.kill();
    survivor.until("missing it", |status| status.voters_reachable == 2).await;
    let text = rejected(remove(&survivor, other, false).await);
    assert!(text.contains("only 1 of 2 voters would answer and the cluster would have no quorum"), "{text}");
    committed(remove(&survivor, gone, false).await);
    survivor.until("two", |status| status.voters == 2 && status.voters_reachable == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_change_of_voters_that_was_left_half_done_is_finished() {
    let nodes = cluster(3, LogStoreKind::Sqlite).await;
    let core = nodes[leader(&nodes).await].on().core().clone();
    let half = async move {
        let now = core.metrics().membership_config;
        let three: BTreeSet<u64> = now.voter_ids().collect();
        let two = three.iter().copied().take(2).collect();
        let members: Vec<_> = now.nodes().map(|(id, node)| (*id, node.clone())).collect();
        let joint = Membership::new(vec![three, two], members.into_iter().collect::<std::collections::BTreeMap<_, _>>()).unwrap();
        let as_seen = Precondition::LastMembershipLogId { last_membership_log_id: *now.log_id() };
        core.raft.append_membership(joint, EntryPayload::Blank, [as_seen]).await.unwrap();
    };
    nodes[leader(&nodes).await].on().run(half).await;
    // The third one is still a member by its row: it comes back as a learner and is given its vote again.
    let begin = Instant::now();
    let seen = loop {
        let seen = memberships(&nodes[0]).await;
        let left_half_done = seen.iter().position(|sets| sets.len() == 2 && sets[1].len() == 2);
        let last = seen.last().unwrap();
        if left_half_done.is_some_and(|at| at + 1 < seen.len()) && last.len() == 1 && last[0].len() == 3 {
            break seen;
        }
        assert!(begin.elapsed() < PATIENCE, "{seen:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(seen.iter().any(|sets| sets.len() == 1 && sets[0].len() == 2), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn leadership_goes_where_it_is_asked_to() {
    let nodes = cluster(3, LogStoreKind::Sqlite).await;
    let old = leader(&nodes).await;
    let (to, through) = ((old + 1) % 3, (old + 2) % 3);
    for (target, reason) in [(99, "node 99 is not a voter of this cluster"), (id(&nodes[old]), "")] {
        match nodes[through].on().transfer_leadership(Some(target), Duration::from_secs(5)).await {
            Ok(done) => assert_eq!((reason, done.took), ("", Duration::ZERO)),
            Err(rejection) => assert!(!reason.is_empty() && rejection.message.contains(reason), "{rejection:?}"),
        }
    }
    let done = nodes[through].on().transfer_leadership(Some(id(&nodes[to])), Duration::from_secs(20)).await.unwrap();
    assert_eq!(done.new_leader, id(&nodes[to]));
    nodes[through].until("following", |status| status.leader_id == Some(done.new_leader)).await;
    let done = nodes[to].on().transfer_leadership(None, Duration::from_secs(20)).await.unwrap();
    assert_ne!(done.new_leader, id(&nodes[to]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_node_that_lost_its_log_does_not_start_with_an_empty_one() {
    let mut nodes = cluster(2, LogStoreKind::Sqlite).await;
    let mut node = nodes.remove(1);
    let identity = node.on().identity();
    node.kill();
    std::fs::remove_dir_all(node.directory.path().join("raft")).unwrap();
    let expected = format!(
        "node {} of cluster {} is known with incarnation {}; remove it and join again as a new node",
        identity.node_id, identity.cluster_id, identity.incarnation
    );
    assert_eq!(start_refusal(&node).await, expected);
}
