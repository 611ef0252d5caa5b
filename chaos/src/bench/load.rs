//! Point selects by sysbench (MySQL) and pgbench (PostgreSQL), and what they print.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use super::report::{percentile, weighted_percentile};
use super::rig::{Protocol, Way};

/// One run of the load generator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) protocol: Protocol,
    /// Prepared statements; else text.
    pub(crate) prepared: bool,
    pub(crate) clients: usize,
    pub(crate) seconds: u64,
}

/// What one run did.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Done {
    pub(crate) queries: f64,
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Load {
    /// How the two tools call the kind of statement.
    pub(crate) fn kind(&self) -> &'static str {
        if self.prepared { "prepared" } else { "text" }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// When the tool fails, with what it printed.
    pub(crate) fn run(&self, way: &Way) -> anyhow::Result<Done> {
        self.run_over(way)
            .with_context(|| format!("{} point selects ({}, {} clients), {}", self.protocol.name(), self.kind(), self.clients, way.name))
    }

    fn run_over(&self, way: &Way) -> anyhow::Result<Done> {
        match self.protocol {
            Protocol::Mysql => {
                let options = ["--db-ps-mode", if self.prepared { "auto" } else { "disable" }].join("=");
                let (threads, time) = (format!("--threads={}", self.clients), format!("--time={}", self.seconds));
                let text = sysbench(&way.host, way.port, &[&options, &threads, &time, "--events=0", "--histogram", "run"])?;
                parse_sysbench(&text).with_context(|| format!("sysbench printed no figures:\n{text}"))
            }
            Protocol::Pgsql => self.pgbench(way),
        }
    }

    fn pgbench(&self, way: &Way) -> anyhow::Result<Done> {
        let dir = TempDir::with_prefix("quorumsql-pgbench-")?;
        let (prefix, clients) = (dir.path().join("log").display().to_string(), self.clients.to_string());
        let (threads, time) = (self.clients.min(2).to_string(), self.seconds.to_string());
        let kind = if self.prepared { "prepared" } else { "simple" };
        // A fifth of the transactions is enough for percentiles and spares the log.
        let options = ["-n", "-S", "-M", kind, "-c", &clients, "-j", &threads, "-T", &time, "-l", "--log-prefix", &prefix];
        let text = pgbench(way, &[&options[..], &["--sampling-rate=0.2", "demo"]].concat())?;
        let latencies = logged_latencies(dir.path())?;
        parse_pgbench(&text, &latencies).with_context(|| format!("pgbench printed no figures:\n{text}"))
    }
}

/// Makes the tables that the loads read; `way` must lead straight to the server.
pub(crate) fn prepare(protocol: Protocol, way: &Way) -> anyhow::Result<()> {
    match protocol {
        Protocol::Mysql => sysbench(&way.host, way.port, &["prepare"])?,
        Protocol::Pgsql => pgbench(way, &["-i", "-q", "demo"])?,
    };
    Ok(())
}

fn sysbench(host: &str, port: u16, options: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("sysbench");
    command.args(["oltp_point_select", "--db-driver=mysql", "--mysql-user=demo", "--mysql-password=demo", "--mysql-db=sbtest"]);
    command.args([format!("--mysql-host={host}"), format!("--mysql-port={port}")]);
    output(command.args(["--tables=4", "--table-size=10000", "--rand-type=uniform"]).args(options))
}

fn pgbench(way: &Way, options: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("pgbench");
    command.env("PGPASSWORD", "demo").args(["-h", &way.host, "-p", &way.port.to_string(), "-U", "demo"]);
    output(command.args(options))
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?} failed:\n{text}{error}");
    Ok(text.into_owned())
}

/// Figures of `sysbench … --histogram run` (1.0.20).
fn parse_sysbench(text: &str) -> Option<Done> {
    // "    queries:                             84362  (16868.44 per sec.)"
    let (_, counts) = text.split_once("queries:                ")?;
    let mut words = counts.split_ascii_whitespace();
    let queries = words.next()?.parse().ok()?;
    let per_second = words.next()?.strip_prefix('(')?.parse().ok()?;
    // "       0.052 |****                                     123"
    let bucket = |line: &str| -> Option<(f64, u64)> {
        let (value, bar) = line.split_once('|')?;
        Some((value.trim().parse().ok()?, bar.split_ascii_whitespace().next_back()?.parse().ok()?))
    };
    let buckets: Vec<(f64, u64)> = text.lines().filter_map(bucket).collect();
    Some(Done { queries, per_second, p50_ms: weighted_percentile(&buckets, 0.5), p99_ms: weighted_percentile(&buckets, 0.99) })
}

/// Figures of `pgbench -S` (15), with the latencies of its log in milliseconds.
fn parse_pgbench(text: &str, latencies: &[f64]) -> Option<Done> {
    let after = |label: &str| -> Option<f64> {
        let (_, rest) = text.split_once(label)?;
        rest.split_ascii_whitespace().next()?.parse().ok()
    };
    Some(Done {
        queries: after("number of transactions actually processed: ")?,
        // Without a single transaction this line is missing.
        per_second: after("\ntps = ").unwrap_or_default(),
        p50_ms: percentile(latencies.iter().copied(), 0.5),
        p99_ms: percentile(latencies.iter().copied(), 0.99),
    })
}

fn logged_latencies(dir: &Path) -> anyhow::Result<Vec<f64>> {
    let mut latencies = Vec::new();
    for file in fs::read_dir(dir)? {
        latencies.extend(fs::read_to_string(file?.path())?.lines().filter_map(parse_log_line));
    }
    Ok(latencies)
}

/// Third field of a line of pgbench's transaction log: microseconds, or a word for a transaction that failed.
fn parse_log_line(line: &str) -> Option<f64> {
    let micros: f64 = line.split_ascii_whitespace().nth(2)?.parse().ok()?;
    Some(micros / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYSBENCH: &str = "Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       0.075 |****************************************  97
       0.077 |*                                         2
      12.300 |                                          1

SQL statistics:
    queries performed:
        read:                            100
        total:                           100
    transactions:                        100    (49.90 per sec.)
    queries:                             100    (49.90 per sec.)
    ignored errors:                      0      (0.00 per sec.)
";

    #[test]
    fn sysbench_is_understood() {
        let done = Done { queries: 100.0, per_second: 49.9, p50_ms: 0.075, p99_ms: 0.077 };
        assert_eq!(parse_sysbench(SYSBENCH), Some(done));
        assert_eq!(parse_sysbench("FATAL: unable to connect"), None);
    }

    #[test]
    fn pgbench_is_understood() {
        let text = "transaction type: <builtin: select only>\nnumber of transactions actually processed: 9876\n\
            number of failed transactions: 0 (0.000%)\nlatency average = 0.1 ms\ntps = 4938.5 (without initial connection time)\n";
        let latencies: Vec<f64> = ["0 5 199 0 1412881037 912698", "0 6 207 0 1412881037 914578", "1 1 failed 0 1 1", ""]
            .iter()
            .filter_map(|l| parse_log_line(l))
            .collect();
        let done = Done { queries: 9876.0, per_second: 4938.5, p50_ms: 0.199, p99_ms: 0.207 };
        assert_eq!(parse_pgbench(text, &latencies), Some(done));
        let none = parse_pgbench("number of transactions actually processed: 0\nnumber of failed transactions: 0 (NaN%)\n", &[]).unwrap();
        assert!(none.queries == 0.0 && none.per_second == 0.0 && none.p50_ms.is_nan());
        assert_eq!(parse_pgbench("pgbench: error", &latencies), None);
    }
}
