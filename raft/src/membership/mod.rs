//! How a cluster begins, how nodes enter it, become voters, and hand leadership over.
//!
//! ```text
//! init ─► cluster id, CA, node 1 ─► first entry (Bootstrap) ─► token
//! join ─► Join RPC ─► leader: NodeAlloc (id = its index) ─► certificate ─► learner ─► own lag check ─► voter
//! ```

pub(crate) mod admit;
mod found;
mod promote;
mod token;

pub use found::{InitReport, JoinReport, SeedRow, init, join};
pub(crate) use promote::{add_learner, supervise, transfer};
pub(crate) use token::Token;
