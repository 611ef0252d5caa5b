//! Asks the voters for their roots, and carries out what their majority says.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use quorumsql_proto::peer as pb;
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    Doubt, EXIT_DIVERGED, copy_name,
    verdict::{Verdict, decide},
};
use crate::{
    core::Core,
    state_machine::{StorageError, TableHash, Tables, differences, root_of},
};

/// One round of questions; who has not answered by then is asked again in the next.
const ROUND: Duration = Duration::from_secs(1);
/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(250);
/// Voters that do not answer for so long do not decide: then there is no majority.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 10 });
/// Parts of tables in one answer; there are about thirty.
const MAX_PARTS: usize = 1024;

/// This node's word: its root and tables at an index.
struct Testimony {
    index: u64,
    root: u128,
    tables: Tables,
}

/// What a peer has at that index, if not the same.
type Contradictions = BTreeMap<u64, Tables>;

/// Judges one doubt after the other until consensus ends.
pub(crate) async fn run(core: Arc<Core>, mut doubts: mpsc::Receiver<Doubt>) {
    while let Some(doubt) = doubts.recv().await {
        let Doubt { at, reason, reply } = doubt;
        let stopped = core.stopped.borrow().clone();
        let verdict = match stopped {
            Some(stopped) => Err(stopped),
            None => judge(&core, at, &reason).await,
        };
        if let Some(reply) = reply {
            // Apply is gone only when openraft has ended.
            let _ = reply.send(verdict);
        }
    }
}

async fn judge(core: &Arc<Core>, at: u64, reason: &str) -> Result<(), String> {
    let state = core.state.clone();
    let testimony = tokio::task::spawn_blocking(move || state.testify(at)).await;
    let (index, tables) = match testimony {
        Ok(Ok(testimony)) => testimony,
        Ok(Err(e)) => return stop(core, &e.to_string()),
        Err(_) => return stop(core, "the tables could not be read"),
    };
    let own = Testimony { index, root: root_of(&tables), tables };
    let pending = format!("the tables of this node differ from another's at index {}, and the voters are being asked", own.index);
    tracing::warn!(node = core.identity.node_id, index = own.index, root = format!("{:032x}", own.root), reason, "{pending}");
    *core.divergence.shared.pending.lock() = Some(pending);
    let (verdict, contradictions) = ask(core, &own).await;
    let judged = carry_out(core, &own, verdict, &contradictions).await;
    *core.divergence.shared.pending.lock() = None;
    judged
}

/// Rounds of questions until the answers decide. The question is the report.
async fn ask(core: &Arc<Core>, own: &Testimony) -> (Verdict, Contradictions) {
    let end = Instant::now() + PATIENCE;
    let (mut roots, mut contradictions) = (BTreeMap::new(), Contradictions::new());
    loop {
        let membership = core.metrics().membership_config;
        let configurations: Vec<BTreeSet<u64>> = membership.get_joint_config().clone();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        if voters.contains(&core.identity.node_id) {
            roots.insert(core.identity.node_id, own.root);
        }
        let mut calls = JoinSet::new();
        for id in voters.into_iter().filter(|id| !roots.contains_key(id)) {
            let Some(address) = membership.get_node(&id).map(|node| node.raft_addr.clone()) else { continue };
            let (core, question) = (core.clone(), pb::TablesAt { index: own.index, root: own.root.to_be_bytes().to_vec().into() });
            calls.spawn(async move { (id, question_to(&core, id, &address, question).await) });
        }
        while let Some(answered) = calls.join_next().await {
            let Ok((id, Some((root, tables)))) = answered else { continue };
            roots.insert(id, root);
            if root != own.root {
                contradictions.insert(id, tables);
            }
            if let Some(verdict) = decide(&configurations, own.root, &roots) {
                return (verdict, contradictions);
            }
        }
        match decide(&configurations, own.root, &roots) {
            Some(verdict) => return (verdict, contradictions),
            None if Instant::now() >= end => return (Verdict::NoMajority, contradictions),
            None => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn question_to(core: &Core, id: u64, address: &str, question: pb::TablesAt) -> Option<(u128, Tables)> {
    let mut client = core.peers.internal(id, address).ok()?;
    let answer = tokio::time::timeout(ROUND, client.compare_tables(question)).await.ok()?.ok()?.into_inner();
    Some((root_from(&answer.root)?, tables_from(answer.tables)))
}

async fn carry_out(core: &Arc<Core>, own: &Testimony, verdict: Verdict, contradictions: &Contradictions) -> Result<(), String> {
    for (id, tables) in contradictions {
        let differences = differences(&own.tables, "here", tables, &format!("on node {id}"));
        tracing::error!(node = core.identity.node_id, peer = id, index = own.index, differences, "tables differ");
    }
    let named = contradictions.iter().next().map(|(id, tables)| differences(&own.tables, "here", tables, &format!("on node {id}")));
    let named = named.unwrap_or_else(|| "no voter could say what it has".into());
    match verdict {
        Verdict::Right => {
            tracing::warn!(node = core.identity.node_id, index = own.index, "the majority of voters has the tables of this node");
            *core.divergence.shared.dismissed.lock() = contradictions.values().next().map(|tables| (own.index, root_of(tables)));
            Ok(())
        }
        Verdict::NoMajority => {
            core.divergence.shared.confirmed.store(true, Ordering::Relaxed);
            stop(core, &format!("configuration diverged at index {}, and no majority of voters agrees: {named}", own.index))
        }
        Verdict::Wrong(_) => {
            core.divergence.shared.confirmed.store(true, Ordering::Relaxed);
            let reason = format!("configuration diverged: a majority of voters has other tables at index {}: {named}", own.index);
            let stopped = stop(core, &reason);
            keep_copy(core, own.index).await;
            let others = core.metrics().membership_config.voter_ids().filter(|id| *id != core.identity.node_id).count();
            if others > 1 {
                core.divergence.leave(EXIT_DIVERGED, reason);
            }
            stopped
        }
    }
}

fn stop(core: &Core, reason: &str) -> Result<(), String> {
    core.state.halt();
    core.stop(reason);
    Err(reason.to_owned())
}

/// For whoever looks for the cause; its presence keeps this node from coming back with these tables.
async fn keep_copy(core: &Arc<Core>, index: u64) {
    let (state, file) = (core.state.clone(), copy_name(core.state.path(), index));
    let copied = tokio::task::spawn_blocking(move || state.copy_to(&file).map(|()| file)).await;
    match copied {
        Ok(Ok(file)) => tracing::error!(file = %file.display(), "a copy of the tables is kept; this node must be replaced"),
        Ok(Err(StorageError::Sqlite(e))) => tracing::error!(error = %e, "no copy of the tables could be kept"),
        Ok(Err(e)) => tracing::error!(error = %e, "no copy of the tables could be kept"),
        Err(_) => tracing::error!("no copy of the tables could be kept"),
    }
}

/// What this node says when a peer asks; a peer with another root makes this node ask, too.
pub(crate) fn answer(core: &Core, peer: u64, question: &pb::TablesAt) -> pb::TablesAtAnswer {
    let (Some(theirs), Some(own)) = (root_from(&question.root), core.state.root_at(question.index)) else {
        return pb::TablesAtAnswer::default();
    };
    if own == theirs {
        return pb::TablesAtAnswer { root: question.root.clone(), tables: Vec::new() };
    }
    if core.stopped.borrow().is_none() {
        core.divergence.reported(question.index, theirs, peer);
    }
    let tables = core.state.tables_at(question.index).unwrap_or_default();
    pb::TablesAtAnswer { root: own.to_be_bytes().to_vec().into(), tables: tables_to(tables) }
}

fn root_from(bytes: &[u8]) -> Option<u128> {
    <[u8; 16]>::try_from(bytes).ok().map(u128::from_be_bytes)
}

fn tables_to(tables: Tables) -> Vec<pb::TableHash> {
    let part = |((layer, module, table), value): ((String, String, String), TableHash)| pb::TableHash {
        layer,
        module,
        table,
        rows: value.rows,
        hash: value.hash.to_be_bytes().to_vec().into(),
        counter: value.autoincrement,
    };
    tables.into_iter().map(part).collect()
}

fn tables_from(parts: Vec<pb::TableHash>) -> Tables {
    let part = |part: pb::TableHash| {
        let value = TableHash { rows: part.rows, hash: root_from(&part.hash)?, autoincrement: part.counter };
        Some(((part.layer, part.module, part.table), value))
    };
    parts.into_iter().take(MAX_PARTS).filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_survive_the_wire() {
        let key = |table: &str| ("memory".to_owned(), "M".to_owned(), table.to_owned());
        let value = TableHash { rows: -1, hash: u128::MAX - 5, autoincrement: 9 };
        let tables = Tables::from([(key("a"), value), (key("b"), TableHash::default())]);
        assert_eq!(tables_from(tables_to(tables.clone())), tables);
        assert_eq!(root_from(&[0; 15]), None);
        let damaged = pb::TableHash { hash: vec![1; 3].into(), ..pb::TableHash::default() };
        assert!(tables_from(vec![damaged]).is_empty());
    }
}
