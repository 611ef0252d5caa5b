//! From the first byte of a request until nothing is outstanding and no server connection is held.
//!
//! ```text
//! drive:  advance (requests: look ahead, route, forward) ─► attach (the only wait beside sockets) ─► poll_event (both sockets, both
//!         directions at once, signals, deadline) ─► answer (responses: relay, register, detach) ─► advance …
//! ```
//! Nothing is held back while waiting, and neither side is kept from being read because the other one is slow to be written, up to the
//! bounds below: so a client that pipelines without reading can stop only itself.

mod aborted;
mod answer;
mod batch;
mod count;
mod forward;
mod io;
mod local;
mod lost;
mod names;
mod request;
mod route;

use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::pgsql::backend::{self, TransactionStatus};
use quorumsql_wire::pgsql::error_fields::{ErrorFields, Severity};
use quorumsql_wire::pgsql::sqlstate;
use quorumsql_wire::sql::{Class, Effects};

use super::{Client, End, shutdown};
use crate::backend::pgsql::{BackendError, Pgsql, send_cancel};
use crate::config::{HostgroupId, Protocol};
use crate::pool::{AcquireError, PooledConnection, Request};
use crate::session::pgsql::changes::Change;
use crate::session::pgsql::parameters::Parameters;
use crate::session::pgsql::pins::{Pin, Pins};
use crate::session::pgsql::prepared::Statement;
use crate::session::pgsql::responses::Responses;
use crate::stats::digests::DigestEntry;
use crate::worker::chunk::Chunk;
use crate::worker::driver;
use crate::worker::session::Signal;
use crate::worker::snapshot::Snapshot;
use count::Counts;
pub(super) use count::Sent;
use io::Event;

/// Messages other than statements and data are collected up to this length; a batch is looked at so far ahead.
const SMALL_MESSAGE: usize = 64 * 1024;
/// Bytes on their way in one direction beyond which nothing is added.
const BACKLOG: usize = 256 * 1024;
/// Time for the good-bye of a client's state on its server connection.
const RESET_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);

/// Time for which a sequence's state keeps a connection (`auto_increment_delay_multiplex_timeout_ms` of the reference, at its default).
const SEQUENCE_LIMIT: std::time::Duration = std::time::Duration::from_secs(10);

/// Time for a statement to end that was cancelled because its time was over (pgsql-dataplane.md 4.10).
const CANCEL_LIMIT: std::time::Duration = std::time::Duration::from_secs(2);
/// What a client reads whose statement took too long.
const QUERY_TIMEOUT: &str = "Query execution was interrupted, query_timeout exceeded";
/// What a client reads that has cancelled its statement.
const CANCELLED: &str = "canceling statement due to user request";

/// One exchange.
struct Exchange<'a> {
    client: &'a mut Client,
    /// One configuration per unit.
    config: Rc<Snapshot>,
    /// Bytes of the client that are not handled yet.
    input: Option<Chunk>,
    /// Length of `input` that is needed to go on.
    wanted: usize,
    /// The rest of a message whose start has been handled.
    passing: Passing,
    /// Bytes for the client.
    out: Option<Chunk>,
    server: Option<Attached>,
    /// What was decided of the unit at the front of `input`.
    decided: Option<Unit>,
    /// What the Query at the front does to parameters.
    changes: Option<Vec<Change>>,
    /// Where the Query at the front is counted.
    counting: Option<Arc<DigestEntry>>,
    /// For what the session's timer runs.
    clock: Clock,
}

/// A message of which only the rest is to come.
#[derive(Clone, Copy, Debug, Default)]
struct Passing {
    left: usize,
    to_server: bool,
}

/// What the session's deadline is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Clock {
    Nothing,
    Query,
    /// A statement that was cancelled because its time was over is to end.
    Cancel,
    Transaction,
    Pinned,
    /// The same, and only by a sequence.
    Sequence,
}

/// A unit of work: one Query, or one batch through its Sync.
#[derive(Clone, Copy, Debug, Default)]
struct Unit {
    class: Class,
    effects: Effects,
    /// Id of the statement whose rules were evaluated; 0 = none.
    evaluated: u64,
    /// A rule says that this statement does not pin (`multiplex=2`) or that the session is to be pinned (`multiplex=0`).
    multiplex: Option<u8>,
}

/// The server connection in use.
struct Attached {
    conn: PooledConnection<Pgsql>,
    to_server: Option<Chunk>,
    due: Responses,
    counts: Counts,
    pins: Pins,
    /// The unit in flight.
    unit: Unit,
    /// Where the batch began, on the clock of the connection's prepared statements.
    mark: u64,
    /// Answers of our own that wait for the end of a message that is being passed through.
    own: Vec<u8>,
    /// The client wants to leave once everything is answered.
    leaving: bool,
    /// The statement's deadline has passed: its error is the deadline's.
    expired: bool,
    /// The client has cancelled it.
    cancelled: bool,
    /// What the client wants of the connection's parameters, and what it has.
    parameters: Parameters,
    /// Portals of statements that do something to parameters.
    portals: Vec<(Box<[u8]>, Rc<Statement>)>,
    /// The server has reported a parameter since the last transaction ended.
    reported: bool,
    /// Something has failed since the last ReadyForQuery.
    failed: bool,
    /// Id of the statement at the front if its rows are not what its client was told; 0 = none.
    reshaped: u64,
    /// Statements for which a sequence's pin is to last.
    sequence_left: u32,
    /// The session's id.
    session: u32,
}

/// What to do after looking at requests.
enum Next {
    /// Wait for a socket.
    Wait,
    /// The unit at the front needs a server.
    Attach(HostgroupId),
}

/// Serves the request that begins with `chunk`, and whatever follows until the session is idle again.
pub(super) async fn run(client: &mut Client, chunk: Chunk) -> Result<(), End> {
    let config = client.ctx.config();
    client.session.forget_kill_query();
    client.session.note("Query", client.ctx.ticker().now());
    client.ctx.stats(Protocol::Pgsql).bytes_recv.add(chunk.len() as u64);
    let mut exchange = Exchange {
        client,
        config,
        input: Some(chunk),
        wanted: 0,
        passing: Passing::default(),
        out: None,
        server: None,
        decided: None,
        changes: None,
        counting: None,
        clock: Clock::Nothing,
    };
    match exchange.drive().await {
        Ok(()) => {
            exchange.client.session.note("Sleep", exchange.client.ctx.ticker().now());
            Ok(())
        }
        Err(end) => {
            exchange.leave();
            Err(end)
        }
    }
}

impl Exchange<'_> {
    async fn drive(&mut self) -> Result<(), End> {
        loop {
            match self.advance()? {
                Next::Attach(hostgroup) => {
                    self.flush().await?;
                    self.attach(hostgroup).await?;
                    continue;
                }
                Next::Wait => {}
            }
            if self.is_done() {
                return self.flush().await;
            }
            self.arm();
            match std::future::poll_fn(|cx| self.poll_event(cx)).await {
                Event::Progress => self.detach_if_free()?,
                Event::Server(chunk) => self.on_server_bytes(chunk)?,
                Event::ServerGone(cause) => self.lost(cause)?,
                Event::ClientGone => return Err(End::Quiet),
                Event::Signal(signal) => self.on_signal(signal)?,
                Event::Expired => self.on_expired()?,
            }
        }
    }

    fn is_done(&self) -> bool {
        self.server.is_none() && self.input.is_none() && self.passing.left == 0
    }

    /// The session holds a connection, though nothing runs and no transaction is open.
    fn is_pinned_idle(&self) -> bool {
        let idle = |server: &Attached| server.due.is_idle() && server.conn.status == TransactionStatus::Idle;
        self.input.is_none() && self.server.as_ref().is_some_and(idle)
    }

    /// Status that a ReadyForQuery of ours must carry.
    fn status(&self) -> TransactionStatus {
        match &self.server {
            _ if self.client.aborted.is_some() => TransactionStatus::Failed,
            Some(server) => server.conn.status,
            None => TransactionStatus::Idle,
        }
    }

    /// Gets a connection for the unit at the front and gives it the client's settings. A failure is the unit's answer.
    async fn attach(&mut self, hostgroup: HostgroupId) -> Result<(), End> {
        let client = &mut *self.client;
        let request = Request { session: &client.session, client: &mut client.link, key: &client.key, login: &client.login, hostgroup };
        let mut conn = match client.pool.acquire(&self.config, request).await {
            Ok(conn) => conn,
            Err(AcquireError::ClientGone) => return Err(End::Quiet),
            Err(AcquireError::Interrupted(Signal::Kill)) => return Err(End::Fatal(shutdown())),
            Err(error) => {
                client.ctx.stats(Protocol::Pgsql).acquire_failed.add(1);
                (self.decided, self.changes) = (None, None);
                return self.fail_front(&acquire_error(&error));
            }
        };
        let (session, reads) = (client.session.id(), self.decided.is_some_and(|unit| unit.effects.intersects(Effects::LAST_INSERT_ID)));
        if !conn.suits(session, &client.settings, reads) {
            let limit = self.config.pgsql.variables.connect_timeout_server;
            let adapted = client.ctx.ticker().guard(limit, Box::pin(conn.adapt(session, &client.settings, reads))).await;
            let error = match adapted {
                Ok(Ok(())) => None,
                Ok(Err(BackendError::Server(fields))) => Some(ErrorFields { severity: Severity::Error, ..*fields }),
                Ok(Err(error)) => Some(not_adapted(&error)),
                Err(error) => Some(not_adapted(&error)),
            };
            if let Some(fields) = error {
                (self.decided, self.changes) = (None, None);
                return self.fail_front(&fields.detail("while setting the session's parameters on its connection"));
            }
        }
        self.client.session.facts.borrow_mut().hostgroup = Some(hostgroup);
        let mark = conn.prepared.clock();
        let (due, sent) = self.client.worker.take_queues();
        self.server = Some(Attached {
            conn,
            to_server: None,
            due: Responses::reusing(due),
            counts: Counts::new(&self.client.ctx, sent),
            pins: Pins::default(),
            unit: Unit::default(),
            mark,
            own: Vec::new(),
            leaving: false,
            expired: false,
            cancelled: false,
            parameters: Parameters::new(&self.client.start, &self.client.settings),
            portals: Vec::new(),
            reported: false,
            failed: false,
            reshaped: 0,
            sequence_left: 0,
            session,
        });
        Ok(())
    }

    /// Gives the connection back if nothing ties the session to it; called when something may have ended.
    fn detach_if_free(&mut self) -> Result<(), End> {
        let Some(server) = &self.server else { return Ok(()) };
        if !server.due.is_idle() || server.to_server.is_some() {
            return Ok(());
        }
        if server.leaving {
            return Err(End::Quiet);
        }
        if server.conn.status != TransactionStatus::Idle || !server.pins.is_empty() || !self.config.pgsql.variables.multiplexing {
            return Ok(());
        }
        if let Some(server) = self.server.take() {
            let Attached { mut conn, parameters, due, counts, .. } = server;
            self.client.worker.put_queues((due.into_queue(), counts.into_queue()));
            if !conn.tainted && conn.scanner.pending() == 0 {
                conn.have = Arc::clone(parameters.have());
                conn.release();
            }
        }
        Ok(())
    }

    /// Puts the connection away when the session ends: nobody sees what this client left on it.
    fn leave(&mut self) {
        if let Some(out) = self.out.take() {
            self.client.link.send_at_once(&out);
        }
        let Some(server) = self.server.take() else { return };
        let ctx = Rc::clone(&self.client.ctx);
        if !server.due.is_idle() || server.to_server.is_some() || server.conn.tainted {
            // What runs is stopped: closing the socket alone lets it run on.
            if let (Some(key), false) = (&server.conn.key, server.due.is_empty()) {
                send_cancel(&ctx, key.clone());
            }
            return;
        }
        if server.pins.outlives_discard() {
            return;
        }
        let mut conn = server.conn;
        driver::spawn(async move {
            match ctx.ticker().guard(RESET_LIMIT, Box::pin(conn.reset())).await {
                Ok(Ok(())) => conn.release(),
                Ok(Err(error)) => tracing::debug!(%error, "connection is closed: it cannot be reset"),
                Err(error) => tracing::debug!(%error, "connection is closed: it cannot be reset"),
            }
        });
    }

    /// Runs the session's timer for what the session is waiting for.
    fn arm(&mut self) {
        let variables = &self.config.pgsql.variables;
        let (clock, limit) = match &self.server {
            None => (Clock::Nothing, variables.wait_timeout),
            Some(server) if server.expired => (Clock::Cancel, CANCEL_LIMIT),
            Some(server) if !server.due.is_empty() => (Clock::Query, variables.default_query_timeout),
            Some(server) if server.conn.status != TransactionStatus::Idle || server.due.is_in_batch() => {
                (Clock::Transaction, variables.max_transaction_idle_time)
            }
            Some(server) if server.pins.is_only(Pin::Sequence) => (Clock::Sequence, SEQUENCE_LIMIT),
            Some(_) => (Clock::Pinned, variables.wait_timeout),
        };
        if clock != self.clock {
            self.clock = clock;
            self.client.session.timer.arm(limit);
        }
    }

    fn on_expired(&mut self) -> Result<(), End> {
        let (code, text) = match self.clock {
            Clock::Query => {
                self.client.session.timer.clear();
                if let Some(server) = &mut self.server {
                    server.expired = true;
                }
                self.cancel_running();
                return Ok(());
            }
            Clock::Cancel => return self.lost("the server did not answer a cancel request".into()),
            Clock::Sequence => {
                if let Some(server) = &mut self.server {
                    server.pins.remove(Pin::Sequence);
                }
                return self.detach_if_free();
            }
            Clock::Transaction => {
                (sqlstate::IDLE_IN_TRANSACTION_SESSION_TIMEOUT, "terminating connection due to idle-in-transaction timeout")
            }
            Clock::Nothing | Clock::Pinned => (sqlstate::IDLE_SESSION_TIMEOUT, "terminating connection due to idle-session timeout"),
        };
        Err(End::Fatal(ErrorFields::fatal(code, text)))
    }

    fn on_signal(&mut self, signal: Signal) -> Result<(), End> {
        match signal {
            Signal::Kill => return Err(End::Fatal(shutdown())),
            Signal::KillQuery => {
                if let Some(server) = &mut self.server {
                    server.cancelled |= !server.due.is_empty();
                }
                self.cancel_running();
            }
            Signal::ServerGone => self.lost("the server was taken out of service".into())?,
            // A drain waits for the end of what runs, but not for the end of a pin.
            Signal::Drain if self.is_pinned_idle() => return Err(End::Fatal(shutdown())),
            Signal::Drain => {}
        }
        Ok(())
    }

    /// Cancels what the server runs for this session, if it runs anything. The signal may arrive late: the connection is not used by another
    /// client any more.
    fn cancel_running(&mut self) {
        if let Some(server) = &mut self.server
            && !server.due.is_empty()
            && let Some(key) = &server.conn.key
        {
            send_cancel(&self.client.ctx, key.clone());
            server.conn.tainted = true;
        }
    }

    /// Appends bytes for the client.
    fn say(&mut self, bytes: &[u8]) {
        self.out.get_or_insert_with(|| self.client.ctx.chunks().take()).extend_from_slice(bytes);
    }

    /// Appends messages for the client.
    fn say_with(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::with_capacity(128);
        encode(&mut bytes);
        self.say(&bytes);
    }

    /// Appends an error, and ReadyForQuery behind it where the protocol wants one now.
    fn say_error(&mut self, fields: &ErrorFields, ready: bool) {
        let status = self.status();
        self.say_with(|out| {
            fields.encode(out);
            if ready {
                backend::ready_for_query(out, status);
            }
        });
    }
}

fn not_adapted(error: &dyn std::fmt::Display) -> ErrorFields {
    ErrorFields::error(sqlstate::CONNECTION_FAILURE, format!("cannot set the session's parameters on the server: {error}"))
}

/// The client's text for a unit that gets no connection. What stands behind it is in the detail.
fn acquire_error(error: &AcquireError) -> ErrorFields {
    match error {
        AcquireError::Refused(refusal) => {
            let code = std::str::from_utf8(&refusal.sqlstate).unwrap_or(sqlstate::CONNECTION_FAILURE);
            ErrorFields::error(code, format!("server login failed: {}", refusal.message))
        }
        AcquireError::Interrupted(Signal::KillQuery) => ErrorFields::error(sqlstate::QUERY_CANCELED, CANCELLED),
        other => ErrorFields::error(sqlstate::UNABLE_TO_CONNECT, other.to_string()).detail(other.cause()),
    }
}
