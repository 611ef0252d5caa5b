//! Checks of PostgreSQL servers (monitoring-and-failover.md A3).

use quorumsql_dataplane::config::TlsMode;
use quorumsql_dataplane::tls::{ServerTls, TlsError};
use rustls::ClientConfig;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, Error, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::check::{Failure, Found, Login, with_causes};
use super::task::AbortOnDrop;
use crate::runtime::Target;

/// A connection as `monitor_username`.
pub(super) struct Client {
    client: tokio_postgres::Client,
    /// Moves the bytes; ends with the client.
    _connection: AbortOnDrop,
}

impl Client {
    pub(super) async fn connect(target: &Target, login: &Login) -> Result<Self, Failure> {
        let mut config = Config::new();
        config.host(&target.host).port(if target.port == 0 { 5432 } else { target.port });
        config.user(&login.username).password(&login.password).dbname(&login.dbname).application_name("quorumsql-monitor");
        // A Unix socket needs no TLS, and PostgreSQL offers none there.
        let tls = if target.use_ssl && target.port != 0 { login.tls.tls() } else { &ServerTls::Disable };
        let (client, connection) = match tls.connector() {
            None => {
                let (client, connection) = config.ssl_mode(SslMode::Disable).connect(NoTls).await.map_err(failure)?;
                (client, AbortOnDrop::spawn(async move { drop(connection.await) }))
            }
            Some(connector) => {
                let unusable = |error: TlsError| Failure { text: format!("TLS: {error}"), answered: false };
                let settings = ClientConfig::clone(connector.config().map_err(unusable)?);
                config.ssl_mode(if login.tls.mode() == TlsMode::Prefer { SslMode::Prefer } else { SslMode::Require });
                let (client, connection) = config.connect(MakeRustlsConnect::new(settings)).await.map_err(failure)?;
                (client, AbortOnDrop::spawn(async move { drop(connection.await) }))
            }
        };
        Ok(Self { client, _connection: connection })
    }

    pub(super) async fn ping(&mut self) -> Result<Found, Failure> {
        self.client.simple_query("").await.map(|_| Found::Alive).map_err(failure)
    }

    pub(super) async fn role(&mut self) -> Result<Found, Failure> {
        let messages = self.client.simple_query("SELECT pg_is_in_recovery()").await.map_err(failure)?;
        let answer = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.try_get(0).ok().flatten(),
            _ => None,
        });
        match answer {
            Some("t" | "true" | "1") => Ok(Found::ReadOnly(true)),
            Some("f" | "false" | "0") => Ok(Found::ReadOnly(false)),
            _ => Err(Failure { text: "the answer is neither true nor false".into(), answered: true }),
        }
    }
}

fn failure(error: Error) -> Failure {
    // 57P01 … 57P03: going down or not up yet.
    let not_serving = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW];
    let answered = error.code().is_some_and(|code| !not_serving.contains(code));
    let text = match error.as_db_error() {
        Some(answer) => format!("{}: {}", answer.code().code(), answer.message()),
        None => with_causes(&error),
    };
    Failure { text, answered }
}
