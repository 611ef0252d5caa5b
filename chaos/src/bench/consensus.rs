//! Clusters of 1, 3 and 5 nodes: commits, LOAD until live on all nodes, reads that ask the leader, idle nodes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use quorumsql_chaos::cluster::Demo;
use tokio::task::JoinSet;

use super::Extent;
use super::clients::{admin, execute, traffic};
use super::failover::failover;
use super::report::{Table, figure, fine, median, percentile};
use super::usage::Cpu;

/// Writers at once, spread over all nodes.
const WRITERS: usize = 64;
/// Changes whose way to all nodes is followed.
const LOADS: usize = 100;
/// A node that does not follow within this time hangs.
const HANG: Duration = Duration::from_secs(30);

/// Milliseconds since `begin`.
pub(crate) fn millis(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1000.0
}

/// What has been measured so far, one row for each figure and size of cluster.
struct Tables {
    times: Table,
    gaps: Table,
    idle: Table,
}

/// Each size of cluster in turn; what has been measured is printed even when one fails.
pub(super) async fn run(extent: Extent) -> anyhow::Result<()> {
    let gaps = "### The leader ends: milliseconds until the next write through another node";
    let mut tables = Tables {
        times: Table::new("### Consensus", &["nodes", "what", "p50 ms", "p99 ms", "a second"]),
        gaps: Table::new(gaps, &["nodes", "how", "median", "longest", "times"]),
        idle: Table::new("### Nodes without clients", &["nodes", "CPU % of a core, each node"]),
    };
    let mut outcome = Ok(());
    for &nodes in extent.clusters {
        eprintln!("consensus, {nodes} nodes");
        outcome = measure(&mut tables, nodes, extent).await.with_context(|| format!("a cluster of {nodes}"));
        if outcome.is_err() {
            break;
        }
    }
    println!("{}{}{}", tables.times, tables.gaps, tables.idle);
    outcome
}

/// All figures of a cluster of this size.
async fn measure(tables: &mut Tables, nodes: usize, extent: Extent) -> anyhow::Result<()> {
    let Extent { seconds, ends, .. } = extent;
    let mut demo = Demo::start(nodes, &[]);
    tables.idle.row(vec![nodes.to_string(), idle_cpu(&demo, nodes, seconds).await?]);
    let mut add = |what: &str, times: Vec<f64>, took: Duration| {
        let [p50, p99] = [0.5, 0.99].map(|share| fine(percentile(times.iter().copied(), share)));
        let rate = if took.is_zero() { String::new() } else { figure(times.len() as f64 / took.as_secs_f64()) };
        tables.times.row(vec![nodes.to_string(), what.into(), p50, p99, rate]);
    };

    let (acknowledged, live) = loads(&demo, nodes).await?;
    add("LOAD sent until acknowledged", acknowledged, Duration::ZERO);
    add("LOAD acknowledged until live on all nodes", live, Duration::ZERO);
    let leader = leader(&demo, nodes).await?;
    let duration = Duration::from_secs(seconds);
    add("linearizable read on the leader", reads(&demo.host(leader), duration).await?, duration);
    if let Some(follower) = (1..=nodes).find(|&node| node != leader) {
        add("linearizable read on a follower", reads(&demo.host(follower), duration).await?, duration);
        add("commit through a follower, one writer", writers(&demo, &[follower], 1, duration).await?, duration);
    }
    add("commit through the leader, one writer", writers(&demo, &[leader], 1, duration).await?, duration);
    let all: Vec<usize> = (1..=nodes).collect();
    add("commit through all nodes, 64 writers", writers(&demo, &all, WRITERS, duration).await?, duration);
    if nodes > 1 {
        for (how, times) in failover(&mut demo, nodes, ends).await? {
            let (longest, count) = (percentile(times.iter().copied(), 1.0), times.len().to_string());
            tables.gaps.row(vec![nodes.to_string(), how.into(), format!("{:.0}", median(times)), format!("{longest:.0}"), count]);
        }
    }
    Ok(())
}

/// Slot of the leader as a node sees it.
pub(crate) async fn leader(demo: &Demo, nodes: usize) -> anyhow::Result<usize> {
    let end = Instant::now() + HANG;
    loop {
        for node in 1..=nodes {
            let Ok(mut conn) = admin(&demo.host(node)).await else { continue };
            let slot: Option<String> = conn.query_first("SELECT slot FROM stats_cluster_nodes WHERE role = 'leader'").await?;
            if let Some(slot) = slot {
                return slot.parse().with_context(|| format!("{slot} is no slot"));
            }
        }
        ensure!(Instant::now() < end, "no node knows a leader");
        tokio::time::sleep(Duration::from_millis(20)).await; // the pause between two looks at the condition
    }
}

/// Share of a core that each node takes with nothing to do.
async fn idle_cpu(demo: &Demo, nodes: usize, seconds: u64) -> anyhow::Result<String> {
    let of_all = || (1..=nodes).map(|node| Cpu::of(demo.pid(node))).collect::<anyhow::Result<Vec<Cpu>>>();
    let (before, begin) = (of_all()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(3 * seconds)).await; // the interval that is measured
    let took = begin.elapsed().as_secs_f64();
    let shares = of_all()?.into_iter().zip(before).map(|(now, before)| figure(now.since(before).total() / took * 100.0));
    Ok(shares.collect::<Vec<_>>().join(", "))
}

/// A rule that moves a statement between two servers, LOADed through each node in turn: milliseconds until the LOAD is
/// acknowledged, and from there until clients of all nodes get the other server's answer.
async fn loads(demo: &Demo, nodes: usize) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let (mut admins, mut clients) = (Vec::new(), Vec::new());
    for node in 1..=nodes {
        admins.push(admin(&demo.host(node)).await?);
        clients.push(traffic(&demo.host(node)).await?);
    }
    // The demo's own rules send what is FOR UPDATE to the writer.
    let writer: Option<String> = clients[0].query_first("SELECT @@server_id FOR UPDATE").await?;
    let rule = "INSERT INTO mysql_query_rules (rule_id, active, match_digest, destination_hostgroup, apply) VALUES (0, 1, '^SELECT @@server_id$', 10, 1)";
    execute(&mut admins[0], &[rule.into()]).await?;
    let (mut acknowledged, mut live) = (Vec::new(), Vec::new());
    for round in 0..LOADS {
        let hostgroup = [20, 10][round % 2];
        let conn = &mut admins[round % nodes];
        execute(conn, &[format!("UPDATE mysql_query_rules SET destination_hostgroup = {hostgroup} WHERE rule_id = 0")]).await?;
        let sent = Instant::now();
        execute(conn, &["LOAD MYSQL QUERY RULES TO RUNTIME".into()]).await?;
        acknowledged.push(millis(sent));
        let begin = Instant::now();
        for client in &mut clients {
            follow(client, hostgroup == 10, writer.as_ref(), begin).await?;
        }
        live.push(millis(begin));
    }
    execute(&mut admins[0], &["DELETE FROM mysql_query_rules WHERE rule_id = 0".into()]).await?;
    Ok((acknowledged, live))
}

/// Asks until the writer answers, or another server.
async fn follow(client: &mut Conn, to_writer: bool, writer: Option<&String>, begin: Instant) -> anyhow::Result<()> {
    loop {
        let id: Option<String> = client.query_first("SELECT @@server_id").await?;
        if (id.as_ref() == writer) == to_writer {
            return Ok(());
        }
        ensure!(begin.elapsed() < HANG, "a node does not obey a rule that was loaded {} s ago", HANG.as_secs());
    }
}

/// Reads that are confirmed by the leader, one after the other: milliseconds each.
async fn reads(host: &str, duration: Duration) -> anyhow::Result<Vec<f64>> {
    let mut conn = admin(host).await?;
    execute(&mut conn, &["SET CONNECTION read_level = 'linearizable'".into()]).await?;
    let (begin, mut times) = (Instant::now(), Vec::new());
    while begin.elapsed() < duration {
        let sent = Instant::now();
        let _count: Option<u64> = conn.query_first("SELECT COUNT(*) FROM mysql_servers").await?;
        times.push(millis(sent));
    }
    Ok(times)
}

/// One row, by writer `name`.
pub(crate) fn insert(name: &str) -> String {
    format!("INSERT INTO mysql_query_rules (active, digest, comment) VALUES (0, '0xbe', '{name}')")
}

/// `count` writers on `nodes` in turn, each one INSERT after the other: milliseconds each.
async fn writers(demo: &Demo, nodes: &[usize], count: usize, duration: Duration) -> anyhow::Result<Vec<f64>> {
    let mut conns = Vec::new();
    for (number, node) in (0..count).zip(nodes.iter().cycle()) {
        conns.push((insert(&format!("writer {number}")), admin(&demo.host(*node)).await?));
    }
    let (begin, mut tasks) = (Instant::now(), JoinSet::new());
    for (sql, mut conn) in conns {
        tasks.spawn(async move {
            let mut times = Vec::new();
            while begin.elapsed() < duration {
                let sent = Instant::now();
                conn.query_drop(&sql).await?;
                times.push(millis(sent));
            }
            anyhow::Ok(times)
        });
    }
    let mut all = Vec::new();
    while let Some(times) = tasks.join_next().await {
        all.extend(times??);
    }
    let mut conn = admin(&demo.host(nodes[0])).await?;
    execute(&mut conn, &["DELETE FROM mysql_query_rules WHERE digest = '0xbe'".into()]).await?;
    Ok(all)
}
