//! What `node` holds of consensus: one cheap handle, three outcomes, no type of openraft.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    command::{Applied, Origin, Outcome, ReadLevel, ReadMark, Rejection, Request, Validator},
    error::StartError,
    identity::{Identity, Layout},
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
    /// `leader`, `follower`, `candidate` or `learner`.
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
    /// Voters.
    pub voters: usize,
    /// Voters that answer, this one included.
    pub voters_reachable: usize,
}

/// Consensus of this node. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Consensus {
    inner: Arc<Inner>,
}

struct Inner {
    identity: Identity,
    layout: Layout,
    applied: watch::Sender<Applied>,
}

impl Consensus {
    /// Opens the data directory, listens for peers and takes part in the cluster.
    ///
    /// # Errors
    /// Nothing runs when it fails.
    pub async fn start(options: RaftOptions, validator: Arc<dyn Validator>) -> Result<Self, StartError> {
        let layout = Layout::new(&options.data_dir);
        let identity = Identity::read(&layout)?;
        drop(validator);
        Ok(Self { inner: Arc::new(Inner { identity, layout, applied: watch::Sender::new(Applied::default()) }) })
    }

    /// Who this node is.
    pub fn identity(&self) -> Identity {
        self.inner.identity.clone()
    }

    /// One write: executed on the leader, exactly once per request id, answered after it is applied and live here.
    ///
    /// Dropping the future does not undo the write.
    pub async fn submit(&self, request: Request) -> Outcome {
        Outcome::Rejected(Rejection::read_only(format!("configuration is read-only: {:?} has no quorum yet", request.id)))
    }

    /// Makes a following read of this node's tables as fresh as `level` demands.
    ///
    /// # Errors
    /// `Linearizable` without a confirming leader.
    pub async fn barrier(&self, level: ReadLevel, timeout: Duration) -> Result<ReadMark, Rejection> {
        Err(Rejection::read_only(format!("{level:?} read: no leader within {timeout:?}")))
    }

    /// A read-only connection to the replicated tables; TEMP tables may be written.
    ///
    /// # Errors
    /// Of SQLite.
    pub fn reader(&self) -> Result<rusqlite::Connection, rusqlite::Error> {
        rusqlite::Connection::open_with_flags(self.inner.layout.state(), rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)
    }

    /// Fires after each applied batch.
    pub fn watch(&self) -> watch::Receiver<Applied> {
        self.inner.applied.subscribe()
    }

    /// Said by `node::runtime` when the objects of this `runtime_index` are swapped in.
    pub fn runtime_live(&self, index: u64) {
        tracing::trace!(index, "runtime live");
    }

    /// The cluster as this node sees it; never waits.
    pub fn status(&self) -> ClusterStatus {
        let Identity { cluster_id, node_id, slot, name, .. } = self.identity();
        ClusterStatus {
            cluster_id,
            node_id,
            slot,
            name,
            term: 0,
            leader_id: None,
            applied_index: self.inner.applied.borrow().index,
            members: Vec::new(),
            leader_contact_ms: None,
            read_only_reason: Some("configuration is read-only: no quorum".into()),
            consensus_stopped: None,
            voters: 0,
            voters_reachable: 0,
        }
    }

    /// A token with which one node may join until `ttl` has passed.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn create_join_token(&self, voter: bool, ttl: Duration, origin: Origin) -> Result<String, Rejection> {
        Err(Rejection::read_only(format!("no quorum: token (voter: {voter}, ttl {ttl:?}) of {} not stored", origin.actor)))
    }

    /// Transfers leadership if this node leads, then stops. Idempotent.
    pub async fn shutdown(&self) {}
}
