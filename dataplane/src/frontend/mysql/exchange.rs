//! One statement on a server: acquire, align, send, relay, settle (style.md B1.2).

use std::sync::Arc;

use quorumsql_wire::mysql::command::byte;
use quorumsql_wire::mysql::scanner::{Answer, Question};
use quorumsql_wire::mysql::{AnswerScanner, PacketWriter, Status, error_code};
use quorumsql_wire::sql::Effects;

use super::count::RowCounts;
use super::kill::Aim;
use super::relay::RelayEnd;
use super::request::Request;
use super::statement::Plan;
use super::{Client, Flow};
use crate::backend::mysql::Mysql;
use crate::backend::mysql::align::AlignError;
use crate::config::Protocol;
use crate::pool::{self, AcquireError, PooledConnection};
use crate::session::mysql::pins::{Pins, Sent};
use crate::session::mysql::statements::{ClientStatement, StatementText};
use crate::session::mysql::tracked::Variables;
use crate::worker::link::IdleCheck;
use crate::worker::session::Signal;

/// What is to be sent.
pub(super) enum Work<'a> {
    Query(&'a Request),
    FieldList(&'a Request),
    Prepare { request: &'a Request, id: u32, text: &'a Arc<StatementText> },
    Execute { request: &'a mut Request, id: u32, statement: &'a mut ClientStatement },
    Fetch { request: &'a mut Request, id: u32, text: &'a Arc<StatementText> },
}

impl Work<'_> {
    const fn question(&self) -> Question {
        match self {
            Self::Query(_) | Self::Execute { .. } => Question::Results,
            Self::Prepare { .. } => Question::Prepare,
            Self::FieldList(_) | Self::Fetch { .. } => Question::Rows,
        }
    }
}

/// Why a statement was not run.
pub(super) enum Unsent {
    /// The server refused a step before it; the payload of its ERR.
    Refused(Vec<u8>),
    /// The connection broke before the statement was whole at the server: it cannot have run.
    Broken(String),
}

/// How one attempt ended.
enum Attempt {
    Answered(Answer),
    Unsent(Unsent),
    Ended(RelayEnd, Option<u8>, AtBoundary),
}

/// Whether an ERR of our own may follow what the client has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AtBoundary {
    Yes,
    No,
}

impl Client {
    /// Runs a statement on a server. A connection that is kept for a soft reason elsewhere is put aside for it.
    pub(super) async fn run(&mut self, plan: &Plan, work: Work<'_>, sequence: u8) -> Flow {
        self.session.timer.arm(plan.config.side(Protocol::Mysql).variables.default_query_timeout);
        self.session.note("Query", self.ctx.ticker().now());
        if plan.on_held || self.held.is_none() {
            return self.run_here(plan, work, sequence).await;
        }
        let aside = self.held.take().map(|held| (held, std::mem::take(&mut self.state.pins)));
        let flow = self.run_here(plan, work, sequence).await;
        if let Some((connection, mut pins)) = aside {
            pins.before(plan.sent.effects);
            if self.held.is_none() && pins.soft() {
                self.held = Some(connection);
                self.state.pins = pins;
            } else {
                connection.release();
            }
        }
        flow
    }

    async fn run_here(&mut self, plan: &Plan, mut work: Work<'_>, sequence: u8) -> Flow {
        self.state.pins.before(plan.sent.effects);
        // What hangs on a held connection is lost with it; without, another will do.
        let mut retried = plan.on_held && self.state.pins.hard();
        loop {
            let mut server = match self.connection(plan).await {
                Ok(server) => server,
                Err(error) => return self.on_no_connection(error, sequence).await,
            };
            match self.attempt(&mut server, &mut work, sequence).await {
                Attempt::Answered(answer) => {
                    self.settle(server, plan, &work, answer).await;
                    return Flow::Continue;
                }
                Attempt::Unsent(Unsent::Refused(payload)) => {
                    self.keep_or_release(server);
                    return self.send_payload(sequence, &payload).await;
                }
                // An idle connection that had died: nothing has run, so that a fresh one may be tried once.
                Attempt::Unsent(Unsent::Broken(error)) if !retried => {
                    tracing::debug!(error, server = %server.address(), "idle connection was dead");
                    retried = true;
                }
                Attempt::Unsent(Unsent::Broken(error)) => {
                    return self.on_lost(server, RelayEnd::ServerLost(error), sequence, AtBoundary::Yes).await;
                }
                Attempt::Ended(end, last, boundary) => {
                    let next = last.map_or(sequence, |last| last.wrapping_add(1));
                    return self.on_lost(server, end, next, boundary).await;
                }
            }
        }
    }

    /// The held connection, or one of the pool.
    async fn connection(&mut self, plan: &Plan) -> Result<PooledConnection<Mysql>, AcquireError> {
        if plan.on_held
            && let Some(held) = self.held.take()
        {
            return Ok(held);
        }
        let request = pool::Request {
            session: &self.session,
            client: &mut self.link,
            key: &self.key,
            login: &self.server_login,
            hostgroup: plan.hostgroup,
        };
        self.pool.acquire(&plan.config, request).await
    }

    async fn attempt(&mut self, server: &mut PooledConnection<Mysql>, work: &mut Work<'_>, sequence: u8) -> Attempt {
        if !matches!(server.link().check_idle(), IdleCheck::Quiet) {
            return Attempt::Unsent(Unsent::Broken("server closed an idle connection".into()));
        }
        if !server.is_aligned(&self.state) {
            match Box::pin(server.align(&self.state)).await {
                Ok(()) => {}
                Err(AlignError::Refused(payload)) => {
                    // A value that the server does not take is told once, not before every statement.
                    let taken = &server.state.variables;
                    self.state.variables.retain(|name, literal| taken.get(name) == Some(literal));
                    return Attempt::Unsent(Unsent::Refused(payload));
                }
                Err(AlignError::Broken(error)) => return Attempt::Unsent(Unsent::Broken(error.to_string())),
            }
        }
        let mut scanner = AnswerScanner::new(work.question(), server.state.capabilities, self.capabilities);
        let sent = match work {
            Work::Query(request) | Work::FieldList(request) => send_raw(server, &request.raw).await,
            Work::Prepare { request, id, .. } => {
                scanner = scanner.with_statement(*id);
                send_raw(server, &request.raw).await
            }
            Work::Execute { request, statement, .. } => match self.send_execute(server, request, statement).await {
                Ok(answer_sequence) => {
                    scanner = scanner.with_sequence_shift(sequence.wrapping_sub(answer_sequence));
                    Ok(())
                }
                Err(unsent) => Err(unsent),
            },
            Work::Fetch { request, text, .. } => send_fetch(server, request, text).await,
        };
        if let Err(unsent) = sent {
            return Attempt::Unsent(unsent);
        }
        self.ctx.stats(Protocol::Mysql).forwarded.add(1);
        server.cells().queries.add(1);
        match self.relay(server, &mut scanner).await {
            Ok(()) => Attempt::Answered(scanner.into_answer()),
            Err(end) => {
                let boundary = if scanner.at_packet_boundary() { AtBoundary::Yes } else { AtBoundary::No };
                Attempt::Ended(end, scanner.last_sequence(), boundary)
            }
        }
    }

    /// Takes over what the answer says, and decides whether the connection is kept.
    async fn settle(&mut self, mut server: PooledConnection<Mysql>, plan: &Plan, work: &Work<'_>, answer: Answer) {
        let changed = server.state.on_answer(&answer);
        if changed.schema
            && let Some(schema) = &server.state.schema
        {
            self.state.schema.clone_from(schema);
        }
        self.note_status(&server, &answer, matches!(work, Work::Prepare { .. }));
        if answer.error.is_none()
            && let Some(absorbed) = plan.absorbed.clone()
        {
            if let Some(names) = &absorbed.names {
                server.state.names = names.clone();
            }
            apply(&mut server.state.variables, &absorbed.variables);
            self.absorb(absorbed);
        }
        self.note_insert_id(plan, &answer);
        self.rows = RowCounts { affected: answer.rows_affected, sent: answer.rows };
        let pins = &mut self.state.pins;
        let shows = plan.sent.effects.contains(Effects::SHOW_WARNINGS) && pins.warnings;
        pins.warnings = answer.warnings > 0 || shows;
        if !matches!(work, Work::Prepare { .. }) {
            pins.after(Sent { server_tracks: server.state.tracks, ..plan.sent });
            pins.state |= changed.untracked && !plan.sent.harmless_set && plan.sent.multiplex != Some(2);
        }
        match work {
            Work::Prepare { text, .. } => {
                if let Some(prepared) = answer.prepared
                    && let Some(old) = server.state.registry.add(Arc::clone(text), prepared.statement)
                {
                    close_on_server(&mut server, old).await;
                }
            }
            Work::Execute { id, statement, .. } => {
                if answer.error == Some(error_code::UNKNOWN_STATEMENT.code) {
                    server.state.registry.forget(&statement.text);
                }
                self.note_cursor(*id, work, &answer);
            }
            Work::Fetch { id, .. } => self.note_cursor(*id, work, &answer),
            Work::Query(_) | Work::FieldList(_) => {}
        }
        if let (Work::Prepare { id, .. }, Some(prepared)) = (work, answer.prepared) {
            self.prepared_parameters = Some((*id, prepared.parameters));
        }
        self.keep_or_release(server);
    }

    /// Transaction, autocommit and escapes, as the status says. After an error without one, a transaction that was open may
    /// still be, and with autocommit off one may have begun.
    fn note_status(&mut self, server: &PooledConnection<Mysql>, answer: &Answer, preparing: bool) {
        let state = &mut self.state;
        match answer.status {
            Some(status) => {
                state.autocommit = status.contains(Status::AUTOCOMMIT);
                state.no_backslash_escapes = status.contains(Status::NO_BACKSLASH_ESCAPES);
                state.pins.transaction = server.state.in_transaction();
            }
            None if answer.error.is_some() && !preparing => state.pins.transaction |= !state.autocommit,
            None => {}
        }
    }

    fn note_insert_id(&mut self, plan: &Plan, answer: &Answer) {
        if answer.insert_id == 0 {
            return;
        }
        self.state.last_insert_id = answer.insert_id;
        if answer.affected > 0 && answer.error.is_none() {
            self.state.pins.insert_id = plan.config.side(Protocol::Mysql).variables.auto_increment_delay_multiplex;
        }
    }

    fn note_cursor(&mut self, id: u32, work: &Work<'_>, answer: &Answer) {
        let cursors = &mut self.state.pins.cursors;
        let status = answer.status.unwrap_or_default();
        cursors.retain(|open| *open != id || matches!(work, Work::Fetch { .. }));
        if matches!(work, Work::Execute { .. }) && status.contains(Status::CURSOR_EXISTS) {
            cursors.push(id);
        }
        if matches!(work, Work::Fetch { .. }) && (status.contains(Status::LAST_ROW_SENT) || answer.error.is_some()) {
            cursors.retain(|open| *open != id);
        }
    }

    /// Keeps the connection while there is a reason, else gives it back.
    pub(super) fn keep_or_release(&mut self, server: PooledConnection<Mysql>) {
        if self.spoiled {
            // A KILL QUERY is on its way to it.
            self.spoiled = false;
            self.state.pins = Pins::default();
            return;
        }
        if self.state.pins.any() {
            self.held = Some(server);
        } else {
            server.release();
        }
    }

    /// No connection: nothing has run, the session goes on.
    async fn on_no_connection(&mut self, error: AcquireError, sequence: u8) -> Flow {
        self.ctx.stats(Protocol::Mysql).acquire_failed.add(1);
        tracing::warn!(cause = error.cause(), client = %self.link.peer_addr(), "no server connection: {error}");
        match error {
            AcquireError::Timeout { .. } => self.send_error(sequence, error_code::CONNECT_TIMEOUT, error.to_string()).await,
            AcquireError::Failed { .. } => self.send_error(sequence, error_code::CONNECT_FAILURE, error.to_string()).await,
            AcquireError::Refused(refused) => self.send_payload(sequence, &refused.raw).await,
            AcquireError::ClientGone => Flow::Close,
            AcquireError::Interrupted(Signal::KillQuery) => {
                self.send_error(sequence, error_code::INTERRUPTED, "Query execution was interrupted").await
            }
            AcquireError::Interrupted(_) => Flow::Close,
        }
    }

    /// The connection was lost in the middle. The session goes on if it loses no state by it and the client can be told.
    async fn on_lost(&mut self, server: PooledConnection<Mysql>, end: RelayEnd, sequence: u8, boundary: AtBoundary) -> Flow {
        let lost_state = self.state.pins.hard();
        self.state.pins = Pins::default();
        self.spoiled = false;
        let (code, text) = match end {
            RelayEnd::ClientGone | RelayEnd::Interrupted(Signal::Kill) => {
                self.kill_on_server(&server, Aim::Connection);
                return Flow::Close;
            }
            RelayEnd::TimedOut => {
                self.kill_on_server(&server, Aim::Connection);
                (error_code::QUERY_TIMEOUT, "Query execution was interrupted, query_timeout exceeded".to_owned())
            }
            RelayEnd::ServerLost(error) => {
                tracing::warn!(error, server = %server.address(), "server connection lost during a statement");
                (error_code::SERVER_LOST, "Lost connection to MySQL server during query".to_owned())
            }
            RelayEnd::Protocol(error) => {
                tracing::error!(%error, server = %server.address(), "server broke the protocol");
                (error_code::SERVER_LOST, "Lost connection to MySQL server during query".to_owned())
            }
            RelayEnd::Interrupted(_) => (error_code::SERVER_LOST, "Lost connection to MySQL server during query".to_owned()),
        };
        drop(server);
        if boundary == AtBoundary::No {
            return Flow::Close;
        }
        let _ = self.send_error(sequence, code, text).await;
        if lost_state { Flow::Close } else { Flow::Continue }
    }
}

/// Takes over assignments; `None` = the default, which is what is not in the map.
pub(super) fn apply(variables: &mut Variables, assignments: &[(&'static str, Option<String>)]) {
    for (name, literal) in assignments {
        match literal {
            Some(literal) => variables.insert(name, literal.clone()),
            None => variables.remove(name),
        };
    }
}

/// Sends a packet as it came. An error means that not all of it reached the server, which then cannot have run it.
async fn send_raw(server: &mut PooledConnection<Mysql>, raw: &[u8]) -> Result<(), Unsent> {
    let sent = server.link().send_bytes(raw).await.map_err(|error| Unsent::Broken(error.to_string()));
    server.cells().bytes_sent.add(raw.len() as u64);
    sent
}

/// COM_STMT_FETCH with the server's statement id.
async fn send_fetch(server: &mut PooledConnection<Mysql>, request: &mut Request, text: &Arc<StatementText>) -> Result<(), Unsent> {
    let Some(id) = server.state.registry.find(text) else {
        return Err(Unsent::Broken("statement with an open cursor is not known on its connection".into()));
    };
    if let Some(payload) = request.payload_mut() {
        payload[1..5].copy_from_slice(&id.to_le_bytes());
    }
    send_raw(server, &request.raw).await
}

/// COM_STMT_CLOSE, which has no answer. A broken connection shows at its next use.
pub(super) async fn close_on_server(server: &mut PooledConnection<Mysql>, id: u32) {
    let mut bytes = Vec::with_capacity(9);
    PacketWriter::new(&mut bytes, 0).packet(|out| {
        out.push(byte::STMT_CLOSE);
        out.extend_from_slice(&id.to_le_bytes());
    });
    if let Err(error) = server.link().send_bytes(&bytes).await {
        tracing::debug!(%error, "statement not closed");
    }
}
