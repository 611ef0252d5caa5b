//! One whole command packet of a client.

use std::borrow::Cow;
use std::future::poll_fn;
use std::task::Poll;

use quorumsql_wire::mysql::command::byte;
use quorumsql_wire::mysql::packet::{HEADER_LEN, Header, decode_packet};
use quorumsql_wire::mysql::{WireError, error_code};

use super::{Client, Flow};
use crate::worker::chunk::Chunk;
use crate::worker::link::Link;

/// A command as it came, headers included.
pub(super) struct Request {
    /// The packet, all parts, as it can be forwarded.
    pub(super) raw: Chunk,
    /// The payload, where it came in several parts.
    joined: Option<Vec<u8>>,
    /// Sequence id of the answer's first packet.
    pub(super) answer_sequence: u8,
}

impl Request {
    /// The payload.
    pub(super) fn payload(&self) -> &[u8] {
        self.joined.as_deref().unwrap_or(&self.raw[HEADER_LEN..])
    }

    /// The payload for changes in place; `None` = it came in several parts.
    pub(super) fn payload_mut(&mut self) -> Option<&mut [u8]> {
        match self.joined {
            Some(_) => None,
            None => Some(&mut self.raw[HEADER_LEN..]),
        }
    }
}

/// What came.
pub(super) enum Incoming {
    Request(Request),
    /// Too large; its bytes have been thrown away.
    TooLarge {
        /// Answer with this sequence id.
        answer_sequence: u8,
        /// It asks for no answer.
        silent: bool,
    },
    /// Closed, broken, or no protocol.
    Gone,
}

impl Client {
    /// Completes the packet that begins in `chunk`. What follows it waits in the link for the next turn.
    pub(super) async fn read_request(&mut self, mut chunk: Chunk, limit: usize) -> Incoming {
        loop {
            match decode_packet(&chunk, limit) {
                Ok(Some(packet)) => {
                    let joined = match packet.payload {
                        Cow::Owned(payload) => Some(payload),
                        Cow::Borrowed(_) => None,
                    };
                    let (consumed, answer_sequence) = (packet.consumed, packet.sequence.wrapping_add(1));
                    if chunk.len() > consumed {
                        let rest = self.link.chunks().copy_of(&chunk[consumed..]);
                        self.link.unread(rest);
                        chunk.truncate(consumed);
                    }
                    return Incoming::Request(Request { raw: chunk, joined, answer_sequence });
                }
                Ok(None) => {
                    if !self.more_of_request(&mut chunk).await {
                        return Incoming::Gone;
                    }
                }
                Err(WireError::TooLong { .. }) => return discard(&mut self.link, chunk).await,
                Err(_) => return Incoming::Gone,
            }
        }
    }

    /// Waits for more of a packet; `false` = closed, or told to close, or too slow.
    async fn more_of_request(&mut self, chunk: &mut Chunk) -> bool {
        let (session, link) = (&self.session, &mut self.link);
        poll_fn(|cx| {
            if let Poll::Ready(result) = link.poll_recv_more(cx, chunk) {
                return Poll::Ready(result.is_ok_and(|count| count > 0));
            }
            let stop = session.poll_interrupt(cx).is_ready() || session.timer.poll_expired(cx).is_ready();
            if stop { Poll::Ready(false) } else { Poll::Pending }
        })
        .await
    }

    /// 1153; the session goes on, unlike with a server, unless the client would take this for the answer to another command.
    pub(super) async fn refuse_large(&mut self, sequence: u8, silent: bool) -> Flow {
        let text = "Got a packet bigger than 'max_allowed_packet' bytes";
        let flow = self.send_error(sequence, error_code::PACKET_TOO_LARGE, text).await;
        if silent { Flow::Close } else { flow }
    }
}

/// Whether a command has no answer.
pub(super) const fn is_silent(command: u8) -> bool {
    matches!(command, byte::QUIT | byte::STMT_SEND_LONG_DATA | byte::STMT_CLOSE)
}

/// Reads past a packet without keeping it.
async fn discard(link: &mut Link, mut chunk: Chunk) -> Incoming {
    let mut command = None;
    loop {
        while chunk.len() < HEADER_LEN {
            match link.recv_more(&mut chunk).await {
                Ok(0) | Err(_) => return Incoming::Gone,
                Ok(_) => {}
            }
        }
        let Some(header) = Header::read(&chunk) else { return Incoming::Gone };
        chunk.advance(HEADER_LEN);
        let mut left = header.length;
        loop {
            command = command.or_else(|| chunk.first().copied());
            let step = left.min(chunk.len());
            chunk.advance(step);
            left -= step;
            if left == 0 {
                break;
            }
            drop(chunk);
            chunk = match link.recv().await {
                Ok(next) if !next.is_empty() => next,
                _ => return Incoming::Gone,
            };
        }
        if !header.continues() {
            link.unread(chunk);
            return Incoming::TooLarge { answer_sequence: header.sequence.wrapping_add(1), silent: command.is_none_or(is_silent) };
        }
    }
}
