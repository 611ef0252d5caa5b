//! Commands of our own to a server: whole answers, not forwarded to anybody.

use std::io;

use quorumsql_wire::mysql::packet::decode_packet;
use quorumsql_wire::mysql::scanner::{Answer, AnswerScanner, MAX_CONTROL, Question};
use quorumsql_wire::mysql::{PacketWriter, WireError};
use thiserror::Error;

use super::Backend;

/// The connection is of no use any more.
#[derive(Debug, Error)]
pub(crate) enum BrokenBackend {
    /// Socket.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server closed.
    #[error("server closed the connection")]
    Closed,
    /// Bytes.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// What came of a command: the answer, or the ERR packet's payload.
pub(crate) type Outcome = Result<Answer, Vec<u8>>;

impl Backend {
    /// Sends a command and reads its whole answer; rows and definitions are thrown away.
    pub(crate) async fn call(&mut self, question: Question, payload: &[u8]) -> Result<Outcome, BrokenBackend> {
        let mut packet = self.link.chunks().take();
        let mut bytes = Vec::with_capacity(payload.len() + 8);
        PacketWriter::new(&mut bytes, 0).payload(payload);
        packet.extend_from_slice(&bytes);
        self.link.send(packet).await?;
        self.read_answer(question).await
    }

    /// The answer to a command that has been sent.
    pub(crate) async fn read_answer(&mut self, question: Question) -> Result<Outcome, BrokenBackend> {
        let capabilities = self.state.capabilities;
        let mut scanner = AnswerScanner::new(question, capabilities, capabilities);
        let mut bytes = Vec::new();
        loop {
            let chunk = self.link.recv().await?;
            if chunk.is_empty() {
                return Err(BrokenBackend::Closed);
            }
            bytes.extend_from_slice(&chunk);
            drop(chunk);
            let scanned = scanner.scan(&mut bytes)?;
            if scanner.answer().error.is_some() {
                return Ok(Err(error_payload(&bytes[..scanned.end])?));
            }
            if scanner.is_done() {
                let answer = scanner.into_answer();
                self.state.on_answer(&answer);
                return Ok(Ok(answer));
            }
            bytes.truncate(scanned.end);
            bytes.drain(..scanned.forward);
        }
    }

    /// Runs a statement of our own that has no result set.
    pub(crate) async fn run(&mut self, sql: &str) -> Result<Outcome, BrokenBackend> {
        let mut payload = vec![quorumsql_wire::mysql::command::byte::QUERY];
        payload.extend_from_slice(sql.as_bytes());
        self.call(Question::Results, &payload).await
    }
}

/// The payload of the ERR packet that ends `bytes`; answers to commands of ours have it first.
fn error_payload(bytes: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut rest = bytes;
    while let Some(packet) = decode_packet(rest, MAX_CONTROL)? {
        if packet.payload.first() == Some(&0xff) {
            return Ok(packet.payload.into_owned());
        }
        rest = &rest[packet.consumed..];
    }
    Err(WireError::Truncated("error packet"))
}
