//! Opening a socket to a server, and the options that every socket gets.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpStream, UnixStream};

use super::chunk::ChunkPool;
use super::link::Link;
use crate::config::ServerAddress;

/// Idle time after which the kernel probes a peer (`tcp_keepalive_time`).
const KEEPALIVE_IDLE: Duration = Duration::from_secs(120);
/// Pause between probes, and probes until the connection is given up.
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;
/// Unacknowledged bytes break a connection after this time, so that a silently partitioned peer does not hold a session
/// until the kernel gives up resending after a quarter of an hour.
const USER_TIMEOUT_MS: u32 = 60_000;

/// Connects to `address`. Names are resolved off the worker's thread; all their addresses are tried in order.
/// Bounded by the caller's deadline; dropping the future abandons the attempt.
pub async fn connect(address: &ServerAddress, chunks: &ChunkPool) -> io::Result<Link> {
    if address.port == 0 {
        return Link::unix(UnixStream::connect(&*address.host).await?, chunks.clone());
    }
    let socket = TcpStream::connect((&*address.host, address.port)).await?;
    tune(&socket);
    Link::tcp(socket, chunks.clone())
}

/// Sets the options of a TCP socket. Failures are harmless: the peer may be gone already, which the next read tells.
pub(crate) fn tune(socket: impl AsFd) {
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    let _ = sockopt::set_socket_keepalive(&socket, true);
    let _ = sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE);
    let _ = sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_PAUSE);
    let _ = sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_PROBES);
    let _ = sockopt::set_tcp_user_timeout(&socket, USER_TIMEOUT_MS);
}
