//! openraft's types as this crate instantiates them. Nothing of this is stored or sent: see [`crate::network::convert`].

use std::{fmt, fs::File, path::PathBuf, sync::Arc};

use bytes::Bytes;
use openraft::type_config::alias;
use serde::{Deserialize, Serialize};

use crate::{machine::Machine, state_machine::ApplyResult};

openraft::declare_raft_types!(
    /// Node ids and terms are `u64`; one leader a term.
    pub(crate) TypeConfig:
        D = Payload,
        R = Answer,
        NodeId = u64,
        Node = Member,
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>,
        AsyncRuntime = Runtime,
);

#[cfg(not(test))]
type Runtime = openraft::TokioRuntime;
/// Tokio too, but the simulation seeds its random numbers and kills its tasks.
#[cfg(test)]
type Runtime = crate::sim::runtime::Runtime;

pub(crate) type Raft = openraft::Raft<TypeConfig, Machine>;
pub(crate) type LogId = alias::LogIdOf<TypeConfig>;
pub(crate) type Vote = alias::VoteOf<TypeConfig>;
pub(crate) type Entry = alias::EntryOf<TypeConfig>;
pub(crate) type Membership = openraft::Membership<u64, Member>;
pub(crate) type StoredMembership = alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = alias::SnapshotMetaOf<TypeConfig>;
pub(crate) type Snapshot = alias::SnapshotOf<TypeConfig, SnapshotData>;
pub(crate) type Metrics = openraft::RaftMetrics<TypeConfig>;

/// An encoded `quorumsql.log.v1.LogEntry`.
///
/// openraft demands the serde traits; the bytes never pass through them.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "()", into = "()")]
pub(crate) struct Payload(pub(crate) Bytes);

impl From<()> for Payload {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<Payload> for () {
    fn from(_: Payload) {}
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What apply answers to the proposer; `None` for entries without data.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answer(pub(crate) Option<ApplyResult>);

/// How a member is dialled. Everything else about it is a row of `cluster_nodes`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) raft_addr: String,
    pub(crate) name: String,
}

/// A snapshot file that is open: what a later snapshot renames or deletes does not change it.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotData {
    pub(crate) file: Arc<File>,
    pub(crate) path: PathBuf,
    pub(crate) size: u64,
    pub(crate) sha256: [u8; 32],
}

/// The log id of `(term, index)`.
pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(term.into(), index)
}

/// The id, or (0, 0) where there is none.
pub(crate) fn or_zero(id: Option<LogId>) -> LogId {
    id.unwrap_or_else(|| log_id(0, 0))
}

/// The term in which an entry was proposed.
pub(crate) fn term_of(id: &LogId) -> u64 {
    *id.leader_id
}
