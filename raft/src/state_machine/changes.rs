//! The only way in which rows of admin tables change: write the row, then account for it in hashes, dirty keys, module
//! states and history.

use std::collections::{BTreeMap, BTreeSet};

use super::apply::Context;
use super::schema::signed;
use super::{StorageError, hash, history, row};
use crate::command::Layer;
use crate::tables::TableDescription;

/// One changed row of RUNTIME, for history.
#[derive(Debug)]
pub(crate) struct RuntimeChange {
    pub(crate) table: &'static TableDescription,
    pub(crate) key: row::Row,
    pub(crate) old: Option<row::Row>,
    pub(crate) new: Option<row::Row>,
}

/// What an entry has changed so far.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Per layer, module and table: difference in rows and sum of hashes.
    tally: BTreeMap<(Layer, &'static str, &'static str), (i64, u128)>,
    /// Rows of RUNTIME, in order.
    pub(crate) runtime: Vec<RuntimeChange>,
    /// Set when the entry makes a revision of RUNTIME.
    pub(crate) revision: Option<Revision>,
    /// New hashes of the tables that changed.
    pub(crate) hashes: Vec<(hash::HashKey, hash::TableHash)>,
}

/// What history says about a new revision beyond its rows.
#[derive(Debug)]
pub(crate) struct Revision {
    /// Rows and hash of RUNTIME before it.
    pub(crate) before: (i64, u128),
    /// Names of its modules, joined by commas.
    pub(crate) modules: String,
    /// Info text.
    pub(crate) result: String,
}

impl Changes {
    /// Modules of which rows of `layer` changed.
    pub(crate) fn modules(&self, layer: Layer) -> BTreeSet<&'static str> {
        self.tally.keys().filter(|(changed, module, _)| *changed == layer && !module.is_empty()).map(|(_, module, _)| *module).collect()
    }

    /// Difference in the number of rows.
    pub(crate) fn rows(&self, layer: Layer, module: &'static str, table: &'static str) -> i64 {
        self.tally.get(&(layer, module, table)).map_or(0, |(rows, _)| *rows)
    }

    fn add(&mut self, layer: Layer, table: &'static TableDescription, row: &[crate::command::Value], sign: i64) {
        let (rows, sum) = self.tally.entry((layer, hash::scope_of(table, row), table.name)).or_default();
        *rows += sign;
        let hash = hash::row_hash(table, row);
        *sum = if sign > 0 { sum.wrapping_add(hash) } else { sum.wrapping_sub(hash) };
    }
}

impl Context<'_> {
    /// Replaces `old` by `new` (`None` = no row). Strict: the present row must be exactly `old`, and a new key must be free.
    pub(crate) fn change_row(
        &mut self,
        table: &'static TableDescription,
        layer: Layer,
        old: Option<row::Row>,
        new: Option<row::Row>,
    ) -> Result<(), StorageError> {
        let old_key = old.as_ref().map(|row| row::key_of(table, row));
        let new_key = new.as_ref().map(|row| row::key_of(table, row));
        let Some(key) = old_key.as_ref().or(new_key.as_ref()).cloned() else {
            return Ok(());
        };
        self.expect_row(table, layer, &key, old.as_ref())?;
        if let (Some(old_key), Some(new_key)) = (&old_key, &new_key)
            && !row::same(old_key, new_key)
        {
            self.expect_row(table, layer, new_key, None)?;
        }
        self.write_row(table, layer, old, new)
    }

    /// As [`Self::change_row`], where the caller has just read `old`, and `new` has the same key.
    pub(crate) fn write_row(
        &mut self,
        table: &'static TableDescription,
        layer: Layer,
        old: Option<row::Row>,
        new: Option<row::Row>,
    ) -> Result<(), StorageError> {
        let old_key = old.as_ref().map(|row| row::key_of(table, row));
        let written = match (&old_key, &new) {
            (None, Some(new)) => row::insert(self.connection, table, layer, new)?,
            (Some(key), Some(new)) => row::update(self.connection, table, layer, key, new)?,
            (Some(key), None) => row::delete(self.connection, table, layer, key)?,
            (None, None) => 1,
        };
        if written != 1 {
            let key = old_key.unwrap_or_else(|| new.map(|row| row::key_of(table, &row)).unwrap_or_default());
            return Err(self.diverged(format!("{written} rows of {} have the key {}", table.physical(layer), row::key_text(&key))));
        }
        self.account(table, layer, old, new)
    }

    fn expect_row(
        &self,
        table: &TableDescription,
        layer: Layer,
        key: &[crate::command::Value],
        expected: Option<&row::Row>,
    ) -> Result<(), StorageError> {
        let found = row::fetch(self.connection, table, layer, key)?;
        let fits = match (&found, expected) {
            (None, None) => true,
            (Some(found), Some(expected)) => row::same(found, expected),
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let what = match (found, expected) {
            (None, _) => "is missing",
            (Some(_), None) => "exists already",
            (Some(_), Some(_)) => "has other values",
        };
        Err(self.diverged(format!("row {} of {} {what}", row::key_text(key), table.physical(layer))))
    }

    /// Books a change of a row that has been written.
    pub(crate) fn account(
        &mut self,
        table: &'static TableDescription,
        layer: Layer,
        old: Option<row::Row>,
        new: Option<row::Row>,
    ) -> Result<(), StorageError> {
        for (row, sign) in [(&old, -1), (&new, 1)] {
            if let Some(row) = row {
                self.changes.add(layer, table, row, sign);
                self.mark_dirty(table, layer, &row::key_of(table, row))?;
            }
        }
        if layer == Layer::Runtime
            && let Some(key) = new.as_ref().or(old.as_ref()).map(|row| row::key_of(table, row))
        {
            self.changes.runtime.push(RuntimeChange { table, key, old, new });
        }
        Ok(())
    }

    /// Two layers may differ in this key from now on; who changed MEMORY last is kept for other editors.
    fn mark_dirty(&self, table: &TableDescription, layer: Layer, key: &[crate::command::Value]) -> Result<(), StorageError> {
        let pairs: &[&str] = match layer {
            Layer::Memory => &["mr", "md"],
            Layer::Runtime => &["mr"],
            Layer::Disk => &["md"],
        };
        let (index, author, node) = match layer {
            Layer::Memory => (self.index, self.author(), self.entry.origin_node),
            Layer::Runtime | Layer::Disk => (0, String::new(), 0),
        };
        let on_conflict = if layer == Layer::Memory {
            "UPDATE SET memory_index = excluded.memory_index, memory_author = excluded.memory_author, memory_node = excluded.memory_node"
        } else {
            "NOTHING"
        };
        let mut statement =
            self.connection.prepare_cached(&format!("INSERT INTO dirty VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO {on_conflict}"))?;
        for pair in pairs {
            statement.execute((pair, table.name, row::encode(key), signed(index), &author, signed(node)))?;
        }
        Ok(())
    }

    /// Writes what was accounted: hashes, module states, `last_data_index`, and history if there is a new revision.
    pub(crate) fn finish(&mut self) -> Result<(), StorageError> {
        if !self.changes.runtime.is_empty() {
            self.meta.runtime_index = self.index;
        }
        self.write_hashes()?;
        for layer in [Layer::Memory, Layer::Runtime, Layer::Disk] {
            for module in self.changes.modules(layer) {
                self.write_module_state(layer, module)?;
            }
        }
        if !self.changes.tally.is_empty() || self.entry.base_index.is_some() {
            self.meta.last_data_index = self.index;
            self.meta.last_batch = self.entry.batch;
            self.meta.last_batch_position = self.entry.batch_position;
        }
        match self.changes.revision.take() {
            Some(revision) => history::record(self, &revision),
            None => Ok(()),
        }
    }

    fn write_hashes(&mut self) -> Result<(), StorageError> {
        let mut hashes = Vec::with_capacity(self.changes.tally.len());
        for ((layer, module, name), (rows, sum)) in &self.changes.tally {
            let mut value = hash::read(self.connection, *layer, module, name)?;
            value.rows += rows;
            value.hash = value.hash.wrapping_add(*sum);
            if let Some(table) = crate::tables::table(name).filter(|table| table.autoincrement) {
                value.autoincrement = hash::autoincrement(self.connection, &table.physical(*layer))?;
            }
            hash::write(self.connection, *layer, module, name, value)?;
            hashes.push((hash::key(*layer, module, name), value));
        }
        self.changes.hashes = hashes;
        Ok(())
    }

    fn write_module_state(&self, layer: Layer, module: &str) -> Result<(), StorageError> {
        let index = signed(self.index);
        match layer {
            Layer::Memory => {
                let sql = "UPDATE module_state SET memory_index = ?2, memory_author = ?3, memory_node = ?4 WHERE module = ?1";
                self.connection.prepare_cached(sql)?.execute((module, index, self.author(), signed(self.entry.origin_node)))?;
            }
            Layer::Runtime => {
                let sql = "UPDATE module_state SET runtime_revision = ?2, runtime_index = ?3 WHERE module = ?1";
                self.connection.prepare_cached(sql)?.execute((module, signed(self.meta.runtime_revision), index))?;
            }
            Layer::Disk => {
                self.connection.prepare_cached("UPDATE module_state SET disk_index = ?2 WHERE module = ?1")?.execute((module, index))?;
            }
        }
        Ok(())
    }

    /// The changes of RUNTIME in this entry are the next revision. `before` is the runtime layer before them.
    pub(crate) fn new_revision(&mut self, before: (i64, u128), modules: String) -> u64 {
        self.meta.runtime_revision += 1;
        self.changes.revision = Some(Revision { before, modules, result: String::new() });
        self.meta.runtime_revision
    }

    /// The info text of the new revision, for history.
    pub(crate) fn describe_revision(&mut self, result: &str) {
        if let Some(revision) = &mut self.changes.revision {
            revision.result = result.to_string();
        }
    }
}
