//! Runs one statement on a rusqlite connection: parameters, deadline, size limit, column kinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, Statement};

use super::database::{Answer, Column, ColumnKind, Description, Done, Rows, Value};

/// Largest result that is kept for a client, bytes of values.
const MAX_RESULT_BYTES: usize = 256 * 1024 * 1024;

/// Largest text or blob that a statement may make, bytes.
const MAX_VALUE_BYTES: i32 = 64 * 1024 * 1024;

/// SQLite instructions between two looks at the clock.
const PROGRESS_INSTRUCTIONS: i32 = 20_000;

/// Which kinds result columns get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ColumnTypes {
    /// Everything is text (admin ports).
    Text,
    /// The declared type, else the storage class of the first row (embedded backend).
    Declared,
}

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    /// SQLite's text.
    #[error("{0}")]
    Sql(String),
    /// SQLITE_BUSY or SQLITE_LOCKED.
    #[error("database is locked")]
    Locked,
    /// A constraint, with SQLite's extended code.
    #[error("{message}")]
    Constraint {
        /// SQLite's text.
        message: String,
        /// Extended result code.
        extended: i32,
    },
    /// The deadline passed, or the client is gone.
    #[error("interrupted")]
    Interrupted,
    /// The result exceeds what is kept.
    #[error("the result is larger than {MAX_RESULT_BYTES} bytes")]
    TooLarge,
    /// Fewer or more parameters than the statement has.
    #[error("the statement has {expected} parameters, {given} were given")]
    Parameters {
        /// In the statement.
        expected: usize,
        /// From the client.
        given: usize,
    },
}

impl From<rusqlite::Error> for EngineError {
    fn from(error: rusqlite::Error) -> Self {
        let (code, message) = match error {
            rusqlite::Error::SqliteFailure(code, Some(message)) => (Some(code), message),
            rusqlite::Error::SqlInputError { error, msg, .. } => (Some(error), msg),
            other => (other.sqlite_error().copied(), other.to_string()),
        };
        match code.map(|code| (code.code, code.extended_code)) {
            Some((ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _)) => Self::Locked,
            Some((ErrorCode::OperationInterrupted, _)) => Self::Interrupted,
            Some((ErrorCode::ConstraintViolation, extended)) => Self::Constraint { message, extended },
            _ => Self::Sql(message),
        }
    }
}

/// Ends a statement that runs on another thread when it is dropped: a session holds it while it waits.
#[derive(Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// The flag for [`limit`].
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Interrupts statements of `connection` at the deadline or when `cancelled` is set, and bounds the values they make.
///
/// # Errors
/// SQLite's.
pub(crate) fn limit(connection: &mut Connection, time: Duration, cancelled: Arc<AtomicBool>) -> Result<(), EngineError> {
    let deadline = Instant::now() + time;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)?;
    connection.progress_handler(PROGRESS_INSTRUCTIONS, Some(move || cancelled.load(Ordering::Relaxed) || Instant::now() >= deadline))?;
    Ok(())
}

/// Runs the first statement of `sql`.
///
/// # Errors
/// As [`EngineError`].
pub(crate) fn run(connection: &Connection, sql: &str, params: &[Value], types: ColumnTypes) -> Result<Answer, EngineError> {
    let mut statement = connection.prepare(sql)?;
    bind(&mut statement, params)?;
    if statement.column_count() == 0 {
        let before = connection.total_changes();
        statement.raw_execute()?;
        let affected = connection.total_changes().saturating_sub(before);
        let last_insert_id = if affected > 0 { u64::try_from(connection.last_insert_rowid()).unwrap_or(0) } else { 0 };
        return Ok(Answer::Done(Done { affected, last_insert_id, ..Done::default() }));
    }
    let declared = declared_kinds(&statement);
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = Vec::new();
    let mut size = 0;
    let mut cursor = statement.raw_query();
    while let Some(row) = cursor.next()? {
        let mut values = Vec::with_capacity(names.len());
        for at in 0..names.len() {
            let value: Value = row.get(at)?;
            size += value_size(&value);
            values.push(value);
        }
        if size > MAX_RESULT_BYTES {
            return Err(EngineError::TooLarge);
        }
        rows.push(values);
    }
    let columns = columns(names, &declared, rows.first(), types);
    Ok(Answer::Rows(Rows { columns, rows, notices: Vec::new() }))
}

/// Parameters and columns of the first statement of `sql`, without running it.
///
/// # Errors
/// As [`EngineError`].
pub(crate) fn describe(connection: &Connection, sql: &str, types: ColumnTypes) -> Result<Description, EngineError> {
    let statement = connection.prepare(sql)?;
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let declared = declared_kinds(&statement);
    let columns = if names.is_empty() { None } else { Some(columns(names, &declared, None, types)) };
    Ok(Description { parameters: parameter_count(&statement), columns })
}

/// As [`describe`], and a read whose column types are not declared is run with a `sample` for each parameter (its number
/// from 1 is given), so that its first row tells them.
///
/// # Errors
/// As [`EngineError`].
pub(crate) fn describe_by_running(connection: &Connection, sql: &str, sample: impl Fn(usize) -> Value) -> Result<Description, EngineError> {
    let (parameters, undeclared) = {
        let statement = connection.prepare(sql)?;
        let undeclared = statement.column_count() > 0 && statement.readonly() && declared_kinds(&statement).iter().any(Option::is_none);
        (parameter_count(&statement), undeclared)
    };
    if !undeclared {
        return describe(connection, sql, ColumnTypes::Declared);
    }
    match run(connection, sql, &(1..=parameters).map(sample).collect::<Vec<_>>(), ColumnTypes::Declared)? {
        Answer::Rows(rows) => Ok(Description { parameters, columns: Some(rows.columns) }),
        Answer::Done(_) => Ok(Description { parameters, columns: None }),
    }
}

fn columns(names: Vec<String>, declared: &[Option<ColumnKind>], first: Option<&Vec<Value>>, types: ColumnTypes) -> Vec<Column> {
    let kind = |at: usize| match types {
        ColumnTypes::Text => ColumnKind::Text,
        ColumnTypes::Declared => {
            declared.get(at).copied().flatten().or_else(|| first.and_then(|row| row.get(at)).map(storage_kind)).unwrap_or(ColumnKind::Text)
        }
    };
    names.into_iter().enumerate().map(|(at, name)| Column { name, kind: kind(at) }).collect()
}

fn storage_kind(value: &Value) -> ColumnKind {
    match value {
        Value::Null | Value::Text(_) => ColumnKind::Text,
        Value::Integer(_) => ColumnKind::Integer,
        Value::Real(_) => ColumnKind::Real,
        Value::Blob(_) => ColumnKind::Blob,
    }
}

fn value_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Integer(_) | Value::Real(_) => 16,
        Value::Text(text) => 16 + text.len(),
        Value::Blob(bytes) => 16 + bytes.len(),
    }
}

/// SQLite's rules of affinity (datatype3, 3.1), without NUMERIC, whose storage class varies.
fn declared_kinds(statement: &Statement<'_>) -> Vec<Option<ColumnKind>> {
    let kind = |declared: &str| {
        let declared = declared.to_ascii_uppercase();
        if declared.contains("BIGINT") || declared.contains("INT8") {
            Some(ColumnKind::Integer)
        } else if declared.contains("INT") {
            Some(ColumnKind::Int4)
        } else if declared.contains("CHAR") || declared.contains("CLOB") || declared.contains("TEXT") {
            Some(ColumnKind::Text)
        } else if declared.contains("BLOB") || declared.contains("BINARY") || declared.contains("BYTEA") {
            Some(ColumnKind::Blob)
        } else if declared.contains("REAL") || declared.contains("FLOA") || declared.contains("DOUB") {
            Some(ColumnKind::Real)
        } else {
            None
        }
    };
    statement.columns().map(|column| column.decl_type().and_then(kind)).collect()
}

/// `$3` and `?3` count by their number, `?` by position.
fn parameter_count(statement: &Statement<'_>) -> usize {
    (1..=statement.parameter_count()).map(|at| parameter_number(statement, at)).max().unwrap_or(0)
}

fn parameter_number(statement: &Statement<'_>, at: usize) -> usize {
    statement
        .parameter_name(at)
        .and_then(|name| name.get(1..))
        .and_then(|digits| digits.parse().ok())
        .filter(|number| *number > 0)
        .unwrap_or(at)
}

fn bind(statement: &mut Statement<'_>, params: &[Value]) -> Result<(), EngineError> {
    let expected = parameter_count(statement);
    if expected != params.len() {
        return Err(EngineError::Parameters { expected, given: params.len() });
    }
    for at in 1..=statement.parameter_count() {
        let value = params.get(parameter_number(statement, at) - 1).unwrap_or(&Value::Null).clone();
        statement.raw_bind_parameter(at, value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT, r REAL); INSERT INTO t VALUES (1, 'one', 1.5), (2, NULL, 2.0)")
            .unwrap();
        connection
    }

    #[test]
    fn column_kinds_come_from_declarations_then_from_the_first_row() {
        let connection = connection();
        let Answer::Rows(rows) =
            run(&connection, "SELECT id, v, r, count(*) OVER (), 'x', x'00' FROM t", &[], ColumnTypes::Declared).unwrap()
        else {
            panic!()
        };
        let kinds: Vec<ColumnKind> = rows.columns.iter().map(|column| column.kind).collect();
        use ColumnKind::{Blob, Int4, Integer, Real, Text};
        assert_eq!(kinds, [Int4, Text, Real, Integer, Text, Blob]);
        let Answer::Rows(rows) = run(&connection, "SELECT id FROM t", &[], ColumnTypes::Text).unwrap() else { panic!() };
        assert_eq!(rows.columns, [Column::text("id")]);
    }

    #[test]
    fn parameters_are_bound_by_position_and_by_number() {
        let connection = connection();
        for (sql, expected) in [("SELECT ? || ?", "ab"), ("SELECT $2 || $1", "ba"), ("SELECT ?2 || ?2 || ?1", "bba")] {
            let Answer::Rows(rows) = run(&connection, sql, &[Value::Text("a".into()), Value::Text("b".into())], ColumnTypes::Text).unwrap()
            else {
                panic!()
            };
            assert_eq!(rows.rows, [[Value::Text(expected.into())]], "{sql}");
        }
        assert!(matches!(run(&connection, "SELECT ?", &[], ColumnTypes::Text), Err(EngineError::Parameters { expected: 1, given: 0 })));
        assert_eq!(
            describe_by_running(&connection, "SELECT count(*) FROM t WHERE id < $1", |_| Value::Null).unwrap().columns.unwrap()[0].kind,
            ColumnKind::Integer
        );
    }

    #[test]
    fn writes_report_rows_and_id() {
        let connection = connection();
        let answer = run(&connection, "INSERT INTO t (v) VALUES ('a'), ('b')", &[], ColumnTypes::Text).unwrap();
        assert_eq!(answer, Answer::Done(Done { affected: 2, last_insert_id: 4, ..Done::default() }));
    }

    #[test]
    fn a_statement_is_interrupted_at_its_deadline_and_when_cancelled() {
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
        let mut connection = connection();
        let kept = Cancel::default();
        limit(&mut connection, Duration::from_millis(20), kept.flag()).unwrap();
        assert!(matches!(run(&connection, endless, &[], ColumnTypes::Text), Err(EngineError::Interrupted)));
        let cancel = Cancel::default();
        limit(&mut connection, Duration::from_secs(3600), cancel.flag()).unwrap();
        assert!(matches!(run(&connection, "SELECT zeroblob(900000000)", &[], ColumnTypes::Text), Err(EngineError::Sql(_))));
        drop(cancel);
        assert!(matches!(run(&connection, endless, &[], ColumnTypes::Text), Err(EngineError::Interrupted)));
    }
}
