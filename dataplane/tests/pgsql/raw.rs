//! Messages that no driver sends, byte by byte.
#![allow(clippy::unwrap_used, reason = "a step that fails is the test's failure")]

use std::time::Duration;

use quorumsql_chaos::servers::Postgres;
use quorumsql_dataplane::config::Variables;
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frontend::{self, Target};
use quorumsql_wire::pgsql::{frame, startup};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bytes::Raw;
use crate::support::{Setup, in_front_of_server, quick, until};

#[tokio::test]
async fn before_login() {
    let server = Postgres::start(&[]);
    let variables = Variables { connect_timeout_client: Duration::from_millis(500), max_connections: 1, ..quick() };
    let plane = Setup { variables: Some(variables), ..Setup::writer(&server, 2) }.start();
    for noise in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\x02", b"\0\0\0\x07\0\x03\0", b"\0\0\xff\xff\0\x03\0\0"] {
        let mut raw = Raw::open(&plane).await;
        raw.socket.write_all(noise).await.unwrap();
        assert!(raw.next().await.is_none(), "{noise:?} is closed without a word");
    }
    let mut silent = Raw::open(&plane).await;
    assert!(silent.next().await.is_none(), "the login deadline");
    let mut raw = Raw::open(&plane).await;
    for request in [b"\0\0\0\x08\x04\xd2\x16\x30", b"\0\0\0\x08\x04\xd2\x16\x2f"] {
        raw.socket.write_all(request).await.unwrap();
        assert_eq!(raw.socket.read_u8().await.unwrap(), b'N');
    }
    raw.socket.write_all(b"\0\0\0\x0c\0\x02\0\0user").await.unwrap();
    assert_eq!(raw.last_words().await, ("0A000".into(), "unsupported frontend protocol 2.0: server supports 3.0 to 3.2".into()));
    let mut raw = Raw::open(&plane).await;
    raw.socket.write_all(b"\0\0\0\x1c\0\x03\x27\x0fuser\0demo\0_pq_.x\x001\0\0").await.unwrap();
    let (tag, body) = raw.next().await.unwrap();
    assert_eq!((tag, &body[..]), (b'v', &b"\0\x03\0\x02\0\0\0\x01_pq_.x\0"[..]));
    drop(raw);
    until("the place is free again", || plane.plane.stats().workers.iter().sum::<usize>() == 0).await;
    let first = Raw::login(&plane).await;
    let mut second = Raw::open(&plane).await;
    second.send(|out| startup::startup_message(out, [("user", "demo")])).await;
    assert_eq!(second.last_words().await, ("53300".into(), "sorry, too many clients already".into()));
    drop(first);
}

#[tokio::test]
async fn partial_batches_errors_and_unknown_messages() {
    let (_server, plane) = in_front_of_server(1);
    let mut raw = Raw::login(&plane).await;
    raw.send(|out| {
        frontend::parse(out, b"a", b"SELECT $1::int", b"");
        frontend::describe(out, Target::Statement, b"a");
        frame::encode(out, b'H', |_| {});
    })
    .await;
    assert_eq!(raw.tags_until(b'T').await, "1tT", "Flush brings answers without a Sync");
    raw.send(|out| {
        frontend::bind(out, b"", b"a", b"\0\0\0\x01\0\0\0\x015\0\0");
        frontend::execute(out, b"", 0);
        frontend::close(out, Target::Statement, b"a");
        frontend::close(out, Target::Statement, b"never");
        frontend::sync(out);
    })
    .await;
    assert_eq!(raw.tags().await, "2DC33ZI");
    raw.send(|out| {
        frontend::parse(out, b"", b"SELECT nonsense", b"");
        frontend::bind(out, b"", b"", b"\0\0\0\0\0\0");
        frame::encode(out, b'H', |_| {});
    })
    .await;
    assert_eq!(raw.tags_until(b'E').await, "E");
    raw.send(|out| {
        frontend::query(out, b"SELECT 'thrown away'");
        frontend::sync(out);
        frontend::sync(out);
        frontend::query(out, b"");
    })
    .await;
    assert_eq!((raw.tags().await, raw.tags().await, raw.tags().await), ("ZI".into(), "ZI".into(), "IZI".into()));
    raw.send(|out| {
        frontend::bind(out, b"", b"missing", b"\0\0\0\0\0\0");
        frontend::execute(out, b"", 0);
        frontend::sync(out);
    })
    .await;
    assert_eq!(raw.tags().await, "EZI");
    raw.send(|out| {
        frontend::query(out, b"BEGIN");
        frontend::parse(out, b"twice", b"SELECT 1", b"");
        frontend::parse(out, b"twice", b"SELECT 1", b"");
        frontend::sync(out);
        frontend::query(out, b"ROLLBACK");
    })
    .await;
    assert_eq!((raw.tags().await, raw.tags().await, raw.tags().await), ("CZT".into(), "1EZE".into(), "CZI".into()));
    raw.socket.write_all(b"!\0\0\0\x04").await.unwrap();
    assert_eq!(raw.last_words().await, ("08P01".into(), "invalid frontend message type 33".into()));
}

#[tokio::test]
async fn copy_data_that_is_sent_without_waiting() {
    let (server, plane) = in_front_of_server(1);
    let mut raw = Raw::login(&plane).await;
    raw.send(|out| frontend::query(out, b"CREATE TABLE blind (i int)")).await;
    assert_eq!(raw.tags().await, "CZI");
    raw.send(|out| {
        frontend::parse(out, b"", b"COPY blind FROM STDIN", b"");
        frontend::bind(out, b"", b"", b"\0\0\0\0\0\0");
        frontend::execute(out, b"", 0);
        frontend::sync(out);
        frame::encode(out, b'd', |out| out.extend_from_slice(b"1\n2\n"));
        frame::encode(out, b'c', |_| {});
        frontend::sync(out);
        frontend::query(out, b"SELECT count(*) FROM blind");
    })
    .await;
    assert_eq!((raw.tags().await, raw.tags().await), ("12GCZI".into(), "TDCZI".into()));
    // What was sent before the good-bye is executed.
    raw.send(|out| {
        frontend::query(out, b"INSERT INTO blind VALUES (3)");
        frontend::terminate(out);
    })
    .await;
    while raw.next().await.is_some() {}
    assert_eq!(server.root("demo", "SELECT count(*) FROM blind").trim(), "3");
}

/// Messages that the server ignores in COPY, those that it ends the connection for, and a good-bye, all sent at once with the COPY.
#[tokio::test]
async fn what_else_comes_during_copy_is_dealt_with_as_by_the_server() {
    type Rest = fn(&mut Vec<u8>);
    let cases: [(&str, Rest, &str, &str); 5] = [
        ("Sync and Flush", |out| (frontend::sync(out), frame::encode(out, b'H', |_| {}), frame::encode(out, b'c', |_| {})).0, "GCZI", "1"),
        ("a failure", |out| (frontend::sync(out), frame::encode(out, b'f', |out| out.push(0))).0, "GEZI", "0"),
        ("a Query", |out| frontend::query(out, b"SELECT 1"), "GEE", "0"),
        ("a Bind", |out| frontend::bind(out, b"", b"", b"\0\0\0\0\0\0"), "GEE", "0"),
        ("a good-bye", frontend::terminate, "GEE", "0"),
    ];
    let (server, plane) = in_front_of_server(1);
    let other = plane.client().await;
    other.simple_query("CREATE TABLE copied (i int)").await.unwrap();
    for (what, rest, answer, count) in cases {
        for port in [server.port, plane.port] {
            let mut raw = Raw::login_at(port).await;
            raw.send(|out| {
                frontend::query(out, b"COPY copied FROM STDIN");
                frame::encode(out, b'd', |out| out.extend_from_slice(b"1\n"));
                rest(out);
            })
            .await;
            assert_eq!(raw.tags().await, answer, "{what} at {port}");
            if !answer.ends_with('I') {
                continue;
            }
            raw.send(|out| frontend::query(out, b"SELECT count(*) FROM copied")).await;
            raw.send(|out| frontend::query(out, b"TRUNCATE copied")).await;
            let (mut seen, mut value) = (String::new(), Vec::new());
            while !seen.ends_with("ZCZ") {
                let (tag, body) = raw.next().await.unwrap();
                seen.push(tag as char);
                value = if tag == b'D' { body } else { value };
            }
            assert!(value.ends_with(count.as_bytes()), "{what} at {port}: {value:?}");
        }
    }
}

#[tokio::test]
async fn a_pipeline_flows_while_both_directions_are_full() {
    const PARTS: usize = 30;
    const SIZE: usize = 1 << 20;
    let (_server, plane) = in_front_of_server(1);
    let Raw { socket, .. } = Raw::login(&plane).await;
    let (mut reader, mut writer) = socket.into_split();
    let write = async move {
        let mut out = Vec::new();
        frontend::parse(&mut out, b"echo", b"SELECT $1::text", b"");
        writer.write_all(&out).await.unwrap();
        for part in 0..PARTS {
            out.clear();
            let mut rest = b"\0\0\0\x01".to_vec();
            rest.extend_from_slice(&u32::try_from(SIZE).unwrap().to_be_bytes());
            rest.resize(rest.len() + SIZE, b'a' + u8::try_from(part % 26).unwrap());
            rest.extend_from_slice(b"\0\0");
            frontend::bind(&mut out, b"", b"echo", &rest);
            frontend::execute(&mut out, b"", 0);
            writer.write_all(&out).await.unwrap();
        }
        out.clear();
        frontend::sync(&mut out);
        writer.write_all(&out).await.unwrap();
        writer
    };
    let read = async move {
        let (mut all, mut end) = (Vec::new(), [0; 6]);
        while !end.starts_with(b"Z\0\0\0\x05") {
            assert!(reader.read_buf(&mut all).await.unwrap() > 0, "closed after {} bytes", all.len());
            end.copy_from_slice(&all[all.len().saturating_sub(6)..][..6]);
        }
        all
    };
    let (_writer, all) = tokio::join!(write, read);
    let (mut rows, mut rest) = (Vec::new(), &all[..]);
    while let Some(frame) = frame::decode(rest, usize::MAX).unwrap() {
        if frame.tag == b'D' {
            assert_eq!(frame.body.len(), SIZE + 6);
            rows.push(frame.body[6]);
        }
        rest = &rest[frame.size()..];
    }
    let expected: Vec<u8> = (0..PARTS).map(|part| b'a' + u8::try_from(part % 26).unwrap()).collect();
    assert_eq!(rows, expected);
}

#[tokio::test]
async fn statements_that_are_too_long_and_the_end_of_service() {
    let server = Postgres::start(&[]);
    let variables = Variables { max_allowed_packet: 100_000, ..quick() };
    let plane = Setup { variables: Some(variables), ..Setup::writer(&server, 3) }.start();
    let mut raw = Raw::login(&plane).await;
    let long = vec![b' '; 300_000];
    raw.send(|out| frontend::query(out, &long)).await;
    assert_eq!(raw.tags().await, "EZI");
    raw.send(|out| {
        frontend::parse(out, b"", &long, b"");
        frontend::bind(out, b"", b"", b"\0\0\0\0\0\0");
        frontend::sync(out);
    })
    .await;
    assert_eq!(raw.tags().await, "EZI");
    raw.send(|out| frontend::query(out, b"BEGIN")).await;
    assert_eq!(raw.tags().await, "CZT");
    raw.send(|out| {
        frontend::parse(out, b"", &long, b"");
        frontend::sync(out);
    })
    .await;
    assert_eq!(raw.tags().await, "EZE", "the transaction has failed as if the server had refused");

    let (mut idle, mut pinned) = (Raw::login(&plane).await, Raw::login(&plane).await);
    pinned.send(|out| frontend::query(out, b"LISTEN news")).await;
    assert_eq!(pinned.tags().await, "CZI");
    plane.plane.begin_drain();
    let goodbye = || ("57P01".to_owned(), "terminating connection due to administrator command".to_owned());
    assert_eq!((idle.last_words().await, pinned.last_words().await), (goodbye(), goodbye()));
    raw.send(|out| frontend::query(out, b"ROLLBACK")).await;
    assert_eq!(raw.tags().await, "CZI", "a transaction is finished first");
    assert_eq!(raw.last_words().await, goodbye());
    assert_eq!(plane.plane.drained(Duration::from_secs(10)).await, 0);
}

#[tokio::test]
async fn a_session_knows_its_own_notifications() {
    let (_server, plane) = in_front_of_server(2);
    let (mut listener, mut other) = (Raw::login(&plane).await, Raw::login(&plane).await);
    for sql in ["LISTEN news", "NOTIFY news, 'mine'"] {
        listener.send(|out| frontend::query(out, sql.as_bytes())).await;
        if sql.starts_with('L') {
            assert_eq!(listener.tags().await, "CZI");
        }
    }
    let tags = listener.tags_until(b'A').await;
    assert_eq!(tags, "CA", "with the answer of its statement");
    let pid = listener.key[..4].to_vec();
    assert_eq!(listener.tags().await, "ZI");
    listener.send(|out| frontend::query(out, b"NOTIFY news, 'mine'")).await;
    let sender = loop {
        if let (b'A', body) = listener.next().await.unwrap() {
            break body[..4].to_vec();
        }
    };
    assert_eq!(sender, pid, "the process id that the client knows as its own");
    assert_eq!(listener.tags().await, "ZI");
    other.send(|out| frontend::query(out, b"NOTIFY news, 'from elsewhere'")).await;
    let (tag, body) = listener.next().await.unwrap();
    assert_eq!(tag, b'A');
    assert_ne!(body[..4], pid, "another's is another's");
}

#[tokio::test]
async fn malformed_messages_are_refused_as_by_the_server() {
    let (server, plane) = in_front_of_server(1);
    let mut direct = Vec::new();
    for port in [server.port, plane.port] {
        let mut raw = Raw::login_at(port).await;
        let mut seen = Vec::new();
        for message in [
            &b"Q\0\0\0\x08SELE"[..],
            b"Q\0\0\0\x0dSELECT 1\0",
            b"Q\0\0\0\x06;\0",
            b"P\0\0\0\x08abcdS\0\0\0\x04",
            b"P\0\0\0\x08a\0;\0S\0\0\0\x04",
            b"B\0\0\0\x06\0\0S\0\0\0\x04",
            b"D\0\0\0\x07Xa\0S\0\0\0\x04",
            b"D\0\0\0\x06SaS\0\0\0\x04",
            b"C\0\0\0\x08Sa\0zS\0\0\0\x04",
            b"E\0\0\0\x06a\0S\0\0\0\x04",
            b"S\0\0\0\x05x",
            b"H\0\0\0\x05xS\0\0\0\x04",
            b"Q\0\0\0\x0aBEGIN\0",
            b"B\0\0\0\x06\0\0S\0\0\0\x04",
            b"Q\0\0\0\x0dROLLBACK\0",
            b"d\0\0\0\x05xc\0\0\0\x05xf\0\0\0\x05xQ\0\0\0\x06;\0",
        ] {
            raw.socket.write_all(message).await.unwrap();
            let mut answer = String::new();
            while let Some((tag, body)) = raw.next().await {
                answer.push(tag as char);
                if tag == b'E' {
                    let fields = ErrorFields::decode(&body).unwrap();
                    answer.push_str(&format!("({} {})", fields.code, fields.message));
                }
                if tag == b'Z' {
                    answer.push(body[0] as char);
                    break;
                }
            }
            seen.push((message, answer));
        }
        if direct.is_empty() {
            direct = seen;
        } else {
            assert_eq!(seen, direct, "through the proxy, and directly");
        }
    }
    let mut raw = Raw::login(&plane).await;
    raw.send(|out| {
        frontend::parse(out, b"mine", b"SELECT $1::int, $2::int", b"");
        frontend::bind(out, b"", b"mine", b"\0\0\0\x01\0\0\0\x015\0\0");
        frontend::sync(out);
    })
    .await;
    assert_eq!(raw.next().await.unwrap().0, b'1');
    let (tag, body) = raw.next().await.unwrap();
    let fields = ErrorFields::decode(&body).unwrap();
    assert_eq!((tag, fields.message.as_str()), (b'E', "bind message supplies 1 parameters, but prepared statement \"mine\" requires 2"));
}

#[tokio::test]
async fn an_unnamed_statement_keeps_the_rows_that_its_client_was_told_of() {
    let (_server, plane) = in_front_of_server(2);
    let other = plane.client().await;
    other.simple_query("CREATE TABLE kept (a int); INSERT INTO kept VALUES (1)").await.unwrap();
    let mut raw = Raw::login(&plane).await;
    for (sql, change, answer) in
        [("SELECT a FROM kept", "ALTER TABLE kept ADD b int", "2DCZI"), ("SELECT * FROM kept", "ALTER TABLE kept ADD c int", "EZI")]
    {
        raw.send(|out| {
            frontend::parse(out, b"", sql.as_bytes(), b"");
            frontend::describe(out, Target::Statement, b"");
            frontend::sync(out);
        })
        .await;
        assert_eq!(raw.tags().await, "1tTZI");
        other.simple_query(change).await.unwrap();
        other.simple_query("BEGIN").await.unwrap();
        raw.send(|out| {
            frontend::bind(out, b"", b"", b"\0\0\0\0\0\0");
            frontend::execute(out, b"", 0);
            frontend::sync(out);
        })
        .await;
        assert_eq!(raw.tags().await, answer, "{sql}");
        other.simple_query("ROLLBACK").await.unwrap();
    }
}

#[tokio::test]
async fn a_named_statement_keeps_the_rows_that_its_portal_was_described_with() {
    let (_server, plane) = in_front_of_server(2);
    let other = plane.client().await;
    other.simple_query("CREATE TABLE kept (a int); INSERT INTO kept VALUES (1)").await.unwrap();
    let mut raw = Raw::login(&plane).await;
    for portal in [&b""[..], b"portal"] {
        raw.send(|out| {
            frontend::parse(out, portal, b"SELECT * FROM kept", b"");
            frontend::parse(out, b"mine", b"SELECT * FROM kept", b"");
            frontend::bind(out, portal, b"mine", b"\0\0\0\0\0\0");
            frontend::describe(out, Target::Portal, portal);
            frontend::execute(out, portal, 0);
            frontend::sync(out);
        })
        .await;
        assert_eq!(raw.tags().await, "112TDCZI");
        other.simple_query("ALTER TABLE kept ADD COLUMN b int; ALTER TABLE kept RENAME COLUMN b TO c").await.unwrap();
        // The only connection that knows the statement is taken.
        other.simple_query("BEGIN").await.unwrap();
        raw.send(|out| {
            frontend::bind(out, b"", b"mine", b"\0\0\0\0\0\0");
            frontend::execute(out, b"", 0);
            frontend::sync(out);
        })
        .await;
        let (tag, body) = raw.next().await.unwrap();
        assert_eq!((tag, ErrorFields::decode(&body).unwrap().code.as_str()), (b'E', "0A000"));
        assert_eq!(raw.tags().await, "ZI");
        raw.send(|out| {
            frontend::close(out, Target::Statement, b"mine");
            frontend::close(out, Target::Statement, portal);
            frontend::sync(out);
        })
        .await;
        assert_eq!(raw.tags().await, "33ZI");
        other.simple_query("ROLLBACK; ALTER TABLE kept DROP COLUMN c").await.unwrap();
    }
}
