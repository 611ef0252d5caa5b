//! Batches that are not, or not yet, ended by Sync, and what becomes of what a client has sent when it leaves.
#![allow(clippy::unwrap_used, reason = "a step that fails is the test's failure")]

use quorumsql_chaos::servers::Postgres;
use quorumsql_dataplane::rules::RuleRow;
use quorumsql_wire::pgsql::frame;
use quorumsql_wire::pgsql::frontend::{self, Target};
use tokio::io::AsyncWriteExt as _;

use crate::bytes::Raw;
use crate::support::{Setup, in_front_of_server, one};

/// Parse, Bind and Execute of a statement without parameters.
fn run(out: &mut Vec<u8>, sql: &str) {
    frontend::parse(out, b"", sql.as_bytes(), b"");
    frontend::bind(out, b"", b"", b"\0\0\0\0\0\0");
    frontend::execute(out, b"", 0);
}

/// An INSERT of `value` in a batch without Sync, all of which is answered.
async fn insert_and_flush(raw: &mut Raw, value: u8) {
    let sql = format!("INSERT INTO flushed VALUES ({value})");
    raw.send(|out| {
        run(out, &sql);
        frame::encode(out, b'H', |_| {});
    })
    .await;
    assert_eq!(raw.tags_until(b'C').await, "12C");
}

#[tokio::test]
async fn a_flushed_batch_is_one_transaction_until_its_sync() {
    let (_server, plane) = in_front_of_server(2);
    let other = plane.client().await;
    other.simple_query("CREATE TABLE flushed (i int PRIMARY KEY)").await.unwrap();
    let count = || one(&other, "SELECT count(*) FROM flushed");
    let mut raw = Raw::login(&plane).await;
    insert_and_flush(&mut raw, 1).await;
    assert_eq!(count().await, "0", "nobody else is on the connection of a transaction that is open");
    insert_and_flush(&mut raw, 2).await;
    raw.send(frontend::sync).await;
    assert_eq!((raw.tags().await, count().await), ("ZI".into(), "2".into()));
    insert_and_flush(&mut raw, 3).await;
    raw.send(|out| {
        frontend::parse(out, b"", b"SELECT nothing", b"");
        frontend::sync(out);
    })
    .await;
    assert_eq!((raw.tags().await, count().await), ("EZI".into(), "2".into()), "what came before the error is undone with it");
    insert_and_flush(&mut raw, 4).await;
    raw.send(frontend::terminate).await;
    assert!(raw.next().await.is_none());
    assert_eq!(count().await, "2", "a batch without Sync is undone when its client leaves");
}

/// What a client leaves behind that has not sent the Sync of its last batch.
#[tokio::test]
async fn what_was_not_synced_is_undone_however_its_client_leaves() {
    let (_server, plane) = in_front_of_server(2);
    let other = plane.client().await;
    other.simple_query("CREATE TABLE unsynced (i int PRIMARY KEY)").await.unwrap();
    let mut raw = Raw::login(&plane).await;
    raw.send(|out| {
        run(out, "INSERT INTO unsynced VALUES (1)");
        frontend::sync(out);
        run(out, "INSERT INTO unsynced VALUES (2)");
        run(out, "INSERT INTO unsynced SELECT 3 FROM pg_sleep(0.2)");
        frontend::terminate(out);
    })
    .await;
    while raw.next().await.is_some() {}
    let mut raw = Raw::login(&plane).await;
    raw.send(|out| {
        run(out, "INSERT INTO unsynced VALUES (4)");
        run(out, "SELECT nothing");
        run(out, "INSERT INTO unsynced VALUES (5)");
        frontend::terminate(out);
    })
    .await;
    while raw.next().await.is_some() {}
    let mut raw = Raw::login(&plane).await;
    raw.send(|out| run(out, "INSERT INTO unsynced VALUES (6)")).await;
    raw.send(|out| run(out, "INSERT INTO unsynced SELECT 7 FROM pg_sleep(0.2)")).await;
    raw.socket.shutdown().await.unwrap();
    while raw.next().await.is_some() {}
    // Its lock is free once each of the three is gone from the server.
    other.simple_query("BEGIN; LOCK TABLE unsynced; COMMIT").await.unwrap();
    assert_eq!(one(&other, "SELECT string_agg(i::text, ',') FROM unsynced").await, "1");
}

/// Queries that the node answers itself end a batch as any Query does.
#[tokio::test]
async fn an_answer_of_the_node_ends_a_batch_as_the_server_would() {
    let server = Postgres::start(&[]);
    let rule = |rule_id, digest: &str| RuleRow { rule_id, match_digest: Some(digest.into()), apply: true, ..RuleRow::default() };
    let forbid = RuleRow { error_msg: Some("not here".into()), ..rule(1, "forbidden") };
    let accept = RuleRow { ok_msg: Some("fine".into()), ..rule(2, "harmless") };
    let plane = Setup::writer(&server, 2).rule(forbid).rule(accept).start();
    let other = plane.client().await;
    other.simple_query("CREATE TABLE flushed (i int UNIQUE DEFERRABLE INITIALLY DEFERRED)").await.unwrap();
    let mut raw = Raw::login(&plane).await;
    raw.send(|out| {
        frontend::parse(out, b"mine", b"SELECT 1", b"");
        frontend::sync(out);
    })
    .await;
    assert_eq!(raw.tags().await, "1ZI");
    // The last one is a duplicate, which only shows when the batch is committed.
    let cases = [
        (1, "UPDATE harmless", "CZI", "1"),
        (2, "SELECT forbidden", "EZI", "1"),
        (3, "DEALLOCATE mine", "CZI", "1,3"),
        (4, "EXECUTE __qsql_1", "EZI", "1,3"),
        (3, "UPDATE harmless", "EZI", "1,3"),
    ];
    for (value, sql, answer, rows) in cases {
        insert_and_flush(&mut raw, value).await;
        raw.send(|out| frontend::query(out, sql.as_bytes())).await;
        assert_eq!(raw.tags().await, answer, "{sql}");
        assert_eq!(one(&other, "SELECT string_agg(i::text, ',' ORDER BY i) FROM flushed").await, rows, "behind {sql}");
    }
    // The same when the batch was not flushed: the server answers it when it gets the Query.
    let define = |out: &mut Vec<u8>| frontend::parse(out, b"mine", b"SELECT 1", b"");
    raw.send(|out| (define(out), frontend::sync(out)).0).await;
    assert_eq!(raw.tags().await, "1ZI");
    for (value, sql, answer) in [
        ("5", "UPDATE harmless", "12CCZI"),
        ("1", "DEALLOCATE mine", "12CEZI"),
        ("'x'", "DEALLOCATE mine", "EZI"),
        ("6", "DEALLOCATE mine", "12CCZI"),
        ("7", "DEALLOCATE mine", "12CEZI"),
    ] {
        raw.send(|out| {
            run(out, &format!("INSERT INTO flushed VALUES ({value})"));
            frontend::query(out, sql.as_bytes());
            if answer == "EZI" {
                frontend::sync(out);
            }
        })
        .await;
        assert_eq!(raw.tags().await, answer, "{sql} behind {value}");
    }
}

#[tokio::test]
async fn what_a_client_has_sent_before_its_goodbye_is_done_though_it_does_not_wait() {
    let (_server, plane) = in_front_of_server(2);
    let other = plane.client().await;
    other.simple_query("CREATE TABLE done (i int)").await.unwrap();
    let opened = plane.opened();
    for (number, rows) in [(1, "SELECT 1"), (2, "SELECT repeat('x', 10000) FROM generate_series(1, 3000)")] {
        let mut raw = Raw::login(&plane).await;
        raw.send(|out| {
            frontend::query(out, format!("INSERT INTO done SELECT {number} FROM pg_sleep(0.2); {rows}").as_bytes());
            frontend::query(out, format!("INSERT INTO done SELECT {number} FROM pg_sleep(0.1)").as_bytes());
            run(out, &format!("INSERT INTO done VALUES ({number})"));
            frontend::sync(out);
            frontend::terminate(out);
        })
        .await;
        drop(raw);
        let done = format!("SELECT count(*) FROM done WHERE i = {number}");
        let limit = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
        while one(&other, &done).await != "3" {
            assert!(tokio::time::Instant::now() < limit, "statement {number} was not finished");
        }
    }
    assert!(plane.opened() <= opened + 1, "its connection goes back to the pool");
}

/// What is never run ties nobody to a connection, and what is run does, whatever comes with it.
#[tokio::test]
async fn only_what_has_run_ties_a_session_to_its_connection() {
    let (_server, plane) = in_front_of_server(1);
    let used = || plane.plane.stats().pool.iter().map(|row| row.used).sum::<u64>();
    let mut raw = Raw::login(&plane).await;
    for (hidden, makes) in [
        ("DO $$BEGIN SET work_mem = '8MB'; END$$", true),
        ("SELECT setseed(0.5)", true),
        ("LOAD 'plpgsql'", true),
        ("SET TIME ZONE -7", true),
        ("SELECT set_config('app' || '.x', 'y', false)", true),
        ("LISTEN news", true),
        ("SELECT pg_advisory_lock(1)", true),
        ("SELECT 1", false),
    ] {
        raw.send(|out| {
            run(out, "SELECT 1/0");
            run(out, hidden);
            frontend::sync(out);
        })
        .await;
        assert_eq!((raw.tags().await, used()), ("1EZI".into(), 0), "{hidden}: skipped");
        raw.send(|out| {
            run(out, "SELECT 1/0");
            frontend::query(out, hidden.as_bytes());
            frontend::sync(out);
        })
        .await;
        assert_eq!((raw.tags().await, used()), ("1EZI".into(), 0), "{hidden}: skipped as a Query");
        raw.send(|out| {
            frontend::parse(out, b"", hidden.as_bytes(), b"");
            frontend::describe(out, Target::Statement, b"");
            frontend::bind(out, b"", b"", b"\0\0\0\0\0\0");
            frontend::sync(out);
        })
        .await;
        assert!(raw.tags().await.ends_with("2ZI"), "{hidden}");
        assert_eq!(used(), 0, "{hidden}: bound, but not executed");
        raw.send(|out| {
            run(out, "SELECT 1");
            run(out, hidden);
            frontend::sync(out);
        })
        .await;
        assert!(raw.tags().await.ends_with("ZI"), "{hidden}");
        assert_eq!(used(), u64::from(makes), "{hidden}: run");
        raw.send(|out| frontend::query(out, b"DISCARD ALL")).await;
        assert_eq!((raw.tags().await, used()), ("CZI".into(), 0), "{hidden}");
    }
    // What comes behind DISCARD ALL, and in a second batch that is sent before the first is answered.
    raw.send(|out| {
        run(out, "DISCARD ALL");
        run(out, "LISTEN news");
        frontend::sync(out);
        frontend::parse(out, b"", b"DO $$BEGIN SET work_mem = '8MB'; END$$", b"");
        frontend::bind(out, b"", b"", b"\0\0\0\0\0\0");
        frame::encode(out, b'H', |_| {});
    })
    .await;
    assert_eq!((raw.tags().await, raw.tags_until(b'2').await), ("12C12CZI".into(), "12".into()));
    raw.send(|out| {
        frontend::execute(out, b"", 0);
        frontend::sync(out);
    })
    .await;
    assert_eq!((raw.tags().await, used()), ("CZI".into(), 1));
    raw.send(|out| frontend::query(out, b"UNLISTEN *")).await;
    assert_eq!((raw.tags().await, used()), ("CZI".into(), 1), "DO still ties it");
}

/// What a batch does to statements behind its error has not happened.
#[tokio::test]
async fn statements_outlive_what_was_skipped() {
    let (server, plane) = in_front_of_server(1);
    type Skipped = fn(&mut Vec<u8>);
    let cases: [(&str, Skipped); 5] = [
        ("a Query", |out| frontend::query(out, b"SELECT 1")),
        ("another unnamed one", |out| frontend::parse(out, b"", b"SELECT 2", b"")),
        ("a Close of the unnamed one", |out| frontend::close(out, Target::Statement, b"")),
        ("a Close", |out| frontend::close(out, Target::Statement, b"s")),
        ("another in its place", |out| {
            frontend::close(out, Target::Statement, b"s");
            frontend::parse(out, b"s", b"SELECT 3", b"");
        }),
    ];
    for (what, skipped) in cases {
        for port in [server.port, plane.port] {
            let mut raw = Raw::login_at(port).await;
            raw.send(|out| {
                frontend::parse(out, b"s", b"SELECT 'named'::text", b"");
                frontend::parse(out, b"bad", b"SELECT 1/0 FROM generate_series(1, 1)", b"");
                frontend::parse(out, b"", b"SELECT 'unnamed'::text", b"");
                frontend::sync(out);
                frontend::bind(out, b"", b"bad", b"\0\0\0\0\0\0");
                frontend::execute(out, b"", 0);
                skipped(out);
                frontend::sync(out);
                for name in [&b"s"[..], b""] {
                    frontend::bind(out, b"", name, b"\0\0\0\0\0\0");
                    frontend::execute(out, b"", 0);
                }
                frontend::sync(out);
            })
            .await;
            let answers = (raw.tags().await, raw.tags().await, raw.tags().await);
            assert_eq!(answers, ("111ZI".into(), "EZI".into(), "2DC2DCZI".into()), "{what} at {port}");
        }
    }
}
