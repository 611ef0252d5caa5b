//! A rule loaded on one node is obeyed there by the next statement, and on every node moments later, for good.

use std::time::{Duration, Instant};

use quorumsql_chaos::cluster::Demo;
use quorumsql_chaos::servers::{MariaDb, Postgres};

use super::support::{admin, execute, mysql, one, percentile, pg_one, pgsql, run};

/// A node that does not follow within this time hangs.
const HANG: Duration = Duration::from_secs(10);

#[test]
fn a_mysql_rule_loaded_on_one_node_is_obeyed_by_all() {
    let servers: Vec<MariaDb> = (1..=3).map(|id| MariaDb::start(id, if id == 1 { &[] } else { &["--read-only=1"] })).collect();
    let addresses = servers.iter().map(MariaDb::address).collect::<Vec<_>>().join(",");
    let demo = Demo::start(3, &["--mysql", &addresses]);
    run(async {
        let (mut admins, mut clients) = (Vec::new(), Vec::new());
        for node in 1..=3 {
            admins.push(admin(&demo.host(node)).await);
            clients.push(mysql(&demo.host(node)).await);
        }
        execute(
            &mut admins[0],
            &[
                "DELETE FROM mysql_query_rules",
                "INSERT INTO mysql_query_rules (rule_id, active, match_digest, destination_hostgroup, apply) VALUES (1, 1, '^SELECT @@server_id', 10, 1)",
                "LOAD MYSQL QUERY RULES TO RUNTIME",
            ],
        )
        .await;
        let mut live = Vec::new();
        for round in 0..300 {
            let (hostgroup, node) = if round % 2 == 0 { (20, round % 3) } else { (10, round % 3) };
            let obeys = |id: &str| (hostgroup == 10) == (id == "1");
            let update = format!("UPDATE mysql_query_rules SET destination_hostgroup = {hostgroup} WHERE rule_id = 1");
            execute(&mut admins[node], &[&update, "LOAD MYSQL QUERY RULES TO RUNTIME"]).await;
            let acknowledged = Instant::now();
            let id = one(&mut clients[node], "SELECT @@server_id").await;
            assert!(obeys(&id), "round {round}: the acknowledging node went to server {id}, hostgroup {hostgroup} was loaded");
            for client in &mut clients {
                while !obeys(&one(client, "SELECT @@server_id").await) {
                    assert!(acknowledged.elapsed() < HANG, "round {round}: a node does not follow");
                }
            }
            live.push(acknowledged.elapsed().as_secs_f64() * 1000.0);
            for client in &mut clients {
                for _ in 0..20 {
                    let id = one(client, "SELECT @@server_id").await;
                    assert!(obeys(&id), "round {round}: a node fell back to server {id}");
                }
            }
        }
        print("MySQL", live);
    });
}

#[test]
fn a_pgsql_rule_loaded_on_one_node_is_obeyed_by_all() {
    let primary = Postgres::start(&[]);
    let standby = primary.standby();
    let demo = Demo::start(3, &["--pgsql", &format!("{},{}", primary.address(), standby.address())]);
    run(async {
        let (mut admins, mut clients) = (Vec::new(), Vec::new());
        for node in 1..=3 {
            admins.push(admin(&demo.host(node)).await);
            clients.push(pgsql(&demo.host(node)).await);
        }
        execute(
            &mut admins[1],
            &[
                "DELETE FROM pgsql_query_rules",
                "INSERT INTO pgsql_query_rules (rule_id, active, match_digest, destination_hostgroup, apply) VALUES (1, 1, '^SELECT inet', 10, 1)",
                "LOAD PGSQL QUERY RULES TO RUNTIME",
            ],
        )
        .await;
        let mut live = Vec::new();
        for round in 0..60 {
            let (hostgroup, node) = if round % 2 == 0 { (20, round % 3) } else { (10, round % 3) };
            let port = if hostgroup == 10 { primary.port } else { standby.port }.to_string();
            let update = format!("UPDATE pgsql_query_rules SET destination_hostgroup = {hostgroup} WHERE rule_id = 1");
            execute(&mut admins[node], &[&update, "LOAD PGSQL QUERY RULES TO RUNTIME"]).await;
            let acknowledged = Instant::now();
            assert_eq!(pg_one(&clients[node], "SELECT inet_server_port()").await, port, "round {round}: the acknowledging node");
            for client in &clients {
                while pg_one(client, "SELECT inet_server_port()").await != port {
                    assert!(acknowledged.elapsed() < HANG, "round {round}: a node does not follow");
                }
            }
            live.push(acknowledged.elapsed().as_secs_f64() * 1000.0);
            for client in &clients {
                for _ in 0..20 {
                    assert_eq!(pg_one(client, "SELECT inet_server_port()").await, port, "round {round}: a node fell back");
                }
            }
        }
        print("PostgreSQL", live);
    });
}

fn print(protocol: &str, mut live: Vec<f64>) {
    live.sort_by(f64::total_cmp);
    let (p50, p99, max) = (percentile(&live, 0.5), percentile(&live, 0.99), percentile(&live, 1.0));
    println!(
        "{protocol}: LOAD acknowledged to obeyed on all three nodes, queries included: p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms"
    );
}
