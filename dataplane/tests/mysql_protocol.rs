//! What no driver does on purpose: raw packets against the proxy, written with the codec's client side.
#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[allow(dead_code, reason = "each test file uses a part of it")]
mod mysql_support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use mysql_support::Setup;
use quorumsql_chaos::servers::{MariaDb, Mysql9};
use quorumsql_dataplane::config::Variables;
use quorumsql_wire::mysql::client_auth::{ClientAuth, ClientStep};
use quorumsql_wire::mysql::column::kind;
use quorumsql_wire::mysql::command::byte;
use quorumsql_wire::mysql::handshake::{Greeting, HandshakeResponse, NATIVE};
use quorumsql_wire::mysql::response::PrepareOk;
use quorumsql_wire::mysql::server_auth::Proof;
use quorumsql_wire::mysql::{Capabilities, EofPacket, ErrPacket, OkPacket, PacketWriter, Status, decode_packet};
use zeroize::Zeroizing;

const LIMIT: usize = 64 << 20;
/// A client of the old days: EOF packets, no session tracking.
const PLAIN: Capabilities = Capabilities(
    Capabilities::LONG_PASSWORD.0
        | Capabilities::PROTOCOL_41.0
        | Capabilities::SECURE_CONNECTION.0
        | Capabilities::PLUGIN_AUTH.0
        | Capabilities::CONNECT_WITH_DB.0
        | Capabilities::TRANSACTIONS.0,
);

struct Raw {
    socket: TcpStream,
    bytes: Vec<u8>,
    sequence: u8,
}

impl Raw {
    fn connect(port: u16) -> (Self, Greeting) {
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut raw = Self { socket, bytes: Vec::new(), sequence: 0 };
        let greeting = Greeting::decode(&raw.packet()).unwrap();
        (raw, greeting)
    }

    fn log_in(port: u16, capabilities: Capabilities) -> Self {
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

    fn send_next(&mut self, payload: &[u8]) {
        let mut out = Vec::new();
        PacketWriter::new(&mut out, self.sequence).payload(payload);
        self.socket.write_all(&out).unwrap();
    }

    fn command(&mut self, command: u8, body: &[u8]) {
        self.sequence = 0;
        self.send_next(&[&[command], body].concat());
    }

    /// The next payload; empty = the proxy closed.
    fn packet(&mut self) -> Vec<u8> {
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

    fn ok(&mut self) {
        let payload = self.packet();
        assert_eq!(payload.first(), Some(&0), "{payload:?}");
        let ok = OkPacket::decode(&payload, PLAIN).unwrap();
        assert!(!ok.status.contains(Status::SESSION_STATE_CHANGED), "no session state for a client without it");
    }

    fn error(&mut self) -> u16 {
        ErrPacket::decode(&self.packet()).unwrap().code
    }

    fn query(&mut self, sql: &str) {
        self.command(byte::QUERY, sql.as_bytes());
    }

    /// Definitions up to EOF, which is returned.
    fn until_eof(&mut self) -> (usize, EofPacket) {
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

    fn prepare(&mut self, sql: &str) -> PrepareOk {
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
    fn columns(&mut self) -> Status {
        let count = self.packet();
        assert_eq!(count.len(), 1, "{:?}", ErrPacket::decode(&count));
        self.until_eof().1.status
    }
}

fn execute(statement: u32, flags: u8, rest: &[u8]) -> Vec<u8> {
    [&statement.to_le_bytes()[..], &[flags, 1, 0, 0, 0], rest].concat()
}

#[test]
fn cursors_types_and_long_data() {
    let (mariadb, mysql) = (MariaDb::start(1, &[]), Mysql9::start(2, &[]));
    for port in [mariadb.port, mysql.port] {
        let proxy = Setup { connections: 2, ..Setup::sharing(port) }.start();
        let mut raw = Raw::log_in(proxy.port, PLAIN);
        cursor(&mut raw);
        types_are_remembered(&mut raw, &mut Raw::log_in(proxy.port, PLAIN));
        long_data(&mut raw);
        raw.command(byte::STMT_EXECUTE, &execute(999, 0, &[]));
        assert_eq!(raw.error(), 1243);
    }
    for (port, version, keeps) in [(mariadb.port, "5.5.5-10.11.6-MariaDB", false), (mysql.port, "9.7.0", true)] {
        let mut setup = Setup::sharing(port);
        setup.variables.server_version = version.into();
        let proxy = setup.start();
        schemas_show_no_warnings_of_others(&mut Raw::log_in(proxy.port, PLAIN), &mut Raw::log_in(proxy.port, PLAIN));
        state_that_shows_late(proxy.port, version);
        ignoring_space(&mut Raw::log_in(proxy.port, PLAIN | Capabilities::IGNORE_SPACE), keeps);
    }
}

/// MySQL's answer to COM_INIT_DB counts the warnings of the statement before it: those of this session.
fn schemas_show_no_warnings_of_others(one: &mut Raw, two: &mut Raw) {
    for _ in 0..2 {
        one.query("SELECT nothing");
        assert_eq!(one.error(), 1054);
        two.command(byte::INIT_DB, b"demo");
        let payload = two.packet();
        assert_eq!(OkPacket::decode(&payload, PLAIN).unwrap().warnings, 0);
        one.query("DO 1");
        one.ok();
    }
}

/// An EOF cannot tell what has changed: MySQL does so in the next OK, which must not be another session's.
fn state_that_shows_late(port: u16, version: &str) {
    let (mut one, mut two, mut three) = (Raw::log_in(port, PLAIN), Raw::log_in(port, PLAIN), Raw::log_in(port, PLAIN));
    let select = |raw: &mut Raw, sql: &str| {
        raw.query(sql);
        raw.columns();
        let row = raw.packet();
        raw.until_eof();
        row
    };
    one.query("CREATE FUNCTION hides() RETURNS INT NO SQL BEGIN SET @hidden = 2; RETURN 1; END");
    one.ok();
    assert_eq!(select(&mut one, "SELECT hides()"), b"\x011", "{version}");
    assert_eq!(select(&mut one, "SELECT @hidden"), b"\x012", "{version}: its own");
    one.command(byte::QUIT, &[]);
    assert_eq!(select(&mut two, "SELECT hides()"), b"\x011", "{version}");
    two.command(byte::QUIT, &[]);
    assert_eq!(select(&mut three, "SELECT @hidden IS NULL"), b"\x011", "{version}: another's");
    three.command(byte::QUIT, &[]);
    // A hint sets a variable for a moment: nobody else's statement is told so, and keeps the connection for it.
    let (mut one, mut two, mut three) = (Raw::log_in(port, PLAIN), Raw::log_in(port, PLAIN), Raw::log_in(port, PLAIN));
    assert_eq!(select(&mut one, "SELECT /*+ SET_VAR(sort_buffer_size = 262144) */ 1"), b"\x011", "{version}");
    one.command(byte::QUIT, &[]);
    for raw in [&mut two, &mut three] {
        raw.query("DO 1");
        raw.ok();
    }
}

/// The mode that the capability brings is there behind a reset of the session, too, if the server does so.
fn ignoring_space(raw: &mut Raw, after_reset: bool) {
    for expected in [true, after_reset] {
        raw.query("SELECT @@sql_mode LIKE '%IGNORE_SPACE%'");
        raw.columns();
        assert_eq!(raw.packet(), [1, if expected { b'1' } else { b'0' }]);
        raw.until_eof();
        raw.command(byte::RESET_CONNECTION, &[]);
        raw.ok();
    }
}

fn cursor(raw: &mut Raw) {
    let prepared = raw.prepare("SELECT 1 AS a UNION ALL SELECT 2 UNION ALL SELECT 3");
    let id = prepared.statement;
    raw.command(byte::STMT_EXECUTE, &execute(id, 1, &[]));
    assert!(raw.columns().contains(Status::CURSOR_EXISTS));
    let fetch = |count: u32| [id.to_le_bytes(), count.to_le_bytes()].concat();
    raw.command(byte::STMT_FETCH, &fetch(2));
    assert_eq!(raw.until_eof().0, 2);
    raw.command(byte::STMT_FETCH, &fetch(10));
    let (rows, eof) = raw.until_eof();
    assert_eq!((rows, eof.status.contains(Status::LAST_ROW_SENT)), (1, true));
    raw.command(byte::STMT_FETCH, &fetch(1));
    assert_eq!(raw.error(), 1421);
    raw.command(byte::STMT_EXECUTE, &execute(id, 1, &[]));
    assert!(raw.columns().contains(Status::CURSOR_EXISTS));
    raw.command(byte::STMT_RESET, &id.to_le_bytes());
    raw.ok();
    raw.command(byte::STMT_CLOSE, &id.to_le_bytes());
    raw.command(byte::STMT_EXECUTE, &execute(id, 0, &[]));
    assert_eq!(raw.error(), 1243);
}

/// The second client executes between the first's executions, with other types on the same connection.
fn types_are_remembered(one: &mut Raw, two: &mut Raw) {
    let sql = "SELECT CAST(? AS CHAR)";
    let (first, second) = (one.prepare(sql), two.prepare(sql));
    one.command(byte::STMT_EXECUTE, &execute(first.statement, 0, &[0, 0, 7, 0, 0, 0]));
    assert_eq!(one.error(), 1210, "no types yet");
    one.command(byte::STMT_EXECUTE, &execute(first.statement, 0, &[0, 1, kind::LONG, 0, 7, 0, 0, 0]));
    one.columns();
    assert_eq!(one.packet(), [0, 0, 1, b'7']);
    one.until_eof();
    two.command(byte::STMT_EXECUTE, &execute(second.statement, 0, &[0, 1, kind::VAR_STRING, 0, 2, b'h', b'i']));
    two.columns();
    assert_eq!(two.packet(), [0, 0, 2, b'h', b'i']);
    two.until_eof();
    one.command(byte::STMT_EXECUTE, &execute(first.statement, 0, &[0, 0, 8, 0, 0, 0]));
    one.columns();
    assert_eq!(one.packet(), [0, 0, 1, b'8'], "types left out are those of this client's last execution");
    one.until_eof();
    one.command(byte::STMT_EXECUTE, &execute(first.statement, 0, &[0, 1, kind::LONG, 0, 7]));
    assert_eq!(one.error(), 1210, "a value that is cut off");
}

fn long_data(raw: &mut Raw) {
    let prepared = raw.prepare("SELECT LENGTH(?)");
    let id = prepared.statement;
    for piece in [&[b'x'; 70_000][..], b"yz"] {
        raw.command(byte::STMT_SEND_LONG_DATA, &[&id.to_le_bytes()[..], &[0, 0], piece].concat());
    }
    raw.command(byte::STMT_EXECUTE, &execute(id, 0, &[0, 1, kind::BLOB, 0]));
    raw.columns();
    let row = raw.packet();
    assert_eq!(row[..2], [0, 0]);
    assert_eq!(row[2..6], 70_002_u32.to_le_bytes());
    raw.until_eof();
    // Connector/J leaves the types out where all values are NULL.
    let prepared = raw.prepare("SELECT ? IS NULL");
    raw.command(byte::STMT_EXECUTE, &execute(prepared.statement, 0, &[0, 0, 7, 0, 0, 0]));
    assert_eq!(raw.error(), 1210);
    raw.command(byte::STMT_EXECUTE, &execute(prepared.statement, 0, &[1, 0]));
    raw.columns();
    assert_eq!(raw.packet()[..3], [0, 0, 1]);
    raw.until_eof();
}

#[test]
fn commands_that_are_answered_here() {
    let server = MariaDb::start(1, &[]);
    let proxy = Setup { connections: 2, ..Setup::sharing(server.port) }.start();
    let mut raw = Raw::log_in(proxy.port, PLAIN);
    raw.command(byte::PING, &[]);
    raw.ok();
    raw.command(byte::INIT_DB, b"mysql");
    raw.ok();
    raw.command(byte::INIT_DB, b"nosuchschema");
    assert_eq!(raw.error(), 1049);
    raw.query("UPDATE db SET nothing = 1");
    assert_eq!(raw.error(), 1054, "still in mysql");
    raw.query("UPDATE demo.nothing SET a = 1");
    assert_eq!(raw.error(), 1146);
    raw.command(byte::STATISTICS, &[]);
    assert!(raw.packet().starts_with(b"Uptime: "));
    for command in [0x00, 0x05, 0x07, 0x08, 0x0a, 0x0d, 0x12, 0x15, 0x1e, 0x77] {
        raw.command(command, &[0; 20]);
        assert_eq!(raw.error(), 1047, "{command}");
    }
    raw.command(byte::SET_OPTION, &[0, 0]);
    assert_eq!(raw.packet()[0], 0xfe);
    raw.query("DO 1; DO 2");
    for _ in 0..2 {
        raw.ok();
    }
    raw.command(byte::SET_OPTION, &[1, 0]);
    assert_eq!(raw.packet()[0], 0xfe);
    raw.query("DO 1; DO 2");
    assert_eq!(raw.error(), 1064, "one statement only again");
    raw.command(byte::FIELD_LIST, b"user\0");
    assert!(raw.until_eof().0 > 3);
    raw.query("USE demo");
    raw.ok();
    // Commands that are sent before the answer to the one before has come.
    let mut both = Vec::new();
    for sql in ["DO 1", "CREATE TABLE piped (a INT)", "INSERT INTO piped VALUES (1)"] {
        PacketWriter::new(&mut both, 0).packet(|out| out.extend_from_slice(&[&[byte::QUERY], sql.as_bytes()].concat()));
    }
    raw.socket.write_all(&both).unwrap();
    for _ in 0..3 {
        raw.ok();
    }
    raw.command(byte::QUIT, &[]);
    assert!(raw.packet().is_empty());
}

#[test]
fn limits_and_nonsense() {
    let server = MariaDb::start(1, &[]);
    let mut setup = Setup { connections: 2, ..Setup::sharing(server.port) };
    setup.variables = Variables { max_allowed_packet: 100_000, connect_timeout_client: Duration::from_millis(500), ..setup.variables };
    let proxy = setup.start();

    let mut raw = Raw::log_in(proxy.port, PLAIN);
    raw.query(&"x".repeat(200_000));
    assert_eq!(raw.error(), 1153);
    raw.query("DO 1");
    raw.ok();

    for payload in [&[][..], b"\x01", &[0; 32], &[0xff; 60], b"GET / HTTP/1.1\r\n\r\n"] {
        let (mut raw, greeting) = Raw::connect(proxy.port);
        assert_eq!(greeting.plugin, NATIVE);
        raw.send_next(payload);
        assert_eq!(raw.error(), 1043, "{payload:?}");
        assert!(raw.packet().is_empty());
    }
    // A packet that announces more than a login may have.
    let (mut raw, _) = Raw::connect(proxy.port);
    raw.socket.write_all(&[0xff, 0xff, 0xff, 1]).unwrap();
    assert!(raw.packet().is_empty());
    // A client that says nothing.
    let (mut raw, _) = Raw::connect(proxy.port);
    assert!(raw.packet().is_empty());
    // A client that leaves in the middle of a packet.
    let mut raw = Raw::log_in(proxy.port, PLAIN);
    raw.socket.write_all(&[50, 0, 0, 0, 3, b'S']).unwrap();
    raw.socket.shutdown(Shutdown::Write).unwrap();
    assert!(raw.packet().is_empty());
}

#[test]
fn a_draining_node_lets_transactions_end() {
    let server = MariaDb::start(1, &[]);
    let proxy = Setup { connections: 2, ..Setup::sharing(server.port) }.start();
    let (mut idle, mut busy) = (Raw::log_in(proxy.port, PLAIN), Raw::log_in(proxy.port, PLAIN));
    busy.query("BEGIN");
    busy.ok();
    proxy.plane.begin_drain();
    assert_eq!(idle.error(), 1053);
    assert!(idle.packet().is_empty());
    busy.query("DO 1");
    busy.ok();
    busy.query("COMMIT");
    busy.ok();
    assert_eq!(busy.error(), 1053);
    assert!(busy.packet().is_empty());
}
