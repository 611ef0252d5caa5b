//! A node asks to join: the leader's side.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use quorumsql_proto::{log as log_pb, peer as pb};
use sha2::{Digest, Sha256};
use tonic::Status;

use crate::{
    command::{Channel, Origin, RequestId},
    core::{Core, left},
    network::tls::Authority,
    proposer::CommandAnswer,
    state_machine::{ApplyOutcome, ApplyResult},
    type_config::Member,
};

/// The whole of a join, on the leader.
const DEADLINE: Duration = Duration::from_secs(8);
/// After a refusal the next join waits this long: a token can't be guessed by trying.
const PENALTY: Duration = Duration::from_millis(250);
/// Joins that wait while another is decided; further ones are told to come again.
pub(crate) const WAITING_JOINS: usize = 16;
const MAX_NAME: usize = 64;
const MAX_TEXT: usize = 8 << 10;

/// Lets the node in if its token is good. A follower asks the leader, once.
pub(crate) async fn admit(core: &Arc<Core>, request: pb::JoinRequest, forwarded: bool) -> Result<pb::JoinResponse, Status> {
    check(&request)?;
    let crowded = || Status::unavailable("too many nodes want to join at once; try again");
    let _waiting = core.joins.try_acquire().map_err(|_| crowded())?;
    let turn = tokio::time::timeout(DEADLINE, core.join_turn.lock()).await.map_err(|_| crowded())?;
    let metrics = core.metrics();
    let leader = metrics.current_leader.ok_or_else(|| Status::unavailable("the cluster has no leader now"))?;
    if leader != core.identity.node_id {
        if forwarded {
            return Err(Status::unavailable("the leader has changed"));
        }
        drop(turn);
        let address = metrics.membership_config.get_node(&leader).map(|node| node.raft_addr.clone());
        let address = address.ok_or_else(|| Status::unavailable("the leader is not known here"))?;
        let answer = tokio::time::timeout(DEADLINE, core.peers.internal(leader, &address)?.join(request)).await;
        return answer
            .map_err(|_| Status::deadline_exceeded(format!("leader node {leader} does not answer")))?
            .map(tonic::Response::into_inner);
    }
    let result = lead(core, &request).await;
    if result.as_ref().is_err_and(|status| status.code() == tonic::Code::PermissionDenied) {
        tokio::time::sleep(PENALTY).await;
    }
    drop(turn);
    result
}

fn check(request: &pb::JoinRequest) -> Result<(), Status> {
    let texts = [&request.build, &request.incarnation, &request.peer_csr, &request.server_csr, &request.raft_addr];
    let valid_address = request.raft_addr.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    let valid = request.secret.len() == 32
        && request.request_id.len() == 16
        && (1..=MAX_NAME).contains(&request.name.chars().count())
        && !request.name.chars().any(char::is_control)
        && texts.iter().all(|text| text.len() <= MAX_TEXT)
        && valid_address;
    if valid { Ok(()) } else { Err(Status::invalid_argument("malformed join request")) }
}

async fn lead(core: &Arc<Core>, request: &pb::JoinRequest) -> Result<pb::JoinResponse, Status> {
    let deadline = Instant::now() + DEADLINE;
    let authority = Authority::load(&core.layout).map_err(|_| Status::unavailable("this node does not hold the cluster's CA key"))?;
    let token_sha256: [u8; 32] = Sha256::digest(&request.secret).into();
    refuse_expired(core, &token_sha256)?;
    let given = allocate(core, request, token_sha256, deadline).await?;
    let (node_id, voter) = (given.node_id, given.message == "voter");
    let failed = |e: rcgen::Error| Status::internal(format!("certificate: {e}"));
    let cluster_id = &core.identity.cluster_id;
    let response = pb::JoinResponse {
        cluster_id: cluster_id.clone(),
        node_id,
        slot: given.slot.into(),
        voter,
        ca_pem: authority.cert_pem().to_owned(),
        peer_cert_pem: authority.issue_peer(&request.peer_csr, node_id, cluster_id).map_err(failed)?,
        server_cert_pem: authority.issue_server(&request.server_csr, &request.name, &request.raft_addr).map_err(failed)?,
        ca_key_pem: if voter { authority.key_pem().to_owned() } else { String::new() },
    };
    let member = Member { raft_addr: request.raft_addr.clone(), name: request.name.clone() };
    match tokio::time::timeout(left(deadline), super::add_learner(core, node_id, member)).await {
        Ok(Ok(())) => {}
        // The node is allocated: whoever leads adds it.
        Ok(Err(reason)) => tracing::warn!(node = node_id, reason, "a new node could not be added to the membership yet"),
        Err(_) => tracing::warn!(node = node_id, "a new node could not be added to the membership in time"),
    }
    tracing::info!(node = node_id, slot = given.slot, name = request.name, raft_addr = request.raft_addr, voter, "node joined");
    Ok(response)
}

/// Apply compares with the proposer's clock too; here a token that is too old is not even proposed.
fn refuse_expired(core: &Core, token_sha256: &[u8; 32]) -> Result<(), Status> {
    let found = core.query(|connection| {
        let mut statement = connection.prepare_cached("SELECT expires_ms FROM join_tokens WHERE token_sha256 = ?1")?;
        let mut rows = statement.query([&token_sha256[..]])?;
        rows.next()?.map(|row| row.get::<_, i64>(0)).transpose()
    });
    match found {
        Ok(Some(expires_ms)) if expires_ms >= now_ms() => Ok(()),
        Ok(Some(_)) => Err(Status::permission_denied("join token has expired; create another one with quorumsql token create")),
        Ok(None) => Err(Status::permission_denied("join token is unknown; create one with quorumsql token create")),
        Err(e) => Err(Status::unavailable(format!("join tokens cannot be read: {e}"))),
    }
}

async fn allocate(core: &Core, request: &pb::JoinRequest, token_sha256: [u8; 32], deadline: Instant) -> Result<ApplyResult, Status> {
    let client = request.request_id[..].try_into().map_err(|_| Status::invalid_argument("request id"))?;
    let op = log_pb::NodeAlloc {
        name: request.name.clone(),
        raft_addr: request.raft_addr.clone(),
        build: request.build.clone(),
        incarnation: request.incarnation.clone(),
        token_sha256: token_sha256.to_vec().into(),
        voter: true,
        replaces: request.replaces,
        ..Default::default()
    };
    let origin = Origin { actor: "join".into(), channel: Channel::Internal, node: core.identity.node_id, client_addr: String::new() };
    let op = log_pb::log_entry::Op::NodeAlloc(op);
    match core.proposer.command(RequestId { client, seq: 1 }, origin, op, left(deadline)).await {
        CommandAnswer::Applied(result) if result.outcome == ApplyOutcome::Ok => Ok(result),
        CommandAnswer::Applied(result) => Err(Status::permission_denied(result.message)),
        CommandAnswer::Rejected(rejection) => Err(Status::failed_precondition(rejection.message)),
        CommandAnswer::Unknown(rejection) => Err(Status::unavailable(rejection.message)),
        CommandAnswer::NotLeader => Err(Status::unavailable("the leader has changed")),
    }
}

/// This node's wall clock.
pub(crate) fn now_ms() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}
