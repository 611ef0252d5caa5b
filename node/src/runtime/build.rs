//! Committed rows and observations → the configuration of the data plane, and the rows of `runtime_*_servers`. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use quorumsql_dataplane::config::{Domain, Hostgroup, HostgroupId, Protocol, ProtocolConfig, RuntimeConfig, Server, ServerAddress};
use quorumsql_dataplane::rules::RuleSet;
use quorumsql_dataplane::tls::ServerTls;
use quorumsql_raft::command::{TableRows, Value};
use rustls::{KeyLog, NoKeyLog};

use super::observed::Observed;
use super::placement::{self, Placed, WriterReads};
use super::source::{Committed, Side};
use super::variables;
use crate::tls::{ServerFiles, ServerSide, Shown};

/// What is in force on this node, as its `runtime_*` tables show it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effective {
    /// Log index of the last entry that is part of it; 0 = none.
    pub(crate) index: u64,
    /// The committed part.
    pub(crate) committed: Committed,
    /// `runtime_mysql_servers`: placed by roles, SHUNNED where pings fail.
    pub(crate) mysql_servers: TableRowsOrEmpty,
    /// `runtime_pgsql_servers`.
    pub(crate) pgsql_servers: TableRowsOrEmpty,
    /// Pairs with more than one writer, e.g. `mysql hostgroup 10: a:3306, b:3306`.
    pub(crate) several_writers: Vec<String>,
    /// A server of a pair that has neither answered nor timed out yet.
    pub(crate) unprobed: Option<String>,
    /// TLS towards MySQL's and PostgreSQL's servers.
    pub(crate) server_sides: [ServerSide; 2],
}

/// Rows of one table, none before the first build.
pub(crate) type TableRowsOrEmpty = Option<TableRows>;

/// Compiled rules that can be kept while rows and engine stay the same.
#[derive(Clone, Default)]
pub(crate) struct CompiledRules {
    key: Option<(Arc<Vec<quorumsql_dataplane::rules::RuleRow>>, bool)>,
    rules: Arc<RuleSet>,
}

impl CompiledRules {
    /// The compiled form of `side`'s rules; the previous one if nothing changed.
    pub(crate) fn refresh(&mut self, side: &Side, regex_backtracking: bool) -> Result<Arc<RuleSet>, String> {
        let fresh = self.key.as_ref().is_some_and(|(rows, engine)| Arc::ptr_eq(rows, &side.rules) && *engine == regex_backtracking);
        if !fresh {
            self.rules = Arc::new(super::compile_rules(side.rules.as_ref().clone(), regex_backtracking)?.0);
            self.key = Some((side.rules.clone(), regex_backtracking));
        }
        Ok(self.rules.clone())
    }
}

/// What one side's build leaves for the next.
#[derive(Clone, Default)]
pub(crate) struct Carried {
    rules: CompiledRules,
    tls: Option<(ServerFiles, u64, ServerSide)>,
}

impl Carried {
    /// What `files` say, read anew if they or the generation of all TLS files have changed.
    fn server_side(&mut self, files: ServerFiles, shown: Option<&Shown>) -> ServerSide {
        let generation = shown.map_or(0, |shown| shown.generation);
        match &self.tls {
            Some((known, of, side)) if *known == files && *of == generation => side.clone(),
            _ => {
                let key_log: Arc<dyn KeyLog> = match shown {
                    Some(shown) => shown.key_log.clone(),
                    None => Arc::new(NoKeyLog),
                };
                let side = files.load(key_log);
                self.tls = Some((files, generation, side.clone()));
                side
            }
        }
    }
}

/// Builds both sides. `carried` comes from the last build; `shown` is what clients that ask for TLS get.
pub(crate) fn build(
    committed: Committed,
    observed: &Observed,
    shown: Option<&Shown>,
    carried: &mut [Carried; 2],
) -> Result<(RuntimeConfig, Effective), String> {
    let [mysql_carried, pgsql_carried] = carried;
    let mysql = side(&committed, Protocol::Mysql, observed, shown, mysql_carried)?;
    let pgsql = side(&committed, Protocol::Pgsql, observed, shown, pgsql_carried)?;
    let config = RuntimeConfig {
        index: committed.index,
        revision: committed.revision,
        mysql: Arc::new(mysql.config),
        pgsql: Arc::new(pgsql.config),
    };
    let several_writers = [mysql.several_writers, pgsql.several_writers].concat();
    let effective = Effective {
        index: committed.index,
        committed,
        mysql_servers: Some(mysql.servers),
        pgsql_servers: Some(pgsql.servers),
        several_writers,
        unprobed: mysql.unprobed.or(pgsql.unprobed),
        server_sides: [mysql.server_side, pgsql.server_side],
    };
    Ok((config, effective))
}

struct Built {
    config: ProtocolConfig,
    servers: TableRows,
    several_writers: Vec<String>,
    unprobed: Option<String>,
    server_side: ServerSide,
}

fn side(
    committed: &Committed,
    protocol: Protocol,
    observed: &Observed,
    shown: Option<&Shown>,
    carried: &mut Carried,
) -> Result<Built, String> {
    let side = committed.side(protocol);
    let from = committed.variables.of(protocol);
    let variables = variables::dataplane(&from, protocol);
    let writer_reads = if from.flag("monitor_writer_is_also_reader", true) { WriterReads::Yes } else { WriterReads::WhenAlone };
    let servers = &side.servers;
    let seen = |host: &str, port: u16| observed.seen(protocol, host, port);
    // Without the monitor nothing is ever seen; then rows are what counts, as in the reference.
    let pairs = if from.flag("monitor_enabled", true) { servers.pairs.as_slice() } else { &[] };
    let placed = placement::place(&servers.rows, pairs, writer_reads, &seen);
    let several_writers = pairs
        .iter()
        .filter_map(|pair| {
            let writers: Vec<String> =
                placement::writers(&servers.rows, &placed, pair).map(|row| format!("{}:{}", row.host, row.port)).collect();
            (writers.len() > 1).then(|| format!("{} hostgroup {}: {}", variables::prefix(protocol), pair.writer.0, writers.join(", ")))
        })
        .collect();
    let unprobed = placement::unprobed(&servers.rows, pairs, &seen)
        .map(|row| format!("{} {}:{} has not been probed", variables::prefix(protocol), row.host, row.port));
    let rules = carried.rules.refresh(side, variables.regex_backtracking)?;
    let server_side = carried.server_side(variables::server_files(&from), shown);
    let config = ProtocolConfig {
        users: side.users.as_ref().clone(),
        hostgroups: hostgroups(side, &placed, server_side.tls()),
        rules,
        domains: servers.pairs.iter().map(|pair| Domain { writer: pair.writer, reader: pair.reader }).collect(),
        variables: Arc::new(variables),
        client_tls: shown.filter(|_| variables::offers_tls(&from)).map(|shown| Arc::clone(shown.of(protocol))),
    };
    Ok(Built { config, servers: runtime_rows(side, &placed, protocol), several_writers, unprobed, server_side })
}

fn hostgroups(side: &Side, placed: &[Placed], tls: &ServerTls) -> HashMap<HostgroupId, Arc<Hostgroup>> {
    let mut hostgroups: HashMap<HostgroupId, Hostgroup> = HashMap::new();
    for one in placed {
        let row = &side.servers.rows[one.row];
        let server = Server {
            hostgroup: one.hostgroup,
            address: ServerAddress { host: row.host.as_str().into(), port: row.port },
            status: one.status,
            weight: row.weight,
            max_connections: row.max_connections,
            tls: if row.use_ssl { tls.clone() } else { ServerTls::Disable },
            latency_us: one.latency_us,
            trouble: one.trouble.clone(),
        };
        hostgroups
            .entry(one.hostgroup)
            .or_insert_with(|| Hostgroup { id: one.hostgroup, servers: Vec::new() })
            .servers
            .push(Arc::new(server));
    }
    hostgroups.into_iter().map(|(id, hostgroup)| (id, Arc::new(hostgroup))).collect()
}

/// The operator's rows with hostgroup and status as they are now.
fn runtime_rows(side: &Side, placed: &[Placed], protocol: Protocol) -> TableRows {
    let columns = side.servers.columns.clone();
    let at = |name: &str| columns.iter().position(|column| column == name);
    let (hostgroup_at, status_at) = (at("hostgroup_id"), at("status"));
    let rows = placed
        .iter()
        .map(|one| {
            let mut values = side.servers.rows[one.row].values.clone();
            if let Some(value) = hostgroup_at.and_then(|at| values.get_mut(at)) {
                *value = Value::Integer(one.hostgroup.0.into());
            }
            if let Some(value) = status_at.and_then(|at| values.get_mut(at)) {
                *value = Value::Text(one.status.as_str().into());
            }
            values
        })
        .collect();
    TableRows { table: format!("{}_servers", variables::prefix(protocol)), columns, rows }
}

#[cfg(test)]
mod tests {
    use super::super::placement::Seen;
    use super::super::source::tests::state;
    use super::*;

    #[test]
    fn a_server_moves_when_it_says_so_and_its_row_is_shown_where_it_is() {
        let committed = Committed::default().refresh(&state(), 1).unwrap();
        let mut compiled = Default::default();
        let (config, effective) = build(committed.clone(), &Observed::default(), None, &mut compiled).unwrap();
        assert_eq!((config.index, config.revision), (30, 3));
        assert!(config.mysql.hostgroups.is_empty(), "not asked yet: nowhere");
        assert!(effective.mysql_servers.unwrap().rows.is_empty());
        assert_eq!(effective.unprobed.as_deref(), Some("mysql a:3306 has not been probed"));

        let observed = Observed::from_iter([(
            (Protocol::Mysql, "a".into(), 3306),
            Seen::Probed { read_only: Some(true), reachable: true, latency_us: 5, trouble: None },
        )]);
        let (config, effective) = build(committed, &observed, None, &mut compiled).unwrap();
        let server = &config.mysql.hostgroups[&HostgroupId(20)].servers[0];
        assert_eq!((server.address.to_string().as_str(), server.latency_us, &server.tls), ("a:3306", 5, &ServerTls::Disable));
        let shown = effective.mysql_servers.unwrap();
        assert_eq!((&shown.rows[0][0], shown.rows[0].last()), (&Value::Integer(20), Some(&Value::Text("first".into()))));
        assert_eq!(config.mysql.domains, [Domain { writer: HostgroupId(10), reader: HostgroupId(20) }]);
        assert_eq!(config.mysql.users["demo"].default_hostgroup, HostgroupId(10));
    }
}
