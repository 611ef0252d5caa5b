//! How long writes stand still when the leader is killed, and when it is asked to end.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mysql_async::prelude::Queryable as _;
use quorumsql_chaos::cluster::{Demo, gone};
use quorumsql_chaos::process::Signal;

use super::clients::admin;
use super::consensus::{insert, leader, millis};

/// Nothing takes longer unless it hangs.
const HANG: Duration = Duration::from_secs(60);

/// Milliseconds for each way of ending, `ends` times each.
pub(crate) async fn failover(demo: &mut Demo, nodes: usize, ends: usize) -> anyhow::Result<Vec<(&'static str, Vec<f64>)>> {
    let (mut killed, mut stopped) = (Vec::new(), Vec::new());
    for _ in 0..ends {
        killed.push(kill(demo, nodes).await?);
        stopped.push(stop(demo, nodes).await?);
    }
    Ok(vec![("kill -9", killed), ("SIGTERM, the slowest write meanwhile", stopped)])
}

/// From kill -9 of the leader to the acknowledgement of a write that was begun after it.
async fn kill(demo: &mut Demo, nodes: usize) -> anyhow::Result<f64> {
    let (led, survivor) = leader_and_other(demo, nodes).await?;
    let mut conn = admin(&demo.host(survivor)).await?;
    let begin = Instant::now();
    demo.signal(led, Signal::KILL);
    let mut refusal = String::new();
    while let Err(error) = conn.query_drop(insert("after kill -9")).await {
        refusal = error.to_string();
        ensure!(begin.elapsed() < HANG, "no write is accepted after the leader's end: {refusal}");
        tokio::time::sleep(Duration::from_millis(1)).await; // the pause between two attempts
    }
    let took = millis(begin);
    if !refusal.is_empty() {
        eprintln!("  a write meanwhile was refused: {refusal}");
    }
    demo.kill(led);
    come_back(demo, led).await?;
    Ok(took)
}

/// The slowest of the writes through another node between SIGTERM of the leader and its end.
async fn stop(demo: &mut Demo, nodes: usize) -> anyhow::Result<f64> {
    let (led, survivor) = leader_and_other(demo, nodes).await?;
    let mut conn = admin(&demo.host(survivor)).await?;
    let (pid, begin, mut slowest) = (demo.pid(led), Instant::now(), 0.0_f64);
    demo.signal(led, Signal::TERM);
    let mut ended = false;
    // One more write once it is gone.
    while !ended {
        ended = gone(pid);
        let sent = Instant::now();
        conn.query_drop(insert("during a planned stop")).await.context("a write during a planned stop of the leader")?;
        slowest = slowest.max(millis(sent));
        ensure!(begin.elapsed() < HANG, "the leader does not end after SIGTERM");
    }
    come_back(demo, led).await?;
    Ok(slowest)
}

async fn leader_and_other(demo: &Demo, nodes: usize) -> anyhow::Result<(usize, usize)> {
    let led = leader(demo, nodes).await?;
    let other = (1..=nodes).find(|&node| node != led).context("a cluster of one has no other node")?;
    Ok((led, other))
}

/// Starts a node again and waits until it is ready.
async fn come_back(demo: &mut Demo, node: usize) -> anyhow::Result<()> {
    demo.restart(node);
    let end = Instant::now() + HANG;
    while demo.http(node, "/readyz").is_none_or(|(code, _)| code != 200) {
        ensure!(Instant::now() < end, "node {node} does not become ready again");
        tokio::time::sleep(Duration::from_millis(50)).await; // the pause between two looks at the condition
    }
    Ok(())
}
