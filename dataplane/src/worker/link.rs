//! One socket, as the rest of the data plane sees it: whole chunks in, whole chunks out.
//!
//! A waiting `recv` owns no buffer: it takes one from the worker's pool inside the poll, reads, and puts it back when
//! nothing has arrived (one receive per message and no EAGAIN, hot-path.md section 3). Futures borrow the link and are
//! one to six words big. All of them are cancel-safe but `send`, after whose cancellation the stream is unusable.
//!
//! A link starts plain and may become TLS once (`accept_tls`, `connect_tls`); nothing else of the data plane can tell the two apart.

mod futures;

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::task::{Context, Poll, Waker, ready};

use rustls::CommonState;

use super::chunk::{Chunk, ChunkPool};
use super::driver::Driven;
use super::endpoint::Endpoint;
use super::socket::{Look, Socket, SocketParcel};
use super::tls::{Session, TlsParcel, TlsSocket};
use crate::tls::{ClientTls, Connector, TlsError};
use futures::{Recv, Send, SendBytes};

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

#[cfg(test)]
mod tests;
