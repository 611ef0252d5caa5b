//! The quorumsql binary. `cli` says what can be typed, `wiring` is the table of contents of a running node.
#![forbid(unsafe_code)]

mod admin;
mod cli;
mod config;
mod ctl;
mod demo;
mod doorway;
mod grpc;
mod http;
mod interfaces;
mod lifecycle;
mod local;
mod modules;
mod monitor;
mod process;
mod runtime;
mod shutdown;
mod sql_server;
mod telemetry;
mod tls;
mod wiring;

use std::process::ExitCode;

use clap::Parser as _;
use quorumsql_raft::error::StartError;
use quorumsql_raft::membership;

use crate::cli::{Cli, Command, ConfigArgs, JoinArgs, RunArgs, TokenVerb};
use crate::config::NodeConfig;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match answer(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            error.downcast_ref::<StartError>().map_or(ExitCode::FAILURE, |error| ExitCode::from(error.exit_code()))
        }
    }
}

fn answer(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => run(&args),
        Command::Demo(args) => process::control_runtime()?.block_on(demo::run(&args)),
        Command::Init(args) => process::control_runtime()?.block_on(init(&args)),
        Command::Join(args) => process::control_runtime()?.block_on(join(&args)),
        Command::RaftRebuild(args) => process::control_runtime()?.block_on(raft_rebuild(&args)),
        Command::Token(args) => match args.verb {
            TokenVerb::Create(args) => {
                println!("{}", process::control_runtime()?.block_on(ctl::create_token(&args))?);
                Ok(())
            }
        },
        Command::Ctl(args) => process::control_runtime()?.block_on(ctl::ctl(&args)),
        Command::CheckConfig(args) => check_config(&args),
        Command::Version => {
            println!("quorumsql {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
    }
}

fn run(args: &RunArgs) -> anyhow::Result<()> {
    let config = NodeConfig::load(args.config.config.as_deref())?;
    if args.stop_with_parent {
        process::stop_with_parent()?;
    }
    process::raise_descriptor_limit();
    let _pid_file = args.pid_file.as_deref().map(process::PidFile::write).transpose()?;
    // Whoever looks for the reason looks into the log; without a file, what `main` prints is there already.
    let in_file = !config.log.file.as_os_str().is_empty();
    process::control_runtime()?.block_on(wiring::run(config)).inspect_err(|error| {
        if in_file {
            tracing::error!("the node ends: {error:#}");
        }
    })
}

async fn init(args: &ConfigArgs) -> anyhow::Result<()> {
    let config = NodeConfig::load(args.config.as_deref())?;
    let report = membership::init(&wiring::raft_options(&config), Vec::new()).await?;
    eprintln!("cluster {} made, this is node {} (slot {}); start it with `quorumsql run`", report.cluster_id, report.node_id, report.slot);
    eprintln!("a token with which the second node can join as a voter:");
    println!("{}", report.first_token);
    Ok(())
}

async fn join(args: &JoinArgs) -> anyhow::Result<()> {
    let config = NodeConfig::load(args.config.config.as_deref())?;
    let report = membership::join(&wiring::raft_options(&config), &args.token, &args.peer, args.replace).await?;
    println!("node {} (slot {}) of cluster {}; start it with `quorumsql run`", report.node_id, report.slot, report.cluster_id);
    Ok(())
}

async fn raft_rebuild(args: &ConfigArgs) -> anyhow::Result<()> {
    let config = NodeConfig::load(args.config.as_deref())?;
    let report = membership::rebuild(&wiring::raft_options(&config)).await?;
    println!("new raft log; this node goes on after change {}; the damaged log is in {}", report.applied_index, report.damaged.display());
    Ok(())
}

fn check_config(args: &ConfigArgs) -> anyhow::Result<()> {
    print!("{}", toml::to_string(&NodeConfig::load(args.config.as_deref())?)?);
    Ok(())
}
