//! What TLS is done with: the certificate that clients see ([`ClientTls`]), and how servers are connected to and their
//! certificates judged ([`ServerTls`]). The records themselves are `worker/tls.rs`' business.
//!
//! rustls with ring, TLS 1.2 and 1.3. The provider is named wherever a configuration is made, so that nothing depends on
//! which one is installed in the process.

mod clients;
mod servers;
mod verify;

use std::io;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub use clients::ClientTls;
pub use servers::{Connector, ServerTls, Trust};

/// The ALPN name of PostgreSQL.
pub const ALPN_POSTGRESQL: &[u8] = b"postgresql";

/// Certificates, the owner's first, and its key.
#[derive(Debug)]
pub struct Identity {
    /// The chain, without the root.
    pub chain: Vec<CertificateDer<'static>>,
    /// Private key of the first.
    pub key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads PEM text.
    ///
    /// # Errors
    /// No certificate, no key, or damaged ones.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>().map_err(TlsError::pem)?;
        if chain.is_empty() {
            return Err(TlsError::Setup("no certificate in it".into()));
        }
        Ok(Self { chain, key: PrivateKeyDer::from_pem_slice(key).map_err(TlsError::pem)? })
    }
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

/// Why there is no TLS where it was wanted. Never a reason to go on without.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The socket, or the peer in the middle of the handshake.
    #[error("{0}")]
    Io(io::Error),
    /// rustls: the peer broke the protocol or its certificate is not good; an alert, if there is one for it, has been sent.
    #[error("{0}")]
    Protocol(#[from] rustls::Error),
    /// Certificates, keys or settings of this side.
    #[error("{0}")]
    Setup(String),
    /// The server speaks no TLS.
    #[error("the server does not offer it")]
    NotOffered,
    /// Bytes came that are not part of the handshake: somebody put them there (CVE-2021-23222).
    #[error("the server sent plain bytes after it agreed to it")]
    PlainBytes,
    /// The link speaks it already.
    #[error("it has been started already")]
    Twice,
}

impl TlsError {
    fn pem(error: rustls::pki_types::pem::Error) -> Self {
        Self::Setup(error.to_string())
    }
}

impl From<io::Error> for TlsError {
    fn from(error: io::Error) -> Self {
        match error.downcast::<rustls::Error>() {
            Ok(error) => Self::Protocol(error),
            Err(error) => Self::Io(error),
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
