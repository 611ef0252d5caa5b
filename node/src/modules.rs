//! Revision and hash of each module's RUNTIME layer, as gRPC shows them.

use quorumsql_raft::tables::MODULES;
use rusqlite::Connection;
use sha2::{Digest as _, Sha256};

/// One module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ModuleState {
    /// Name as in commands, e.g. `MYSQL SERVERS`.
    pub(crate) name: String,
    /// The revision that changed it last; 0 = never.
    pub(crate) revision: u64,
    /// 32 hex digits over its tables' running hashes.
    pub(crate) hash: String,
}

/// All modules in the order of `LOAD ALL`.
pub(crate) fn read(connection: &Connection) -> Result<Vec<ModuleState>, rusqlite::Error> {
    let transaction = connection.unchecked_transaction()?;
    let mut modules = Vec::new();
    for module in &MODULES {
        let revision: i64 = transaction.query_row(
            "SELECT coalesce(max(runtime_revision), 0) FROM module_state WHERE module = ?1",
            [module.name],
            |row| row.get(0),
        )?;
        let mut statement =
            transaction.prepare("SELECT \"table\", hash FROM table_hash WHERE layer = 'runtime' AND module = ?1 ORDER BY \"table\"")?;
        let hashes = statement
            .query_map([module.name], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?)))?
            .collect::<Result<Vec<_>, _>>()?;
        modules.push(ModuleState {
            name: module.name.to_owned(),
            revision: u64::try_from(revision).unwrap_or_default(),
            hash: combine(&hashes),
        });
    }
    Ok(modules)
}

fn combine(hashes: &[(String, Vec<u8>)]) -> String {
    let mut hasher = Sha256::new();
    for (table, hash) in hashes {
        hasher.update(table.as_bytes());
        hasher.update([0]);
        hasher.update(hash);
    }
    hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
