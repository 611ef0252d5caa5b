//! Revision and hash of each module's RUNTIME layer, as gRPC shows them; the same values as in `stats_cluster_config`.

use quorumsql_raft::tables::MODULES;
use rusqlite::{Connection, OptionalExtension as _};

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
    let mut modules = Vec::new();
    for module in &MODULES {
        let revision: Option<i64> = transaction
            .query_row("SELECT runtime_revision FROM module_state WHERE module = ?1", [module.name], |row| row.get(0))
            .optional()?;
        let sql = "SELECT lower(hex(hash)) FROM table_hash WHERE layer = 'runtime' AND module = ?1 AND \"table\" = ?2";
        let mut statement = transaction.prepare(sql)?;
        let mut hashes: Vec<String> = Vec::new();
        for table in module.tables {
            hashes.push(statement.query_row([module.name, *table], |row| row.get(0)).optional()?.unwrap_or_default());
        }
        modules.push(ModuleState {
            name: module.key(),
            revision: revision.and_then(|revision| u64::try_from(revision).ok()).unwrap_or(0),
            hash: hashes.join("-"),
        });
    }
    Ok(modules)
}
