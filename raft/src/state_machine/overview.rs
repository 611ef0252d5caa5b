//! What the modules are at the applied index: revisions, positions and hashes, as tables and tools show them.

use rusqlite::Connection;

use super::schema::unsigned;
use crate::tables::{MODULES, ModuleDescription};

/// A module in a layer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModuleLayer {
    /// As in tables, e.g. `mysql_servers`.
    pub module: String,
    /// `memory`, `runtime` or `disk`.
    pub layer: String,
    /// The revision that changed it last, in RUNTIME only; 0 = never.
    pub revision: Option<u64>,
    /// Index of the entry that changed it last; 0 = never.
    pub log_index: u64,
    /// Running hashes of its tables as hexadecimal digits, joined by `-`; equal on all nodes at equal applied index.
    pub hash: String,
}

/// The configuration of one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeConfig {
    /// The node.
    pub node_id: u64,
    /// Up to where it has applied the log.
    pub applied_index: u64,
    /// Since it heard of a leader; `None` = never.
    pub contact_ms: Option<u64>,
    /// All modules in all layers.
    pub layers: Vec<ModuleLayer>,
}

/// All modules in all layers, in the order of `LOAD ALL`.
///
/// # Errors
/// Of SQLite.
pub fn module_layers(connection: &Connection) -> rusqlite::Result<Vec<ModuleLayer>> {
    let mut found = Vec::with_capacity(3 * MODULES.len());
    for module in &MODULES {
        let sql = "SELECT memory_index, runtime_revision, runtime_index, disk_index FROM main.module_state WHERE module = ?1";
        let (memory, revision, runtime, disk): (i64, i64, i64, i64) =
            connection.prepare_cached(sql)?.query_row([module.name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        for (layer, revision, index) in [("memory", None, memory), ("runtime", Some(revision), runtime), ("disk", None, disk)] {
            found.push(ModuleLayer {
                module: module.key(),
                layer: layer.into(),
                revision: revision.map(unsigned),
                log_index: unsigned(index),
                hash: layer_hash(connection, layer, module)?,
            });
        }
    }
    Ok(found)
}

fn layer_hash(connection: &Connection, layer: &str, module: &ModuleDescription) -> rusqlite::Result<String> {
    let sql = r#"SELECT lower(hex(hash)) FROM main.table_hash WHERE layer = ?1 AND module = ?2 AND "table" = ?3"#;
    let mut statement = connection.prepare_cached(sql)?;
    let mut hashes = Vec::with_capacity(module.tables.len());
    for table in module.tables {
        let mut rows = statement.query([layer, module.name, table])?;
        hashes.push(rows.next()?.map_or(Ok(String::new()), |row| row.get(0))?);
    }
    Ok(hashes.join("-"))
}

/// The applied index and [`module_layers`] of one state.
pub(crate) fn config_state(connection: &Connection) -> rusqlite::Result<(u64, Vec<ModuleLayer>)> {
    let transaction = connection.unchecked_transaction()?;
    let applied = transaction.query_row("SELECT last_index FROM raft_meta WHERE id = 1", [], |row| row.get(0))?;
    Ok((unsigned(applied), module_layers(&transaction)?))
}
