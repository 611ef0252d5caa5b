//! One socket, as the rest of the data plane sees it: whole chunks in, whole chunks out.
//!
//! A waiting `recv` owns no buffer: it takes one from the worker's pool inside the poll, reads, and puts it back when
//! nothing has arrived (one receive per message and no EAGAIN, hot-path.md section 3). Futures borrow the link and are
//! one to six words big. All of them are cancel-safe but `send`, after whose cancellation the stream is unusable.
//!
//! A link starts plain and may become TLS once (`accept_tls`, `connect_tls`); nothing else of the data plane can tell the two apart.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use rustls::CommonState;

use super::chunk::{Chunk, ChunkPool};
use super::driver::Driven;
use super::socket::{Look, Socket, SocketParcel};
use super::tls::{Session, TlsParcel, TlsSocket};
use crate::tls::{ClientTls, Connector, TlsError};

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

/// A connected socket of this worker.
pub struct Link {
    io: Io,
    chunks: ChunkPool,
    /// Bytes that arrived early and wait for the next `recv`. In a box, because there are hardly ever any.
    early: Option<Box<Chunk>>,
    /// Reads in a row that filled their buffer; two switch to large ones.
    fills: u8,
    /// In a box, because nobody asks for them once a session has begun.
    ends: Box<Ends>,
}

struct Ends {
    peer: Endpoint,
    local: Endpoint,
}

/// What carries the bytes.
enum Io {
    Plain(Socket),
    Tls(Box<TlsSocket>),
}

/// A link outside a worker, on its way to another one.
pub struct LinkParcel {
    io: ParcelIo,
    peer: Endpoint,
    local: Endpoint,
}

enum ParcelIo {
    Plain(SocketParcel),
    Tls(Box<TlsParcel>),
}

/// What `Link::check_idle` found on a connection that should be silent.
#[derive(Debug)]
pub enum IdleCheck {
    /// Nothing arrived.
    Quiet,
    /// The peer said something.
    Bytes(Chunk),
    /// The peer closed, or the socket broke.
    Closed,
}

/// What ended `Link::recv_watching`.
#[derive(Debug)]
pub enum Watched {
    /// Bytes of the watching link; empty = its peer closed.
    Bytes(Chunk),
    /// The watched link's peer closed, or its socket broke.
    OtherClosed,
}

impl Link {
    /// Wraps a connected socket, which must not block, on a worker's thread.
    pub fn tcp(socket: TcpStream, chunks: ChunkPool) -> io::Result<Self> {
        let (peer, local) = (Endpoint::Ip(socket.peer_addr()?), Endpoint::Ip(socket.local_addr()?));
        Ok(Self::new(Socket::Tcp(Driven::new(socket.into())?), chunks, peer, local))
    }

    /// As [`Link::tcp`].
    pub fn unix(socket: UnixStream, chunks: ChunkPool) -> io::Result<Self> {
        let name = |address: std::os::unix::net::SocketAddr| Endpoint::Unix(address.as_pathname().map(PathBuf::from).unwrap_or_default());
        let (peer, local) = (name(socket.peer_addr()?), name(socket.local_addr()?));
        Ok(Self::new(Socket::Unix(Driven::new(socket.into())?), chunks, peer, local))
    }

    /// Two links that are connected in memory, each side taking up to `capacity` bytes in flight.
    #[must_use]
    pub fn memory(capacity: usize, chunks: &ChunkPool) -> (Self, Self) {
        let (one, other) = tokio::io::duplex(capacity);
        let wrap = |side| Self::new(Socket::Memory(side), chunks.clone(), Endpoint::Memory, Endpoint::Memory);
        (wrap(one), wrap(other))
    }

    fn new(socket: Socket, chunks: ChunkPool, peer: Endpoint, local: Endpoint) -> Self {
        Self { io: Io::Plain(socket), chunks, early: None, fills: 0, ends: Box::new(Ends { peer, local }) }
    }

    /// The other side's address.
    #[must_use]
    pub fn peer_addr(&self) -> &Endpoint {
        &self.ends.peer
    }

    /// This side's address.
    #[must_use]
    pub fn local_addr(&self) -> &Endpoint {
        &self.ends.local
    }

    /// Replaces the addresses by those that a PROXY header tells.
    pub fn set_endpoints(&mut self, peer: Endpoint, local: Endpoint) {
        self.ends.peer = peer;
        self.ends.local = local;
    }

    /// The worker's buffers, to build answers in.
    #[must_use]
    pub fn chunks(&self) -> &ChunkPool {
        &self.chunks
    }

    /// Waits for bytes without owning a buffer; an empty chunk means that the peer closed. Cancel-safe.
    pub fn recv(&mut self) -> Recv<'_> {
        Recv { link: self }
    }

    /// Waits for more bytes and appends them to `chunk`; 0 means that the peer closed. Cancel-safe.
    /// Grows the chunk if it has no room: cap the length of a message before asking for more of it.
    pub async fn recv_more(&mut self, chunk: &mut Chunk) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_recv_more(cx, chunk)).await
    }

    /// Sends all of `chunk`; its buffer goes back to the pool. One write if the socket takes it.
    pub fn send(&mut self, chunk: Chunk) -> Send<'_> {
        Send { link: self, chunk }
    }

    /// Sends all of `bytes`.
    pub fn send_bytes<'a>(&'a mut self, bytes: &'a [u8]) -> SendBytes<'a> {
        SendBytes { link: self, bytes }
    }

    /// Waits for bytes of this link while watching another one: if `other`'s peer closes first, that ends the wait; if it
    /// sends early, the bytes (one chunk, then its watch pauses) are kept for its next `recv`. Cancel-safe.
    pub async fn recv_watching(&mut self, other: &mut Self) -> io::Result<Watched> {
        std::future::poll_fn(|cx| {
            if let Poll::Ready(result) = self.poll_recv(cx) {
                return Poll::Ready(result.map(Watched::Bytes));
            }
            if other.poll_closed(cx).is_ready() { Poll::Ready(Ok(Watched::OtherClosed)) } else { Poll::Pending }
        })
        .await
    }

    /// Gives bytes back, so that the next `recv` returns them (before any others).
    pub fn unread(&mut self, chunk: Chunk) {
        if chunk.is_empty() {
            return;
        }
        let mut first = Box::new(chunk);
        if let Some(later) = self.early.take() {
            first.extend_from_slice(&later);
        }
        self.early = Some(first);
    }

    /// Whether the next `recv` has bytes without asking the socket.
    #[must_use]
    pub fn has_early(&self) -> bool {
        self.early.is_some()
    }

    /// Looks, without waiting, whether a connection that should be silent has closed or said something. Asks the socket only
    /// if the driver has seen it become readable; so it costs no system call in the usual case.
    pub fn check_idle(&mut self) -> IdleCheck {
        if let Some(early) = self.early.take() {
            return IdleCheck::Bytes(*early);
        }
        if matches!(&self.io, Io::Plain(socket) if socket.is_quiet(None)) {
            return IdleCheck::Quiet;
        }
        let mut chunk = self.chunks.take();
        match self.look(&mut Look::Glance, &mut chunk) {
            Poll::Ready(Ok(count)) if count > 0 => IdleCheck::Bytes(chunk),
            Poll::Ready(_) => IdleCheck::Closed,
            Poll::Pending => IdleCheck::Quiet,
        }
    }

    /// Sends what the socket takes at once and forgets the rest: a good-bye before closing.
    pub fn send_at_once(&mut self, bytes: &[u8]) {
        let mut cx = Context::from_waker(Waker::noop());
        // The connection is given up whatever the result is.
        let _ = self.poll_write(&mut cx, bytes);
    }

    /// As `recv`, for hand-written futures.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Chunk>> {
        if let Some(early) = self.early.take() {
            return Poll::Ready(Ok(*early));
        }
        if matches!(&self.io, Io::Plain(socket) if socket.is_quiet(Some(cx))) {
            return Poll::Pending;
        }
        let mut chunk = if self.fills >= 2 { self.chunks.take_large() } else { self.chunks.take() };
        let count = ready!(self.poll_read(cx, &mut chunk))?;
        // A large buffer that came back half empty was not needed.
        self.fills = if chunk.spare() == 0 { (self.fills + 1).min(2) } else { self.fills_after(count) };
        Poll::Ready(Ok(chunk))
    }

    /// As `recv_more`, for hand-written futures.
    pub fn poll_recv_more(&mut self, cx: &mut Context<'_>, chunk: &mut Chunk) -> Poll<io::Result<usize>> {
        if let Some(early) = self.early.take() {
            chunk.extend_from_slice(&early);
            return Poll::Ready(Ok(early.len()));
        }
        if chunk.spare() == 0 {
            chunk.reserve(1);
        }
        self.poll_read(cx, chunk)
    }

    /// Writes from the front of `chunk` until it is empty, for hand-written futures.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, chunk: &mut Chunk) -> Poll<io::Result<()>> {
        while !chunk.is_empty() {
            let count = ready!(self.poll_write(cx, chunk))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            chunk.advance(count);
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when the peer has closed; bytes that come instead are kept for `recv`, and end the watch until then.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.early.is_some() {
            return Poll::Pending;
        }
        match self.poll_recv(cx) {
            Poll::Ready(Ok(chunk)) if !chunk.is_empty() => {
                self.unread(chunk);
                Poll::Pending
            }
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Takes the socket out of this worker. Fails for in-memory links and while bytes are on their way.
    pub fn into_parcel(mut self) -> io::Result<LinkParcel> {
        if self.early.is_some() {
            return Err(io::Error::other("bytes wait to be received"));
        }
        let io = match &mut self.io {
            Io::Plain(socket) => ParcelIo::Plain(socket.take_parcel()?),
            Io::Tls(tls) => ParcelIo::Tls(Box::new(tls.take_parcel()?)),
        };
        Ok(LinkParcel { io, peer: self.ends.peer, local: self.ends.local })
    }

    /// Registers a socket of another worker with this one.
    pub fn from_parcel(parcel: LinkParcel, chunks: ChunkPool) -> io::Result<Self> {
        let io = match parcel.io {
            ParcelIo::Plain(socket) => Io::Plain(Socket::from_parcel(socket)?),
            ParcelIo::Tls(tls) => Io::Tls(Box::new(TlsSocket::from_parcel(*tls)?)),
        };
        let LinkParcel { peer, local, .. } = parcel;
        Ok(Self { io, chunks, early: None, fills: 0, ends: Box::new(Ends { peer, local }) })
    }

    /// TLS with a client that has asked for it; what it has sent already belongs to the handshake. Not cancel-safe, and no
    /// plain byte passes afterwards: drop the link when it fails.
    pub(crate) async fn accept_tls(&mut self, tls: &ClientTls) -> Result<(), TlsError> {
        self.start_tls(Session::Server(tls.session()?)).await
    }

    /// TLS with a server that has agreed to it. As `accept_tls`.
    pub(crate) async fn connect_tls(&mut self, connector: &Connector, host: &str) -> Result<(), TlsError> {
        self.start_tls(Session::Client(connector.session(host)?)).await
    }

    async fn start_tls(&mut self, session: Session) -> Result<(), TlsError> {
        let Io::Plain(socket) = &mut self.io else { return Err(TlsError::Twice) };
        let socket = std::mem::replace(socket, Socket::Gone);
        let mut tls = Box::new(TlsSocket::new(socket, session, self.early.take().map(|early| *early)));
        let mut plain = self.chunks.take();
        let ended = std::future::poll_fn(|cx| tls.poll_handshake(cx, &mut plain, &self.chunks)).await;
        self.io = Io::Tls(tls);
        ended.map_err(TlsError::from)?;
        self.unread(plain);
        Ok(())
    }

    /// What TLS has agreed on; `None` on a plain link.
    #[must_use]
    pub(crate) fn tls(&self) -> Option<&CommonState> {
        match &self.io {
            Io::Plain(_) => None,
            Io::Tls(tls) => tls.facts(),
        }
    }

    /// Whether a password may travel as it is: TLS, or a socket that does not leave the machine's kernel.
    #[must_use]
    pub(crate) fn is_secure(&self) -> bool {
        matches!(&self.io, Io::Tls(_) | Io::Plain(Socket::Unix(_)))
    }

    fn fills_after(&self, count: usize) -> u8 {
        if self.fills >= 2 && count > super::chunk::SMALL { 2 } else { 0 }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, chunk: &mut Chunk) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Plain(socket) => socket.poll_read(cx, chunk),
            Io::Tls(tls) => tls.poll_read(&mut Look::Wait(cx), chunk, &self.chunks),
        }
    }

    fn look(&mut self, look: &mut Look<'_, '_>, chunk: &mut Chunk) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Plain(socket) => socket.look(look, chunk),
            Io::Tls(tls) => tls.poll_read(look, chunk, &self.chunks),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Plain(socket) => socket.poll_write(cx, bytes),
            Io::Tls(tls) => tls.poll_write(cx, bytes, &self.chunks),
        }
    }
}

impl fmt::Debug for LinkParcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkParcel").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("peer", &self.ends.peer).field("local", &self.ends.local).finish_non_exhaustive()
    }
}

/// Future of [`Link::recv`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Recv<'a> {
    link: &'a mut Link,
}

impl Future for Recv<'_> {
    type Output = io::Result<Chunk>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.link.poll_recv(cx)
    }
}

/// Future of [`Link::send`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Send<'a> {
    link: &'a mut Link,
    chunk: Chunk,
}

impl Future for Send<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { link, chunk } = &mut *self;
        link.poll_send(cx, chunk)
    }
}

/// Future of [`Link::send_bytes`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct SendBytes<'a> {
    link: &'a mut Link,
    bytes: &'a [u8],
}

impl Future for SendBytes<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        while !self.bytes.is_empty() {
            let bytes = self.bytes;
            let count = ready!(self.link.poll_write(cx, bytes))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.bytes = &bytes[count..];
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::chunk::{LARGE, SMALL};

    fn run<T>(future: impl Future<Output = T>) -> T {
        crate::worker::driver::block_on(future)
    }

    #[test]
    fn bytes_of_one_send_come_as_one_chunk_and_the_buffers_return() {
        run(async {
            let pool = ChunkPool::new();
            let (mut a, mut b) = Link::memory(1024, &pool);
            a.send(pool.copy_of(b"hello")).await.unwrap();
            let chunk = b.recv().await.unwrap();
            assert_eq!(&chunk[..], b"hello");
            b.send(chunk).await.unwrap();
            assert_eq!(&a.recv().await.unwrap()[..], b"hello");
            assert_eq!(pool.lent(), 0);
            drop(a);
            assert!(b.recv().await.unwrap().is_empty());
        });
    }

    #[test]
    fn a_waiting_receive_owns_no_buffer() {
        let pool = ChunkPool::new();
        let (mut a, _b) = Link::memory(1024, &pool);
        let mut cx = Context::from_waker(Waker::noop());
        let mut wait = a.recv();
        assert!(Pin::new(&mut wait).poll(&mut cx).is_pending());
        assert_eq!(pool.lent(), 0);
        assert!(std::mem::size_of_val(&wait) <= 8);
        assert!(size_of::<Link>() <= 64, "{}", size_of::<Link>());
    }

    #[test]
    fn an_answer_that_fills_two_buffers_gets_large_ones() {
        run(async {
            let pool = ChunkPool::new();
            let (mut a, mut b) = Link::memory(1 << 20, &pool);
            a.send_bytes(&vec![7; 2 * SMALL + LARGE + 5]).await.unwrap();
            let mut sizes = Vec::new();
            for _ in 0..4 {
                sizes.push(b.recv().await.unwrap().len());
            }
            assert_eq!(sizes, [SMALL, SMALL, LARGE, 5]);
            a.send_bytes(b"x").await.unwrap();
            assert_eq!(b.recv().await.unwrap().spare(), SMALL - 1);
        });
    }

    #[test]
    fn more_bytes_are_appended_and_given_back_bytes_come_first() {
        run(async {
            let pool = ChunkPool::new();
            let (mut a, mut b) = Link::memory(1024, &pool);
            a.send_bytes(b"one").await.unwrap();
            let mut chunk = b.recv().await.unwrap();
            a.send_bytes(b"two").await.unwrap();
            assert_eq!(b.recv_more(&mut chunk).await.unwrap(), 3);
            assert_eq!(&chunk[..], b"onetwo");
            b.unread(pool.copy_of(b"two"));
            chunk.truncate(3);
            b.unread(chunk);
            assert_eq!(&b.recv().await.unwrap()[..], b"onetwo");
        });
    }

    #[test]
    fn watching_sees_the_other_side_close_and_keeps_its_early_bytes() {
        run(async {
            let pool = ChunkPool::new();
            let (mut client, mut front) = Link::memory(1024, &pool);
            let (mut server, mut back) = Link::memory(1024, &pool);
            client.send_bytes(b"early").await.unwrap();
            server.send_bytes(b"answer").await.unwrap();
            assert!(matches!(back.recv_watching(&mut front).await.unwrap(), Watched::Bytes(chunk) if &chunk[..] == b"answer"));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(front.poll_closed(&mut cx).is_pending());
            assert!(front.has_early());
            assert_eq!(&front.recv().await.unwrap()[..], b"early");
            drop(client);
            assert!(matches!(back.recv_watching(&mut front).await.unwrap(), Watched::OtherClosed));
        });
    }

    #[test]
    fn an_idle_connection_is_checked_without_waiting() {
        run(async {
            let pool = ChunkPool::new();
            let (mut server, mut back) = Link::memory(1024, &pool);
            assert!(matches!(back.check_idle(), IdleCheck::Quiet));
            server.send_bytes(b"bye").await.unwrap();
            assert!(matches!(back.check_idle(), IdleCheck::Bytes(chunk) if &chunk[..] == b"bye"));
            drop(server);
            assert!(matches!(back.check_idle(), IdleCheck::Closed));
            assert!(back.into_parcel().is_err());
        });
    }
}
