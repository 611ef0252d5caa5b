//! The admin interface: SQL over the replicated tables, commands, this node's statistics (admin-commands.md).
//!
//! ```text
//! sql_server face ─► session ─► parse ─► write, LOAD, SAVE, SET ─► Consensus::submit ─► leader, log, quorum, applied here
//!                                  └───► SELECT, SHOW ─► Consensus::barrier ─► read (per-statement tables, authoriser)
//! ```
//! Reading order: [`parse`], [`session`], [`read`], [`tables`], [`show`], [`validate`].

mod catalog;
mod context;
mod database;
mod error;
mod explain;
#[cfg(test)]
mod faces_test;
mod freshness;
pub(crate) mod local;
mod masking;
mod parse;
mod read;
mod rewrite;
mod running;
#[cfg(test)]
mod script_test;
mod session;
mod show;
mod tables;
pub(crate) mod validate;
mod variables;

use std::sync::Arc;

use quorumsql_dataplane::DataPlane;
use quorumsql_raft::Consensus;
use tokio::net::TcpListener;

use crate::sql_server::{Face, ServeOptions, serve};
use context::Context;
use database::AdminDatabase;

pub(crate) use local::LocalTables;

/// The admin interface of this node. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(crate) struct AdminServer {
    database: Arc<AdminDatabase>,
}

impl AdminServer {
    /// Nothing is served yet.
    pub(crate) fn new(consensus: Consensus, dataplane: DataPlane, facts: Arc<dyn LocalTables>) -> Self {
        Self { database: Arc::new(AdminDatabase::new(Arc::new(Context::new(consensus, dataplane, facts)))) }
    }

    /// Serves the MySQL face until the future is dropped, which ends its sessions.
    pub(crate) async fn serve_mysql(&self, listener: TcpListener, options: ServeOptions) {
        serve(Face::Mysql, listener, Arc::clone(&self.database), options).await;
    }

    /// Serves the PostgreSQL face until the future is dropped, which ends its sessions.
    pub(crate) async fn serve_pgsql(&self, listener: TcpListener, options: ServeOptions) {
        serve(Face::Pgsql, listener, Arc::clone(&self.database), options).await;
    }
}
