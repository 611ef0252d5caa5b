//! Consensus and storage: the log, the replicated admin tables, and the peers of a quorumsql cluster.
//!
//! `node` sees this crate through [`command`] (what can be asked and answered), `handle::Consensus` (who is asked) and
//! [`tables`] (what the rows are). openraft's types never leave it.
#![forbid(unsafe_code)]

pub mod command;
pub mod error;
pub mod handle;
mod identity;
pub mod membership;
mod proposer;
mod state_machine;
pub mod tables;

pub use handle::{ClusterStatus, Consensus, LogStoreKind, MemberStatus, RaftOptions, Timings};
pub use identity::Identity;
