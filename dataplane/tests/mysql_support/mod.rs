//! A data plane in the test's process, in front of real servers, and clients of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use quorumsql_chaos::process::free_port;
use quorumsql_dataplane::config::{
    Domain, Hostgroup, HostgroupId, Protocol, ProtocolConfig, RuntimeConfig, Server, ServerAddress, ServerStatus, User, Variables,
};
use quorumsql_dataplane::rules::{CompileOptions, RuleRow, RuleSet};
use quorumsql_dataplane::tls::ServerTls;
use quorumsql_dataplane::{DataPlane, DataPlaneOptions};

/// Writer hostgroup.
pub(crate) const WRITER: u32 = 10;
/// Reader hostgroup.
pub(crate) const READER: u32 = 20;

/// What a test says of its proxy.
pub(crate) struct Setup {
    /// Port of the writer.
    pub(crate) writer: u16,
    /// Port of the reader, if there is one; SELECT goes there.
    pub(crate) reader: Option<u16>,
    /// Most connections to each server.
    pub(crate) connections: u32,
    /// Workers.
    pub(crate) threads: usize,
    /// Further rules, evaluated first.
    pub(crate) rules: Vec<RuleRow>,
    /// Users and their stored passwords, beside `demo`.
    pub(crate) users: Vec<(String, String)>,
    /// Variables.
    pub(crate) variables: Variables,
}

impl Setup {
    /// One server, one connection, so that all clients share it.
    pub(crate) fn sharing(writer: u16) -> Self {
        let variables =
            Variables { connect_timeout_server_max: Duration::from_secs(5), auto_increment_delay_multiplex: 0, ..Variables::default() };
        Self { writer, reader: None, connections: 1, threads: 1, rules: Vec::new(), users: Vec::new(), variables }
    }

    /// Starts it.
    pub(crate) fn start(self) -> Proxy {
        let options = DataPlaneOptions { threads: self.threads, slot: 1 };
        let plane = DataPlane::start(options, Arc::new(self.config())).expect("workers start");
        let port = free_port();
        plane.listen(Protocol::Mysql, &format!("127.0.0.1:{port}")).expect("the port is free");
        Proxy { plane, port }
    }

    fn config(self) -> RuntimeConfig {
        let mut rules = self.rules;
        if self.reader.is_some() {
            rules.push(rule(100, "^SELECT", READER));
        }
        let (rules, _) = RuleSet::compile(rules, CompileOptions::default()).expect("the rules are good");
        let servers = [(WRITER, Some(self.writer)), (READER, self.reader)];
        let hostgroups = servers.iter().filter_map(|(id, port)| port.map(|port| hostgroup(*id, port, self.connections))).collect();
        let mut users = HashMap::from([user("demo", "demo")]);
        users.extend(self.users.iter().map(|(name, password)| user(name, password)));
        let side = ProtocolConfig {
            users,
            hostgroups,
            rules: Arc::new(rules),
            domains: vec![Domain { writer: HostgroupId(WRITER), reader: HostgroupId(READER) }],
            variables: Arc::new(self.variables),
            ..ProtocolConfig::default()
        };
        RuntimeConfig { index: 1, revision: 1, mysql: Arc::new(side), pgsql: Arc::default() }
    }
}

/// A rule by digest.
pub(crate) fn rule(rule_id: i64, match_digest: &str, destination: u32) -> RuleRow {
    RuleRow {
        rule_id,
        match_digest: Some(match_digest.into()),
        caseless: true,
        destination_hostgroup: Some(HostgroupId(destination)),
        apply: true,
        ..RuleRow::default()
    }
}

fn hostgroup(id: u32, port: u16, max_connections: u32) -> (HostgroupId, Arc<Hostgroup>) {
    let id = HostgroupId(id);
    let server = Server {
        hostgroup: id,
        address: ServerAddress { host: "127.0.0.1".into(), port },
        status: ServerStatus::Online,
        weight: 1,
        max_connections,
        tls: ServerTls::Disable,
        latency_us: 0,
        trouble: None,
    };
    (id, Arc::new(Hostgroup { id, servers: vec![Arc::new(server)] }))
}

fn user(name: &str, password: &str) -> (String, Arc<User>) {
    let user = User {
        name: name.into(),
        password: password.into(),
        additional_password: None,
        require_tls: false,
        default_hostgroup: HostgroupId(WRITER),
        default_schema: None,
        transaction_persistent: true,
        max_connections: 1000,
    };
    (name.into(), Arc::new(user))
}

/// A running data plane.
pub(crate) struct Proxy {
    pub(crate) plane: DataPlane,
    pub(crate) port: u16,
}

impl Proxy {
    /// A client that is logged in as `demo`.
    pub(crate) async fn client(&self) -> Conn {
        self.login("demo", "demo").await.expect("demo may log in")
    }

    /// Tries to log in.
    pub(crate) async fn login(&self, name: &str, password: &str) -> Result<Conn, mysql_async::Error> {
        Conn::new(self.login_options(name, password)).await
    }

    /// How to log in.
    pub(crate) fn login_options(&self, name: &str, password: &str) -> OptsBuilder {
        OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(self.port)
            .user(Some(name))
            .pass(Some(password))
            .db_name(Some("demo"))
            .prefer_socket(false)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.plane.shutdown();
    }
}

/// The first value of a statement in text, as text.
pub(crate) async fn text(client: &mut Conn, sql: &str) -> String {
    let row: Option<mysql_async::Row> = client.query_first(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    match row.map(|row| row.unwrap().remove(0)) {
        Some(mysql_async::Value::Bytes(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        Some(mysql_async::Value::NULL) => "NULL".into(),
        other => format!("{other:?}"),
    }
}

/// Number of the error that a statement gets.
pub(crate) async fn error(client: &mut Conn, sql: &str) -> u16 {
    match client.query_drop(sql).await {
        Err(mysql_async::Error::Server(error)) => error.code,
        other => panic!("{sql}: {other:?} instead of an error"),
    }
}

/// Runs statements that have no result.
pub(crate) async fn run(client: &mut Conn, statements: &[&str]) {
    for sql in statements {
        client.query_drop(*sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// Runs a test's dialogue, with a limit.
pub(crate) fn block_on<F: Future<Output = ()>>(test: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), test).await.expect("the dialogue ends in time") });
}
