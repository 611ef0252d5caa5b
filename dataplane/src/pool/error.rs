//! Why no server connection could be had.

use std::io;
use std::time::Duration;

use crate::config::HostgroupId;
use crate::tls::TlsError;
use crate::worker::session::Signal;

/// An error that a server answered to a login, as it sent it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ServerError {
    /// MySQL error number; 0 for PostgreSQL.
    pub code: u16,
    /// SQLSTATE.
    pub sqlstate: [u8; 5],
    /// Text.
    pub message: String,
    /// The ERR packet's payload or the ErrorResponse's body, to pass on verbatim.
    pub raw: Vec<u8>,
}

/// Whose fault a server's refusal is; the dialect judges by the code (mysql-dataplane 9.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The server's (full, shutting down): tried again, counts for shunning.
    Server,
    /// Nobody's: the server says that it is coming up. It is waited for, never shunned.
    Starting,
    /// The client's (wrong password, unknown schema, user limit): told to the client at once, never shuns.
    Client,
}

/// One attempt to open a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Socket or name resolution.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// `connect_timeout_server` passed.
    #[error("connect timeout")]
    Timeout,
    /// The server answered with an error.
    #[error("{error}")]
    Server {
        /// Its answer.
        error: ServerError,
        /// Whose fault it is.
        fault: Fault,
    },
    /// The server does not speak the protocol, or closed in the middle of the login.
    #[error("{0}")]
    Protocol(String),
    /// TLS was wanted and there is none: the server does not offer it, or its certificate is not good. There is no way on in
    /// plain text; another server may do better.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// This side cannot log in as configured (no usable password): never shuns, not retried.
    #[error("{0}")]
    Unusable(String),
}

impl ConnectError {
    /// Whether another attempt may succeed.
    #[must_use]
    pub fn is_retried(&self) -> bool {
        match self {
            Self::Io(_) | Self::Timeout | Self::Protocol(_) | Self::Tls(_) => true,
            Self::Server { fault, .. } => *fault != Fault::Client,
            Self::Unusable(_) => false,
        }
    }

    /// Whether it counts towards shunning the server.
    #[must_use]
    pub fn shuns(&self) -> bool {
        self.is_retried() && !self.is_starting()
    }

    /// Whether the server asks for patience.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        matches!(self, Self::Server { fault: Fault::Starting, .. })
    }
}

/// A statement gets no connection. The client's session goes on.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// `connect_timeout_server_max` passed (9001/HY000, 08001). The text is the reference's; `cause` is for logs.
    #[error("Max connect timeout reached while reaching hostgroup {} after {}ms", hostgroup.0, waited.as_millis())]
    Timeout {
        /// The hostgroup.
        hostgroup: HostgroupId,
        /// How long the statement waited.
        waited: Duration,
        /// What it waited for.
        cause: String,
    },
    /// All attempts failed on this side (9002/HY000, 08001).
    #[error("Max connect failure while reaching hostgroup {}", hostgroup.0)]
    Failed {
        /// The hostgroup.
        hostgroup: HostgroupId,
        /// The last attempt's error.
        cause: String,
    },
    /// The server refused: pass `raw` on.
    #[error("{0}")]
    Refused(ServerError),
    /// The client closed while its statement waited.
    #[error("client closed")]
    ClientGone,
    /// The session was told to stop while its statement waited.
    #[error("interrupted by {0:?}")]
    Interrupted(Signal),
}

impl AcquireError {
    /// What is behind the text that the client sees, for logs.
    #[must_use]
    pub fn cause(&self) -> &str {
        match self {
            Self::Timeout { cause, .. } | Self::Failed { cause, .. } => cause,
            Self::Refused(error) => &error.message,
            Self::ClientGone => "client closed",
            Self::Interrupted(_) => "interrupted",
        }
    }
}
