//! The mirrors `runtime_*`: runtime intent combined with this node's roles and observations (admin-tables.md 6).

use quorumsql_raft::tables::TableDescription;
use rusqlite::Connection;
use rusqlite::types::Value;

use super::{select, text};
use crate::admin::context::Context;
use crate::admin::variables::{Layered, effective};
use crate::sql_server::engine::EngineError;

/// Rows of `runtime_t` in the columns of `t`.
pub(super) fn rows(context: &Context, connection: &Connection, table: &TableDescription) -> Result<Vec<Vec<Value>>, EngineError> {
    if table.name == "global_variables" {
        let values = effective(context, connection, Layered::Runtime)?;
        return Ok(values.into_iter().map(|(name, value)| vec![text(name), text(value)]).collect());
    }
    if let Some(rows) = context.facts.effective(&table.runtime_name()) {
        return Ok(rows);
    }
    match table.name {
        "mysql_users" | "pgsql_users" => users(connection, table),
        "mysql_query_rules" | "pgsql_query_rules" => select(
            connection,
            &format!("SELECT {} FROM main.base_runtime_{} WHERE active = 1 ORDER BY rule_id", table.column_list(), table.name),
        ),
        _ => {
            let order = table.primary_key.join(", ");
            select(connection, &format!("SELECT {} FROM main.base_runtime_{} ORDER BY {order}", table.column_list(), table.name))
        }
    }
}

/// Two rows for each active user: one as server account, one as client account.
fn users(connection: &Connection, table: &TableDescription) -> Result<Vec<Vec<Value>>, EngineError> {
    let columns = |backend: u8| {
        let pick = |name: &'static str| match name {
            "backend" => backend.to_string(),
            "frontend" => (1 - backend).to_string(),
            other => other.to_owned(),
        };
        table.columns.iter().map(|column| pick(column.name)).collect::<Vec<_>>().join(", ")
    };
    let part = |backend: u8, kind: &str| {
        format!("SELECT {} FROM main.base_runtime_{} WHERE active = 1 AND {kind} = 1", columns(backend), table.name)
    };
    select(connection, &format!("{} UNION ALL {}", part(0, "frontend"), part(1, "backend")))
}
