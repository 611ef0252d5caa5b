//! The table of contents of a running node: what is started, in which order, and how it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use quorumsql_dataplane::{DataPlane, DataPlaneOptions};
use quorumsql_raft::{Consensus, LogStoreKind, RaftOptions, Timings};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::admin::AdminServer;
use crate::config::{LogStore, NodeConfig};
use crate::grpc::credentials::Credentials;
use crate::grpc::{self, Protection};
use crate::http;
use crate::interfaces::{self, Interfaces};
use crate::lifecycle::{Lifecycle, Stage};
use crate::local::NodeFacts;
use crate::monitor::Monitor;
use crate::runtime::{Observed, RowValidator, Runtime};
use crate::shutdown::{self, Signals};
use crate::sql_server::{Face, ServeOptions};
use crate::telemetry::Telemetry;
use crate::tls::Certificates;

/// Runs a node until it is told to stop.
pub(crate) async fn run(config: NodeConfig) -> anyhow::Result<()> {
    let telemetry = Arc::new(Telemetry::start(&config.log, &config.otel)?);
    report_panics();
    let life = Arc::new(Lifecycle::new());
    let signals = Signals::install()?;
    let (chain, key) = config.server_certificate();
    let certificates = Certificates::load(chain, key, config.node.data_dir.clone())
        .context("the certificate that clients are shown ([tls] server_cert, server_key)")?;
    {
        let (life, telemetry, certificates) = (life.clone(), telemetry.clone(), certificates.clone());
        tokio::spawn(async move { signals.follow(&life, &telemetry, &certificates).await });
    }
    let consensus = Consensus::start(raft_options(&config), Arc::new(RowValidator)).await?;
    {
        let (consensus, telemetry) = (consensus.clone(), telemetry.clone());
        tokio::spawn(async move { leave(&consensus, &telemetry).await });
    }
    let identity = consensus.identity();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"), cluster = identity.cluster_id, node = identity.node_id, slot = identity.slot, name = identity.name,
        data_dir = %config.node.data_dir.display(), "node starts"
    );

    let (runtime, initial) = Runtime::start(consensus.clone(), certificates.clone(), &Observed::default());
    let (monitor, observed) = Monitor::start(runtime.targets());
    let dataplane = DataPlane::start(DataPlaneOptions { threads: config.node.threads, slot: identity.slot }, initial)?;

    let http = std::net::TcpListener::bind(&config.listen.http).with_context(|| format!("listen.http = {}", config.listen.http))?;
    let seen = http::Facts {
        life: life.clone(),
        consensus: consensus.clone(),
        dataplane: dataplane.clone(),
        runtime: runtime.clone(),
        open: config.listen.allow_insecure,
    };
    http::spawn(http, seen)?;

    let variables = own_variables(&config);
    let facts = Arc::new(NodeFacts::new(runtime.clone(), monitor, life.clone(), telemetry.clone(), certificates.clone(), variables));
    let mut tasks = JoinSet::new();
    serve_grpc(&config, &consensus, &runtime, &certificates, &mut tasks).await?;
    {
        let (runtime, dataplane) = (runtime.clone(), dataplane.clone());
        tasks.spawn(async move { runtime.follow(&dataplane, observed).await });
    }
    {
        let interfaces = Interfaces { mysql: config.listen.mysql.clone(), pgsql: config.listen.pgsql.clone() };
        let (consensus, runtime, dataplane, life) = (consensus.clone(), runtime.clone(), dataplane.clone(), life.clone());
        tasks.spawn(async move { interfaces::open(interfaces, &consensus, &runtime, &dataplane, &life).await });
    }
    serve_admin(&config, AdminServer::new(consensus.clone(), dataplane.clone(), facts), &certificates, &mut tasks).await?;

    let mut requests = life.shutdown_requests();
    requests.wait_for(|count| *count > 0).await?;
    tokio::join!(consensus.stand_down(), shutdown::drain(&config.drain, &life, &dataplane));
    life.enter(Stage::Stopping);
    tracing::info!("node stops");
    if tokio::time::timeout(Duration::from_secs(5), consensus.shutdown()).await.is_err() {
        tracing::warn!("consensus did not stop within 5 s");
    }
    tasks.shutdown().await;
    tokio::task::spawn_blocking(move || dataplane.shutdown()).await?;
    telemetry.finish();
    Ok(())
}

/// Ends the process at once when it must not go on: what it would serve is not what its cluster has decided.
async fn leave(consensus: &Consensus, telemetry: &Telemetry) {
    let leave = consensus.must_leave().await;
    tracing::error!(exit_code = leave.exit_code, reason = leave.reason, "this process ends");
    telemetry.finish();
    std::process::exit(leave.exit_code.into());
}

/// A panic ends its task; the log says where.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(thread = std::thread::current().name().unwrap_or("unnamed"), backtrace = %std::backtrace::Backtrace::capture(), "panic: {panic}");
    }));
}

/// What consensus needs of the bootstrap file.
pub(crate) fn raft_options(config: &NodeConfig) -> RaftOptions {
    RaftOptions {
        data_dir: config.node.data_dir.clone(),
        name: config.node.name.clone(),
        log_store: match config.raft.log_store {
            LogStore::Sled => LogStoreKind::Sled,
            LogStore::Sqlite => LogStoreKind::Sqlite,
        },
        timings: Timings {
            heartbeat: *config.raft.heartbeat,
            election_min: *config.raft.election_min,
            election_max: *config.raft.election_max,
            storage_timeout: *config.raft.storage_timeout,
        },
        peer_listen: config.listen.peer.clone(),
        advertise: config.advertise().to_owned(),
        build: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Variables that the bootstrap file decides.
fn own_variables(config: &NodeConfig) -> Vec<(String, String)> {
    let threads = config.node.threads.to_string();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let own = [
        ("admin-version", &version),
        ("mysql-threads", &threads),
        ("pgsql-threads", &threads),
        ("mysql-interfaces", &config.listen.mysql),
        ("pgsql-interfaces", &config.listen.pgsql),
        ("admin-mysql_ifaces", &config.listen.admin_mysql),
        ("admin-pgsql_ifaces", &config.listen.admin_pgsql),
    ];
    own.into_iter().map(|(name, value)| (name.to_owned(), value.clone())).collect()
}

async fn serve_grpc(
    config: &NodeConfig,
    consensus: &Consensus,
    runtime: &Arc<Runtime>,
    certificates: &Arc<Certificates>,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    if config.listen.grpc.is_empty() {
        return Ok(());
    }
    let (listener, local) = bind("listen.grpc", &config.listen.grpc).await?;
    let protection = if demands_tls(config, "listen.grpc", local) { Protection::Tls(certificates.clone()) } else { Protection::Plain };
    let (consensus, runtime) = (consensus.clone(), runtime.clone());
    tasks.spawn(async move {
        let credentials = Credentials::new(move || admin_credentials(&runtime));
        if let Err(error) = grpc::serve(listener, protection, consensus, credentials).await {
            tracing::error!(%error, "the admin gRPC listener ended");
        }
    });
    Ok(())
}

async fn serve_admin(
    config: &NodeConfig,
    server: AdminServer,
    certificates: &Arc<Certificates>,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    for (key, address, face) in
        [("listen.admin_mysql", &config.listen.admin_mysql, Face::Mysql), ("listen.admin_pgsql", &config.listen.admin_pgsql, Face::Pgsql)]
    {
        if address.is_empty() {
            continue;
        }
        let (listener, local) = bind(key, address).await?;
        let options = ServeOptions { require_tls: demands_tls(config, key, local), tls: Some(certificates.clone()) };
        let server = server.clone();
        tasks.spawn(async move {
            match face {
                Face::Mysql => server.serve_mysql(listener, options).await,
                Face::Pgsql => server.serve_pgsql(listener, options).await,
            }
        });
    }
    Ok(())
}

/// `admin-admin_credentials` in force.
fn admin_credentials(runtime: &Runtime) -> String {
    runtime.effective().committed.variables.get("admin-admin_credentials").unwrap_or_default().to_owned()
}

/// Binds an admin listener and says whether it is on loopback.
async fn bind(key: &str, address: &str) -> anyhow::Result<(TcpListener, bool)> {
    let address: SocketAddr = address.parse().with_context(|| format!("{key} = {address}"))?;
    let listener = TcpListener::bind(address).await.with_context(|| format!("{key} = {address}"))?;
    Ok((listener, grpc::is_loopback(address.ip())))
}

/// Whether an admin listener refuses plain text: off loopback it does, unless `allow_insecure` is said.
fn demands_tls(config: &NodeConfig, key: &str, local: bool) -> bool {
    if !local && config.listen.allow_insecure {
        tracing::warn!(listener = key, "listens off loopback without demanding TLS because listen.allow_insecure is set");
    }
    !local && !config.listen.allow_insecure
}
