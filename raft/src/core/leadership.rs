//! Follows openraft's and the log's state: who leads, and whether this node can still take part.

use std::{sync::Arc, time::Duration};

use openraft::{ServerState, async_runtime::WatchReceiver};

use super::Core;

/// A log larger than this is cut by a snapshot, however few entries it has.
const SNAPSHOT_BYTES: usize = 64 << 20;

/// Tells the proposer when this node leads, logs changes of leader, and notices when openraft ends.
pub(crate) async fn run(core: Arc<Core>) {
    let mut metrics = core.raft.metrics();
    let mut seen = None;
    loop {
        let now = metrics.borrow_watched().clone();
        if let Err(fatal) = &now.running_state {
            // A regular shutdown ends openraft too, but aborts this task before.
            core.stop(&fatal.to_string());
            return;
        }
        let leads = now.state == ServerState::Leader && now.current_leader == Some(core.identity.node_id);
        let current = (now.current_term, now.current_leader, leads);
        if seen != Some(current) {
            if let Some(leader) =
                now.current_leader.filter(|_| seen.is_none_or(|(term, leader, _)| (term, leader) != (current.0, current.1)))
            {
                tracing::info!(node = core.identity.node_id, leader, term = now.current_term, "leader changed");
            }
            if leads != seen.is_some_and(|(_, _, led)| led) || (leads && seen.is_some_and(|(term, _, _)| term != current.0)) {
                core.proposer.lead(leads.then_some(now.current_term));
            }
            seen = Some(current);
        }
        if metrics.changed().await.is_err() {
            core.stop("openraft ended");
            return;
        }
    }
}

/// Stops consensus when the log's disk fails or a durable point takes too long (S10, S11), and bounds the log's size.
pub(crate) async fn watch_storage(core: Arc<Core>) {
    let mut progress = core.log.progress();
    let mut tick = tokio::time::interval(Duration::from_millis(250));
    let mut asked_at_bytes = 0;
    loop {
        tokio::select! {
            changed = progress.wait_for(|progress| progress.failed.is_some()) => {
                let reason = changed.ok().and_then(|progress| progress.failed.clone()).unwrap_or_else(|| "the log writer ended".into());
                core.stop(&format!("raft log: {reason}"));
                return;
            }
            _ = tick.tick() => {}
        }
        let (busy, limit) = (core.log.busy_for(), core.options.timings.storage_timeout);
        if busy > limit {
            core.stop(&format!("raft log: a durable point takes longer than {} ms", limit.as_millis()));
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
