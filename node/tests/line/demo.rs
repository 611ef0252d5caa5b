//! The demo as a script sees it: ready, queries on every node, a rule replicated, the writer moved, a clean stop.

use std::process::Command;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use quorumsql_chaos::cluster::Demo;

use super::support::{ADMIN_PGSQL, admin, eventually, execute, mysql, one, pg_one, pgsql, run, text, try_mysql, try_pgsql};

#[test]
fn the_demo_serves_replicates_follows_its_writer_and_stops() {
    let mut demo = Demo::start(3, &[]);
    run(async {
        for node in 1..=3 {
            let mut client = mysql(&demo.host(node)).await;
            execute(&mut client, &["CREATE TABLE IF NOT EXISTS visits (id INT PRIMARY KEY, who TEXT)"]).await;
            execute(&mut client, &[&format!("REPLACE INTO visits VALUES ({node}, 'node {node}')")]).await;
            let row = pgsql(&demo.host(node)).await.query_one("SELECT 40 + $1::int4", &[&2_i32]).await.expect("a prepared query");
            assert_eq!(row.get::<_, i32>(0), 42);
        }
        assert_eq!(text(&mut mysql(&demo.host(2)).await, "SELECT * FROM visits FOR UPDATE").await.len(), 3);
        assert_eq!(pg_one(&pgsql(&demo.host(1)).await, "SELECT count(*) FROM visits").await, "3");
        a_rule_is_replicated(&demo).await;
        the_writer_is_followed(&demo).await;
        grpc_answers(&demo);
    });
    assert_eq!(demo.interrupt(), Some(0), "Ctrl-C stops the demo with exit code 0");
}

async fn a_rule_is_replicated(demo: &Demo) {
    execute(
        &mut admin(&demo.host(2)).await,
        &[
            "INSERT INTO mysql_query_rules (rule_id, active, match_digest, destination_hostgroup, apply) VALUES (777, 1, '^SELECT 777', 20, 1)",
            "LOAD MYSQL QUERY RULES TO RUNTIME",
        ],
    )
    .await;
    for node in 1..=3 {
        let sql = "SELECT destination_hostgroup FROM runtime_mysql_query_rules WHERE rule_id = 777";
        assert_eq!(one(&mut admin(&demo.host(node)).await, sql).await, "20");
        let client = try_pgsql(&demo.host(node), ADMIN_PGSQL, "admin", "admin").await.expect("an admin login over PostgreSQL");
        assert_eq!(pg_one(&client, "SELECT count(*) FROM runtime_mysql_query_rules WHERE rule_id = 777").await, "1");
    }
    let error = admin(&demo.host(3))
        .await
        .query_drop("INSERT INTO mysql_query_rules (rule_id, active) VALUES (778, 5)")
        .await
        .expect_err("a bad value");
    assert!(error.to_string().contains("ProxySQL Admin Error"), "{error}");
}

/// The embedded writer becomes read-only and another server writable: every node's routing follows.
async fn the_writer_is_followed(demo: &Demo) {
    let servers = backends(demo);
    let (old, new) = (&servers[0], &servers[1]);
    for (server, value) in [(old, 1), (new, 0)] {
        let (host, port) = server.rsplit_once(':').expect("host:port");
        let mut direct = try_mysql(host, port.parse().expect("a port"), "demo", "demo", None).await.expect("a direct login");
        execute(&mut direct, &[&format!("SET GLOBAL read_only = {value}")]).await;
    }
    for node in 1..=3 {
        eventually("a node to follow the new writer", Duration::from_secs(30), async || {
            let mut client = mysql(&demo.host(node)).await;
            client.query_drop(format!("REPLACE INTO visits VALUES ({}, 'after the switch')", 100 + node)).await.is_ok()
        })
        .await;
        let (host, port) = new.rsplit_once(':').expect("host:port");
        let sql =
            format!("SELECT hostgroup_id FROM runtime_mysql_servers WHERE hostname = '{host}' AND port = {port} ORDER BY hostgroup_id");
        assert_eq!(one(&mut admin(&demo.host(node)).await, &sql).await, "10");
        assert_eq!(
            one(&mut admin(&demo.host(node)).await, &sql.replace("runtime_mysql_servers", "mysql_servers")).await,
            "20",
            "intent is not changed"
        );
    }
}

/// MySQL addresses of DIR/backends.json, the first is the writer at the start.
fn backends(demo: &Demo) -> Vec<String> {
    let file = demo.node_dir(1).parent().expect("a node's directory has a parent").join("backends.json");
    let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).expect("backends.json")).expect("JSON");
    json["mysql"].as_array().expect("a list").iter().map(|address| address.as_str().expect("an address").to_owned()).collect()
}

fn grpc_answers(demo: &Demo) {
    let grpcurl = std::env::var("QUORUMSQL_GRPCURL").expect("QUORUMSQL_GRPCURL names grpcurl; deploy/test sets it");
    for node in 1..=3 {
        let address = format!("{}:6034", demo.host(node));
        for (arguments, expected) in [
            (vec!["-plaintext", &address, "list"], "quorumsql.admin.v1.ClusterAdmin"),
            (vec!["-plaintext", &address, "quorumsql.admin.v1.ClusterAdmin/Status"], "\"members\""),
            (vec!["-plaintext", &address, "grpc.health.v1.Health/Check"], "SERVING"),
        ] {
            let output = Command::new(&grpcurl).args(&arguments).output().expect("grpcurl runs");
            let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success() && stdout.contains(expected), "grpcurl {arguments:?}: {stdout}{stderr}");
        }
    }
}
