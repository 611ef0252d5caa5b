//! Random faults: what a bad week does to a cluster, in some seconds.

use std::sync::Arc;

use tokio::{task::JoinHandle, time::Instant};

use super::{
    cluster::{Cluster, NODES, Rows, ms},
    dice::Dice,
    disk::Tail,
};

/// One fault after the other until `end`; those that need repair are repaired after a while.
pub(crate) async fn run(cluster: Arc<Cluster>, end: Instant) {
    let dice = Dice::of(cluster.seed, &[FAULTS]);
    let mut repairs = Vec::new();
    while Instant::now() < end {
        // Some come in quick succession, some find a cluster at work.
        let quiet = if dice.percent(30) { 300 } else { 3000 };
        tokio::time::sleep(ms(50 + dice.below(quiet))).await;
        repairs.extend(strike(&cluster, &dice));
        if let Some(leader) = cluster.known_leader() {
            cluster.journal.leads(leader.metrics().current_term, leader.id);
        }
    }
    for repair in repairs {
        repair.await.expect("a repair does not fail");
    }
}

/// One fault, and what will repair it.
fn strike(cluster: &Arc<Cluster>, dice: &Dice) -> Vec<JoinHandle<()>> {
    let any = NODES.start + dice.below(NODES.count() as u64);
    let leader = cluster.known_leader().map(|leader| leader.id);
    let victim = leader.filter(|_| dice.percent(60)).unwrap_or(any);
    match dice.below(100) {
        0..40 => crash(cluster, dice, &[victim]),
        40..48 => crash(cluster, dice, &[victim, any]),
        48..52 => crash(cluster, dice, &NODES.collect::<Vec<_>>()),
        52..60 => {
            let others: Vec<u64> = NODES.filter(|id| *id != victim).collect();
            cluster.journal.note(format!("node {victim} is isolated"));
            cluster.network.partition(&[&[victim], &others]);
            vec![repair_later(cluster, dice)]
        }
        60..68 => {
            let (left, right): (Vec<u64>, Vec<u64>) = NODES.partition(|_| dice.percent(50));
            cluster.journal.note(format!("partition {left:?} {right:?}"));
            cluster.network.partition(&[&left, &right]);
            vec![repair_later(cluster, dice)]
        }
        68..78 => {
            for _ in 0..4 {
                let (from, to) = (NODES.start + dice.below(5), NODES.start + dice.below(5));
                cluster.journal.note(format!("cut {from} to {to}"));
                cluster.network.cut(from, to);
            }
            vec![repair_later(cluster, dice)]
        }
        78..84 => {
            let percent = 5 + dice.below(30);
            cluster.journal.note(format!("{percent} % of all messages are lost"));
            cluster.network.lose(percent);
            vec![repair_later(cluster, dice)]
        }
        84..92 => {
            let Some(node) = leader.and_then(|leader| cluster.network.node(leader)) else { return Vec::new() };
            cluster.journal.note(format!("leadership is handed from {} to {any}", node.id));
            // A leader that has just lost its part refuses.
            drop(node.host.clone().spawn(async move { node.raft.trigger().transfer_leader(any).await }));
            Vec::new()
        }
        _ => {
            snapshot(cluster, any);
            Vec::new()
        }
    }
}

/// Crashes nodes; each comes back at once or after a while.
fn crash(cluster: &Arc<Cluster>, dice: &Dice, ids: &[u64]) -> Vec<JoinHandle<()>> {
    let running = ids.iter().copied().filter(|id| cluster.is_up(*id));
    let crash = |id| {
        let tail = if dice.percent(50) { Tail::Dropped } else { Tail::SomeKept };
        cluster.crash(id, tail, if dice.percent(70) { Rows::All } else { Rows::OfTheStart });
        let down = if dice.percent(50) { ms(1 + dice.below(50)) } else { ms(dice.below(2500)) };
        let cluster = cluster.clone();
        tokio::spawn(async move {
            tokio::time::sleep(down).await;
            cluster.start(id).await;
        })
    };
    running.map(crash).collect()
}

fn repair_later(cluster: &Arc<Cluster>, dice: &Dice) -> JoinHandle<()> {
    let (cluster, after) = (cluster.clone(), ms(200 + dice.below(2500)));
    tokio::spawn(async move {
        tokio::time::sleep(after).await;
        cluster.journal.note("the network is repaired".into());
        cluster.network.heal();
    })
}

/// Writes a snapshot and purges the log up to it, so that who lags gets the snapshot.
fn snapshot(cluster: &Arc<Cluster>, id: u64) {
    let Some(node) = cluster.network.node(id) else { return };
    cluster.journal.note(format!("node {id} writes a snapshot and purges its log"));
    let host = node.host.clone();
    host.spawn(async move {
        node.raft.trigger().snapshot().await.ok()?;
        tokio::time::sleep(ms(20)).await;
        let last = node.snapshots.current()?.meta.last_log_id?;
        node.raft.trigger().purge_log(last.index).await.ok()
    });
}

const FAULTS: u64 = 4;
