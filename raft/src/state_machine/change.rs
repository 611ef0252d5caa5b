//! `Change`: rows computed by the leader, applied strictly (raft-and-storage.md 4.3).

use quorumsql_proto::log as pb;

use super::apply::Context;
use super::result::ApplyResult;
use super::{StorageError, row};
use crate::command::Layer;
use crate::tables::{self, TableDescription};

/// Layer of a protobuf field.
pub(crate) fn layer_of(layer: pb::Layer) -> Layer {
    match layer {
        pb::Layer::Memory => Layer::Memory,
        pb::Layer::Runtime => Layer::Runtime,
        pb::Layer::Disk => Layer::Disk,
    }
}

pub(crate) fn layer_to_proto(layer: Layer) -> pb::Layer {
    match layer {
        Layer::Memory => pb::Layer::Memory,
        Layer::Runtime => pb::Layer::Runtime,
        Layer::Disk => pb::Layer::Disk,
    }
}

pub(crate) fn apply(context: &mut Context<'_>, op: &pb::Change) -> Result<ApplyResult, StorageError> {
    for change in &op.tables {
        let layer = layer_of(change.layer());
        if layer == Layer::Runtime {
            return Err(context.damaged("a change of rows names the runtime layer"));
        }
        apply_table(context, layer, change)?;
    }
    let memory_modules = context.changes.modules(Layer::Memory).into_iter().map(String::from).collect();
    Ok(ApplyResult { affected: op.affected, last_insert_id: op.last_insert_id, memory_modules, ..ApplyResult::ok(context.index) })
}

/// The rows of one table in one layer.
pub(crate) fn apply_table(context: &mut Context<'_>, layer: Layer, change: &pb::TableChange) -> Result<(), StorageError> {
    let Some(table) = tables::table(&change.table).filter(|table| table.name == change.table) else {
        return Err(context.damaged(format!("unknown table {}", change.table)));
    };
    let positions: Option<Vec<usize>> =
        change.columns.iter().map(|name| table.columns.iter().position(|column| column.name == name)).collect();
    let Some(positions) = positions else {
        return Err(context.damaged(format!("unknown column of {}", change.table)));
    };
    for row in &change.rows {
        apply_row(context, table, layer, &positions, row)?;
    }
    match change.autoincrement {
        Some(counter) if table.autoincrement => set_counter(context, &table.physical(layer), counter),
        Some(_) => Err(context.damaged(format!("{} has no AUTOINCREMENT", change.table))),
        None => Ok(()),
    }
}

fn apply_row(
    context: &mut Context<'_>,
    table: &'static TableDescription,
    layer: Layer,
    positions: &[usize],
    change: &pb::RowChange,
) -> Result<(), StorageError> {
    let (old, new) = (row::from_proto(&change.old), row::from_proto(&change.new));
    for values in [&old, &new] {
        if !values.is_empty() && values.len() != positions.len() {
            return Err(context.damaged(format!("a row of {} has {} values for {} columns", table.name, values.len(), positions.len())));
        }
    }
    let whole = positions.len() == table.columns.len() && positions.iter().enumerate().all(|(n, position)| n == *position);
    if whole {
        return context.change_row(table, layer, Some(old).filter(|row| !row.is_empty()), Some(new).filter(|row| !row.is_empty()));
    }
    if old.is_empty() {
        return insert_with_defaults(context, table, layer, positions, &new);
    }
    let present = present_row(context, table, layer, positions, &old)?;
    let replaced = Some(new).filter(|row| !row.is_empty()).map(|values| {
        let mut row = present.clone();
        positions.iter().zip(values).for_each(|(position, value)| row[*position] = value);
        row
    });
    context.change_row(table, layer, Some(present), replaced)
}

/// The whole row of which an entry of an older layout names only some columns.
fn present_row(
    context: &Context<'_>,
    table: &'static TableDescription,
    layer: Layer,
    positions: &[usize],
    old: &[crate::command::Value],
) -> Result<row::Row, StorageError> {
    let key = named_key(context, table, positions, old)?;
    let present = row::fetch(context.connection, table, layer, &key)?;
    let fits = |row: &row::Row| row::same(&positions.iter().map(|position| row[*position].clone()).collect::<Vec<_>>(), old);
    present
        .filter(fits)
        .ok_or_else(|| context.diverged(format!("row {} of {} is not as expected", row::key_text(&key), table.physical(layer))))
}

fn named_key(
    context: &Context<'_>,
    table: &TableDescription,
    positions: &[usize],
    values: &[crate::command::Value],
) -> Result<row::Row, StorageError> {
    let value = |column: &usize| positions.iter().position(|position| position == column).map(|n| values[n].clone());
    table
        .key_positions()
        .iter()
        .map(value)
        .collect::<Option<row::Row>>()
        .ok_or_else(|| context.damaged(format!("no key of {}", table.name)))
}

/// Lets SQLite fill the columns that the entry does not name, then books the row that it made.
fn insert_with_defaults(
    context: &mut Context<'_>,
    table: &'static TableDescription,
    layer: Layer,
    positions: &[usize],
    values: &[crate::command::Value],
) -> Result<(), StorageError> {
    let key = named_key(context, table, positions, values)?;
    if row::fetch(context.connection, table, layer, &key)?.is_some() {
        return Err(context.diverged(format!("row {} of {} exists already", row::key_text(&key), table.physical(layer))));
    }
    let names: Vec<&str> = positions.iter().map(|position| table.columns[*position].name).collect();
    let marks = vec!["?"; names.len()].join(", ");
    let sql = format!("INSERT INTO {} ({}) VALUES ({marks})", table.physical(layer), names.join(", "));
    context.connection.prepare_cached(&sql)?.execute(rusqlite::params_from_iter(values))?;
    let row = row::fetch(context.connection, table, layer, &key)?;
    context.account(table, layer, None, row)
}

fn set_counter(context: &Context<'_>, physical: &str, counter: i64) -> Result<(), StorageError> {
    let changed = context.connection.prepare_cached("UPDATE sqlite_sequence SET seq = ?2 WHERE name = ?1")?.execute((physical, counter))?;
    if changed == 0 {
        context.connection.prepare_cached("INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)")?.execute((physical, counter))?;
    }
    Ok(())
}
