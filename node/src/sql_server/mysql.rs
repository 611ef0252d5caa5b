//! The MySQL face: login, commands, prepared statements (admin-commands.md 1, 12).

mod login;
mod prepared;
mod result;

use std::io;
use std::sync::Arc;

use quorumsql_raft::Newcomer;
use quorumsql_wire::mysql::response::{ErrPacket, OkPacket};
use quorumsql_wire::mysql::{Capabilities, Command, PacketWriter, Status as Flags, decode_packet};
use tokio::net::TcpStream;

use super::database::{Answer, Database, Done, Session, SqlError, Status};
use super::lexer::statements;
use super::listener::{Client, LOGIN_TIME, ServeOptions};
use super::socket::Socket;
use prepared::PreparedStatements;

/// Largest command that is read.
const MAX_COMMAND: usize = 64 * 1024 * 1024;

/// One client from greeting to end.
pub(super) async fn converse<D: Database>(
    socket: TcpStream,
    client: Client,
    newcomer: Newcomer,
    database: Arc<D>,
    options: ServeOptions,
) -> io::Result<()> {
    let login = login::login(Socket::new(socket), client, &*database, &options);
    let Some((socket, capabilities, session)) = tokio::time::timeout(LOGIN_TIME, login).await?? else { return Ok(()) };
    drop(newcomer);
    Connection { socket, capabilities, session, prepared: PreparedStatements::default(), out: Vec::new() }.serve().await
}

struct Connection<S> {
    socket: Socket,
    capabilities: Capabilities,
    session: S,
    prepared: PreparedStatements,
    out: Vec<u8>,
}

impl<S: Session> Connection<S> {
    async fn serve(mut self) -> io::Result<()> {
        loop {
            let (payload, sequence) = read_packet(&mut self.socket, MAX_COMMAND).await?;
            let Ok(command) = Command::decode(&payload) else { return Err(io::ErrorKind::InvalidData.into()) };
            if matches!(command, Command::Quit) {
                return Ok(());
            }
            let goes_on = self.command(command, sequence.wrapping_add(1)).await?;
            self.socket.send(&mut self.out).await?;
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Answers one command; `false` = the connection ends.
    async fn command(&mut self, command: Command<'_>, sequence: u8) -> io::Result<bool> {
        match command {
            Command::Quit => return Ok(false),
            Command::Query(sql) => return self.query(sql, sequence).await,
            Command::Prepare(sql) => self.prepare(sql, sequence).await?,
            Command::Execute { statement, body, .. } => return self.execute(statement, body, sequence).await,
            Command::SendLongData { statement, parameter, data } => self.prepared.long_data(statement, parameter, data),
            Command::CloseStatement(statement) => self.prepared.close(statement),
            Command::ResetStatement(statement) => {
                let reset = self.prepared.reset(statement);
                self.finish(reset, sequence);
            }
            Command::Ping | Command::SetOption(_) => self.finish(Ok(()), sequence),
            Command::InitDb(name) => {
                let used = self.session.use_database(&String::from_utf8_lossy(name));
                self.finish(used, sequence);
            }
            Command::ResetConnection => {
                let reset = self.session.reset();
                if reset.is_ok() {
                    self.prepared = PreparedStatements::default();
                }
                self.finish(reset, sequence);
            }
            Command::Statistics => PacketWriter::new(&mut self.out, sequence).payload(b"quorumsql"),
            Command::ProcessKill(_) => self.finish(Err(SqlError::new(9003, "28000", "0A000", "Command not supported")), sequence),
            Command::FieldList { .. } | Command::Fetch { .. } => {
                self.finish(Err(SqlError::new(1045, "28000", "0A000", "Command not supported")), sequence)
            }
            Command::ChangeUser(_) => {
                self.finish(Err(SqlError::new(1047, "08S01", "0A000", "Received unsupported 'COM_CHANGE_USER'")), sequence)
            }
            Command::Other(byte) => self.finish(Err(SqlError::new(1047, "08S01", "0A000", format!("Unknown command {byte}"))), sequence),
        }
        Ok(true)
    }

    /// Runs all statements of the packet in order; an error stops the rest.
    async fn query(&mut self, sql: &[u8], sequence: u8) -> io::Result<bool> {
        let Ok(sql) = std::str::from_utf8(sql) else {
            self.finish(Err(not_utf8()), sequence);
            return Ok(true);
        };
        let mut pieces = statements(sql);
        if pieces.is_empty() {
            pieces.push(sql);
        }
        let mut sequence = sequence;
        for (at, piece) in pieces.iter().enumerate() {
            let more = at + 1 < pieces.len();
            match self.socket.while_connected(self.session.execute(piece, &[])).await? {
                Ok(answer) => {
                    let close = matches!(&answer, Answer::Done(Done { close: true, .. }));
                    sequence = self.answer(&answer, more, sequence, false).await?;
                    if close {
                        return Ok(false);
                    }
                }
                Err(error) => {
                    self.finish(Err(error), sequence);
                    break;
                }
            }
        }
        Ok(true)
    }

    async fn prepare(&mut self, sql: &[u8], sequence: u8) -> io::Result<()> {
        let Ok(sql) = std::str::from_utf8(sql) else {
            self.finish(Err(not_utf8()), sequence);
            return Ok(());
        };
        let sql = sql.trim().trim_end_matches(';');
        if statements(sql).len() > 1 {
            self.finish(Err(SqlError::new(1064, "42000", "42601", "a prepared statement is one statement")), sequence);
            return Ok(());
        }
        let described = self.socket.while_connected(self.session.describe(sql)).await?;
        let added = described.and_then(|description| self.prepared.add(sql, description));
        match added {
            Ok(prepared) => result::write_prepare_ok(
                &prepared,
                self.capabilities,
                flags(self.session.status()),
                &mut PacketWriter::new(&mut self.out, sequence),
            ),
            Err(error) => self.finish(Err(error), sequence),
        }
        Ok(())
    }

    async fn execute(&mut self, statement: u32, body: &[u8], sequence: u8) -> io::Result<bool> {
        let (sql, params) = match self.prepared.bind(statement, body) {
            Ok(bound) => bound,
            Err(error) => {
                self.finish(Err(error), sequence);
                return Ok(true);
            }
        };
        match self.socket.while_connected(self.session.execute(&sql, &params)).await? {
            Ok(answer) => {
                self.answer(&answer, false, sequence, true).await?;
                Ok(!matches!(answer, Answer::Done(Done { close: true, .. })))
            }
            Err(error) => {
                self.finish(Err(error), sequence);
                Ok(true)
            }
        }
    }

    async fn answer(&mut self, answer: &Answer, more: bool, sequence: u8, binary: bool) -> io::Result<u8> {
        let status = self.session.status();
        let flags = if more { flags(status).with(Flags::MORE_RESULTS) } else { flags(status) };
        match answer {
            Answer::Done(done) => {
                let mut packets = PacketWriter::new(&mut self.out, sequence);
                let ok = OkPacket {
                    affected: done.affected,
                    insert_id: done.last_insert_id,
                    status: flags,
                    warnings: status.warnings,
                    info: done.info.as_bytes(),
                    ..OkPacket::default()
                };
                packets.packet(|out| ok.encode(0, out));
                Ok(packets.sequence())
            }
            Answer::Rows(rows) => {
                let end = quorumsql_wire::mysql::column::End { status: flags, warnings: status.warnings };
                result::send_rows(rows, end, self.capabilities, binary, sequence, &mut self.socket, &mut self.out).await
            }
        }
    }

    /// OK or ERR.
    fn finish(&mut self, result: Result<(), SqlError>, sequence: u8) {
        let status = self.session.status();
        let mut packets = PacketWriter::new(&mut self.out, sequence);
        match result {
            Ok(()) => packets.packet(|out| OkPacket { status: flags(status), ..OkPacket::default() }.encode(0, out)),
            Err(error) => packets.packet(|out| err_packet(&error).encode(out)),
        }
    }
}

fn flags(status: Status) -> Flags {
    let mut flags = Flags::NO_BACKSLASH_ESCAPES;
    if status.autocommit {
        flags = flags.with(Flags::AUTOCOMMIT);
    }
    if status.in_transaction {
        flags = flags.with(Flags::IN_TRANS);
    }
    flags
}

fn not_utf8() -> SqlError {
    SqlError::new(1300, "HY000", "22021", "the statement is not valid UTF-8")
}

fn err_packet(error: &SqlError) -> ErrPacket {
    let mut sqlstate = *b"HY000";
    if error.mysql_state.len() == sqlstate.len() {
        sqlstate.copy_from_slice(error.mysql_state.as_bytes());
    }
    ErrPacket { code: error.mysql_code, sqlstate, message: error.message.clone() }
}

/// The next whole packet and the sequence id of its last part.
async fn read_packet(socket: &mut Socket, limit: usize) -> io::Result<(Vec<u8>, u8)> {
    loop {
        let decoded =
            decode_packet(&socket.arrived, limit).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        if let Some(packet) = decoded {
            let (payload, consumed, sequence) = (packet.payload.into_owned(), packet.consumed, packet.sequence);
            bytes::Buf::advance(&mut socket.arrived, consumed);
            return Ok((payload, sequence));
        }
        socket.fill().await?;
    }
}
