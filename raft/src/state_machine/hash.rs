//! Running hashes of the tables (raft-and-storage.md 4.8): equal applied index, equal hashes.

use std::collections::BTreeMap;
use std::hash::Hasher;

use rusqlite::{Connection, OptionalExtension};
use siphasher::sip128::{Hasher128, SipHasher24};

use super::row;
use crate::command::{Layer, Value};
use crate::tables::{TABLES, TableDescription, module_of};

/// Fixed for ever: hashes of different builds are compared.
const KEY: &[u8; 16] = b"quorumsql tables";

/// Word for a layer in `table_hash`.
pub(crate) const fn layer_name(layer: Layer) -> &'static str {
    match layer {
        Layer::Memory => "memory",
        Layer::Runtime => "runtime",
        Layer::Disk => "disk",
    }
}

/// Hash of one row of one table; a table's hash is the sum modulo 2^128, so the order of changes does not matter.
pub(crate) fn row_hash(table: &TableDescription, row: &[Value]) -> u128 {
    let mut hasher = SipHasher24::new_with_key(KEY);
    hasher.write(table.name.as_bytes());
    hasher.write(&[0]);
    hasher.write(&row::encode(row));
    u128::from(hasher.finish128())
}

/// The name under which a row counts in `table_hash`: its module, or nothing for variables that no module has.
pub(crate) fn scope_of(table: &TableDescription, row: &[Value]) -> &'static str {
    let first_key = table.key_positions().first().and_then(|position| row.get(*position)).unwrap_or(&Value::Null);
    module_of(table, first_key).map_or("", |module| module.name)
}

/// A part of `table_hash`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TableHash {
    /// Rows.
    pub(crate) rows: i64,
    /// Sum of the rows' hashes.
    pub(crate) hash: u128,
    /// Counter of AUTOINCREMENT.
    pub(crate) autoincrement: i64,
}

/// Layer, module, table.
pub(crate) type HashKey = (&'static str, String, String);

pub(crate) fn read(connection: &Connection, layer: Layer, module: &str, table: &str) -> rusqlite::Result<TableHash> {
    let sql = r#"SELECT rows, hash, counter FROM table_hash WHERE layer = ?1 AND module = ?2 AND "table" = ?3"#;
    let found = connection.prepare_cached(sql)?.query_row((layer_name(layer), module, table), table_hash).optional()?;
    Ok(found.unwrap_or_default())
}

fn table_hash(row: &rusqlite::Row<'_>) -> rusqlite::Result<TableHash> {
    Ok(TableHash { rows: row.get(0)?, hash: u128::from_be_bytes(row.get(1)?), autoincrement: row.get(2)? })
}

pub(crate) fn write(connection: &Connection, layer: Layer, module: &str, table: &str, value: TableHash) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO table_hash VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let parameters = (layer_name(layer), module, table, value.rows, value.hash.to_be_bytes(), value.autoincrement);
    connection.prepare_cached(sql)?.execute(parameters)?;
    Ok(())
}

/// Counter of AUTOINCREMENT of a physical table.
pub(crate) fn autoincrement(connection: &Connection, physical: &str) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = ?1")?;
    Ok(statement.query_row([physical], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// Everything that `table_hash` holds, without the parts that are empty (an emptied table and a new one are equal).
pub(crate) fn stored(connection: &Connection) -> rusqlite::Result<BTreeMap<HashKey, TableHash>> {
    let mut found = BTreeMap::new();
    for layer in [Layer::Memory, Layer::Runtime, Layer::Disk] {
        let sql = r#"SELECT rows, hash, counter, module, "table" FROM table_hash WHERE layer = ?1"#;
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement.query_map([layer_name(layer)], |row| Ok(((layer_name(layer), row.get(3)?, row.get(4)?), table_hash(row)?)))?;
        for row in rows {
            let (key, hash) = row?;
            if hash != TableHash::default() {
                found.insert(key, hash);
            }
        }
    }
    Ok(found)
}

/// What [`stored`] must be, from the rows themselves.
pub(crate) fn recompute(connection: &Connection) -> rusqlite::Result<BTreeMap<HashKey, TableHash>> {
    let mut found: BTreeMap<HashKey, TableHash> = BTreeMap::new();
    for table in TABLES {
        for layer in [Layer::Memory, Layer::Runtime, Layer::Disk] {
            for row in row::fetch_all(connection, table, layer)? {
                let key = (layer_name(layer), scope_of(table, &row).to_string(), table.name.to_string());
                let entry = found.entry(key).or_default();
                entry.rows += 1;
                entry.hash = entry.hash.wrapping_add(row_hash(table, &row));
            }
            let counter = if table.autoincrement { autoincrement(connection, &table.physical(layer))? } else { 0 };
            if counter != 0 {
                let key = (layer_name(layer), scope_of(table, &[]).to_string(), table.name.to_string());
                found.entry(key).or_default().autoincrement = counter;
            }
        }
    }
    Ok(found)
}

/// One hash over all tables and layers at the applied index: equal on all nodes at an equal index.
///
/// # Errors
/// Of SQLite.
pub fn root_hash(connection: &Connection) -> rusqlite::Result<u128> {
    Ok(combine(stored(connection)?.iter()))
}

fn combine<'a>(parts: impl Iterator<Item = (&'a HashKey, &'a TableHash)>) -> u128 {
    let mut hasher = SipHasher24::new_with_key(KEY);
    for ((layer, module, table), value) in parts {
        for word in [*layer, module, table] {
            hasher.write(word.as_bytes());
            hasher.write(&[0]);
        }
        hasher.write(&value.rows.to_be_bytes());
        hasher.write(&value.hash.to_be_bytes());
        hasher.write(&value.autoincrement.to_be_bytes());
    }
    u128::from(hasher.finish128())
}

/// Hash of a module in a layer as tables and tools show it: `0x` and 16 hex digits; equal on all nodes at equal applied index.
///
/// # Errors
/// Of SQLite.
pub fn module_hash(connection: &Connection, module: &str, layer: Layer) -> rusqlite::Result<String> {
    let parts = stored(connection)?;
    let hash = combine(parts.iter().filter(|((found, name, _), _)| *found == layer_name(layer) && name == module));
    Ok(format!("0x{:016X}", u64::try_from(hash >> 64).unwrap_or_default()))
}

/// Rows and hash of the runtime layer, for history.
pub(crate) fn runtime_summary(connection: &Connection) -> rusqlite::Result<(i64, u128)> {
    let parts = stored(connection)?;
    let runtime = || parts.iter().filter(|((layer, _, _), _)| *layer == layer_name(Layer::Runtime));
    Ok((runtime().map(|(_, value)| value.rows).sum(), combine(runtime())))
}
