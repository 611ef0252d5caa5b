//! `quorumsql.admin.v1.ClusterAdmin`.

use std::time::Duration;

use quorumsql_proto::admin::cluster_admin_server::ClusterAdmin;
use quorumsql_proto::admin::create_join_token_request::Role;
use quorumsql_proto::admin::{
    CreateJoinTokenRequest, CreateJoinTokenResponse, Member, Quorum, RemoveRequest, RemoveResponse, StatusRequest, StatusResponse,
    TransferLeadershipRequest, TransferLeadershipResponse,
};
use quorumsql_raft::command::{Channel, Op, Origin, Outcome, Rejection, Request as Write, RequestId};
use quorumsql_raft::{ClusterStatus, Consensus};
use tonic::{Request, Response, Status};

use super::credentials::Credentials;
use super::details::refused;
use crate::modules;

/// Longest life of a join token.
const MAX_TTL: Duration = Duration::from_secs(30 * 24 * 3600);
/// A removal waits for a transfer of leadership, one entry and one change of membership.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(12);
/// A transfer for which the caller gives no time.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest that a caller may wait for a transfer.
const MAX_TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct ClusterAdminService {
    consensus: Consensus,
    credentials: Credentials,
}

impl ClusterAdminService {
    pub(super) fn new(consensus: Consensus, credentials: Credentials) -> Self {
        Self { consensus, credentials }
    }

    /// In whose name a request acts.
    fn origin<T>(&self, request: &Request<T>) -> Result<Origin, Status> {
        let actor = self.credentials.check(request)?;
        let client_addr = request.remote_addr().map(|address| address.to_string()).unwrap_or_default();
        Ok(Origin { actor, channel: Channel::Grpc, node: self.consensus.identity().node_id, client_addr })
    }

    /// The refusal with the leader's id and address, so that a tool can go there.
    fn refused(&self, rejection: &Rejection) -> Status {
        let mut status = refused(rejection);
        let cluster = self.consensus.status();
        let leader = cluster.members.into_iter().find(|member| Some(member.node_id) == cluster.leader_id);
        if let Some(leader) = leader {
            let metadata = status.metadata_mut();
            metadata.insert("quorumsql-leader-id", leader.node_id.into());
            if let Ok(address) = leader.raft_addr.parse() {
                metadata.insert("quorumsql-leader-addr", address);
            }
        }
        status
    }
}

#[tonic::async_trait]
impl ClusterAdmin for ClusterAdminService {
    #[tracing::instrument(name = "grpc.status", skip_all)]
    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let status = self.consensus.status();
        let consensus = self.consensus.clone();
        let modules = tokio::task::spawn_blocking(move || modules::read(&consensus.reader()?))
            .await
            .map_err(|error| Status::internal(error.to_string()))?
            .map_err(|error| Status::unavailable(format!("cannot read the module table: {error}")))?;
        let mut response = status_response(status, self.consensus.watch().borrow().revision);
        response.modules = modules
            .into_iter()
            .map(|module| quorumsql_proto::admin::Module { module: module.name, revision: module.revision, hash: module.hash })
            .collect();
        Ok(Response::new(response))
    }

    #[tracing::instrument(name = "grpc.create_join_token", skip_all)]
    async fn create_join_token(&self, request: Request<CreateJoinTokenRequest>) -> Result<Response<CreateJoinTokenResponse>, Status> {
        let origin = self.origin(&request)?;
        let request = request.into_inner();
        let voter = match request.role() {
            Role::Voter => true,
            Role::Learner => false,
            Role::Unspecified => return Err(Status::invalid_argument("role must be ROLE_VOTER or ROLE_LEARNER")),
        };
        let ttl = if request.ttl_seconds == 0 { Duration::from_secs(3600) } else { Duration::from_secs(request.ttl_seconds.into()) };
        if ttl > MAX_TTL {
            return Err(Status::invalid_argument("ttl_seconds must be at most 2592000 (30 days)"));
        }
        let token = self.consensus.create_join_token(voter, ttl, origin).await.map_err(|rejection| self.refused(&rejection))?;
        Ok(Response::new(CreateJoinTokenResponse { token }))
    }

    #[tracing::instrument(name = "grpc.remove", skip_all)]
    async fn remove(&self, request: Request<RemoveRequest>) -> Result<Response<RemoveResponse>, Status> {
        let origin = self.origin(&request)?;
        let RemoveRequest { node_id, force } = request.into_inner();
        let mut client = [0; 16];
        getrandom::fill(&mut client).map_err(|error| Status::internal(error.to_string()))?;
        let write = Write { id: RequestId { client, seq: 1 }, origin, op: Op::RemoveNode { node_id, force }, timeout: REMOVE_TIMEOUT };
        match self.consensus.submit(write).await {
            Outcome::Committed(done) => Ok(Response::new(RemoveResponse { index: done.index, warnings: done.warnings })),
            Outcome::Rejected(rejection) | Outcome::Unknown(rejection) => Err(self.refused(&rejection)),
        }
    }

    #[tracing::instrument(name = "grpc.transfer_leadership", skip_all)]
    async fn transfer_leadership(
        &self,
        request: Request<TransferLeadershipRequest>,
    ) -> Result<Response<TransferLeadershipResponse>, Status> {
        self.credentials.check(&request)?;
        let TransferLeadershipRequest { to, timeout_ms } = request.into_inner();
        let timeout = if timeout_ms == 0 { TRANSFER_TIMEOUT } else { Duration::from_millis(timeout_ms.into()) };
        if timeout > MAX_TRANSFER_TIMEOUT {
            return Err(Status::invalid_argument("timeout_ms must be at most 60000"));
        }
        let done = self.consensus.transfer_leadership((to != 0).then_some(to), timeout).await;
        let done = done.map_err(|rejection| self.refused(&rejection))?;
        let took_ms = u64::try_from(done.took.as_millis()).unwrap_or(u64::MAX);
        Ok(Response::new(TransferLeadershipResponse { new_leader: done.new_leader, took_ms }))
    }
}

fn status_response(status: ClusterStatus, revision: u64) -> StatusResponse {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    StatusResponse {
        cluster_id: status.cluster_id,
        node_id: status.node_id,
        slot: status.slot.into(),
        name: status.name,
        term: status.term,
        leader_id: status.leader_id.unwrap_or(0),
        applied_index: status.applied_index,
        revision,
        members: status
            .members
            .into_iter()
            .map(|member| Member {
                node_id: member.node_id,
                slot: member.slot.into(),
                name: member.name,
                role: member.role.into(),
                voter: member.voter,
                raft_addr: member.raft_addr,
                term: member.term,
                applied_index: member.applied_index,
                lag_entries: member.lag_entries,
                contact_ms: member.contact_ms,
                build: member.build,
            })
            .collect(),
        quorum: Some(Quorum {
            voters: count(status.voters),
            needed: count(status.voters / 2 + 1),
            reachable: count(status.voters_reachable),
        }),
        modules: Vec::new(),
        read_only_reason: status.read_only_reason.unwrap_or_default(),
        consensus_stopped: status.consensus_stopped.unwrap_or_default(),
        leader_contact_ms: status.leader_contact_ms.unwrap_or(0),
    }
}
