//! The PostgreSQL face: login, simple and extended protocol (admin-commands.md 13, pgsql-dataplane.md 2).

mod casts;
mod extended;
mod login;
mod message;

use std::io;
use std::sync::Arc;

use quorumsql_raft::Newcomer;
use quorumsql_wire::pgsql::backend::{self, TransactionStatus};
use quorumsql_wire::pgsql::frame;
use quorumsql_wire::pgsql::frontend::FrontendMessage;
use tokio::net::TcpStream;

use super::database::{Answer, Database, Session, SqlError};
use super::lexer::statements;
use super::listener::{Client, LOGIN_TIME, ServeOptions};
use super::socket::Socket;
use extended::Extended;
use message::{error_fields, write_error, write_notices};

/// Largest message that is read.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// Bytes that are collected before they are sent.
const SEND_BYTES: usize = 64 * 1024;

/// One client from start-up packet to end.
pub(super) async fn converse<D: Database>(
    socket: TcpStream,
    client: Client,
    newcomer: Newcomer,
    database: Arc<D>,
    options: ServeOptions,
) -> io::Result<()> {
    let login = login::login(Socket::new(socket), client, &*database, &options);
    let Some((socket, session)) = tokio::time::timeout(LOGIN_TIME, login).await?? else { return Ok(()) };
    drop(newcomer);
    Connection { socket, session, extended: Extended::default(), out: Vec::new() }.serve().await
}

struct Connection<S> {
    socket: Socket,
    session: S,
    extended: Extended,
    out: Vec<u8>,
}

/// An owned message: its bytes leave the buffer before it is carried out.
struct Message {
    tag: u8,
    body: Vec<u8>,
}

impl<S: Session> Connection<S> {
    async fn serve(mut self) -> io::Result<()> {
        loop {
            let message = self.read().await?;
            let decoded = FrontendMessage::decode(frame::Frame { tag: message.tag, body: &message.body });
            let goes_on = match decoded {
                Ok(FrontendMessage::Terminate) => return Ok(()),
                Ok(decoded) => self.on_message(decoded).await?,
                Err(_) => {
                    let error = SqlError::new(1835, "HY000", "08P01", "invalid frontend message");
                    error_fields(&error, true).encode(&mut self.out);
                    false
                }
            };
            // What is pending goes out when nothing more has arrived, and at the end of each batch.
            if self.socket.arrived.is_empty() || self.out.len() >= SEND_BYTES || !goes_on {
                self.socket.send(&mut self.out).await?;
            }
            if !goes_on {
                return Ok(());
            }
        }
    }

    async fn read(&mut self) -> io::Result<Message> {
        loop {
            let decoded = frame::decode(&self.socket.arrived, MAX_MESSAGE)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            if let Some(found) = decoded {
                let message = Message { tag: found.tag, body: found.body.to_vec() };
                let size = found.size();
                bytes::Buf::advance(&mut self.socket.arrived, size);
                return Ok(message);
            }
            self.socket.fill().await?;
        }
    }

    /// `false` = the connection ends.
    async fn on_message(&mut self, message: FrontendMessage<'_>) -> io::Result<bool> {
        match message {
            FrontendMessage::Terminate => return Ok(false),
            FrontendMessage::Query(sql) => return self.query(sql).await,
            FrontendMessage::Sync => {
                self.extended.end_of_batch(self.session.status().in_transaction);
                self.ready();
                self.socket.send(&mut self.out).await?;
            }
            FrontendMessage::Flush => self.socket.send(&mut self.out).await?,
            FrontendMessage::Parse(_)
            | FrontendMessage::Bind(_)
            | FrontendMessage::Describe(..)
            | FrontendMessage::Execute { .. }
            | FrontendMessage::Close(..) => {
                return self.extended_message(message).await;
            }
            FrontendMessage::CopyData(_) | FrontendMessage::CopyDone | FrontendMessage::CopyFail(_) => {}
            FrontendMessage::Password(_) | FrontendMessage::FunctionCall(_) => {
                write_error(&mut self.out, &SqlError::new(1045, "28000", "0A000", "Feature not supported"));
                self.ready();
            }
        }
        Ok(true)
    }

    fn ready(&mut self) {
        let status = self.session.status();
        let status = match (status.in_transaction, status.failed) {
            (true, true) => TransactionStatus::Failed,
            (true, false) => TransactionStatus::InTransaction,
            (false, _) => TransactionStatus::Idle,
        };
        backend::ready_for_query(&mut self.out, status);
    }

    /// Runs all statements of the text in order; an error stops the rest.
    async fn query(&mut self, sql: &[u8]) -> io::Result<bool> {
        self.extended.forget_unnamed();
        let Ok(sql) = std::str::from_utf8(sql) else {
            write_error(&mut self.out, &message::not_utf8());
            self.ready();
            return Ok(true);
        };
        let pieces = statements(sql);
        if pieces.is_empty() {
            backend::empty_query(&mut self.out);
        }
        for piece in pieces {
            match self.socket.while_connected(self.session.execute(piece, &[])).await? {
                Ok(answer) => {
                    self.simple_answer(&answer, piece).await?;
                    if matches!(&answer, Answer::Done(done) if done.close) {
                        return Ok(false);
                    }
                }
                Err(error) => {
                    write_error(&mut self.out, &error);
                    break;
                }
            }
        }
        self.ready();
        Ok(true)
    }

    async fn simple_answer(&mut self, answer: &Answer, sql: &str) -> io::Result<()> {
        match answer {
            Answer::Rows(rows) => {
                write_notices(&mut self.out, &rows.notices);
                message::write_columns(&mut self.out, &rows.columns, |_| Some(quorumsql_wire::pgsql::frontend::Format::Text));
                for row in &rows.rows {
                    message::write_row(&mut self.out, &rows.columns, row, |_| Some(quorumsql_wire::pgsql::frontend::Format::Text));
                    if self.out.len() >= SEND_BYTES {
                        self.socket.send(&mut self.out).await?;
                    }
                }
                backend::command_complete(&mut self.out, &format!("SELECT {}", rows.rows.len()));
            }
            Answer::Done(done) => {
                write_notices(&mut self.out, &done.notices);
                backend::command_complete(&mut self.out, &message::tag(done, sql));
            }
        }
        Ok(())
    }

    /// Parse, Bind, Describe, Execute, Close: after an error everything up to Sync is skipped.
    async fn extended_message(&mut self, message: FrontendMessage<'_>) -> io::Result<bool> {
        if self.extended.is_skipping() {
            return Ok(true);
        }
        let carried_out = self.socket.while_connected(self.extended.on_message(message, &mut self.session, &mut self.out)).await?;
        match carried_out {
            Ok(goes_on) => Ok(goes_on),
            Err(error) => {
                write_error(&mut self.out, &error);
                self.extended.skip_to_sync();
                Ok(true)
            }
        }
    }
}
