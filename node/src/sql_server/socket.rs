//! A client's socket, plain or TLS, with the bytes that have arrived and are not yet read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;

/// Bytes that may wait while a statement runs; a client that sends more is read later.
const PIPELINE_BYTES: usize = 1024 * 1024;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A stream of which the first bytes have been read already.
struct Prefixed {
    prefix: BytesMut,
    stream: Box<dyn Stream>,
}

impl AsyncRead for Prefixed {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let count = self.prefix.len().min(buffer.remaining());
        buffer.put_slice(&self.prefix.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Prefixed {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// See the module.
pub(crate) struct Socket {
    stream: Box<dyn Stream>,
    /// Arrived and not yet read.
    pub(crate) arrived: BytesMut,
    /// Encrypted.
    pub(crate) secure: bool,
    /// The client has named the protocol that it means inside TLS, and it is ours.
    pub(crate) named: bool,
}

impl Socket {
    /// A plain socket.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream: Box::new(stream), arrived: BytesMut::new(), secure: false, named: false }
    }

    /// The same client after a TLS handshake. What has arrived is the beginning of the handshake: a MySQL client does not
    /// wait for an answer to its request.
    ///
    /// # Errors
    /// A handshake that fails.
    pub(crate) async fn upgrade(self, config: Arc<rustls::ServerConfig>) -> io::Result<Self> {
        let stream = Prefixed { prefix: self.arrived, stream: self.stream };
        let stream = tokio_rustls::TlsAcceptor::from(config).accept(stream).await?;
        let named = stream.get_ref().1.alpn_protocol().is_some();
        Ok(Self { stream: Box::new(stream), arrived: BytesMut::new(), secure: true, named })
    }

    /// Waits for more bytes.
    ///
    /// # Errors
    /// `UnexpectedEof` when the client has closed.
    pub(crate) async fn fill(&mut self) -> io::Result<()> {
        if self.stream.read_buf(&mut self.arrived).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Sends and empties `out`.
    pub(crate) async fn send(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.stream.write_all(out).await?;
        self.stream.flush().await?;
        out.clear();
        Ok(())
    }

    /// Runs `work`, and drops it when the client closes before it is done.
    ///
    /// # Errors
    /// The client is gone.
    pub(crate) async fn while_connected<T>(&mut self, work: impl Future<Output = T>) -> io::Result<T> {
        tokio::pin!(work);
        loop {
            if self.arrived.len() >= PIPELINE_BYTES {
                return Ok(work.await);
            }
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                read = self.stream.read_buf(&mut self.arrived) => if read? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                },
            }
        }
    }
}
