//! Opening a socket to a server, and the options that every socket gets.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, connect as open, socket_with, sockopt};
use tokio::sync::oneshot;

use super::chunk::ChunkPool;
use super::driver::Driven;
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
/// Names that are looked up at the same time, each by a thread of its own: a resolver that hangs must not eat the process.
const MAX_LOOKUPS: usize = 64;

static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

/// Connects to `address`. Names are resolved off the worker's thread; all their addresses are tried in order.
/// Bounded by the caller's deadline; dropping the future abandons the attempt.
pub async fn connect(address: &ServerAddress, chunks: &ChunkPool) -> io::Result<Link> {
    if address.port == 0 {
        let address = SocketAddrUnix::new(&*address.host)?;
        let socket = dial(AddressFamily::UNIX, &address.into()).await?;
        return Link::unix(UnixStream::from(socket), chunks.clone());
    }
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses(address).await? {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        match dial(family, &address.into()).await {
            Ok(socket) => {
                tune(&socket);
                return Link::tcp(TcpStream::from(socket), chunks.clone());
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Opens one connection without blocking the thread.
async fn dial(family: AddressFamily, address: &SocketAddrAny) -> io::Result<OwnedFd> {
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    match open(&socket, address) {
        Ok(()) => return Ok(socket),
        Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let socket = Driven::connecting(socket)?;
    poll_fn(|cx| socket.poll_connected(cx)).await?;
    socket.into_fd()
}

async fn addresses(address: &ServerAddress) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = address.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, address.port)]);
    }
    let place = Lookup::take().ok_or_else(|| io::Error::other("too many names are being looked up already"))?;
    let (told, heard) = oneshot::channel();
    let (host, port) = (address.host.clone(), address.port);
    std::thread::Builder::new().name("lookup".into()).spawn(move || {
        let found = (&*host, port).to_socket_addrs().map(Iterator::collect);
        drop(place);
        // Whoever asked may have given up.
        let _ = told.send(found);
    })?;
    heard.await.map_err(|_| io::Error::other("the lookup of the name has ended without a word"))?
}

/// One of the [`MAX_LOOKUPS`].
struct Lookup;

impl Lookup {
    fn take() -> Option<Self> {
        LOOKUPS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |running| (running < MAX_LOOKUPS).then_some(running + 1)).ok()?;
        Some(Self)
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        LOOKUPS.fetch_sub(1, Ordering::Relaxed);
    }
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
