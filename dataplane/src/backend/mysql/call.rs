//! Commands of our own to a server: whole answers, not forwarded to anybody.

use std::io;

use quorumsql_wire::mysql::command::byte;
use quorumsql_wire::mysql::packet::decode_packet;
use quorumsql_wire::mysql::reader::Reader;
use quorumsql_wire::mysql::scanner::{Answer, AnswerScanner, MAX_CONTROL, Question};
use quorumsql_wire::mysql::{Capabilities, EofPacket, OkPacket, PacketWriter, WireError};
use thiserror::Error;

use super::Backend;
use super::counts::CountsOf;
use super::diagnostics::Diagnostics;

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
                self.on_own_error();
                return Ok(Err(error_payload(&bytes[..scanned.end])?));
            }
            if scanner.is_done() {
                let answer = scanner.into_answer();
                self.on_own_answer(&answer);
                return Ok(Ok(answer));
            }
            bytes.truncate(scanned.end);
            bytes.drain(..scanned.forward);
        }
    }

    /// Sends commands in one piece and reads their answers, which must be one packet each (OK, EOF or ERR).
    pub(crate) async fn pipeline(&mut self, payloads: &[Vec<u8>]) -> Result<Vec<Outcome>, BrokenBackend> {
        let mut bytes = Vec::new();
        for payload in payloads {
            PacketWriter::new(&mut bytes, 0).payload(payload);
        }
        if !bytes.is_empty() {
            self.link.send_bytes(&bytes).await?;
        }
        bytes.clear();
        let mut outcomes = Vec::with_capacity(payloads.len());
        while outcomes.len() < payloads.len() {
            let Some(packet) = decode_packet(&bytes, MAX_CONTROL)? else {
                let chunk = self.link.recv().await?;
                if chunk.is_empty() {
                    return Err(BrokenBackend::Closed);
                }
                bytes.extend_from_slice(&chunk);
                continue;
            };
            let (payload, consumed) = (packet.payload.into_owned(), packet.consumed);
            bytes.drain(..consumed);
            outcomes.push(self.on_short_answer(payload)?);
        }
        if !bytes.is_empty() {
            return Err(WireError::Malformed("bytes after the end of an answer").into());
        }
        Ok(outcomes)
    }

    fn on_short_answer(&mut self, payload: Vec<u8>) -> Result<Outcome, BrokenBackend> {
        let mut answer = Answer::default();
        match payload.first() {
            Some(0xff) => {
                self.on_own_error();
                return Ok(Err(payload));
            }
            Some(0xfe) if payload.len() <= 5 => {
                let eof = EofPacket::decode(&payload)?;
                (answer.status, answer.warnings) = (Some(eof.status), eof.warnings);
            }
            Some(0 | 0xfe) => {
                let ok = OkPacket::decode(&payload, self.state.capabilities)?;
                (answer.status, answer.warnings, answer.state) = (Some(ok.status), ok.warnings, ok.state.to_vec());
            }
            _ => return Err(WireError::Malformed("unexpected answer to a command").into()),
        }
        self.on_own_answer(&answer);
        Ok(Ok(answer))
    }

    /// Warnings and counts of commands of our own are nothing that a session may see.
    fn on_own_answer(&mut self, answer: &Answer) {
        self.state.counts_of = CountsOf::NOBODY;
        self.state.on_answer(answer);
        if answer.warnings > 0 {
            self.state.diagnostics = Diagnostics::Foreign;
        }
    }

    fn on_own_error(&mut self) {
        self.state.counts_of = CountsOf::NOBODY;
        self.state.diagnostics = Diagnostics::Foreign;
    }

    /// A number that a statement of our own selects; `None` = it did not.
    pub(crate) async fn select_number(&mut self, sql: &str) -> Result<Option<u64>, BrokenBackend> {
        let payload = [&[byte::QUERY], sql.as_bytes()].concat();
        let mut bytes = Vec::new();
        PacketWriter::new(&mut bytes, 0).payload(&payload);
        self.link.send_bytes(&bytes).await?;
        bytes.clear();
        let capabilities = self.state.capabilities;
        let mut scanner = AnswerScanner::new(Question::Results, capabilities, capabilities);
        let (mut unread, mut whole) = (Vec::new(), Vec::new());
        while !scanner.is_done() {
            let chunk = self.link.recv().await?;
            if chunk.is_empty() {
                return Err(BrokenBackend::Closed);
            }
            unread.extend_from_slice(&chunk);
            let scanned = scanner.scan(&mut unread)?;
            unread.truncate(scanned.end);
            whole.extend(unread.drain(..scanned.forward));
        }
        self.on_own_answer(scanner.answer());
        // Column count, one definition, its EOF for an old server; then the row.
        let before = if capabilities.contains(Capabilities::DEPRECATE_EOF) { 2 } else { 3 };
        let mut rest = &whole[..];
        for _ in 0..before {
            let Some(packet) = decode_packet(rest, MAX_CONTROL)? else { return Ok(None) };
            rest = &rest[packet.consumed..];
        }
        let Some(row) = decode_packet(rest, MAX_CONTROL)? else { return Ok(None) };
        let value = Reader::new(&row.payload).lenenc_bytes("value").ok();
        Ok(value.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()))
    }

    /// Runs a statement of our own that has no result set.
    pub(crate) async fn run(&mut self, sql: &str) -> Result<Outcome, BrokenBackend> {
        let mut payload = vec![byte::QUERY];
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
