//! The server goes away.

use crate::support::{in_front_of_server, one, told};

const KILL: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'demo' AND pid <> pg_backend_pid()";

#[tokio::test]
async fn an_idle_connection_that_died_is_replaced() {
    let (server, plane) = in_front_of_server(2);
    let client = plane.client().await;
    for _ in 0..3 {
        assert_eq!(one(&client, "SELECT 1").await, "1");
        let _killed = server.root("demo", KILL);
        while server.root("demo", "SELECT count(*) FROM pg_stat_activity WHERE usename = 'demo'").trim() != "0" {}
    }
    assert_eq!(one(&client, "SELECT 1").await, "1");
}

#[tokio::test]
async fn a_running_statement_fails_and_the_session_goes_on() {
    let (server, plane) = in_front_of_server(2);
    let client = plane.client().await;
    let running = client.simple_query("SELECT pg_sleep(60)");
    let kill = tokio::task::spawn_blocking({
        let sql = format!("{KILL} AND query LIKE 'SELECT pg_sleep%' AND state = 'active'");
        move || {
            while server.root("demo", &sql).trim() != "t" {}
            server
        }
    });
    let (result, server) = tokio::join!(running, kill);
    assert_eq!(told(&result.unwrap_err()), ("08006".into(), "Lost connection to PostgreSQL server during query".into()));
    assert_eq!(one(&client, "SELECT 1").await, "1");
    drop(server);
}

#[tokio::test]
async fn a_lost_transaction_reads_as_failed_until_it_is_ended() {
    let (server, plane) = in_front_of_server(2);
    let client = plane.client().await;
    client.simple_query("BEGIN").await.unwrap();
    client.simple_query("SELECT 1").await.unwrap();
    let _killed = server.root("demo", KILL);
    assert_eq!(told(&client.simple_query("SELECT 2").await.unwrap_err()).0, "25P02");
    assert_eq!(told(&client.query("SELECT 2", &[]).await.unwrap_err()).0, "25P02");
    assert_eq!(told(&client.simple_query("SAVEPOINT s").await.unwrap_err()).0, "25P02");
    client.simple_query("COMMIT").await.unwrap();
    assert_eq!(one(&client, "SELECT 3").await, "3");
}

#[tokio::test]
async fn a_pinned_session_ends_with_its_connection() {
    let (server, plane) = in_front_of_server(2);
    let client = plane.client().await;
    client.simple_query("CREATE TEMP TABLE t (i int)").await.unwrap();
    let _killed = server.root("demo", KILL);
    let error = client.simple_query("SELECT * FROM t").await.unwrap_err();
    if let Some(told) = error.as_db_error() {
        assert_eq!(
            (told.code().code(), told.message()),
            ("08006", "connection to server lost together with connection state (temporary table)")
        );
    }
    while !client.is_closed() {
        tokio::task::yield_now().await;
    }
}
