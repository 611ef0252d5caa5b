//! Sessions of MySQL clients.
//!
//! ```text
//! serve ─► login ─► loop: wait (owns nothing) ─► commands::run ─┬─► answered here (reply)
//!                                                              └─► statement: rules, guard ─► exchange: acquire, align,
//!                                                                  send, relay, settle
//! ```

mod answer;
mod commands;
mod count;
mod counts;
mod exchange;
mod facts;
mod internal;
mod kill;
mod login;
mod lost;
mod prepared;
mod relay;
mod reply;
mod request;
mod settle;
mod statement;
mod users;
mod worker;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quorumsql_wire::mysql::{Capabilities, error_code};

use crate::backend::mysql::{Mysql, ServerLogin};
use crate::config::{Protocol, User};
use crate::limits::Permit;
use crate::pool::{Pool, PoolKey, PooledConnection};
use crate::session::mysql::state::SessionState;
use crate::stats::digests::RowCounts;
use crate::worker::WorkerContext;
use crate::worker::chunk::Chunk;
use crate::worker::driver;
use crate::worker::link::Link;
use crate::worker::session::{SessionGuard, Signal};
use crate::worker::wait::Wake;
use worker::MysqlWorker;

/// How long a connection is kept for a soft reason while the client is silent (`auto_increment_delay_multiplex_timeout_ms`).
const SOFT_HOLD: Duration = Duration::from_secs(10);
/// How long the reset of a connection may take when its session ends.
const RESET_LIMIT: Duration = Duration::from_secs(1);

/// Starts the task of a client.
pub(crate) fn spawn(link: Link, session: SessionGuard, ctx: Rc<WorkerContext>) {
    driver::spawn(serve(Box::pin(login::log_in(link, session, ctx))));
}

/// A logged-in client.
struct Client {
    link: Link,
    session: SessionGuard,
    ctx: Rc<WorkerContext>,
    worker: Rc<MysqlWorker>,
    pool: Rc<Pool<Mysql>>,
    identity: Identity,
    key: PoolKey,
    server_login: ServerLogin,
    /// Sequence id of the OK that ends the login.
    login_sequence: u8,
    /// What the client and we agreed on.
    capabilities: Capabilities,
    state: SessionState,
    /// The server connection that the session keeps, for the reasons in `state.pins`.
    held: Option<PooledConnection<Mysql>>,
    /// Id and number of parameters of the statement that was prepared last.
    prepared_parameters: Option<(u32, u16)>,
    /// Rows of the statement that runs, for its digest.
    rows: RowCounts,
    /// A KILL QUERY is on its way to the connection in use: it must not be used again.
    spoiled: bool,
}

/// Who the client is.
struct Identity {
    user: Arc<User>,
    _place: Permit,
    user_place: Permit,
}

/// Whether the session goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
enum Flow {
    Continue,
    Close,
}

/// Serves one client to its end. Small while it waits: login and every exchange are in boxes of their own.
async fn serve(login: Pin<Box<impl Future<Output = Option<Box<Client>>>>>) {
    let Some(mut client) = login.await else { return };
    loop {
        client.arm_idle();
        let flow = match client.session.wait(&mut client.link).await {
            Wake::Bytes(chunk) if chunk.is_empty() => Flow::Close,
            Wake::Bytes(chunk) => Box::pin(client.on_bytes(chunk)).await,
            Wake::Expired => Box::pin(client.on_idle_expired()).await,
            Wake::Signal(Signal::Drain) => Box::pin(client.on_drain()).await,
            Wake::Signal(Signal::KillQuery) => Flow::Continue,
            Wake::Signal(Signal::Kill | Signal::ServerGone) | Wake::Broken(_) => Flow::Close,
        };
        if flow == Flow::Close {
            break;
        }
    }
    if client.held.is_some() {
        Box::pin(client.give_up_connection()).await;
    }
}

impl Client {
    /// Deadline of the wait for the next command.
    fn arm_idle(&self) {
        self.session.timer.arm(self.idle_limit());
        self.session.note("Sleep", self.ctx.ticker().now());
    }

    fn idle_limit(&self) -> Duration {
        let config = self.ctx.config();
        let variables = &config.side(Protocol::Mysql).variables;
        let pins = &self.state.pins;
        if pins.transaction {
            variables.max_transaction_idle_time
        } else if self.held.is_some() && !pins.hard() {
            SOFT_HOLD
        } else {
            variables.wait_timeout
        }
    }

    /// Nothing came in time: a soft hold ends, or the session does.
    async fn on_idle_expired(&mut self) -> Flow {
        if !self.state.pins.hard()
            && let Some(held) = self.held.take()
        {
            self.state.pins.drop_soft();
            self.release(held).await;
            return Flow::Continue;
        }
        let cause = if self.state.pins.transaction { "of (possible) transaction idle" } else { "inactive" };
        tracing::warn!("Killing client connection {} because {cause} for {}ms", self.link.peer_addr(), self.idle_limit().as_millis());
        Flow::Close
    }

    /// The node stops: say so, unless a transaction is open, which may end first.
    async fn on_drain(&mut self) -> Flow {
        if self.state.pins.transaction {
            return self.wait_while_draining().await;
        }
        let _ = self.send_error(0, error_code::SERVER_SHUTDOWN, "Server shutdown in progress").await;
        Flow::Close
    }

    async fn wait_while_draining(&mut self) -> Flow {
        let session = &self.session;
        let link = &mut self.link;
        let chunk: Option<Chunk> = std::future::poll_fn(|cx| {
            if let std::task::Poll::Ready(result) = link.poll_recv(cx) {
                return std::task::Poll::Ready(result.ok());
            }
            if session.poll_interrupt(cx).is_ready() || session.timer.poll_expired(cx).is_ready() {
                return std::task::Poll::Ready(None);
            }
            std::task::Poll::Pending
        })
        .await;
        match chunk {
            Some(chunk) if !chunk.is_empty() => Box::pin(self.on_bytes(chunk)).await,
            _ => Flow::Close,
        }
    }

    /// At the end, and at COM_RESET_CONNECTION: the connection goes back clean, or is closed.
    async fn give_up_connection(&mut self) {
        let Some(mut held) = self.held.take() else { return };
        let pins = std::mem::take(&mut self.state.pins);
        if !held.is_current() {
            return;
        }
        if !pins.hard() && !held.state.unsure {
            held.release();
            return;
        }
        let reset = self.ctx.ticker().guard(RESET_LIMIT, Box::pin(held.reset())).await;
        // A transaction has been rolled back when the client is answered; closing its connection makes it sure.
        if matches!(reset, Ok(Ok(true))) && !pins.transaction {
            held.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_session_is_small() {
        let size = size_of_val(&serve(Box::pin(std::future::ready(None))));
        assert!(size <= 128, "{size}");
    }
}
