//! With two of three nodes dead the third serves queries and admin reads, and refuses writes at once with the reason.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use quorumsql_chaos::cluster::Demo;

use super::support::{ADMIN_PGSQL, admin, eventually, execute, mysql, one, pgsql, run, text, try_pgsql};

#[test]
fn a_node_without_quorum_serves_and_says_why_it_refuses_changes() {
    let mut demo = Demo::start(3, &[]);
    run(async {
        let mut before = mysql(&demo.host(3)).await;
        demo.kill(1);
        demo.kill(2);
        assert_eq!(one(&mut before, "SELECT 41 + 1").await, "42");
        let mut conn = admin(&demo.host(3)).await;
        let mut refusal = String::new();
        eventually("the loss of the quorum to be noticed", Duration::from_secs(20), async || {
            match conn.query_drop("UPDATE mysql_servers SET comment = 'no quorum'").await {
                Err(mysql_async::Error::Server(error)) => {
                    refusal = format!("{} {}", error.code, error.message);
                    refusal.starts_with("1290")
                }
                _ => false,
            }
        })
        .await;
        assert!(refusal.contains("configuration is read-only") && refusal.contains("quorum"), "{refusal}");
        assert_eq!(one(&mut conn, "SELECT COUNT(*) FROM mysql_servers WHERE comment = 'no quorum'").await, "0");
        let warnings: Vec<mysql_async::Row> = conn.query("SHOW WARNINGS").await.expect("warnings of a read without quorum");
        assert!(!warnings.is_empty(), "a local read without a leader warns");
        read_levels(&mut conn).await;

        let client = try_pgsql(&demo.host(3), ADMIN_PGSQL, "admin", "admin").await.expect("an admin login over PostgreSQL");
        let error = client.simple_query("UPDATE mysql_servers SET comment = 'no quorum'").await.expect_err("refused");
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("25006"));

        assert_eq!(one(&mut mysql(&demo.host(3)).await, "SELECT 40 + 2").await, "42");
        let row = pgsql(&demo.host(3)).await.query_one("SELECT 40 + $1::int4", &[&2_i32]).await.expect("a query over PostgreSQL");
        assert_eq!(row.get::<_, i32>(0), 42);
        let (code, _body) = demo.http(3, "/readyz").expect("an HTTP answer");
        assert_eq!(code, 200, "a node without quorum stays behind the balancer");
    });
}

/// What each level does without a leader: auto warns with index and age, local is silent, linearizable refuses; observations are
/// always local.
async fn read_levels(conn: &mut mysql_async::Conn) {
    const READ: &str = "SELECT COUNT(*) FROM mysql_servers";
    let applied: u64 = one(conn, "SELECT @@quorumsql_applied_index").await.parse().expect("an index");
    let silent: u64 = one(conn, "SELECT @@quorumsql_leader_contact_ms").await.parse().expect("milliseconds");
    assert!(applied > 0 && silent > 1_000, "{applied}, {silent}");
    let _rows = one(conn, READ).await;
    let warning = text(conn, "SHOW WARNINGS").await.remove(0).remove(2);
    assert!(warning.starts_with(&format!("local read at applied index {applied}, last contact with leader node ")), "{warning}");
    assert!(warning.contains(" ms ago: configuration is read-only: no quorum, 1 of 3 voters reachable"), "{warning}");

    let prefixed = format!("/* linearizable */ {READ}");
    execute(conn, &["SET CONNECTION read_level='local'"]).await;
    let _rows = one(conn, READ).await;
    assert!(text(conn, "SHOW WARNINGS").await.is_empty(), "a local read that was asked for does not warn");
    execute(conn, &["SET CONNECTION read_level='linearizable'"]).await;
    for sql in [READ, &prefixed] {
        let refusal = conn.query_drop(sql).await.expect_err("refused").to_string();
        assert!(refusal.contains("1290") && refusal.contains("no quorum"), "{sql}: {refusal}");
    }
    assert_eq!(one(conn, "SELECT COUNT(*) FROM stats_cluster_nodes").await, "3");

    execute(conn, &["SET CONNECTION read_level='auto'", &format!("SET CONNECTION read_after={applied}")]).await;
    let _rows = one(conn, READ).await;
    execute(conn, &[&format!("SET CONNECTION read_after={}", applied + 1_000)]).await;
    let refusal = conn.query_drop(READ).await.expect_err("not applied").to_string();
    assert!(refusal.contains(&format!("this node has not applied index {} within", applied + 1_000)), "{refusal}");
    execute(conn, &["SET CONNECTION read_after=0"]).await;
}
