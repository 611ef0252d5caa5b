//! EXPLAIN RULES: what would become of a statement on this node (observability-and-operations.md 6.3).

use std::collections::BTreeMap;
use std::net::IpAddr;

use quorumsql_dataplane::DataPlane;
use quorumsql_dataplane::config::Protocol;
use quorumsql_dataplane::explain::{Question, Step};
use rusqlite::types::Value;

use super::parse::ExplainCommand;
use super::variables::value_or_default;
use crate::sql_server::{Face, Rows};

/// Columns of the answer.
pub(crate) const COLUMNS: [&str; 6] = ["step", "kind", "rule_id", "result", "detail", "effect"];

/// Asks the data plane. What the command leaves out is a client on this host at this node's first traffic port.
///
/// # Errors
/// A user, or an address, that no session of this node can have.
pub(crate) fn explain(
    dataplane: &DataPlane,
    command: ExplainCommand,
    face: Face,
    variables: &BTreeMap<String, String>,
) -> Result<Rows, String> {
    let protocol = command.protocol.unwrap_or(match face {
        Face::Mysql => Protocol::Mysql,
        Face::Pgsql => Protocol::Pgsql,
    });
    if let Some(user) = command.user.as_deref().filter(|user| !dataplane.config().side(protocol).users.contains_key(*user)) {
        let table = match protocol {
            Protocol::Mysql => "runtime_mysql_users",
            Protocol::Pgsql => "runtime_pgsql_users",
        };
        return Err(format!("unknown USER '{user}': {table} has no active row for it"));
    }
    let addresses = [("CLIENT", command.client.as_deref()), ("PROXY", command.proxy.as_ref().map(|(address, _)| address.as_str()))];
    for (word, address) in addresses {
        if let Some(address) = address.filter(|address| address.parse::<IpAddr>().is_err()) {
            return Err(format!("{word} '{address}' is not an IP address"));
        }
    }
    let local = || "127.0.0.1".to_owned();
    let (address, port) = command.proxy.unwrap_or_else(|| (local(), None));
    let question = Question {
        protocol,
        sql: command.sql,
        user: command.user.unwrap_or_default(),
        schema: command.schema,
        client: command.client.unwrap_or_else(local),
        proxy: (address, port.unwrap_or_else(|| first_port(protocol, variables))),
    };
    let steps = dataplane.explain(&question);
    Ok(Rows::text(&COLUMNS, steps.into_iter().zip(1..).map(|(step, number)| row(step, number)).collect()))
}

fn row(step: Step, number: i64) -> Vec<Value> {
    let rule_id = step.rule_id.map_or(Value::Null, |rule| Value::Integer(rule.0));
    let text = |text: &str| Value::Text(text.to_owned());
    vec![Value::Integer(number), text(step.kind), rule_id, text(step.result), text(&step.detail), text(&step.effect)]
}

/// The port of the first of `*-interfaces`; 0 if that is a Unix socket.
fn first_port(protocol: Protocol, variables: &BTreeMap<String, String>) -> u16 {
    let name = match protocol {
        Protocol::Mysql => "mysql-interfaces",
        Protocol::Pgsql => "pgsql-interfaces",
    };
    let first = value_or_default(variables, name).split(';').next().unwrap_or_default();
    first.rsplit(':').next().and_then(|port| port.trim().parse().ok()).unwrap_or(0)
}
