//! Checks of MySQL and MariaDB servers (monitoring-and-failover.md A3).

use mysql_async::prelude::Queryable;
use mysql_async::{ClientIdentity, Conn, DriverError, Error, OptsBuilder, Row, SslOpts, Value};
use quorumsql_dataplane::config::TlsMode;

use super::check::{Failure, Found, Login, with_causes};
use crate::runtime::{CheckType, Target};
use crate::tls::ServerSide;

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
        // A Unix socket needs none.
        let tls = if target.use_ssl && target.port != 0 { login.tls.clone() } else { ServerSide::plain() };
        if let Some(Err(error)) = tls.tls().connector().map(|connector| connector.config()) {
            return Err(Failure { text: format!("TLS: {error}"), answered: false });
        }
        match Conn::new(options(target, login, &tls)).await {
            Ok(connection) => Ok(Self(connection)),
            Err(Error::Driver(DriverError::NoClientSslFlagFromServer)) if tls.mode() == TlsMode::Prefer => {
                Conn::new(options(target, login, &ServerSide::plain())).await.map(Self).map_err(failure)
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

fn options(target: &Target, login: &Login, tls: &ServerSide) -> OptsBuilder {
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

/// The data plane's settings in the library's words. Revocation lists are the one thing that it cannot take.
fn ssl(tls: &ServerSide) -> Option<SslOpts> {
    let mode = tls.mode();
    if mode == TlsMode::Disable {
        return None;
    }
    let identity = tls.identity().map(|(cert, key)| ClientIdentity::new(cert.clone().into(), key.clone().into()));
    let options = SslOpts::default().with_disable_built_in_roots(true).with_client_identity(identity);
    Some(match mode {
        TlsMode::VerifyCa => options.with_root_certs(vec![tls.roots().to_vec().into()]).with_danger_skip_domain_validation(true),
        TlsMode::VerifyFull => options.with_root_certs(vec![tls.roots().to_vec().into()]),
        _ => options.with_danger_accept_invalid_certs(true),
    })
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
    let answered = match &error {
        Error::Server(server) => !NOT_SERVING.contains(&server.code),
        // It speaks, and asks for a way to log in that we do not have: MySQL 9 does so for accounts that do not exist, too.
        Error::Driver(error) => matches!(
            error,
            DriverError::UnknownAuthPlugin { .. } | DriverError::MysqlOldPasswordDisabled | DriverError::CleartextPluginDisabled
        ),
        _ => false,
    };
    let text = match &error {
        // The words of the data plane.
        Error::Driver(DriverError::NoClientSslFlagFromServer) => "TLS: the server does not offer it".into(),
        error => with_causes(error),
    };
    Failure { text, answered }
}

#[cfg(test)]
mod tests {
    use mysql_async::ServerError;

    use super::*;

    #[test]
    fn what_tells_that_a_server_answers() {
        let told = |code| Error::Server(ServerError { code, message: String::new(), state: "HY000".into() });
        let plugin = |name: &str| Error::Driver(DriverError::UnknownAuthPlugin { name: name.into() });
        for (error, answered) in [
            (told(1045), true),
            (told(1053), false),
            (told(1130), false),
            (plugin("sha256_password"), true),
            (Error::Driver(DriverError::CleartextPluginDisabled), true),
            (Error::Driver(DriverError::ConnectionClosed), false),
            (Error::Driver(DriverError::PacketOutOfOrder), false),
        ] {
            let text = error.to_string();
            assert_eq!(failure(error).answered, answered, "{text}");
        }
    }

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
