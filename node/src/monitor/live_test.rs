//! The monitor against real servers.

use std::sync::Arc;
use std::time::Duration;

use quorumsql_chaos::servers::{MariaDb, Mysql9, Postgres};
use quorumsql_dataplane::config::Protocol;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Monitor;
use crate::runtime::{CheckType, Observed, ProtocolTargets, Schedule, Seen, Target, Targets};
use crate::tls::ServerSide;

const HOST: &str = "127.0.0.1";

fn side(ports: &[u16], password: &str) -> ProtocolTargets {
    let check = Some(CheckType::ReadOnly);
    let schedule = |tolerated| Schedule { interval: Duration::from_millis(50), timeout: Duration::from_secs(5), tolerated };
    ProtocolTargets {
        enabled: true,
        servers: ports.iter().map(|port| Target { host: HOST.into(), port: *port, use_ssl: false, check }).collect(),
        username: "monitor".into(),
        password: password.into(),
        dbname: "postgres".into(),
        tls: ServerSide::plain(),
        connect: schedule(1),
        ping: schedule(3),
        read_only: schedule(3),
        history: Duration::from_secs(60),
    }
}

fn mysql(ports: &[u16], password: &str) -> watch::Sender<Arc<Targets>> {
    watch::Sender::new(Arc::new(Targets { mysql: side(ports, password), pgsql: side(&[], password) }))
}

fn pgsql(ports: &[u16]) -> watch::Sender<Arc<Targets>> {
    watch::Sender::new(Arc::new(Targets { mysql: side(&[], "monitor"), pgsql: side(ports, "monitor") }))
}

/// Waits until a server is seen as writer (`Some(false)`) or reader, reachable or not.
async fn until(observed: &mut watch::Receiver<Observed>, protocol: Protocol, port: u16, want: (Option<bool>, bool)) {
    let seen = |now: &Observed| match now.seen(protocol, HOST, port) {
        Seen::Probed { read_only, reachable, .. } => (read_only, reachable) == want,
        Seen::Nothing => false,
    };
    let found = timeout(Duration::from_secs(60), observed.wait_for(seen)).await.map(|answer| answer.is_ok());
    assert_eq!(found, Ok(true), "{port} is not seen as {want:?}: {:?}", *observed.borrow());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_changes_its_role_dies_and_returns() {
    let mut server = MariaDb::start(1, &[]);
    let targets = mysql(&[server.port], "monitor");
    let (monitor, mut observed) = Monitor::start(targets.subscribe());
    until(&mut observed, Protocol::Mysql, server.port, (Some(false), true)).await;
    let _set = server.root("SET GLOBAL read_only=1");
    until(&mut observed, Protocol::Mysql, server.port, (Some(true), true)).await;
    server.process.kill();
    // The last answer to the role check stays.
    until(&mut observed, Protocol::Mysql, server.port, (Some(true), false)).await;
    server.restart();
    until(&mut observed, Protocol::Mysql, server.port, (Some(false), true)).await;
    let log = monitor.log_table("mysql_server_read_only_log");
    assert!(log.iter().all(|row| row.len() == 6));
    assert!(!monitor.log_table("mysql_server_ping_log").is_empty() && !monitor.log_table("mysql_server_connect_log").is_empty());

    targets.send_replace(Arc::new(Targets { mysql: side(&[], "monitor"), pgsql: side(&[], "monitor") }));
    let gone = observed.wait_for(|now| now.seen(Protocol::Mysql, HOST, server.port) == Seen::Nothing);
    assert!(timeout(Duration::from_secs(60), gone).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_takes_no_server_out_of_use() {
    let server = MariaDb::start(1, &[]);
    let targets = mysql(&[server.port], "wrong");
    let (_monitor, mut observed) = Monitor::start(targets.subscribe());
    until(&mut observed, Protocol::Mysql, server.port, (None, true)).await;
    targets.send_replace(Arc::new(Targets { mysql: side(&[server.port], "monitor"), pgsql: side(&[], "monitor") }));
    until(&mut observed, Protocol::Mysql, server.port, (Some(false), true)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_9_answers_with_its_own_authentication() {
    let server = Mysql9::start(1, &["--read-only=1"]);
    let targets = mysql(&[server.port], "monitor");
    let (_monitor, mut observed) = Monitor::start(targets.subscribe());
    until(&mut observed, Protocol::Mysql, server.port, (Some(true), true)).await;
    let _set = server.root("SET GLOBAL read_only=0");
    until(&mut observed, Protocol::Mysql, server.port, (Some(false), true)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_a_reader_until_it_is_promoted() {
    let mut primary = Postgres::start(&[]);
    let standby = primary.standby();
    let targets = pgsql(&[primary.port, standby.port]);
    let (_monitor, mut observed) = Monitor::start(targets.subscribe());
    until(&mut observed, Protocol::Pgsql, primary.port, (Some(false), true)).await;
    until(&mut observed, Protocol::Pgsql, standby.port, (Some(true), true)).await;
    primary.process.kill();
    until(&mut observed, Protocol::Pgsql, primary.port, (Some(false), false)).await;
    let _promoted = standby.root("postgres", "SELECT pg_promote(true)");
    until(&mut observed, Protocol::Pgsql, standby.port, (Some(false), true)).await;
}
