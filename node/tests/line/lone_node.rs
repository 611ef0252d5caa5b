//! With two of three nodes dead the third serves queries and admin reads, and refuses writes at once with the reason.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use quorumsql_chaos::cluster::Demo;

use super::support::{ADMIN_PGSQL, admin, eventually, mysql, one, pgsql, run, try_pgsql};

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
