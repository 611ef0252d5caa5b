//! Tables of `state.db` besides the admin tables, and the one row of `raft_meta`.

use rusqlite::{Connection, OptionalExtension};

use super::StorageError;
use crate::command::Layer;
use crate::tables::{MODULES, TABLES};

/// Version of the layout of `state.db`.
pub(crate) const SCHEMA_VERSION: u32 = 2;

const INTERNAL_TABLES: &str = r#"
CREATE TABLE raft_meta (
    id INTEGER PRIMARY KEY CHECK (id = 1), last_term INTEGER NOT NULL, last_index INTEGER NOT NULL, membership BLOB NOT NULL,
    cluster_id TEXT NOT NULL, feature_level INTEGER NOT NULL, schema_version INTEGER NOT NULL, runtime_revision INTEGER NOT NULL,
    runtime_index INTEGER NOT NULL, last_data_index INTEGER NOT NULL, last_batch INTEGER NOT NULL, last_batch_position INTEGER NOT NULL);
CREATE TABLE module_state (
    module TEXT PRIMARY KEY, memory_index INTEGER NOT NULL DEFAULT 0, memory_author TEXT NOT NULL DEFAULT '',
    memory_node INTEGER NOT NULL DEFAULT 0, runtime_revision INTEGER NOT NULL DEFAULT 0, runtime_index INTEGER NOT NULL DEFAULT 0,
    disk_index INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE table_hash (
    layer TEXT NOT NULL, module TEXT NOT NULL, "table" TEXT NOT NULL, rows INTEGER NOT NULL, hash BLOB NOT NULL,
    counter INTEGER NOT NULL, PRIMARY KEY (layer, module, "table")) WITHOUT ROWID;
CREATE TABLE dirty (
    pair TEXT NOT NULL, "table" TEXT NOT NULL, pk BLOB NOT NULL, memory_index INTEGER NOT NULL, memory_author TEXT NOT NULL,
    memory_node INTEGER NOT NULL, PRIMARY KEY (pair, "table", pk)) WITHOUT ROWID;
CREATE TABLE config_history (
    revision INTEGER PRIMARY KEY, term INTEGER NOT NULL, "index" INTEGER NOT NULL, at_ms INTEGER NOT NULL, node INTEGER NOT NULL,
    actor TEXT NOT NULL, client_addr TEXT NOT NULL, channel TEXT NOT NULL, statement TEXT NOT NULL, modules TEXT NOT NULL,
    rows_before INTEGER NOT NULL, rows_after INTEGER NOT NULL, hash_before BLOB NOT NULL, hash_after BLOB NOT NULL, reason TEXT NOT NULL,
    result TEXT NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE config_changes (
    revision INTEGER NOT NULL, seq INTEGER NOT NULL, "table" TEXT NOT NULL, op TEXT NOT NULL, pk BLOB NOT NULL, old BLOB, new BLOB,
    PRIMARY KEY (revision, seq)) WITHOUT ROWID;
CREATE TABLE request_ids (
    client_id BLOB PRIMARY KEY, last_seq INTEGER NOT NULL, "index" INTEGER NOT NULL, result BLOB NOT NULL, used_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE cluster_nodes (
    node_id INTEGER PRIMARY KEY, slot INTEGER NOT NULL, name TEXT NOT NULL, raft_addr TEXT NOT NULL, client_addr TEXT NOT NULL,
    role TEXT NOT NULL, zone TEXT NOT NULL, build TEXT NOT NULL, joined_index INTEGER NOT NULL, removed_index INTEGER,
    incarnation TEXT NOT NULL, cert_sha256 BLOB NOT NULL, replaces INTEGER);
CREATE TABLE node_overrides (
    node_id INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, author TEXT NOT NULL, "index" INTEGER NOT NULL,
    PRIMARY KEY (node_id, name)) WITHOUT ROWID;
CREATE TABLE join_tokens (
    token_sha256 BLOB PRIMARY KEY, role TEXT NOT NULL, expires_ms INTEGER NOT NULL, uses_left INTEGER NOT NULL, author TEXT NOT NULL) WITHOUT ROWID;
"#;

/// Creates everything in an empty file; checks the versions of one that has content.
pub(crate) fn prepare(connection: &Connection) -> Result<(), StorageError> {
    let known: Option<String> =
        connection.query_row("SELECT name FROM sqlite_schema WHERE name = 'raft_meta'", [], |row| row.get(0)).optional()?;
    if known.is_none() {
        return create(connection);
    }
    check_versions(connection)
}

fn create(connection: &Connection) -> Result<(), StorageError> {
    let transaction = connection.unchecked_transaction()?;
    transaction.execute_batch(INTERNAL_TABLES)?;
    for table in TABLES {
        for layer in [Layer::Memory, Layer::Runtime, Layer::Disk] {
            transaction.execute_batch(&table.ddl(layer))?;
        }
    }
    for module in &MODULES {
        transaction.execute("INSERT INTO module_state (module) VALUES (?1)", [module.name])?;
    }
    transaction
        .execute("INSERT INTO raft_meta VALUES (1, 0, 0, x'', '', ?1, ?2, 0, 0, 0, 0, 0)", (super::FEATURE_LEVEL, SCHEMA_VERSION))?;
    transaction.commit()?;
    Ok(())
}

/// Refuses a file of a newer build.
pub(crate) fn check_versions(connection: &Connection) -> Result<(), StorageError> {
    let (level, version): (u32, u32) =
        connection
            .query_row("SELECT feature_level, schema_version FROM raft_meta WHERE id = 1", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if level > super::FEATURE_LEVEL || version != SCHEMA_VERSION {
        return Err(StorageError::Refused(format!(
            "state.db has feature level {level} and schema version {version}, this build knows {} and {SCHEMA_VERSION}",
            super::FEATURE_LEVEL
        )));
    }
    Ok(())
}

/// The row of `raft_meta`, held in memory during a transaction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Meta {
    pub(crate) last_term: u64,
    pub(crate) last_index: u64,
    pub(crate) membership: Vec<u8>,
    pub(crate) cluster_id: String,
    /// Number of the last change of RUNTIME.
    pub(crate) runtime_revision: u64,
    /// Index of the last entry that changed RUNTIME rows or node overrides.
    pub(crate) runtime_index: u64,
    /// Index of the last entry that changed rows of admin tables.
    pub(crate) last_data_index: u64,
    /// Batch of that entry, and its position there.
    pub(crate) last_batch: u64,
    pub(crate) last_batch_position: u32,
}

impl Meta {
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let sql = "SELECT last_term, last_index, membership, cluster_id, runtime_revision, runtime_index, last_data_index, last_batch, \
                   last_batch_position FROM raft_meta WHERE id = 1";
        connection.prepare_cached(sql)?.query_row([], |row| {
            Ok(Self {
                last_term: unsigned(row.get(0)?),
                last_index: unsigned(row.get(1)?),
                membership: row.get(2)?,
                cluster_id: row.get(3)?,
                runtime_revision: unsigned(row.get(4)?),
                runtime_index: unsigned(row.get(5)?),
                last_data_index: unsigned(row.get(6)?),
                last_batch: unsigned(row.get(7)?),
                last_batch_position: row.get(8)?,
            })
        })
    }

    pub(crate) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let sql = "UPDATE raft_meta SET last_term = ?1, last_index = ?2, membership = ?3, cluster_id = ?4, runtime_revision = ?5, \
                   runtime_index = ?6, last_data_index = ?7, last_batch = ?8, last_batch_position = ?9 WHERE id = 1";
        connection.prepare_cached(sql)?.execute((
            signed(self.last_term),
            signed(self.last_index),
            &self.membership,
            &self.cluster_id,
            signed(self.runtime_revision),
            signed(self.runtime_index),
            signed(self.last_data_index),
            signed(self.last_batch),
            self.last_batch_position,
        ))?;
        Ok(())
    }
}

/// SQLite's integers are signed; the same 64 bits on both sides.
pub(crate) const fn signed(value: u64) -> i64 {
    value.cast_signed()
}

/// The other way.
pub(crate) const fn unsigned(value: i64) -> u64 {
    value.cast_unsigned()
}
