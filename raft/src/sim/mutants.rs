//! One schedule a rule: the checker must be content with it, and must object when the rule is broken.

use std::sync::Arc;

use super::{
    checker::{Failure, check},
    client::{Client, Ids},
    cluster::{Cluster, NODES, Plan, Rows, ms, simulate},
    disk::Tail,
    node::{Mutation, Node},
};
use crate::command::Outcome;

/// All messages and flushes take the same, short time: what a schedule says is what happens.
fn plan() -> Plan {
    Plan { delay: ms(1)..ms(2), flush: ms(1)..ms(2), ..Plan::new(1) }
}

/// Repairs everything, waits until it is quiet, and compares.
async fn verdict(cluster: &Cluster) -> Vec<Failure> {
    cluster.heal().await;
    cluster.settle().await;
    check(cluster);
    println!("{}", cluster.journal.events().join("\n"));
    cluster.journal.failures()
}

/// The leader, and the others in order.
async fn roles(cluster: &Cluster) -> (Arc<Node>, [u64; 4]) {
    let leader = cluster.leader().await;
    let others: Vec<u64> = NODES.filter(|id| *id != leader.id).collect();
    (leader, others.try_into().expect("four others"))
}

fn index_of(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Committed(committed) => committed.index,
        other => panic!("{other:?}"),
    }
}

/// R1. The leader sends an entry before its own flush, and comes back without it before anybody misses it.
fn leader_that_lost_its_tail_comes_back_at_once(restore: bool) -> Vec<Failure> {
    simulate(async {
        let mut plan = plan();
        if restore {
            plan.config.enable_leader_restore = Some(true);
        }
        let cluster = Cluster::form(plan).await;
        let (leader, [follower, ..]) = roles(&cluster).await;
        let mut client = Client::new(1, 1);
        let index = index_of(&client.insert(&cluster, Some(leader.id), ms(5000)).await) + 1;
        cluster.disk(leader.id).flushes_within(ms(300)..ms(301));
        let (writing, door) = (cluster.clone(), leader.id);
        let unfinished = tokio::spawn(async move { Client::new(1, 2).insert(&writing, Some(door), ms(10)).await });
        let follower = cluster.network.node(follower).expect("runs");
        cluster.until("the followers' apply", ms(5000), || (follower.state.applied().index >= index).then_some(())).await;
        cluster.crash(leader.id, Tail::Dropped, Rows::All);
        cluster.disk(leader.id).flushes_within(ms(1)..ms(2));
        cluster.start(leader.id).await;
        unfinished.await.expect("a client does not fail");
        client.insert(&cluster, None, ms(10_000)).await;
        verdict(&cluster).await
    })
}

#[test]
fn a_restarted_leader_does_not_go_on_in_its_term() {
    assert_eq!(leader_that_lost_its_tail_comes_back_at_once(false), []);
    let failures = leader_that_lost_its_tail_comes_back_at_once(true);
    assert!(failures.iter().any(|failure| matches!(failure, Failure::Lost { .. })), "{failures:?}");
    assert!(failures.iter().any(|failure| matches!(failure, Failure::Differ { .. })), "{failures:?}");
}

/// A quorum of three acknowledges; then its power is lost.
fn quorum_loses_power_after_an_acknowledgement(lies: bool) -> Vec<Failure> {
    simulate(async {
        let cluster = Cluster::form(plan()).await;
        let (leader, [first, second, third, fourth]) = roles(&cluster).await;
        let quorum = [leader.id, first, second];
        for id in quorum {
            cluster.disk(id).flushes_within(ms(500)..ms(501));
            if lies {
                cluster.disk(id).lies();
            }
        }
        cluster.network.partition(&[&quorum, &[third, fourth]]);
        index_of(&Client::new(1, 1).insert(&cluster, Some(leader.id), ms(10_000)).await);
        quorum.into_iter().for_each(|id| cluster.crash(id, Tail::Dropped, Rows::OfTheStart));
        verdict(&cluster).await
    })
}

#[test]
fn what_is_acknowledged_is_on_the_disks_of_a_quorum() {
    assert_eq!(quorum_loses_power_after_an_acknowledgement(false), []);
    let failures = quorum_loses_power_after_an_acknowledgement(true);
    assert!(failures.iter().any(|failure| matches!(failure, Failure::Lost { .. })), "{failures:?}");
}

fn writes_while_one_node_applies(mutation: impl FnOnce(u64) -> Mutation) -> Vec<Failure> {
    simulate(async {
        let cluster = Cluster::form(plan()).await;
        let (_, [follower, ..]) = roles(&cluster).await;
        let mut client = Client::new(1, 1);
        let index = index_of(&client.insert(&cluster, None, ms(5000)).await) + 2;
        cluster.mutate(follower, mutation(index));
        cluster.crash(follower, Tail::Dropped, Rows::All);
        cluster.start(follower).await;
        for _ in 0..4 {
            client.insert(&cluster, None, ms(5000)).await;
        }
        verdict(&cluster).await
    })
}

#[test]
fn a_node_that_skips_an_entry_is_noticed() {
    assert_eq!(writes_while_one_node_applies(|_| Mutation::None), []);
    let failures = writes_while_one_node_applies(|index| Mutation::Skips { index });
    assert!(failures.iter().any(|failure| matches!(failure, Failure::Differ { .. })), "{failures:?}");
    assert!(failures.iter().any(|failure| matches!(failure, Failure::Lost { .. })), "{failures:?}");
}

/// R2. A follower hears that an entry is committed by others before its own disk has it.
fn follower_hears_of_a_commit_before_its_own_flush(mutation: Mutation) -> Vec<Failure> {
    simulate(async {
        let cluster = Cluster::form(plan()).await;
        let (leader, [follower, ..]) = roles(&cluster).await;
        cluster.mutate(follower, mutation);
        cluster.crash(follower, Tail::Dropped, Rows::All);
        cluster.start(follower).await;
        let mut client = Client::new(1, 1);
        let first = index_of(&client.insert(&cluster, Some(leader.id), ms(5000)).await);
        let slow = cluster.network.node(follower).expect("runs");
        cluster.until("the follower's apply", ms(5000), || (slow.state.applied().index >= first).then_some(())).await;
        cluster.disk(follower).flushes_within(ms(800)..ms(801));
        index_of(&client.insert(&cluster, Some(leader.id), ms(5000)).await);
        tokio::time::sleep(ms(400)).await;
        cluster.crash(follower, Tail::Dropped, Rows::All);
        cluster.disk(follower).flushes_within(ms(1)..ms(2));
        cluster.start(follower).await;
        verdict(&cluster).await
    })
}

#[test]
fn apply_is_never_ahead_of_the_own_log() {
    assert_eq!(follower_hears_of_a_commit_before_its_own_flush(Mutation::None), []);
    let failures = follower_hears_of_a_commit_before_its_own_flush(Mutation::AppliesUnflushed);
    assert!(failures.iter().any(|failure| matches!(failure, Failure::AheadOfLog { .. })), "{failures:?}");
}

/// A node that reaches nobody for a while.
fn isolated_node_comes_back(plan: Plan, prepare: impl FnOnce(&Cluster)) -> Vec<Failure> {
    simulate(async {
        let cluster = Cluster::form(plan).await;
        prepare(&cluster);
        let (leader, [alone, others @ ..]) = roles(&cluster).await;
        let term = leader.metrics().current_term;
        cluster.network.partition(&[&[alone], &[&others[..], &[leader.id]].concat()]);
        tokio::time::sleep(ms(10_000)).await;
        let to = cluster.network.node(alone).expect("runs").metrics().current_term;
        if to > term {
            cluster.journal.fail(Failure::TermRaised { node: alone, from: term, to });
        }
        cluster.network.heal();
        tokio::time::sleep(ms(2000)).await;
        let now = cluster.leader().await;
        if now.id != leader.id || now.metrics().current_term != term {
            cluster.journal.fail(Failure::NoProgress(format!("leader {} was deposed", leader.id)));
        }
        Client::new(1, 1).insert(&cluster, Some(alone), ms(5000)).await;
        verdict(&cluster).await
    })
}

#[test]
fn an_isolated_node_does_not_raise_its_term() {
    let raised = |failures: &[Failure]| failures.iter().any(|failure| matches!(failure, Failure::TermRaised { .. }));
    assert_eq!(isolated_node_comes_back(plan(), |_| {}), []);
    let mut without = plan();
    without.config.enable_pre_vote = None;
    let failures = isolated_node_comes_back(without, |_| {});
    assert!(raised(&failures), "{failures:?}");
    let failures = isolated_node_comes_back(plan(), |cluster| cluster.network.grant_pre_votes());
    assert!(raised(&failures), "{failures:?}");
}

/// The answer of a forwarded write gets lost, and its client asks again.
fn answer_is_lost_on_its_way(ids: Ids) -> Vec<Failure> {
    simulate(async {
        let cluster = Cluster::form(plan()).await;
        let (leader, [door, ..]) = roles(&cluster).await;
        let mut client = Client::new(1, 1);
        client.ids = ids;
        client.insert(&cluster, Some(door), ms(5000)).await;
        cluster.network.cut(leader.id, door);
        let (repaired, position) = (cluster.clone(), leader.state.applied().index);
        let repair = tokio::spawn(async move {
            repaired.until("the write", ms(5000), || (leader.state.applied().index > position).then_some(())).await;
            tokio::time::sleep(ms(100)).await;
            repaired.network.heal();
        });
        client.insert(&cluster, Some(door), ms(10_000)).await;
        repair.await.expect("is repaired");
        verdict(&cluster).await
    })
}

#[test]
fn a_write_that_is_asked_for_again_takes_effect_once() {
    assert_eq!(answer_is_lost_on_its_way(Ids::Right), []);
    let failures = answer_is_lost_on_its_way(Ids::EachAttempt);
    assert!(failures.iter().any(|failure| matches!(failure, Failure::Duplicate { .. })), "{failures:?}");
}

/// The first attempt waits in the leader's queue when the second one finds it full.
fn queue_is_full_for_a_repetition(forgetful: bool) -> Vec<Failure> {
    simulate(async {
        let cluster = Cluster::form(plan()).await;
        let (leader, [door, ..]) = roles(&cluster).await;
        // Nothing that the leader proposes gets through: its proposer waits, and its queue fills.
        NODES.for_each(|id| cluster.network.cut(leader.id, id));
        let write = |number, door, then, patience| {
            let cluster = cluster.clone();
            let mut client = Client::new(1, number);
            (client.then, client.forgetful) = (then, forgetful);
            tokio::spawn(async move { client.insert(&cluster, Some(door), patience).await })
        };
        let mut writes = vec![write(1, leader.id, None, ms(1))];
        tokio::time::sleep(ms(20)).await;
        writes.push(write(2, door, Some(leader.id), ms(10_000)));
        tokio::time::sleep(ms(20)).await;
        writes.extend((3..300).map(|number| write(number, leader.id, None, ms(1))));
        tokio::time::sleep(ms(1)).await;
        cluster.crash(door, Tail::Dropped, Rows::All);
        tokio::time::sleep(ms(100)).await;
        cluster.network.heal();
        for write in writes {
            write.await.expect("a client does not fail");
        }
        verdict(&cluster).await
    })
}

#[test]
fn a_refusal_says_nothing_about_an_earlier_attempt() {
    assert_eq!(queue_is_full_for_a_repetition(false), []);
    let failures = queue_is_full_for_a_repetition(true);
    assert!(failures.iter().any(|failure| matches!(failure, Failure::Refused { .. })), "{failures:?}");
}

/// Two writes, one after the other.
fn two_writes(ids: Ids) -> Vec<Failure> {
    simulate(async {
        let cluster = Cluster::form(plan()).await;
        let mut client = Client::new(1, 1);
        client.ids = ids;
        client.insert(&cluster, None, ms(5000)).await;
        client.insert(&cluster, None, ms(5000)).await;
        verdict(&cluster).await
    })
}

#[test]
fn a_request_id_that_is_used_twice_is_noticed() {
    assert_eq!(two_writes(Ids::Right), []);
    let failures = two_writes(Ids::Reused);
    assert!(failures.iter().any(|failure| matches!(failure, Failure::Lost { .. })), "{failures:?}");
    assert!(failures.iter().any(|failure| matches!(failure, Failure::SharedIndex { .. })), "{failures:?}");
}

/// openraft's issue 2080: the old leader reaches only a bridge, which hears it and the two others that could elect; the fifth is alone.
fn old_leader_reaches_only_a_bridge(probe: bool) -> Vec<Failure> {
    simulate(async {
        let mut plan = plan();
        if !probe {
            plan.config.quorum_loss_probe_interval = None;
        }
        let cluster = Cluster::form(plan).await;
        let (old, [bridge, left, right, alone]) = roles(&cluster).await;
        cluster.network.partition(&[&[old.id, bridge], &[bridge, left, right], &[alone]]);
        let side = [bridge, left, right];
        let elected = || cluster.known_leader().filter(|leader| side.contains(&leader.id));
        if cluster.until("a leader of the majority", ms(30_000), elected).await.is_some() {
            index_of(&Client::new(1, 1).insert(&cluster, Some(left), ms(10_000)).await);
        }
        verdict(&cluster).await
    })
}

#[test]
fn a_majority_behind_a_bridge_elects() {
    assert_eq!(old_leader_reaches_only_a_bridge(true), []);
    let failures = old_leader_reaches_only_a_bridge(false);
    assert!(failures.iter().any(|failure| matches!(failure, Failure::NoProgress(_))), "{failures:?}");
}
