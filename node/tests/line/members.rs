//! Members of a cluster of real processes: replaced, removed, and refused when they come back; leadership on request.

use std::process::{Command, Output};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use quorumsql_chaos::cluster::{Demo, binary, gone};
use quorumsql_chaos::process::wait_for;
use quorumsql_proto::admin::RemoveRequest;
use quorumsql_proto::admin::cluster_admin_client::ClusterAdminClient;

use super::support::{admin, eventually, leader, mysql, one, run, text};

const LIMIT: Duration = Duration::from_secs(60);

/// Runs the binary; a node that starts although it should not is ended by the time.
fn command(arguments: &[&str]) -> Output {
    Command::new("timeout").arg("60").arg(binary()).args(arguments).output().expect("timeout is installed")
}

/// What a command that succeeds prints.
fn printed(arguments: &[&str]) -> String {
    let output = command(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// What a command that fails says.
fn refused(arguments: &[&str]) -> String {
    let output = command(arguments);
    assert!(!output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A node whose peers have not all heard of its removal may come up once more, and learns it then.
fn assert_no_way_back(demo: &Demo, node: usize, id: &str) {
    let config = demo.node_dir(node).join("quorumsql.toml").display().to_string();
    let refusal = wait_for("a removed node to be refused at its start", LIMIT, || {
        let run = ["15", &binary().display().to_string(), "run", "--config", &config];
        let output = Command::new("timeout").args(run).output().expect("timeout is installed");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        text.contains("was removed").then_some(text)
    });
    assert!(refusal.contains(&format!("node {id} was removed from cluster")) && refusal.contains("cannot come back"), "{refusal}");
}

/// `ctl …` at node `through`.
fn ctl<'a>(endpoint: &'a str, verb: &[&'a str]) -> Vec<&'a str> {
    [&["ctl", "--endpoint", endpoint], verb].concat()
}

/// Leader and its address in the metadata of a refusal.
async fn told_leader(endpoint: &str) -> (String, String) {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{endpoint}")).expect("an address");
    let mut client = ClusterAdminClient::new(endpoint.connect().await.expect("a gRPC connection"));
    let mut request = tonic::Request::new(RemoveRequest { node_id: 99, force: false });
    // admin:admin
    request.metadata_mut().insert("authorization", tonic::metadata::MetadataValue::from_static("Basic YWRtaW46YWRtaW4="));
    let status = client.remove(request).await.expect_err("no such node");
    let told = |name: &str| status.metadata().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    (told("quorumsql-leader-id"), told("quorumsql-leader-addr"))
}

async fn id(demo: &Demo, through: usize, slot: usize) -> String {
    one(&mut admin(&demo.host(through)).await, &format!("SELECT node_id FROM stats_cluster_nodes WHERE slot = {slot}")).await
}

/// Bootstrap file of a node 4 that has node 3's name.
fn fourth(demo: &Demo) -> String {
    let (old, new) = (demo.node_dir(3), demo.node_dir(4));
    let config = std::fs::read_to_string(old.join("quorumsql.toml")).expect("node 3's bootstrap file");
    let config = config.replace(&format!("{}:", demo.host(3)), &format!("{}:", demo.host(4)));
    let config = config.replace(&old.display().to_string(), &new.display().to_string());
    std::fs::create_dir_all(&new).expect("a directory for node 4");
    std::fs::write(new.join("quorumsql.toml"), config).expect("node 4's bootstrap file");
    new.join("quorumsql.toml").display().to_string()
}

#[test]
fn a_dead_node_is_replaced_and_a_living_one_removed_by_commands() {
    let mut demo = Demo::start(3, &[]);
    run(async {
        let (first, peer) = (format!("{}:6034", demo.host(1)), format!("{}:6035", demo.host(1)));
        let old = id(&demo, 1, 3).await;
        demo.kill(3);

        // A new node takes the dead one's place and name.
        let config = fourth(&demo);
        let token = printed(&["token", "create", "--endpoint", &first]);
        let joined = printed(&["join", "--token", &token, "--peer", &peer, "--config", &config, "--replace", &old]);
        assert!(joined.contains("(slot 4)"), "{joined}");
        demo.restart(4);
        eventually("the new node to have taken over", LIMIT, async || {
            let members = text(&mut admin(&demo.host(1)).await, "SELECT slot, name, voter FROM stats_cluster_nodes ORDER BY slot").await;
            members == [["1", "node1", "1"], ["2", "node2", "1"], ["4", "node3", "1"]]
        })
        .await;
        eventually("it to serve", LIMIT, async || demo.http(4, "/readyz").is_some_and(|(code, _)| code == 200)).await;
        assert_eq!(one(&mut mysql(&demo.host(4)).await, "SELECT 41 + 1").await, "42");
        assert_no_way_back(&demo, 3, &old);

        // Leadership on request, through any node; then the leader is removed through itself.
        let second = id(&demo, 1, 2).await;
        let led = printed(&ctl(&first, &["transfer-leadership", "--to", &second]));
        assert!(led.starts_with(&format!("node {second} leads")), "{led}");
        assert!(refused(&ctl(&first, &["transfer-leadership", "--to", "99"])).contains("node 99 is not a voter"));
        assert!(refused(&ctl(&first, &["remove", "99"])).contains("node 99 is not a member"));
        eventually("node 2 to lead", LIMIT, async || leader(&demo, &[1]).await == Some(2)).await;
        assert_eq!(told_leader(&first).await, (second.clone(), format!("{}:6035", demo.host(2))));
        let own = format!("{}:6034", demo.host(2));
        let removed = printed(&ctl(&own, &["remove", &second]));
        assert!(removed.starts_with(&format!("node {second} removed at index ")), "{removed}");

        let removed_words = format!("node {second} was removed from cluster");
        // It stays behind the balancer, serves queries and reads, and says why it changes nothing.
        eventually("node 2 to learn it", LIMIT, async || {
            demo.http(2, "/readyz").is_some_and(|(code, body)| code == 200 && body.contains("was removed from cluster"))
        })
        .await;
        assert_eq!(one(&mut mysql(&demo.host(2)).await, "SELECT 41 + 1").await, "42");
        let mut conn = admin(&demo.host(2)).await;
        let refusal = conn.query_drop("UPDATE mysql_servers SET comment = 'by a stranger'").await.expect_err("refused").to_string();
        assert!(refusal.contains("1290") && refusal.contains("was removed from cluster"), "{refusal}");
        assert_eq!(one(&mut conn, "SELECT COUNT(*) FROM mysql_servers WHERE comment = 'by a stranger'").await, "0");
        for node in [1, 4] {
            let sql = format!("UPDATE mysql_servers SET comment = 'by node {node}'");
            admin(&demo.host(node)).await.query_drop(sql).await.expect("a write on a member");
        }
        drop(conn);
        // Told once, it asks no further: a line for each thing that it asked until then.
        for node in [1, 4] {
            let refused = demo.logs(node).lines().filter(|line| line.contains("peer refused") && line.contains(&removed_words)).count();
            assert!(refused <= 6, "node {node} logged {refused} refusals of node 2");
        }
        demo.kill(2);
        assert_no_way_back(&demo, 2, &second);

        // Two are left; one that is dead cannot be missed, the last vote cannot be removed.
        let (own, other) = (id(&demo, 1, 1).await, id(&demo, 1, 4).await);
        let (status, fourth) = (printed(&ctl(&first, &["status"])), format!("{}:6034", demo.host(4)));
        assert!(status.contains("2 of 2 voters reachable"), "{status}");
        printed(&ctl(&fourth, &["remove", &other]));
        eventually("node 1 to be alone", LIMIT, async || printed(&ctl(&first, &["status"])).contains("1 of 1 voters reachable")).await;
        assert!(refused(&ctl(&first, &["remove", &own, "--force"])).contains("is the last voter"));
    });
}

#[test]
fn a_planned_stop_of_the_leader_fails_no_write_through_the_others() {
    let demo = Demo::start(3, &[]);
    run(async {
        let leads = leader(&demo, &[1]).await.expect("a leader");
        let mut writers = Vec::new();
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        for node in (1..=3).filter(|node| *node != leads) {
            let (stop, mut conn) = (stop.clone(), admin(&demo.host(node)).await);
            writers.push(tokio::spawn(async move {
                let (mut count, mut longest) = (0_u32, Duration::ZERO);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    count += 1;
                    let begin = std::time::Instant::now();
                    let sql = format!("INSERT INTO mysql_query_rules (active, digest, comment) VALUES (0, '0xab', 'w{node}-{count}')");
                    conn.query_drop(sql).await.map_err(|error| error.to_string())?;
                    longest = longest.max(begin.elapsed());
                }
                Ok::<_, String>((count, longest))
            }));
        }
        let written = async |least: u64| {
            let node = (1..=3).find(|node| *node != leads).expect("another node");
            eventually("writes", LIMIT, async || {
                let count = one(&mut admin(&demo.host(node)).await, "SELECT COUNT(*) FROM mysql_query_rules WHERE digest = '0xab'").await;
                count.parse::<u64>().is_ok_and(|count| count >= least)
            })
            .await;
        };
        written(20).await;
        let pid = demo.pid(leads);
        demo.signal(leads, rustix::process::Signal::TERM);
        eventually("the leader to end", LIMIT, async || gone(pid)).await;
        let node = (1..=3).find(|node| *node != leads).expect("another node");
        let so_far = one(&mut admin(&demo.host(node)).await, "SELECT COUNT(*) FROM mysql_query_rules WHERE digest = '0xab'").await;
        written(so_far.parse::<u64>().expect("a count") + 20).await;
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let mut acknowledged = 0;
        for writer in writers {
            let (count, longest) = writer.await.expect("a writer's task").expect("no write fails");
            println!("{count} writes, the longest took {} ms", longest.as_millis());
            acknowledged += count;
        }
        let stored = one(&mut admin(&demo.host(node)).await, "SELECT COUNT(*) FROM mysql_query_rules WHERE digest = '0xab'").await;
        assert_eq!(stored, acknowledged.to_string(), "every write is there once");
    });
}
