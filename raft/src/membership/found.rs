//! `init` and `join`: what makes an empty data directory a node.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use quorumsql_proto::{
    log as log_pb,
    peer::{self as pb, internal_client::InternalClient},
};
use tonic::{Code, transport::ClientTlsConfig};

use super::{Token, admit::now_ms};
use crate::{
    command::{Channel, Origin, RequestId, TableRows, Validator, Value},
    core::{Core, Peering, create_log, left},
    error::StartError,
    handle::{RaftOptions, on_own_runtime},
    identity::{Identity, Layout, new_uuid},
    network::{
        client::{endpoint, explain},
        tls::{Authority, Bundle, KeyRequest, PinnedAuthority, fingerprint},
    },
    proposer::CommandAnswer,
    state_machine::{ApplyOutcome, ApplyResult},
    tables,
    type_config::Member,
};

/// Forming a cluster of one takes some hundred milliseconds.
const INIT_TIMEOUT: Duration = Duration::from_secs(20);
/// A join is tried again for so long while the cluster has no leader.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The token that `init` prints.
const FIRST_TOKEN_TTL: Duration = Duration::from_secs(3600);

/// A row that the first entry of a cluster puts into a replicated table (in MEMORY, RUNTIME and DISK where it has layers).
#[derive(Clone, PartialEq, Debug)]
pub struct SeedRow {
    /// Visible table name, e.g. `mysql_users`; in `node_overrides` (`name`, `value`) a row is the first node's.
    pub table: String,
    /// Columns that are given; the others take their defaults.
    pub columns: Vec<String>,
    /// Values, as many as columns.
    pub values: Vec<Value>,
}

/// What `init` made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InitReport {
    /// UUID of the new cluster.
    pub cluster_id: String,
    /// Always 1.
    pub node_id: u64,
    /// Always 1.
    pub slot: u8,
    /// A voter token for the second node.
    pub first_token: String,
}

/// What `join` got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinReport {
    /// The cluster.
    pub cluster_id: String,
    /// This node's id.
    pub node_id: u64,
    /// This node's slot.
    pub slot: u8,
}

/// Makes a new cluster of one node in an empty data directory.
///
/// # Errors
/// When the directory is not empty, or storage fails.
pub async fn init(options: &RaftOptions, seed: Vec<SeedRow>) -> Result<InitReport, StartError> {
    refuse_formed(options)?;
    let options = options.clone();
    on_own_runtime(async move { found(options, seed).await }).await
}

/// Enters the cluster that gave `token`, through the member at `peer` (`host:6035`).
///
/// With `replaces`, the node takes that member's place once it has caught up, in one change: it may have its name and address, and
/// the old one, dead or alive, is removed.
///
/// # Errors
/// When the directory is not empty, the token is refused, `replaces` is no member, or nobody answers.
pub async fn join(options: &RaftOptions, token: &str, peer: &str, replaces: Option<u64>) -> Result<JoinReport, StartError> {
    refuse_formed(options)?;
    let token = Token::decode(token).ok_or_else(|| StartError::Join("this is no join token".into()))?;
    let (options, peer) = (options.clone(), peer.to_owned());
    on_own_runtime(async move { enter(options, token, peer, replaces).await }).await
}

fn refuse_formed(options: &RaftOptions) -> Result<(), StartError> {
    match Identity::read(&Layout::new(&options.data_dir)) {
        Err(StartError::Empty) => Ok(()),
        Err(e) => Err(e),
        Ok(Identity { cluster_id, node_id, .. }) => Err(StartError::Formed { cluster_id, node_id }),
    }
}

async fn found(options: RaftOptions, seed: Vec<SeedRow>) -> Result<InitReport, StartError> {
    let layout = Layout::new(&options.data_dir);
    layout.create().map_err(storage)?;
    let identity = Identity {
        cluster_id: new_uuid().map_err(storage)?,
        node_id: 1,
        slot: 1,
        name: options.name.clone(),
        incarnation: new_uuid().map_err(storage)?,
    };
    let authority = Authority::create(&identity.cluster_id).map_err(certificate)?;
    let token = Token::new(&identity.cluster_id, fingerprint(authority.cert_pem())?).map_err(|e| StartError::Storage(e.to_string()))?;
    certify(&authority, &identity, &options)?.write(&layout).map_err(storage)?;

    let core = Core::start(options.clone(), identity.clone(), Arc::new(NoRules), Peering::Alone).await?;
    let formed = form(&core, &options, &seed, &token).await;
    core.shutdown().await;
    formed?;
    identity.write(&layout).map_err(storage)?;
    let first_token = token.encode().ok_or_else(|| StartError::Identity("cluster id".into()))?;
    tracing::info!(cluster = identity.cluster_id, name = identity.name, "cluster created");
    Ok(InitReport { cluster_id: identity.cluster_id, node_id: 1, slot: 1, first_token })
}

fn certify(authority: &Authority, identity: &Identity, options: &RaftOptions) -> Result<Bundle, StartError> {
    let (peer, server) = (KeyRequest::new().map_err(certificate)?, KeyRequest::new().map_err(certificate)?);
    Ok(Bundle {
        ca_pem: authority.cert_pem().to_owned(),
        ca_key_pem: Some(authority.key_pem().to_owned()),
        peer_cert_pem: authority.issue_peer(&peer.request_pem, identity.node_id, &identity.cluster_id).map_err(certificate)?,
        peer_key_pem: peer.key_pem,
        server_cert_pem: authority.issue_server(&server.request_pem, &identity.name, &options.advertise).map_err(certificate)?,
        server_key_pem: server.key_pem,
    })
}

/// Elects the only node and proposes the cluster's first entries.
async fn form(core: &Core, options: &RaftOptions, seed: &[SeedRow], token: &Token) -> Result<(), StartError> {
    let failed = |e: &dyn std::fmt::Display| StartError::Consensus(e.to_string());
    let deadline = Instant::now() + INIT_TIMEOUT;
    let member = Member { raft_addr: options.advertise.clone(), name: options.name.clone() };
    core.raft.initialize(BTreeMap::from([(1_u64, member)])).await.map_err(|e| failed(&e))?;
    core.raft.wait(Some(INIT_TIMEOUT)).current_leader(1, "the first node leads").await.map_err(|e| failed(&e))?;
    propose(core, bootstrap(core, seed)?, deadline).await?;
    let expires_ms = u64::try_from(now_ms()).unwrap_or(0) + u64::try_from(FIRST_TOKEN_TTL.as_millis()).unwrap_or(0);
    let token = log_pb::JoinToken { token_sha256: token.secret_sha256().to_vec().into(), voter: true, expires_ms };
    propose(core, log_pb::log_entry::Op::JoinToken(token), deadline).await
}

async fn propose(core: &Core, op: log_pb::log_entry::Op, deadline: Instant) -> Result<(), StartError> {
    let client = random_id()?;
    let origin = Origin { actor: "init".into(), channel: Channel::Internal, node: 1, client_addr: String::new() };
    loop {
        match core.proposer.command(RequestId { client, seq: 1 }, origin.clone(), op.clone(), left(deadline)).await {
            CommandAnswer::Applied(ApplyResult { outcome: ApplyOutcome::Ok, .. }) => return Ok(()),
            CommandAnswer::Applied(result) => return Err(StartError::Consensus(result.message)),
            CommandAnswer::Rejected(rejection) | CommandAnswer::Unknown(rejection) => return Err(StartError::Consensus(rejection.message)),
            CommandAnswer::NotLeader if left(deadline).is_zero() => {
                return Err(StartError::Consensus("the first node does not lead".into()));
            }
            CommandAnswer::NotLeader => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

fn bootstrap(core: &Core, seed: &[SeedRow]) -> Result<log_pb::log_entry::Op, StartError> {
    let node = log_pb::NodeAlloc {
        name: core.options.name.clone(),
        raft_addr: core.options.advertise.clone(),
        build: core.options.build.clone(),
        incarnation: core.identity.incarnation.clone(),
        voter: true,
        overrides: seed.iter().filter(|row| row.table == OVERRIDES).map(override_of).collect::<Result<_, _>>()?,
        ..Default::default()
    };
    Ok(log_pb::log_entry::Op::Bootstrap(log_pb::Bootstrap {
        cluster_id: core.identity.cluster_id.clone(),
        node_id: 1,
        node: Some(node),
        tables: seed_tables(seed)?,
    }))
}

const OVERRIDES: &str = "node_overrides";

fn override_of(row: &SeedRow) -> Result<log_pb::Override, StartError> {
    let text = |names: [&str; 2]| {
        let found = row.columns.iter().zip(&row.values).find(|(column, _)| names.contains(&column.as_str()));
        match found {
            Some((_, Value::Text(text))) => Ok(text.clone()),
            _ => Err(StartError::Options(format!("seed row of {OVERRIDES} has no text in column {}", names[0]))),
        }
    };
    Ok(log_pb::Override { name: text(["name", "variable_name"])?, value: text(["value", "variable_value"])? })
}

/// All variables with their defaults (or what the seed says), and the seed's rows by table.
fn seed_tables(seed: &[SeedRow]) -> Result<Vec<log_pb::TableChange>, StartError> {
    let mut variables: BTreeMap<String, Value> =
        tables::variables().iter().map(|variable| (variable.name.to_string(), Value::Text(variable.default.to_string()))).collect();
    let mut changes: Vec<log_pb::TableChange> = Vec::new();
    for row in seed.iter().filter(|row| row.table != OVERRIDES) {
        if row.columns.len() != row.values.len() || tables::table(&row.table).is_none() {
            return Err(StartError::Options(format!("seed row of {} does not fit a table", row.table)));
        }
        if let ("global_variables", [Value::Text(name), value]) = (row.table.as_str(), &row.values[..]) {
            variables.insert(name.clone(), value.clone());
            continue;
        }
        let values = log_pb::RowChange { old: Vec::new(), new: row.values.iter().map(value_to).collect() };
        match changes.iter_mut().find(|change| change.table == row.table && change.columns == row.columns) {
            Some(change) => change.rows.push(values),
            None => changes.push(log_pb::TableChange {
                table: row.table.clone(),
                columns: row.columns.clone(),
                rows: vec![values],
                ..Default::default()
            }),
        }
    }
    let rows = variables
        .into_iter()
        .map(|(name, value)| log_pb::RowChange { old: Vec::new(), new: vec![value_to(&Value::Text(name)), value_to(&value)] });
    changes.push(log_pb::TableChange {
        table: "global_variables".into(),
        columns: vec!["variable_name".into(), "variable_value".into()],
        rows: rows.collect(),
        ..Default::default()
    });
    Ok(changes)
}

fn value_to(value: &Value) -> log_pb::Value {
    use log_pb::value::Kind;
    let kind = match value {
        Value::Null => None,
        Value::Integer(v) => Some(Kind::Integer(*v)),
        Value::Real(v) => Some(Kind::Real(*v)),
        Value::Text(v) => Some(Kind::Text(v.clone())),
        Value::Blob(v) => Some(Kind::Blob(v.clone().into())),
    };
    log_pb::Value { kind }
}

async fn enter(options: RaftOptions, token: Token, peer: String, replaces: Option<u64>) -> Result<JoinReport, StartError> {
    let layout = Layout::new(&options.data_dir);
    let (peer_key, server_key) = (KeyRequest::new().map_err(certificate)?, KeyRequest::new().map_err(certificate)?);
    let incarnation = new_uuid().map_err(storage)?;
    let request = pb::JoinRequest {
        secret: token.secret.to_vec().into(),
        name: options.name.clone(),
        raft_addr: options.advertise.clone(),
        build: options.build.clone(),
        incarnation: incarnation.clone(),
        peer_csr: peer_key.request_pem,
        server_csr: server_key.request_pem,
        feature_level: crate::state_machine::FEATURE_LEVEL,
        protocol: 1,
        request_id: random_id()?.to_vec().into(),
        replaces: replaces.unwrap_or(0),
    };
    let answer = ask(&request, &token, &peer).await?;
    if answer.cluster_id != token.cluster_id || fingerprint(&answer.ca_pem)? != token.authority_sha256 {
        return Err(StartError::Join("the answer is not that of the token's cluster".into()));
    }
    let slot = u8::try_from(answer.slot)
        .ok()
        .filter(|slot| (1..=127).contains(slot))
        .ok_or_else(|| StartError::Join("no valid slot given".into()))?;
    let identity = Identity { cluster_id: answer.cluster_id, node_id: answer.node_id, slot, name: options.name, incarnation };
    let bundle = Bundle {
        ca_pem: answer.ca_pem,
        ca_key_pem: Some(answer.ca_key_pem).filter(|key| !key.is_empty()),
        peer_cert_pem: answer.peer_cert_pem,
        peer_key_pem: peer_key.key_pem,
        server_cert_pem: answer.server_cert_pem,
        server_key_pem: server_key.key_pem,
    };
    layout.create().and_then(|()| bundle.write(&layout)).map_err(storage)?;
    create_log(&layout, options.log_store, &identity).await?;
    identity.write(&layout).map_err(storage)?;
    tracing::info!(cluster = identity.cluster_id, node = identity.node_id, slot, name = identity.name, "joined");
    Ok(JoinReport { cluster_id: identity.cluster_id, node_id: identity.node_id, slot })
}

/// Asks until there is a leader that decides. A repetition has the same request id and gets the same node id.
async fn ask(request: &pb::JoinRequest, token: &Token, peer: &str) -> Result<pb::JoinResponse, StartError> {
    let tls = |e: tonic::transport::Error| StartError::Join(format!("{peer}: {e}"));
    let verifier = Arc::new(PinnedAuthority::new(token.authority_sha256, &token.cluster_id)?);
    let channel = endpoint(peer).map_err(tls)?.tls_config_with_verifier(ClientTlsConfig::new(), verifier).map_err(tls)?.connect_lazy();
    let mut client = InternalClient::new(channel);
    let deadline = Instant::now() + JOIN_TIMEOUT;
    loop {
        let status = match tokio::time::timeout(left(deadline), client.join(request.clone())).await {
            Ok(Ok(answer)) => return Ok(answer.into_inner()),
            Ok(Err(status)) => status,
            Err(_) => return Err(StartError::Join(format!("{peer} does not answer"))),
        };
        let again = matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled);
        if !again || left(deadline) < Duration::from_secs(1) {
            return Err(StartError::Join(format!("{peer}: {}", explain(&status))));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn random_id() -> Result<[u8; 16], StartError> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|e| StartError::Storage(e.to_string()))?;
    Ok(id)
}

fn storage(e: std::io::Error) -> StartError {
    StartError::Storage(e.to_string())
}

fn certificate(e: rcgen::Error) -> StartError {
    StartError::Tls(e.to_string())
}

/// Nothing is loaded to RUNTIME while a cluster is made.
struct NoRules;

impl Validator for NoRules {
    fn validate(&self, _module: &str, _tables: &[TableRows]) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }
}
