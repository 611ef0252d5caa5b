//! TLS with servers.

use std::fmt;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName};
use rustls::{ClientConfig, KeyLog};

use super::{Identity, TlsError, provider, verify};
use crate::config::TlsMode;

/// How connections to a server are protected: a [`TlsMode`] with all that it needs. Cheap to clone; equal only if made by
/// the same call, so that connections made with other settings are never taken for the same.
#[derive(Clone, Debug)]
pub enum ServerTls {
    /// Plain text.
    Disable,
    /// TLS if the server offers it; if it does and TLS fails, an error.
    Prefer(Arc<Connector>),
    /// TLS or an error.
    Demand(Arc<Connector>),
}

/// Whom to believe.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Authorities.
    pub roots: Vec<CertificateDer<'static>>,
    /// Certificates that their authorities took back.
    pub revoked: Vec<CertificateRevocationListDer<'static>>,
}

/// Makes TLS connections to servers of one kind of settings, and remembers their sessions for resumption.
pub struct Connector {
    /// The error text of settings that cannot be used: every connection fails with it.
    config: Result<Arc<ClientConfig>, String>,
}

impl ServerTls {
    /// The mode with its connector.
    #[must_use]
    pub fn new(mode: TlsMode, connector: Connector) -> Self {
        match mode {
            TlsMode::Disable => Self::Disable,
            TlsMode::Prefer => Self::Prefer(Arc::new(connector)),
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => Self::Demand(Arc::new(connector)),
        }
    }

    /// The connector, unless the connection is to be plain.
    #[must_use]
    pub fn connector(&self) -> Option<&Arc<Connector>> {
        match self {
            Self::Disable => None,
            Self::Prefer(connector) | Self::Demand(connector) => Some(connector),
        }
    }

    /// What to do with a server that does not offer TLS: go on in plain text, or fail.
    pub(crate) fn not_offered(&self) -> Result<(), TlsError> {
        match self {
            Self::Disable | Self::Prefer(_) => Ok(()),
            Self::Demand(_) => Err(TlsError::NotOffered),
        }
    }

    /// A number that tells different settings apart as long as they are in use.
    pub(crate) fn tag(&self) -> u64 {
        self.connector().map_or(0, |connector| Arc::as_ptr(connector) as usize as u64)
    }
}

impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Disable, Self::Disable) => true,
            (Self::Prefer(one), Self::Prefer(other)) | (Self::Demand(one), Self::Demand(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for ServerTls {}

impl Connector {
    /// `trust` counts in the modes that verify; `identity` is shown to servers that ask for a certificate.
    ///
    /// # Errors
    /// No authority to verify with, or certificates, lists and keys that cannot be used.
    pub fn new(mode: TlsMode, trust: &Trust, identity: Option<Identity>, key_log: Arc<dyn KeyLog>) -> Result<Self, TlsError> {
        let provider = provider();
        let verifier = verify::verifier(mode, trust, &provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(Identity { chain, key }) => builder.with_client_auth_cert(chain, key)?,
        };
        config.key_log = key_log;
        Ok(Self { config: Ok(Arc::new(config)) })
    }

    /// For settings that cannot be used: every connection fails with `reason`, as plain text is no way out.
    #[must_use]
    pub fn broken(reason: String) -> Self {
        Self { config: Err(reason) }
    }

    /// For clients that are not the data plane's.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub fn config(&self) -> Result<&Arc<ClientConfig>, TlsError> {
        self.config.as_ref().map_err(|reason| TlsError::Setup(reason.clone()))
    }

    pub(crate) fn session(&self, host: &str) -> Result<UnbufferedClientConnection, TlsError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| TlsError::Setup(format!("{host:?} is no name that a certificate can have")))?;
        Ok(UnbufferedClientConnection::new(Arc::clone(self.config()?), name)?)
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("broken", &self.config.as_ref().err()).finish_non_exhaustive()
    }
}
