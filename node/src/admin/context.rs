//! What all admin sessions of this process share.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use quorumsql_dataplane::DataPlane;
use quorumsql_raft::Consensus;
use rusqlite::Connection;

use super::error::{engine_error, handler_error};
use super::local::LocalTables;
use super::running::{Owner, Running};
use super::variables::{Layered, effective};
use crate::sql_server::SqlError;
use crate::sql_server::engine::{EngineError, limit};

/// Longest run of a reading statement (raft-and-storage.md 4.1).
const READ_TIME: std::time::Duration = std::time::Duration::from_secs(60);

/// Variables of RUNTIME as they are in force here, and the runtime index of which they are.
#[derive(Debug, Default)]
struct CachedVariables {
    runtime_index: u64,
    values: Arc<BTreeMap<String, String>>,
}

/// Handles of the rest of the node.
pub(crate) struct Context {
    /// Writes, barriers, connections to the tables.
    pub(crate) consensus: Consensus,
    /// Counters.
    pub(crate) dataplane: DataPlane,
    /// This node's facts.
    pub(crate) facts: Arc<dyn LocalTables>,
    /// Statements that read now.
    pub(crate) running: Running,
    variables: Mutex<Option<CachedVariables>>,
}

impl Context {
    /// Nothing is read yet.
    pub(crate) fn new(consensus: Consensus, dataplane: DataPlane, facts: Arc<dyn LocalTables>) -> Self {
        Self { consensus, dataplane, facts, running: Running::default(), variables: Mutex::new(None) }
    }

    /// Runs `work` with a fresh read-only connection on a blocking thread; interrupted when the future is dropped, and when
    /// `owner` asks for it.
    ///
    /// # Errors
    /// SQLite's, in the words of the admin interface.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        owner: Option<Owner>,
        work: impl FnOnce(&Self, &mut Connection) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, SqlError> {
        let mut place = self.running.enter(owner).await.ok_or_else(|| handler_error("the server is shutting down"))?;
        let (context, flag, permit) = (Arc::clone(self), place.flag(), place.take_permit());
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let mut connection = context.consensus.reader()?;
            limit(&mut connection, READ_TIME, flag)?;
            work(&context, &mut connection)
        });
        match task.await {
            Ok(result) => result.map_err(|error| engine_error(&error)),
            Err(error) => {
                tracing::error!(%error, "admin statement failed");
                Err(handler_error("internal error, see the log of this node"))
            }
        }
    }

    /// Values in force on this node: RUNTIME, overrides of this node, its own facts. Read again when RUNTIME has changed.
    pub(crate) async fn variables(self: &Arc<Self>) -> Result<Arc<BTreeMap<String, String>>, SqlError> {
        let runtime_index = self.consensus.watch().borrow().runtime_index;
        if let Some(cached) = self.variables.lock().as_ref().filter(|cached| cached.runtime_index == runtime_index) {
            return Ok(Arc::clone(&cached.values));
        }
        let values = Arc::new(self.read(None, |context, connection| effective(context, connection, Layered::Runtime)).await?);
        *self.variables.lock() = Some(CachedVariables { runtime_index, values: Arc::clone(&values) });
        Ok(values)
    }
}
