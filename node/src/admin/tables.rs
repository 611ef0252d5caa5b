//! Tables that are not stored under the name that users see: made and filled per statement (design.md section 12).
//!
//! `main.t` is stored; `runtime_t`, `disk.t`, `stats.*` and `node_overrides` are made in the TEMP or an attached
//! in-memory schema of the reading connection, filled only if the statement names them.

mod digests;
mod monitor;
mod runtime;
mod stats;

pub(crate) use stats::memory_indexes;

use quorumsql_raft::tables::{self as stored, TableDescription};
use rusqlite::Connection;
use rusqlite::types::Value;

use super::context::Context;
use crate::sql_server::engine::EngineError;

/// Schema in which a table is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Seen as `main.t` and as `t`.
    Temp,
    /// Seen as `disk.t`.
    Disk,
    /// Seen as `stats.t` and as `t`.
    Stats,
    /// Seen as `monitor.t` and as `t`.
    Monitor,
}

impl Place {
    /// Whether accounts that are limited to statistics see it.
    pub(crate) const fn is_for_stats(self) -> bool {
        matches!(self, Self::Stats | Self::Monitor)
    }

    /// SQLite's name of the schema.
    pub(crate) const fn schema(self) -> &'static str {
        match self {
            Self::Temp => "temp",
            Self::Disk => "disk",
            Self::Stats => "stats",
            Self::Monitor => "monitor",
        }
    }
}

/// What a table is filled from.
#[derive(Clone, Copy, Debug)]
enum Source {
    Runtime(&'static TableDescription),
    Disk(&'static TableDescription),
    Stats(&'static stats::StatsTable),
    Monitor(&'static monitor::LogTable),
    NodeOverrides,
}

/// A table that is made when a statement names it.
#[derive(Clone, Debug)]
pub(crate) struct VirtualTable {
    /// Where.
    pub(crate) place: Place,
    /// Its visible name.
    pub(crate) name: String,
    source: Source,
}

/// All of them.
pub(crate) fn virtual_tables() -> Vec<VirtualTable> {
    let runtime =
        stored::TABLES.iter().map(|table| VirtualTable { place: Place::Temp, name: table.runtime_name(), source: Source::Runtime(table) });
    let disk = stored::TABLES.iter().map(|table| VirtualTable { place: Place::Disk, name: table.name.into(), source: Source::Disk(table) });
    let stats = stats::TABLES.iter().chain(&digests::TABLES).map(|table| VirtualTable {
        place: Place::Stats,
        name: table.name.into(),
        source: Source::Stats(table),
    });
    let monitor =
        monitor::TABLES.iter().map(|table| VirtualTable { place: Place::Monitor, name: table.name.into(), source: Source::Monitor(table) });
    let overrides = VirtualTable { place: Place::Temp, name: "node_overrides".into(), source: Source::NodeOverrides };
    runtime.chain(disk).chain(stats).chain(monitor).chain([overrides]).collect()
}

/// `stats.global_variables` as those see it to whom `stats` is the first schema: under its bare name.
pub(crate) fn variables_of_stats_users() -> VirtualTable {
    let table = &stats::TABLES[0];
    VirtualTable { place: Place::Temp, name: table.name.into(), source: Source::Stats(table) }
}

const NODE_OVERRIDES: &str =
    "node_id INT NOT NULL , variable_name VARCHAR NOT NULL , variable_value VARCHAR NOT NULL , PRIMARY KEY (node_id, variable_name)";

impl VirtualTable {
    /// Makes it, empty. Checks and keys of the source are not repeated: its rows have passed them.
    ///
    /// # Errors
    /// SQLite's.
    pub(crate) fn create(&self, connection: &Connection) -> Result<(), EngineError> {
        let columns = match self.source {
            Source::Runtime(table) | Source::Disk(table) => {
                table.columns.iter().map(|column| format!("{} {}", column.name, column.kind)).collect::<Vec<_>>().join(", ")
            }
            Source::Stats(table) => table.columns.to_owned(),
            Source::Monitor(table) => table.columns.to_owned(),
            Source::NodeOverrides => NODE_OVERRIDES.to_owned(),
        };
        connection.execute_batch(&format!("CREATE TABLE {}.{} ({columns})", self.place.schema(), self.name))?;
        Ok(())
    }

    /// Fills it.
    ///
    /// # Errors
    /// SQLite's.
    pub(crate) fn fill(&self, context: &Context, connection: &Connection) -> Result<(), EngineError> {
        let target = format!("{}.{}", self.place.schema(), self.name);
        match self.source {
            Source::Runtime(table) => insert(connection, &target, runtime::rows(context, connection, table)?),
            Source::Disk(table) => Ok(connection.execute_batch(&format!("INSERT INTO {target} SELECT * FROM main.disk_{}", table.name))?),
            Source::Stats(table) => insert(connection, &target, (table.rows)(context, connection)?),
            Source::Monitor(table) => insert(connection, &target, context.facts.monitor_log(table.name)),
            Source::NodeOverrides => {
                Ok(connection.execute_batch(&format!("INSERT INTO {target} SELECT node_id, name, value FROM main.node_overrides"))?)
            }
        }
    }

    /// What SHOW CREATE TABLE prints.
    pub(crate) fn show_create(&self) -> String {
        let lines = |columns: &str| format!("CREATE TABLE {} (\n    {})", self.name, columns.replace(" , ", ",\n    "));
        match self.source {
            Source::Runtime(table) | Source::Disk(table) => table.show_create(&self.name),
            Source::Stats(table) => lines(table.columns),
            Source::Monitor(table) => lines(table.columns),
            Source::NodeOverrides => lines(NODE_OVERRIDES),
        }
    }
}

fn insert(connection: &Connection, target: &str, rows: Vec<Vec<Value>>) -> Result<(), EngineError> {
    let Some(width) = rows.first().map(Vec::len) else { return Ok(()) };
    let mut statement = connection.prepare(&format!("INSERT INTO {target} VALUES ({})", vec!["?"; width].join(", ")))?;
    for row in rows {
        statement.execute(rusqlite::params_from_iter(row))?;
    }
    Ok(())
}

/// Rows of a query.
fn select(connection: &Connection, sql: &str) -> Result<Vec<Vec<Value>>, EngineError> {
    let mut statement = connection.prepare(sql)?;
    let width = statement.column_count();
    let rows = statement.query_map([], |row| (0..width).map(|at| row.get(at)).collect::<rusqlite::Result<Vec<Value>>>())?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Counters as SQLite keeps them.
fn integer(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}
