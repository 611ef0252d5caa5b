//! The simple query protocol, COPY, cancelling.

use bytes::Bytes;
use futures::{SinkExt, TryStreamExt};
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::support::{in_front_of_server, one, told};

#[tokio::test]
async fn several_statements_errors_and_transactions() {
    let (_server, plane) = in_front_of_server(2);
    let client = plane.client().await;
    let messages = client.simple_query("SELECT 1; SELECT 2; CREATE TABLE t (i int)").await.unwrap();
    assert_eq!(messages.iter().filter(|message| matches!(message, SimpleQueryMessage::Row(_))).count(), 2);
    assert_eq!(told(&client.simple_query("SELECT nonsense").await.unwrap_err()).0, "42703");
    client.simple_query("BEGIN").await.unwrap();
    client.simple_query("INSERT INTO t VALUES (1)").await.unwrap();
    assert_eq!(told(&client.simple_query("SELECT nonsense").await.unwrap_err()).0, "42703");
    assert_eq!(told(&client.simple_query("SELECT 1").await.unwrap_err()).0, "25P02");
    client.simple_query("ROLLBACK").await.unwrap();
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "0");
    assert!(client.simple_query("-- nothing").await.unwrap().iter().all(|message| !matches!(message, SimpleQueryMessage::Row(_))));
    assert_eq!(plane.opened(), 1);
}

#[tokio::test]
async fn a_large_answer_and_a_large_statement() {
    let (_server, plane) = in_front_of_server(2);
    let client = plane.client().await;
    let messages = client.simple_query("SELECT i, repeat('x', i % 500) FROM generate_series(1, 50000) i").await.unwrap();
    assert_eq!(messages.iter().filter(|message| matches!(message, SimpleQueryMessage::Row(_))).count(), 50_000);
    assert_eq!(one(&client, "SELECT length(repeat('x', 3000000))").await, "3000000");
    assert_eq!(one(&client, "SELECT repeat('x', 3000000)").await.len(), 3_000_000);
    let long = format!("SELECT length('{}')", "y".repeat(1_000_000));
    assert_eq!(one(&client, &long).await, "1000000");
}

#[tokio::test]
async fn copy_in_and_out() {
    let (_server, plane) = in_front_of_server(2);
    let client = plane.client().await;
    client.simple_query("CREATE TABLE c (i int, t text)").await.unwrap();
    let sink = client.copy_in::<_, Bytes>("COPY c FROM STDIN").await.unwrap();
    let mut sink = Box::pin(sink);
    for block in 0..200 {
        let rows: String = (0..100).map(|row| format!("{}\t{}\n", block * 100 + row, "z".repeat(50))).collect();
        sink.send(Bytes::from(rows)).await.unwrap();
    }
    assert_eq!(sink.as_mut().finish().await.unwrap(), 20_000);
    let rows = client.copy_out("COPY c TO STDOUT").await.unwrap();
    let size = rows.try_fold(0, |sum, part| async move { Ok(sum + part.len()) }).await.unwrap();
    assert!(size > 20_000 * 52, "{size}");
    let sink = Box::pin(client.copy_in::<_, Bytes>("COPY c FROM STDIN").await.unwrap());
    let mut sink = sink;
    sink.send(Bytes::from_static(b"nonsense\n")).await.unwrap();
    assert_eq!(told(&sink.as_mut().finish().await.unwrap_err()).0, "22P02");
    assert_eq!(one(&client, "SELECT count(*) FROM c").await, "20000");
    assert_eq!(plane.opened(), 1);
}

#[tokio::test]
async fn a_cancel_request_stops_the_statement_and_no_other() {
    let (_server, plane) = in_front_of_server(2);
    let client = plane.client().await;
    let token = client.cancel_token();
    let running = client.simple_query("SELECT pg_sleep(60)");
    let cancel = async {
        let watcher = plane.client().await;
        while one(&watcher, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%'").await != "1" {
        }
        token.cancel_query(NoTls).await.unwrap();
    };
    let (result, ()) = tokio::join!(running, cancel);
    assert_eq!(told(&result.unwrap_err()), ("57014".into(), "canceling statement due to user request".into()));
    assert_eq!(one(&client, "SELECT 1").await, "1");
}
