//! Revision and hash of each module's RUNTIME layer, as gRPC shows them; the same values as in `stats_cluster_config`.

use quorumsql_raft::module_layers;
use rusqlite::Connection;

/// One module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ModuleState {
    /// Name as in tables, e.g. `mysql_servers`.
    pub(crate) name: String,
    /// The revision that changed it last; 0 = never.
    pub(crate) revision: u64,
    /// Running hashes of its tables, joined by `-`; equal at equal applied index on all nodes.
    pub(crate) hash: String,
}

/// All modules in the order of `LOAD ALL`.
pub(crate) fn read(connection: &Connection) -> Result<Vec<ModuleState>, rusqlite::Error> {
    let transaction = connection.unchecked_transaction()?;
    let runtime = module_layers(&transaction)?.into_iter().filter(|found| found.layer == "runtime");
    Ok(runtime.map(|found| ModuleState { name: found.module, revision: found.revision.unwrap_or(0), hash: found.hash }).collect())
}
