//! A node with one connection to its server, and where a driver is sent.

use mysql_async::OptsBuilder;
use mysql_async::prelude::Queryable;
use quorumsql_chaos::cluster::Demo;

/// Where a driver connects to, as `demo`/`demo`, database `demo`.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Target {
    /// A server at `127.0.0.1`.
    pub(crate) fn server(port: u16) -> Self {
        Self { host: "127.0.0.1".into(), port }
    }
}

/// How long a statement waits for the one connection: a case that keeps it unannounced fails soon.
const QUEUE_MS: &str = "4000";

/// A node whose clients share one connection to the server and see its version in the greeting.
pub(crate) struct Node {
    demo: Demo,
    port: u16,
}

impl Node {
    /// A node in front of a MySQL or MariaDB server.
    pub(crate) fn mysql(server: &str, version: &str) -> Self {
        Self::start(
            "mysql",
            6033,
            server,
            &[
                ("mysql-server_version", version),
                ("mysql-auto_increment_delay_multiplex", "0"),
                ("mysql-connect_timeout_server_max", QUEUE_MS),
            ],
        )
    }

    /// A node in front of a PostgreSQL server.
    pub(crate) fn pgsql(server: &str, version: &str) -> Self {
        Self::start(
            "pgsql",
            6133,
            server,
            &[
                ("pgsql-server_version", version),
                ("pgsql-auto_increment_delay_multiplex", "0"),
                ("pgsql-connect_timeout_server_max", QUEUE_MS),
            ],
        )
    }

    fn start(protocol: &str, port: u16, server: &str, variables: &[(&str, &str)]) -> Self {
        let demo = Demo::start(1, &[&format!("--{protocol}"), server]);
        let mut statements = vec![
            format!("DELETE FROM {protocol}_query_rules"),
            format!("LOAD {protocol} QUERY RULES TO RUNTIME FORCE"),
            format!("UPDATE {protocol}_servers SET max_connections = 1"),
            format!("LOAD {protocol} SERVERS TO RUNTIME"),
        ];
        statements.extend(
            variables
                .iter()
                .map(|(name, value)| format!("UPDATE global_variables SET variable_value = '{value}' WHERE variable_name = '{name}'")),
        );
        statements.push(format!("LOAD {protocol} VARIABLES TO RUNTIME"));
        administer(&demo.host(1), &statements);
        Self { demo, port }
    }

    /// Where its clients connect to.
    pub(crate) fn target(&self) -> Target {
        Target { host: self.demo.host(1), port: self.port }
    }
}

fn administer(host: &str, statements: &[String]) {
    let options = OptsBuilder::default().ip_or_hostname(host).tcp_port(6032).user(Some("admin")).pass(Some("admin")).prefer_socket(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut admin = mysql_async::Conn::new(options).await.expect("a login on the admin port");
        for statement in statements {
            admin.query_drop(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        admin.disconnect().await.expect("a goodbye");
    });
}
