//! When the demo may say `ready`: every node is in service and answers SQL on both protocols.

use std::time::Duration;

use anyhow::Context as _;
use mysql_async::prelude::Queryable as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::layout::{self, Layout};
use super::nodes::{Nodes, POLL};
use super::{STEP, load};

/// For one question.
const ANSWER: Duration = Duration::from_secs(5);

/// Waits until all nodes serve.
pub(super) async fn wait(layout: &Layout, user: &(String, String), nodes: &mut Nodes) -> anyhow::Result<()> {
    let deadline = Instant::now() + STEP;
    for node in layout.nodes() {
        loop {
            nodes.check()?;
            let asked = timeout(ANSWER, serves(&layout.host(node), user)).await.context("no answer in time").and_then(|answer| answer);
            match asked {
                Ok(()) => break,
                Err(error) => anyhow::ensure!(Instant::now() < deadline, "node{node} does not serve: {error:#}"),
            }
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(())
}

async fn serves(host: &str, user: &(String, String)) -> anyhow::Result<()> {
    let (status, body) = get(host, layout::HTTP, "/readyz").await?;
    anyhow::ensure!(status == 200, "/readyz says {status} {}", body.trim());
    let account = (user.0.as_str(), user.1.as_str());
    let mut mysql = load::connect(host.to_owned(), layout::MYSQL, account).await.context("MySQL login")?;
    let answer: Option<i64> = mysql.query_first("SELECT 1").await.context("MySQL query")?;
    anyhow::ensure!(answer == Some(1), "MySQL answers {answer:?}");
    mysql.disconnect().await?;
    let mut config = tokio_postgres::Config::new();
    config.host(host).port(layout::PGSQL).user(account.0).password(account.1).dbname("demo");
    let (pgsql, connection) = config.connect(tokio_postgres::NoTls).await.context("PostgreSQL login")?;
    let connection = tokio::spawn(connection);
    pgsql.simple_query("SELECT 1").await.context("PostgreSQL query")?;
    drop(pgsql);
    connection.await?.context("PostgreSQL connection")
}

/// An HTTP GET of our own listener: status and body.
async fn get(host: &str, port: u16, path: &str) -> anyhow::Result<(u16, String)> {
    let mut socket = TcpStream::connect((host, port)).await?;
    socket.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    socket.take(65_536).read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no HTTP answer")?;
    Ok((status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}
