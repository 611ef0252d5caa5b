//! Admin gRPC on port 6034: ClusterAdmin, health, reflection (raft-and-storage.md section 9).
//!
//! On loopback, status, health and reflection answer without credentials; everything that changes something needs an
//! admin account. Off loopback there is TLS or an explicit `listen.allow_insecure`, and nothing is anonymous.

mod cluster_admin;
pub(crate) mod credentials;
mod details;
mod health;
mod reflection;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quorumsql_proto::admin::cluster_admin_server::ClusterAdminServer;
use quorumsql_raft::Consensus;
use tokio::net::TcpListener;
use tonic::service::InterceptorLayer;
use tonic::transport::Server;
use tonic::{Request, Status};

use self::cluster_admin::ClusterAdminService;
use self::credentials::Credentials;
use crate::doorway::Doorway;
use crate::tls::Certificates;

/// Largest request.
const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// How the listener is protected.
pub(crate) enum Protection {
    /// Loopback, or `allow_insecure`.
    Plain,
    /// TLS with the certificate of the moment.
    Tls(Arc<Certificates>),
}

/// Serves until the future is dropped.
pub(crate) async fn serve(
    listener: TcpListener,
    protection: Protection,
    consensus: Consensus,
    credentials: Credentials,
) -> anyhow::Result<()> {
    let server = Server::builder()
        .tcp_nodelay(true)
        .http2_keepalive_interval(Some(Duration::from_secs(20)))
        .concurrency_limit_per_connection(64)
        .timeout(Duration::from_secs(60));
    let (health, health_updates) = health::service(consensus.clone());
    let service = ClusterAdminService::new(consensus, credentials.clone());
    let router = server
        .layer(InterceptorLayer::new(move |request| anonymous_only_from_loopback(request, &credentials)))
        .add_service(ClusterAdminServer::new(service).max_decoding_message_size(MAX_MESSAGE_BYTES))
        .add_service(health)
        .add_service(reflection::v1()?)
        .add_service(reflection::v1alpha()?);
    let served = async {
        match protection {
            Protection::Plain => router.serve_with_incoming(Doorway::open(listener).into_stream()).await,
            Protection::Tls(certificates) => router.serve_with_incoming(Doorway::open_tls(listener, certificates).into_stream()).await,
        }
    };
    tokio::select! {
        served = served => served?,
        () = health_updates => {}
    }
    Ok(())
}

/// From elsewhere even a look needs an account.
fn anonymous_only_from_loopback(request: Request<()>, credentials: &Credentials) -> Result<Request<()>, Status> {
    if !is_local(request.remote_addr()) {
        credentials.check(&request)?;
    }
    Ok(request)
}

/// Whether a client is on this machine; an unknown address is not.
pub(crate) fn is_local(address: Option<SocketAddr>) -> bool {
    address.is_some_and(|address| is_loopback(address.ip()))
}

/// All of 127.0.0.0/8 and `::1` (design.md section 12).
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}
