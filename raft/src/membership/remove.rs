//! `ctl remove`: a member, dead or alive, leaves the cluster for ever.
//!
//! The `NodeRemove` entry comes first: it decides, and whoever leads carries it out. A node whose row is removed but which is still
//! in the membership is listened to, because the change of membership may need its vote.

use std::{collections::BTreeSet, time::Instant};

use super::{
    change::{exclude, reachable_of},
    transfer,
};
use crate::{
    command::{Committed, Outcome, Rejection, Request},
    core::{Core, left},
    proposer::ProposerAnswer,
};

/// Removes `id` if this node leads.
pub(crate) async fn remove(core: &Core, request: Request, id: u64, force: bool) -> ProposerAnswer {
    let deadline = Instant::now() + request.timeout;
    let metrics = core.metrics();
    if metrics.current_leader != Some(core.identity.node_id) {
        return ProposerAnswer::NotLeader;
    }
    // The proposer knows what became of a repeated request, and refuses ids that are none.
    let member = core.roster.refresh(core).is_ok_and(|rows| rows.get(&id).is_some_and(super::roster::Row::is_member));
    if member {
        let voters: BTreeSet<u64> = metrics.membership_config.voter_ids().collect();
        if let Some(reason) = refusal(core, &voters, id, force) {
            return refused(reason);
        }
        if id == core.identity.node_id {
            return match transfer::lead(core, None, left(deadline)).await {
                Ok(_) => ProposerAnswer::NotLeader,
                Err(rejection) => ProposerAnswer::Outcome(Outcome::Rejected(rejection)),
            };
        }
    }
    match core.proposer.execute(request).await {
        ProposerAnswer::Outcome(Outcome::Committed(committed)) => {
            let outcome = tokio::time::timeout(left(deadline), exclude(core, id)).await;
            let late = !matches!(outcome, Ok(Ok(())));
            ProposerAnswer::Outcome(Outcome::Committed(with_warning(committed, late, id)))
        }
        other => other,
    }
}

fn with_warning(mut committed: Committed, late: bool, id: u64) -> Committed {
    if late {
        committed.warnings.push(format!("node {id} is removed; the change of the membership is still under way"));
    } else {
        tracing::info!(node = id, index = committed.index, "node removed");
    }
    committed
}

fn refused(reason: String) -> ProposerAnswer {
    ProposerAnswer::Outcome(Outcome::Rejected(Rejection::admin(reason)))
}

/// Why `id` cannot be removed from among `voters` now.
fn refusal(core: &Core, voters: &BTreeSet<u64>, id: u64, force: bool) -> Option<String> {
    if !voters.contains(&id) {
        return None;
    }
    let remaining: BTreeSet<u64> = voters.iter().copied().filter(|voter| *voter != id).collect();
    if remaining.is_empty() {
        return Some(format!("node {id} is the last voter of the cluster and cannot be removed"));
    }
    let (reachable, quorate) = reachable_of(core, &remaining);
    let text = || {
        format!(
            "without node {id} only {reachable} of {} voters would answer and the cluster would have no quorum: \
             start the others first, or remove one of them (force removes it nevertheless)",
            remaining.len()
        )
    };
    (!quorate && !force).then(text)
}
