//! What nodes say of themselves twice a second, and which of them answer.
//!
//! Every node reports to every voter: so each can tell whether a quorum answers, with or without a leader. The leader's answers
//! carry the reports of all others, so that followers know everybody.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use openraft::ServerState;
use parking_lot::Mutex;
use quorumsql_proto::peer as pb;

use super::Core;
use crate::{network::client::explain, state_machine::FEATURE_LEVEL, type_config::Metrics};

const INTERVAL: Duration = Duration::from_millis(500);
/// A peer that takes longer to answer does not count as reachable.
const TIMEOUT: Duration = Duration::from_millis(1000);
/// An answer older than this says nothing any more.
const FRESH: Duration = Duration::from_millis(2500);
/// Reports that are kept; members are never that many.
const MAX_REPORTS: usize = 1024;
const PROTOCOL: u32 = 1;

/// When this node last heard from which leader.
pub(crate) struct Contact {
    started: Instant,
    messages: AtomicU64,
    last: Mutex<Option<(u64, Instant)>>,
}

impl Contact {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), messages: AtomicU64::new(0), last: Mutex::new(None) }
    }

    /// A message of a leader was accepted.
    pub(crate) fn heard(&self, leader: u64) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        *self.last.lock() = Some((leader, Instant::now()));
    }

    /// This node led, and a quorum answered it this long ago: once it has stepped down, that was its last contact with a leader.
    pub(crate) fn led(&self, own: u64, age: Duration) {
        let Some(at) = Instant::now().checked_sub(age) else { return };
        let mut last = self.last.lock();
        if last.is_none_or(|(_, heard)| heard < at) {
            *last = Some((own, at));
        }
    }

    /// Messages of leaders, heartbeats among them, that were accepted since the start.
    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Last leader and the age of the contact.
    pub(crate) fn last(&self) -> Option<(u64, Duration)> {
        self.last.lock().map(|(leader, at)| (leader, at.elapsed()))
    }

    /// Since when this node runs.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// For how long no leader has been heard.
    pub(crate) fn silent_for(&self) -> Duration {
        self.last().map_or_else(|| self.started.elapsed(), |(_, age)| age)
    }
}

/// Reports of the other nodes.
#[derive(Default)]
pub(crate) struct Reports {
    peers: Mutex<BTreeMap<u64, Known>>,
}

#[derive(Clone, Default)]
struct Known {
    report: Option<(pb::NodeReport, Instant)>,
    last_call: Option<Call>,
}

/// How the last call to a peer ended, and when.
#[derive(Clone, Copy)]
enum Call {
    Answered(Instant),
    Failed,
}

/// What is known of a node: its last report with age.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) report: pb::NodeReport,
    pub(crate) age: Duration,
}

impl Reports {
    /// A node reported here, or another passed its report on; the newest counts.
    pub(crate) fn told(&self, report: pb::NodeReport) {
        let Some(at) = Instant::now().checked_sub(Duration::from_millis(report.age_ms.min(86_400_000))) else { return };
        let mut peers = self.peers.lock();
        if peers.len() >= MAX_REPORTS && !peers.contains_key(&report.node_id) {
            return;
        }
        let known = peers.entry(report.node_id).or_default();
        if known.report.as_ref().is_none_or(|(_, before)| *before <= at) {
            known.report = Some((report, at));
        }
    }

    /// A call ended; the log says when a peer begins to fail and when it answers again.
    fn called(&self, id: u64, call: Call, reason: &str) {
        let before = self.peers.lock().entry(id).or_default().last_call.replace(call);
        match (before, call) {
            (Some(Call::Failed), Call::Answered(_)) => tracing::info!(peer = id, "peer answers again"),
            (None | Some(Call::Answered(_)), Call::Failed) => tracing::warn!(peer = id, reason, "peer does not answer"),
            _ => {}
        }
    }

    pub(crate) fn seen(&self, id: u64) -> Option<Seen> {
        let peers = self.peers.lock();
        let (report, at) = peers.get(&id)?.report.as_ref()?;
        Some(Seen { report: report.clone(), age: at.elapsed() })
    }

    /// Whether a peer answers and takes part; one that was never called gets the benefit of the doubt.
    pub(crate) fn reachable(&self, id: u64) -> bool {
        let peers = self.peers.lock();
        let Some(known) = peers.get(&id) else { return true };
        match known.last_call {
            None => true,
            Some(Call::Failed) => false,
            Some(Call::Answered(at)) => at.elapsed() < FRESH && known.report.as_ref().is_none_or(|(report, _)| report.stopped.is_empty()),
        }
    }

    /// All reports with their age, to be passed on.
    fn all(&self) -> Vec<pb::NodeReport> {
        let age_ms = |at: &Instant| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let peers = self.peers.lock();
        peers
            .values()
            .filter_map(|known| known.report.as_ref())
            .map(|(report, at)| pb::NodeReport { age_ms: age_ms(at), ..report.clone() })
            .collect()
    }
}

impl Core {
    /// This node's own report.
    pub(crate) fn report(&self) -> pb::NodeReport {
        let metrics = self.metrics();
        pb::NodeReport {
            node_id: self.identity.node_id,
            role: role(&metrics).into(),
            term: metrics.current_term,
            applied_index: metrics.last_applied.map_or(0, |id| id.index),
            last_log_index: metrics.last_log_index.unwrap_or(0),
            build: self.options.build.clone(),
            incarnation: self.identity.incarnation.clone(),
            feature_level: FEATURE_LEVEL,
            protocol: PROTOCOL,
            age_ms: 0,
            stopped: self.stopped.borrow().clone().unwrap_or_default(),
        }
    }

    /// Own report first; those of all others too if this node leads.
    pub(crate) fn report_answer(&self) -> pb::ReportAnswer {
        let own = self.report();
        let others = if own.role() == pb::Role::Leader { self.reports.all() } else { Vec::new() };
        pb::ReportAnswer { reports: [vec![own], others].concat() }
    }
}

fn role(metrics: &Metrics) -> pb::Role {
    match metrics.state {
        ServerState::Leader => pb::Role::Leader,
        ServerState::Follower => pb::Role::Follower,
        ServerState::Candidate => pb::Role::Candidate,
        ServerState::Learner => pb::Role::Learner,
        ServerState::Shutdown => pb::Role::Unknown,
    }
}

/// Reports to every voter, each at its own pace: one that hangs does not delay the others. A node that is no member any more has
/// been told so once and asks no further.
pub(super) async fn run(core: Arc<Core>) {
    let busy: Arc<Mutex<BTreeSet<u64>>> = Arc::default();
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if core.expelled.load(Ordering::Relaxed) {
            return;
        }
        let membership = core.metrics().membership_config;
        for id in membership.voter_ids().filter(|id| *id != core.identity.node_id) {
            let Some(address) = membership.get_node(&id).map(|node| node.raft_addr.clone()) else { continue };
            if busy.lock().insert(id) {
                let (core, busy) = (core.clone(), busy.clone());
                tokio::spawn(async move {
                    core.call(id, &address).await;
                    busy.lock().remove(&id);
                });
            }
        }
    }
}

impl Core {
    async fn call(&self, id: u64, address: &str) {
        let Ok(mut client) = self.peers.internal(id, address) else { return self.reports.called(id, Call::Failed, address) };
        match tokio::time::timeout(TIMEOUT, client.report_status(self.report())).await {
            Ok(Ok(answer)) => {
                for report in answer.into_inner().reports {
                    if report.node_id != self.identity.node_id {
                        self.reports.told(report);
                    }
                }
                self.reports.called(id, Call::Answered(Instant::now()), "");
            }
            Ok(Err(status)) => {
                self.heed(&status);
                self.reports.called(id, Call::Failed, &explain(&status));
            }
            Err(_) => self.reports.called(id, Call::Failed, "no answer within 1 s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(node_id: u64, term: u64, age_ms: u64) -> pb::NodeReport {
        pb::NodeReport { node_id, term, age_ms, ..Default::default() }
    }

    #[test]
    fn a_leader_that_steps_down_was_in_contact_until_its_last_quorum() {
        let contact = Contact::new();
        assert_eq!(contact.last(), None);
        contact.led(1, Duration::ZERO);
        assert_eq!(contact.last().map(|(leader, _)| leader), Some(1));
        contact.heard(2);
        contact.led(1, Duration::from_secs(60));
        assert_eq!(contact.last().map(|(leader, _)| leader), Some(2), "its successor was heard later");
    }

    #[test]
    fn an_older_report_that_was_passed_on_does_not_replace_a_newer_one() {
        let reports = Reports::default();
        reports.told(report(2, 7, 100));
        reports.told(report(2, 6, 5_000));
        assert_eq!(reports.seen(2).unwrap().report.term, 7);
        reports.told(report(2, 8, 0));
        assert_eq!(reports.seen(2).unwrap().report.term, 8);
    }

    #[test]
    fn a_peer_is_reachable_until_a_call_fails_and_not_if_its_consensus_stopped() {
        let reports = Reports::default();
        assert!(reports.reachable(2));
        reports.called(2, Call::Failed, "gone");
        assert!(!reports.reachable(2));
        reports.called(2, Call::Answered(Instant::now()), "");
        assert!(reports.reachable(2));
        reports.told(pb::NodeReport { stopped: "disk".into(), ..report(2, 1, 0) });
        assert!(!reports.reachable(2));
    }
}
