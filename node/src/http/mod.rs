//! Health and metrics on port 6070. Answers come from memory; the listener has its own thread and runtime, so that a
//! busy control plane does not make a healthy node look dead.

mod exposition;
mod metrics;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use quorumsql_dataplane::DataPlane;
use quorumsql_raft::Consensus;
use tokio::net::TcpListener;

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

/// Serves until the process ends.
pub(crate) fn spawn(listener: std::net::TcpListener, facts: Facts) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("http".into()).spawn(move || {
        runtime.block_on(async {
            let served = match TcpListener::from_std(listener) {
                Ok(listener) => axum::serve(listener, router(facts).into_make_service_with_connect_info::<SocketAddr>()).await,
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
async fn show_metrics(State(facts): State<Facts>, ConnectInfo(client): ConnectInfo<SocketAddr>) -> Response {
    if !(facts.open || is_loopback(client.ip())) {
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
