//! How a cluster begins and how nodes enter it.

use crate::{
    command::Value,
    error::StartError,
    handle::RaftOptions,
    identity::{Identity, Layout},
};

/// A row that the first entry of a cluster puts into a replicated table (in MEMORY, RUNTIME and DISK where it has layers).
#[derive(Clone, PartialEq, Debug)]
pub struct SeedRow {
    /// Visible table name, e.g. `mysql_users` or `node_overrides`.
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
    Err(StartError::Consensus(format!("cannot seed {} rows yet", seed.len())))
}

/// Enters the cluster that gave `token`, through the member at `peer` (`host:6035`).
///
/// # Errors
/// When the directory is not empty, the token is refused, or nobody answers.
pub async fn join(options: &RaftOptions, token: &str, peer: &str) -> Result<JoinReport, StartError> {
    refuse_formed(options)?;
    Err(StartError::Join(format!("{peer}: token of {} characters not accepted", token.len())))
}

fn refuse_formed(options: &RaftOptions) -> Result<(), StartError> {
    match Identity::read(&Layout::new(&options.data_dir)) {
        Err(StartError::Empty) => Ok(()),
        Err(e) => Err(e),
        Ok(Identity { cluster_id, node_id, .. }) => Err(StartError::Formed { cluster_id, node_id }),
    }
}
