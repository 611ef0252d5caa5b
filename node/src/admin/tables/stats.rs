//! `stats.*`: what this node counts and sees of the cluster (admin-tables.md 7, design.md section 12).

use std::time::Duration;

use quorumsql_dataplane::config::Protocol;
use quorumsql_raft::{ModuleLayer, NodeConfig, module_layers};
use rusqlite::Connection;
use rusqlite::types::Value;

use super::{integer, select, text};
use crate::admin::context::Context;
use crate::sql_server::engine::EngineError;

pub(super) type Rows = Result<Vec<Vec<Value>>, EngineError>;

/// A table and where its rows come from.
#[derive(Debug)]
pub(super) struct StatsTable {
    pub(super) name: &'static str,
    /// Its definition, ` , ` between the parts.
    pub(super) columns: &'static str,
    pub(super) rows: fn(&Context, &Connection) -> Rows,
}

const GLOBAL: &str = "Variable_Name VARCHAR NOT NULL PRIMARY KEY , Variable_Value VARCHAR NOT NULL";
const RULES: &str = "rule_id INTEGER PRIMARY KEY , hits INT NOT NULL , guarded INT NOT NULL";
const MYSQL_POOL: &str = "hostgroup INT , srv_host VARCHAR , srv_port INT , status VARCHAR , ConnUsed INT , ConnFree INT , ConnOK INT , ConnERR INT , \
    MaxConnUsed INT , Queries INT , Queries_GTID_sync INT , Bytes_data_sent INT , Bytes_data_recv INT , Latency_us INT";
const PGSQL_POOL: &str = "hostgroup INT , srv_host VARCHAR , srv_port INT , status VARCHAR , ConnUsed INT , ConnFree INT , ConnOK INT , ConnERR INT , \
    MaxConnUsed INT , Queries INT , Bytes_data_sent INT , Bytes_data_recv INT , Latency_us INT";

pub(super) static TABLES: [StatsTable; 9] = [
    StatsTable { name: "global_variables", columns: GLOBAL_VARIABLES, rows: global_variables },
    StatsTable {
        name: "stats_cluster_config",
        columns: "node_id INT NOT NULL , module VARCHAR NOT NULL , layer VARCHAR NOT NULL , revision INT , log_index INT , hash VARCHAR NOT NULL , \
            applied_index INT NOT NULL , age_ms INT , PRIMARY KEY (node_id, module, layer)",
        rows: cluster_config,
    },
    StatsTable {
        name: "stats_cluster_nodes",
        columns: "node_id INT NOT NULL PRIMARY KEY , slot INT NOT NULL , name VARCHAR NOT NULL , role VARCHAR NOT NULL , voter INT NOT NULL , \
            raft_addr VARCHAR NOT NULL , term INT NOT NULL , applied_index INT NOT NULL , lag_entries INT NOT NULL , contact_ms INT , build VARCHAR NOT NULL",
        rows: cluster_nodes,
    },
    StatsTable { name: "stats_mysql_connection_pool", columns: MYSQL_POOL, rows: |context, _| Ok(pool(context, Protocol::Mysql)) },
    StatsTable { name: "stats_mysql_global", columns: GLOBAL, rows: |context, _| Ok(global(context, Protocol::Mysql)) },
    StatsTable { name: "stats_mysql_query_rules", columns: RULES, rows: |context, _| Ok(rules(context, Protocol::Mysql)) },
    StatsTable { name: "stats_pgsql_connection_pool", columns: PGSQL_POOL, rows: |context, _| Ok(pool(context, Protocol::Pgsql)) },
    StatsTable { name: "stats_pgsql_global", columns: GLOBAL, rows: |context, _| Ok(global(context, Protocol::Pgsql)) },
    StatsTable { name: "stats_pgsql_query_rules", columns: RULES, rows: |context, _| Ok(rules(context, Protocol::Pgsql)) },
];

const GLOBAL_VARIABLES: &str = "variable_name VARCHAR NOT NULL PRIMARY KEY , variable_value VARCHAR NOT NULL";

/// The one variable that client libraries of stats users read.
fn global_variables(_: &Context, _: &Connection) -> Rows {
    Ok(vec![vec![text("mysql-max_allowed_packet"), text("4194304")]])
}

fn cluster_nodes(context: &Context, _: &Connection) -> Rows {
    let members = context.consensus.status().members;
    Ok(members
        .into_iter()
        .map(|member| {
            vec![
                integer(member.node_id),
                integer(member.slot.into()),
                text(member.name),
                text(member.role),
                integer(member.voter.into()),
                text(member.raft_addr),
                integer(member.term),
                integer(member.applied_index),
                integer(member.lag_entries),
                member.contact_ms.map_or(Value::Null, integer),
                text(member.build),
            ]
        })
        .collect())
}

/// How long the other nodes may take to answer; the rows of one that does not are absent.
const PEERS_TIMEOUT: Duration = Duration::from_millis(250);

/// One row per module, layer and node: this node's as of the statement's state, the others' as they answer now. The hash is that of
/// the module's tables in the layer, so rows of two nodes are comparable where `applied_index` is equal.
fn cluster_config(context: &Context, connection: &Connection) -> Rows {
    let status = context.consensus.status();
    let applied_index: i64 = connection.query_row("SELECT last_index FROM main.raft_meta", [], |row| row.get(0))?;
    let own = NodeConfig {
        node_id: status.node_id,
        applied_index: applied_index.unsigned_abs(),
        contact_ms: status.leader_contact_ms,
        layers: module_layers(connection)?,
    };
    let mut nodes = context.consensus.config_of_peers(PEERS_TIMEOUT);
    nodes.push(own);
    nodes.sort_by_key(|node| node.node_id);
    Ok(nodes.into_iter().flat_map(config_rows).collect())
}

fn config_rows(node: NodeConfig) -> Vec<Vec<Value>> {
    let optional = |value: Option<u64>| value.map_or(Value::Null, integer);
    let row = |layer: ModuleLayer| {
        vec![
            integer(node.node_id),
            text(layer.module),
            text(layer.layer),
            optional(layer.revision),
            integer(layer.log_index),
            text(layer.hash),
            integer(node.applied_index),
            optional(node.contact_ms),
        ]
    };
    node.layers.into_iter().map(row).collect()
}

fn rules(context: &Context, protocol: Protocol) -> Vec<Vec<Value>> {
    let stats = context.dataplane.stats();
    stats.rules(protocol).iter().map(|rule| vec![Value::Integer(rule.rule_id.0), integer(rule.hits), integer(rule.guarded)]).collect()
}

fn pool(context: &Context, protocol: Protocol) -> Vec<Vec<Value>> {
    let rows = context.dataplane.stats().pool.into_iter().filter(|row| row.protocol == protocol);
    rows.map(|row| {
        let mut values = vec![
            integer(row.hostgroup.0.into()),
            text(row.address.host.as_ref()),
            integer(row.address.port.into()),
            text(row.status.as_str()),
            integer(row.used),
            integer(row.free),
            integer(row.ok),
            integer(row.err),
            integer(row.max_used),
            integer(row.queries),
        ];
        if protocol == Protocol::Mysql {
            values.push(Value::Integer(0));
        }
        values.extend([integer(row.bytes_sent), integer(row.bytes_recv), integer(row.latency_us)]);
        values
    })
    .collect()
}

fn global(context: &Context, protocol: Protocol) -> Vec<Vec<Value>> {
    let stats = context.dataplane.stats();
    let sessions = stats.sessions(protocol);
    let pools = || stats.pool.iter().filter(|row| row.protocol == protocol);
    let prefix = match protocol {
        Protocol::Mysql => "Mysql",
        Protocol::Pgsql => "PgSQL",
    };
    let counters = [
        ("Client_Connections_aborted".to_owned(), sessions.aborted),
        ("Client_Connections_connected".to_owned(), sessions.connected),
        ("Client_Connections_created".to_owned(), sessions.created),
        ("Questions".to_owned(), sessions.queries),
        ("Server_Connections_aborted".to_owned(), pools().map(|row| row.err).sum()),
        ("Server_Connections_connected".to_owned(), pools().map(|row| row.used + row.free).sum()),
        ("Server_Connections_created".to_owned(), pools().map(|row| row.ok).sum()),
        ("Queries_frontends_bytes_recv".to_owned(), sessions.bytes_recv),
        ("Queries_frontends_bytes_sent".to_owned(), sessions.bytes_sent),
        ("Queries_backends_bytes_recv".to_owned(), pools().map(|row| row.bytes_recv).sum()),
        ("Queries_backends_bytes_sent".to_owned(), pools().map(|row| row.bytes_sent).sum()),
        ("Backend_query_forwarded".to_owned(), sessions.forwarded),
        ("Routing_guard_redirected".to_owned(), sessions.guarded),
        (format!("{prefix}_Thread_Workers"), stats.workers.len() as u64),
    ];
    counters.into_iter().map(|(name, value)| vec![text(name), text(value.to_string())]).collect()
}

/// Every module's `memory_index`, for the connection's `seen`.
pub(crate) fn memory_indexes(connection: &Connection) -> Result<Vec<(String, u64)>, EngineError> {
    let rows = select(connection, "SELECT module, memory_index FROM main.module_state")?;
    let pair = |row: Vec<Value>| match row.as_slice() {
        [Value::Text(module), Value::Integer(index)] => Some((module.clone(), u64::try_from(*index).unwrap_or(0))),
        _ => None,
    };
    Ok(rows.into_iter().filter_map(pair).collect())
}
