//! One statement on a server: acquire, align, send, relay, settle (style.md B1.2).

use std::pin::pin;
use std::sync::Arc;

use quorumsql_wire::mysql::command::byte;
use quorumsql_wire::mysql::scanner::{Answer, Question};
use quorumsql_wire::mysql::{AnswerScanner, ErrPacket, PacketWriter, error_code};
use quorumsql_wire::sql::Effects;

use super::counts::{self, AsksCounts};
use super::prepared::send_execute;
use super::relay::{RelayEnd, watched};
use super::request::Request;
use super::statement::Plan;
use super::{Client, Flow, RESET_LIMIT};
use crate::backend::mysql::align::{AlignError, Reads};
use crate::backend::mysql::{Backend, Mysql};
use crate::config::Protocol;
use crate::pool::{self, AcquireError, PooledConnection};
use crate::session::mysql::state::SessionState;
use crate::session::mysql::statements::{ClientStatement, StatementName, StatementText};
use crate::worker::link::IdleCheck;

/// What is to be sent.
pub(super) enum Work<'a> {
    Query(&'a Request),
    FieldList(&'a Request),
    Prepare { request: &'a Request, id: u32, text: &'a Arc<StatementText> },
    Execute { request: &'a mut Request, id: u32, statement: &'a mut ClientStatement, types_follow: bool },
    Fetch { request: &'a mut Request, id: u32, name: StatementName },
}

impl Work<'_> {
    /// The statement that it runs.
    pub(super) fn sql(&self) -> Option<&[u8]> {
        match self {
            Self::Query(request) => request.payload().get(1..),
            Self::Execute { statement, .. } => Some(&statement.text.sql),
            Self::FieldList(_) | Self::Prepare { .. } | Self::Fetch { .. } => None,
        }
    }

    /// It needs no COM_STMT_PREPARE on this connection.
    fn is_prepared_on(&self, server: &Backend) -> bool {
        match self {
            Self::Execute { statement, .. } => server.state.registry.has(statement),
            _ => true,
        }
    }

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

impl From<AlignError> for Unsent {
    fn from(error: AlignError) -> Self {
        match error {
            AlignError::Refused(payload) => Self::Refused(payload),
            AlignError::Broken(error) => Self::Broken(error.to_string()),
        }
    }
}

/// How one attempt ended.
enum Attempt {
    Answered(Answer),
    Unsent(Unsent),
    Ended(RelayEnd, Option<u8>, AtBoundary),
}

/// Whether an ERR of our own may follow what the client has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AtBoundary {
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
        let mut aside = self.held.take().map(|held| (held, std::mem::take(&mut self.state.pins)));
        if let Some((held, _)) = &mut aside
            && !self.ask_insert_id(held).await
        {
            aside = None;
        }
        let flow = self.run_here(plan, work, sequence).await;
        if let Some((connection, mut pins)) = aside {
            pins.before(plan.sent.effects);
            if self.held.is_none() && pins.soft() {
                self.held = Some(connection);
                self.state.pins = pins;
            } else if !connection.state.unsure {
                connection.release();
            }
        }
        flow
    }

    /// On the held connection, or on one of the pool.
    async fn run_here(&mut self, plan: &Plan, mut work: Work<'_>, sequence: u8) -> Flow {
        self.state.pins.before(plan.sent.effects);
        // What hangs on a held connection is lost with it; without, another will do.
        let mut retried = plan.on_held && self.state.pins.hard();
        let asks = counts::asks(plan.sent.effects, &work);
        loop {
            let own = plan.on_held && self.held.is_some();
            let mut server = match self.connection(plan).await {
                Ok(server) => server,
                Err(error) => return self.on_no_connection(error, sequence).await,
            };
            let mut differs = self.difference(&mut server, plan, own, asks);
            if !own && (differs.is_some() || !work.is_prepared_on(&server)) && server.prefer(|other| self.suits(other, asks, &work)) {
                differs = self.difference(&mut server, plan, own, asks);
            }
            if differs.is_some_and(|reads| reads.counts)
                && let Some(text) = counts::lost(&self.state.last, &work)
            {
                self.keep_or_release(server).await;
                return self.send_error(sequence, error_code::NOT_SUPPORTED, text).await;
            }
            match self.attempt(&mut server, &mut work, differs, sequence).await {
                Attempt::Answered(answer) => {
                    self.settle(server, plan, &work, answer).await;
                    return Flow::Continue;
                }
                Attempt::Unsent(Unsent::Refused(payload)) => {
                    if let Ok(error) = ErrPacket::decode(&payload) {
                        self.state.last.failed(error);
                    }
                    self.keep_or_release(server).await;
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

    /// What the connection must be told before the statement; `None` = nothing, as usually.
    fn difference(&self, server: &mut PooledConnection<Mysql>, plan: &Plan, own: bool, asks: AsksCounts) -> Option<Reads> {
        if !own {
            server.state.on_acquired();
        }
        let reads = Reads {
            insert_id: (!server.state.has_insert_id && self.state.reads_insert_id(plan.sent.effects))
                .then_some(self.state.last_insert_id.value),
            diagnostics: server.state.diagnostics.are_foreign_to(&self.state.last) && plan.sent.reads_diagnostics(),
            counts: false,
            no_schema: plan.schema.is_some(),
        };
        let aligned = server.is_aligned(&self.state, reads);
        // A step of the alignment would count, too.
        let counts = asks == AsksCounts::Yes && !(aligned && server.state.counts_of == self.counts());
        (!aligned || counts).then_some(Reads { counts, ..reads })
    }

    /// The connection needs to be told nothing of the session and knows the statement.
    fn suits(&self, server: &Backend, asks: AsksCounts, work: &Work<'_>) -> bool {
        server.is_aligned(&self.state, Reads::default())
            && work.is_prepared_on(server)
            && (asks == AsksCounts::No || server.state.counts_of == self.counts())
    }

    /// The held connection, or one of the pool.
    async fn connection(&mut self, plan: &Plan) -> Result<PooledConnection<Mysql>, AcquireError> {
        if plan.on_held
            && let Some(held) = self.held.take()
        {
            return Ok(held);
        }
        let mut server = self.acquire(plan).await?;
        if plan.sent.effects.contains(Effects::NEXTVAL) {
            // What others have taken from sequences there is none of the session's.
            let reset = self.ctx.ticker().guard(RESET_LIMIT, Box::pin(server.reset())).await;
            if !matches!(reset, Ok(Ok(true))) {
                drop(server);
                server = self.acquire(plan).await?;
            }
        }
        Ok(server)
    }

    /// A connection of the pool.
    async fn acquire(&mut self, plan: &Plan) -> Result<PooledConnection<Mysql>, AcquireError> {
        let request = pool::Request {
            session: &self.session,
            client: &mut self.link,
            key: &self.key,
            login: &self.server_login,
            hostgroup: plan.hostgroup,
        };
        self.pool.acquire(&plan.config, request).await
    }

    /// Brings the connection to the session's state, sends, and relays the answer. Everything before the answer is watched
    /// like the answer itself: a server that says nothing there must not hold the client for ever.
    async fn attempt(
        &mut self,
        server: &mut PooledConnection<Mysql>,
        work: &mut Work<'_>,
        differs: Option<Reads>,
        sequence: u8,
    ) -> Attempt {
        if !matches!(server.link().check_idle(), IdleCheck::Quiet) {
            return Attempt::Unsent(Unsent::Broken("server closed an idle connection".into()));
        }
        let mut scanner = AnswerScanner::new(work.question(), server.state.capabilities, self.capabilities);
        let sent = watched(&self.session, &mut self.link, pin!(send(server, &self.state, work, differs))).await;
        match sent {
            Ok(Ok(answer_sequence)) => {
                if let Work::Prepare { id, .. } = work {
                    scanner = scanner.with_statement(*id);
                }
                scanner = scanner.with_sequence_shift(sequence.wrapping_sub(answer_sequence));
            }
            Ok(Err(unsent)) => {
                if matches!(unsent, Unsent::Refused(_)) {
                    // A value that the server does not take is told once, not before every statement.
                    let taken = &server.state.variables;
                    self.state.variables.retain(|name, literal| taken.get(name) == Some(literal));
                }
                return Attempt::Unsent(unsent);
            }
            Err(end) => return Attempt::Ended(end, None, AtBoundary::Yes),
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
}

/// Aligns and sends. Returns the sequence id with which the server answers; an error means that the statement was not whole at
/// the server, which then cannot have run it.
async fn send(
    server: &mut PooledConnection<Mysql>,
    session: &SessionState,
    work: &mut Work<'_>,
    differs: Option<Reads>,
) -> Result<u8, Unsent> {
    if let Some(reads) = differs {
        Box::pin(server.align(session, reads)).await?;
    }
    match work {
        Work::Query(request) | Work::FieldList(request) | Work::Prepare { request, .. } => {
            send_raw(server, &request.raw).await.map(|()| request.answer_sequence)
        }
        Work::Execute { request, statement, types_follow, .. } => send_execute(server, session, request, statement, *types_follow).await,
        Work::Fetch { request, name, .. } => send_fetch(server, request, *name).await.map(|()| request.answer_sequence),
    }
}

/// Sends a packet as it came.
async fn send_raw(server: &mut PooledConnection<Mysql>, raw: &[u8]) -> Result<(), Unsent> {
    let sent = server.link().send_bytes(raw).await.map_err(|error| Unsent::Broken(error.to_string()));
    server.cells().bytes_sent.add(raw.len() as u64);
    sent
}

/// COM_STMT_FETCH with the server's statement id.
async fn send_fetch(server: &mut PooledConnection<Mysql>, request: &mut Request, name: StatementName) -> Result<(), Unsent> {
    let Some(id) = server.state.registry.cursor(name) else {
        return Err(Unsent::Broken("statement with an open cursor is not known on its connection".into()));
    };
    if let Some(payload) = request.payload_mut() {
        payload[1..5].copy_from_slice(&id.to_le_bytes());
    }
    send_raw(server, &request.raw).await
}

/// COM_STMT_CLOSE, which has no answer. A broken connection shows at its next use.
pub(super) async fn close_on_server(server: &mut PooledConnection<Mysql>, ids: impl IntoIterator<Item = u32>) {
    let mut bytes = Vec::new();
    for id in ids {
        PacketWriter::new(&mut bytes, 0).packet(|out| {
            out.push(byte::STMT_CLOSE);
            out.extend_from_slice(&id.to_le_bytes());
        });
    }
    if bytes.is_empty() {
        return;
    }
    if let Err(error) = server.link().send_bytes(&bytes).await {
        tracing::debug!(%error, "statement not closed");
    }
}
