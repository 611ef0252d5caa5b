//! One server, and the ways that lead to it: directly, through HAProxy, through PgBouncer, through one node.

use quorumsql_chaos::cluster::Demo;
use quorumsql_chaos::servers::{HaProxy, MariaDb, PgBouncer, Postgres};

use super::load;

/// What is spoken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Mysql,
    Pgsql,
}

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mysql => "MySQL",
            Self::Pgsql => "PostgreSQL",
        }
    }
}

/// An address that leads to the server.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The process in between; `None` = directly.
    pub(crate) pid: Option<u32>,
    /// Whether prepared statements get through.
    pub(crate) prepared: bool,
}

/// Names of the ways, as the tables show them.
pub(crate) const DIRECT: &str = "direct";
pub(crate) const HAPROXY: &str = "HAProxy";
pub(crate) const PGBOUNCER: &str = "PgBouncer";
pub(crate) const NODE: &str = "node";

/// A server with everything in front of it; all stopped on drop.
pub(crate) struct Rig {
    pub(crate) protocol: Protocol,
    /// Direct first, the node last.
    pub(crate) ways: Vec<Way>,
    demo: Demo,
    _haproxy: Option<HaProxy>,
    _pgbouncer: Option<PgBouncer>,
    _server: Server,
}

enum Server {
    Maria(MariaDb),
    Postgres(Postgres),
}

impl Server {
    fn start(protocol: Protocol) -> Self {
        match protocol {
            // One connection a client through HAProxy, one statement a connection where clients prepare.
            Protocol::Mysql => Self::Maria(MariaDb::start(1, &["--max-connections=4000", "--max-prepared-stmt-count=1000000"])),
            Protocol::Pgsql => Self::Postgres(Postgres::start(&["max_connections=2000"])),
        }
    }

    fn port(&self) -> u16 {
        match self {
            Self::Maria(server) => server.port,
            Self::Postgres(server) => server.port,
        }
    }
}

impl Rig {
    /// Starts the server with the tables of the loads, and what is installed of the ways.
    pub(crate) fn start(protocol: Protocol) -> anyhow::Result<Self> {
        let server = Server::start(protocol);
        let address = format!("127.0.0.1:{}", server.port());
        let way = |name, port, pid| Way { name, host: "127.0.0.1".into(), port, pid, prepared: true };
        let mut ways = vec![way(DIRECT, server.port(), None)];
        load::prepare(protocol, &ways[0])?;

        let haproxy = wanted("haproxy", HAPROXY).then(|| HaProxy::start(&[(address.clone(), String::new())]));
        ways.extend(haproxy.as_ref().map(|peer| way(HAPROXY, peer.port, Some(peer.process.pid()))));
        let pooled = protocol == Protocol::Pgsql && wanted("pgbouncer", PGBOUNCER);
        let pgbouncer = pooled.then(|| PgBouncer::start(server.port()));
        if let Some(peer) = &pgbouncer {
            let prepared = PgBouncer::keeps_prepared_statements();
            if !prepared {
                println!("{PGBOUNCER} is older than 1.21: it is left out where statements are prepared");
            }
            ways.push(Way { prepared, ..way(PGBOUNCER, peer.port, Some(peer.process.pid())) });
        }

        let (option, port) = match protocol {
            Protocol::Mysql => ("--mysql", 6033),
            Protocol::Pgsql => ("--pgsql", 6133),
        };
        let demo = Demo::start(1, &[option, &address]);
        ways.push(Way { host: demo.host(1), ..way(NODE, port, Some(demo.pid(1))) });
        Ok(Self { protocol, ways, demo, _haproxy: haproxy, _pgbouncer: pgbouncer, _server: server })
    }

    /// Address of the node for its admin port.
    pub(crate) fn node_host(&self) -> String {
        self.demo.host(1)
    }

    /// The way through the node.
    pub(crate) fn node(&self) -> &Way {
        &self.ways[self.ways.len() - 1]
    }

    /// The ways with a process in between.
    pub(crate) fn proxies(&self) -> impl Iterator<Item = (&Way, u32)> {
        self.ways.iter().filter_map(|way| way.pid.map(|pid| (way, pid)))
    }
}

/// Whether a program is installed; says so when it is not.
pub(crate) fn wanted(program: &str, name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&paths).any(|dir| dir.join(program).exists());
    if !there {
        println!("{name} is not installed ({program} is not in PATH): left out");
    }
    there
}
