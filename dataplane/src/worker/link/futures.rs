//! What waits for a link.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::Link;
use crate::worker::chunk::Chunk;

/// Future of [`Link::recv`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Recv<'a> {
    pub(super) link: &'a mut Link,
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
    pub(super) link: &'a mut Link,
    pub(super) chunk: Chunk,
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
    pub(super) link: &'a mut Link,
    pub(super) bytes: &'a [u8],
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
