//! Standard health: overall = the process is up; `quorumsql.admin.v1.ClusterAdmin` = a leader was heard within 5 s.

use std::time::Duration;

use quorumsql_proto::admin::cluster_admin_server::ClusterAdminServer;
use quorumsql_raft::Consensus;
use tonic_health::pb::health_server::{Health, HealthServer};

use super::cluster_admin::ClusterAdminService;

/// Leader contact within this is SERVING.
const LEADER_CONTACT: Duration = Duration::from_secs(5);

/// Between two looks at consensus.
const INTERVAL: Duration = Duration::from_secs(1);

/// The service, and the future that keeps it up to date for as long as it is polled.
pub(super) fn service(consensus: Consensus) -> (HealthServer<impl Health>, impl Future<Output = ()>) {
    let (reporter, service) = tonic_health::server::health_reporter();
    let updates = async move {
        let mut interval = tokio::time::interval(INTERVAL);
        loop {
            interval.tick().await;
            let contact = consensus.status().leader_contact_ms;
            if contact.is_some_and(|millis| Duration::from_millis(millis) < LEADER_CONTACT) {
                reporter.set_serving::<ClusterAdminServer<ClusterAdminService>>().await;
            } else {
                reporter.set_not_serving::<ClusterAdminServer<ClusterAdminService>>().await;
            }
        }
    };
    (service, updates)
}
