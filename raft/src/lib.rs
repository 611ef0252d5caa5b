//! Consensus and storage: the log, the replicated admin tables, and the peers of a quorumsql cluster.
//!
//! `node` sees this crate through [`command`] (what can be asked and answered), `handle::Consensus` (who is asked) and
//! [`tables`] (what the rows are). openraft's types never leave it.
//!
//! The life of a change:
//! ```text
//!  submit ─► leader's proposer ─► log entry ─► quorum ─► apply on every node ─► watch ─► node::runtime
//!            │ BEGIN                                      │ one SQLite transaction
//!            │  statement, rows captured by triggers      │  request id known? base rows unchanged?
//!            │  the entry applied to try it               │  rows, strictly; hashes, dirty keys, revision, history
//!            └ ROLLBACK                                   └ last_index
//! ```
//! To be read in this order: [`command`], `proposer` (`batch`, `speculation`), `state_machine` (`apply`, `changes`,
//! `layer_copy`), then `core`, `log_store`, `machine`, `network`, `membership`.
//!
//! What a commit promises: a quorum has the entry on disk, and every node that reaches its index has the same rows, hashes
//! and result. SQL text is never executed at apply, and apply reads no clock and no randomness.
//!
//! What this crate does not do: it knows rows, not routing. What a row means, and what this node observes, is `node`'s.
//!
//! Invariants around openraft: no leader is restored after a restart (R1); nothing is applied that the own log does not hold
//! durably (R2); the commit mark never exceeds the log (R3); a state that is ahead of its log gets a snapshot first (R4). A
//! storage error ends this node's part in consensus, never the process.
#![forbid(unsafe_code)]

mod blocking;
mod busy;
#[cfg(test)]
mod cluster_test;
pub mod command;
mod core;
#[cfg(test)]
mod crash;
mod divergence;
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
#[cfg(test)]
mod sim;
mod snapshots;
pub mod sqlfn;
pub mod sqlname;
mod state_machine;
#[cfg(test)]
mod storage_test;
pub mod tables;
mod type_config;

pub use divergence::Leave;
pub use handle::{ClusterStatus, Consensus, LogStatus, LogStoreKind, MemberStatus, RaftOptions, Timings};
pub use identity::Identity;
pub use network::newcomers::{Newcomer, Newcomers};
pub use state_machine::{ModuleLayer, NodeConfig, RevisionChange, changes_of, module_hash, module_layers, root_hash};
