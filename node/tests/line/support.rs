//! Connections to nodes as clients have them, and waiting for conditions.

use std::future::Future;
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use quorumsql_chaos::cluster::Demo;

pub(crate) const MYSQL: u16 = 6033;
pub(crate) const PGSQL: u16 = 6133;
pub(crate) const ADMIN_MYSQL: u16 = 6032;
pub(crate) const ADMIN_PGSQL: u16 = 6132;

/// Runs one test on a runtime of its own.
pub(crate) fn run<F: Future>(test: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime").block_on(test)
}

/// Polls `test` until it holds.
pub(crate) async fn eventually(what: &str, limit: Duration, mut test: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + limit;
    while !test().await {
        assert!(Instant::now() < end, "waited {} s for {what}", limit.as_secs());
        tokio::time::sleep(Duration::from_millis(20)).await; // the pause between two looks at the condition
    }
}

pub(crate) async fn try_mysql(host: &str, port: u16, user: &str, password: &str, database: Option<&str>) -> mysql_async::Result<Conn> {
    let opts = OptsBuilder::default().ip_or_hostname(host).tcp_port(port).user(Some(user)).pass(Some(password)).db_name(database);
    Conn::new(opts.prefer_socket(false)).await
}

/// A client on a node's MySQL port.
pub(crate) async fn mysql(host: &str) -> Conn {
    try_mysql(host, MYSQL, "demo", "demo", Some("demo")).await.expect("a login on the MySQL port")
}

/// An admin connection over the MySQL protocol.
pub(crate) async fn admin(host: &str) -> Conn {
    try_mysql(host, ADMIN_MYSQL, "admin", "admin", None).await.expect("a login on the admin port")
}

pub(crate) async fn try_pgsql(host: &str, port: u16, user: &str, database: &str) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let settings = format!("host={host} port={port} user={user} password={user} dbname={database} connect_timeout=10");
    let (client, connection) = tokio_postgres::connect(&settings, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A client on a node's PostgreSQL port.
pub(crate) async fn pgsql(host: &str) -> tokio_postgres::Client {
    try_pgsql(host, PGSQL, "demo", "demo").await.expect("a login on the PostgreSQL port")
}

/// First column of the first row as text; empty where there is no row.
pub(crate) async fn one(conn: &mut Conn, sql: &str) -> String {
    text(conn, sql).await.into_iter().next().and_then(|row| row.into_iter().next()).unwrap_or_default()
}

/// All rows, every value as text.
pub(crate) async fn text(conn: &mut Conn, sql: &str) -> Vec<Vec<String>> {
    let rows: Vec<mysql_async::Row> = conn.query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows.into_iter().map(|row| row.unwrap().into_iter().map(display).collect()).collect()
}

fn display(value: mysql_async::Value) -> String {
    match value {
        mysql_async::Value::NULL => "NULL".into(),
        mysql_async::Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        mysql_async::Value::Int(number) => number.to_string(),
        mysql_async::Value::UInt(number) => number.to_string(),
        other => other.as_sql(true),
    }
}

pub(crate) async fn execute(conn: &mut Conn, statements: &[&str]) {
    for sql in statements {
        conn.query_drop(*sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// First column of the first row of a simple query.
pub(crate) async fn pg_one(client: &tokio_postgres::Client, sql: &str) -> String {
    let messages = client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let row = messages.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    row.unwrap_or_default()
}

/// The slot of the leader as any of `nodes` sees it.
pub(crate) async fn leader(demo: &Demo, nodes: &[usize]) -> Option<usize> {
    for &node in nodes {
        let Ok(mut conn) = try_mysql(&demo.host(node), ADMIN_MYSQL, "admin", "admin", None).await else { continue };
        if let Ok(Some(slot)) = conn.query_first::<String, _>("SELECT slot FROM stats_cluster_nodes WHERE role = 'leader'").await {
            return slot.parse().ok();
        }
    }
    None
}

/// What must be equal on all nodes at equal applied index: hashes of every table, revision and rows of the admin tables.
pub(crate) async fn fingerprint(host: &str) -> Vec<Vec<String>> {
    let mut conn = admin(host).await;
    let own = "SELECT module, layer, revision, hash FROM stats_cluster_config \
        WHERE node_id = (SELECT node_id FROM stats_cluster_nodes WHERE contact_ms IS NULL) ORDER BY module, layer";
    let mut all = text(&mut conn, own).await;
    for table in [
        "mysql_servers",
        "mysql_users",
        "mysql_query_rules",
        "mysql_replication_hostgroups",
        "pgsql_servers",
        "pgsql_query_rules",
        "global_variables",
    ] {
        for layer in ["main", "disk"] {
            all.extend(text(&mut conn, &format!("SELECT * FROM {layer}.{table} ORDER BY 1, 2")).await);
        }
    }
    all
}

/// Percentile of milliseconds, for the printed figures.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "an index of a short list")]
    sorted.get(((last as f64) * share).round() as usize).copied().unwrap_or_default()
}

/// Small deterministic generator.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }
}

/// The seed of a random test, which it prints; a failing one is run again with the environment variable `QUORUMSQL_SEED`.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("QUORUMSQL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| std::process::id().into());
    println!("QUORUMSQL_SEED={seed}");
    seed
}
