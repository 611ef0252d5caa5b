//! Everything of consensus that runs: storage, openraft, proposer, peers, and the tasks around them.
//!
//! ```text
//!   Consensus ─► Core ─┬─ submit: leader? proposer.execute : ForwardSql to the leader
//!                      ├─ raft (openraft) ─► LogStore ─► writer thread
//!                      │                 └─► Machine ─► StateMachine (state.db)
//!                      ├─ network::server ◄── peers ──► network::client
//!                      └─ tasks: leadership, storage watch, members (learners, promotion), reports
//! ```
//! All of it lives on a tokio runtime of its own: a data plane that uses every core must not cost a leader its heartbeat.

mod barrier;
mod config_state;
pub(crate) mod leadership;
mod reports;
mod status;
pub(crate) mod submit;
mod transfer;

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use bytes::Bytes;
use openraft::{
    Config, SnapshotPolicy,
    async_runtime::WatchReceiver,
    errors::{ClientWriteError, ForwardReason, ForwardToLeader},
    impls::ProgressResponder,
};
use parking_lot::Mutex;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    task::JoinHandle,
};
use tracing::Instrument;

pub(crate) use self::reports::{Contact, Reports};
use crate::{
    command::Validator,
    divergence::{self, Divergence},
    error::StartError,
    handle::{LogStoreKind, RaftOptions, Timings},
    identity::{Identity, Layout},
    log_store::{LogStore, REMEDY},
    machine::Machine,
    membership::{self, roster, roster::Roster},
    network::{
        client::Peers,
        refusals::Refusals,
        server,
        tls::{PeerTls, fingerprint},
    },
    proposer::{Log, ProposeError, Proposer},
    snapshots::Snapshots,
    state_machine::{ApplyResult, StateMachine, StorageError},
    type_config::{Metrics, Payload, Raft, TypeConfig},
};

/// Consensus of this node.
pub(crate) struct Core {
    pub(crate) identity: Identity,
    pub(crate) options: RaftOptions,
    pub(crate) layout: Layout,
    pub(crate) raft: Raft,
    pub(crate) state: Arc<StateMachine>,
    pub(crate) log: LogStore,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) peers: Peers,
    tls: PeerTls,
    pub(crate) proposer: Proposer,
    pub(crate) contact: Contact,
    pub(crate) reports: Reports,
    /// `runtime_index` whose objects are live here; `None` = nobody builds such objects in this process.
    pub(crate) live: watch::Sender<Option<u64>>,
    /// Set = no part in consensus any more, and why.
    pub(crate) stopped: watch::Sender<Option<String>>,
    /// What becomes of doubts about this node's tables.
    pub(crate) divergence: Divergence,
    /// One change of membership at a time.
    pub(crate) membership_turn: tokio::sync::Mutex<()>,
    /// One join at a time.
    pub(crate) join_turn: tokio::sync::Mutex<()>,
    /// Reads `cluster_nodes` and `join_tokens`.
    rows: Mutex<Option<rusqlite::Connection>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Rows of `cluster_nodes`.
    pub(crate) roster: Arc<Roster>,
    /// It is no member any more, and peers do not listen to it.
    pub(crate) expelled: AtomicBool,
    /// Who was turned away at the peer port.
    pub(crate) refusals: Arc<Refusals>,
    /// Joins that may wait for their turn.
    pub(crate) joins: Semaphore,
}

/// Whether the peer port is opened: not while a new cluster is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peering {
    Listen,
    Alone,
}

impl Core {
    /// Opens storage in the order of rules R1–R4 and starts everything.
    pub(crate) async fn start(
        options: RaftOptions,
        identity: Identity,
        validator: Arc<dyn Validator>,
        peering: Peering,
    ) -> Result<Arc<Self>, StartError> {
        let layout = Layout::new(&options.data_dir);
        let tls = PeerTls::load(&layout, &identity.cluster_id)?;
        let listener = match peering {
            Peering::Listen => Some(listen(&options.peer_listen).await?),
            Peering::Alone => None,
        };
        if peering == Peering::Listen && !layout.has_log() {
            // It has forgotten its vote.
            let Identity { cluster_id, node_id, incarnation, .. } = &identity;
            return Err(StartError::Removed(roster::incarnation_text(cluster_id, *node_id, incarnation)));
        }
        let (log, state, snapshots) = open_storage(&layout, &options, &identity).await?;
        let (divergence, doubts) = Divergence::new();
        let machine = Machine::new(state.clone(), snapshots.clone(), Some(log.progress())).judged_by(divergence.clone());
        snapshot_if_ahead(&machine, &log).await?;

        let peers = Peers::new(&identity, tls.clone());
        let (_, membership) = machine.applied().map_err(|e| StartError::Storage(e.to_string()))?;
        membership::refuse_expelled(&layout, &identity, &membership, &peers).await?;
        let config = Arc::new(config(&identity.cluster_id, &options.timings)?);
        let raft = Raft::build(identity.node_id, config, peers.clone(), log.clone(), machine)
            .await
            .map_err(|e| StartError::Consensus(e.to_string()))?;
        let proposer = Proposer::start(state.clone(), Arc::new(RaftLog { raft: raft.clone() }), validator);
        let core = Arc::new(Self {
            identity,
            options,
            layout,
            raft,
            state,
            log,
            snapshots,
            peers,
            tls: tls.clone(),
            proposer,
            contact: Contact::new(),
            reports: Reports::default(),
            live: watch::Sender::new(None),
            stopped: watch::Sender::new(None),
            divergence,
            membership_turn: tokio::sync::Mutex::default(),
            join_turn: tokio::sync::Mutex::default(),
            rows: Mutex::new(None),
            tasks: Mutex::default(),
            roster: Arc::default(),
            expelled: AtomicBool::new(false),
            refusals: Arc::default(),
            joins: Semaphore::new(membership::WAITING_JOINS),
        });
        core.roster.refresh(&core).map_err(|e| StartError::Storage(format!("state.db: {e}")))?;
        let mut tasks = Vec::new();
        if let Some(listener) = listener {
            tasks.push(server::serve(core.clone(), &tls, listener)?);
        }
        core.raft.run();
        tasks.push(tokio::spawn(leadership::run(core.clone())));
        tasks.push(tokio::spawn(leadership::watch_storage(core.clone())));
        tasks.push(tokio::spawn(leadership::bound_log(core.clone())));
        tasks.push(tokio::spawn(divergence::run(core.clone(), doubts)));
        tasks.push(tokio::spawn(reports::run(core.clone())));
        tasks.push(tokio::spawn(membership::supervise(core.clone())));
        *core.tasks.lock() = tasks;
        Ok(core)
    }

    /// Nodes of the membership that is applied here.
    pub(crate) fn applied_members(&self) -> Vec<u64> {
        let membership = crate::network::convert::decode_membership(&self.state.applied().membership);
        membership.map(|membership| membership.nodes().map(|(id, _)| *id).collect()).unwrap_or_default()
    }

    pub(crate) fn metrics(&self) -> Metrics {
        self.raft.metrics().borrow_watched().clone()
    }

    /// Ends this node's part in consensus for good (S10); the process and its data plane go on.
    pub(crate) fn stop(&self, reason: &str) {
        let first = self.stopped.send_if_modified(|stopped| {
            let first = stopped.is_none();
            if first {
                *stopped = Some(reason.to_owned());
            }
            first
        });
        if first {
            tracing::error!(reason, "consensus stopped on this node; its data plane goes on with the configuration it has");
            self.proposer.lead(None);
            let raft = self.raft.clone();
            tokio::spawn(async move { raft.shutdown().await });
        }
    }

    /// Hands leadership over if this node has it, and lets others have it from now on.
    pub(crate) async fn stand_down(&self) {
        self.raft.runtime_config().elect(false);
        membership::transfer::before_stop(self).await;
    }

    /// Hands leadership over if this node has it, then ends everything in order.
    pub(crate) async fn shutdown(&self) {
        self.stand_down().await;
        self.proposer.lead(None);
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        let end = async {
            if self.raft.shutdown().await.is_err() {
                tracing::warn!("openraft ended with a panic");
            }
            if let Err(e) = self.log.close().await {
                tracing::debug!(error = %e, "log writer had stopped before");
            }
        };
        // A disk that hangs must not keep the process.
        if tokio::time::timeout(self.options.timings.storage_timeout, end).await.is_err() {
            tracing::error!("storage did not end in time; what was acknowledged is durable");
        }
    }

    /// SHA-256 of the cluster's CA certificate, for join tokens.
    pub(crate) fn ca_fingerprint(&self) -> Result<[u8; 32], StartError> {
        fingerprint(self.tls.ca_pem())
    }

    /// Runs a query on `state.db`.
    pub(crate) fn query<T, E: From<rusqlite::Error>>(&self, query: impl FnOnce(&rusqlite::Connection) -> Result<T, E>) -> Result<T, E> {
        let mut rows = self.rows.lock();
        let connection = match rows.take() {
            Some(connection) => connection,
            None => open_reader(&self.layout)?,
        };
        let result = query(&connection);
        *rows = Some(connection);
        result
    }
}

/// A connection that cannot change `state.db`; its TEMP tables can be written.
pub(crate) fn open_reader(layout: &Layout) -> rusqlite::Result<rusqlite::Connection> {
    let flags =
        rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX | rusqlite::OpenFlags::SQLITE_OPEN_URI;
    let connection = rusqlite::Connection::open_with_flags(layout.state(), flags)?;
    connection.busy_timeout(Duration::from_secs(1))?;
    Ok(connection)
}

async fn listen(address: &str) -> Result<TcpListener, StartError> {
    let failed = |e: io::Error| StartError::Listen { address: address.to_owned(), reason: e.to_string() };
    TcpListener::bind(address).await.map_err(failed)
}

type Storage = (LogStore, Arc<StateMachine>, Arc<Snapshots>);

async fn open_storage(layout: &Layout, options: &RaftOptions, identity: &Identity) -> Result<Storage, StartError> {
    let storage = |e: &dyn std::fmt::Display| StartError::Storage(e.to_string());
    layout.create().map_err(|e| storage(&e))?;
    let (layout, kind) = (layout.clone(), options.log_store);
    let raft = layout.raft();
    let owner = owner(identity);
    let (cluster_id, node_id) = (identity.cluster_id.clone(), identity.node_id);
    let open = move || {
        divergence::refuse_contradicted(layout.root(), node_id)?;
        let log = LogStore::open(&layout.raft(), kind, &owner)?;
        let state = StateMachine::open(&layout.state()).map_err(|e| match e {
            StorageError::Altered { .. } => StartError::Diverged(format!("{e}; replace this node, or restore a backup")),
            e => StartError::Storage(e.to_string()),
        })?;
        let snapshots = Snapshots::open(&layout.snapshots()).map_err(|e| StartError::Storage(e.to_string()))?;
        check_cluster(&layout, &cluster_id)?;
        Ok((log, Arc::new(state), Arc::new(snapshots)))
    };
    // sled panics where its file contradicts itself.
    tokio::task::spawn_blocking(open).await.map_err(|e| StartError::Storage(format!("{}: {e}{REMEDY}", raft.display())))?
}

/// How a log names the node to which it belongs.
pub(crate) fn owner(identity: &Identity) -> String {
    format!("cluster {} node {} incarnation {}", identity.cluster_id, identity.node_id, identity.incarnation)
}

/// Makes the log of a node that has just joined: a node that has an identity and no log has lost its disk.
pub(crate) async fn create_log(layout: &Layout, kind: LogStoreKind, identity: &Identity) -> Result<(), StartError> {
    let (directory, owner) = (layout.raft(), owner(identity));
    let open = tokio::task::spawn_blocking(move || LogStore::open(&directory, kind, &owner));
    let log = open.await.map_err(|e| StartError::Storage(e.to_string()))??;
    log.close().await.map_err(|e| StartError::Storage(e.to_string()))
}

/// The rows must be those of the cluster of the `identity` file; a node that has applied nothing yet has none.
fn check_cluster(layout: &Layout, expected: &str) -> Result<(), StartError> {
    let read = |connection: rusqlite::Connection| connection.query_row("SELECT cluster_id FROM raft_meta", [], |row| row.get(0));
    let found: String = open_reader(layout).and_then(read).map_err(|e| StartError::Storage(format!("state.db: {e}")))?;
    if found.is_empty() || found == expected {
        return Ok(());
    }
    Err(StartError::Identity(format!("state.db belongs to cluster {found}, the identity file says {expected}")))
}

/// R4: openraft purges its log up to what is applied, which is allowed only up to a snapshot.
pub(crate) async fn snapshot_if_ahead(machine: &Machine, log: &LogStore) -> Result<(), StartError> {
    let storage = |e: io::Error| StartError::Storage(e.to_string());
    let (applied, _) = machine.applied().map_err(storage)?;
    if applied > log.last() && machine.snapshots().current().is_none_or(|current| current.meta.last_log_id < applied) {
        tracing::warn!(?applied, last = ?log.last(), "state.db is ahead of the raft log: writing a snapshot first");
        machine.snapshot().await.map_err(storage)?;
    }
    Ok(())
}

/// raft-and-storage.md 1.5; R1 is `enable_leader_restore`.
pub(crate) fn config(cluster_id: &str, timings: &Timings) -> Result<Config, StartError> {
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let config = Config {
        cluster_name: cluster_id.to_owned(),
        heartbeat_interval: ms(timings.heartbeat),
        election_timeout_min: ms(timings.election_min),
        election_timeout_max: ms(timings.election_max),
        enable_pre_vote: Some(true),
        enable_leader_restore: Some(false),
        quorum_loss_probe_interval: Some(2 * ms(timings.election_max)),
        install_snapshot_timeout: 30_000,
        max_payload_entries: 256,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(10_000),
        replication_lag_threshold: 20_000,
        max_in_snapshot_log_to_keep: 10_000,
        backoff: "100ms 200ms 400ms ...1s".into(),
        ..Config::default()
    };
    config.validate().map_err(|e| StartError::Options(format!("raft timings: {e}")))
}

/// The proposer's way into openraft.
pub(crate) struct RaftLog {
    pub(crate) raft: Raft,
}

impl Log for RaftLog {
    async fn propose(&self, term: u64, entries: Vec<Bytes>) -> Vec<Result<ApplyResult, ProposeError>> {
        let span = tracing::info_span!("raft.propose", raft.term = term, raft.entries = entries.len());
        self.append_all(term, entries).instrument(span).await
    }
}

impl RaftLog {
    async fn append_all(&self, term: u64, entries: Vec<Bytes>) -> Vec<Result<ApplyResult, ProposeError>> {
        let mut answers = Vec::with_capacity(entries.len());
        for entry in entries {
            let (responder, answer) = ProgressResponder::complete_only();
            let sent = self.raft.write(Payload(entry)).with_leader(term).responder(responder).await;
            answers.push(sent.map(|()| answer));
        }
        let mut results = Vec::with_capacity(answers.len());
        for answer in answers {
            results.push(match answer {
                Err(fatal) => Err(ProposeError::Fatal(fatal.to_string())),
                Ok(answer) => match answer.await {
                    Err(_) => Err(ProposeError::Fatal("consensus ended".into())),
                    Ok(Err(e)) => Err(propose_error(e)),
                    Ok(Ok(response)) => response.data.0.ok_or_else(|| ProposeError::Fatal("apply gave no result".into())),
                },
            });
        }
        results
    }
}

fn propose_error(e: ClientWriteError<TypeConfig>) -> ProposeError {
    match e {
        ClientWriteError::ForwardToLeader(ForwardToLeader { reason: ForwardReason::LeaseExpired, .. }) => ProposeError::LeaseExpired,
        ClientWriteError::ForwardToLeader(forward) => ProposeError::NotLeader { leader: forward.leader_id },
        ClientWriteError::LogEntryDiscarded(_) => ProposeError::Discarded,
        // Refused before anything was appended.
        ClientWriteError::PreconditionFailed(_) | ClientWriteError::ChangeMembershipError(_) => ProposeError::NotLeader { leader: None },
    }
}

/// Time left until `deadline`.
pub(crate) fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
