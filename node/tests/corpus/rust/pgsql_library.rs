//! tokio-postgres. Parameters and values of the common types are binary, the others text.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use futures::{SinkExt as _, StreamExt as _, TryStreamExt as _, future};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type};
use tokio_postgres::{AsyncMessage, Config, Error, NoTls, Row, SimpleQueryMessage, Statement, Transaction};

use super::{short, unhex};
use crate::cases::{Parameter, Step};
use crate::node::Target;

/// Kinds of step that it knows.
pub(crate) const KINDS: &[&str] = &["query", "prepare", "fetch", "copy_in", "copy_out", "pipeline", "keep", "run", "forget"];

/// One connection, the statements that it keeps, and what has come unasked.
pub(crate) struct Client {
    runtime: Runtime,
    client: tokio_postgres::Client,
    kept: HashMap<String, Statement>,
    unasked: Arc<Mutex<Vec<Value>>>,
}

impl super::Client for Client {
    fn connect(target: &Target) -> anyhow::Result<(Self, Value)> {
        let mut config = Config::new();
        config.host(&target.host).port(target.port).user("demo").password("demo").dbname("demo");
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let unasked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&unasked);
        let client = runtime.block_on(async {
            let (client, mut connection) = config.connect(NoTls).await?;
            let mut messages = futures::stream::poll_fn(move |cx| connection.poll_message(cx));
            tokio::spawn(async move {
                while let Some(Ok(message)) = messages.next().await {
                    let told = match message {
                        AsyncMessage::Notice(notice) => json!({ "notice": details(&notice) }),
                        AsyncMessage::Notification(note) => json!({ "notification": [note.channel(), note.payload()] }),
                        _ => continue,
                    };
                    heard.lock().expect("no panic while it is held").push(told);
                }
            });
            Ok::<_, Error>(client)
        })?;
        Ok((Self { runtime, client, kept: HashMap::new(), unasked }, Value::Null))
    }

    fn step(&mut self, step: &Step, results: &mut Vec<Value>) -> anyhow::Result<()> {
        let done = self.runtime.block_on(take(&mut self.client, &mut self.kept, step, results));
        results.append(&mut self.unasked.lock().expect("no panic while it is held"));
        done.map_err(|error| anyhow::anyhow!(failure(&error)))
    }

    fn close(self) {
        drop((self.kept, self.client));
    }
}

type Kept = HashMap<String, Statement>;

async fn take(client: &mut tokio_postgres::Client, kept: &mut Kept, step: &Step, results: &mut Vec<Value>) -> Result<(), Error> {
    match step.kind.as_str() {
        "query" => results.extend(client.simple_query(&step.sql).await?.iter().map(simple)),
        "prepare" => {
            let statement = prepare(client, &step.sql, results).await?;
            execute(client, &statement, step, results).await?;
        }
        "keep" => {
            let statement = prepare(client, &step.sql, results).await?;
            kept.insert(step.name.clone(), statement);
        }
        "run" => match kept.get(&step.name) {
            Some(statement) => execute(client, statement, step, results).await?,
            None => results.push(json!({ "error": "it could not be prepared" })),
        },
        "forget" => drop(kept.remove(&step.name)),
        "fetch" => fetch(client, step, results).await?,
        "copy_in" => {
            let mut sink = Box::pin(client.copy_in(&step.sql).await?);
            // What is wrong with the data is told by the end.
            let _sent = sink.send(Bytes::from(step.data.clone())).await;
            results.push(json!(sink.as_mut().finish().await?));
        }
        "copy_out" => {
            let pieces: Vec<Bytes> = client.copy_out(&step.sql).await?.try_collect().await?;
            results.push(json!([pieces.len(), short(&pieces.concat())]));
        }
        _ => pipeline(client, step, results).await,
    }
    Ok(())
}

async fn prepare(client: &tokio_postgres::Client, sql: &str, results: &mut Vec<Value>) -> Result<Statement, Error> {
    let statement = client.prepare(sql).await?;
    results.push(describe(&statement));
    Ok(statement)
}

async fn execute(client: &tokio_postgres::Client, statement: &Statement, step: &Step, results: &mut Vec<Value>) -> Result<(), Error> {
    for set in &step.sets {
        let mut stream = Box::pin(client.query_raw(statement, set.iter().map(Sent)).await?);
        let mut rows = Vec::new();
        while let Some(found) = stream.as_mut().try_next().await? {
            rows.push(row(&found));
        }
        results.push(json!({ "rows": rows, "affected": stream.rows_affected() }));
    }
    Ok(())
}

/// Rows of a portal, which lives as long as its transaction.
async fn fetch(client: &mut tokio_postgres::Client, step: &Step, results: &mut Vec<Value>) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    let done = portal(&transaction, step, results).await;
    transaction.rollback().await?;
    done
}

async fn portal(transaction: &Transaction<'_>, step: &Step, results: &mut Vec<Value>) -> Result<(), Error> {
    let statement = transaction.prepare(&step.sql).await?;
    results.push(describe(&statement));
    let portal = transaction.bind(&statement, &[]).await?;
    loop {
        let rows = transaction.query_portal(&portal, i32::try_from(step.size).unwrap_or_default()).await?;
        results.push(json!(rows.iter().map(row).collect::<Vec<_>>()));
        if rows.len() < step.size as usize {
            return Ok(());
        }
    }
}

/// All statements at once: each is its own batch, whose messages are sent before the answers to the ones before have come.
async fn pipeline(client: &tokio_postgres::Client, step: &Step, results: &mut Vec<Value>) {
    let each = step.pipeline.iter().map(|(sql, parameters)| async move {
        let stream = client.query_raw(sql.as_str(), parameters.iter().map(Sent)).await?;
        stream.map_ok(|found| row(&found)).try_collect::<Vec<_>>().await
    });
    for done in future::join_all(each).await {
        results.push(done.map_or_else(|error| json!({ "error": failure(&error) }), |rows| json!(rows)));
    }
}

fn describe(statement: &Statement) -> Value {
    let columns: Vec<_> = statement
        .columns()
        .iter()
        .map(|column| json!([column.name(), column.type_().name(), column.column_id(), column.type_modifier()]))
        .collect();
    let parameters: Vec<_> = statement.params().iter().map(Type::name).collect();
    json!({ "columns": columns, "parameters": parameters })
}

fn simple(message: &SimpleQueryMessage) -> Value {
    match message {
        SimpleQueryMessage::Row(row) => json!((0..row.len()).map(|at| row.get(at).map(|text| short(text.as_bytes()))).collect::<Vec<_>>()),
        SimpleQueryMessage::CommandComplete(count) => json!({ "complete": count }),
        SimpleQueryMessage::RowDescription(columns) => json!({ "columns": columns.iter().map(|column| column.name()).collect::<Vec<_>>() }),
        _ => Value::Null,
    }
}

fn row(row: &Row) -> Value {
    json!((0..row.len()).map(|at| row.get::<_, Option<Raw>>(at).map(|value| value.0)).collect::<Vec<_>>())
}

fn failure(error: &Error) -> String {
    match error.as_db_error() {
        Some(error) => details(error).to_string(),
        None => format!("{error}: {:?}", error.source().map(ToString::to_string)),
    }
}

fn details(error: &tokio_postgres::error::DbError) -> Value {
    json!({
        "severity": error.severity(), "code": error.code().code(), "message": error.message(), "detail": error.detail(), "hint": error.hint(),
        "position": error.position().map(|position| format!("{position:?}")), "where": error.where_(), "schema": error.schema(),
        "table": error.table(), "column": error.column(), "type": error.datatype(), "constraint": error.constraint(),
        "source": [error.file(), error.routine()], "line": error.line(),
    })
}

/// The bytes of a value.
struct Raw(String);

impl FromSql<'_> for Raw {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(short(raw)))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A parameter of a case.
#[derive(Debug)]
struct Sent<'a>(&'a Parameter);

impl ToSql for Sent<'_> {
    fn to_sql(&self, wanted: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        let Parameter(kind, value) = self.0;
        let text = value.as_str().unwrap_or_default();
        match (kind.as_str(), wanted) {
            ("null", _) => Ok(IsNull::Yes),
            ("bool", &Type::BOOL) => value.as_bool().to_sql(wanted, out),
            ("int", &Type::INT4) => i32::try_from(value.as_i64().unwrap_or_default())?.to_sql(wanted, out),
            ("bigint", &Type::INT8) => text.parse::<i64>()?.to_sql(wanted, out),
            ("float", &Type::FLOAT8) => value.as_f64().to_sql(wanted, out),
            ("bytes", &Type::BYTEA) => unhex(text).to_sql(wanted, out),
            ("ints" | "texts", _) => {
                let list = value.to_string();
                out.extend_from_slice(format!("{{{}}}", &list[1..list.len() - 1]).as_bytes());
                Ok(IsNull::No)
            }
            _ => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                out.extend_from_slice(text.as_bytes());
                Ok(IsNull::No)
            }
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, wanted: &Type) -> Format {
        match (self.0.0.as_str(), wanted) {
            ("bool", &Type::BOOL) | ("int", &Type::INT4) | ("bigint", &Type::INT8) | ("float", &Type::FLOAT8) | ("bytes", &Type::BYTEA) => {
                Format::Binary
            }
            _ => Format::Text,
        }
    }

    fn to_sql_checked(&self, wanted: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        self.to_sql(wanted, out)
    }
}
