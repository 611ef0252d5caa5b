//! `LayerCopy`: LOAD and SAVE of whole modules (raft-and-storage.md 5.2, 5.3).
//!
//! Only the keys in `dirty` are looked at, so the cost is that of the change, not of the table.

use quorumsql_proto::log as pb;
use rusqlite::OptionalExtension;

use super::apply::Context;
use super::change::layer_of;
use super::result::ApplyResult;
use super::schema::{signed, unsigned};
use super::{ApplyOutcome, StorageError, hash, row};
use crate::command::{Layer, Value};
use crate::tables::{self, ModuleDescription, TableDescription};

/// Warnings name at most this many rows each.
const NAMED_ROWS: usize = 8;

/// A key in which source and target may differ.
struct Candidate {
    key: row::Row,
    pk: Vec<u8>,
    memory_index: u64,
    memory_author: String,
    memory_node: u64,
}

/// What a copy did, for texts.
#[derive(Default)]
struct Report {
    changed: Vec<(&'static str, usize)>,
    warnings: Vec<String>,
}

pub(crate) fn apply(context: &mut Context<'_>, op: &pb::LayerCopy) -> Result<ApplyResult, StorageError> {
    let (from, to) = (layer_of(op.from()), layer_of(op.to()));
    let Some(pair) = pair(from, to) else {
        return Err(context.damaged(format!("no copy from {from:?} to {to:?}")));
    };
    let mut modules = Vec::new();
    for module in &op.modules {
        let Some(description) = tables::module_named(&module.name) else {
            return Err(context.damaged(format!("unknown module {}", module.name)));
        };
        modules.push((description, module.seen));
    }
    if to == Layer::Runtime
        && let Some(refusal) = check_revision(context, op, &modules)?
    {
        return Ok(refusal);
    }
    let before = if to == Layer::Runtime { hash::runtime_summary(context.connection)? } else { (0, 0) };
    let mut report = Report::default();
    for (module, seen) in &modules {
        for name in module.tables {
            let Some(table) = tables::table(name) else {
                return Err(context.damaged(format!("unknown table {name}")));
            };
            if let Some(refusal) = copy_table(context, op, module, table, (from, to, pair), *seen, &mut report)? {
                return Ok(refusal);
            }
        }
    }
    Ok(finish(context, to, before, &modules, report))
}

fn pair(from: Layer, to: Layer) -> Option<&'static str> {
    match (from, to) {
        (Layer::Memory, Layer::Runtime) | (Layer::Runtime, Layer::Memory) => Some("mr"),
        (Layer::Memory, Layer::Disk) | (Layer::Disk, Layer::Memory) => Some("md"),
        _ => None,
    }
}

fn finish(
    context: &mut Context<'_>,
    to: Layer,
    before: (i64, u128),
    modules: &[(&'static ModuleDescription, Option<u64>)],
    report: Report,
) -> ApplyResult {
    let rows = rows_text(&report.changed);
    let mut result = ApplyResult { warnings: report.warnings, ..ApplyResult::ok(context.index) };
    result.message = if to == Layer::Runtime && !report.changed.is_empty() {
        let names: Vec<&str> = modules.iter().map(|(module, _)| module.name).collect();
        let revision = context.new_revision(before, names.join(","));
        result.revision = Some(revision);
        format!("revision {revision}, {rows}")
    } else if to == Layer::Runtime {
        format!("revision {} unchanged, {rows}", context.meta.runtime_revision)
    } else {
        rows
    };
    context.describe_revision(&result.message);
    result.memory_modules = context.changes.modules(Layer::Memory).into_iter().map(String::from).collect();
    result
}

fn rows_text(changed: &[(&str, usize)]) -> String {
    if changed.is_empty() {
        return "0 rows changed".into();
    }
    let parts: Vec<String> =
        changed.iter().map(|(table, rows)| format!("{rows} row{} changed in {table}", if *rows == 1 { "" } else { "s" })).collect();
    parts.join(", ")
}

/// `IF REVISION`: of the module, or of the cluster where several are loaded.
fn check_revision(
    context: &Context<'_>,
    op: &pb::LayerCopy,
    modules: &[(&'static ModuleDescription, Option<u64>)],
) -> Result<Option<ApplyResult>, StorageError> {
    let Some(expected) = op.if_revision else {
        return Ok(None);
    };
    let (what, current) = match modules {
        [(module, _)] => {
            let sql = "SELECT runtime_revision FROM module_state WHERE module = ?1";
            let current: i64 = context.connection.prepare_cached(sql)?.query_row([module.name], |row| row.get(0))?;
            (format!("module {}", module.key()), unsigned(current))
        }
        _ => ("configuration".into(), context.meta.runtime_revision),
    };
    if current == expected {
        return Ok(None);
    }
    let sql = "SELECT actor, client_addr, node FROM config_history WHERE revision = ?1";
    let by: Option<(String, String, i64)> = context
        .connection
        .prepare_cached(sql)?
        .query_row([signed(current)], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let by = by.map_or(String::new(), |(actor, address, node)| {
        let at = if address.is_empty() { String::new() } else { format!("@{address}") };
        format!(", changed by {actor}{at} on node {node}")
    });
    let message = format!("revision conflict: {what} is at {current}, expected {expected}{by}");
    Ok(Some(context.refused(ApplyOutcome::RevisionConflict, message)))
}

fn copy_table(
    context: &mut Context<'_>,
    op: &pb::LayerCopy,
    module: &'static ModuleDescription,
    table: &'static TableDescription,
    (from, to, pair): (Layer, Layer, &str),
    seen: Option<u64>,
    report: &mut Report,
) -> Result<Option<ApplyResult>, StorageError> {
    let candidates = candidates(context, pair, module, table)?;
    let rows_before = hash::read(context.connection, to, module.name, table.name)?.rows;
    let mut differing = Vec::new();
    for candidate in candidates {
        let source = row::fetch(context.connection, table, from, &candidate.key)?;
        let target = row::fetch(context.connection, table, to, &candidate.key)?;
        let equal = match (&source, &target) {
            (None, None) => true,
            (Some(source), Some(target)) => row::same(source, target),
            _ => false,
        };
        if equal {
            clean(context, pair, table, &candidate)?;
        } else if source.is_some() || module.variable_prefix.is_none() {
            // A variable that the source lacks keeps its value, as in the reference: variables are never deleted by a copy.
            differing.push((candidate, source, target));
        }
    }
    if to == Layer::Runtime
        && let Some(refusal) = check_editors(context, op, module, table, seen, &differing, report)
    {
        return Ok(Some(refusal));
    }
    write(context, table, (to, pair), &differing)?;
    let rows_after = rows_before + context.changes.rows(to, module.name, table.name);
    if to == Layer::Runtime && !op.allow_empty && rows_before > 0 && rows_after == 0 {
        let message =
            format!("LOAD {} TO RUNTIME would remove all {rows_before} rows of {}; add FORCE to confirm", module.name, table.name);
        return Ok(Some(context.refused(ApplyOutcome::Refused, message)));
    }
    if !differing.is_empty() {
        report.changed.push((table.name, differing.len()));
    }
    Ok(None)
}

type Difference = (Candidate, Option<row::Row>, Option<row::Row>);

/// Rows that vanish or change the values of a unique key are deleted before anything is inserted, so that rows may swap such
/// values; all others are updated in place.
fn write(
    context: &mut Context<'_>,
    table: &'static TableDescription,
    (to, pair): (Layer, &str),
    differing: &[Difference],
) -> Result<(), StorageError> {
    for (_, source, target) in differing {
        match (source, target) {
            (Some(source), Some(target)) if same_unique_keys(table, source, target) => {
                context.write_row(table, to, Some(target.clone()), Some(source.clone()))?;
            }
            (_, Some(_)) => context.write_row(table, to, target.clone(), None)?,
            (_, None) => {}
        }
    }
    for (candidate, source, target) in differing {
        match (source, target) {
            (Some(source), Some(target)) if same_unique_keys(table, source, target) => {}
            (Some(_), _) => context.write_row(table, to, None, source.clone())?,
            (None, _) => {}
        }
        clean(context, pair, table, candidate)?;
    }
    Ok(())
}

fn same_unique_keys(table: &TableDescription, left: &[Value], right: &[Value]) -> bool {
    let columns = table.unique.iter().flat_map(|columns| columns.iter()).filter_map(|column| table.position(column));
    columns.into_iter().all(|position| left[position] == right[position])
}

fn candidates(
    context: &Context<'_>,
    pair: &str,
    module: &ModuleDescription,
    table: &'static TableDescription,
) -> Result<Vec<Candidate>, StorageError> {
    let sql = r#"SELECT pk, memory_index, memory_author, memory_node FROM dirty WHERE pair = ?1 AND "table" = ?2 ORDER BY pk"#;
    let mut statement = context.connection.prepare_cached(sql)?;
    let rows = statement.query_map((pair, table.name), |row| {
        let (index, author, node): (i64, String, i64) = (row.get(1)?, row.get(2)?, row.get(3)?);
        Ok((row.get::<_, Vec<u8>>(0)?, unsigned(index), author, unsigned(node)))
    })?;
    let mut found = Vec::new();
    for row in rows {
        let (pk, memory_index, memory_author, memory_node) = row?;
        let Some(key) = row::decode(&pk) else {
            return Err(context.damaged(format!("unreadable key in dirty for {}", table.name)));
        };
        let mine = key.first().and_then(|first| tables::module_of(table, first)).is_some_and(|owner| owner.name == module.name);
        if mine {
            found.push(Candidate { key, pk, memory_index, memory_author, memory_node });
        }
    }
    Ok(found)
}

fn clean(context: &Context<'_>, pair: &str, table: &TableDescription, candidate: &Candidate) -> Result<(), StorageError> {
    let sql = r#"DELETE FROM dirty WHERE pair = ?1 AND "table" = ?2 AND pk = ?3"#;
    context.connection.prepare_cached(sql)?.execute((pair, table.name, &candidate.pk))?;
    Ok(())
}

/// `admin-edit_conflicts`: rows that another connection staged after this one last looked.
fn check_editors(
    context: &Context<'_>,
    op: &pb::LayerCopy,
    module: &ModuleDescription,
    table: &TableDescription,
    seen: Option<u64>,
    differing: &[Difference],
    report: &mut Report,
) -> Option<ApplyResult> {
    let (seen, mode) = (seen?, op.conflicts());
    let unseen: Vec<&Candidate> =
        differing.iter().map(|(candidate, ..)| candidate).filter(|candidate| candidate.memory_index > seen).collect();
    let first = unseen.first()?;
    let changed_by = |candidate: &Candidate| {
        let Candidate { memory_author, memory_node, memory_index, .. } = candidate;
        format!(
            "was changed by {memory_author} on node {memory_node} at index {memory_index}, after index {seen} which this connection has seen"
        )
    };
    match mode {
        pb::EditConflicts::Off => None,
        pb::EditConflicts::Error => {
            let message =
                format!("{name} {}; read the table again, or SAVE {name} FROM RUNTIME, and retry", changed_by(first), name = module.name);
            Some(context.refused(ApplyOutcome::Conflict, message))
        }
        pb::EditConflicts::Warn => {
            for candidate in unseen.iter().take(NAMED_ROWS) {
                report.warnings.push(format!("row {} of {} {}", row::key_text(&candidate.key), table.name, changed_by(candidate)));
            }
            if unseen.len() > NAMED_ROWS {
                report.warnings.push(format!("{} more rows of {} were changed by others", unseen.len() - NAMED_ROWS, table.name));
            }
            None
        }
    }
}
