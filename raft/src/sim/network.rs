//! The network between simulated nodes: every message is encoded as for the real one, takes its time, may be lost, and is answered
//! by whoever lives at its address when it arrives.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    ops::Range,
    sync::Arc,
    time::Duration,
};

use openraft::{
    RaftNetworkFactory, RaftNetworkV2,
    errors::{NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Timeout, Unreachable},
    network::{RPCOption, RPCTypes},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse, VoteRequest,
        VoteResponse,
    },
};
use parking_lot::Mutex;
use prost::Message;
use quorumsql_proto::peer as pb;
use tokio::sync::oneshot;

use super::{dice::Dice, node::Node};
use crate::{
    network::{client::patience, convert},
    snapshots,
    type_config::{Member, Snapshot, SnapshotData, TypeConfig, Vote},
};

type Rpc = RPCError<TypeConfig>;

/// All wires. Clones are one network.
#[derive(Clone)]
pub(crate) struct Network(Arc<Mutex<Wires>>);

struct Wires {
    seed: u64,
    nodes: BTreeMap<u64, Arc<Node>>,
    /// From, to: nothing passes in this direction.
    cut: BTreeSet<(u64, u64)>,
    delay: Range<Duration>,
    loss_percent: u64,
    dice: BTreeMap<(u64, u64), Dice>,
    /// The mutant: peers' pre-votes are not asked for but taken as granted, as openraft does without an implementation.
    grants_pre_votes: bool,
}

/// Why there is no answer.
enum Gone {
    /// A message is lost: the caller will wait in vain.
    Silence,
    Refused(&'static str),
}

impl Network {
    pub(crate) fn new(seed: u64, delay: Range<Duration>) -> Self {
        let wires = Wires {
            seed,
            nodes: BTreeMap::new(),
            cut: BTreeSet::new(),
            delay,
            loss_percent: 0,
            dice: BTreeMap::new(),
            grants_pre_votes: false,
        };
        Self(Arc::new(Mutex::new(wires)))
    }

    pub(crate) fn plug(&self, node: &Arc<Node>) {
        self.0.lock().nodes.insert(node.id, node.clone());
    }

    pub(crate) fn unplug(&self, id: u64) {
        self.0.lock().nodes.remove(&id);
    }

    pub(crate) fn node(&self, id: u64) -> Option<Arc<Node>> {
        self.0.lock().nodes.get(&id).cloned()
    }

    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.0.lock().nodes.values().cloned().collect()
    }

    /// Cuts one direction.
    pub(crate) fn cut(&self, from: u64, to: u64) {
        self.0.lock().cut.insert((from, to));
    }

    /// Cuts both directions between every two that are not in one group.
    pub(crate) fn partition(&self, groups: &[&[u64]]) {
        let together = |a: u64, b: u64| groups.iter().any(|group| group.contains(&a) && group.contains(&b));
        let all: BTreeSet<u64> = groups.iter().flat_map(|group| group.iter().copied()).collect();
        for from in &all {
            for to in all.iter().filter(|to| !together(*from, **to)) {
                self.cut(*from, *to);
            }
        }
    }

    pub(crate) fn lose(&self, percent: u64) {
        self.0.lock().loss_percent = percent;
    }

    pub(crate) fn heal(&self) {
        let mut wires = self.0.lock();
        wires.cut.clear();
        wires.loss_percent = 0;
    }

    pub(crate) fn grant_pre_votes(&self) {
        self.0.lock().grants_pre_votes = true;
    }

    /// Whether a message arrives; returns when it does.
    async fn travel(&self, from: u64, to: u64) -> bool {
        let (delay, lost) = {
            let mut wires = self.0.lock();
            let (seed, loss, delay) = (wires.seed, wires.loss_percent, wires.delay.clone());
            let dice = wires.dice.entry((from, to)).or_insert_with(|| Dice::of(seed, &[from, to]));
            (dice.in_range(&delay), dice.percent(loss))
        };
        tokio::time::sleep(delay).await;
        !lost && !self.0.lock().cut.contains(&(from, to))
    }

    /// Sends `request`, lets `serve` answer it in a task of the node at `to`, and brings the answer back. A caller that gives up
    /// stops nothing of this.
    fn round<Q, A, F>(&self, from: u64, to: u64, request: Q, serve: impl FnOnce(Arc<Node>, Q) -> F + Send + 'static) -> Round<A>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
        F: Future<Output = Option<A>> + Send + 'static,
    {
        let (network, bytes) = (self.clone(), request.encode_to_vec());
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            let round = async {
                if !network.travel(from, to).await {
                    return Err(Gone::Silence);
                }
                let node = network.node(to).ok_or(Gone::Refused("connection refused"))?;
                let request = Q::decode(&bytes[..]).map_err(|_| Gone::Refused("malformed request"))?;
                let answer = node.host.spawn(serve(node.clone(), request)).await;
                let answer = answer.map_err(|_| Gone::Refused("connection reset"))?;
                let bytes = answer.ok_or(Gone::Refused("consensus stopped"))?.encode_to_vec();
                if !network.travel(to, from).await {
                    return Err(Gone::Silence);
                }
                A::decode(&bytes[..]).map_err(|_| Gone::Refused("malformed answer"))
            };
            drop(tell.send(round.await));
        });
        Round(told)
    }

    /// A client's write at a follower goes to the leader; `None` = no answer.
    pub(crate) async fn forward(&self, from: u64, to: u64, request: pb::ForwardRequest) -> Option<pb::ForwardResponse> {
        let serve = |node: Arc<Node>, request| async move { node.execute_forwarded(request).await };
        match self.round(from, to, request, serve).0.await {
            Ok(Ok(response)) => Some(response),
            Ok(Err(Gone::Silence)) | Err(_) => std::future::pending().await,
            Ok(Err(Gone::Refused(_))) => None,
        }
    }
}

struct Round<A>(oneshot::Receiver<Result<A, Gone>>);

/// Makes wires for one node.
pub(crate) struct Dialer {
    pub(crate) network: Network,
    pub(crate) from: u64,
}

/// One wire from one node to another.
pub(crate) struct Wire {
    network: Network,
    from: u64,
    to: u64,
}

impl RaftNetworkFactory<TypeConfig> for Dialer {
    type Network = Wire;

    async fn new_client(&mut self, to: u64, _: &Member) -> Wire {
        Wire { network: self.network.clone(), from: self.from, to }
    }
}

impl Wire {
    async fn call<Q, A, F>(
        &self,
        action: RPCTypes,
        timeout: Duration,
        request: Q,
        serve: impl FnOnce(Arc<Node>, Q) -> F + Send + 'static,
    ) -> Result<A, Rpc>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
        F: Future<Output = Option<A>> + Send + 'static,
    {
        let round = async {
            match self.network.round(self.from, self.to, request, serve).0.await {
                Ok(Err(Gone::Silence)) | Err(_) => std::future::pending().await,
                Ok(Err(Gone::Refused(why))) => Err(Unreachable::from_string(why).into()),
                Ok(Ok(answer)) => Ok(answer),
            }
        };
        match tokio::time::timeout(timeout, round).await {
            Ok(answer) => answer,
            Err(_) => Err(Timeout { action, id: self.from, target: self.to, timeout }.into()),
        }
    }
}

fn malformed(e: convert::Malformed) -> Rpc {
    NetworkError::from_string(e).into()
}

/// What openraft answered, if it still runs.
fn answered<T>(result: Result<T, RaftError<TypeConfig>>) -> Option<T> {
    result.ok()
}

impl RaftNetworkV2<TypeConfig> for Wire {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, Rpc> {
        let timeout = patience(&rpc, option).soft_ttl();
        let serve = |node: Arc<Node>, request| async move {
            let response = node.raft.append_entries(convert::append_request_from(request).ok()?).await;
            answered(response).map(|response| convert::append_response_to(&response))
        };
        let answer = self.call(RPCTypes::AppendEntries, timeout, convert::append_request_to(&rpc), serve).await?;
        convert::append_response_from(answer).map_err(malformed)
    }

    async fn vote(&mut self, rpc: VoteRequest<TypeConfig>, option: RPCOption) -> Result<VoteResponse<TypeConfig>, Rpc> {
        let serve = |node: Arc<Node>, request| async move {
            let response = node.raft.vote(convert::vote_request_from(&request).ok()?).await;
            answered(response).map(|response| convert::vote_response_to(&response))
        };
        let answer = self.call(RPCTypes::Vote, option.soft_ttl(), convert::vote_request_to(&rpc), serve).await?;
        convert::vote_response_from(&answer).map_err(malformed)
    }

    async fn pre_vote(&mut self, rpc: VoteRequest<TypeConfig>, option: RPCOption) -> Result<VoteResponse<TypeConfig>, Rpc> {
        if self.network.0.lock().grants_pre_votes {
            return Ok(VoteResponse::new(rpc.vote, None, true));
        }
        let serve = |node: Arc<Node>, request| async move {
            let response = node.raft.pre_vote(convert::vote_request_from(&request).ok()?).await;
            answered(response).map(|response| convert::vote_response_to(&response))
        };
        let answer = self.call(RPCTypes::Vote, option.soft_ttl(), convert::vote_request_to(&rpc), serve).await?;
        convert::vote_response_from(&answer).map_err(malformed)
    }

    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, Rpc> {
        let serve = |node: Arc<Node>, request| async move {
            let response = node.raft.handle_transfer_leader(convert::transfer_request_from(&request).ok()?).await.ok()?;
            Some(convert::transfer_response_to(&response))
        };
        let answer = self.call(RPCTypes::TransferLeader, option.soft_ttl(), convert::transfer_request_to(&req), serve).await?;
        convert::transfer_response_from(&answer).map_err(malformed)
    }

    /// The file itself is not sent: the receiver reads it.
    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let header = pb::SnapshotHeader { vote: Some(convert::vote_to(&vote)), ..snapshots::header(&snapshot) };
        let file = snapshot.snapshot.path.clone();
        let serve = |node: Arc<Node>, header: pb::SnapshotHeader| async move {
            let vote = convert::vote_from(header.vote.as_ref()?);
            let mut incoming = node.snapshots.receive(&header).ok()?;
            incoming.write(&std::fs::read(file).ok()?).ok()?;
            let received = Snapshot { meta: snapshots::meta_of(&header).ok()?, snapshot: incoming.finish().ok()? };
            let response = node.raft.install_full_snapshot(vote, received).await.ok()?;
            Some(pb::SnapshotResponse { vote: Some(convert::vote_to(&response.vote)) })
        };
        let call = self.call(RPCTypes::InstallSnapshot, option.soft_ttl(), header, serve);
        let answer = tokio::select! {
            biased;
            closed = cancel => return Err(closed.into()),
            answer = call => answer?,
        };
        let vote = answer.vote.as_ref().map(convert::vote_from).ok_or_else(|| NetworkError::from_string("malformed snapshot response"))?;
        Ok(SnapshotResponse::new(vote))
    }
}
