//! Prepared statements: ids of the client and of servers, transparent re-prepare (mysql-dataplane 8.1).

use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::mysql::column::kind;
use quorumsql_wire::mysql::command::byte;
use quorumsql_wire::mysql::error_code::{self, ErrorCode};
use quorumsql_wire::mysql::params::ExecuteBody;
use quorumsql_wire::mysql::scanner::{Answer, Question};
use quorumsql_wire::mysql::{Command, ErrPacket, PacketWriter};
use quorumsql_wire::sql::{Class, Effects};

use super::exchange::{Unsent, Work, close_on_server};
use super::request::Request;
use super::statement::{Form, Plan, Routed};
use super::{Client, Flow, RESET_LIMIT};
use crate::backend::mysql::{Execution, Mysql};
use crate::config::Protocol;
use crate::pool::PooledConnection;
use crate::session::mysql::long_data::{LongData, Wrong};
use crate::session::mysql::pins::Sent;
use crate::session::mysql::state::{Goal, SessionState};
use crate::session::mysql::statements::{ClientStatement, StatementName, StatementText};

/// `ER_STMT_HAS_NO_OPEN_CURSOR`.
const NO_OPEN_CURSOR: ErrorCode = ErrorCode { code: 1421, sqlstate: *b"HY000" };

/// Where COM_STMT_EXECUTE says whether a cursor is wanted.
const CURSOR_FLAG: usize = 5;

/// Long data goes to a server in pieces of so many bytes: a packet beyond its `max_allowed_packet` would end the connection.
const LONG_DATA_PIECE: usize = 512 << 10;

impl Client {
    /// COM_STMT_PREPARE: prepared on a connection of the hostgroup that the rules choose, under an id of our own.
    pub(super) async fn prepare(&mut self, request: Request) -> Flow {
        let sequence = request.answer_sequence;
        let sql = &request.payload()[1..];
        let Some(id) = self.state.statements.next_id(sql.len()) else {
            let text = "Can't create more than max_prepared_stmt_count statements in this session";
            return self.send_error(sequence, error_code::MAX_PREPARED, text).await;
        };
        let config = self.ctx.config();
        let scan = self.scan(&config, sql);
        let plan = match self.route(config, sql, &scan, Form::Binary, sequence).await {
            Routed::Answered(flow) => return flow,
            Routed::Run(plan) => plan,
        };
        let text = self.worker.text(StatementText::new(sql, self.state.setting()));
        self.prepared_parameters = None;
        let flow = self.run(&plan, Work::Prepare { request: &request, id, text: &text }, sequence).await;
        if let Some((prepared, parameters)) = self.prepared_parameters.take()
            && prepared == id
        {
            let name = self.worker.name(self.ctx.index());
            self.state.statements.insert(id, ClientStatement::new(name, text, scan.kept(), parameters));
        }
        flow
    }

    /// COM_STMT_EXECUTE: routed anew each time.
    pub(super) async fn execute(&mut self, request: &mut Request, id: u32) -> Flow {
        let sequence = request.answer_sequence;
        let Some(mut statement) = self.state.statements.take(id) else { return self.unknown_statement(id, sequence).await };
        let flow = match check_execute(request, &mut statement) {
            Err((code, text)) => self.send_error(sequence, code, text).await,
            Ok(types_follow) => {
                let config = self.ctx.config();
                let started = self.start_count(&config);
                let routed = self.route(Rc::clone(&config), &statement.text.sql, &statement.scan, Form::Binary, sequence).await;
                let counting = self.counting(&config, started, &routed, &statement.scan);
                let flow = match routed {
                    Routed::Answered(flow) => flow,
                    Routed::Run(plan) => {
                        self.run(&plan, Work::Execute { request, id, statement: &mut statement, types_follow }, sequence).await
                    }
                };
                self.end_count(counting);
                flow
            }
        };
        if !statement.long_data.is_empty() {
            statement.long_data.sent();
            if self.state.last.error.as_ref().is_some_and(|error| error.code == error_code::UNKNOWN.code) {
                statement.long_data.fail(Wrong::TooLong);
            }
        }
        self.state.statements.put_back(id, statement);
        flow
    }

    async fn unknown_statement(&mut self, id: u32, sequence: u8) -> Flow {
        let text = format!("Unknown prepared statement handler ({id}) given to mysql_stmt_precheck");
        self.send_error(sequence, error_code::UNKNOWN_STATEMENT, text).await
    }

    /// COM_STMT_SEND_LONG_DATA: kept until the execution; no answer.
    pub(super) fn add_long_data(&mut self, id: u32, parameter: u16, data: &[u8]) -> Flow {
        let limit = self.ctx.config().side(Protocol::Mysql).variables.max_allowed_packet as usize;
        if let Some(statement) = self.state.statements.get_mut(id) {
            statement.long_data.add(parameter, statement.parameters, data, limit);
        }
        Flow::Continue
    }

    /// COM_STMT_CLOSE: stays prepared on its connections for others; no answer.
    pub(super) async fn close_statement(&mut self, id: u32) -> Flow {
        if let Some(name) = self.state.statements.close(id) {
            self.close_cursor(id, name).await;
        }
        Flow::Continue
    }

    /// COM_STMT_RESET.
    pub(super) async fn reset_statement(&mut self, id: u32, sequence: u8) -> Flow {
        let Some(statement) = self.state.statements.get_mut(id) else { return self.unknown_statement(id, sequence).await };
        statement.long_data = LongData::default();
        let name = statement.name;
        self.close_cursor(id, name).await;
        self.send_ok(sequence, "").await
    }

    /// Closes a cursor on its server, and ends the pin that it was.
    async fn close_cursor(&mut self, id: u32, name: StatementName) {
        if !self.state.pins.cursors.contains(&id) {
            return;
        }
        self.state.pins.cursors.retain(|open| *open != id);
        let Some(mut server) = self.held.take() else { return };
        let closed = match server.state.registry.cursor(name) {
            Some(server_id) => {
                let mut payload = vec![byte::STMT_RESET];
                payload.extend_from_slice(&server_id.to_le_bytes());
                let reset = self.ctx.ticker().guard(RESET_LIMIT, Box::pin(server.call(Question::Simple, &payload))).await;
                matches!(reset, Ok(Ok(_)))
            }
            None => false,
        };
        server.state.registry.close_cursor(name);
        // A connection that cannot close a cursor is closed itself, unless more than the cursor hangs on it.
        if closed {
            self.keep_or_release(server).await;
        } else if self.state.pins.hard() {
            self.held = Some(server);
        }
    }

    /// COM_STMT_FETCH: on the connection that the cursor is open on.
    pub(super) async fn fetch(&mut self, request: &mut Request, id: u32) -> Flow {
        let sequence = request.answer_sequence;
        let Some(statement) = self.state.statements.get_mut(id) else { return self.unknown_statement(id, sequence).await };
        let name = statement.name;
        let class = statement.scan.class;
        let Some(held) = self.held.as_ref().filter(|_| self.state.pins.cursors.contains(&id)) else {
            return self.send_error(sequence, NO_OPEN_CURSOR, format!("The statement ({id}) has no open cursor.")).await;
        };
        let sent = Sent { class, effects: Effects::NONE, harmless_set: true, single_set: false, multiplex: None, server_tracks: true };
        let plan = Plan { hostgroup: held.hostgroup(), on_held: true, sent, absorbed: None, schema: None, config: self.ctx.config() };
        self.run(&plan, Work::Fetch { request, id, name }, sequence).await
    }
}

/// Sends an execution with the server's id, its long data before it, and its types where the client left them out.
/// Returns the sequence id with which the server answers.
pub(super) async fn send_execute(
    server: &mut PooledConnection<Mysql>,
    session: &SessionState,
    request: &mut Request,
    statement: &mut ClientStatement,
    types_follow: bool,
) -> Result<u8, Unsent> {
    let server_id = match server.state.registry.execute(statement) {
        Execution::By(id) => id,
        other => Box::pin(bring_here(server, session, statement, other)).await?,
    };
    if server.state.registry.remembers() {
        note_past(request.payload(), statement, types_follow);
    }
    let answer_sequence = request.answer_sequence;
    let in_place = types_follow && statement.long_data.is_empty();
    if in_place && let Some(payload) = request.payload_mut() {
        payload[1..5].copy_from_slice(&server_id.to_le_bytes());
        let sent = server.link().send_bytes(&request.raw).await;
        server.cells().bytes_sent.add(request.raw.len() as u64);
        return sent.map(|()| answer_sequence).map_err(|error| Unsent::Broken(error.to_string()));
    }
    let mut bytes = Vec::with_capacity(request.raw.len() + statement.types.len() + 16);
    for (parameter, data) in statement.long_data.all() {
        let pieces = data.chunks(LONG_DATA_PIECE);
        for piece in pieces.chain(data.is_empty().then_some(&[][..])) {
            PacketWriter::new(&mut bytes, 0).packet(|out| {
                out.push(byte::STMT_SEND_LONG_DATA);
                out.extend_from_slice(&server_id.to_le_bytes());
                out.extend_from_slice(&parameter.to_le_bytes());
                out.extend_from_slice(piece);
            });
        }
    }
    let mut packets = PacketWriter::new(&mut bytes, 0);
    packets.packet(|out| put_execute(request.payload(), server_id, statement, types_follow, out));
    let answer_sequence = packets.sequence();
    let sent = server.link().send_bytes(&bytes).await;
    server.cells().bytes_sent.add(bytes.len() as u64);
    sent.map(|()| answer_sequence).map_err(|error| Unsent::Broken(error.to_string()))
}

/// Prepares the statement on this connection, and brings it where the client's executions have brought it. Returns the server's id.
async fn bring_here(
    server: &mut PooledConnection<Mysql>,
    session: &SessionState,
    statement: &mut ClientStatement,
    mut execution: Execution,
) -> Result<u32, Unsent> {
    if execution == Execution::Missing {
        prepare_again(server, session, statement).await?;
        execution = server.state.registry.execute(statement);
    }
    if let Execution::Behind(id) = execution {
        repeat_past(server, session, statement, id).await?;
        execution = server.state.registry.execute(statement);
    }
    match execution {
        Execution::By(id) => Ok(id),
        Execution::Behind(_) | Execution::Missing => Err(Unsent::Broken("a statement that was just prepared is not there".into())),
    }
}

/// Repeats the executions that have brought the client's statement where it is; they resolve its types, and nothing else comes of
/// them (see [`crate::session::mysql::past`]).
async fn repeat_past(
    server: &mut PooledConnection<Mysql>,
    session: &SessionState,
    statement: &ClientStatement,
    id: u32,
) -> Result<(), Unsent> {
    let mut variables = session.variables.clone();
    variables.extend([("sql_select_limit", "0".to_owned()), ("max_execution_time", "1".to_owned())]);
    server.change_to(Goal { variables: &variables, ..session.goal() }).await?;
    for body in statement.past.bodies() {
        let payload = [&[byte::STMT_EXECUTE], &id.to_le_bytes()[..], body].concat();
        // An error comes behind the types.
        if let Err(error) = server.call(Question::Results, &payload).await {
            return Err(Unsent::Broken(error.to_string()));
        }
    }
    server.change_to(session.goal()).await?;
    server.state.registry.caught_up(statement);
    Ok(())
}

/// Keeps an execution that may have to be repeated on another connection. `payload` has been checked.
fn note_past(payload: &[u8], statement: &mut ClientStatement, types_follow: bool) {
    let mut past = std::mem::take(&mut statement.past);
    past.run(&statement.kinds, || {
        let is_plain = statement.scan.class == Class::Read && statement.scan.effects.is_empty() && statement.long_data.is_empty();
        is_plain.then(|| {
            let mut out = Vec::with_capacity(payload.len() + statement.types.len());
            put_execute(payload, 0, statement, types_follow, &mut out);
            out[CURSOR_FLAG] = 0;
            out.split_off(CURSOR_FLAG)
        })
    });
    statement.past = past;
}

/// The statement is not prepared on this connection: prepare it under the setting under which the client did.
async fn prepare_again(server: &mut PooledConnection<Mysql>, session: &SessionState, statement: &ClientStatement) -> Result<(), Unsent> {
    let text = &statement.text;
    let prepared = if text.setting == session.setting() {
        prepare_here(server, text).await
    } else {
        let prepared = match server.change_to(session.goal().under(&text.setting)).await {
            Ok(()) => prepare_here(server, text).await,
            Err(error) => Err(error.into()),
        };
        // Whatever came of it: the session may have a transaction open here.
        server.change_to(session.goal()).await?;
        prepared
    };
    let id = prepared?;
    let closed = server.state.registry.add(Arc::clone(&statement.text), id);
    close_on_server(server, closed).await;
    Ok(())
}

/// The server's id. A server that has too many statements loses those of this connection first.
async fn prepare_here(server: &mut PooledConnection<Mysql>, text: &StatementText) -> Result<u32, Unsent> {
    let mut payload = vec![byte::STMT_PREPARE];
    payload.extend_from_slice(&text.sql);
    let mut answered = server.call(Question::Prepare, &payload).await;
    if let Ok(Err(error)) = &answered
        && ErrPacket::decode(error).is_ok_and(|error| error.code == error_code::MAX_PREPARED.code)
    {
        let closed = server.state.registry.shed();
        close_on_server(server, closed).await;
        answered = server.call(Question::Prepare, &payload).await;
    }
    match answered {
        Ok(Ok(Answer { prepared: Some(prepared), .. })) => Ok(prepared.statement),
        Ok(Ok(_)) => Err(Unsent::Broken("no answer to COM_STMT_PREPARE".into())),
        Ok(Err(payload)) => Err(Unsent::Refused(payload)),
        Err(error) => Err(Unsent::Broken(error.to_string())),
    }
}

/// Checks an execution before anything is sent, and remembers its types. Tells whether it carries all that a server needs to know
/// of them.
fn check_execute(request: &Request, statement: &mut ClientStatement) -> Result<bool, (ErrorCode, String)> {
    let wrong = || (error_code::WRONG_ARGUMENTS, "Incorrect arguments to mysqld_stmt_execute".to_owned());
    if let Some(wrong) = statement.long_data.wrong() {
        return Err(wrong.error());
    }
    let Ok(Command::Execute { body, .. }) = Command::decode(request.payload()) else { return Err(wrong()) };
    let body = ExecuteBody::decode(body, statement.parameters).map_err(|_| wrong())?;
    if let Some(types) = body.types {
        statement.types.clear();
        statement.types.extend_from_slice(types);
    }
    if statement.types.len() != 2 * usize::from(statement.parameters) {
        // Types may be missing where there is nothing but NULL, as Connector/J sends it.
        if !(0..usize::from(statement.parameters)).all(|index| body.is_null(index)) {
            return Err(wrong());
        }
        statement.types = [kind::NULL, 0].repeat(usize::from(statement.parameters));
    }
    body.check_values(&statement.types, |index| statement.long_data.of(index), &mut statement.kinds).map_err(|_| wrong())?;
    Ok(statement.parameters == 0 || body.types.is_some())
}

/// The payload of an execution with the server's id and with types. `payload` has been checked.
fn put_execute(payload: &[u8], server_id: u32, statement: &ClientStatement, types_follow: bool, out: &mut Vec<u8>) {
    out.push(byte::STMT_EXECUTE);
    out.extend_from_slice(&server_id.to_le_bytes());
    let rest = &payload[5..];
    if types_follow {
        out.extend_from_slice(rest);
        return;
    }
    // Flags and iteration count (5 bytes), NULL bitmap; then the types flag, which was 0.
    let split = 5 + usize::from(statement.parameters).div_ceil(8);
    let (head, tail) = rest.split_at(split.min(rest.len()));
    out.extend_from_slice(head);
    out.push(1);
    out.extend_from_slice(&statement.types);
    out.extend_from_slice(tail.get(1..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_put_in_where_the_client_left_them_out() {
        let mut statement = ClientStatement::new(StatementName(1), StatementText::of(b"SELECT ?, ?"), Rc::default(), 2);
        statement.types = vec![3, 0, 253, 0];
        let payload = [0x17, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0b10, 0, 7, 0, 0, 0];
        let mut out = Vec::new();
        put_execute(&payload, 9, &statement, false, &mut out);
        assert_eq!(out, [0x17, 9, 0, 0, 0, 0, 1, 0, 0, 0, 0b10, 1, 3, 0, 253, 0, 7, 0, 0, 0]);
    }
}
