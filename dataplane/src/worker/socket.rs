//! The sockets of this worker's runtime, read into chunks: what a link is plain over, and TLS ciphers over.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::chunk::Chunk;

/// A connected socket.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Memory(DuplexStream),
    /// Nothing any more: it went elsewhere.
    Gone,
}

/// A socket outside a worker, on its way to another one.
#[derive(Debug)]
pub(super) enum SocketParcel {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// How a read looks for bytes.
pub(super) enum Look<'a, 'b> {
    /// And registers for the moment when there are some.
    Wait(&'a mut Context<'b>),
    /// Only if the runtime has seen the socket become readable: costs no system call in the usual case.
    Glance,
}

impl Socket {
    /// Reads into the spare room of `chunk`; 0 = the peer closed (or there was no room).
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, chunk: &mut Chunk) -> Poll<io::Result<usize>> {
        let mut target = ReadBuf::new(chunk.spare_mut());
        ready!(match self {
            Self::Tcp(socket) => Pin::new(socket).poll_read(cx, &mut target),
            Self::Unix(socket) => Pin::new(socket).poll_read(cx, &mut target),
            Self::Memory(socket) => Pin::new(socket).poll_read(cx, &mut target),
            Self::Gone => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        })?;
        let count = target.filled().len();
        chunk.filled(count);
        Poll::Ready(Ok(count))
    }

    /// As `poll_read`, in the way that `look` says.
    pub(super) fn look(&mut self, look: &mut Look<'_, '_>, chunk: &mut Chunk) -> Poll<io::Result<usize>> {
        let read = match (look, &mut *self) {
            (Look::Wait(cx), _) => return self.poll_read(cx, chunk),
            (Look::Glance, Self::Tcp(socket)) => socket.try_read(chunk.spare_mut()),
            (Look::Glance, Self::Unix(socket)) => socket.try_read(chunk.spare_mut()),
            (Look::Glance, _) => return self.poll_read(&mut Context::from_waker(Waker::noop()), chunk),
        };
        match read {
            Ok(count) => {
                chunk.filled(count);
                Poll::Ready(Ok(count))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Unix(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Memory(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Gone => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Takes the socket out of this worker's runtime; `Gone` stays behind. Fails for in-memory sockets.
    pub(super) fn take_parcel(&mut self) -> io::Result<SocketParcel> {
        match std::mem::replace(self, Self::Gone) {
            Self::Tcp(socket) => Ok(SocketParcel::Tcp(socket.into_std()?)),
            Self::Unix(socket) => Ok(SocketParcel::Unix(socket.into_std()?)),
            Self::Memory(_) | Self::Gone => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Registers a socket of another worker with this one's runtime.
    pub(super) fn from_parcel(parcel: SocketParcel) -> io::Result<Self> {
        Ok(match parcel {
            SocketParcel::Tcp(socket) => Self::Tcp(TcpStream::from_std(socket)?),
            SocketParcel::Unix(socket) => Self::Unix(UnixStream::from_std(socket)?),
        })
    }
}
