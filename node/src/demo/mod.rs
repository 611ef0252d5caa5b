//! `quorumsql demo`: a whole cluster on this machine within seconds, formed with the same commands that an operator types.
//!
//! One process per node (`run --config`), node i at NET.i with the standard ports, in front of the embedded database or of
//! real ones. This process starts them, loads the configuration through the admin port of node 1, and stops them.

mod advice;
mod embedded;
mod layout;
mod load;
mod nodes;
mod ready;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use self::embedded::Embedded;
use self::layout::{Backends, Layout};
use self::nodes::{Ended, Nodes};
use crate::cli::DemoArgs;

/// Runs until Ctrl-C or SIGTERM.
pub(crate) async fn run(args: &DemoArgs) -> anyhow::Result<()> {
    // Installed before the first child, so that none is left behind by an early Ctrl-C.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (root, temporary) = directory(args)?;
    let layout = Layout::new(root, args.net, args.nodes);
    let mut nodes = Nodes::new(layout.clone())?;
    let stopped = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    tokio::pin!(stopped);

    let embedded =
        if args.mysql.is_empty() || args.pgsql.is_empty() { Some(Embedded::start(std::slice::from_ref(&args.user)).await?) } else { None };
    let backends = backends(args, embedded.as_ref());
    layout.write(&backends)?;
    let outcome = tokio::select! {
        outcome = serve(args, &layout, &backends, &mut nodes) => outcome,
        () = &mut stopped => Ok(()),
    };
    if outcome.is_ok() {
        println!("stopping");
    }
    nodes.stop().await;
    drop((embedded, temporary));
    outcome
}

/// Forms and loads the cluster, says `ready`, and reports what happens to the nodes; ends only with an error.
async fn serve(args: &DemoArgs, layout: &Layout, backends: &Backends, nodes: &mut Nodes) -> anyhow::Result<()> {
    println!(
        "starting {} in {}",
        if args.nodes == 1 { "one node".to_owned() } else { format!("{} nodes", args.nodes) },
        layout.root.display()
    );
    nodes.form().await?;
    load::load(layout, backends, &args.user).await.context("loading the demo's configuration through the admin port of node 1")?;
    ready::wait(layout, &args.user, nodes).await?;
    print!("{}", advice::text(nodes.program(), layout, backends, &args.user));
    println!("ready");
    loop {
        let Ended { node, how } = nodes.next_end().await;
        println!("node{node} has ended ({how}); start it again with\n  {}", nodes.restart_command(node));
    }
}

/// Where everything goes; the second value removes a temporary directory when it is dropped.
fn directory(args: &DemoArgs) -> anyhow::Result<(PathBuf, Option<TempDir>)> {
    let Some(given) = &args.data else {
        let temporary = TempDir::with_prefix("quorumsql-demo-")?;
        return Ok((temporary.path().to_owned(), Some(temporary)));
    };
    std::fs::create_dir_all(given).with_context(|| format!("cannot make {}", given.display()))?;
    let mut entries = std::fs::read_dir(given).with_context(|| format!("cannot read {}", given.display()))?;
    anyhow::ensure!(
        entries.next().is_none(),
        "{} is not empty: the demo starts with a new cluster each time; remove it or name another",
        given.display()
    );
    Ok((std::path::absolute(given)?, None))
}

fn backends(args: &DemoArgs, embedded: Option<&Embedded>) -> Backends {
    let own = |addresses: &[std::net::SocketAddr]| addresses.iter().map(|address| (address.ip().to_string(), address.port())).collect();
    let choose = |given: &[(String, u16)], faces: fn(&Embedded) -> &[std::net::SocketAddr]| match embedded {
        Some(embedded) if given.is_empty() => own(faces(embedded)),
        _ => given.to_vec(),
    };
    Backends { mysql: choose(&args.mysql, |embedded| &embedded.mysql), pgsql: choose(&args.pgsql, |embedded| &embedded.pgsql) }
}

/// How long the nodes get for each step of forming and loading.
const STEP: Duration = Duration::from_secs(60);
