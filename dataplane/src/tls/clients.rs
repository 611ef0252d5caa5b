//! TLS with clients.

use std::fmt;
use std::sync::Arc;

use quorumsql_wire::pgsql::channel_binding::server_end_point;
use rustls::server::UnbufferedServerConnection;
use rustls::{KeyLog, ServerConfig};

use super::{ALPN_POSTGRESQL, Identity, TlsError, provider};
use crate::config::Protocol;

/// What clients of one protocol are shown.
pub struct ClientTls {
    config: Arc<ServerConfig>,
    end_point: Option<Box<[u8]>>,
}

impl ClientTls {
    /// No client certificates are asked for. PostgreSQL clients that name protocols (ALPN) must name `postgresql`.
    ///
    /// # Errors
    /// Certificate and key do not belong together, or are of a kind that is not supported.
    pub fn new(protocol: Protocol, identity: &Identity, key_log: Arc<dyn KeyLog>) -> Result<Self, TlsError> {
        let Identity { chain, key } = identity.clone();
        let end_point = chain.first().and_then(|leaf| server_end_point(leaf)).map(Vec::into_boxed_slice);
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.key_log = key_log;
        if protocol == Protocol::Pgsql {
            config.alpn_protocols = vec![ALPN_POSTGRESQL.to_vec()];
        }
        Ok(Self { config: Arc::new(config), end_point })
    }

    /// For listeners that are not the data plane's.
    #[must_use]
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// `tls-server-end-point` of the certificate (RFC 5929), for SCRAM-SHA-256-PLUS; `None` = it has none.
    #[must_use]
    pub fn end_point(&self) -> Option<&[u8]> {
        self.end_point.as_deref()
    }

    pub(crate) fn session(&self) -> Result<UnbufferedServerConnection, rustls::Error> {
        UnbufferedServerConnection::new(Arc::clone(&self.config))
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}
