//! Members, slots, tokens, overrides.

use super::*;
use crate::state_machine::ApplyOutcome;

async fn command(lab: &Lab, op: pb::log_entry::Op) -> ApplyResult {
    match lab.proposer.command(lab.next_id(), Lab::origin(), op, Duration::from_secs(30)).await {
        CommandAnswer::Applied(result) => result,
        other => panic!("{other:?}"),
    }
}

fn alloc(name: &str, token: &[u8]) -> pb::log_entry::Op {
    alloc_at(name, &format!("{name}:6035"), token)
}

fn alloc_at(name: &str, raft_addr: &str, token: &[u8]) -> pb::log_entry::Op {
    let token_sha256 = Bytes::copy_from_slice(token);
    let node = pb::NodeAlloc { name: name.into(), raft_addr: raft_addr.into(), voter: true, token_sha256, ..pb::NodeAlloc::default() };
    pb::log_entry::Op::NodeAlloc(node)
}

#[tokio::test]
async fn ids_are_indexes_and_slots_are_the_lowest_free() {
    let lab = Lab::new().await;
    let second = command(&lab, alloc("node2", &[])).await;
    let third = command(&lab, alloc("node3", &[])).await;
    assert_eq!((second.node_id, second.slot, third.slot), (second.index, 2, 3));
    let taken = command(&lab, alloc("node2", &[])).await;
    assert_eq!((taken.outcome, taken.message.contains("has the name node2")), (ApplyOutcome::Refused, true));
    let taken = command(&lab, alloc_at("node4", "127.0.0.1:6035", &[])).await;
    assert_eq!((taken.outcome, taken.message.contains("node 1 has the address 127.0.0.1:6035")), (ApplyOutcome::Refused, true));
    command(&lab, pb::log_entry::Op::NodeRemove(pb::NodeRemove { node_id: second.node_id })).await;
    let fourth = command(&lab, alloc("node2", &[])).await;
    assert_eq!((fourth.outcome, fourth.slot), (ApplyOutcome::Ok, 2));
    assert!(fourth.node_id > third.node_id);
    let gone = command(&lab, pb::log_entry::Op::NodeUpsert(pb::NodeUpsert { node_id: second.node_id, ..pb::NodeUpsert::default() })).await;
    assert_eq!(gone.outcome, ApplyOutcome::Refused);
    assert_eq!(lab.rows("SELECT slot, name FROM cluster_nodes WHERE removed_index IS NULL ORDER BY 1"), ["1|node1", "2|node2", "3|node3"]);
    replay::assert_equal_elsewhere(&lab);
}

#[tokio::test]
async fn a_token_admits_one_node_until_it_expires() {
    let lab = Lab::new().await;
    for (token, expires_ms) in [([1; 32], u64::MAX >> 1), ([2; 32], 1)] {
        lab.outcome(Op::JoinToken { sha256: token, voter: false, expires_ms }).await;
    }
    let admitted = command(&lab, alloc("node2", &[1; 32])).await;
    assert_eq!((admitted.outcome, admitted.message.as_str()), (ApplyOutcome::Ok, "learner"));
    for (token, word) in [([1; 32], "been used"), ([2; 32], "expired"), ([3; 32], "unknown")] {
        let refused = command(&lab, alloc("node3", &token)).await;
        assert!(refused.outcome == ApplyOutcome::Refused && refused.message.contains(word), "{refused:?}");
    }
}

#[tokio::test]
async fn overrides_belong_to_members_and_move_the_runtime_index() {
    let lab = Lab::new().await;
    let set = |node_id, name: &str, value: Option<&str>| Op::NodeOverride { node_id, name: name.into(), value: value.map(String::from) };
    let Outcome::Committed(committed) = lab.outcome(set(1, "mysql-interfaces", Some("127.0.0.1:6033"))).await else { panic!("refused") };
    assert_eq!(lab.state.watch().borrow().runtime_index, committed.index);
    assert_eq!(lab.rows("SELECT node_id, name, value, author FROM node_overrides"), ["1|mysql-interfaces|127.0.0.1:6033|admin@10.0.0.7"]);
    assert!(lab.refused(set(1, "mysql-threads", Some("x"))).await.message.contains("expected an integer"));
    assert!(lab.refused(set(8, "mysql-threads", Some("2"))).await.message.contains("node 8 is not a member"));
    lab.outcome(set(1, "mysql-interfaces", None)).await;
    assert_eq!(lab.rows("SELECT count(*) FROM node_overrides"), ["0"]);
}

#[tokio::test]
async fn a_cluster_is_formed_once() {
    let lab = Lab::new().await;
    let again = command(&lab, bootstrap().op.expect("an operation")).await;
    assert_eq!((again.outcome, again.message.as_str()), (ApplyOutcome::Refused, "cluster c1 is already formed"));
    assert_eq!(lab.rows("SELECT count(*) FROM dirty"), ["0"]);
    assert_eq!(lab.rows("SELECT cluster_id FROM raft_meta"), ["c1"]);
}
