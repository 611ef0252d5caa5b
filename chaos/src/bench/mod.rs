//! `quorumsql-chaos bench`: what the data plane and consensus cost, beside their peers in the same run. No test: nothing
//! is judged here, and only a set-up that fails is an error.

mod clients;
mod compare;
mod consensus;
mod failover;
mod load;
mod memory;
mod report;
mod rig;
mod snapshot;
mod usage;

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use quorumsql_chaos::cluster::binary;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::Runtime;

use self::rig::{Protocol, Rig, wanted};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    /// MySQL point selects by sysbench: directly, through HAProxy, through one node.
    Mysql,
    /// PostgreSQL point selects by pgbench: directly, through HAProxy, through PgBouncer, through one node.
    Pgsql,
    /// Idle clients, big results, rules that do not match.
    Memory,
    /// Clusters of 1, 3 and 5 nodes: commits, LOAD until live, reads, leaders that end, idle nodes.
    Consensus,
    /// Many users: written, loaded, taken over by a learner.
    Snapshot,
}

/// Options of `bench`.
#[derive(Args)]
pub(crate) struct BenchArgs {
    /// Parts to run; all without any.
    parts: Vec<Part>,
    /// Length of one run; each way has three.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Numbers of clients for point selects, up to 400 each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256], value_parser = clap::value_parser!(u16).range(1..=400))]
    clients: Vec<u16>,
    /// Users in the snapshot.
    #[arg(long, default_value_t = 100_000)]
    users: usize,
    /// All figures in half the time: runs of a second, no cluster of five, one end of a leader of each kind, 21,000 users.
    #[arg(long, conflicts_with_all = ["seconds", "users"])]
    short: bool,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Extent {
    seconds: u64,
    users: usize,
    /// Sizes of clusters.
    clusters: &'static [usize],
    /// Leaders that are ended in each way.
    ends: usize,
}

impl BenchArgs {
    fn extent(&self) -> Extent {
        if self.short {
            // As many users as make a snapshot necessary, with some to spare.
            return Extent { seconds: 1, users: 21_000, clusters: &[1, 3], ends: 1 };
        }
        Extent { seconds: self.seconds, users: self.users, clusters: &[1, 3, 5], ends: 3 }
    }
}

/// Runs the parts one after the other; each prints its tables when it is done. One that fails says why, and the others
/// still run.
///
/// # Errors
/// When a part has failed.
pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    raise_files()?;
    build()?;
    println!("## quorumsql-chaos bench\n\n{}", machine());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (extent, started) = (args.extent(), Instant::now());
    let clients: Vec<usize> = args.clients.iter().copied().map(usize::from).collect();
    let mut failed = 0_u32;
    for part in [Part::Mysql, Part::Pgsql, Part::Memory, Part::Consensus, Part::Snapshot] {
        if !args.parts.is_empty() && !args.parts.contains(&part) {
            continue;
        }
        let begin = Instant::now();
        let outcomes = match part {
            Part::Mysql => vec![point_selects(Protocol::Mysql, &clients, extent.seconds)],
            Part::Pgsql => vec![point_selects(Protocol::Pgsql, &clients, extent.seconds)],
            Part::Memory => [Protocol::Mysql, Protocol::Pgsql].map(|protocol| memory(&runtime, protocol, extent.seconds)).into(),
            Part::Consensus => vec![runtime.block_on(consensus::run(extent))],
            Part::Snapshot => vec![runtime.block_on(snapshot::run(extent.users))],
        };
        for error in outcomes.into_iter().filter_map(Result::err) {
            println!("\nended before its time: {error:#}\n");
            failed += 1;
        }
        println!("{part:?}: {} s, load {} at its end", begin.elapsed().as_secs(), load());
    }
    println!("all: {} s", started.elapsed().as_secs());
    ensure!(failed == 0, "{failed} measurements ended before their time, for the reasons above");
    Ok(())
}

fn memory(runtime: &Runtime, protocol: Protocol, seconds: u64) -> anyhow::Result<()> {
    if !generator(protocol) {
        return Ok(());
    }
    let rig = Rig::start(protocol)?;
    runtime.block_on(memory::run(&rig, seconds))
}

fn point_selects(protocol: Protocol, clients: &[usize], seconds: u64) -> anyhow::Result<()> {
    if !generator(protocol) {
        return Ok(());
    }
    compare::point_selects(&Rig::start(protocol)?, clients, seconds)
}

/// Whether the tool that makes the load is installed.
fn generator(protocol: Protocol) -> bool {
    match protocol {
        Protocol::Mysql => wanted("sysbench", "sysbench"),
        Protocol::Pgsql => wanted("pgbench", "pgbench"),
    }
}

/// As many open files as the system allows: thousands of clients are in this process.
fn raise_files() -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("cannot raise the number of open files")
}

/// Builds the node in the profile of this program when `cargo run` has started it and `QUORUMSQL_BIN` names no other.
fn build() -> anyhow::Result<()> {
    let Some(cargo) = std::env::var_os("CARGO").filter(|_| std::env::var_os("QUORUMSQL_BIN").is_none()) else { return Ok(()) };
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--bin", "quorumsql"]).args((!cfg!(debug_assertions)).then_some("--release"));
    ensure!(command.status()?.success(), "{command:?} failed");
    Ok(())
}

/// Load of the machine over the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// What the figures depend on.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or_else(String::new, |name| name.trim_start_matches(['\t', ' ', ':']).to_owned());
    let kernel = read("/proc/sys/kernel/osrelease");
    let profile = if cfg!(debug_assertions) { "; a debug build: its figures say nothing about speed" } else { "" };
    format!(
        "{cores} cores ({model}), Linux {}, load {} at the start; node {}{profile}; everything on loopback, medians of {} interleaved runs",
        kernel.trim(),
        load(),
        binary().display(),
        compare::PASSES,
    )
}
