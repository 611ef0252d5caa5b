//! TLS over a socket, by rustls' unbuffered API: ciphertext and plain text live in chunks of the worker's pool.
//!
//! ```text
//! socket ─► inbound ─► rustls ─► the reader's chunk        a write's bytes ─► rustls ─► outbound ─► socket
//! ```
//! Between two calls `inbound` holds at most the beginning of a record, and nothing while the peer is silent: every whole
//! record is opened by the read that brought it. `outbound` holds what the socket has not taken yet. So an idle session
//! owns no buffer but rustls' keys.

use std::io;
use std::task::{Context, Poll, Waker, ready};

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus};
use rustls::{CommonState, Error};

use super::chunk::{Chunk, ChunkPool, LARGE, SMALL};
use super::socket::{Look, Socket, SocketParcel};

/// Most plain bytes in a record (RFC 8446, 5.1).
const RECORD: usize = 16 * 1024;
/// Header, explicit nonce, padding and tag of a record: 22 bytes in TLS 1.3, at most 29 in 1.2 with AEAD ciphers.
const OVERHEAD: usize = 32;
/// Longest body of a record that a peer may send (TLS 1.2: 2^14 + 2048).
const LONGEST_BODY: usize = RECORD + 2048;
/// Bytes that a close_notify takes.
const GOODBYE: usize = 64;

/// The state of one side, as rustls keeps it.
pub(super) enum Session {
    /// Towards a client.
    Server(UnbufferedServerConnection),
    /// Towards a server.
    Client(UnbufferedClientConnection),
    /// It failed, or went to another worker.
    Ended,
}

/// A socket with TLS over it.
pub(super) struct TlsSocket {
    socket: Socket,
    session: Session,
    inbound: Option<Chunk>,
    outbound: Option<Chunk>,
    /// Plain bytes that `outbound` stands for and whose writer has not been told.
    owed: usize,
    /// The peer sends nothing more.
    closed: bool,
}

/// A TLS connection on its way to another worker.
pub(super) struct TlsParcel {
    socket: SocketParcel,
    session: Session,
}

/// What is wanted of rustls.
#[derive(Clone, Copy)]
enum Wish<'a> {
    /// To open the records that have arrived.
    Open,
    /// To make records of these bytes.
    Seal(&'a [u8]),
    /// To say that nothing more will be sent.
    Close,
}

/// What rustls answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It has more to do.
    Again,
    /// It has done what can be done with what has arrived.
    Done,
    /// The peer has said that it sends nothing more.
    PeerClosed,
}

impl TlsSocket {
    /// `arrived` are bytes of the handshake that the peer sent early.
    pub(super) fn new(socket: Socket, session: Session, arrived: Option<Chunk>) -> Self {
        Self { socket, session, inbound: arrived, outbound: None, owed: 0, closed: false }
    }

    /// What was agreed on; `None` after a failure.
    pub(super) fn facts(&self) -> Option<&CommonState> {
        match &self.session {
            Session::Server(session) => Some(session),
            Session::Client(session) => Some(session),
            Session::Ended => None,
        }
    }

    /// Drives the handshake to its end; what the peer sent right behind it is appended to `plain`.
    ///
    /// # Errors
    /// The peer has been sent an alert where TLS has one for it; the socket is of no use any more.
    pub(super) fn poll_handshake(&mut self, cx: &mut Context<'_>, plain: &mut Chunk, chunks: &ChunkPool) -> Poll<io::Result<()>> {
        loop {
            self.open(plain, chunks)?;
            ready!(self.poll_flush(cx))?;
            if self.facts().is_some_and(|facts| !facts.is_handshaking()) {
                return Poll::Ready(Ok(()));
            }
            if self.closed || ready!(self.receive(&mut Look::Wait(cx), chunks))? == 0 {
                self.give_up();
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed during the TLS handshake")));
            }
        }
    }

    /// Appends the plain text of at least one record to `plain`, which grows if it must; 0 = the peer closed.
    pub(super) fn poll_read(&mut self, look: &mut Look<'_, '_>, plain: &mut Chunk, chunks: &ChunkPool) -> Poll<io::Result<usize>> {
        let before = plain.len();
        loop {
            if self.closed || ready!(self.receive(look, chunks))? == 0 {
                self.closed = true;
                self.inbound = None;
                return Poll::Ready(Ok(0));
            }
            if plain.is_empty() && self.inbound.as_ref().is_some_and(|inbound| inbound.capacity() > plain.capacity()) {
                *plain = chunks.take_large();
            }
            self.open(plain, chunks)?;
            if self.outbound.is_some() {
                // An answer to a request for new keys. What the socket does not take goes with the next write.
                let _ = match look {
                    Look::Wait(cx) => self.poll_flush(cx),
                    Look::Glance => self.poll_flush(&mut Context::from_waker(Waker::noop())),
                }?;
            }
            if plain.len() > before {
                return Poll::Ready(Ok(plain.len() - before));
            }
        }
    }

    /// Sends bytes from the front of `bytes` and says how many. Until then, the same bytes must be given again.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8], chunks: &ChunkPool) -> Poll<io::Result<usize>> {
        if self.owed == 0 {
            // As many as fit into one buffer, in records of full size.
            let count = if bytes.len() > LARGE - 4 * OVERHEAD { 3 * RECORD } else { bytes.len() };
            self.turn_until_done(Wish::Seal(&bytes[..count]), None, chunks)?;
            self.owed = count;
        }
        ready!(self.poll_flush(cx))?;
        Poll::Ready(Ok(std::mem::take(&mut self.owed)))
    }

    /// Takes socket and keys out of this worker. Fails for in-memory sockets and while bytes are on their way.
    pub(super) fn take_parcel(&mut self) -> io::Result<TlsParcel> {
        if self.inbound.is_some() || self.outbound.is_some() || self.closed {
            return Err(io::Error::other("bytes wait to be received or sent"));
        }
        let socket = self.socket.take_parcel()?;
        Ok(TlsParcel { socket, session: std::mem::replace(&mut self.session, Session::Ended) })
    }

    /// Registers a connection of another worker with this one's runtime.
    pub(super) fn from_parcel(parcel: TlsParcel) -> io::Result<Self> {
        Ok(Self::new(Socket::from_parcel(parcel.socket)?, parcel.session, None))
    }

    /// Reads ciphertext; 0 = the peer closed.
    fn receive(&mut self, look: &mut Look<'_, '_>, chunks: &ChunkPool) -> Poll<io::Result<usize>> {
        let inbound = self.inbound.get_or_insert_with(|| chunks.take());
        if let Err(error) = make_room(inbound, chunks) {
            self.give_up();
            return Poll::Ready(Err(error));
        }
        let read = self.socket.look(look, inbound);
        if inbound.is_empty() {
            self.inbound = None;
        }
        read
    }

    /// Opens all records that are whole.
    fn open(&mut self, plain: &mut Chunk, chunks: &ChunkPool) -> io::Result<()> {
        self.turn_until_done(Wish::Open, Some(plain), chunks)
    }

    fn turn_until_done(&mut self, wish: Wish<'_>, mut plain: Option<&mut Chunk>, chunks: &ChunkPool) -> io::Result<()> {
        loop {
            let arrived: &mut [u8] = self.inbound.as_deref_mut().unwrap_or_default();
            let mut hands = Hands { wish, plain: plain.as_deref_mut(), outbound: &mut self.outbound, chunks };
            let (used, turn) = match &mut self.session {
                Session::Server(session) => hands.take_turn(session.process_tls_records(arrived)),
                Session::Client(session) => hands.take_turn(session.process_tls_records(arrived)),
                Session::Ended => return Err(io::ErrorKind::NotConnected.into()),
            };
            if let Some(inbound) = &mut self.inbound {
                inbound.advance(used);
                if inbound.is_empty() {
                    self.inbound = None;
                }
            }
            match turn {
                Ok(Turn::Again) => {}
                Ok(Turn::Done) => return Ok(()),
                Ok(Turn::PeerClosed) => self.closed = true,
                Err(error) => return Err(self.fail(error, chunks)),
            }
        }
    }

    /// Tells the peer why, as far as the socket takes it at once, and forgets the keys.
    fn fail(&mut self, error: Error, chunks: &ChunkPool) -> io::Error {
        while self.facts().is_some_and(CommonState::wants_write) {
            let mut hands = Hands { wish: Wish::Open, plain: None, outbound: &mut self.outbound, chunks };
            let (_, turn) = match &mut self.session {
                Session::Server(session) => hands.take_turn(session.process_tls_records(&mut [])),
                Session::Client(session) => hands.take_turn(session.process_tls_records(&mut [])),
                Session::Ended => break,
            };
            if turn.is_err() {
                break;
            }
        }
        self.give_up();
        let _ = self.poll_flush(&mut Context::from_waker(Waker::noop()));
        self.outbound = None;
        io::Error::new(io::ErrorKind::InvalidData, error)
    }

    fn give_up(&mut self) {
        self.session = Session::Ended;
        self.closed = true;
        self.inbound = None;
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(outbound) = &mut self.outbound {
            if outbound.is_empty() {
                self.outbound = None;
                break;
            }
            let count = ready!(self.socket.poll_write(cx, outbound))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            outbound.advance(count);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for TlsSocket {
    /// Says good-bye, as far as the socket takes it at once: a peer must be able to tell the end from a cut.
    fn drop(&mut self) {
        if self.outbound.is_none() && self.facts().is_some_and(|facts| !facts.is_handshaking()) {
            let chunks = ChunkPool::new();
            self.outbound = Some(Chunk::from_vec(Vec::new()));
            // The connection is given up whatever the result is.
            if self.turn_until_done(Wish::Close, None, &chunks).is_ok() {
                let _ = self.poll_flush(&mut Context::from_waker(Waker::noop()));
            }
        }
    }
}

/// Where the results of one turn go.
struct Hands<'a> {
    wish: Wish<'a>,
    plain: Option<&'a mut Chunk>,
    outbound: &'a mut Option<Chunk>,
    chunks: &'a ChunkPool,
}

impl Hands<'_> {
    /// Does what rustls asks for; returns how many of the bytes that have arrived are used up.
    fn take_turn<D>(&mut self, status: UnbufferedStatus<'_, '_, D>) -> (usize, Result<Turn, Error>) {
        let UnbufferedStatus { mut discard, state } = status;
        let turn = match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                let mut turn = Ok(Turn::Again);
                while let Some(record) = traffic.next_record() {
                    match (record, &mut self.plain) {
                        (Ok(record), Some(plain)) => {
                            plain.extend_from_slice(record.payload);
                            discard += record.discard;
                        }
                        // Whole records are opened by the read that brings them: there is none for a writer to find.
                        (Ok(_), None) => turn = Err(Error::General("a record arrived in the middle of a write".into())),
                        (Err(error), _) => turn = Err(error),
                    }
                }
                turn
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                self.seal(0, |room| data.encode(room).map_err(Full::from)).map(|()| Turn::Again)
            }
            // What was encoded is in `outbound`, before everything that follows.
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                Ok(Turn::Again)
            }
            Ok(ConnectionState::WriteTraffic(mut traffic)) => match self.wish {
                Wish::Open => Ok(Turn::Done),
                Wish::Seal(bytes) => {
                    let size = bytes.len() + bytes.len().div_ceil(RECORD) * OVERHEAD;
                    self.seal(size, |room| traffic.encrypt(bytes, room).map_err(Full::from)).map(|()| Turn::Done)
                }
                Wish::Close => self.seal(GOODBYE, |room| traffic.queue_close_notify(room).map_err(Full::from)).map(|()| Turn::Done),
            },
            Ok(ConnectionState::BlockedHandshake) if matches!(self.wish, Wish::Open) => Ok(Turn::Done),
            Ok(ConnectionState::BlockedHandshake) => Err(Error::HandshakeNotComplete),
            Ok(ConnectionState::PeerClosed) => Ok(Turn::PeerClosed),
            Ok(ConnectionState::Closed) if matches!(self.wish, Wish::Open) => Ok(Turn::Done),
            // Early data are never offered; states that a later rustls adds are not ours to go on with.
            Ok(_) => Err(Error::General("TLS connection is closed".into())),
            Err(error) => Err(error),
        };
        (discard, turn)
    }

    /// Appends to `outbound` what `make` writes, with room for `size` bytes or for what `make` says it needs.
    fn seal(&mut self, size: usize, mut make: impl FnMut(&mut [u8]) -> Result<usize, Full>) -> Result<(), Error> {
        let outbound = self.outbound.get_or_insert_with(|| if size > SMALL { self.chunks.take_large() } else { self.chunks.take() });
        outbound.reserve(size);
        let made = match make(outbound.spare_mut()) {
            Err(Full::Needs(size)) => {
                outbound.reserve(size);
                make(outbound.spare_mut())
            }
            made => made,
        };
        match made {
            Ok(count) => {
                outbound.filled(count);
                Ok(())
            }
            Err(Full::Needs(_)) => Err(Error::General("a TLS record does not fit where it said".into())),
            Err(Full::Exhausted) => Err(Error::EncryptError),
        }
    }
}

/// Why nothing was written.
enum Full {
    /// It needs this much room.
    Needs(usize),
    /// The keys may not be used any more.
    Exhausted,
}

impl From<EncodeError> for Full {
    fn from(error: EncodeError) -> Self {
        match error {
            EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => Self::Needs(required_size),
            EncodeError::AlreadyEncoded => Self::Exhausted,
        }
    }
}

impl From<EncryptError> for Full {
    fn from(error: EncryptError) -> Self {
        match error {
            EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => Self::Needs(required_size),
            EncryptError::EncryptExhausted => Self::Exhausted,
        }
    }
}

/// Makes room for the rest of the record that has begun, in a larger buffer if need be. A message of a handshake stays
/// until it is whole, so this is also what bounds it.
fn make_room(inbound: &mut Chunk, chunks: &ChunkPool) -> io::Result<()> {
    let missing = missing(inbound);
    if inbound.spare() >= missing {
        return Ok(());
    }
    if inbound.len() + missing > inbound.capacity() && inbound.capacity() < LARGE {
        let mut larger = chunks.take_large();
        larger.extend_from_slice(inbound);
        *inbound = larger;
    }
    if inbound.len() >= LARGE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a TLS message of more than 64 KiB"));
    }
    inbound.reserve(missing.min(LARGE - inbound.len()));
    Ok(())
}

/// Bytes that are missing to the record at the front, as its header tells; at least 1. The front of a handshake message
/// that came in several records has no header any more, then it is a guess within bounds.
fn missing(inbound: &[u8]) -> usize {
    match inbound {
        [20..=23, 3, _, high, low, body @ ..] => {
            usize::from(u16::from_be_bytes([*high, *low])).min(LONGEST_BODY).saturating_sub(body.len()).max(1)
        }
        _ => 1,
    }
}

#[cfg(test)]
#[path = "tls_test.rs"]
mod tests;
