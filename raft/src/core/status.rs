//! The cluster as this node sees it, and whether it can accept writes now.

use std::time::Duration;

use openraft::{Instant, ServerState};
use quorumsql_proto::peer as pb;

use super::Core;
use crate::{
    handle::{ClusterStatus, MemberStatus},
    type_config::Metrics,
};

/// Without a leader for this long, writes are refused at once instead of waiting for one.
const LEADER_SILENCE: Duration = Duration::from_secs(3);
/// While a leader (on the leader: a quorum) was heard within this time, slow answers of other peers prove nothing.
const LEADER_FRESH: Duration = Duration::from_secs(1);

impl Core {
    fn leads(&self, metrics: &Metrics) -> bool {
        metrics.state == ServerState::Leader && metrics.current_leader == Some(self.identity.node_id)
    }

    /// Age of the last contact with a leader, and that leader.
    pub(crate) fn leader_contact(&self, metrics: &Metrics) -> Option<(u64, Duration)> {
        let own = self.identity.node_id;
        if !self.leads(metrics) {
            return self.contact.last();
        }
        if metrics.membership_config.voter_ids().all(|voter| voter == own) {
            return Some((own, Duration::ZERO));
        }
        metrics.last_quorum_acked.as_ref().map(|acked| (own, acked.elapsed()))
    }

    /// Voters, those that answer (this node included), and whether those are a quorum of every configuration.
    fn quorum(&self, metrics: &Metrics) -> (usize, usize, bool) {
        let answers = |id: &u64| *id == self.identity.node_id || self.reports.reachable(*id);
        let voters: Vec<u64> = metrics.membership_config.voter_ids().collect();
        let reachable = voters.iter().filter(|id| answers(id)).count();
        let quorate =
            metrics.membership_config.get_joint_config().iter().all(|set| set.iter().filter(|id| answers(id)).count() > set.len() / 2);
        (voters.len(), reachable, quorate)
    }

    /// Why a write would be refused now; `None` = it may be tried.
    pub(crate) fn read_only_reason(&self, metrics: &Metrics) -> Option<String> {
        if let Some(reason) = &*self.stopped.borrow() {
            return Some(format!("configuration is read-only: consensus stopped on node {}: {reason}", self.identity.node_id));
        }
        if let Some(doubt) = self.divergence.pending() {
            return Some(format!("configuration is read-only: {doubt}"));
        }
        let (voters, reachable, quorate) = self.quorum(metrics);
        let contact = self.leader_contact(metrics);
        let silent = contact.map_or_else(|| self.contact.silent_for(), |(_, age)| age);
        if may_be_tried(self.leads(metrics), quorate, silent) {
            return None;
        }
        Some(no_quorum(reachable, voters, self.identity.node_id, metrics.current_term, contact, silent))
    }

    /// The whole view; reads `cluster_nodes`.
    pub(crate) fn status(&self) -> ClusterStatus {
        let metrics = self.metrics();
        let (voters, voters_reachable, _) = self.quorum(&metrics);
        let contact = self.leader_contact(&metrics);
        let identity = self.identity.clone();
        ClusterStatus {
            cluster_id: identity.cluster_id,
            node_id: identity.node_id,
            slot: identity.slot,
            name: identity.name,
            term: metrics.current_term,
            leader_id: self.heard_leader(&metrics),
            applied_index: self.state.watch().borrow().index,
            members: self.members(&metrics),
            leader_contact_ms: contact.map(|(_, age)| ms(age)),
            read_only_reason: self.read_only_reason(&metrics),
            consensus_stopped: self.stopped.borrow().clone(),
            config_diverged: self.divergence.confirmed(),
            voters,
            voters_reachable,
            leader_messages: self.contact.messages(),
        }
    }

    /// The leader, if it was heard lately.
    fn heard_leader(&self, metrics: &Metrics) -> Option<u64> {
        let fresh =
            self.leader_contact(metrics).is_some_and(|(_, age)| age < LEADER_SILENCE) || self.leads(metrics) && self.quorum(metrics).2;
        metrics.current_leader.filter(|_| fresh)
    }

    fn members(&self, metrics: &Metrics) -> Vec<MemberStatus> {
        let rows = self.roster.refresh(self).unwrap_or_else(|e| {
            tracing::warn!(error = %e, "cluster_nodes cannot be read");
            self.roster.rows()
        });
        let own = self.identity.node_id;
        let leader = self.heard_leader(metrics);
        let voters: Vec<u64> = metrics.membership_config.voter_ids().collect();
        let own_report = self.report();
        let mut members: Vec<MemberStatus> = metrics
            .membership_config
            .nodes()
            .map(|(id, node)| {
                let seen = if *id == own { None } else { self.reports.seen(*id) };
                let report = if *id == own { Some(&own_report) } else { seen.as_ref().map(|seen| &seen.report) };
                let voter = voters.contains(id);
                let age = seen.as_ref().map_or_else(|| self.contact.age(), |seen| seen.age);
                let contact = (*id != own).then_some(age);
                MemberStatus {
                    node_id: *id,
                    slot: rows.get(id).filter(|row| row.is_member()).map_or(0, |row| row.slot),
                    name: node.name.clone(),
                    role: role_name(leader == Some(*id), voter, contact, report),
                    voter,
                    raft_addr: node.raft_addr.clone(),
                    term: report.map_or(0, |report| report.term),
                    applied_index: report.map_or(0, |report| report.applied_index),
                    lag_entries: report.map_or(0, |report| report.last_log_index),
                    contact_ms: contact.map(ms),
                    build: report.map_or_else(String::new, |report| report.build.clone()),
                }
            })
            .collect();
        let furthest = members.iter().map(|member| member.lag_entries.max(member.applied_index)).max().unwrap_or(0);
        for member in &mut members {
            member.lag_entries = furthest - member.applied_index;
        }
        members
    }
}

/// Whether a write is worth trying. A leader does not judge itself by the clock: on a busy machine, and before the first answer of
/// a peer that has just become a voter, the last quorum that openraft tells of is long ago, and a write would succeed.
fn may_be_tried(leads: bool, quorate: bool, silent: Duration) -> bool {
    silent < LEADER_FRESH || quorate && (leads || silent < LEADER_SILENCE)
}

/// `contact` = age of the last contact, `None` for this node itself. What a silent node is, nobody knows.
fn role_name(leads: bool, voter: bool, contact: Option<Duration>, report: Option<&pb::NodeReport>) -> &'static str {
    match report.map(pb::NodeReport::role) {
        _ if !leads && contact.is_some_and(|age| age >= LEADER_SILENCE) => "unreachable",
        _ if report.is_some_and(|report| !report.stopped.is_empty()) => "stopped",
        _ if leads => "leader",
        _ if !voter => "learner",
        Some(pb::Role::Candidate) => "candidate",
        _ => "follower",
    }
}

/// The text of raft-and-storage.md 4.7.
fn no_quorum(reachable: usize, voters: usize, node: u64, term: u64, contact: Option<(u64, Duration)>, silent: Duration) -> String {
    let leader = match contact {
        Some((leader, age)) => format!("last leader node {leader}, {} s ago", age.as_secs()),
        None => format!("no leader heard for {} s", silent.as_secs()),
    };
    format!("configuration is read-only: no quorum, {reachable} of {voters} voters reachable from node {node} (term {term}), {leader}")
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_reads_as_specified() {
        let text = no_quorum(1, 3, 1, 7, Some((2, Duration::from_millis(14_900))), Duration::ZERO);
        assert_eq!(
            text,
            "configuration is read-only: no quorum, 1 of 3 voters reachable from node 1 (term 7), last leader node 2, 14 s ago"
        );
    }

    #[test]
    fn a_leader_with_a_quorum_tries_however_long_ago_it_was_answered() {
        let (fresh, while_ago, silent) = (Duration::ZERO, LEADER_FRESH, LEADER_SILENCE);
        for (leads, quorate, age, expected) in [
            (true, true, silent, true),
            (true, false, silent, false),
            (true, false, while_ago, false),
            (true, false, fresh, true),
            (false, true, silent, false),
            (false, true, while_ago, true),
            (false, false, while_ago, false),
            (false, false, fresh, true),
        ] {
            assert_eq!(may_be_tried(leads, quorate, age), expected, "{leads} {quorate} {age:?}");
        }
    }

    #[test]
    fn roles_are_those_of_nodes_that_were_heard() {
        let candidate = pb::NodeReport { role: pb::Role::Candidate.into(), ..Default::default() };
        let (now, long_ago) = (Some(Duration::ZERO), Some(LEADER_SILENCE));
        for (leads, voter, contact, report, expected) in [
            (true, true, now, Some(&candidate), "leader"),
            (false, true, now, Some(&candidate), "candidate"),
            (false, true, None, None, "follower"),
            (false, false, now, None, "learner"),
            (false, true, long_ago, Some(&candidate), "unreachable"),
            (false, false, long_ago, None, "unreachable"),
        ] {
            assert_eq!(role_name(leads, voter, contact, report), expected);
        }
    }
}
