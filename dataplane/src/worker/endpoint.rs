//! The ends of a connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// One end of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// TCP.
    Ip(SocketAddr),
    /// Unix socket; the path is empty for an unnamed end.
    Unix(PathBuf),
    /// In-memory (tests).
    Memory,
}

impl Endpoint {
    /// The address, if it is TCP; an IPv4 address that is mapped into IPv6 comes back as IPv4.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(address) => Some(address.ip().to_canonical()),
            Self::Unix(_) | Self::Memory => None,
        }
    }

    /// The port, if it is TCP.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Ip(address) => Some(address.port()),
            Self::Unix(_) | Self::Memory => None,
        }
    }

    /// What `client_addr`, `proxy_addr` and messages show: the address without port, or `localhost`.
    #[must_use]
    pub fn host(&self) -> String {
        self.ip().map_or_else(|| "localhost".to_owned(), |ip| ip.to_string())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Memory => f.write_str("memory"),
        }
    }
}
