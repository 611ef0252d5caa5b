//! Where a statement comes from: by what rules and digests tell sessions apart.

/// Who asks, by which way. Sessions of a worker that agree in everything share one: its address tells two apart, and it is kept once.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Origin {
    /// Name of the session's user.
    pub user: Box<str>,
    /// Current schema; PostgreSQL: database.
    pub schema: Box<str>,
    /// Address of the client, without port.
    pub client_addr: Box<str>,
    /// Address of ours to which the client connected.
    pub proxy_addr: Box<str>,
    /// Port of ours to which the client connected; 0 for a Unix socket.
    pub proxy_port: u16,
}
