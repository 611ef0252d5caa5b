//! The calling side: channels to peers, and openraft's network on top of them.
//!
//! Heartbeats and snapshots have an HTTP/2 connection each, so that neither waits behind entries.

use std::{collections::HashMap, error::Error as _, future::Future, os::unix::fs::FileExt, sync::Arc, time::Duration};

use openraft::{
    RaftNetworkFactory, RaftNetworkV2,
    errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable},
    network::{RPCOption, RPCTypes},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse, VoteRequest,
        VoteResponse,
    },
};
use parking_lot::Mutex;
use quorumsql_proto::peer::{
    self as pb, internal_client::InternalClient, raft_transport_client::RaftTransportClient, snapshot_chunk::Part,
};
use tokio::sync::Semaphore;
use tonic::{
    Request, Response, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};

use super::{CHUNK_BYTES, MAX_INTERNAL_BYTES, MAX_MESSAGE_BYTES, convert, metadata, tls::PeerTls};
use crate::{
    identity::Identity,
    snapshots,
    type_config::{Member, Snapshot, SnapshotData, TypeConfig, Vote},
};

/// A message with entries is answered after the peer's durable point.
const ENTRIES_TIMEOUT: Duration = Duration::from_secs(2);

/// Snapshots that are sent at once.
const SNAPSHOTS_OUT: usize = 2;

type Rpc = RPCError<TypeConfig>;
/// A channel that says who calls whom in which cluster.
pub(crate) type PeerChannel = InterceptedService<Channel, Caller>;

/// Dials peers. Clones share their channels.
#[derive(Clone)]
pub(crate) struct Peers {
    shared: Arc<Shared>,
}

struct Shared {
    cluster_id: String,
    node_id: u64,
    incarnation: String,
    tls: PeerTls,
    /// One channel a peer for everything but Raft itself.
    channels: Mutex<HashMap<u64, (String, PeerChannel)>>,
    /// Snapshots on their way out: one a peer is openraft's doing.
    snapshots: Semaphore,
}

/// Adds the metadata of every call.
#[derive(Clone)]
pub(crate) struct Caller {
    cluster: MetadataValue<Ascii>,
    from: MetadataValue<Ascii>,
    to: MetadataValue<Ascii>,
    incarnation: MetadataValue<Ascii>,
}

impl Interceptor for Caller {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let headers = request.metadata_mut();
        headers.insert(metadata::CLUSTER, self.cluster.clone());
        headers.insert(metadata::FROM, self.from.clone());
        headers.insert(metadata::TO, self.to.clone());
        headers.insert(metadata::INCARNATION, self.incarnation.clone());
        Ok(request)
    }
}

impl Peers {
    pub(crate) fn new(identity: &Identity, tls: PeerTls) -> Self {
        let Identity { cluster_id, node_id, incarnation, .. } = identity.clone();
        Self {
            shared: Arc::new(Shared {
                cluster_id,
                node_id,
                incarnation,
                tls,
                channels: Mutex::default(),
                snapshots: Semaphore::new(SNAPSHOTS_OUT),
            }),
        }
    }

    /// A new channel, which connects when it is first used and again after each failure.
    fn dial(&self, id: u64, address: &str) -> Result<PeerChannel, tonic::transport::Error> {
        let channel = endpoint(address)?.tls_config(self.shared.tls.client(id))?.connect_lazy();
        let value = |text: &str| MetadataValue::try_from(text).unwrap_or_else(|_| MetadataValue::from_static("invalid"));
        let Shared { cluster_id, node_id, incarnation, .. } = &*self.shared;
        let caller = Caller { cluster: value(cluster_id), from: (*node_id).into(), to: id.into(), incarnation: value(incarnation) };
        Ok(InterceptedService::new(channel, caller))
    }

    /// The client for everything but Raft itself.
    pub(crate) fn internal(&self, id: u64, address: &str) -> Result<InternalClient<PeerChannel>, Status> {
        let mut channels = self.shared.channels.lock();
        let channel = match channels.get(&id) {
            Some((known, channel)) if known == address => channel.clone(),
            _ => {
                let channel = self.dial(id, address).map_err(|e| Status::unavailable(format!("node {id} at {address}: {e}")))?;
                channels.insert(id, (address.to_owned(), channel.clone()));
                channel
            }
        };
        Ok(InternalClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(MAX_INTERNAL_BYTES))
    }
}

/// How every peer is dialled.
pub(crate) fn endpoint(address: &str) -> Result<Endpoint, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("https://{address}"))?
        .connect_timeout(Duration::from_millis(500))
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(2))
        .keep_alive_timeout(Duration::from_secs(2))
        .keep_alive_while_idle(true))
}

/// The message and what lies under it: tonic says "transport error" for a refused certificate.
pub(crate) fn explain(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = status.source();
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    text
}

/// Whether a call failed before anything was sent: then it has had no effect.
pub(crate) fn never_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(e) = cause {
        if e.is::<tonic::ConnectError>() {
            return true;
        }
        cause = e.source();
    }
    false
}

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &Member) -> Peer {
        Peer { shared: self.shared.clone(), target, client: self.dial(target, &node.raft_addr).map_err(|e| e.to_string()).map(transport) }
    }
}

fn transport(channel: PeerChannel) -> RaftTransportClient<PeerChannel> {
    RaftTransportClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// One connection to one peer. openraft asks for three: entries, heartbeats, snapshots; each dials for itself.
pub(crate) struct Peer {
    shared: Arc<Shared>,
    target: u64,
    client: Result<RaftTransportClient<PeerChannel>, String>,
}

impl Peer {
    fn client(&self) -> Result<RaftTransportClient<PeerChannel>, Unreachable<TypeConfig>> {
        self.client.clone().map_err(Unreachable::from_string)
    }

    /// Runs one unary call within the time that openraft grants it.
    async fn call<T>(
        &self,
        action: RPCTypes,
        option: &RPCOption,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Rpc> {
        let timeout = option.soft_ttl();
        match tokio::time::timeout(timeout, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(from_status(&status)),
            Err(_) => Err(Timeout { action, id: self.shared.node_id, target: self.target, timeout }.into()),
        }
    }
}

fn from_status(status: &Status) -> Rpc {
    if status.code() == tonic::Code::Unavailable {
        Unreachable::from_string(status).into()
    } else {
        NetworkError::from_string(status).into()
    }
}

fn malformed(e: convert::Malformed) -> Rpc {
    NetworkError::from_string(e).into()
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, Rpc> {
        let mut client = self.client()?;
        let option = patience(&rpc, option);
        let response = self.call(RPCTypes::AppendEntries, &option, client.append(convert::append_request_to(&rpc))).await?;
        convert::append_response_from(response).map_err(malformed)
    }

    async fn vote(&mut self, rpc: VoteRequest<TypeConfig>, option: RPCOption) -> Result<VoteResponse<TypeConfig>, Rpc> {
        let mut client = self.client()?;
        let response = self.call(RPCTypes::Vote, &option, client.vote(convert::vote_request_to(&rpc))).await?;
        convert::vote_response_from(&response).map_err(malformed)
    }

    /// The default of this method grants; an unreachable peer must be an error and no grant.
    async fn pre_vote(&mut self, rpc: VoteRequest<TypeConfig>, option: RPCOption) -> Result<VoteResponse<TypeConfig>, Rpc> {
        let mut client = self.client()?;
        let response = self.call(RPCTypes::Vote, &option, client.pre_vote(convert::vote_request_to(&rpc))).await?;
        convert::vote_response_from(&response).map_err(malformed)
    }

    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, Rpc> {
        let mut client = self.client()?;
        let response = self.call(RPCTypes::TransferLeader, &option, client.transfer_leader(convert::transfer_request_to(&req))).await?;
        convert::transfer_response_from(&response).map_err(malformed)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let mut client = self.client()?;
        let call = async {
            // The time that openraft grants is for the transfer, not for the wait.
            let _turn = self.shared.snapshots.acquire().await;
            self.call(RPCTypes::InstallSnapshot, &option, client.install_snapshot(chunks(vote, snapshot))).await
        };
        let response = tokio::select! {
            closed = cancel => return Err(closed.into()),
            response = call => response?,
        };
        let vote =
            response.vote.as_ref().map(convert::vote_from).ok_or_else(|| NetworkError::from_string("malformed snapshot response"))?;
        Ok(SnapshotResponse::new(vote))
    }
}

/// How long an answer is awaited. openraft grants a heartbeat interval, which a slow disk exceeds with many entries; it does not
/// enforce it.
pub(crate) fn patience(rpc: &AppendEntriesRequest<TypeConfig>, option: RPCOption) -> RPCOption {
    if rpc.entries.is_empty() { option } else { RPCOption::new(option.hard_ttl().max(ENTRIES_TIMEOUT)) }
}

/// Header, then the file in pieces. A read error ends the stream early; the receiver then refuses the snapshot.
fn chunks(vote: Vote, snapshot: Snapshot) -> impl futures::Stream<Item = pb::SnapshotChunk> + Send + 'static {
    let header = pb::SnapshotHeader { vote: Some(convert::vote_to(&vote)), ..snapshots::header(&snapshot) };
    let first = futures::stream::iter([pb::SnapshotChunk { part: Some(Part::Header(header)) }]);
    let rest = futures::stream::unfold((snapshot.snapshot, 0), |(data, at)| async move {
        let file = data.file.clone();
        let read = move || {
            let mut buffer = vec![0; CHUNK_BYTES];
            file.read_at(&mut buffer, at).map(|read| {
                buffer.truncate(read);
                buffer
            })
        };
        match tokio::task::spawn_blocking(read).await {
            Ok(Ok(chunk)) if chunk.is_empty() => None,
            Ok(Ok(chunk)) => {
                let next = at + chunk.len() as u64;
                Some((pb::SnapshotChunk { part: Some(Part::Data(chunk.into())) }, (data, next)))
            }
            Ok(Err(e)) => {
                tracing::error!(error = %e, file = %data.path.display(), "snapshot cannot be read");
                None
            }
            Err(_) => None,
        }
    });
    futures::StreamExt::chain(first, rest)
}
