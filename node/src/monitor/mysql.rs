//! Checks of MySQL and MariaDB servers (monitoring-and-failover.md A3).

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Error, OptsBuilder, Row, SslOpts, Value};
use quorumsql_dataplane::config::TlsMode;

use super::check::{Failure, Found, Login};
use crate::runtime::{CheckType, Target};

/// Server errors in place of a login that say that the server is not there for us.
const NOT_SERVING: [u16; 4] = [
    1053, // shutdown in progress
    1129, // host is blocked
    1130, // host is not allowed
    3169, // session was killed
];

/// A connection as `monitor_username`.
pub(super) struct Client(Conn);

impl Client {
    pub(super) async fn connect(target: &Target, login: &Login) -> Result<Self, Failure> {
        let tls = if target.use_ssl { login.tls } else { TlsMode::Disable };
        match Conn::new(options(target, login, tls)).await {
            Ok(connection) => Ok(Self(connection)),
            Err(Error::Driver(DriverError::NoClientSslFlagFromServer)) if tls == TlsMode::Prefer => {
                Conn::new(options(target, login, TlsMode::Disable)).await.map(Self).map_err(failure)
            }
            Err(error) => Err(failure(error)),
        }
    }

    pub(super) async fn ping(&mut self) -> Result<Found, Failure> {
        self.0.ping().await.map(|()| Found::Alive).map_err(failure)
    }

    pub(super) async fn role(&mut self, check: Option<CheckType>) -> Result<Found, Failure> {
        let row: Option<Row> = self.0.query_first(statement(check)).await.map_err(failure)?;
        match row.as_ref().and_then(|row| row.as_ref(0)).map(is_on) {
            Some(Some(on)) => Ok(Found::ReadOnly(on)),
            // Unknown is unknown, not read-only (E5.1 W12).
            _ => Err(Failure { text: "the answer is neither ON nor OFF".into(), answered: true }),
        }
    }
}

fn options(target: &Target, login: &Login, tls: TlsMode) -> OptsBuilder {
    let builder = OptsBuilder::default()
        .user(Some(login.username.clone()))
        .pass((!login.password.is_empty()).then(|| login.password.clone()))
        .prefer_socket(Some(false))
        .tcp_nodelay(true)
        .stmt_cache_size(0)
        // Known, so that the login needs no question of its own.
        .max_allowed_packet(Some(1 << 20))
        .wait_timeout(Some(28_800))
        .ssl_opts(ssl(tls));
    if target.port == 0 {
        builder.socket(Some(target.host.clone()))
    } else {
        builder.ip_or_hostname(target.host.clone()).tcp_port(target.port)
    }
}

fn ssl(tls: TlsMode) -> Option<SslOpts> {
    match tls {
        TlsMode::Disable => None,
        TlsMode::Prefer | TlsMode::Require => Some(SslOpts::default().with_danger_accept_invalid_certs(true)),
        TlsMode::VerifyCa => Some(SslOpts::default().with_danger_skip_domain_validation(true)),
        TlsMode::VerifyFull => Some(SslOpts::default()),
    }
}

fn statement(check: Option<CheckType>) -> &'static str {
    match check.unwrap_or(CheckType::ReadOnly) {
        CheckType::ReadOnly => "SELECT @@global.read_only read_only",
        CheckType::InnodbReadOnly => "SELECT @@global.innodb_read_only read_only",
        CheckType::SuperReadOnly => "SELECT @@global.super_read_only read_only",
        CheckType::Both => "SELECT @@global.read_only&@@global.innodb_read_only read_only",
        CheckType::Either => "SELECT @@global.read_only|@@global.innodb_read_only read_only",
    }
}

/// `None` = neither. MariaDB 12 has further words, which all mean ON.
fn is_on(value: &Value) -> Option<bool> {
    match value {
        Value::Int(number) => Some(*number != 0),
        Value::UInt(number) => Some(*number != 0),
        Value::Bytes(text) if text.is_empty() => None,
        Value::Bytes(text) => Some(!(text == b"0" || text.eq_ignore_ascii_case(b"OFF"))),
        _ => None,
    }
}

fn failure(error: Error) -> Failure {
    let answered = matches!(&error, Error::Server(server) if !NOT_SERVING.contains(&server.code));
    Failure { text: error.to_string(), answered }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_all_products() {
        let text = |text: &str| Value::Bytes(text.into());
        for (value, want) in [
            (Value::Int(0), Some(false)),
            (Value::UInt(1), Some(true)),
            (text("0"), Some(false)),
            (text("off"), Some(false)),
            (text("1"), Some(true)),
            (text("ON"), Some(true)),
            (text("NO_LOCK"), Some(true)),
            (text(""), None),
            (Value::NULL, None),
        ] {
            assert_eq!(is_on(&value), want, "{value:?}");
        }
    }
}
