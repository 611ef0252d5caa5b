//! What `node` holds of consensus: one cheap handle, three outcomes, no type of openraft.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::watch,
};

use crate::{
    command::{Applied, Op, Origin, Outcome, ReadLevel, ReadMark, Rejection, Request, RequestId, Transferred, Validator},
    core::{self, Core, Peering},
    divergence::Leave,
    error::StartError,
    identity::{Identity, Layout},
    membership::Token,
    state_machine::NodeConfig,
};

/// Where the Raft log lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogStoreKind {
    /// sled under the rules of raft-and-storage.md 3.3.
    #[default]
    Sled,
    /// One SQLite file.
    Sqlite,
}

/// Timings that must agree in a cluster (raft-and-storage.md 1.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timings {
    /// Interval of the leader's heartbeats.
    pub heartbeat: Duration,
    /// Shortest election timeout.
    pub election_min: Duration,
    /// Longest election timeout; also the leader lease.
    pub election_max: Duration,
    /// One durable point of the log may take this long; then this node's consensus stops.
    pub storage_timeout: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_millis(500),
            election_max: Duration::from_millis(1000),
            storage_timeout: Duration::from_secs(5),
        }
    }
}

/// Facts of the bootstrap file that consensus needs.
#[derive(Clone, Debug)]
pub struct RaftOptions {
    /// The node's data directory.
    pub data_dir: PathBuf,
    /// The node's name.
    pub name: String,
    /// Log store.
    pub log_store: LogStoreKind,
    /// Timings.
    pub timings: Timings,
    /// Where peers are accepted, e.g. `127.0.0.1:6035`.
    pub peer_listen: String,
    /// How peers reach this node, e.g. `10.0.0.7:6035`.
    pub advertise: String,
    /// Build shown to others.
    pub build: String,
}

/// A member as this node knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// Node id.
    pub node_id: u64,
    /// Slot.
    pub slot: u8,
    /// Name.
    pub name: String,
    /// `leader`, `follower`, `candidate`, `learner`; `stopped`: it takes no part in consensus any more; `unreachable`: it was not
    /// heard for three seconds.
    pub role: &'static str,
    /// Whether it votes.
    pub voter: bool,
    /// Address of its peer port.
    pub raft_addr: String,
    /// Its term, as last reported.
    pub term: u64,
    /// Its applied index, as last reported.
    pub applied_index: u64,
    /// Entries behind the furthest known log position.
    pub lag_entries: u64,
    /// Age of the last contact; `None` = this node itself.
    pub contact_ms: Option<u64>,
    /// Its build.
    pub build: String,
}

/// The cluster as this node sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterStatus {
    /// UUID.
    pub cluster_id: String,
    /// This node.
    pub node_id: u64,
    /// This node's slot.
    pub slot: u8,
    /// This node's name.
    pub name: String,
    /// Current term.
    pub term: u64,
    /// Leader, if one is known and heard.
    pub leader_id: Option<u64>,
    /// Applied index of this node.
    pub applied_index: u64,
    /// All members, by node id.
    pub members: Vec<MemberStatus>,
    /// Age of the last contact with a leader that has a quorum; `None` = never since the start.
    pub leader_contact_ms: Option<u64>,
    /// Set = writes are refused now, with this text.
    pub read_only_reason: Option<String>,
    /// Set = this node takes no part in consensus any more, and why.
    pub consensus_stopped: Option<String>,
    /// This node's tables differ from those of a majority, or there is no majority.
    pub config_diverged: bool,
    /// Voters.
    pub voters: usize,
    /// Voters that answer, this one included.
    pub voters_reachable: usize,
    /// Messages of leaders, heartbeats among them, that this node has accepted since its start.
    pub leader_messages: u64,
}

/// Size and health of this node's Raft log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogStatus {
    /// Bytes of the entries that are not purged.
    pub bytes: usize,
    /// Entries that are not durable here yet.
    pub unflushed_entries: u64,
    /// Files that the log store wrote outside of what is made durable (sled's `blobs/`); none is expected.
    pub strays: usize,
}

/// Consensus of this node. Cheap to clone; all clones are one. When the last is dropped without [`Consensus::shutdown`], this node
/// is gone as if it had been killed.
#[derive(Clone)]
pub struct Consensus {
    inner: Arc<Inner>,
}

struct Inner {
    core: Arc<Core>,
    /// Own threads: a data plane that uses every core must not cost a leader its heartbeat. `None` after the end.
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
}

impl Consensus {
    /// Opens the data directory, listens for peers and takes part in the cluster.
    ///
    /// # Errors
    /// Nothing runs when it fails.
    pub async fn start(options: RaftOptions, validator: Arc<dyn Validator>) -> Result<Self, StartError> {
        let identity = Identity::read(&Layout::new(&options.data_dir))?;
        let runtime = own_runtime()?;
        let handle = runtime.handle().clone();
        match handle.spawn(Core::start(options, identity, validator, Peering::Listen)).await {
            Ok(Ok(core)) => Ok(Self { inner: Arc::new(Inner { core, runtime: Mutex::new(Some(runtime)), handle }) }),
            failed => {
                runtime.shutdown_background();
                Err(match failed {
                    Ok(Err(e)) => e,
                    _ => StartError::Consensus("start panicked".into()),
                })
            }
        }
    }

    /// Who this node is.
    pub fn identity(&self) -> Identity {
        self.inner.core.identity.clone()
    }

    /// One write: executed on the leader, exactly once per request id, answered after it is applied and live here.
    ///
    /// Dropping the future does not undo the write.
    pub async fn submit(&self, request: Request) -> Outcome {
        let (core, id, started) = (self.inner.core.clone(), request.id, Instant::now());
        let outcome = self.inner.handle.spawn(async move { core.submit(request).await });
        outcome.await.unwrap_or_else(|_| Outcome::Unknown(Rejection::no_answer(started.elapsed().as_millis(), &id.client, id.seq)))
    }

    /// Makes a following read of this node's tables as fresh as `level` demands.
    ///
    /// # Errors
    /// `Linearizable` without a confirming leader.
    pub async fn barrier(&self, level: ReadLevel, timeout: Duration) -> Result<ReadMark, Rejection> {
        let core = self.inner.core.clone();
        let mark = self.inner.handle.spawn(async move { core.barrier(level, timeout).await });
        mark.await.unwrap_or_else(|_| Err(Rejection::read_only("configuration is read-only: consensus has ended")))
    }

    /// A read-only connection to the replicated tables; TEMP tables may be written.
    ///
    /// # Errors
    /// Of SQLite.
    pub fn reader(&self) -> Result<rusqlite::Connection, rusqlite::Error> {
        core::open_reader(&self.inner.core.layout)
    }

    /// Fires after each applied batch.
    pub fn watch(&self) -> watch::Receiver<Applied> {
        self.inner.core.state.watch()
    }

    /// Said by `node::runtime` when the objects of this `runtime_index` are swapped in. From the first call on, writes wait for it.
    pub fn runtime_live(&self, index: u64) {
        self.inner.core.live.send_if_modified(|live| {
            let newer = live.is_none_or(|live| live < index);
            if newer {
                *live = Some(index);
            }
            newer
        });
    }

    /// The cluster as this node sees it; never waits for others.
    pub fn status(&self) -> ClusterStatus {
        self.inner.core.status()
    }

    /// Size and health of this node's log; never waits.
    pub fn log(&self) -> LogStatus {
        self.inner.core.log.status()
    }

    /// The configurations of the other nodes, asked for now; one that does not answer within `timeout` is absent. Blocks.
    pub fn config_of_peers(&self, timeout: Duration) -> Vec<NodeConfig> {
        let (answer, found) = std::sync::mpsc::sync_channel(1);
        let core = self.inner.core.clone();
        self.inner.handle.spawn(async move {
            // The caller has gone when the answers took longer than it waits.
            let _ = answer.send(core.config_of_peers(timeout).await);
        });
        found.recv_timeout(2 * timeout).unwrap_or_default()
    }

    /// Waits until this process has to end: it does not understand its log, or a majority contradicts its tables.
    pub async fn must_leave(&self) -> Leave {
        let mut leaving = self.inner.core.divergence.leaving();
        match leaving.wait_for(Option::is_some).await.map(|leave| leave.clone()) {
            Ok(Some(leave)) => leave,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// A token with which one node may join until `ttl` has passed.
    ///
    /// # Errors
    /// As [`Self::submit`]; an unknown outcome is an error too, its token may be stored but is known to nobody.
    pub async fn create_join_token(&self, voter: bool, ttl: Duration, origin: Origin) -> Result<String, Rejection> {
        let failed = |what: String| Rejection::read_only(format!("join token: {what}"));
        let core = &self.inner.core;
        let authority = core.ca_fingerprint().map_err(|e| failed(e.to_string()))?;
        let token = Token::new(&core.identity.cluster_id, authority).map_err(|e| failed(e.to_string()))?;
        let mut client = [0; 16];
        getrandom::fill(&mut client).map_err(|e| failed(e.to_string()))?;
        let expires = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + ttl;
        let op = Op::JoinToken { sha256: token.secret_sha256(), voter, expires_ms: u64::try_from(expires.as_millis()).unwrap_or(u64::MAX) };
        let request = Request { id: RequestId { client, seq: 1 }, origin, op, timeout: TOKEN_TIMEOUT };
        match self.submit(request).await {
            Outcome::Committed(_) => token.encode().ok_or_else(|| failed("the cluster id is no UUID".into())),
            Outcome::Rejected(rejection) | Outcome::Unknown(rejection) => Err(rejection),
        }
    }

    /// Makes another voter the leader: `to`, or the one that is furthest. Waits until it leads.
    ///
    /// # Errors
    /// `to` is no voter or does not answer, nobody leads, or the answer did not come in time.
    pub async fn transfer_leadership(&self, to: Option<u64>, timeout: Duration) -> Result<Transferred, Rejection> {
        let core = self.inner.core.clone();
        let done = self.inner.handle.spawn(async move { core.transfer_leadership(to, timeout).await });
        done.await.unwrap_or_else(|_| Err(Rejection::read_only("configuration is read-only: consensus has ended")))
    }

    /// Before a planned stop: this node hands leadership over if it has it, and does not stand for election any more.
    pub async fn stand_down(&self) {
        let core = self.inner.core.clone();
        if self.inner.handle.spawn(async move { core.stand_down().await }).await.is_err() {
            tracing::error!("handing over leadership panicked");
        }
    }

    /// Transfers leadership if this node leads, then stops. Idempotent; afterwards writes and linearizable reads fail.
    pub async fn shutdown(&self) {
        let Some(runtime) = self.inner.runtime.lock().take() else { return };
        let core = self.inner.core.clone();
        if self.inner.handle.spawn(async move { core.shutdown().await }).await.is_err() {
            tracing::error!("shutdown of consensus panicked");
        }
        runtime.shutdown_background();
    }
}

#[cfg(test)]
impl Consensus {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.inner.core
    }

    /// Runs on the threads of consensus and waits.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.inner.handle.spawn(work).await.unwrap()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}

/// For `create_join_token`, whose caller gives no deadline.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(5);

fn own_runtime() -> Result<Runtime, StartError> {
    // One thread: all that could hold it up has threads of its own (log, proposer, blocking reads and applies), and a second one was
    // woken for nothing at every heartbeat, which was a third of an idle node's wake-ups and CPU.
    let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("consensus").enable_all().build();
    runtime.map_err(|e| StartError::Consensus(format!("threads: {e}")))
}

/// Runs `init` or `join` on threads of their own, as everything of consensus.
pub(crate) async fn on_own_runtime<T: Send + 'static>(
    work: impl Future<Output = Result<T, StartError>> + Send + 'static,
) -> Result<T, StartError> {
    let runtime = own_runtime()?;
    let result = runtime.spawn(work).await;
    runtime.shutdown_background();
    result.unwrap_or_else(|_| Err(StartError::Consensus("panicked".into())))
}
