//! Why a node does not start, and the refusals that clients see.

use crate::command::Rejection;

/// Why `init`, `join` or `start` failed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// `run` on a directory that belongs to no cluster: a node that lost its disk must not become a new cluster.
    #[error("data directory is empty: run quorumsql init for a new cluster, or quorumsql join to enter one")]
    Empty,
    /// `init` or `join` on a directory that belongs to a cluster.
    #[error("data directory already belongs to node {node_id} of cluster {cluster_id}")]
    Formed {
        /// Cluster of the directory.
        cluster_id: String,
        /// Node of the directory.
        node_id: u64,
    },
    /// `identity`, log and state disagree.
    #[error("identity of this data directory: {0}")]
    Identity(String),
    /// The node was removed, or its id belongs to another data directory: peers do not listen to it.
    #[error("{0}")]
    Removed(String),
    /// The log is damaged before its end (rule S8).
    #[error("raft log damaged at index {index}: {reason}; remove this member and join it again, or run raft-rebuild on a single node")]
    LogDamaged {
        /// First damaged entry.
        index: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// An option that this build does not offer, or a value that cannot be right.
    #[error("{0}")]
    Options(String),
    /// The tables of this node are not those of its cluster.
    #[error("configuration diverged: {0}")]
    Diverged(String),
    /// Storage failed.
    #[error("storage: {0}")]
    Storage(String),
    /// The peer port cannot be opened.
    #[error("cannot listen for peers on {address}: {reason}")]
    Listen {
        /// Configured address.
        address: String,
        /// Error of the system.
        reason: String,
    },
    /// Certificates or keys.
    #[error("peer tls: {0}")]
    Tls(String),
    /// The cluster refused, or could not be asked.
    #[error("join: {0}")]
    Join(String),
    /// openraft did not start.
    #[error("consensus: {0}")]
    Consensus(String),
}

impl StartError {
    /// The process's exit code: 74 (EX_IOERR) for storage, 78 (EX_CONFIG) for what an operator must decide, 79 for tables
    /// that differ from the cluster's, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Diverged(_) => crate::divergence::EXIT_DIVERGED,
            Self::LogDamaged { .. } | Self::Storage(_) => 74,
            Self::Empty | Self::Formed { .. } | Self::Identity(_) | Self::Removed(_) | Self::Options(_) => 78,
            Self::Listen { .. } | Self::Tls(_) | Self::Join(_) | Self::Consensus(_) => 1,
        }
    }
}

impl Rejection {
    /// 1290 / 25006: this node cannot have configuration changed now.
    pub fn read_only(message: impl Into<String>) -> Self {
        Self { mysql_code: 1290, mysql_state: "HY000".into(), pgsql_state: "25006".into(), message: message.into() }
    }

    /// Whether it says only that this was not the moment for the request: then it says nothing about an earlier attempt at it.
    pub(crate) fn is_of_the_moment(&self) -> bool {
        matches!(self.mysql_code, 1205 | 1290)
    }

    /// 1105 / 08007: nobody knows whether the change was applied.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self { mysql_code: 1105, mysql_state: "HY000".into(), pgsql_state: "08007".into(), message: message.into() }
    }
}
