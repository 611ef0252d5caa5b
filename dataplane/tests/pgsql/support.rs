//! A data plane in this process with one worker, in front of real servers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use quorumsql_chaos::servers::Postgres;
use quorumsql_dataplane::config::{
    Domain, Hostgroup, HostgroupId, Protocol, ProtocolConfig, RuntimeConfig, Server, ServerAddress, ServerStatus, User, Variables,
};
use quorumsql_dataplane::rules::{CompileOptions, RuleRow, RuleSet};
use quorumsql_dataplane::tls::ServerTls;
use quorumsql_dataplane::{DataPlane, DataPlaneOptions};
use tokio_postgres::{Client, Config, NoTls};

/// Writer and reader hostgroups.
pub(crate) const WRITER: HostgroupId = HostgroupId(10);
pub(crate) const READER: HostgroupId = HostgroupId(20);

/// What a test puts in front of its clients.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) servers: Vec<(HostgroupId, u16, u32)>,
    pub(crate) rules: Vec<RuleRow>,
    pub(crate) users: Vec<User>,
    pub(crate) variables: Option<Variables>,
}

impl Setup {
    /// One server for writes, with at most `connections` connections.
    pub(crate) fn writer(server: &Postgres, connections: u32) -> Self {
        Self { servers: vec![(WRITER, server.port, connections)], ..Self::default() }
    }

    /// A second server, for reads.
    pub(crate) fn reader(mut self, server: &Postgres, connections: u32) -> Self {
        self.servers.push((READER, server.port, connections));
        self
    }

    pub(crate) fn rule(mut self, rule: RuleRow) -> Self {
        self.rules.push(rule);
        self
    }

    pub(crate) fn user(mut self, name: &str, password: &str) -> Self {
        self.users.push(user(name, password));
        self
    }

    fn config(self) -> RuntimeConfig {
        let mut hostgroups: HashMap<HostgroupId, Hostgroup> = HashMap::new();
        for (hostgroup, port, max_connections) in self.servers {
            let server = Server {
                hostgroup,
                address: ServerAddress { host: "127.0.0.1".into(), port },
                status: ServerStatus::Online,
                weight: 1,
                max_connections,
                tls: ServerTls::Disable,
                latency_us: 0,
                trouble: None,
            };
            hostgroups.entry(hostgroup).or_insert_with(|| Hostgroup { id: hostgroup, servers: Vec::new() }).servers.push(Arc::new(server));
        }
        let (rules, warnings) = RuleSet::compile(self.rules, CompileOptions::default()).expect("the test's rules are valid");
        assert!(warnings.is_empty(), "{warnings:?}");
        let variables = self.variables.unwrap_or_else(quick);
        let users = self.users.into_iter().chain([user("demo", "demo")]).map(|user| (user.name.clone(), Arc::new(user))).collect();
        let pgsql = ProtocolConfig {
            users,
            hostgroups: hostgroups.into_iter().map(|(id, hostgroup)| (id, Arc::new(hostgroup))).collect(),
            rules: Arc::new(rules),
            domains: vec![Domain { writer: WRITER, reader: READER }],
            variables: Arc::new(variables),
            ..ProtocolConfig::default()
        };
        RuntimeConfig { index: 1, revision: 1, mysql: Arc::default(), pgsql: Arc::new(pgsql) }
    }

    /// Starts it.
    pub(crate) fn start(self) -> Plane {
        let plane = DataPlane::start(DataPlaneOptions { threads: 1, slot: 3 }, Arc::new(self.config())).expect("workers start");
        let address = plane.listen(Protocol::Pgsql, "127.0.0.1:0").expect("a port is free");
        let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("an address ends with its port");
        Plane { plane, port }
    }
}

/// A PostgreSQL server and a plane with at most so many connections to it.
pub(crate) fn in_front_of_server(connections: u32) -> (Postgres, Plane) {
    let server = Postgres::start(&[]);
    let plane = Setup::writer(&server, connections).start();
    (server, plane)
}

/// Variables with waits that are right for a test that expects one to end.
pub(crate) fn quick() -> Variables {
    Variables {
        connect_timeout_server_max: Duration::from_secs(5),
        // Idle connections stay, so that tests can count them.
        free_connections_pct: 100,
        server_version: "15.0".into(),
        default_charset: "UTF8".into(),
        ..Variables::default()
    }
}

/// A frontend user on the writer.
pub(crate) fn user(name: &str, password: &str) -> User {
    User {
        name: name.into(),
        password: password.into(),
        additional_password: None,
        require_tls: false,
        default_hostgroup: WRITER,
        default_schema: None,
        transaction_persistent: true,
        max_connections: 1000,
    }
}

/// A running data plane; stops when it is dropped.
pub(crate) struct Plane {
    pub(crate) plane: DataPlane,
    pub(crate) port: u16,
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.plane.shutdown();
    }
}

impl Plane {
    /// How to connect as demo.
    pub(crate) fn config(&self) -> Config {
        config_at(self.port)
    }

    /// A client logged in as demo.
    pub(crate) async fn client(&self) -> Client {
        connect(&self.config()).await.expect("demo can log in")
    }

    /// Connections that the pool has opened so far.
    pub(crate) fn opened(&self) -> u64 {
        self.plane.stats().pool.iter().map(|row| row.ok).sum()
    }
}

/// How to connect as demo at a port of this machine, of a plane or of a server.
pub(crate) fn config_at(port: u16) -> Config {
    let mut config = Config::new();
    config.host("127.0.0.1").port(port).user("demo").password("demo").dbname("demo");
    config
}

/// Logs in and lets the connection run.
pub(crate) async fn connect(config: &Config) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(async move {
        // Its error reaches the client's calls, too.
        let _ = connection.await;
    });
    Ok(client)
}

/// The first column of the first row of a simple query.
pub(crate) async fn one(client: &Client, sql: &str) -> String {
    let messages = client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let row = messages.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
        _ => None,
    });
    row.unwrap_or_else(|| panic!("{sql}: no row"))
}

/// SQLSTATE and message of an error of the server or proxy.
pub(crate) fn told(error: &tokio_postgres::Error) -> (String, String) {
    let error = error.as_db_error().unwrap_or_else(|| panic!("not told by the server: {error:?}"));
    (error.code().code().to_owned(), error.message().to_owned())
}

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let limit = tokio::time::Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(tokio::time::Instant::now() < limit, "waited for: {what}");
        tokio::task::yield_now().await;
    }
}
