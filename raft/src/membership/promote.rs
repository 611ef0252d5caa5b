//! The leader's care for its members: allocated nodes become learners, learners that have caught up become voters.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use openraft::{ChangeMembers, ServerState, async_runtime::WatchReceiver, raft::Precondition};

use crate::{
    core::Core,
    type_config::{Member, Metrics},
};

const TICK: Duration = Duration::from_millis(250);
/// A learner is ready when it has been this close to the end of the log …
const MAX_LAG: u64 = 64;
/// … for this long, and has been heard within this time.
const STEADY: Duration = Duration::from_secs(1);
/// A membership change that a quorum does not confirm is given up waiting for.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// A planned transfer takes some tens of milliseconds.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs on every node, acts on the leader.
pub(crate) async fn supervise(core: Arc<Core>) {
    let mut tick = tokio::time::interval(TICK);
    let mut ready_since = BTreeMap::new();
    loop {
        tick.tick().await;
        let metrics = core.metrics();
        if metrics.state != ServerState::Leader || metrics.membership_config.get_joint_config().len() != 1 {
            ready_since.clear();
            continue;
        }
        let Ok(allocated) = allocated(&core) else { continue };
        add_missing(&core, &metrics, &allocated).await;
        note_ready(&core, &metrics, &mut ready_since);
        let candidate =
            ready_since.iter().find(|(id, since)| since.elapsed() >= STEADY && allocated.get(id).is_some_and(|node| node.voter));
        if let Some(id) = candidate.map(|(id, _)| *id) {
            ready_since.remove(&id);
            match promote(&core, &metrics, id).await {
                Ok(()) => tracing::info!(node = id, "learner has caught up and votes now"),
                Err(reason) => tracing::warn!(node = id, reason, "promotion put off"),
            }
        }
    }
}

/// A row of `cluster_nodes` that was not removed.
struct Allocated {
    member: Member,
    voter: bool,
}

fn allocated(core: &Core) -> rusqlite::Result<BTreeMap<u64, Allocated>> {
    core.query(|connection| {
        let mut statement =
            connection.prepare_cached("SELECT node_id, raft_addr, name, role FROM cluster_nodes WHERE removed_index IS NULL")?;
        let rows = statement.query_map([], |row| {
            let member = Member { raft_addr: row.get(1)?, name: row.get(2)? };
            Ok((row.get::<_, i64>(0)?.unsigned_abs(), Allocated { member, voter: row.get::<_, String>(3)? == "voter" }))
        })?;
        rows.collect()
    })
}

/// Adds nodes whose join was interrupted between their allocation and the membership.
async fn add_missing(core: &Arc<Core>, metrics: &Metrics, allocated: &BTreeMap<u64, Allocated>) {
    for (id, node) in allocated.iter().filter(|(id, _)| metrics.membership_config.get_node(id).is_none()) {
        if let Err(reason) = add_learner(core, *id, node.member.clone()).await {
            tracing::warn!(node = id, reason, "a node could not be added as learner");
        }
    }
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

async fn promote(core: &Arc<Core>, metrics: &Metrics, id: u64) -> Result<(), String> {
    let _turn = core.membership_turn.lock().await;
    let as_seen = Precondition::LastMembershipLogId { last_membership_log_id: *metrics.membership_config.log_id() };
    let change = core.raft.change_membership_if(ChangeMembers::AddVoterIds([id].into()), false, [as_seen]);
    let changed = tokio::time::timeout(CHANGE_TIMEOUT, change).await.map_err(|_| "not confirmed in time")?.map_err(|e| e.to_string())?;
    let membership = changed.membership().as_ref().ok_or("not a membership entry")?;
    let uniform = membership.get_joint_config().len() == 1 && membership.voter_ids().any(|voter| voter == id);
    if uniform { Ok(()) } else { Err("the change is not complete".into()) }
}

/// Adds a node that does not vote. Does not wait until it has caught up: openraft's own check of that is not to be trusted.
pub(crate) async fn add_learner(core: &Arc<Core>, id: u64, member: Member) -> Result<(), String> {
    let _turn = core.membership_turn.lock().await;
    let mut last = String::new();
    for _ in 0..50 {
        match core.raft.add_learner(id, member.clone(), false).await {
            Ok(_) => return Ok(()),
            Err(e) if core.metrics().state == ServerState::Leader => last = e.to_string(),
            Err(e) => return Err(e.to_string()),
        }
        // An earlier change is not committed yet.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(last)
}

/// Hands leadership to the voter that is furthest and answers; returns when somebody else leads, or it takes too long.
pub(crate) async fn transfer(core: &Core) {
    let metrics = core.metrics();
    let own = core.identity.node_id;
    if metrics.state != ServerState::Leader {
        return;
    }
    let matched = metrics.replication.clone().unwrap_or_default();
    let heirs = metrics.membership_config.voter_ids().filter(|id| *id != own && core.reports.reachable(*id));
    let Some(heir) = heirs.max_by_key(|id| matched.get(id).copied().flatten()) else { return };
    let started = Instant::now();
    if core.raft.trigger().transfer_leader(heir).await.is_err() {
        return;
    }
    let mut watch = core.raft.metrics();
    let other_leads =
        async { while watch.borrow_watched().current_leader.is_none_or(|leader| leader == own) && watch.changed().await.is_ok() {} };
    match tokio::time::timeout(TRANSFER_TIMEOUT, other_leads).await {
        Ok(()) => tracing::info!(to = heir, took_ms = started.elapsed().as_millis() as u64, "leadership transferred"),
        Err(_) => tracing::warn!(to = heir, "leadership was not taken over in time"),
    }
}
