//! A server's answer to the client: bounded memory, one write per read, rows unseen.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use quorumsql_wire::mysql::{AnswerScanner, WireError};

use super::Client;
use super::kill::Aim;
use crate::backend::mysql::Mysql;
use crate::config::Protocol;
use crate::pool::PooledConnection;
use crate::worker::chunk::Chunk;
use crate::worker::link::Link;
use crate::worker::session::{SessionGuard, Signal};

/// Why an answer did not come to its end. The server connection is of no use any more.
#[derive(Debug)]
pub(super) enum RelayEnd {
    /// The server closed or its socket broke.
    ServerLost(String),
    /// The server broke the protocol.
    Protocol(WireError),
    /// The client closed, or its socket broke.
    ClientGone,
    /// The session was told to stop.
    Interrupted(Signal),
    /// `default_query_timeout` passed.
    TimedOut,
}

enum FromServer {
    Bytes(Chunk),
    Signal(Signal),
}

/// Runs what goes before an answer, while the client, signals and the statement's deadline are watched.
pub(super) async fn watched<T>(
    session: &SessionGuard,
    client: &mut Link,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> Result<T, RelayEnd> {
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        poll_end(session, client, cx).map(|end| Err(end.unwrap_or_else(RelayEnd::Interrupted)))
    })
    .await
}

/// What ends a wait for a server; an inner error is a signal.
fn poll_end(session: &SessionGuard, client: &mut Link, cx: &mut Context<'_>) -> Poll<Result<RelayEnd, Signal>> {
    if client.poll_closed(cx).is_ready() {
        return Poll::Ready(Ok(RelayEnd::ClientGone));
    }
    if let Poll::Ready(signal) = session.poll_interrupt(cx) {
        return Poll::Ready(Err(signal));
    }
    session.timer.poll_expired(cx).map(|()| Ok(RelayEnd::TimedOut))
}

impl Client {
    /// Relays one answer. The fast path is one receive and one send.
    pub(super) async fn relay(&mut self, server: &mut PooledConnection<Mysql>, scanner: &mut AnswerScanner) -> Result<(), RelayEnd> {
        let mut kept: Option<Chunk> = None;
        loop {
            let mut chunk = match self.next_from_server(server).await? {
                FromServer::Bytes(chunk) => chunk,
                FromServer::Signal(Signal::KillQuery) => {
                    // The server ends the statement with 1317, which is relayed.
                    self.kill_on_server(server, Aim::Statement);
                    self.spoiled = true;
                    continue;
                }
                FromServer::Signal(signal) => return Err(RelayEnd::Interrupted(signal)),
            };
            server.cells().bytes_recv.add(chunk.len() as u64);
            if let Some(mut start) = kept.take() {
                start.extend_from_slice(&chunk);
                chunk = start;
            }
            let scanned = scanner.scan(&mut chunk).map_err(RelayEnd::Protocol)?;
            if scanned.forward < scanned.end {
                kept = Some(self.ctx.chunks().copy_of(&chunk[scanned.forward..scanned.end]));
            }
            chunk.truncate(scanned.forward);
            if !chunk.is_empty() {
                self.ctx.stats(Protocol::Mysql).bytes_sent.add(chunk.len() as u64);
                self.send_to_client(chunk).await?;
            }
            if scanner.is_done() {
                return Ok(());
            }
            if scanner.wants_file() {
                return Err(RelayEnd::Protocol(WireError::Malformed("server asks for a file that was not offered")));
            }
        }
    }

    /// Bytes of the server, while the client, signals and the statement's deadline are watched.
    async fn next_from_server(&mut self, server: &mut PooledConnection<Mysql>) -> Result<FromServer, RelayEnd> {
        let (session, client) = (&self.session, &mut self.link);
        let server = server.link();
        poll_fn(|cx| {
            match server.poll_recv(cx) {
                Poll::Ready(Ok(chunk)) if chunk.is_empty() => return Poll::Ready(Err(RelayEnd::ServerLost("server closed".into()))),
                Poll::Ready(Ok(chunk)) => return Poll::Ready(Ok(FromServer::Bytes(chunk))),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(RelayEnd::ServerLost(error.to_string()))),
                Poll::Pending => {}
            }
            poll_end(session, client, cx).map(|end| match end {
                Ok(end) => Err(end),
                Err(signal) => Ok(FromServer::Signal(signal)),
            })
        })
        .await
    }

    /// Sends to the client; a slow one holds the server back. KILL ends the wait.
    async fn send_to_client(&mut self, mut chunk: Chunk) -> Result<(), RelayEnd> {
        let (session, client) = (&self.session, &mut self.link);
        poll_fn(|cx| {
            if let Poll::Ready(result) = client.poll_send(cx, &mut chunk) {
                return Poll::Ready(result.map_err(|_| RelayEnd::ClientGone));
            }
            match session.poll_interrupt(cx) {
                Poll::Ready(signal) => Poll::Ready(Err(RelayEnd::Interrupted(signal))),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}
