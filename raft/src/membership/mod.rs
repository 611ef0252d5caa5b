//! How a cluster begins, how nodes enter it, become voters, hand leadership over and leave.
//!
//! ```text
//! init ─► cluster id, CA, node 1 ─► first entry (Bootstrap) ─► token
//! join ─► Join RPC ─► leader: NodeAlloc (id = its index) ─► certificate ─► learner ─► own lag check ─► voter
//!                                                  join --replace: in one joint change with the end of the old one's vote
//! remove ─► NodeRemove (decides) ─► out of the membership ─► peers refuse it ─► it stops consensus and serves on
//! ```

pub(crate) mod admit;
mod change;
mod expel;
mod found;
mod rebuild;
mod remove;
pub(crate) mod roster;
mod supervise;
mod token;
pub(crate) mod transfer;

pub(crate) use admit::WAITING_JOINS;
pub(crate) use change::add_learner;
pub(crate) use expel::refuse_expelled;
pub use found::{InitReport, JoinReport, SeedRow, init, join};
pub use rebuild::{RebuildReport, rebuild};
pub(crate) use remove::remove;
pub(crate) use supervise::supervise;
pub(crate) use token::Token;
