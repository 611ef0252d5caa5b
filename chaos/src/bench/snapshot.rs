//! A state with many users: written, loaded, and handed to a node that joins.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mysql_async::prelude::Queryable as _;
use quorumsql_chaos::cluster::{Demo, binary};
use tokio::task::JoinSet;

use super::clients::{admin, execute};
use super::consensus::millis;
use super::report::{Table, fine};

/// Entries after which nodes have written a snapshot and dropped the first part of their log (they do both every 10,000):
/// a node that joins must then take the snapshot.
const ENTRIES: usize = 20_500;
/// Writers at once.
const WRITERS: usize = 64;
const HANG: Duration = Duration::from_secs(300);

/// Fills one node with `users` and lets another join as a learner.
pub(crate) async fn run(users: usize) -> anyhow::Result<()> {
    let mut demo = Demo::start(1, &[]);
    let mut table = Table::new(format!("### A state of {users} users"), &["what", "seconds"]);
    eprintln!("snapshot, {users} users");
    let begin = Instant::now();
    let entries = fill(&demo, users).await?;
    table.row(vec![format!("written in {entries} commits by {WRITERS} writers"), fine(millis(begin) / 1000.0)]);

    let mut conn = admin(&demo.host(1)).await?;
    let begin = Instant::now();
    execute(&mut conn, &["LOAD MYSQL USERS TO RUNTIME".into()]).await?;
    table.row(vec!["LOAD MYSQL USERS TO RUNTIME".into(), fine(millis(begin) / 1000.0)]);
    let begin = Instant::now();
    execute(&mut conn, &["UPDATE mysql_users SET comment = 'x' WHERE username = 'user1'".into(), "LOAD MYSQL USERS TO RUNTIME".into()])
        .await?;
    table.row(vec!["the same after one user has changed".into(), fine(millis(begin) / 1000.0)]);

    let (took, how) = join(&mut demo).await?;
    table.row(vec![format!("a learner joins, from its start until it has everything ({how})"), fine(took / 1000.0)]);
    println!("{table}");
    Ok(())
}

/// Writes the users in at least [`ENTRIES`] statements; returns how many.
async fn fill(demo: &Demo, users: usize) -> anyhow::Result<usize> {
    let rows = (users / ENTRIES).max(1);
    let statement = |first: usize| {
        let values: Vec<String> = (first..users.min(first + rows)).map(|user| format!("('user{user}', 'password{user}', 10)")).collect();
        format!("INSERT INTO mysql_users (username, password, default_hostgroup) VALUES {}", values.join(", "))
    };
    let statements: Vec<String> = (0..users).step_by(rows).map(statement).collect();
    let count = statements.len();
    let mut tasks = JoinSet::new();
    for part in statements.chunks(count.div_ceil(WRITERS).max(1)) {
        let (mut conn, part) = (admin(&demo.host(1)).await?, part.to_vec());
        tasks.spawn(async move { execute(&mut conn, &part).await });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(count)
}

/// Milliseconds from the start of a learner until it has applied what the leader has, and how it got there.
async fn join(demo: &mut Demo) -> anyhow::Result<(f64, String)> {
    let config = demo.configure(2)?.display().to_string();
    let (grpc, peer) = (format!("{}:6034", demo.host(1)), format!("{}:6035", demo.host(1)));
    let token = command(&["token", "create", "--endpoint", &grpc, "--role", "learner"])?;
    command(&["join", "--config", &config, "--peer", &peer, "--token", token.trim()])?;
    let mut conn = admin(&demo.host(1)).await?;
    let applied = "SELECT applied_index FROM stats_cluster_nodes WHERE contact_ms IS NULL";
    let goal: u64 = conn.query_first(applied).await?.context("a node knows what it has applied")?;
    let begin = Instant::now();
    demo.restart(2);
    loop {
        if let Ok(mut conn) = admin(&demo.host(2)).await
            && conn.query_first::<u64, _>(applied).await?.is_some_and(|index| index >= goal)
        {
            break;
        }
        ensure!(begin.elapsed() < HANG, "the learner has not caught up after {} s", HANG.as_secs());
        tokio::time::sleep(Duration::from_millis(10)).await; // the pause between two looks at the condition
    }
    let took = millis(begin);
    let how = installed(&demo.logs(2)).map_or_else(|| "by the log".to_owned(), |bytes| format!("by a snapshot of {:.1} MB", bytes / 1e6));
    Ok((took, how))
}

/// Bytes of the snapshot that a node says it has installed.
fn installed(log: &str) -> Option<f64> {
    let line = log.lines().find(|line| line.contains("snapshot installed"))?;
    let (_, number) = line.split_once("bytes")?;
    let digits: String = number.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn command(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(binary()).args(arguments).output()?;
    ensure!(output.status.success(), "quorumsql {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::installed;

    #[test]
    fn the_size_of_a_snapshot_is_found_in_text_and_json() {
        for (log, expected) in [
            ("a\n2026-11-30 INFO x: snapshot installed term=1 index=20500 bytes=123456\nb", Some(123_456.0)),
            (r#"{"message":"snapshot installed","index":5,"bytes":42,"x":1}"#, Some(42.0)),
            ("nothing of the kind", None),
        ] {
            assert_eq!(installed(log), expected, "{log}");
        }
    }
}
