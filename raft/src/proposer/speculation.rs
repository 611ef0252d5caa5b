//! The leader's second connection: it runs statements in a transaction that is always rolled back, and captures the rows
//! that they change (raft-and-storage.md 4.3, 4.4).
//!
//! TEMP triggers put old and new values of each changed row into one TEMP table; `recursive_triggers` makes REPLACE show
//! the rows that it deletes. Statements of users are prepared under an authorizer and have a deadline.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use quorumsql_proto::log as pb;
use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, params_from_iter};
use tokio::time::Instant;

use super::authorizer::{self, Access};
use crate::command::{Layer, Rejection, Value};
use crate::sqlname;
use crate::state_machine::row::{self, Row};
use crate::state_machine::{StorageError, change, open_connection};
use crate::tables::{TABLES, TableDescription};

/// The progress handler looks at the clock once in so many instructions of SQLite's machine (about 20 µs).
const INSTRUCTIONS_PER_CHECK: i32 = 2_000;

/// No value, row or statement is larger (raft-and-storage.md 6.4).
const MAX_VALUE_BYTES: i32 = 16 << 20;

/// Rows that one statement may touch: bounds the memory of the captured rows. What fits into one entry is far less.
const MAX_CAPTURED_ROWS: u32 = if cfg!(test) { 5_000 } else { 500_000 };

/// What the connection's hooks see.
#[derive(Debug, Default)]
struct Guard {
    /// Set while a user's statement is prepared and run.
    user: bool,
    deadline: Option<Instant>,
    /// Why the authorizer said no.
    reason: Option<String>,
    /// `state.db` cannot be used.
    broken_file: Option<StorageError>,
}

/// The connection.
#[derive(Debug)]
pub(crate) struct Speculation {
    connection: Connection,
    guard: Arc<Mutex<Guard>>,
}

/// What a statement did.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Captured {
    /// Its changes, in order; empty = no row changed.
    pub(crate) change: pb::Change,
}

impl Speculation {
    pub(crate) fn open(path: &Path) -> Result<Self, StorageError> {
        let mut connection = open_connection(path)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, true)?;
        connection.pragma_update(None, "recursive_triggers", true)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)?;
        connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_VALUE_BYTES)?;
        crate::sqlfn::register(&connection)?;
        connection.execute_batch(&capture_ddl())?;
        let guard = Arc::new(Mutex::new(Guard::default()));
        let watched = guard.clone();
        connection.authorizer(Some(move |context: AuthContext<'_>| authorize(&watched, &context)))?;
        let watched = guard.clone();
        let expired = move || {
            let guard = watched.lock();
            guard.user && guard.deadline.is_some_and(|deadline| Instant::now() >= deadline)
        };
        connection.progress_handler(INSTRUCTIONS_PER_CHECK, Some(expired))?;
        Ok(Self { connection, guard })
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Runs one statement and returns the rows that it changed. The caller undoes its effects.
    pub(crate) fn run(&self, text: &str, params: &[Value], deadline: Instant) -> Result<Captured, Rejection> {
        let sql = sqlname::rewrite_qualified(text, sqlname::replicated_name);
        let counters = self.start().map_err(|error| self.explain(error))?;
        *self.guard.lock() = Guard { user: true, deadline: Some(deadline), ..Guard::default() };
        let executed = self.execute(&sql, params);
        self.guard.lock().user = false;
        let affected = executed.map_err(|failure| match failure {
            Failure::Sqlite(error) => self.explain(error),
            Failure::Refused(message) => Rejection::admin(message),
        })?;
        self.collect(affected, &counters).map_err(|error| self.explain(error))
    }

    fn execute(&self, sql: &str, params: &[Value]) -> Result<usize, Failure> {
        let mut statement = self.connection.prepare(sql)?;
        if statement.readonly() || statement.is_explain() != 0 {
            return Err(Failure::Refused("this statement changes nothing and cannot be replicated".into()));
        }
        if statement.column_count() > 0 {
            return Err(Failure::Refused("RETURNING is not available: read the table after the change".into()));
        }
        Ok(statement.execute(params_from_iter(params))?)
    }

    /// Forgets rows captured while entries were applied speculatively; the counters of AUTOINCREMENT before the statement.
    fn start(&self) -> rusqlite::Result<Vec<(String, i64)>> {
        self.connection.prepare_cached(&format!("DELETE FROM temp.{CAPTURE}"))?.execute([])?;
        self.counters()
    }

    fn counters(&self) -> rusqlite::Result<Vec<(String, i64)>> {
        let mut statement = self.connection.prepare_cached("SELECT name, seq FROM sqlite_sequence")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    }

    fn collect(&self, affected: usize, counters: &[(String, i64)]) -> rusqlite::Result<Captured> {
        let mut change = pb::Change { affected: affected as u64, ..pb::Change::default() };
        let mut statement = self.connection.prepare_cached(&format!("SELECT * FROM temp.{CAPTURE} ORDER BY seq"))?;
        let mut rows = statement.query([])?;
        let width = capture_width();
        while let Some(found) = rows.next()? {
            let physical: String = found.get(1)?;
            let Some((table, layer)) = TABLES.iter().find_map(|table| Some((*table, layer_named(table, &physical)?))) else {
                continue;
            };
            let op: String = found.get(2)?;
            let values = |from: usize| row::values_of(found, from, table.columns.len());
            let old = if op == "i" { Row::new() } else { values(3)? };
            let new = if op == "d" { Row::new() } else { values(3 + width)? };
            if row::same(&old, &new) {
                continue;
            }
            if op == "i"
                && table.autoincrement
                && let Some(Value::Integer(id)) = row::key_of(table, &new).first()
            {
                change.last_insert_id = *id;
            }
            let changes = table_change(&mut change, table, layer);
            changes.rows.push(pb::RowChange { old: row::to_proto(&old), new: row::to_proto(&new) });
        }
        for table in &mut change.tables {
            let Some(description) = crate::tables::table(&table.table).filter(|table| table.autoincrement) else {
                continue;
            };
            let physical = description.physical(change::layer_of(table.layer()));
            let counter = |list: &[(String, i64)]| list.iter().find(|(name, _)| *name == physical).map(|(_, counter)| *counter);
            let after = self.counters()?;
            table.autoincrement = counter(&after).filter(|after| Some(*after) != counter(counters));
        }
        Ok(Captured { change })
    }

    /// An error as the client sees it: SQLite's text with the reference's prefix, visible names, or our own reason.
    fn explain(&self, error: rusqlite::Error) -> Rejection {
        if let Some(reason) = self.guard.lock().reason.take() {
            return Rejection::admin(reason);
        }
        if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) {
            let message = "statement interrupted: it did not end within its deadline; it has no effect";
            return Rejection::new((3024, "HY000"), "57014", message);
        }
        let rejection = Rejection::admin(visible_names(&message_of(&error)));
        self.note(error.into());
        rejection
    }

    /// Remembers an error that concerns more than the statement which met it.
    pub(super) fn note(&self, error: StorageError) {
        if error.is_broken_file() {
            self.guard.lock().broken_file.get_or_insert(error);
        }
    }

    /// What [`Self::note`] has remembered.
    pub(super) fn take_broken_file(&self) -> Option<StorageError> {
        self.guard.lock().broken_file.take()
    }
}

enum Failure {
    Sqlite(rusqlite::Error),
    Refused(String),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

fn message_of(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } | rusqlite::Error::SqliteFailure(_, Some(msg)) => msg.clone(),
        rusqlite::Error::MultipleStatement => "one statement at a time".into(),
        rusqlite::Error::Utf8Error(..) => "text must be UTF-8".into(),
        other => other.to_string(),
    }
}

/// Physical names of the disk layer as users know them, and why tables of this node are not here.
fn visible_names(message: &str) -> String {
    if let Some(name) = message.strip_prefix("no such table: ") {
        let bare = name.rsplit('.').next().unwrap_or(name);
        if name.starts_with("monitor.") || name.starts_with("stats.") || bare.starts_with("stats_") {
            return format!("{name} is this node's own and cannot be read in a change of the configuration");
        }
    }
    if let Some(name) = message.strip_prefix("cannot modify ").and_then(|rest| rest.strip_suffix(" because it is a view")) {
        return authorizer::mirror_is_read_only(name);
    }
    TABLES.iter().fold(message.to_string(), |text, table| text.replace(&format!("disk_{}", table.name), table.name))
}

fn authorize(guard: &Mutex<Guard>, context: &AuthContext<'_>) -> Authorization {
    let mut guard = guard.lock();
    if !guard.user {
        return Authorization::Allow;
    }
    match authorizer::check(context) {
        Access::Allowed => Authorization::Allow,
        Access::Denied(reason) => {
            guard.reason.get_or_insert(reason);
            Authorization::Deny
        }
    }
}

fn table_change<'a>(change: &'a mut pb::Change, table: &TableDescription, layer: Layer) -> &'a mut pb::TableChange {
    let wanted = i32::from(change::layer_to_proto(layer));
    let found = change.tables.iter().position(|known| known.table == table.name && known.layer == wanted);
    let position = found.unwrap_or_else(|| {
        change.tables.push(pb::TableChange {
            layer: wanted,
            table: table.name.into(),
            columns: table.columns.iter().map(|column| column.name.into()).collect(),
            ..pb::TableChange::default()
        });
        change.tables.len() - 1
    });
    &mut change.tables[position]
}

fn layer_named(table: &TableDescription, physical: &str) -> Option<Layer> {
    [Layer::Memory, Layer::Disk].into_iter().find(|layer| table.physical(*layer) == physical)
}

/// TEMP table of captured rows: position, physical table, `i` `u` `d`, then the old values and the new values.
pub(super) const CAPTURE: &str = "qs_captured";

fn capture_width() -> usize {
    TABLES.iter().map(|table| table.columns.len()).max().unwrap_or(0)
}

/// The TEMP table, the triggers that fill it, and the views that show RUNTIME.
fn capture_ddl() -> String {
    let width = capture_width();
    let columns: Vec<String> = ["o", "n"].iter().flat_map(|side| (0..width).map(move |n| format!("{side}{n}"))).collect();
    let mut ddl = format!("CREATE TEMP TABLE {CAPTURE} (seq INTEGER PRIMARY KEY, phys, op, {});", columns.join(", "));
    for table in TABLES {
        for layer in [Layer::Memory, Layer::Disk] {
            for (event, op) in [("INSERT", 'i'), ("UPDATE", 'u'), ("DELETE", 'd')] {
                ddl.push_str(&trigger(table, layer, event, op));
            }
        }
        ddl.push_str(&format!("CREATE TEMP VIEW {} AS SELECT * FROM main.{};", table.runtime_name(), table.physical(Layer::Runtime)));
    }
    ddl
}

fn trigger(table: &TableDescription, layer: Layer, event: &str, op: char) -> String {
    let physical = table.physical(layer);
    let (mut names, mut values) = (vec!["phys".to_string(), "op".to_string()], vec![format!("'{physical}'"), format!("'{op}'")]);
    for (side, source) in [("o", "OLD"), ("n", "NEW")] {
        if (op == 'i' && side == "o") || (op == 'd' && side == "n") {
            continue;
        }
        for (n, column) in table.columns.iter().enumerate() {
            names.push(format!("{side}{n}"));
            values.push(format!("{source}.{}", column.name));
        }
    }
    format!(
        "CREATE TEMP TRIGGER qs_{op}_{physical} AFTER {event} ON main.{physical} BEGIN \
         SELECT RAISE(ABORT, 'one statement cannot change more than {MAX_CAPTURED_ROWS} rows') \
         WHERE (SELECT max(seq) FROM {CAPTURE}) >= {MAX_CAPTURED_ROWS}; \
         INSERT INTO {CAPTURE} ({}) VALUES ({}); END;",
        names.join(", "),
        values.join(", ")
    )
}
