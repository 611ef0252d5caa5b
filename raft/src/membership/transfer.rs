//! Leadership is handed over: before a planned stop, before a leader is removed, and when an operator asks.

use std::time::{Duration, Instant};

use openraft::{ServerState, async_runtime::WatchReceiver};

use crate::{
    command::{Rejection, Transferred},
    core::Core,
};

/// A planned transfer takes some tens of milliseconds.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(2);

/// Before this node stops: to the voter that is furthest, if this node leads and another one can.
pub(crate) async fn before_stop(core: &Core) {
    if core.metrics().state != ServerState::Leader || heirs(core).next().is_none() {
        return;
    }
    if let Err(rejection) = lead(core, None, TRANSFER_TIMEOUT).await {
        tracing::warn!(reason = rejection.message, "leadership could not be handed over");
    }
}

/// Voters besides this node that answer.
fn heirs(core: &Core) -> impl Iterator<Item = u64> {
    let voters: Vec<u64> = core.metrics().membership_config.voter_ids().collect();
    voters.into_iter().filter(|id| *id != core.identity.node_id && core.reports.reachable(*id))
}

/// On the leader: hands leadership to `to`, or to the voter that is furthest; returns when another node leads.
pub(crate) async fn lead(core: &Core, to: Option<u64>, timeout: Duration) -> Result<Transferred, Rejection> {
    let started = Instant::now();
    let own = core.identity.node_id;
    let heir = match to {
        Some(id) if id == own => return Ok(Transferred { new_leader: own, took: Duration::ZERO }),
        Some(id) => checked(core, id)?,
        None => {
            let matched = core.metrics().replication.unwrap_or_default();
            let furthest = heirs(core).max_by_key(|id| matched.get(id).copied().flatten());
            furthest.ok_or_else(|| Rejection::admin("no other voter answers to which leadership could be handed over"))?
        }
    };
    let failed = |what: String| Rejection::admin(format!("leadership was not handed over to node {heir}: {what}"));
    core.raft.trigger().transfer_leader(heir).await.map_err(|e| failed(e.to_string()))?;
    let mut watch = core.raft.metrics();
    let other_leads = async {
        loop {
            if let Some(leader) = watch.borrow_watched().current_leader.filter(|leader| *leader != own) {
                return Ok(leader);
            }
            watch.changed().await.map_err(|_| failed("consensus has ended".into()))?;
        }
    };
    let new_leader = tokio::time::timeout(timeout, other_leads).await;
    let new_leader = new_leader.map_err(|_| failed(format!("it did not take over within {} ms", timeout.as_millis())))??;
    let took = started.elapsed();
    tracing::info!(from = own, to = new_leader, took_ms = took.as_millis() as u64, "leadership transferred");
    Ok(Transferred { new_leader, took })
}

fn checked(core: &Core, id: u64) -> Result<u64, Rejection> {
    if !core.metrics().membership_config.voter_ids().any(|voter| voter == id) {
        return Err(Rejection::admin(format!("node {id} is not a voter of this cluster")));
    }
    if !core.reports.reachable(id) {
        return Err(Rejection::admin(format!("node {id} does not answer")));
    }
    Ok(id)
}
