//! `stats_pgsql_query_digest`: what ran is counted, once, with its rows.

use bytes::Bytes;
use futures::SinkExt as _;
use quorumsql_dataplane::config::Protocol;

use crate::support::{in_front_of_server, one, told};

#[tokio::test]
async fn queries_and_executions_are_counted_with_their_rows() {
    let (_server, plane) = in_front_of_server(4);
    plane.client().await.simple_query("CREATE TABLE counted (v int)").await.unwrap();
    let work = |client: i32| {
        let plane = &plane;
        async move {
            let conn = plane.client().await;
            let insert = conn.prepare("INSERT INTO counted SELECT $1 FROM generate_series(1, 2)").await.unwrap();
            let select = conn.prepare("SELECT * FROM generate_series(1, $1::int)").await.unwrap();
            for _ in 0..25 {
                assert_eq!(conn.execute(&insert, &[&client]).await.unwrap(), 2);
                // Two batches in flight at once.
                let pair = futures::future::join(conn.query(&select, &[&3]), conn.query(&select, &[&5])).await;
                assert_eq!((pair.0.unwrap().len(), pair.1.unwrap().len()), (3, 5));
                assert_eq!(one(&conn, "SELECT 41 + 1").await, "42");
                assert_eq!(told(&conn.query(&conn.prepare("SELECT 1 / $1::int").await.unwrap(), &[&0]).await.unwrap_err()).0, "22012");
            }
        }
    };
    futures::future::join_all((0..16).map(work)).await;
    let rows = plane.plane.digests(Protocol::Pgsql, true).await;
    let texts = || rows.iter().map(|row| String::from_utf8_lossy(&row.text).into_owned()).collect::<Vec<_>>();
    let of = |text: &str| {
        let row = rows.iter().find(|row| row.text == text.as_bytes()).unwrap_or_else(|| panic!("{text}: {:?}", texts()));
        assert!(row.min_time <= row.max_time && row.sum_time >= row.max_time, "{row:?}");
        (row.count, row.rows_affected, row.rows_sent)
    };
    assert_eq!(of("INSERT INTO counted SELECT $1 FROM generate_series(?,?)"), (400, 800, 0));
    assert_eq!(of("SELECT * FROM generate_series(?,$1::int)"), (800, 0, 3200));
    assert_eq!(of("SELECT ?+?"), (400, 0, 400));
    assert_eq!(of("SELECT ?/ $1::int"), (400, 0, 0));
    assert!(plane.plane.digests(Protocol::Pgsql, false).await.is_empty());
}

/// A client that sends a Sync ahead of the COPY data, which the server ignores.
#[tokio::test]
async fn what_follows_a_copy_is_counted() {
    let (_server, plane) = in_front_of_server(1);
    let client = plane.client().await;
    client.simple_query("CREATE TABLE copied (v int)").await.unwrap();
    client.simple_query("BEGIN").await.unwrap();
    for _ in 0..3 {
        let mut sink = Box::pin(client.copy_in::<_, Bytes>("COPY copied FROM STDIN").await.unwrap());
        sink.send(Bytes::from_static(b"1\n2\n")).await.unwrap();
        assert_eq!(sink.as_mut().finish().await.unwrap(), 2);
        assert_eq!(one(&client, "SELECT count(*) FROM copied WHERE v > 0").await.len(), 1);
    }
    client.simple_query("COMMIT").await.unwrap();
    let rows = plane.plane.digests(Protocol::Pgsql, true).await;
    let count = |text: &str| rows.iter().find(|row| row.text == text.as_bytes()).map(|row| (row.count, row.rows_affected + row.rows_sent));
    assert_eq!(count("COPY copied FROM STDIN"), Some((3, 6)));
    assert_eq!(count("SELECT count(*) FROM copied WHERE v > ?"), Some((3, 3)));
    assert_eq!(count("COMMIT"), Some((1, 0)));
}
