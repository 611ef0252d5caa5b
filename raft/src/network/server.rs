//! The called side of the peer port.

use std::{io, sync::Arc};

use quorumsql_proto::peer::{
    self as pb,
    internal_server::{Internal, InternalServer},
    raft_transport_server::{RaftTransport, RaftTransportServer},
    snapshot_chunk::Part,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tonic::{Request, Response, Status, Streaming, transport::Server};

use super::{
    MAX_INTERNAL_BYTES, MAX_JOIN_BYTES, MAX_MESSAGE_BYTES, accept, convert,
    gate::{Admission, Gate, PeerId},
};
use crate::{
    command::RequestId,
    core::Core,
    divergence,
    error::StartError,
    identity::Identity,
    membership::admit,
    network::tls::PeerTls,
    snapshots,
    state_machine::StateMachine,
    type_config::{LogId, Snapshot, or_zero, term_of},
};

/// Serves peers until the task is aborted; connections end with the runtime.
pub(crate) fn serve(core: Arc<Core>, tls: &PeerTls, listener: TcpListener) -> Result<JoinHandle<()>, StartError> {
    let Identity { cluster_id, node_id, .. } = core.identity.clone();
    let admission = Arc::new(Admission { cluster_id, node_id, roster: core.roster.clone(), refusals: core.refusals.clone() });
    let incoming = accept::incoming(listener, tls.server()?, core.refusals.clone());
    let service = Service { core };
    let transport =
        RaftTransportServer::new(service.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(MAX_MESSAGE_BYTES);
    let internal = InternalServer::new(service).max_decoding_message_size(MAX_INTERNAL_BYTES).max_encoding_message_size(MAX_MESSAGE_BYTES);
    let join = internal.clone().max_decoding_message_size(MAX_JOIN_BYTES);
    let router = Server::builder()
        .http2_keepalive_interval(Some(std::time::Duration::from_secs(2)))
        .max_concurrent_streams(1024)
        .add_service(Gate::members_only(admission.clone(), transport))
        .add_service(Gate::with_join(admission, internal, join));
    Ok(tokio::spawn(async move {
        if let Err(e) = router.serve_with_incoming(incoming).await {
            tracing::error!(error = %e, "peer port failed");
        }
    }))
}

#[derive(Clone)]
struct Service {
    core: Arc<Core>,
}

/// openraft has ended: the caller may try another node.
fn stopped(e: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("consensus stopped: {e}"))
}

#[tonic::async_trait]
impl RaftTransport for Service {
    async fn append(&self, request: Request<pb::AppendRequest>) -> Result<Response<pb::AppendResponse>, Status> {
        let request = convert::append_request_from(request.into_inner())?;
        let vote = request.vote;
        let response = self.core.raft.append_entries(request).await.map_err(stopped)?;
        if !matches!(response, openraft::raft::AppendEntriesResponse::HigherVote(_)) {
            self.core.contact.heard(vote.leader_id.voted_for);
        }
        Ok(Response::new(convert::append_response_to(&response)))
    }

    async fn vote(&self, request: Request<pb::VoteRequest>) -> Result<Response<pb::VoteResponse>, Status> {
        let request = convert::vote_request_from(request.get_ref())?;
        let response = self.core.raft.vote(request).await.map_err(stopped)?;
        Ok(Response::new(convert::vote_response_to(&response)))
    }

    async fn pre_vote(&self, request: Request<pb::VoteRequest>) -> Result<Response<pb::VoteResponse>, Status> {
        let request = convert::vote_request_from(request.get_ref())?;
        let response = self.core.raft.pre_vote(request).await.map_err(stopped)?;
        Ok(Response::new(convert::vote_response_to(&response)))
    }

    async fn transfer_leader(&self, request: Request<pb::TransferLeaderRequest>) -> Result<Response<pb::TransferLeaderResponse>, Status> {
        let request = convert::transfer_request_from(request.get_ref())?;
        let response = self.core.raft.handle_transfer_leader(request).await.map_err(stopped)?;
        Ok(Response::new(convert::transfer_response_to(&response)))
    }

    async fn install_snapshot(&self, request: Request<Streaming<pb::SnapshotChunk>>) -> Result<Response<pb::SnapshotResponse>, Status> {
        let (vote, snapshot) = receive(&self.core, request.into_inner()).await?;
        let vote = convert::vote_from(&vote);
        let last = snapshot.meta.last_log_id;
        // openraft panics on such input; only a forged or foreign snapshot can be like this.
        if last.is_some_and(|last| term_of(&last) > vote.leader_id.term) || contradicts(&self.core, last) {
            return Err(Status::invalid_argument("the snapshot contradicts its leader's term or this node's log"));
        }
        self.core.contact.heard(vote.leader_id.voted_for);
        let response = self.core.raft.install_full_snapshot(vote, snapshot).await.map_err(stopped)?;
        Ok(Response::new(pb::SnapshotResponse { vote: Some(convert::vote_to(&response.vote)) }))
    }
}

/// Whether a snapshot's last entry lies where this node has committed another one.
fn contradicts(core: &Core, last: Option<LogId>) -> bool {
    let committed = core.metrics().last_applied;
    match (last, committed) {
        (Some(last), Some(committed)) => last > committed && last.index <= committed.index,
        _ => false,
    }
}

async fn receive(core: &Core, mut stream: Streaming<pb::SnapshotChunk>) -> Result<(pb::Vote, Snapshot), Status> {
    let malformed = || Status::invalid_argument("malformed snapshot stream");
    let refused = |e: io::Error| Status::invalid_argument(e.to_string());
    let Some(pb::SnapshotChunk { part: Some(Part::Header(header)) }) = stream.message().await? else { return Err(malformed()) };
    let vote = header.vote.ok_or_else(malformed)?;
    let meta = snapshots::meta_of(&header).map_err(refused)?;
    let mut incoming = core.snapshots.receive(&header).map_err(refused)?;
    while let Some(chunk) = stream.message().await? {
        let Some(Part::Data(data)) = chunk.part else { return Err(malformed()) };
        incoming = tokio::task::spawn_blocking(move || incoming.write(&data).map(|()| incoming))
            .await
            .map_err(|e| Status::internal(e.to_string()))?
            .map_err(refused)?;
    }
    let last = or_zero(meta.last_log_id);
    let whole = move || {
        let data = incoming.finish()?;
        // openraft takes an installation that fails for the end of this node.
        StateMachine::verify_snapshot(&data.path, term_of(&last), last.index).map_err(|e| {
            tracing::error!(error = %e, "snapshot refused");
            drop(std::fs::remove_file(&data.path));
            io::Error::other(e)
        })?;
        Ok(data)
    };
    let data = tokio::task::spawn_blocking(whole).await.map_err(|e| Status::internal(e.to_string()))?.map_err(refused)?;
    Ok((vote, Snapshot { meta, snapshot: data }))
}

#[tonic::async_trait]
impl Internal for Service {
    async fn report_status(&self, request: Request<pb::NodeReport>) -> Result<Response<pb::ReportAnswer>, Status> {
        let from = peer(&request)?;
        let report = request.into_inner();
        if report.node_id != from {
            return Err(Status::permission_denied("a node reports of itself only"));
        }
        self.core.reports.told(report);
        Ok(Response::new(self.core.report_answer()))
    }

    async fn read_index(&self, _: Request<pb::ReadIndexRequest>) -> Result<Response<pb::ReadIndexResponse>, Status> {
        use pb::read_index_response::Result as Pb;
        let result = match self.core.read_index().await {
            Ok(id) => Pb::ReadLogId(convert::log_id_to(&id)),
            Err(reason) => Pb::NotLeader(self.core.not_leader(reason)),
        };
        Ok(Response::new(pb::ReadIndexResponse { result: Some(result) }))
    }

    async fn compare_tables(&self, request: Request<pb::TablesAt>) -> Result<Response<pb::TablesAtAnswer>, Status> {
        let from = peer(&request)?;
        Ok(Response::new(divergence::answer(&self.core, from, request.get_ref())))
    }

    async fn read_config_state(&self, request: Request<pb::ConfigStateRequest>) -> Result<Response<pb::ConfigState>, Status> {
        peer(&request)?;
        let core = self.core.clone();
        let read = tokio::task::spawn_blocking(move || core.config_state()).await.map_err(|e| Status::internal(e.to_string()))?;
        read.map(Response::new).map_err(|e| Status::internal(e.to_string()))
    }

    async fn join(&self, request: Request<pb::JoinRequest>) -> Result<Response<pb::JoinResponse>, Status> {
        let forwarded = request.extensions().get::<PeerId>().is_some();
        let peer = request.remote_addr();
        let admitted = admit::admit(&self.core, request.into_inner(), forwarded).await;
        if let Err(status) = &admitted
            && !forwarded
        {
            self.core.refusals.log(peer, "join", status.message());
        }
        admitted.map(Response::new)
    }

    async fn forward_sql(&self, request: Request<pb::ForwardRequest>) -> Result<Response<pb::ForwardResponse>, Status> {
        let request = super::request::request_from(request.into_inner())?;
        Ok(Response::new(self.core.execute_forwarded(request).await))
    }

    async fn outcome(&self, request: Request<pb::OutcomeRequest>) -> Result<Response<pb::OutcomeResponse>, Status> {
        let pb::OutcomeRequest { client_id, seq } = request.into_inner();
        let client = client_id[..].try_into().map_err(|_| Status::invalid_argument("client id"))?;
        Ok(Response::new(match self.core.outcome(&RequestId { client, seq }).await {
            Ok(known) => super::request::known_to(known),
            Err(reason) => {
                let result = pb::outcome_response::Result::NotLeader(self.core.not_leader(reason));
                pb::OutcomeResponse { result: Some(result) }
            }
        }))
    }

    async fn transfer_leadership(&self, request: Request<pb::TransferRequest>) -> Result<Response<pb::TransferResponse>, Status> {
        Ok(Response::new(self.core.transfer_forwarded(request.into_inner()).await))
    }
}

fn peer<T>(request: &Request<T>) -> Result<u64, Status> {
    let peer = request.extensions().get::<PeerId>();
    peer.map(|peer| peer.0).ok_or_else(|| Status::unauthenticated("members only"))
}
