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
mod clock;
mod complete;
mod count;
mod doubt;
mod effects;
mod extended;
mod forward;
mod hold;
mod io;
mod local;
mod lost;
mod names;
mod prepare;
mod query;
mod request;
mod route;

use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::pgsql::backend::{self, TransactionStatus};
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::sql::{Class, Effects};

use super::{Client, End, shutdown};
use crate::backend::pgsql::Pgsql;
use crate::config::{HostgroupId, Protocol};
use crate::pool::PooledConnection;
use crate::session::pgsql::changes::Change;
use crate::session::pgsql::parameters::Parameters;
use crate::session::pgsql::pins::Pins;
use crate::session::pgsql::prepared::Statement;
use crate::session::pgsql::responses::{Named, Responses};
use crate::stats::digests::DigestEntry;
use crate::worker::chunk::Chunk;
use crate::worker::snapshot::Snapshot;
use count::Counts;
pub(super) use count::Sent;
use io::Event;

/// Messages other than statements and data are collected up to this length; a batch is looked at so far ahead.
const SMALL_MESSAGE: usize = 64 * 1024;
/// Bytes on their way in one direction beyond which nothing is added.
const BACKLOG: usize = 256 * 1024;

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
    /// The statement of the batch at the front, if it is the only one and does something to parameters.
    only: Option<Rc<Statement>>,
    /// Where the Query at the front is counted.
    counting: Option<Arc<DigestEntry>>,
    /// For what the session's timer runs.
    clock: Clock,
    /// The client has said good-bye and closed: nothing more comes from it.
    hung_up: bool,
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
    /// The session holds a connection by pins that may be over.
    Doubt,
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
    /// Its good-bye was passed on.
    terminated: bool,
    /// The statement's deadline has passed: its error is the deadline's.
    expired: bool,
    /// The client has cancelled it.
    cancelled: bool,
    /// What the client wants of the connection's parameters, and what it has.
    parameters: Parameters,
    /// Portals of statements that do something to parameters.
    portals: Vec<(Box<[u8]>, Rc<Statement>)>,
    /// What was bound last, and to which portal, if it is a named statement.
    bound: Option<(Box<[u8]>, Rc<Statement>)>,
    /// Statements of the client's whose Parse has failed.
    undefined: Vec<Named>,
    /// Names of statements that were prepared as text.
    text_names: Vec<String>,
    /// The server has reported a parameter since the last transaction ended.
    reported: bool,
    /// Something has failed since the last ReadyForQuery.
    failed: bool,
    /// Id of the statement at the front if its rows are not what its client was told; 0 = none.
    reshaped: u64,
    /// Pins that may be over since the server was asked last.
    doubt: doubt::Doubt,
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
        only: None,
        counting: None,
        clock: Clock::Nothing,
        hung_up: false,
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
            if self.hung_up && self.is_quiet() {
                return Err(End::Quiet);
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

    /// Nothing is on its way in any direction.
    fn is_quiet(&self) -> bool {
        let quiet = |server: &Attached| server.due.is_empty() && server.to_server.is_none();
        self.out.is_none() && self.server.as_ref().is_none_or(quiet)
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
