//! Clients of our own: admin connections, idle ones that have run one query, and readers of big results.

use std::sync::Arc;

use anyhow::Context as _;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder, Row};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::rig::{Protocol, Way};

/// Most logins at once: a server with one thread a connection is not to be measured while it drowns.
const LOGINS: usize = 32;

/// A connection of either protocol.
pub(crate) enum Client {
    Mysql(Box<Conn>),
    Pgsql(tokio_postgres::Client),
}

impl Client {
    /// Logs in as demo.
    pub(crate) async fn connect(protocol: Protocol, way: &Way) -> anyhow::Result<Self> {
        match protocol {
            Protocol::Mysql => Ok(Self::Mysql(Box::new(mysql(&way.host, way.port, "demo", Some("demo")).await?))),
            Protocol::Pgsql => {
                let settings = format!("host={} port={} user=demo password=demo dbname=demo", way.host, way.port);
                let (client, connection) = tokio_postgres::connect(&settings, tokio_postgres::NoTls).await?;
                tokio::spawn(connection);
                Ok(Self::Pgsql(client))
            }
        }
    }

    /// Runs one query and returns how many bytes its values have.
    pub(crate) async fn read(&mut self, sql: &str) -> anyhow::Result<u64> {
        match self {
            Self::Mysql(conn) => {
                let sum = |sum: u64, row: Row| {
                    let lengths = row.unwrap().into_iter().map(|value| if let mysql_async::Value::Bytes(b) = value { b.len() } else { 0 });
                    sum + lengths.sum::<usize>() as u64
                };
                Ok(conn.query_fold(sql, 0, sum).await?)
            }
            Self::Pgsql(client) => {
                let messages = client.simple_query(sql).await?;
                let length = |message: &tokio_postgres::SimpleQueryMessage| match message {
                    tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map_or(0, str::len),
                    _ => 0,
                };
                Ok(messages.iter().map(length).sum::<usize>() as u64)
            }
        }
    }
}

async fn mysql(host: &str, port: u16, user: &str, database: Option<&str>) -> mysql_async::Result<Conn> {
    let options = OptsBuilder::default().ip_or_hostname(host).tcp_port(port).user(Some(user)).pass(Some(user)).db_name(database);
    // Both given: else the driver asks for them at each login.
    Conn::new(options.prefer_socket(false).max_allowed_packet(Some(16 << 20)).wait_timeout(Some(28_800))).await
}

/// An admin connection to the node at `host`.
pub(crate) async fn admin(host: &str) -> anyhow::Result<Conn> {
    mysql(host, 6032, "admin", None).await.with_context(|| format!("no login on the admin port of {host}"))
}

/// A client on the MySQL port of the node at `host`.
pub(crate) async fn traffic(host: &str) -> anyhow::Result<Conn> {
    mysql(host, 6033, "demo", Some("demo")).await.with_context(|| format!("no login on the MySQL port of {host}"))
}

/// Runs statements without results, one after the other.
pub(crate) async fn execute(conn: &mut Conn, statements: &[String]) -> anyhow::Result<()> {
    for sql in statements {
        conn.query_drop(sql).await.with_context(|| sql.chars().take(200).collect::<String>())?;
    }
    Ok(())
}

/// `count` connections that have run one query each.
pub(crate) async fn idle(protocol: Protocol, way: &Way, count: usize) -> anyhow::Result<Vec<Client>> {
    let (places, mut logins) = (Arc::new(Semaphore::new(LOGINS)), JoinSet::new());
    for _ in 0..count {
        let (way, places) = (way.clone(), places.clone());
        logins.spawn(async move {
            let _place = places.acquire().await?;
            let mut client = Client::connect(protocol, &way).await?;
            client.read("SELECT 1").await?;
            anyhow::Ok(client)
        });
    }
    let mut clients = Vec::with_capacity(count);
    while let Some(client) = logins.join_next().await {
        clients.push(client?.with_context(|| format!("idle client {} of {count} through {}", clients.len() + 1, way.name))?);
    }
    Ok(clients)
}
