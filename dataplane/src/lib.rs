//! What a query passes through: sessions, rules, routing, pools and relay of both protocols.
//!
//! ```text
//! client ─► acceptor ─► worker (thread): session ─► lexer, rules, guard ─► pool.acquire ─► server
//!                          ▲                  ▲                               │
//!        chunks, links, ticker, counters      └── relay, chunk by chunk ◄─────┘
//! ```
//! Reading order: [`worker`] (what a session runs on, with a sketch of one), [`pool`] (server connections, with a sketch
//! of their use), [`rules`] and [`guard`] (where a statement goes), `frontend` and `backend` (the dialogues of the two
//! protocols), [`DataPlane`] (the handle). `ARCHITECTURE.md` tells the life of a query.
//!
//! What holds everywhere:
//! - A session, its buffers and its server connection belong to one worker; per statement nothing is locked and nothing that
//!   workers share is written.
//! - A statement sees one [`config::RuntimeConfig`] from its first byte to its end.
//! - A waiting session owns no buffer and no timer of the runtime.
//! - Dropping a server connection instead of releasing it is always right: its slot and its counters follow.
//!
//! What this crate does not do: it knows nothing of consensus or SQLite, probes no server and decides no role. It is given
//! a configuration and serves with it until it is given another, for ever if need be.
#![forbid(unsafe_code)]

pub(crate) mod backend;
pub mod config;
mod data_plane;
pub mod explain;
pub(crate) mod frontend;
pub mod guard;
pub(crate) mod identity;
pub(crate) mod intern;
pub mod limits;
pub mod origin;
pub mod pool;
pub mod routing;
pub mod rules;
pub(crate) mod session;
pub mod stats;
pub mod tls;
pub mod worker;

pub use data_plane::{DataPlane, DataPlaneOptions};
pub use stats::Stats;
