//! One batch: each request is computed on the rows left by the one before it, then everything is rolled back.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use prost::Message;
use quorumsql_proto::log as pb;
use tokio::time::Instant;

use super::speculation::Speculation;
use super::work::{Answer, Computed, Task, What};
use crate::command::{Channel, Committed, EditConflicts, Layer, LayerCopy, Rejection, TableRows, Validator, Value};
use crate::state_machine::apply::apply_entry;
use crate::state_machine::change::layer_to_proto;
use crate::state_machine::schema::Meta;
use crate::state_machine::{ApplyOutcome, StateMachine, StorageError, cut, known_result, row, savepoint};
use crate::tables::{self, ModuleDescription, check_variable, module_named};

/// A change that does not fit into one entry is refused (design.md section 4: parts come later).
const MAX_ENTRY_BYTES: usize = 1 << 20;
/// A batch ends after this time: apply waits for the writer lock meanwhile.
const BATCH_TIME: Duration = Duration::from_millis(50);
/// Text kept for history.
pub(crate) const MAX_HISTORY_BYTES: usize = 4096;

/// Computes the tasks in order. Some may stay `Computed::Deferred` when the time is over.
pub(super) fn compute(
    state: &StateMachine,
    speculation: &Speculation,
    validator: &Arc<dyn Validator>,
    tasks: &[Task],
) -> Result<Vec<Computed>, StorageError> {
    state.exclusively(|| {
        let connection = speculation.connection();
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let computed = compute_all(speculation, validator, state.expect(), tasks);
        if let Some(error) = speculation.take_broken_file() {
            state.fail(&error);
        }
        if !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK")?;
        }
        computed
    })
}

fn compute_all(
    speculation: &Speculation,
    validator: &Arc<dyn Validator>,
    expect: pb::Expect,
    tasks: &[Task],
) -> Result<Vec<Computed>, StorageError> {
    let mut meta = Meta::read(speculation.connection())?;
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|error| StorageError::Refused(format!("no randomness for a batch: {error}")))?;
    let mut batch = Batch {
        speculation,
        validator,
        base: meta.last_data_index,
        applied: meta.last_index,
        id: u64::from_be_bytes(random),
        expect,
        position: 0,
        size: 0,
    };
    let end = Instant::now() + BATCH_TIME;
    let mut computed = Vec::with_capacity(tasks.len());
    for task in tasks {
        let full = batch.size > 0 && (Instant::now() >= end || batch.size >= MAX_ENTRY_BYTES);
        // A statement that SQLite interrupted has ended the transaction: what was computed before it is still right.
        let over = speculation.connection().is_autocommit();
        computed.push(if full || over { Computed::Deferred } else { batch.compute_or_refuse(&mut meta, task) });
    }
    Ok(computed)
}

struct Batch<'a> {
    speculation: &'a Speculation,
    validator: &'a Arc<dyn Validator>,
    base: u64,
    /// Applied index on which the batch is computed.
    applied: u64,
    id: u64,
    /// The leader's tables at that index.
    expect: pb::Expect,
    position: u32,
    size: usize,
}

impl Batch<'_> {
    /// An error of the storage while speculating concerns this task only, unless the file is broken: then a leader that goes on would
    /// refuse everything for ever.
    fn compute_or_refuse(&mut self, meta: &mut Meta, task: &Task) -> Computed {
        let before = meta.clone();
        self.compute(meta, task).unwrap_or_else(|error| {
            tracing::error!(%error, "request could not be computed");
            *meta = before;
            let rejection = Rejection::admin(format!("the change could not be computed: {error}"));
            self.speculation.note(error);
            Computed::Answer(Answer::Rejected(rejection))
        })
    }

    fn compute(&mut self, meta: &mut Meta, task: &Task) -> Result<Computed, StorageError> {
        let connection = self.speculation.connection();
        if let Some(known) = known_result(connection, meta.last_index, &task.id)? {
            // A result of this batch is not committed yet: it is looked at again when it is.
            let speculative = known.outcome == ApplyOutcome::Ok && known.index > self.applied;
            return Ok(if speculative { Computed::Deferred } else { Computed::Answer(Answer::Applied(known)) });
        }
        match self.operation(task)? {
            Operation::Answer(answer) => Ok(Computed::Answer(answer)),
            Operation::Propose(op) => self.speculate(meta, task, op),
        }
    }

    /// What the entry will say.
    fn operation(&self, task: &Task) -> Result<Operation, StorageError> {
        Ok(match &task.what {
            What::Sql { text, params, .. } => return self.run_sql(task, text, params),
            What::LayerCopy(copy) => match layer_copy_op(copy) {
                Ok(op) => Operation::Propose(op),
                Err(rejection) => Operation::Answer(Answer::Rejected(rejection)),
            },
            What::Op(op) => Operation::Propose(op.as_ref().clone()),
        })
    }

    fn run_sql(&self, task: &Task, text: &str, params: &[Value]) -> Result<Operation, StorageError> {
        let connection = self.speculation.connection();
        let captured =
            savepoint(connection, || Ok::<_, StorageError>((false, self.speculation.run(text, params, task.statement_deadline))))?;
        Ok(match captured {
            Err(rejection) => Operation::Answer(Answer::Rejected(rejection)),
            Ok(captured) if captured.change.tables.is_empty() => {
                let index = Meta::read(connection)?.last_index;
                let affected = captured.change.affected;
                Operation::Answer(Answer::Unchanged(Committed { index, affected, live: true, ..Committed::default() }))
            }
            Ok(captured) => Operation::Propose(pb::log_entry::Op::Change(captured.change)),
        })
    }

    /// Applies the entry to the speculative rows: what is refused here is never proposed.
    fn speculate(&mut self, meta: &mut Meta, task: &Task, op: pb::log_entry::Op) -> Result<Computed, StorageError> {
        let based = matches!(op, pb::log_entry::Op::Change(_) | pb::log_entry::Op::LayerCopy(_));
        let entry = self.entry(task, op, based);
        let size = entry.encoded_len();
        if size > MAX_ENTRY_BYTES {
            return Ok(Computed::Answer(Answer::Rejected(Rejection::too_large(size, MAX_ENTRY_BYTES))));
        }
        let connection = self.speculation.connection();
        let (term, index) = (meta.last_term, meta.last_index + 1);
        let before = meta.clone();
        let refused = savepoint(connection, || {
            let result = apply_entry(connection, meta, term, index, &entry)?.result;
            let mut refusal = None;
            if result.outcome != ApplyOutcome::Ok {
                refusal = Some(Answer::Applied(result));
            } else if let What::LayerCopy(copy) = &task.what {
                refusal = match self.validate(copy)? {
                    Err(rejection) => Some(Answer::Rejected(rejection)),
                    Ok(mut warnings) if copy.dry_run => {
                        warnings.extend(result.warnings);
                        let info = format!("dry run: {}", result.message);
                        Some(Answer::Unchanged(Committed { index: index - 1, info, warnings, live: true, ..Committed::default() }))
                    }
                    Ok(warnings) => {
                        task.add_warnings(warnings);
                        None
                    }
                };
            }
            Ok::<_, StorageError>((refusal.is_none(), refusal))
        })?;
        if let Some(answer) = refused {
            *meta = before;
            return Ok(Computed::Answer(answer));
        }
        meta.last_index = index;
        if based {
            self.position += 1;
        }
        self.size += size;
        Ok(Computed::Entry(Bytes::from(entry.encode_to_vec())))
    }

    fn entry(&self, task: &Task, op: pb::log_entry::Op, based: bool) -> pb::LogEntry {
        let origin = &task.origin;
        let (statement, reason) = match &task.what {
            What::Sql { masked, .. } => (masked.clone(), String::new()),
            What::LayerCopy(copy) => (copy_statement(copy), copy.comment.clone()),
            What::Op(_) => (String::new(), String::new()),
        };
        pb::LogEntry {
            format: 1,
            required_level: 1,
            client_id: Bytes::copy_from_slice(&task.id.client),
            seq: task.id.seq,
            proposed_at_ms: now_ms(),
            actor: origin.actor.clone(),
            channel: match origin.channel {
                Channel::Internal => pb::Channel::Internal,
                Channel::Mysql => pb::Channel::Mysql,
                Channel::Pgsql => pb::Channel::Pgsql,
                Channel::Grpc => pb::Channel::Grpc,
            }
            .into(),
            origin_node: origin.node,
            client_addr: origin.client_addr.clone(),
            reason: cut(&reason, MAX_HISTORY_BYTES).into(),
            statement: cut(&statement, MAX_HISTORY_BYTES).into(),
            base_index: based.then_some(self.base),
            expect: Some(self.expect.clone()),
            batch: if based { self.id } else { 0 },
            batch_position: if based { self.position } else { 0 },
            op: Some(op),
        }
    }

    /// The rows that would be in RUNTIME, module by module.
    fn validate(&self, copy: &LayerCopy) -> Result<Result<Vec<String>, Rejection>, StorageError> {
        let mut warnings = Vec::new();
        if copy.to != Layer::Runtime {
            return Ok(Ok(warnings));
        }
        for module in copy.modules.iter().filter_map(|name| module_named(name)) {
            let rows = self.module_rows(module)?;
            let checked = check_variables(module, &rows).and_then(|()| self.validator.validate(module.name, &rows));
            match checked {
                Ok(more) => warnings.extend(more),
                Err(reason) => return Ok(Err(Rejection::admin(format!("LOAD {} TO RUNTIME refused: {reason}", module.name)))),
            }
        }
        Ok(Ok(warnings))
    }

    fn module_rows(&self, module: &ModuleDescription) -> Result<Vec<TableRows>, StorageError> {
        let mut found = Vec::new();
        for table in module.tables.iter().filter_map(|name| tables::table(name)) {
            let rows = row::fetch_all(self.speculation.connection(), table, Layer::Runtime)?;
            let mine = |row: &row::Row| match (module.variable_prefix, row.first()) {
                (None, _) => true,
                (Some(prefix), Some(Value::Text(name))) => name.starts_with(prefix),
                (Some(_), _) => false,
            };
            found.push(TableRows {
                table: table.name.into(),
                columns: table.columns.iter().map(|column| column.name.into()).collect(),
                rows: rows.into_iter().filter(mine).collect(),
            });
        }
        Ok(found)
    }
}

enum Operation {
    Answer(Answer),
    Propose(pb::log_entry::Op),
}

/// Names, types and ranges of variables; the texts do not repeat secrets.
fn check_variables(module: &ModuleDescription, tables: &[TableRows]) -> Result<(), String> {
    if module.variable_prefix.is_none() {
        return Ok(());
    }
    for row in tables.iter().flat_map(|table| &table.rows) {
        let (Some(Value::Text(name)), Some(value)) = (row.first(), row.get(1)) else {
            return Err("global_variables: variable_name is not text".into());
        };
        let text = match value {
            Value::Text(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Real(number) => number.to_string(),
            Value::Null | Value::Blob(_) => return Err(format!("global_variables ('{name}'): variable_value is not text")),
        };
        check_variable(name, &text).map_err(|reason| format!("global_variables ('{name}'), column variable_value: {reason}"))?;
    }
    Ok(())
}

fn layer_copy_op(copy: &LayerCopy) -> Result<pb::log_entry::Op, Rejection> {
    if !matches!((copy.from, copy.to), (Layer::Memory, Layer::Runtime | Layer::Disk) | (Layer::Runtime | Layer::Disk, Layer::Memory)) {
        return Err(Rejection::admin(format!("no module is copied from {:?} to {:?} directly", copy.from, copy.to)));
    }
    let mut modules = Vec::new();
    for (position, name) in copy.modules.iter().enumerate() {
        let Some(module) = module_named(name) else {
            return Err(Rejection::admin(format!("unknown module {name}")));
        };
        modules.push(pb::CopiedModule { name: module.name.into(), seen: copy.seen.get(position).copied().flatten() });
    }
    Ok(pb::log_entry::Op::LayerCopy(pb::LayerCopy {
        modules,
        from: layer_to_proto(copy.from).into(),
        to: layer_to_proto(copy.to).into(),
        if_revision: copy.if_revision,
        allow_empty: copy.force,
        conflicts: match copy.conflicts {
            EditConflicts::Warn => pb::EditConflicts::Warn,
            EditConflicts::Error => pb::EditConflicts::Error,
            EditConflicts::Off => pb::EditConflicts::Off,
        }
        .into(),
    }))
}

/// The command as history shows it.
fn copy_statement(copy: &LayerCopy) -> String {
    let modules = copy.modules.join(", ");
    let mut text = match (copy.from, copy.to) {
        (_, Layer::Runtime) => format!("LOAD {modules} TO RUNTIME"),
        (Layer::Runtime, _) => format!("SAVE {modules} FROM RUNTIME"),
        (_, Layer::Disk) => format!("SAVE {modules} TO DISK"),
        (_, Layer::Memory) => format!("LOAD {modules} FROM DISK"),
    };
    if let Some(revision) = copy.if_revision {
        text.push_str(&format!(" IF REVISION {revision}"));
    }
    if copy.force {
        text.push_str(" FORCE");
    }
    text
}

/// Wall clock, for audit and ages only.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
