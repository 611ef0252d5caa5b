//! `FOUND_ROWS()` and `ROW_COUNT()` in expressions, when others have used the connection in between.

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::mysql_support::{Proxy, error, run, text};
use crate::{close, direct, outcome, outcomes};

/// What a session does, and an expression of its counts, which it can be told on any connection.
const TOLD: &[(&[&str], &str)] = &[
    (&["SELECT 1 UNION SELECT 2"], "FOUND_ROWS() * 10 + ROW_COUNT()"),
    (&["SELECT 1 FROM ten LIMIT 0"], "FOUND_ROWS() * 10 + ROW_COUNT()"),
    (&["SELECT 1 FROM ten, ten AS more, ten AS most LIMIT 321", "COMMIT"], "FOUND_ROWS() * 10 + ROW_COUNT()"),
    (&["SELECT 1 FROM ten", "SELECT nothing"], "FOUND_ROWS() * 10 + ROW_COUNT()"),
    (&["SELECT 1 FROM ten", "SELECT ROW_COUNT()", "SET time_zone = '+03:00'"], "FOUND_ROWS() * 10 + ROW_COUNT()"),
    (&["SET autocommit = 0", "SELECT 1 FROM ten", "COMMIT"], "FOUND_ROWS() * 10 + ROW_COUNT()"),
    (&["UPDATE ten SET a = a + 100 LIMIT 3"], "FOUND_ROWS() > 0"),
];

/// Each with another session's statements before the question, and the other's question behind its own.
pub(crate) async fn all(proxy: &Proxy, server: u16) {
    let mut admin = direct(server).await;
    run(&mut admin, &["CREATE TABLE ten (a INT)", "CREATE TABLE told (a BIGINT)"]).await;
    run(&mut admin, &["INSERT INTO ten VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10)"]).await;
    close(admin).await;
    for (done, expression) in TOLD {
        let mut alone = direct(server).await;
        let expected = asked(&mut alone, done, None, expression).await;
        close(alone).await;
        let (mut a, mut b) = (proxy.client().await, proxy.client().await);
        assert_eq!(asked(&mut a, done, Some(&mut b), expression).await, expected, "{done:?}");
        assert_eq!(asked(&mut a, done, Some(&mut b), expression).await, expected, "{done:?} again");
        close(a).await;
        close(b).await;
    }
    cannot_be_told(proxy).await;
}

/// The value of an expression, which goes into a table so that no warning of MySQL holds the connection.
async fn asked(client: &mut Conn, done: &[&str], other: Option<&mut Conn>, expression: &str) -> String {
    outcomes(client, done).await;
    if let Some(other) = other {
        run(other, &["SELECT 1 FROM ten, ten AS more LIMIT 77", "UPDATE ten SET a = a + 1 LIMIT 5"]).await;
    }
    outcome(client, &format!("INSERT INTO told SELECT {expression}")).await;
    run(client, &["COMMIT"]).await;
    let value = text(client, "SELECT a FROM told").await;
    run(client, &["DELETE FROM told", "COMMIT", "SET autocommit = 1"]).await;
    value
}

/// Rows that were changed on a connection that others have used since: an error, never another number.
async fn cannot_be_told(proxy: &Proxy) {
    let (mut a, mut b) = (proxy.client().await, proxy.client().await);
    const ASK: &str = "SELECT 0 + ROW_COUNT()";
    run(&mut a, &["UPDATE ten SET a = a + 1 LIMIT 4"]).await;
    assert_eq!(text(&mut a, ASK).await, "4", "nobody was on its connection");
    run(&mut a, &["UPDATE ten SET a = a + 1 LIMIT 4"]).await;
    run(&mut b, &["UPDATE ten SET a = a + 1 LIMIT 2"]).await;
    assert_eq!(error(&mut a, ASK).await, 1235);
    assert_eq!(text(&mut b, ASK).await, "2");
    run(&mut a, &["UPDATE ten SET a = a + 1 LIMIT 4"]).await;
    assert_eq!(error(&mut b, "SELECT nothing").await, 1054);
    assert_eq!(text(&mut b, ASK).await, "-1");
    assert_eq!(text(&mut a, "SELECT ROW_COUNT()").await, "4", "answered without a server");
    run(&mut a, &["BEGIN", "UPDATE ten SET a = a + 1 LIMIT 6"]).await;
    assert_eq!(text(&mut a, ASK).await, "6");
    run(&mut a, &["COMMIT", "UPDATE ten SET a = a + 1 LIMIT 3"]).await;
    // The statement that is meant is in the same text.
    run(&mut b, &["SELECT 1 FROM ten LIMIT 0"]).await;
    let counted: Vec<String> = last_of(&mut a, "UPDATE ten SET a = a + 1 LIMIT 7; SELECT 0 + ROW_COUNT()").await;
    assert_eq!(counted, ["7"]);
    let prepared = b.prep("SELECT FOUND_ROWS() + ?").await.expect("it can be prepared");
    run(&mut b, &["SELECT 1 FROM ten LIMIT 8"]).await;
    run(&mut a, &["SELECT 1 FROM ten LIMIT 3"]).await;
    let found: Option<i64> = b.exec_first(&prepared, (1,)).await.expect("it can be executed");
    assert_eq!(found, Some(9));
    close(a).await;
    close(b).await;
}

/// The rows of the last result.
async fn last_of(client: &mut Conn, sql: &str) -> Vec<String> {
    let mut results = client.query_iter(sql).await.expect("the statements are good");
    let mut rows = Vec::new();
    while !results.is_empty() {
        rows = results.collect().await.expect("a result");
    }
    rows
}
