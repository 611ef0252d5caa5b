//! Follows openraft's and the log's state: who leads, and whether this node can still take part.

use std::{sync::Arc, time::Duration};

use openraft::{Instant, ServerState, async_runtime::WatchReceiver};

use super::Core;
use crate::{proposer::Proposer, type_config::Raft};

/// A log larger than this is cut by a snapshot, however few entries it has.
const SNAPSHOT_BYTES: usize = 64 << 20;
/// How often disks and the log's size are looked at.
const TICK: Duration = Duration::from_millis(250);

/// Keeps the proposer up to date until openraft ends, which ends this node's part in consensus.
pub(crate) async fn run(core: Arc<Core>) {
    // A regular shutdown ends openraft too, but aborts this task before.
    let own = core.identity.node_id;
    let reason = follow(&core.raft, own, &core.proposer, |age| core.contact.led(own, age)).await;
    core.stop(&reason);
}

/// Tells the proposer when this node leads, `quorum` how long ago a quorum answered it then, and logs changes of leader, until
/// openraft ends; says why it did.
pub(crate) async fn follow(raft: &Raft, node_id: u64, proposer: &Proposer, quorum: impl Fn(Duration)) -> String {
    let mut metrics = raft.metrics();
    let mut seen = None;
    loop {
        let now = metrics.borrow_watched().clone();
        if let Err(fatal) = &now.running_state {
            return fatal.to_string();
        }
        let leads = now.state == ServerState::Leader && now.current_leader == Some(node_id);
        if let Some(acked) = now.last_quorum_acked.as_ref().filter(|_| leads) {
            quorum(acked.elapsed());
        }
        let current = (now.current_term, now.current_leader, leads);
        if seen != Some(current) {
            if let Some(leader) =
                now.current_leader.filter(|_| seen.is_none_or(|(term, leader, _)| (term, leader) != (current.0, current.1)))
            {
                tracing::info!(node = node_id, leader, term = now.current_term, "leader changed");
            }
            if leads != seen.is_some_and(|(_, _, led)| led) || (leads && seen.is_some_and(|(term, _, _)| term != current.0)) {
                proposer.lead(leads.then_some(now.current_term));
            }
            seen = Some(current);
        }
        if metrics.changed().await.is_err() {
            return "openraft ended".into();
        }
    }
}

/// Stops consensus when a disk fails, or takes too long over a durable point of the log or a commit of `state.db` (S10, S11).
pub(crate) async fn watch_storage(core: Arc<Core>) {
    let (mut progress, mut state) = (core.log.progress(), core.state.failure());
    let mut tick = tokio::time::interval(TICK);
    let limit = core.options.timings.storage_timeout;
    let reason = loop {
        tokio::select! {
            changed = progress.wait_for(|progress| progress.failed.is_some()) => {
                let reason = changed.ok().and_then(|progress| progress.failed.clone());
                break format!("raft log: {}", reason.unwrap_or_else(|| "the log writer ended".into()));
            }
            changed = state.wait_for(Option::is_some) => {
                break changed.ok().and_then(|failed| failed.clone()).unwrap_or_else(|| "state.db: closed".into());
            }
            _ = tick.tick() => {}
        }
        if core.log.busy_for() > limit {
            break format!("raft log: a durable point takes longer than {} ms", limit.as_millis());
        }
        if core.state.committing_for() > limit {
            break format!("state.db: a commit takes longer than {} ms", limit.as_millis());
        }
    };
    core.stop(&reason);
}

/// Bounds the log by size: a snapshot at 64 MiB, and what a snapshot holds is purged down to the newest 32 MiB.
pub(crate) async fn bound_log(core: Arc<Core>) {
    let mut tick = tokio::time::interval(TICK);
    let mut asked_at_bytes = 0;
    loop {
        tick.tick().await;
        if let Some(upto) = core.snapshots.current().and_then(|current| core.log.surplus(current.meta.last_log_id?.index))
            && core.raft.trigger().purge_log(upto).await.is_err()
        {
            return;
        }
        let bytes = core.log.bytes();
        if bytes < asked_at_bytes {
            asked_at_bytes = 0;
        }
        if bytes > SNAPSHOT_BYTES + asked_at_bytes {
            asked_at_bytes = bytes;
            if core.raft.trigger().snapshot().await.is_err() {
                return;
            }
        }
    }
}
