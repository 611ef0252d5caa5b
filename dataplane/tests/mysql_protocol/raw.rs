//! A client that is made of packets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use quorumsql_wire::mysql::client_auth::{ClientAuth, ClientStep};
use quorumsql_wire::mysql::command::byte;
use quorumsql_wire::mysql::handshake::{Greeting, HandshakeResponse};
use quorumsql_wire::mysql::response::PrepareOk;
use quorumsql_wire::mysql::server_auth::Proof;
use quorumsql_wire::mysql::{Capabilities, EofPacket, ErrPacket, OkPacket, PacketWriter, Status, decode_packet};
use zeroize::Zeroizing;

const LIMIT: usize = 64 << 20;
/// A client of the old days: EOF packets, no session tracking.
pub(crate) const PLAIN: Capabilities = Capabilities(
    Capabilities::LONG_PASSWORD.0
        | Capabilities::PROTOCOL_41.0
        | Capabilities::SECURE_CONNECTION.0
        | Capabilities::PLUGIN_AUTH.0
        | Capabilities::CONNECT_WITH_DB.0
        | Capabilities::TRANSACTIONS.0,
);

/// A client that sends what it is told to.
pub(crate) struct Raw {
    pub(crate) socket: TcpStream,
    bytes: Vec<u8>,
    sequence: u8,
}

impl Raw {
    /// A connection that has been greeted.
    pub(crate) fn connect(port: u16) -> (Self, Greeting) {
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut raw = Self { socket, bytes: Vec::new(), sequence: 0 };
        let greeting = Greeting::decode(&raw.packet()).unwrap();
        (raw, greeting)
    }

    /// A client that is logged in as `demo`.
    pub(crate) fn log_in(port: u16, capabilities: Capabilities) -> Self {
        let (mut raw, greeting) = Self::connect(port);
        let proof = Proof::Clear(Zeroizing::new(b"demo".to_vec()));
        let (mut auth, plugin, reply) = ClientAuth::begin(proof, &greeting.plugin, greeting.scramble, false).unwrap();
        let response = HandshakeResponse {
            capabilities,
            max_packet: 1 << 24,
            charset: 45,
            user: b"demo",
            auth: &reply,
            schema: Some(b"demo"),
            plugin: Some(plugin.as_bytes()),
            attributes: &[],
        };
        let mut payload = Vec::new();
        response.encode(&mut payload);
        raw.send_next(&payload);
        loop {
            let payload = raw.packet();
            match auth.on_packet(&payload).unwrap() {
                ClientStep::Send(reply) => raw.send_next(&reply),
                ClientStep::Wait => {}
                ClientStep::Done => return raw,
            }
        }
    }

    /// Sends a payload behind what came last.
    pub(crate) fn send_next(&mut self, payload: &[u8]) {
        let mut out = Vec::new();
        PacketWriter::new(&mut out, self.sequence).payload(payload);
        self.socket.write_all(&out).unwrap();
    }

    /// Sends a command.
    pub(crate) fn command(&mut self, command: u8, body: &[u8]) {
        self.sequence = 0;
        self.send_next(&[&[command], body].concat());
    }

    /// The next payload; empty = the proxy closed.
    pub(crate) fn packet(&mut self) -> Vec<u8> {
        loop {
            if let Some(packet) = decode_packet(&self.bytes, LIMIT).unwrap() {
                let (payload, consumed) = (packet.payload.to_vec(), packet.consumed);
                self.sequence = packet.sequence.wrapping_add(1);
                self.bytes.drain(..consumed);
                return payload;
            }
            let mut buffer = [0; 65_536];
            match self.socket.read(&mut buffer) {
                Ok(0) => return Vec::new(),
                Ok(count) => self.bytes.extend_from_slice(&buffer[..count]),
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    /// The answer is a plain OK.
    pub(crate) fn ok(&mut self) {
        let payload = self.packet();
        assert_eq!(payload.first(), Some(&0), "{payload:?}");
        let ok = OkPacket::decode(&payload, PLAIN).unwrap();
        assert!(!ok.status.contains(Status::SESSION_STATE_CHANGED), "no session state for a client without it");
    }

    /// The answer is an error; its number.
    pub(crate) fn error(&mut self) -> u16 {
        ErrPacket::decode(&self.packet()).unwrap().code
    }

    /// Sends COM_QUERY.
    pub(crate) fn query(&mut self, sql: &str) {
        self.command(byte::QUERY, sql.as_bytes());
    }

    /// Definitions up to EOF, which is returned.
    pub(crate) fn until_eof(&mut self) -> (usize, EofPacket) {
        let mut before = 0;
        loop {
            let payload = self.packet();
            assert_ne!(payload.first(), Some(&0xff), "{:?}", ErrPacket::decode(&payload));
            if payload.first() == Some(&0xfe) && payload.len() < 9 {
                return (before, EofPacket::decode(&payload).unwrap());
            }
            before += 1;
        }
    }

    /// COM_STMT_PREPARE.
    pub(crate) fn prepare(&mut self, sql: &str) -> PrepareOk {
        self.command(byte::STMT_PREPARE, sql.as_bytes());
        let prepared = PrepareOk::decode(&self.packet()).unwrap();
        for count in [prepared.parameters, prepared.columns] {
            if count > 0 {
                assert_eq!(self.until_eof().0, usize::from(count));
            }
        }
        prepared
    }

    /// Column count, definitions and EOF of a result; its status.
    pub(crate) fn columns(&mut self) -> Status {
        let count = self.packet();
        assert_eq!(count.len(), 1, "{:?}", ErrPacket::decode(&count));
        self.until_eof().1.status
    }
}
