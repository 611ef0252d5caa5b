//! `config_history` and `config_changes`: who changed RUNTIME, when, and which rows.
//!
//! Old and new rows are kept whole, because a rollback needs them: they are as secret as the tables themselves. Whoever
//! shows them to people reads them through [`changes_of`], which masks secrets.

use quorumsql_proto::log as pb;
use rusqlite::Connection;

use super::apply::Context;
use super::changes::{Revision, RuntimeChange};
use super::schema::signed;
use super::{StorageError, hash, row};
use crate::command::Value;
use crate::tables::{self, TableDescription, is_secret_variable};

/// Revisions and bytes that are kept (raft-and-storage.md 5.5). Their age does not count: a proposer whose clock is wrong would make
/// all nodes forget what a rollback needs.
const KEPT_REVISIONS: u64 = 1000;
const KEPT_BYTES: i64 = 64 << 20;
/// Limits are looked at once in so many revisions.
const PRUNE_EVERY: u64 = 16;

/// Shown instead of a secret.
const MASK: &str = "********";

pub(crate) fn record(context: &mut Context<'_>, revision: &Revision) -> Result<(), StorageError> {
    let mut bytes = 0;
    for (position, change) in context.changes.runtime.iter().enumerate() {
        bytes += record_change(context, position, change)?;
    }
    let (rows_after, hash_after) = hash::runtime_summary(context.connection)?;
    let entry = context.entry;
    let sql = "INSERT INTO config_history VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
    context.connection.prepare_cached(sql)?.execute(rusqlite::params![
        signed(context.meta.runtime_revision),
        signed(context.term),
        signed(context.index),
        signed(entry.proposed_at_ms),
        signed(entry.origin_node),
        entry.actor,
        entry.client_addr,
        channel_name(entry.channel()),
        entry.statement,
        revision.modules,
        revision.before.0,
        rows_after,
        revision.before.1.to_be_bytes(),
        hash_after.to_be_bytes(),
        entry.reason,
        revision.result,
        bytes,
    ])?;
    prune(context)
}

fn record_change(context: &Context<'_>, position: usize, change: &RuntimeChange) -> Result<i64, StorageError> {
    let op = match (&change.old, &change.new) {
        (None, _) => "+",
        (Some(_), None) => "-",
        (Some(_), Some(_)) => "~",
    };
    let (old, new) = (change.old.as_deref().map(row::encode), change.new.as_deref().map(row::encode));
    let size = old.as_ref().map_or(0, Vec::len) + new.as_ref().map_or(0, Vec::len);
    let sql = "INSERT INTO config_changes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let sequence = i64::try_from(position + 1).unwrap_or(i64::MAX);
    let key = row::encode(&change.key);
    context.connection.prepare_cached(sql)?.execute((
        signed(context.meta.runtime_revision),
        sequence,
        change.table.name,
        op,
        key,
        old,
        new,
    ))?;
    Ok(i64::try_from(size).unwrap_or(i64::MAX))
}

fn channel_name(channel: pb::Channel) -> &'static str {
    match channel {
        pb::Channel::Internal => "internal",
        pb::Channel::Mysql => "mysql",
        pb::Channel::Pgsql => "pgsql",
        pb::Channel::Grpc => "grpc",
    }
}

/// Forgets the oldest revisions beyond the limits. The newest stays.
fn prune(context: &Context<'_>) -> Result<(), StorageError> {
    let newest = context.meta.runtime_revision;
    if !newest.is_multiple_of(PRUNE_EVERY) {
        return Ok(());
    }
    let sql = "SELECT max(revision) FROM (SELECT revision, sum(bytes) OVER (ORDER BY revision DESC) AS size FROM config_history) \
               WHERE revision <= ?1 OR size > ?2";
    let last: Option<i64> =
        context.connection.prepare_cached(sql)?.query_row((signed(newest.saturating_sub(KEPT_REVISIONS)), KEPT_BYTES), |row| row.get(0))?;
    if let Some(last) = last.filter(|last| *last > 0) {
        let last = last.min(signed(newest) - 1);
        context.connection.prepare_cached("DELETE FROM config_changes WHERE revision <= ?1")?.execute([last])?;
        context.connection.prepare_cached("DELETE FROM config_history WHERE revision <= ?1")?.execute([last])?;
    }
    Ok(())
}

/// One changed row of a revision, with secrets masked.
#[derive(Clone, PartialEq, Debug)]
pub struct RevisionChange {
    /// Table.
    pub table: String,
    /// `+`, `-` or `~`.
    pub op: String,
    /// Its key as text, e.g. `(10, 'db1', 3306)`.
    pub key: String,
    /// The row before, in the order of the table's columns.
    pub old: Option<Vec<Value>>,
    /// The row after.
    pub new: Option<Vec<Value>>,
}

/// The changes of `revision` in order, secrets masked.
///
/// # Errors
/// Of SQLite.
pub fn changes_of(connection: &Connection, revision: u64) -> rusqlite::Result<Vec<RevisionChange>> {
    let sql = r#"SELECT "table", op, pk, old, new FROM config_changes WHERE revision = ?1 ORDER BY seq"#;
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([signed(revision)], |found| {
        let table: String = found.get(0)?;
        let key = row::decode(&found.get::<_, Vec<u8>>(2)?).unwrap_or_default();
        let masked = |bytes: Option<Vec<u8>>| bytes.and_then(|bytes| row::decode(&bytes)).map(|values| mask(&table, values));
        let (old, new) = (masked(found.get(3)?), masked(found.get(4)?));
        Ok(RevisionChange { op: found.get(1)?, key: row::key_text(&key), old, new, table })
    })?;
    rows.collect()
}

fn mask(table: &str, mut values: Vec<Value>) -> Vec<Value> {
    let Some(table) = tables::table(table) else {
        return Vec::new();
    };
    let secret_variable = matches!(values.first(), Some(Value::Text(name)) if table.name == "global_variables" && is_secret_variable(name));
    for (position, value) in values.iter_mut().enumerate() {
        let secret = is_secret_column(table, position) || (secret_variable && position == 1);
        if secret && !matches!(value, Value::Null) && *value != Value::Text(String::new()) {
            *value = Value::Text(MASK.into());
        }
    }
    values
}

fn is_secret_column(table: &TableDescription, position: usize) -> bool {
    table.columns.get(position).is_some_and(|column| table.secrets.contains(&column.name))
}
