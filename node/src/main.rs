//! The quorumsql binary. `cli` says what can be typed, `wiring` is the table of contents of a running node.
#![forbid(unsafe_code)]

mod admin;
mod cli;
mod config;
mod runtime;
mod sql_server;
mod telemetry;

use clap::Parser as _;

use crate::cli::{Cli, Command, ConfigArgs};
use crate::config::NodeConfig;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::CheckConfig(args) => check_config(&args),
        Command::Version => {
            println!("quorumsql {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        other => anyhow::bail!("not available in this build: {other:?}"),
    }
}

fn check_config(args: &ConfigArgs) -> anyhow::Result<()> {
    print!("{}", toml::to_string(&NodeConfig::load(args.config.as_deref())?)?);
    Ok(())
}
