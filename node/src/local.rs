//! What the admin interface shows of this node: implements `LocalTables` over `runtime`.

use std::sync::Arc;

use quorumsql_raft::command::{TableRows, Value};
use rusqlite::types::Value as SqlValue;

use crate::admin::local::LocalTables;
use crate::lifecycle::Lifecycle;
use crate::monitor::Monitor;
use crate::runtime::Runtime;
use crate::telemetry::Telemetry;
use crate::tls::Certificates;

/// Facts of this node for SQL.
pub(crate) struct NodeFacts {
    runtime: Arc<Runtime>,
    monitor: Monitor,
    life: Arc<Lifecycle>,
    telemetry: Arc<Telemetry>,
    certificates: Arc<Certificates>,
    /// `mysql-threads`, `mysql-interfaces` …: decided by the bootstrap file.
    variables: Vec<(String, String)>,
}

impl NodeFacts {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        monitor: Monitor,
        life: Arc<Lifecycle>,
        telemetry: Arc<Telemetry>,
        certificates: Arc<Certificates>,
        variables: Vec<(String, String)>,
    ) -> Self {
        Self { runtime, monitor, life, telemetry, certificates, variables }
    }
}

impl LocalTables for NodeFacts {
    fn effective(&self, table: &str) -> Option<Vec<Vec<SqlValue>>> {
        let effective = self.runtime.effective();
        match table {
            "runtime_mysql_servers" => effective.mysql_servers.as_ref().map(values),
            "runtime_pgsql_servers" => effective.pgsql_servers.as_ref().map(values),
            _ => None,
        }
    }

    fn variables(&self) -> Vec<(String, String)> {
        let effective = self.runtime.effective();
        let own = self.variables.iter().filter(|(name, _)| !effective.committed.overrides.iter().any(|(other, _)| other == name));
        own.cloned().collect()
    }

    fn monitor_log(&self, table: &str) -> Vec<Vec<SqlValue>> {
        self.monitor.log_table(table)
    }

    fn reload_tls(&self) -> Result<(), String> {
        self.certificates.reload().map_err(|error| format!("{error:#}"))
    }

    fn reopen_logs(&self) {
        self.telemetry.reopen();
        self.certificates.key_log().reopen();
    }

    fn shut_down(&self) {
        self.life.request_shutdown();
    }
}

fn values(table: &TableRows) -> Vec<Vec<SqlValue>> {
    let value = |value: &Value| match value {
        Value::Null => SqlValue::Null,
        Value::Integer(number) => SqlValue::Integer(*number),
        Value::Real(number) => SqlValue::Real(*number),
        Value::Text(text) => SqlValue::Text(text.clone()),
        Value::Blob(bytes) => SqlValue::Blob(bytes.clone()),
    };
    table.rows.iter().map(|row| row.iter().map(value).collect()).collect()
}
