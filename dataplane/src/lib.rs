//! What a query passes through: sessions, rules, routing, pools and relay of both protocols.
//!
//! See `ARCHITECTURE.md` for the life of a query. This crate knows nothing of consensus or SQLite: it is given a
//! [`config::RuntimeConfig`] and serves with it until it is given another.
#![forbid(unsafe_code)]

pub mod config;
mod data_plane;
pub(crate) mod frontend;
pub mod guard;
pub mod limits;
pub mod pool;
pub mod routing;
pub mod rules;
pub mod stats;
pub mod worker;

pub use data_plane::{DataPlane, DataPlaneOptions};
pub use stats::Stats;
