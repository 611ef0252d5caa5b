//! The only waits of an exchange beside getting a connection: both sockets, both directions, signals and the deadline in one poll.

use std::task::{Context, Poll};

use super::{BACKLOG, End, Exchange, SMALL_MESSAGE};
use crate::backend::pgsql::Pgsql;
use crate::config::Protocol;
use crate::pool::Dialect as _;
use crate::worker::chunk::Chunk;
use crate::worker::session::Signal;

/// What a poll found.
pub(super) enum Event {
    /// Bytes of the client came, or bytes went out: look again.
    Progress,
    /// The server said something.
    Server(Chunk),
    /// The server closed, or its socket broke.
    ServerGone(String),
    /// The client closed, or its socket broke.
    ClientGone,
    /// Told from outside.
    Signal(Signal),
    /// The deadline.
    Expired,
}

impl Exchange<'_> {
    /// Writes what waits to be written, then reads. No buffer is held while waiting; no chunk is lost if the poll is abandoned.
    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        let mut progress = false;
        // After a failed write the reason, if the server gave one, is still to be read.
        if let Some(Ok(())) = self.poll_write_server(cx) {
            progress = true;
        }
        match self.poll_write_client(cx) {
            Some(Ok(())) => progress = true,
            Some(Err(())) => match self.poll_read_client(cx) {
                // What it sent before it closed is still to be read.
                Poll::Ready(event) => return Poll::Ready(event),
                Poll::Pending if self.has_said_goodbye() => progress = true,
                Poll::Pending => return Poll::Ready(Event::ClientGone),
            },
            None => {}
        }
        if let Poll::Ready(event) = self.poll_read_server(cx) {
            return Poll::Ready(event);
        }
        if let Poll::Ready(event) = self.poll_read_client(cx) {
            return Poll::Ready(event);
        }
        if let Poll::Ready(signal) = self.client.session.poll_interrupt(cx) {
            return Poll::Ready(Event::Signal(signal));
        }
        if self.is_pinned_idle()
            && let Some(signal) = self.client.session.take_signal()
        {
            return Poll::Ready(Event::Signal(signal));
        }
        if progress && (self.input.is_some() || self.server.as_ref().is_none_or(|server| server.due.is_empty())) {
            return Poll::Ready(Event::Progress);
        }
        self.client.session.timer.poll_expired(cx).map(|()| Event::Expired)
    }

    fn poll_write_server(&mut self, cx: &mut Context<'_>) -> Option<Result<(), ()>> {
        let server = self.server.as_mut()?;
        let mut chunk = server.to_server.take()?;
        match server.conn.link.poll_send(cx, &mut chunk) {
            Poll::Pending => {
                server.to_server = Some(chunk);
                None
            }
            Poll::Ready(result) => Some(result.map_err(|_| ())),
        }
    }

    fn poll_write_client(&mut self, cx: &mut Context<'_>) -> Option<Result<(), ()>> {
        let mut chunk = self.out.take()?;
        match self.client.link.poll_send(cx, &mut chunk) {
            Poll::Pending => {
                self.out = Some(chunk);
                None
            }
            Poll::Ready(result) => Some(result.map_err(|_| ())),
        }
    }

    fn poll_read_server(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        // A client that does not read stops its server.
        if self.out.is_some() {
            return Poll::Pending;
        }
        let Some(server) = &mut self.server else { return Poll::Pending };
        let backend = &mut **server.conn;
        let (result, count) = match backend.rest.take() {
            None => match backend.link.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(chunk)) => {
                    let count = chunk.len();
                    (Ok(chunk), count)
                }
                Poll::Ready(Err(error)) => (Err(error), 0),
            },
            Some(mut rest) => match backend.link.poll_recv_more(cx, &mut rest) {
                Poll::Pending => {
                    backend.rest = Some(rest);
                    return Poll::Pending;
                }
                Poll::Ready(Ok(count)) => (Ok(rest), count),
                Poll::Ready(Err(error)) => (Err(error), 0),
            },
        };
        Poll::Ready(match result {
            Ok(_) if count == 0 => Event::ServerGone("server closed the connection unexpectedly".into()),
            Ok(chunk) => {
                server.conn.cells().bytes_recv.add(count as u64);
                Event::Server(chunk)
            }
            Err(error) => Event::ServerGone(error.to_string()),
        })
    }

    fn poll_read_client(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        let held = self.input.as_ref().map_or(0, |input| input.len());
        if self.hung_up || held >= self.wanted.max(SMALL_MESSAGE) || self.to_server_len() > BACKLOG {
            return Poll::Pending;
        }
        let count = match self.input.take() {
            None => match self.client.link.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(chunk)) => {
                    let count = chunk.len();
                    self.input = (count > 0).then_some(chunk);
                    count
                }
                Poll::Ready(Err(_)) => 0,
            },
            Some(mut input) => {
                let polled = self.client.link.poll_recv_more(cx, &mut input);
                self.input = Some(input);
                match polled {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(result) => result.unwrap_or(0),
                }
            }
        };
        if count == 0 {
            self.hung_up = self.has_said_goodbye();
            return Poll::Ready(if self.hung_up { Event::Progress } else { Event::ClientGone });
        }
        self.client.ctx.stats(Protocol::Pgsql).bytes_recv.add(count as u64);
        Poll::Ready(Event::Progress)
    }

    /// The last that the client has sent is Terminate: what stands before it is finished, whether the client waits for it or not.
    pub(super) fn has_said_goodbye(&self) -> bool {
        self.input.as_ref().is_some_and(|input| input.ends_with(Pgsql::goodbye()))
    }

    /// Bytes that wait to be written to the server.
    pub(super) fn to_server_len(&self) -> usize {
        self.server.as_ref().and_then(|server| server.to_server.as_ref()).map_or(0, |chunk| chunk.len())
    }

    /// Writes everything that waits for the client.
    pub(super) async fn flush(&mut self) -> Result<(), End> {
        let Some(chunk) = self.out.take() else { return Ok(()) };
        match self.client.link.send(chunk).await {
            Err(_) if !self.has_said_goodbye() => Err(End::Quiet),
            _ => Ok(()),
        }
    }
}
