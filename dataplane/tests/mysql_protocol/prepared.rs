//! The binary protocol: cursors, types that are not sent again, long data.

use quorumsql_wire::mysql::Status;
use quorumsql_wire::mysql::column::kind;
use quorumsql_wire::mysql::command::byte;

use crate::raw::{PLAIN, Raw};

/// All of them, on one server connection.
pub(crate) fn all(port: u16) {
    let (mut one, mut two) = (Raw::log_in(port, PLAIN), Raw::log_in(port, PLAIN));
    cursor(&mut one);
    cursors_are_ones_own(&mut one);
    types_are_remembered(&mut one, &mut two);
    long_data(&mut one);
    wrong_long_data(&mut one, &mut two);
    full_server(&mut one, &mut two);
    one.command(byte::STMT_EXECUTE, &execute(999, 0, &[]));
    assert_eq!(one.error(), 1243);
}

fn execute(statement: u32, flags: u8, rest: &[u8]) -> Vec<u8> {
    [&statement.to_le_bytes()[..], &[flags, 1, 0, 0, 0], rest].concat()
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

/// A cursor stays open while its text is prepared again, executed by another statement, and many others are prepared.
fn cursors_are_ones_own(raw: &mut Raw) {
    const SQL: &str = "SELECT 1 AS a UNION ALL SELECT 2 UNION ALL SELECT 3";
    let (first, second) = (raw.prepare(SQL).statement, raw.prepare(SQL).statement);
    let fetch = |raw: &mut Raw, id: u32| {
        raw.command(byte::STMT_FETCH, &[id.to_le_bytes(), 1_u32.to_le_bytes()].concat());
        raw.until_eof().0
    };
    for id in [first, second] {
        raw.command(byte::STMT_EXECUTE, &execute(id, 1, &[]));
        assert!(raw.columns().contains(Status::CURSOR_EXISTS));
    }
    assert_eq!((fetch(raw, first), fetch(raw, second)), (1, 1));
    for number in 0..70 {
        raw.prepare(&format!("SELECT {number}"));
    }
    let third = raw.prepare(SQL).statement;
    raw.command(byte::STMT_EXECUTE, &execute(third, 0, &[]));
    raw.columns();
    assert_eq!(raw.until_eof().0, 3);
    assert_eq!((fetch(raw, first), fetch(raw, second)), (1, 1));
    for id in [first, second, third] {
        raw.command(byte::STMT_CLOSE, &id.to_le_bytes());
    }
}

/// Pieces that do not fit spoil their own statement until it is reset, and nobody else's.
fn wrong_long_data(one: &mut Raw, two: &mut Raw) {
    let (first, second) = (one.prepare("SELECT LENGTH(?)").statement, two.prepare("SELECT LENGTH(?)").statement);
    let piece = |raw: &mut Raw, parameter: u8, data: &[u8]| {
        raw.command(byte::STMT_SEND_LONG_DATA, &[&first.to_le_bytes()[..], &[parameter, 0], data].concat());
    };
    let length = |raw: &mut Raw, id: u32| {
        raw.command(byte::STMT_EXECUTE, &execute(id, 0, &[0, 1, kind::BLOB, 0, 2, b'h', b'i']));
        raw.columns();
        assert_eq!(raw.packet()[..3], [0, 0, 2]);
        raw.until_eof();
    };
    // The server's `max_allowed_packet` is smaller than ours; there is one parameter.
    for (pieces, parameter, size, code) in [(3, 0, 500_000, 1105), (1, 1, 4, 1210)] {
        (0..pieces).for_each(|_| piece(one, parameter, &vec![b'x'; size]));
        for _ in 0..2 {
            one.command(byte::STMT_EXECUTE, &execute(first, 0, &[0, 1, kind::BLOB, 0, 2, b'h', b'i']));
            assert_eq!(one.error(), code);
            length(two, second);
        }
        one.command(byte::STMT_RESET, &first.to_le_bytes());
        one.ok();
        length(one, first);
    }
    // A type that cannot be long: what was sent for it is in nobody's way.
    piece(one, 0, b"left");
    one.command(byte::STMT_EXECUTE, &execute(first, 0, &[0, 1, kind::LONG, 0, 7, 0, 0, 0]));
    assert!(matches!(one.error(), 1210 | 1835));
    two.command(byte::STMT_EXECUTE, &execute(second, 0, &[0, 1, kind::VAR_STRING, 0, 2, b'h', b'i']));
    two.columns();
    assert_eq!(two.packet()[..3], [0, 0, 2]);
    two.until_eof();
    length(one, first);
}

/// What goes wrong with a command that has no answer is not said where the client expects another one's.
pub(crate) fn commands_without_an_answer(port: u16) {
    let mut raw = Raw::log_in(port, PLAIN);
    raw.command(byte::STMT_SEND_LONG_DATA, &[1, 0]);
    raw.command(byte::STMT_CLOSE, &[1]);
    raw.query("DO 1");
    raw.ok();
    let id = raw.prepare("SELECT LENGTH(?)").statement;
    raw.command(byte::STMT_SEND_LONG_DATA, &[&id.to_le_bytes()[..], &[0, 0], &vec![b'x'; 2 << 20]].concat());
    assert_eq!(raw.error(), 1153);
    assert_eq!(raw.packet(), b"", "the client would take every answer for that of the command before");
    let mut raw = Raw::log_in(port, PLAIN);
    raw.query(&format!("DO '{}'", "x".repeat(2 << 20)));
    assert_eq!(raw.error(), 1153);
    raw.query("DO 1");
    raw.ok();
}

/// An id from before a reset names no statement, and multi-statements stay off.
pub(crate) fn a_reset_forgets_statements(port: u16) {
    let mut raw = Raw::log_in(port, PLAIN);
    let old = raw.prepare("SELECT 1").statement;
    raw.command(byte::SET_OPTION, &[1, 0]);
    raw.until_eof();
    raw.command(byte::RESET_CONNECTION, &[]);
    raw.ok();
    let new = raw.prepare("SELECT 2").statement;
    assert!(new > old, "{new}");
    raw.command(byte::STMT_EXECUTE, &execute(old, 0, &[]));
    assert_eq!(raw.error(), 1243);
    raw.query("DO 1; DO 2");
    assert_eq!(raw.error(), 1064);
}

/// A server that has as many statements as it may loses those of the connection for one that is to be executed.
fn full_server(one: &mut Raw, two: &mut Raw) {
    one.query("SET GLOBAL max_prepared_stmt_count = 4");
    one.ok();
    two.command(byte::STMT_PREPARE, b"SELECT 0");
    assert_eq!(two.error(), 1461, "earlier ones are there");
    let mut prepared: Vec<u32> = (1..=4).map(|number| one.prepare(&format!("SELECT {number}")).statement).collect();
    two.command(byte::STMT_PREPARE, b"SELECT 5");
    assert_eq!(two.error(), 1461);
    prepared.push(one.prepare("SELECT 5").statement);
    for _ in 0..2 {
        for id in &prepared {
            one.command(byte::STMT_EXECUTE, &execute(*id, 0, &[]));
            one.columns();
            one.until_eof();
        }
    }
    one.query("SET GLOBAL max_prepared_stmt_count = DEFAULT");
    one.ok();
}
