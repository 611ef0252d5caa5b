//! What no driver does on purpose: raw packets against the proxy, written with the codec's client side.
#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "../mysql_support/mod.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod mysql_support;
mod prepared;
mod raw;

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use mysql_support::Setup;
use quorumsql_chaos::servers::{MariaDb, Mysql9};
use quorumsql_dataplane::config::Variables;
use quorumsql_wire::mysql::command::byte;
use quorumsql_wire::mysql::handshake::NATIVE;
use quorumsql_wire::mysql::{Capabilities, OkPacket, PacketWriter};
use raw::{PLAIN, Raw};

#[test]
fn cursors_types_and_long_data() {
    const SMALL: &[&str] = &["--max-allowed-packet=1M"];
    let (mariadb, mysql) = (MariaDb::start(1, SMALL), Mysql9::start(2, SMALL));
    for port in [mariadb.port, mysql.port] {
        prepared::all(Setup::sharing(port).start().port);
    }
    for port in [mariadb.port, mysql.port] {
        let mut setup = Setup::sharing(port);
        setup.variables.max_allowed_packet = 1 << 20;
        let proxy = setup.start();
        prepared::commands_without_an_answer(proxy.port);
        prepared::a_reset_forgets_statements(proxy.port);
        // As a server does.
        prepared::a_reset_forgets_statements(port);
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
    for raw in [&mut two, &mut three, &mut one] {
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
