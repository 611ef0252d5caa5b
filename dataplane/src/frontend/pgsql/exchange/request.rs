//! Messages of the client: framing, caps, and what happens to each while no server connection is held.

use quorumsql_wire::pgsql::backend;
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frame::{HEADER_LENGTH, Header};
use quorumsql_wire::pgsql::frontend::{FrontendMessage, Target};
use quorumsql_wire::pgsql::sqlstate;

use super::{BACKLOG, End, Exchange, Next, Passing, SMALL_MESSAGE};
use crate::config::{HostgroupId, Protocol};
use crate::worker::chunk::Chunk;

/// Longest message that the protocol can express.
const LONGEST: usize = i32::MAX as usize;

/// What became of the message at the front.
pub(super) enum Done {
    /// It goes to the server as it is.
    AsIs,
    /// It has been dealt with.
    Consumed,
    /// It has been dealt with up to this many bytes; the rest is passed on or thrown away.
    Started(usize, Passing),
    /// It stays where it is until something has happened.
    Later,
    /// It stays where it is; more of the input is needed first, so many bytes in all.
    More(usize),
    /// It stays where it is until there is a server connection.
    Attach(HostgroupId),
}

impl Exchange<'_> {
    /// Deals with the client's messages as far as possible without waiting.
    pub(super) fn advance(&mut self) -> Result<Next, End> {
        loop {
            if self.to_server_len() > BACKLOG || self.out.as_ref().is_some_and(|out| out.len() > BACKLOG) {
                return Ok(Next::Wait);
            }
            let Some(mut chunk) = self.input.take() else { return Ok(Next::Wait) };
            if self.passing.left > 0 {
                self.pass(chunk);
                continue;
            }
            // PostgreSQL closes without a word when a length is below its minimum.
            let Some(header) = Header::decode(&chunk, LONGEST).map_err(|_| End::Quiet)? else {
                self.wanted = HEADER_LENGTH;
                self.input = Some(chunk);
                return Ok(Next::Wait);
            };
            if !FrontendMessage::is_known(header.tag) {
                let text = format!("invalid frontend message type {}", header.tag);
                return Err(End::Fatal(ErrorFields::fatal(sqlstate::PROTOCOL_VIOLATION, text)));
            }
            let here = header.size().min(chunk.len());
            let done = match self.on_message(header, &chunk) {
                Err(End::Malformed) => self.on_malformed(header, &chunk)?,
                other => other?,
            };
            match done {
                Done::AsIs => {
                    if let Some(rest) = self.forward(chunk, header.size()) {
                        self.input = Some(rest);
                    }
                }
                Done::Consumed => {
                    chunk.advance(here);
                    self.input = (!chunk.is_empty()).then_some(chunk);
                }
                Done::Started(size, passing) => {
                    chunk.advance(size);
                    self.passing = passing;
                    self.input = (!chunk.is_empty()).then_some(chunk);
                }
                Done::Later => {
                    self.input = Some(chunk);
                    self.wanted = 0;
                    return Ok(Next::Wait);
                }
                Done::More(wanted) => {
                    self.input = Some(chunk);
                    self.wanted = wanted;
                    return Ok(Next::Wait);
                }
                Done::Attach(hostgroup) => {
                    self.input = Some(chunk);
                    return Ok(Next::Attach(hostgroup));
                }
            }
        }
    }

    /// Passes on, or throws away, more of a message whose start has been dealt with.
    fn pass(&mut self, mut chunk: Chunk) {
        let count = self.passing.left.min(chunk.len());
        self.passing.left -= count;
        if self.passing.to_server && self.server.is_some() {
            self.input = self.forward(chunk, count);
        } else {
            chunk.advance(count);
            self.input = (!chunk.is_empty()).then_some(chunk);
        }
    }

    /// Sends the first `count` bytes of `chunk` to the server; without a copy if that is all of it and nothing waits before it.
    fn forward(&mut self, mut chunk: Chunk, count: usize) -> Option<Chunk> {
        let Some(server) = &mut self.server else { return Some(chunk) };
        server.conn.cells().bytes_sent.add(count as u64);
        match &mut server.to_server {
            None if count == chunk.len() => {
                server.to_server = Some(chunk);
                return None;
            }
            Some(waiting) => waiting.extend_from_slice(&chunk[..count]),
            none => *none = Some(self.client.ctx.chunks().copy_of(&chunk[..count])),
        }
        chunk.advance(count);
        (!chunk.is_empty()).then_some(chunk)
    }

    fn on_message(&mut self, header: Header, input: &[u8]) -> Result<Done, End> {
        if self.client.skip_to_sync && !matches!(header.tag, b'S' | b'X') {
            return Ok(drop_message(header, input));
        }
        if self.server.is_some() {
            return self.on_attached(header, input);
        }
        if self.client.aborted.is_some() {
            return self.on_aborted(header, input);
        }
        match header.tag {
            b'Q' => self.on_query(header, input),
            b'S' => {
                empty_body(header)?;
                self.client.skip_to_sync = false;
                let status = self.status();
                self.say_with(|out| backend::ready_for_query(out, status));
                Ok(Done::Consumed)
            }
            b'X' => self.on_leave(),
            b'C' => match self.whole(header, input, SMALL_MESSAGE)? {
                Some(FrontendMessage::Close(Target::Statement, name)) => {
                    self.client.statements.remove(name);
                    if name.is_empty() {
                        self.client.unnamed = None;
                    }
                    self.say_with(backend::close_complete);
                    Ok(Done::Consumed)
                }
                Some(_) => self.on_batch(input),
                None => Ok(Done::More(header.size())),
            },
            b'P' | b'B' | b'D' | b'E' => self.on_batch(input),
            b'F' => {
                if self.whole(header, input, self.longest_statement())?.is_none() {
                    return Ok(Done::More(header.size()));
                }
                self.route_function_call()
            }
            b'H' => {
                empty_body(header)?;
                Ok(Done::Consumed)
            }
            // COPY data after its COPY has ended.
            b'd' | b'c' | b'f' => Ok(drop_message(header, input)),
            _ => Err(End::Malformed),
        }
    }

    /// The whole message at the front; `None` = not all of it is there yet.
    pub(super) fn whole<'i>(&self, header: Header, input: &'i [u8], cap: usize) -> Result<Option<FrontendMessage<'i>>, End> {
        // PostgreSQL closes without a word when a message is longer than one of its kind can be.
        if header.body > cap {
            return Err(End::Quiet);
        }
        let Some(body) = input.get(HEADER_LENGTH..header.size()) else { return Ok(None) };
        let frame = quorumsql_wire::pgsql::frame::Frame { tag: header.tag, body };
        FrontendMessage::decode(frame).map(Some).map_err(|_| End::Malformed)
    }

    /// A message that cannot be read goes to the server as it is: the error is in its words, and a transaction fails as if the client had sent it
    /// there.
    fn on_malformed(&mut self, header: Header, input: &[u8]) -> Result<Done, End> {
        let ends_unit = matches!(header.tag, b'Q' | b'F' | b'S');
        if self.client.aborted.is_some() {
            self.say_error(&ErrorFields::error(sqlstate::PROTOCOL_VIOLATION, "invalid message format"), ends_unit);
            self.client.skip_to_sync |= !ends_unit;
            return Ok(drop_message(header, input));
        }
        if input.len() < header.size() {
            return Ok(Done::More(header.size()));
        }
        if self.server.is_none() {
            return Ok(Done::Attach(self.default_hostgroup()));
        }
        self.forward_malformed(header.tag, ends_unit);
        Ok(Done::AsIs)
    }

    /// Longest Query, Parse and FunctionCall.
    pub(super) fn longest_statement(&self) -> usize {
        self.config.pgsql.variables.max_allowed_packet as usize
    }

    /// The message at the front is the one that cannot be answered: its error, and the way on from there.
    pub(super) fn fail_front(&mut self, fields: &ErrorFields) -> Result<(), End> {
        let Some(mut chunk) = self.input.take() else { return Ok(()) };
        let header = Header::decode(&chunk, LONGEST).map_err(|_| End::Quiet)?;
        if let Some(header) = header.filter(|header| matches!(header.tag, b'Q' | b'F')) {
            self.say_error(fields, true);
            chunk.advance(header.size().min(chunk.len()));
        } else {
            self.say_error(fields, false);
            self.client.skip_to_sync = true;
        }
        self.input = (!chunk.is_empty()).then_some(chunk);
        Ok(())
    }

    /// A statement that is longer than the limit: the error of the reference, and its bytes are thrown away.
    pub(super) fn too_big(&mut self, header: Header, input: &[u8]) -> Done {
        self.client.ctx.stats(Protocol::Pgsql).queries.add(1);
        let fields = ErrorFields::error(sqlstate::PROGRAM_LIMIT_EXCEEDED, "Got a packet bigger than 'max_allowed_packet' bytes");
        let ready = header.tag == b'Q';
        self.say_error(&fields, ready);
        self.client.skip_to_sync = !ready;
        drop_message(header, input)
    }
}

/// Throws the message at the front away, however much of it is there.
pub(super) fn drop_message(header: Header, input: &[u8]) -> Done {
    let here = header.size().min(input.len());
    Done::Started(here, Passing { left: header.size() - here, to_server: false })
}

/// Sync and Flush have nothing inside.
pub(super) fn empty_body(header: Header) -> Result<(), End> {
    if header.body == 0 { Ok(()) } else { Err(End::Malformed) }
}
