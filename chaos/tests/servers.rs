//! The harness itself: every server that the tests rely on starts, answers, and is gone when its handle is dropped.

use quorumsql_chaos::process::connects;
use quorumsql_chaos::servers::{HaProxy, MariaDb, Mysql9, Postgres};

#[test]
fn mariadb_starts_answers_and_restarts() {
    let mut server = MariaDb::start(7, &["--read-only=1"]);
    assert_eq!(server.root("SELECT @@server_id, @@read_only").trim(), "7\t1");
    server.restart();
    assert_eq!(server.root("SELECT COUNT(*) FROM mysql.user WHERE user IN ('demo', 'monitor')").trim(), "2");
    let address = server.address();
    drop(server);
    assert!(!connects(&address));
}

#[test]
fn mysql_9_starts_with_caching_sha2_accounts() {
    let server = Mysql9::start(9, &[]);
    assert!(server.root("SELECT VERSION()").starts_with("9."));
    assert_eq!(server.root("SELECT plugin FROM mysql.user WHERE user = 'demo'").trim(), "caching_sha2_password");
}

#[test]
fn postgres_starts_and_haproxy_forwards_to_it() {
    let server = Postgres::start(&[]);
    assert_eq!(server.root("demo", "SHOW server_version_num").trim().len(), 6);
    let standby = server.standby();
    assert_eq!(standby.root("demo", "SELECT pg_is_in_recovery()").trim(), "t");
    let balancer = HaProxy::start(&[(server.address(), String::new())]);
    assert!(connects(&format!("127.0.0.1:{}", balancer.port)));
}
