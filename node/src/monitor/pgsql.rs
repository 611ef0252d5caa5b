//! Checks of PostgreSQL servers (monitoring-and-failover.md A3).

use std::sync::Arc;

use quorumsql_dataplane::config::TlsMode;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, Error, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::check::{Failure, Found, Login};
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
        let tls = if target.use_ssl { login.tls } else { TlsMode::Disable };
        let mut config = Config::new();
        config.host(&target.host).port(if target.port == 0 { 5432 } else { target.port });
        config.user(&login.username).password(&login.password).dbname(&login.dbname).application_name("quorumsql-monitor");
        let (client, connection) = match tls {
            TlsMode::Disable => {
                let (client, connection) = config.ssl_mode(SslMode::Disable).connect(NoTls).await.map_err(failure)?;
                (client, AbortOnDrop::spawn(async move { drop(connection.await) }))
            }
            TlsMode::Prefer | TlsMode::Require => {
                config.ssl_mode(if tls == TlsMode::Prefer { SslMode::Prefer } else { SslMode::Require });
                let (client, connection) = config.connect(MakeRustlsConnect::new(unverified()?)).await.map_err(failure)?;
                (client, AbortOnDrop::spawn(async move { drop(connection.await) }))
            }
            // Never less than was asked for.
            TlsMode::VerifyCa | TlsMode::VerifyFull => {
                return Err(Failure { text: "the monitor cannot verify certificates of PostgreSQL servers".into(), answered: false });
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
        None => error.to_string(),
    };
    Failure { text, answered }
}

/// TLS without a look at the certificate: `require`.
fn unverified() -> Result<ClientConfig, Failure> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure { text: error.to_string(), answered: false })?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider))).with_no_client_auth())
}

#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
