//! The leader's care for its members: allocated nodes become learners, learners that have caught up become voters or take the place
//! of the node that they replace, removed ones leave the membership, and what a dead leader left half done is finished.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use openraft::ServerState;
use quorumsql_proto::log as log_pb;

use super::{
    change::{CHANGE_TIMEOUT, add_learner, exclude, finish_joint, is_joint, reachable_of, set_voters},
    roster::{Row, Rows},
    transfer,
};
use crate::{
    command::{Channel, Origin, RequestId},
    core::Core,
    proposer::CommandAnswer,
    state_machine::ApplyOutcome,
    type_config::Metrics,
};

const TICK: Duration = Duration::from_millis(250);
/// A learner is ready when it has been this close to the end of the log …
const MAX_LAG: u64 = 64;
/// … for this long, and has been heard within this time.
const STEADY: Duration = Duration::from_secs(1);

/// Runs on every node, acts on the leader.
pub(crate) async fn supervise(core: Arc<Core>) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut ready_since = BTreeMap::new();
    loop {
        tick.tick().await;
        let rows = match core.roster.refresh(&core) {
            Ok(rows) => rows,
            Err(e) => {
                tracing::warn!(error = %e, "cluster_nodes cannot be read");
                continue;
            }
        };
        let own = core.identity.node_id;
        if let Some(index) = rows.get(&own).filter(|row| row.gone).and_then(|row| row.removed) {
            core.expelled(&super::roster::removed_text(&core.identity.cluster_id, own, index));
            return;
        }
        let metrics = core.metrics();
        if metrics.state != ServerState::Leader {
            ready_since.clear();
            continue;
        }
        if let Err(reason) = care(&core, &metrics, &rows, &mut ready_since).await {
            tracing::warn!(reason, "change of members put off");
        }
    }
}

/// One look: the first thing that is to be done is done.
async fn care(core: &Core, metrics: &Metrics, rows: &Rows, ready_since: &mut BTreeMap<u64, Instant>) -> Result<(), String> {
    if is_joint(metrics) {
        return finish_joint(core).await;
    }
    note_ready(core, metrics, ready_since);
    if let Some(id) = leftover(metrics, rows) {
        return if id == core.identity.node_id { hand_over(core).await } else { exclude(core, id).await };
    }
    let steady = |id: &u64| ready_since.get(id).is_some_and(|since| since.elapsed() >= STEADY);
    if let Some(id) = replaced(metrics, rows, steady) {
        return retire(core, id).await;
    }
    if let Some((id, row)) = missing(metrics, rows) {
        return add_learner(core, id, row.member.clone()).await;
    }
    let candidate = rows.iter().find(|(id, row)| row.voter && row.is_member() && steady(id));
    if let Some((id, row)) = candidate {
        ready_since.remove(id);
        return promote(core, metrics, *id, row.replaces).await;
    }
    Ok(())
}

/// A node that is removed by its row and still in the membership.
fn leftover(metrics: &Metrics, rows: &Rows) -> Option<u64> {
    let mut members = metrics.membership_config.nodes().map(|(id, _)| *id);
    members.find(|id| rows.get(id).is_some_and(|row| !row.is_member()))
}

/// A node whose successor has taken over: as a voter, or as a learner that has caught up.
fn replaced(metrics: &Metrics, rows: &Rows, steady: impl Fn(&u64) -> bool) -> Option<u64> {
    let voters: BTreeSet<u64> = metrics.membership_config.voter_ids().collect();
    rows.iter().filter(|(_, row)| row.is_member()).find_map(|(id, row)| {
        let old = row.replaces.filter(|old| rows.get(old).is_some_and(Row::is_member))?;
        let over = if row.voter { voters.contains(id) } else { steady(id) };
        (over && !voters.contains(&old)).then_some(old)
    })
}

/// A node whose join was interrupted between its allocation and the membership.
fn missing<'a>(metrics: &Metrics, rows: &'a Rows) -> Option<(u64, &'a Row)> {
    let absent = |(id, row): &(&u64, &Row)| row.is_member() && metrics.membership_config.get_node(id).is_none();
    rows.iter().find(absent).map(|(id, row)| (*id, row))
}

/// Keeps, for each learner, since when it has been close to the end of the log without a break.
fn note_ready(core: &Core, metrics: &Metrics, ready_since: &mut BTreeMap<u64, Instant>) {
    let end = metrics.last_log_index.unwrap_or(0);
    let matched = metrics.replication.clone().unwrap_or_default();
    let learners: BTreeSet<u64> = metrics.membership_config.membership().learner_ids().collect();
    ready_since.retain(|id, _| learners.contains(id));
    for id in learners {
        let close = matched.get(&id).copied().flatten().is_some_and(|matched| matched.index + MAX_LAG >= end);
        let heard = core.reports.seen(id).is_some_and(|seen| seen.age < STEADY && seen.report.stopped.is_empty());
        if close && heard {
            ready_since.entry(id).or_insert_with(Instant::now);
        } else {
            ready_since.remove(&id);
        }
    }
}

/// Gives `id` its vote; in the same joint change the node that it replaces loses its own ({1,2,3} → {1,3,4}).
async fn promote(core: &Core, metrics: &Metrics, id: u64, replaces: Option<u64>) -> Result<(), String> {
    if replaces == Some(core.identity.node_id) {
        return hand_over(core).await;
    }
    let mut voters: BTreeSet<u64> = metrics.membership_config.voter_ids().collect();
    voters.insert(id);
    if let Some(old) = replaces {
        voters.remove(&old);
    }
    let (reachable, quorate) = reachable_of(core, &voters);
    if !quorate {
        return Err(format!("node {id} is not made a voter: only {reachable} of {} voters would answer", voters.len()));
    }
    set_voters(core, voters).await?;
    tracing::info!(node = id, replaces, "learner has caught up and votes now");
    match replaces {
        Some(old) => retire(core, old).await,
        None => Ok(()),
    }
}

/// This node leads and is to leave: somebody else has to do it.
async fn hand_over(core: &Core) -> Result<(), String> {
    transfer::lead(core, None, CHANGE_TIMEOUT).await.map(drop).map_err(|rejection| rejection.message)
}

/// Removes a node whose place is taken.
async fn retire(core: &Core, node_id: u64) -> Result<(), String> {
    let mut client = [0; 16];
    getrandom::fill(&mut client).map_err(|e| e.to_string())?;
    let origin = Origin { actor: "join".into(), channel: Channel::Internal, node: core.identity.node_id, client_addr: String::new() };
    let op = log_pb::log_entry::Op::NodeRemove(log_pb::NodeRemove { node_id });
    match core.proposer.command(RequestId { client, seq: 1 }, origin, op, CHANGE_TIMEOUT).await {
        CommandAnswer::Applied(result) if result.outcome == ApplyOutcome::Ok => {
            tracing::info!(node = node_id, index = result.index, "replaced node removed");
            Ok(())
        }
        CommandAnswer::Applied(result) => Err(result.message),
        CommandAnswer::Rejected(rejection) | CommandAnswer::Unknown(rejection) => Err(rejection.message),
        CommandAnswer::NotLeader => Err("leadership was lost".into()),
    }
}
