//! Rules, guard, limits.

use quorumsql_chaos::servers::Postgres;
use quorumsql_dataplane::config::Protocol;
use quorumsql_dataplane::rules::RuleRow;
use quorumsql_wire::pgsql::{frame, frontend};

use crate::bytes::Raw;
use crate::support::{READER, Setup, one, told};

fn to_reader() -> RuleRow {
    RuleRow {
        rule_id: 1,
        match_digest: Some("^SELECT".into()),
        destination_hostgroup: Some(READER),
        apply: true,
        caseless: true,
        ..RuleRow::default()
    }
}

#[tokio::test]
async fn reads_go_to_the_standby_and_what_must_not_goes_to_the_writer() {
    let server = Postgres::start(&["wal_level=replica"]);
    let standby = server.standby();
    let plane = Setup::writer(&server, 5).reader(&standby, 5).rule(to_reader()).start();
    let mut client = plane.client().await;
    client.simple_query("CREATE TABLE r (i int); INSERT INTO r VALUES (1)").await.unwrap();
    // Drivers ask so for the role; here it tells where a statement ran.
    let place = "SELECT CASE WHEN pg_is_in_recovery() THEN 'reader' ELSE 'writer' END AS place";
    assert_eq!(one(&client, place).await, "reader");
    let prepared = client.prepare(place).await.unwrap();
    assert_eq!(client.query_one(&prepared, &[]).await.unwrap().get::<_, String>(0), "reader");
    client.simple_query("SELECT 1 FROM r FOR UPDATE").await.unwrap();
    let transaction = client.transaction().await.unwrap();
    assert_eq!(transaction.query_one(place, &[]).await.unwrap().get::<_, String>(0), "writer");
    assert_eq!(transaction.query_one(&prepared, &[]).await.unwrap().get::<_, String>(0), "writer");
    transaction.commit().await.unwrap();
    client.simple_query("SELECT pg_advisory_lock(1)").await.unwrap();
    assert_eq!(one(&client, place).await, "writer", "a pinned session stays");
    let rules = plane.plane.stats().rules(Protocol::Pgsql).to_vec();
    assert!(rules[0].hits >= 4 && rules[0].guarded == 2, "{rules:?}");
}

#[tokio::test]
async fn a_transaction_on_a_reader_does_not_begin_to_write() {
    let (server, reader) = (Postgres::start(&[]), Postgres::start(&[]));
    let begin = RuleRow { match_digest: Some("^BEGIN READ ONLY".into()), ..to_reader() };
    let plane = Setup::writer(&server, 5).reader(&reader, 5).rule(begin).start();
    for database in [&server, &reader] {
        let _made = database.root("demo", "CREATE TABLE w (i int)");
    }
    let client = plane.client().await;
    for turn in ["SET TRANSACTION READ WRITE", "SET LOCAL transaction_read_only = off", "SELECT set_config('app.x', '1', true)"] {
        client.simple_query("BEGIN READ ONLY").await.unwrap();
        client.simple_query(turn).await.unwrap();
        let expected = ("25006".to_owned(), "cannot execute INSERT in a read-only transaction".to_owned());
        assert_eq!(told(&client.simple_query("INSERT INTO w VALUES (1)").await.unwrap_err()), expected, "{turn}");
        let failed = client.simple_query("SELECT 1").await.unwrap_err();
        assert_eq!(told(&failed).0, "25P02", "{turn}");
        client.simple_query("ROLLBACK").await.unwrap();
        client.simple_query("BEGIN READ ONLY").await.unwrap();
        client.simple_query(turn).await.unwrap();
        assert_eq!(told(&client.query("INSERT INTO w VALUES (1)", &[]).await.unwrap_err()), expected, "{turn}, by the extended protocol");
        client.simple_query("ROLLBACK").await.unwrap();
    }
    // Behind a backslash that escapes, a quote is no end.
    for sql in ["BEGIN READ ONLY", "SET LOCAL standard_conforming_strings = off", "SET TRANSACTION READ WRITE"] {
        client.simple_query(sql).await.unwrap();
    }
    let hidden = client.simple_query(r"SELECT '\''; INSERT INTO w VALUES (1); --'").await.unwrap_err();
    assert_eq!(told(&hidden).0, "25006");
    client.simple_query("ROLLBACK").await.unwrap();
    client.simple_query("INSERT INTO w VALUES (1)").await.unwrap();
    assert_eq!((server.root("demo", "SELECT count(*) FROM w").trim(), reader.root("demo", "SELECT count(*) FROM w").trim()), ("1", "0"));
}

#[tokio::test]
async fn what_follows_a_read_without_waiting_does_not_write_on_its_reader() {
    let (server, reader) = (Postgres::start(&[]), Postgres::start(&[]));
    let begin = RuleRow { rule_id: 2, match_digest: Some("^BEGIN READ ONLY".into()), ..to_reader() };
    let plane = Setup::writer(&server, 5).reader(&reader, 5).rule(to_reader()).rule(begin).start();
    for database in [&server, &reader] {
        let _made = database.root("demo", "CREATE TABLE w (i int)");
    }
    let run = |out: &mut Vec<u8>, sql: &str| {
        frontend::parse(out, b"", sql.as_bytes(), b"");
        frontend::bind(out, b"", b"", b"\0\0\0\0\0\0");
        frontend::execute(out, b"", 0);
    };
    for first in ["SELECT 1", "BEGIN READ ONLY"] {
        let mut raw = Raw::login(&plane).await;
        raw.send(|out| {
            run(out, first);
            frame::encode(out, b'H', |_| {});
        })
        .await;
        let _answers = raw.tags_until(b'C').await;
        raw.send(|out| {
            run(out, "SET TRANSACTION READ WRITE");
            run(out, "INSERT INTO w VALUES (1)");
            frontend::sync(out);
        })
        .await;
        assert_eq!(raw.tags_until(b'Z').await.get(..7), Some("12C12CZ"), "{first}: a batch whose end is not known goes to the writer");
    }
    let client = plane.client().await;
    for text in ["SET TRANSACTION READ WRITE; INSERT INTO w VALUES (1)", "COMMIT; INSERT INTO w VALUES (1)", "CREATE TABLE x (i int)"] {
        client.simple_query("BEGIN READ ONLY").await.unwrap();
        client.simple_query("SET TRANSACTION READ WRITE").await.unwrap();
        assert_eq!(told(&client.simple_query(text).await.unwrap_err()).0, "25006", "{text}");
        client.simple_query("ROLLBACK").await.unwrap();
    }
    let mut raw = Raw::login(&plane).await;
    raw.send(|out| {
        frontend::query(out, b"SELECT 1");
        frontend::query(out, b"INSERT INTO w VALUES (1)");
    })
    .await;
    assert_eq!(raw.tags_until(b'Z').await, "TDCZI");
    assert_eq!(raw.tags_until(b'Z').await, "CZI", "a Query waits for what is before it, and goes its own way");
    raw.send(|out| {
        for sql in ["SELECT 1", "INSERT INTO w VALUES (1)"] {
            run(out, sql);
            frontend::sync(out);
        }
    })
    .await;
    assert_eq!(raw.tags_until(b'Z').await, "12DCZI");
    assert_eq!(raw.tags_until(b'Z').await, "12CZI", "and so does a batch");
    assert_eq!((server.root("demo", "SELECT count(*) FROM w").trim(), reader.root("demo", "SELECT count(*) FROM w").trim()), ("3", "0"));
}

#[tokio::test]
async fn error_and_ok_rules() {
    let server = Postgres::start(&[]);
    let forbid = RuleRow {
        rule_id: 1,
        match_digest: Some("forbidden".into()),
        error_msg: Some("not here".into()),
        apply: true,
        ..RuleRow::default()
    };
    let accept = RuleRow {
        rule_id: 2,
        match_digest: Some("^UPDATE harmless".into()),
        ok_msg: Some("fine".into()),
        apply: true,
        caseless: true,
        ..RuleRow::default()
    };
    let plane = Setup::writer(&server, 2).rule(forbid).rule(accept).start();
    let client = plane.client().await;
    let refused = || ("42501".to_owned(), "not here".to_owned());
    assert_eq!(told(&client.simple_query("SELECT * FROM forbidden").await.unwrap_err()), refused());
    assert_eq!(told(&client.query("SELECT * FROM forbidden", &[]).await.unwrap_err()), refused());
    client.simple_query("UPDATE harmless SET i = 1").await.unwrap();
    assert_eq!(client.execute("UPDATE harmless SET i = 1", &[]).await.unwrap(), 0);
    client.simple_query("BEGIN").await.unwrap();
    assert_eq!(told(&client.query("SELECT * FROM forbidden", &[]).await.unwrap_err()), refused());
    assert_eq!(told(&client.simple_query("SELECT 1").await.unwrap_err()).0, "25P02", "the batch failed, and with it the transaction");
    client.simple_query("ROLLBACK").await.unwrap();
    assert_eq!(one(&client, "SELECT 1").await, "1");
}
