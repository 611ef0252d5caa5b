//! Changes of membership: one at a time, each to its end.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use openraft::{ChangeMembers, ServerState, raft::Precondition};

use crate::{
    core::{Core, left},
    type_config::{Member, Metrics},
};

/// A change that a quorum does not confirm is given up waiting for; [`mod@super::supervise`] ends what was begun.
pub(crate) const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// An earlier change that is not committed yet is waited for in these steps.
const PAUSE: Duration = Duration::from_millis(20);

type Change = ChangeMembers<u64, Member>;

/// Adds a node that does not vote. Does not wait until it has caught up: openraft's own check of that is not to be trusted.
pub(crate) async fn add_learner(core: &Core, id: u64, member: Member) -> Result<(), String> {
    change(core, |metrics| {
        let known = metrics.membership_config.get_node(&id).is_some();
        (!known).then(|| ChangeMembers::AddNodes([(id, member.clone())].into()))
    })
    .await
}

/// Makes exactly these nodes voters; who was one and is none of them is no member afterwards.
pub(crate) async fn set_voters(core: &Core, voters: BTreeSet<u64>) -> Result<(), String> {
    change(core, |metrics| {
        let now: BTreeSet<u64> = metrics.membership_config.voter_ids().collect();
        (is_joint(metrics) || now != voters).then(|| ChangeMembers::ReplaceAllVoters(voters.clone()))
    })
    .await
}

/// Takes a node out of the membership, whatever it was in it.
pub(crate) async fn exclude(core: &Core, id: u64) -> Result<(), String> {
    change(core, |metrics| {
        if metrics.membership_config.voter_ids().any(|voter| voter == id) {
            return Some(ChangeMembers::RemoveVoters([id].into()));
        }
        metrics.membership_config.get_node(&id).map(|_| ChangeMembers::RemoveNodes([id].into()))
    })
    .await
}

/// Ends a change of voters whose leader died halfway.
pub(crate) async fn finish_joint(core: &Core) -> Result<(), String> {
    change(core, |metrics| is_joint(metrics).then(|| ChangeMembers::AddVoterIds(BTreeSet::new()))).await
}

pub(crate) fn is_joint(metrics: &Metrics) -> bool {
    metrics.membership_config.get_joint_config().len() > 1
}

/// Carries out what `next` wants, from what is in force, until it wants nothing more.
///
/// openraft takes the membership from `joint` to `uniform` in one call, but leaves it joint when something comes between.
async fn change(core: &Core, next: impl Fn(&Metrics) -> Option<Change>) -> Result<(), String> {
    let _turn = core.membership_turn.lock().await;
    let deadline = Instant::now() + CHANGE_TIMEOUT;
    let mut last = "not confirmed in time".to_owned();
    loop {
        let metrics = core.metrics();
        let Some(wanted) = next(&metrics) else { return Ok(()) };
        if metrics.state != ServerState::Leader {
            return Err("this node does not lead".into());
        }
        if left(deadline).is_zero() {
            return Err(last);
        }
        let as_seen = Precondition::LastMembershipLogId { last_membership_log_id: *metrics.membership_config.log_id() };
        let changed = core.raft.change_membership_if(wanted, false, [as_seen]);
        match tokio::time::timeout(left(deadline), changed).await {
            Ok(Ok(_)) => {}
            // An earlier change is not committed yet, or this one was overtaken.
            Ok(Err(e)) => {
                last = e.to_string();
                tokio::time::sleep(PAUSE).await;
            }
            Err(_) => return Err(last),
        }
    }
}

/// Voters of `set` that answer, and whether they are a majority of it.
pub(crate) fn reachable_of(core: &Core, set: &BTreeSet<u64>) -> (usize, bool) {
    let answering = set.iter().filter(|id| **id == core.identity.node_id || core.reports.reachable(**id)).count();
    (answering, answering > set.len() / 2)
}
