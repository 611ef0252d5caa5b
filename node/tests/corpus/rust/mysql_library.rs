//! mysql_async.

use std::collections::HashMap;

use anyhow::Context as _;
use mysql_async::prelude::{Protocol, Queryable as _};
use mysql_async::{ChangeUserOpts, Conn, Error, OptsBuilder, Params, QueryResult, Row, Statement};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::{short, unhex};
use crate::cases::{Parameter, Step};
use crate::node::Target;

/// Kinds of step that it knows.
pub(crate) const KINDS: &[&str] = &["query", "prepare", "ping", "reset", "change_user", "keep", "run", "forget"];

/// One connection and the statements that it keeps.
pub(crate) struct Client {
    runtime: Runtime,
    conn: Conn,
    kept: HashMap<String, Statement>,
}

impl super::Client for Client {
    fn connect(target: &Target) -> anyhow::Result<(Self, Value)> {
        let options = OptsBuilder::default().ip_or_hostname(&target.host).tcp_port(target.port).prefer_socket(false).stmt_cache_size(0);
        let options = options.user(Some("demo")).pass(Some("demo")).db_name(Some("demo")).max_allowed_packet(Some(64 << 20));
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let conn = runtime.block_on(Conn::new(options))?;
        let facts = json!({ "version": conn.server_version(), "connection_id": conn.id() });
        Ok((Self { runtime, conn, kept: HashMap::new() }, facts))
    }

    fn step(&mut self, step: &Step, results: &mut Vec<Value>) -> anyhow::Result<()> {
        let done = self.runtime.block_on(take(&mut self.conn, &mut self.kept, step, results));
        done.map_err(|error| match error {
            Error::Server(error) => anyhow::anyhow!("{} {} {}", error.code, error.state, error.message),
            other => other.into(),
        })
    }

    fn close(self) {
        let _goodbye = self.runtime.block_on(self.conn.disconnect());
    }
}

type Kept = HashMap<String, Statement>;

async fn take(conn: &mut Conn, kept: &mut Kept, step: &Step, results: &mut Vec<Value>) -> Result<(), Error> {
    match step.kind.as_str() {
        "query" => read(conn.query_iter(&step.sql).await?, results).await?,
        "prepare" => {
            let statement = prepare(conn, &step.sql, results).await?;
            let done = execute(conn, &statement, step, results).await;
            conn.close(statement).await?;
            done?;
        }
        "keep" => {
            let statement = prepare(conn, &step.sql, results).await?;
            kept.insert(step.name.clone(), statement);
        }
        "run" => match kept.get(&step.name) {
            Some(statement) => execute(conn, statement, step, results).await?,
            None => results.push(json!({ "error": "it could not be prepared" })),
        },
        "forget" => {
            if let Some(statement) = kept.remove(&step.name) {
                conn.close(statement).await?;
            }
        }
        "ping" => conn.ping().await?,
        "reset" => results.push(json!(conn.reset().await?)),
        _ => conn.change_user(ChangeUserOpts::default()).await?,
    }
    Ok(())
}

async fn prepare(conn: &mut Conn, sql: &str, results: &mut Vec<Value>) -> Result<Statement, Error> {
    let statement = conn.prep(sql).await?;
    let parameters: Vec<Value> = statement.params().iter().map(column).collect();
    let columns: Vec<Value> = statement.columns().iter().map(column).collect();
    results.push(json!({ "parameters": parameters, "columns": columns }));
    Ok(statement)
}

async fn execute(conn: &mut Conn, statement: &Statement, step: &Step, results: &mut Vec<Value>) -> Result<(), Error> {
    for set in &step.sets {
        let values = set.iter().map(value).collect::<anyhow::Result<Vec<_>>>().expect("parameters of a case");
        let values = if values.is_empty() { Params::Empty } else { Params::Positional(values) };
        read(conn.exec_iter(statement, values).await?, results).await?;
    }
    Ok(())
}

async fn read<P: Protocol>(mut found: QueryResult<'_, '_, P>, results: &mut Vec<Value>) -> Result<(), Error> {
    while let Some(columns) = found.columns() {
        // With rows, what it tells before them is of an answer before.
        let before = columns.is_empty().then(|| facts(&found));
        let rows: Vec<Row> = found.collect().await?;
        let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.unwrap_raw().into_iter().map(cell).collect()).collect();
        let columns: Vec<Value> = columns.iter().map(column).collect();
        results.push(json!({ "before": before, "columns": columns, "rows": rows, "after": facts(&found) }));
    }
    // An error behind the last result is told only by this.
    found.drop_result().await
}

fn facts<P: Protocol>(found: &QueryResult<'_, '_, P>) -> Value {
    json!([found.affected_rows(), found.last_insert_id(), found.warnings(), found.info()])
}

fn column(column: &mysql_async::Column) -> Value {
    let names = [column.name_str(), column.org_name_str(), column.table_str(), column.org_table_str(), column.schema_str()];
    let kind = format!("{:?} {:?}", column.column_type(), column.flags());
    json!([names, kind, column.character_set(), column.column_length(), column.decimals()])
}

fn cell(value: Option<mysql_async::Value>) -> String {
    match value {
        Some(mysql_async::Value::Bytes(bytes)) => short(&bytes),
        other => format!("{other:?}"),
    }
}

fn value(parameter: &Parameter) -> anyhow::Result<mysql_async::Value> {
    use mysql_async::Value as Sql;
    let Parameter(kind, value) = parameter;
    let text = || value.as_str().context("a text");
    Ok(match kind.as_str() {
        "null" => Sql::NULL,
        "bool" | "int" => Sql::Int(value.as_i64().or(value.as_bool().map(i64::from)).context("a number")?),
        "bigint" => Sql::Int(text()?.parse()?),
        "float" => Sql::Double(value.as_f64().context("a number")?),
        "bytes" => Sql::Bytes(unhex(text()?)),
        "date" | "timestamp" => {
            let [year, month, day, hour, minute, second, micros] = parameter.date_time()?;
            Sql::Date(year as u16, month as u8, day as u8, hour as u8, minute as u8, second as u8, micros)
        }
        "time" => {
            let [hour, minute, second, micros] = parameter.time()?;
            Sql::Time(false, 0, hour as u8, minute as u8, second as u8, micros)
        }
        _ => Sql::Bytes(text()?.into()),
    })
}
