//! Following an answer by packet header: which of a server's bytes may go to the client, and when the answer is over.
//!
//! Rows and column definitions are skipped by their length and never looked at. Packets that steer the protocol (OK, EOF, ERR,
//! column count, the head of a prepare answer) are read, and changed in place where the client must see something else.
//!
//! ```text
//! First ─ column count ─► Definitions ─ [EOF] ─► Rows ─ EOF or OK ─► Done, or First again (MORE_RESULTS)
//!   ├─ OK ─► Done, or First again          └─ ERR ─► Done
//!   ├─ prepare OK ─► Definitions (parameters) ─ [EOF] ─► Definitions (columns) ─ [EOF] ─► Done
//!   └─ 0xFB ─► LocalInfile: the client sends a file, then `file_sent` ─► First
//! ```

use super::capabilities::{Capabilities, Status};
use super::packet::{HEADER_LEN, Header};
use super::reader::{Reader, WireError};
use super::response::{EofPacket, ErrPacket, OkPacket, PrepareOk};

/// Largest packet that must be seen whole (an OK with session state).
pub const MAX_CONTROL: usize = 1 << 20;

/// What was asked, as far as it decides the form of the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// COM_QUERY, COM_STMT_EXECUTE: results.
    Results,
    /// COM_STMT_PREPARE.
    Prepare,
    /// COM_FIELD_LIST, COM_STMT_FETCH: rows (or definitions) and their end.
    Rows,
    /// COM_INIT_DB, COM_PING, COM_SET_OPTION, COM_STMT_RESET, COM_RESET_CONNECTION: one OK, EOF or ERR.
    Simple,
    /// COM_STATISTICS: one packet of text.
    Text,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Rows,
    PreparedColumns(u16),
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    First,
    Definitions { left: u64, then: Then },
    DefinitionsEof { then: Then },
    Rows,
    LocalInfile,
    Done,
}

/// What an answer said.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// Status of the last OK or EOF; `None` = there was none.
    pub status: Option<Status>,
    /// Warnings of the last result.
    pub warnings: u16,
    /// Affected rows of the last OK.
    pub affected: u64,
    /// Affected rows of all its OKs.
    pub rows_affected: u64,
    /// Rows of all its result sets.
    pub rows: u64,
    /// Last insert id that is not 0.
    pub insert_id: u64,
    /// The ERR that ended it.
    pub error: Option<ErrPacket>,
    /// Session state changes of all its OKs, undecoded.
    pub state: Vec<u8>,
    /// Head of a prepare answer, with the server's statement id.
    pub prepared: Option<PrepareOk>,
    /// Rows of the last result set; `None` = the last result had none (an OK).
    pub last_rows: Option<u64>,
}

/// Bytes after a scan: `[..forward]` go to the client, `[forward..end]` must be kept and scanned again with more behind them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scanned {
    /// Whole packets, and parts of rows.
    pub forward: usize,
    /// Valid bytes; less than before where a packet was shortened.
    pub end: usize,
}

/// One answer.
#[derive(Clone, Debug)]
pub struct AnswerScanner {
    question: Question,
    state: State,
    /// Payload bytes of the current packet that are still to be skipped.
    skip: usize,
    /// The current packet was full, another part of it follows.
    continued: bool,
    deprecate_eof: bool,
    server: Capabilities,
    strip_state: bool,
    /// Added to every sequence id.
    sequence_shift: u8,
    /// Statement id that the client is told.
    statement: Option<u32>,
    /// Sequence id, as the client sees it, of the packet that was released last.
    last_sequence: Option<u8>,
    answer: Answer,
}

impl AnswerScanner {
    /// An answer on a connection with `server` capabilities, for a client with `client` capabilities. They must agree in
    /// DEPRECATE_EOF; a client without SESSION_TRACK gets OK packets without session state.
    #[must_use]
    pub fn new(question: Question, server: Capabilities, client: Capabilities) -> Self {
        let state = if question == Question::Rows { State::Rows } else { State::First };
        Self {
            question,
            state,
            skip: 0,
            continued: false,
            deprecate_eof: server.contains(Capabilities::DEPRECATE_EOF),
            server,
            strip_state: !client.contains(Capabilities::SESSION_TRACK),
            sequence_shift: 0,
            statement: None,
            last_sequence: None,
            answer: Answer::default(),
        }
    }

    /// Adds `shift` to sequence ids (the request was forwarded in another number of parts than it came in).
    #[must_use]
    pub const fn with_sequence_shift(mut self, shift: u8) -> Self {
        self.sequence_shift = shift;
        self
    }

    /// The statement id that a prepare answer gets.
    #[must_use]
    pub const fn with_statement(mut self, id: u32) -> Self {
        self.statement = Some(id);
        self
    }

    /// `true` = the whole answer has been scanned.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done && self.skip == 0 && !self.continued
    }

    /// Sequence id of the packet that was released last (for an ERR of our own behind it); `None` = none was.
    #[must_use]
    pub const fn last_sequence(&self) -> Option<u8> {
        self.last_sequence
    }

    /// `true` = the server asks the client for a file; relay it and call [`Self::file_sent`].
    #[must_use]
    pub fn wants_file(&self) -> bool {
        self.state == State::LocalInfile
    }

    /// The client's file has gone to the server.
    pub fn file_sent(&mut self) {
        self.state = State::First;
    }

    /// `true` between packets: an ERR packet of our own could follow here.
    #[must_use]
    pub const fn at_packet_boundary(&self) -> bool {
        self.skip == 0 && !self.continued
    }

    /// What the answer said so far.
    #[must_use]
    pub const fn answer(&self) -> &Answer {
        &self.answer
    }

    /// The same, owned.
    #[must_use]
    pub fn into_answer(self) -> Answer {
        self.answer
    }

    /// Scans bytes that follow those scanned before (what was kept, then new ones), changing them in place. Cost: one step a
    /// packet; no allocation unless an OK carries session state.
    pub fn scan(&mut self, bytes: &mut [u8]) -> Result<Scanned, WireError> {
        let mut end = bytes.len();
        let mut at = 0;
        loop {
            let step = self.skip.min(end - at);
            at += step;
            self.skip -= step;
            if at == end {
                break;
            }
            let Some(header) = Header::read(&bytes[at..end]) else { break };
            if self.sequence_shift != 0 && (self.continued || self.releases(header, &bytes[at..end])?) {
                bytes[at + 3] = header.sequence.wrapping_add(self.sequence_shift);
            }
            let sequence = header.sequence.wrapping_add(self.sequence_shift);
            if self.continued {
                self.skip_packet(header);
                self.last_sequence = Some(sequence);
                at += HEADER_LEN;
                continue;
            }
            let Some(&first) = bytes[..end].get(at + HEADER_LEN) else {
                if header.length == 0 && end >= at + HEADER_LEN {
                    return Err(WireError::Malformed("empty packet in an answer"));
                }
                break;
            };
            if self.skips(header, first)? {
                self.skip_packet(header);
                self.last_sequence = Some(sequence);
                at += HEADER_LEN;
                continue;
            }
            if header.length > MAX_CONTROL {
                return Err(WireError::TooLong { announced: header.length, limit: MAX_CONTROL });
            }
            let after = at + HEADER_LEN + header.length;
            if after > end {
                break;
            }
            let shorter = self.on_control(&mut bytes[at..after])?;
            if shorter > 0 {
                bytes.copy_within(after..end, after - shorter);
                end -= shorter;
            }
            at = after - shorter;
            self.last_sequence = Some(sequence);
        }
        Ok(Scanned { forward: at, end })
    }

    fn skip_packet(&mut self, header: Header) {
        self.skip = header.length;
        self.continued = header.continues();
    }

    /// `true` = the packet that starts here will leave in this scan (so that its header may be patched once).
    fn releases(&self, header: Header, bytes: &[u8]) -> Result<bool, WireError> {
        let Some(&first) = bytes.get(HEADER_LEN) else { return Ok(false) };
        let skipped = match self.state {
            State::Definitions { .. } => true,
            State::Rows => !self.ends_rows(header, first),
            _ => false,
        };
        Ok(skipped || bytes.len() >= HEADER_LEN + header.length)
    }

    /// `true` = the packet is a row or a definition, to be forwarded unseen.
    fn skips(&mut self, header: Header, first: u8) -> Result<bool, WireError> {
        match &mut self.state {
            State::Definitions { left, then } => {
                if first == 0xff {
                    return Err(WireError::Malformed("error packet among column definitions"));
                }
                let then = *then;
                *left -= 1;
                if *left == 0 {
                    if self.deprecate_eof {
                        self.enter(then);
                    } else {
                        self.state = State::DefinitionsEof { then };
                    }
                }
                Ok(true)
            }
            State::Rows => {
                let is_row = !self.ends_rows(header, first);
                self.answer.rows += u64::from(is_row);
                *self.answer.last_rows.get_or_insert(0) += u64::from(is_row);
                Ok(is_row)
            }
            State::Done => Err(WireError::Malformed("bytes after the end of an answer")),
            State::LocalInfile => Err(WireError::Malformed("bytes while a file is awaited")),
            State::First | State::DefinitionsEof { .. } => Ok(false),
        }
    }

    /// A text row that starts with 0xFE has a first column of 16 MiB or more and so is a full part; binary rows start with 0.
    const fn ends_rows(&self, header: Header, first: u8) -> bool {
        match first {
            0xff => true,
            0xfe if self.deprecate_eof => !header.continues(),
            0xfe => header.length < 9,
            _ => false,
        }
    }

    fn enter(&mut self, then: Then) {
        self.state = match then {
            Then::Rows => State::Rows,
            Then::PreparedColumns(0) | Then::Done => State::Done,
            Then::PreparedColumns(count) => State::Definitions { left: u64::from(count), then: Then::Done },
        };
    }

    /// A packet that must be read, header included. Returns by how many bytes it became shorter.
    fn on_control(&mut self, packet: &mut [u8]) -> Result<usize, WireError> {
        let payload = &packet[HEADER_LEN..];
        match (self.state, payload[0]) {
            (_, 0xff) if self.question != Question::Text => {
                self.answer.error = Some(ErrPacket::decode(payload)?);
                self.state = State::Done;
                Ok(0)
            }
            (State::DefinitionsEof { then }, 0xfe) => {
                let status = self.read_eof(packet)?.status;
                self.answer.status = Some(status);
                // With a cursor the rows come by COM_STMT_FETCH.
                let cursor = status.contains(Status::CURSOR_EXISTS);
                self.enter(if then == Then::Rows && cursor { Then::Done } else { then });
                Ok(0)
            }
            (State::Rows, _) if self.deprecate_eof => self.on_ok(packet),
            (State::Rows, _) => self.on_eof(packet).map(|()| 0),
            (State::First, first) => self.on_first(first, packet),
            _ => Err(WireError::Malformed("unexpected packet in an answer")),
        }
    }

    fn on_first(&mut self, first: u8, packet: &mut [u8]) -> Result<usize, WireError> {
        let payload = &packet[HEADER_LEN..];
        match (self.question, first) {
            (Question::Text, _) => {
                self.state = State::Done;
                Ok(0)
            }
            (Question::Prepare, 0) => self.on_prepared(packet).map(|()| 0),
            (Question::Results | Question::Simple, 0) => {
                self.answer.last_rows = None;
                self.on_ok(packet)
            }
            (Question::Simple, 0xfe) if payload.len() <= 5 => self.on_eof(packet).map(|()| 0),
            (Question::Simple, 0xfe) => self.on_ok(packet),
            (Question::Results, 0xfb) => {
                self.state = State::LocalInfile;
                Ok(0)
            }
            (Question::Results, _) => {
                let left = Reader::new(payload).lenenc("column count")?;
                self.answer.last_rows = Some(0);
                self.state = State::Definitions { left, then: Then::Rows };
                Ok(0)
            }
            _ => Err(WireError::Malformed("unexpected first packet of an answer")),
        }
    }

    fn on_prepared(&mut self, packet: &mut [u8]) -> Result<(), WireError> {
        let prepared = PrepareOk::decode(&packet[HEADER_LEN..])?;
        if let Some(id) = self.statement {
            packet[HEADER_LEN + 1..HEADER_LEN + 5].copy_from_slice(&id.to_le_bytes());
        }
        self.answer.prepared = Some(prepared);
        self.answer.warnings = prepared.warnings;
        if prepared.parameters == 0 {
            self.enter(Then::PreparedColumns(prepared.columns));
        } else {
            self.state = State::Definitions { left: u64::from(prepared.parameters), then: Then::PreparedColumns(prepared.columns) };
        }
        Ok(())
    }

    fn on_eof(&mut self, packet: &mut [u8]) -> Result<(), WireError> {
        let eof = self.read_eof(packet)?;
        self.on_result_end(eof.status, eof.warnings);
        Ok(())
    }

    /// Reads an EOF packet. A client without session state never sees its flag.
    fn read_eof(&self, packet: &mut [u8]) -> Result<EofPacket, WireError> {
        let eof = EofPacket::decode(&packet[HEADER_LEN..])?;
        if self.strip_state && eof.status.contains(Status::SESSION_STATE_CHANGED) {
            let status = eof.status.without(Status::SESSION_STATE_CHANGED);
            packet[HEADER_LEN + 3..HEADER_LEN + 5].copy_from_slice(&status.0.to_le_bytes());
        }
        Ok(eof)
    }

    fn on_ok(&mut self, packet: &mut [u8]) -> Result<usize, WireError> {
        let payload = &packet[HEADER_LEN..];
        let ok = OkPacket::decode(payload, self.server)?;
        if ok.insert_id != 0 {
            self.answer.insert_id = ok.insert_id;
        }
        self.answer.affected = ok.affected;
        self.answer.rows_affected = self.answer.rows_affected.saturating_add(ok.affected);
        let shorter = if ok.state.is_empty() && !ok.status.contains(Status::SESSION_STATE_CHANGED) {
            0
        } else {
            self.answer.state.extend_from_slice(ok.state);
            if self.strip_state { payload.len() } else { 0 }
        };
        self.on_result_end(ok.status, ok.warnings);
        if shorter == 0 {
            return Ok(0);
        }
        let mut stripped = Vec::with_capacity(payload.len());
        OkPacket { state: &[], ..ok }.encode(payload[0], &mut stripped);
        let header = Header { length: stripped.len(), sequence: packet[3] };
        packet[..HEADER_LEN].copy_from_slice(&header.bytes());
        packet[HEADER_LEN..HEADER_LEN + stripped.len()].copy_from_slice(&stripped);
        Ok(shorter - stripped.len())
    }

    fn on_result_end(&mut self, status: Status, warnings: u16) {
        self.answer.status = Some(status);
        self.answer.warnings = warnings;
        let more = status.contains(Status::MORE_RESULTS) && self.question == Question::Results;
        self.state = if more { State::First } else { State::Done };
    }
}

#[cfg(test)]
#[path = "scanner_test.rs"]
mod tests;
