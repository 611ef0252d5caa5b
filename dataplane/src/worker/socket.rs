//! The sockets of this worker, read into chunks: what a link is plain over, and TLS ciphers over.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use super::chunk::Chunk;
use super::driver::Driven;

/// A connected socket.
pub(super) enum Socket {
    Tcp(Driven),
    Unix(Driven),
    Memory(DuplexStream),
    /// Nothing any more: it went elsewhere.
    Gone,
}

/// A socket outside a worker, on its way to another one.
#[derive(Debug)]
pub(super) enum SocketParcel {
    Tcp(OwnedFd),
    Unix(OwnedFd),
}

/// How a read looks for bytes.
pub(super) enum Look<'a, 'b> {
    /// And registers for the moment when there are some.
    Wait(&'a mut Context<'b>),
    /// Only if the driver has seen the socket become readable: costs no system call in the usual case.
    Glance,
}

impl Socket {
    /// Reads into the spare room of `chunk`; 0 = the peer closed (or there was no room).
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, chunk: &mut Chunk) -> Poll<io::Result<usize>> {
        let count = match self {
            Self::Tcp(socket) | Self::Unix(socket) => ready!(socket.poll_read(cx, chunk.spare_mut()))?,
            Self::Memory(socket) => {
                let mut target = ReadBuf::new(chunk.spare_mut());
                ready!(Pin::new(socket).poll_read(cx, &mut target))?;
                target.filled().len()
            }
            Self::Gone => return Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        };
        chunk.filled(count);
        Poll::Ready(Ok(count))
    }

    /// Whether a read would have to wait for sure. Spares the buffer that a read takes. The task of `waiting` is woken when
    /// there is something.
    pub(super) fn is_quiet(&self, waiting: Option<&Context<'_>>) -> bool {
        matches!(self, Self::Tcp(socket) | Self::Unix(socket) if socket.is_quiet(waiting))
    }

    /// As `poll_read`, in the way that `look` says.
    pub(super) fn look(&mut self, look: &mut Look<'_, '_>, chunk: &mut Chunk) -> Poll<io::Result<usize>> {
        match (look, &mut *self) {
            (Look::Wait(cx), _) => self.poll_read(cx, chunk),
            (Look::Glance, Self::Tcp(socket) | Self::Unix(socket)) => {
                let count = ready!(socket.glance(chunk.spare_mut()))?;
                chunk.filled(count);
                Poll::Ready(Ok(count))
            }
            (Look::Glance, _) => self.poll_read(&mut Context::from_waker(Waker::noop()), chunk),
        }
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(socket) | Self::Unix(socket) => socket.poll_write(cx, bytes),
            Self::Memory(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Gone => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Takes the socket out of this worker; `Gone` stays behind. Fails for in-memory sockets.
    pub(super) fn take_parcel(&mut self) -> io::Result<SocketParcel> {
        match std::mem::replace(self, Self::Gone) {
            Self::Tcp(socket) => Ok(SocketParcel::Tcp(socket.into_fd()?)),
            Self::Unix(socket) => Ok(SocketParcel::Unix(socket.into_fd()?)),
            Self::Memory(_) | Self::Gone => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Registers a socket of another worker with this one.
    pub(super) fn from_parcel(parcel: SocketParcel) -> io::Result<Self> {
        Ok(match parcel {
            SocketParcel::Tcp(socket) => Self::Tcp(Driven::new(socket)?),
            SocketParcel::Unix(socket) => Self::Unix(Driven::new(socket)?),
        })
    }
}
