//! Consensus and storage: the log, the replicated admin tables, and the peers of a quorumsql cluster.
//!
//! `node` sees this crate through [`command`] (what can be asked and answered), `handle::Consensus` (who is asked) and
//! [`tables`] (what the rows are). openraft's types never leave it.
#![forbid(unsafe_code)]

#[cfg(test)]
mod cluster_test;
pub mod command;
mod core;
pub mod error;
pub mod handle;
mod identity;
mod log_store;
mod machine;
#[cfg(test)]
mod machine_test;
pub mod membership;
mod network;
mod proposer;
mod sha256_crypt;
mod snapshots;
pub mod sqlfn;
pub mod sqlname;
mod state_machine;
pub mod tables;
mod type_config;

pub use handle::{ClusterStatus, Consensus, LogStoreKind, MemberStatus, RaftOptions, Timings};
pub use identity::Identity;
pub use state_machine::{RevisionChange, changes_of, module_hash, root_hash};
