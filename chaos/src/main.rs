//! `quorumsql-chaos lab` starts real databases on loopback and prints how to reach them, until Ctrl-C;
//! `quorumsql-chaos bench` measures.

mod bench;

use std::time::Duration;

use clap::{Parser, Subcommand};
use quorumsql_chaos::servers::{MariaDb, Mysql9, Postgres};

#[derive(Parser)]
#[command(name = "quorumsql-chaos", about = "labs and benchmarks around quorumsql")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Starts one MariaDB writer, two MariaDB readers and one PostgreSQL (with --mysql9 also MySQL 9) and waits for Ctrl-C.
    Lab {
        /// Also start MySQL 9 from the chroot.
        #[arg(long)]
        mysql9: bool,
    },
    /// Measures queries, memory and consensus beside HAProxy and PgBouncer, and prints ratios and figures.
    Bench(bench::BenchArgs),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Lab { mysql9 } => lab(mysql9),
        Command::Bench(args) => bench::run(&args),
    }
}

fn lab(mysql9: bool) -> anyhow::Result<()> {
    let maria: Vec<MariaDb> = (1..=3).map(|id| MariaDb::start(id, if id == 1 { &[] } else { &["--read-only=1"] })).collect();
    let postgres = Postgres::start(&[]);
    let mysql = mysql9.then(|| Mysql9::start(9, &[]));
    println!("MariaDB     {}", maria.iter().map(MariaDb::address).collect::<Vec<_>>().join(","));
    println!("PostgreSQL  {}", postgres.address());
    if let Some(server) = &mysql {
        println!("MySQL 9     {}", server.address());
    }
    println!("accounts demo/demo and monitor/monitor, database demo; Ctrl-C stops them");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(tokio::signal::ctrl_c())?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}
