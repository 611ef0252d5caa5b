//! Prepared statements, pipelining, portals.

use quorumsql_wire::pgsql::frontend::{self, Target};

use crate::bytes::Raw;
use crate::phases::{ask, read};
use crate::support::{in_front_of_server, one, told};

#[tokio::test]
async fn statements_of_two_clients_share_one_connection() {
    let (_server, plane) = in_front_of_server(1);
    let (first, second) = (plane.client().await, plane.client().await);
    let add = first.prepare("SELECT $1::int + 1").await.unwrap();
    let twice = second.prepare("SELECT $1::int * 2").await.unwrap();
    let again = second.prepare("SELECT $1::int + 1").await.unwrap();
    for i in 0..20 {
        assert_eq!(first.query_one(&add, &[&i]).await.unwrap().get::<_, i32>(0), i + 1);
        assert_eq!(second.query_one(&twice, &[&i]).await.unwrap().get::<_, i32>(0), i * 2);
        assert_eq!(second.query_one(&again, &[&i]).await.unwrap().get::<_, i32>(0), i + 1);
    }
    assert_eq!(plane.opened(), 1);
}

#[tokio::test]
async fn one_text_is_another_statement_in_another_encoding() {
    let (_server, plane) = in_front_of_server(1);
    let (mut latin, mut utf8) = (Raw::login(&plane).await, Raw::login(&plane).await);
    ask(&mut latin, "SET client_encoding TO 'LATIN1'").await;
    assert_eq!(read(&mut latin, 1).await.0, "CSZI");
    for (is_latin, length) in [(false, b'1'), (true, b'2'), (false, b'1')] {
        let raw = if is_latin { &mut latin } else { &mut utf8 };
        raw.send(|out| {
            frontend::parse(out, b"named", "SELECT length('\u{e9}')::text".as_bytes(), b"");
            frontend::bind(out, b"", b"named", b"\0\0\0\0\0\0");
            frontend::execute(out, b"", 0);
            frontend::close(out, Target::Statement, b"named");
            frontend::sync(out);
        })
        .await;
        let mut row = None;
        while let Some((tag, body)) = raw.next().await {
            if tag == b'D' {
                row = body.last().copied();
            }
            if tag == b'Z' {
                break;
            }
        }
        assert_eq!(row, Some(length));
    }
    assert_eq!(plane.opened(), 1);
}

#[tokio::test]
async fn statements_are_prepared_again_on_another_connection() {
    let (_server, plane) = in_front_of_server(2);
    let (first, second) = (plane.client().await, plane.client().await);
    let statement = first.prepare("SELECT $1::int + 1").await.unwrap();
    // The connection that holds it is taken away.
    second.simple_query("BEGIN").await.unwrap();
    assert_eq!(first.query_one(&statement, &[&1]).await.unwrap().get::<_, i32>(0), 2);
    second.simple_query("ROLLBACK").await.unwrap();
    assert_eq!(first.query_one(&statement, &[&2]).await.unwrap().get::<_, i32>(0), 3);
}

#[tokio::test]
async fn pipelined_batches_are_answered_in_order() {
    let (_server, plane) = in_front_of_server(2);
    let client = plane.client().await;
    let statement = client.prepare("SELECT $1::int").await.unwrap();
    let bad = client.prepare("SELECT 1 / $1::int").await.unwrap();
    let answers = futures::future::join_all((0..200).map(|i| {
        let (client, statement, bad) = (&client, &statement, &bad);
        async move {
            if i % 10 == 9 {
                told(&client.query_one(bad, &[&0]).await.unwrap_err()).0
            } else {
                client.query_one(statement, &[&i]).await.unwrap().get::<_, i32>(0).to_string()
            }
        }
    }))
    .await;
    let expected: Vec<String> = (0..200).map(|i| if i % 10 == 9 { "22012".into() } else { i.to_string() }).collect();
    assert_eq!(answers, expected);
}

#[tokio::test]
async fn errors_in_transactions_and_unknown_statements() {
    let (_server, plane) = in_front_of_server(1);
    let mut client = plane.client().await;
    client.simple_query("CREATE TABLE e (i int PRIMARY KEY)").await.unwrap();
    let insert = client.prepare("INSERT INTO e VALUES ($1)").await.unwrap();
    let transaction = client.transaction().await.unwrap();
    transaction.execute(&insert, &[&1]).await.unwrap();
    assert_eq!(told(&transaction.execute(&insert, &[&1]).await.unwrap_err()).0, "23505");
    assert_eq!(told(&transaction.execute(&insert, &[&2]).await.unwrap_err()).0, "25P02");
    transaction.rollback().await.unwrap();
    assert_eq!(client.query_one("SELECT count(*) FROM e", &[]).await.unwrap().get::<_, i64>(0), 0);
    assert_eq!(told(&client.prepare("SELECT nonsense").await.unwrap_err()).0, "42703");
    assert_eq!(one(&client, "SELECT 1").await, "1");
    client.simple_query("DEALLOCATE ALL").await.unwrap();
    let (code, text) = told(&client.execute(&insert, &[&3]).await.unwrap_err());
    assert!(code == "26000" && text.starts_with("prepared statement \"s") && text.ends_with("does not exist"), "{code} {text}");
}

#[tokio::test]
async fn plans_are_made_anew_when_tables_change() {
    let (server, plane) = in_front_of_server(1);
    let client = plane.client().await;
    client.simple_query("CREATE TABLE s (a int); INSERT INTO s VALUES (1)").await.unwrap();
    let old = client.prepare("SELECT * FROM s").await.unwrap();
    assert_eq!(client.query_one(&old, &[]).await.unwrap().len(), 1);
    client.simple_query("ALTER TABLE s ADD b int").await.unwrap();
    let newcomer = plane.client().await;
    assert_eq!(newcomer.query_one("SELECT * FROM s", &[]).await.unwrap().len(), 2, "changed through the proxy");
    for _ in 0..2 {
        assert_eq!(told(&client.query_one(&old, &[]).await.unwrap_err()).1, "cached plan must not change result type");
    }
    let _changed = server.root("demo", "ALTER TABLE s ADD c int");
    // Changed behind the proxy: that shows by one error, then the plan is made anew for everybody.
    let (code, text) = told(&newcomer.query_one("SELECT * FROM s", &[]).await.unwrap_err());
    assert_eq!((code.as_str(), text.as_str()), ("0A000", "cached plan must not change result type"));
    assert_eq!(newcomer.query_one("SELECT * FROM s", &[]).await.unwrap().len(), 3);
    assert_eq!(plane.client().await.query_one("SELECT * FROM s", &[]).await.unwrap().len(), 3);
    assert_eq!(plane.opened(), 1);
}

#[tokio::test]
async fn nobody_gets_other_rows_than_he_was_told_of_on_another_connection() {
    let (_server, plane) = in_front_of_server(2);
    let (first, second) = (plane.client().await, plane.client().await);
    first.simple_query("CREATE TABLE s (a int); INSERT INTO s VALUES (1)").await.unwrap();
    let (all, a) = (first.prepare("SELECT * FROM s").await.unwrap(), first.prepare("SELECT a FROM s").await.unwrap());
    let insert = first.prepare("INSERT INTO s (a) VALUES (2) RETURNING *").await.unwrap();
    second.simple_query("ALTER TABLE s ADD b int").await.unwrap();
    // The connection that holds them is taken away.
    second.simple_query("BEGIN").await.unwrap();
    for _ in 0..2 {
        for changed in [&all, &insert] {
            let (code, text) = told(&first.query_one(changed, &[]).await.unwrap_err());
            assert_eq!((code.as_str(), text.as_str()), ("0A000", "cached plan must not change result type"));
        }
        assert_eq!(first.query_one(&a, &[]).await.unwrap().get::<_, i32>(0), 1);
    }
    assert_eq!(one(&first, "SELECT count(*) FROM s").await, "1", "nothing was executed");
    let anew = first.prepare("SELECT * FROM s").await.unwrap();
    assert_eq!(first.query_one(&anew, &[]).await.unwrap().len(), 2);
    second.simple_query("ROLLBACK").await.unwrap();
    assert_eq!(plane.opened(), 2);
}

#[tokio::test]
async fn portals_are_read_in_parts_inside_a_transaction() {
    let (_server, plane) = in_front_of_server(2);
    let mut client = plane.client().await;
    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind("SELECT i FROM generate_series(1, 10) i", &[]).await.unwrap();
    let mut seen = Vec::new();
    loop {
        let rows = transaction.query_portal(&portal, 4).await.unwrap();
        seen.push(rows.len());
        if rows.len() < 4 {
            break;
        }
    }
    assert_eq!(seen, [4, 4, 2]);
    transaction.commit().await.unwrap();
    assert_eq!(plane.opened(), 1);
}

#[tokio::test]
async fn a_long_parameter_is_streamed() {
    let (_server, plane) = in_front_of_server(1);
    let client = plane.client().await;
    let length = client.prepare("SELECT length($1::bytea)").await.unwrap();
    let value = vec![7_u8; 5_000_000];
    for _ in 0..3 {
        assert_eq!(client.query_one(&length, &[&value]).await.unwrap().get::<_, i32>(0), 5_000_000);
    }
    assert_eq!(one(&client, "SELECT 1").await, "1");
}
