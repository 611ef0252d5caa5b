//! Health and metrics on port 6070. Answers come from memory; the listener has its own thread and runtime, so that a
//! busy control plane does not make a healthy node look dead.

mod exposition;
mod metrics;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::IncomingStream;
use quorumsql_dataplane::DataPlane;
use quorumsql_raft::Consensus;
use tokio::net::{TcpListener, TcpStream};

use crate::doorway::Doorway;
use crate::grpc::is_loopback;
use crate::lifecycle::{Lifecycle, Stage};
use crate::runtime::Runtime;

/// What the answers are made of.
#[derive(Clone)]
pub(crate) struct Facts {
    pub(crate) life: Arc<Lifecycle>,
    pub(crate) consensus: Consensus,
    pub(crate) dataplane: DataPlane,
    pub(crate) runtime: Arc<Runtime>,
    /// Metrics are shown to other machines too (`listen.allow_insecure`).
    pub(crate) open: bool,
}

/// A client's address.
#[derive(Clone, Copy, Debug)]
struct Peer(SocketAddr);

impl Connected<IncomingStream<'_, Door>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// The listener, behind which those wait who have not said anything.
struct Door {
    doorway: Doorway,
    local: SocketAddr,
}

impl Door {
    fn open(listener: TcpListener) -> io::Result<Self> {
        let local = listener.local_addr()?;
        Ok(Self { doorway: Doorway::open(listener), local })
    }
}

impl axum::serve::Listener for Door {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        match self.doorway.next().await {
            Some(arrival) => arrival,
            // The doorway stands as long as its runtime.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }
}

/// Serves until the process ends.
pub(crate) fn spawn(listener: std::net::TcpListener, facts: Facts) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("http".into()).spawn(move || {
        runtime.block_on(async {
            let served = match TcpListener::from_std(listener).and_then(Door::open) {
                Ok(door) => axum::serve(door, router(facts).into_make_service_with_connect_info::<Peer>()).await,
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                tracing::error!(%error, "the http listener ended");
            }
        });
    })?;
    Ok(())
}

fn router(facts: Facts) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/healthz", get(livez))
        .route("/readyz", get(readyz))
        .route("/ready", get(readyz))
        .route("/metrics", get(show_metrics))
        .with_state(facts)
}

/// 200 while the process answers at all: quorum, databases and load are other questions.
async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(State(facts): State<Facts>) -> Response {
    let (code, body) = readiness(facts.life.stage(), facts.runtime.unready(), facts.consensus.status().consensus_stopped.as_deref());
    (code, body).into_response()
}

/// Health is for balancers anywhere; metrics tell more and stay on this machine unless the operator opens them.
async fn show_metrics(State(facts): State<Facts>, ConnectInfo(client): ConnectInfo<Peer>) -> Response {
    if !(facts.open || is_loopback(client.0.ip())) {
        return (StatusCode::FORBIDDEN, "metrics are for this machine only; listen.allow_insecure = true opens them\n").into_response();
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics::render(&facts)).into_response()
}

/// Whether load balancers should send traffic here. Never depends on the quorum: without it the node serves on with the
/// configuration that it has (design.md section 2.3).
fn readiness(stage: Stage, unready: Option<String>, consensus_stopped: Option<&str>) -> (StatusCode, String) {
    match (stage, unready, consensus_stopped) {
        (Stage::Draining | Stage::Stopping, _, _) => (StatusCode::SERVICE_UNAVAILABLE, "draining\n".into()),
        (Stage::Starting, reason, _) => {
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            (StatusCode::SERVICE_UNAVAILABLE, format!("starting{reason}\n"))
        }
        (Stage::Serving, _, Some(reason)) => (StatusCode::OK, format!("degraded: consensus stopped: {reason}\n")),
        (Stage::Serving, _, None) => (StatusCode::OK, "ok\n".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_says_why() {
        for (stage, unready, stopped, code, body) in [
            (Stage::Starting, Some("mysql a:3306 has not been probed"), None, 503, "starting: mysql a:3306 has not been probed\n"),
            (Stage::Starting, None, None, 503, "starting\n"),
            (Stage::Serving, None, None, 200, "ok\n"),
            // A server that is added later does not take the node out of service.
            (Stage::Serving, Some("mysql b:3306 has not been probed"), None, 200, "ok\n"),
            (Stage::Serving, None, Some("disk full"), 200, "degraded: consensus stopped: disk full\n"),
            (Stage::Draining, None, Some("disk full"), 503, "draining\n"),
        ] {
            let answer = readiness(stage, unready.map(str::to_owned), stopped);
            assert_eq!((answer.0.as_u16(), answer.1.as_str()), (code, body));
        }
    }
}
