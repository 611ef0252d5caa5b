//! Signals, and the orderly end (observability-and-operations.md 11.1, 11.2).

use std::time::Duration;

use quorumsql_dataplane::DataPlane;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::config::DrainSection;
use crate::lifecycle::{Lifecycle, Stage};
use crate::telemetry::Telemetry;
use crate::tls::Certificates;

/// SIGINT cuts every wait to this.
const INTERRUPTED_WAIT: Duration = Duration::from_secs(5);
/// Time that sessions get to abort what runs for them on servers.
const CUT_WAIT: Duration = Duration::from_secs(2);

/// Turns signals into requests to stop. Installed early, so that a signal during the start is not lost.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    reopen: Signal,
    hangup: Signal,
}

impl Signals {
    pub(crate) fn install() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            reopen: signal(SignalKind::user_defined1())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Runs for as long as the process does.
    pub(crate) async fn follow(mut self, life: &Lifecycle, telemetry: &Telemetry, certificates: &Certificates) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => life.request_shutdown(),
                _ = self.interrupt.recv() => {
                    life.cut_waits(INTERRUPTED_WAIT);
                    life.request_shutdown();
                }
                _ = self.quit.recv() => {
                    tracing::info!("SIGQUIT: exit without drain");
                    std::process::exit(0);
                }
                _ = self.reopen.recv() => {
                    telemetry.reopen();
                    certificates.key_log().reopen();
                }
                _ = self.hangup.recv() => {
                    tracing::info!("SIGHUP: TLS files are read again; the bootstrap file is read at start only");
                    // An error has been logged, and the former files stay in use.
                    let _ = certificates.reload();
                }
            }
        }
    }
}

/// Drains the data plane. A second request to stop ends every wait.
pub(crate) async fn drain(limits: &DrainSection, life: &Lifecycle, dataplane: &DataPlane) {
    life.enter(Stage::Draining);
    let mut requests = life.shutdown_requests();
    let first = *requests.borrow_and_update();
    let most = life.longest_wait();
    let limit = |wait: Duration| most.map_or(wait, |most| wait.min(most));
    let sessions = |stats: quorumsql_dataplane::Stats| stats.sessions.iter().map(|side| side.connected).sum::<u64>();
    tracing::info!(sessions = sessions(dataplane.stats()), "node drains");
    // Without sessions nobody has to be told; balancers still need their time to notice.
    let announced = tokio::time::sleep(limit(*limits.initial_wait));
    let drained = async {
        announced.await;
        tokio::task::block_in_place(|| dataplane.begin_drain_over(limit(*limits.idle_spread)));
        let left = dataplane.drained(limit(*limits.idle_spread) + limit(*limits.transactions)).await;
        if left > 0 {
            tracing::warn!(left, "sessions did not end in time and are cut");
            dataplane.kill_sessions().await;
            dataplane.drained(CUT_WAIT).await;
        }
    };
    tokio::select! {
        () = drained => {}
        () = hurried(&mut requests, first) => tracing::info!("asked again: the drain is cut short"),
    }
}

async fn hurried(requests: &mut watch::Receiver<u32>, first: u32) {
    if requests.wait_for(|count| *count > first.max(1)).await.is_err() {
        std::future::pending::<()>().await;
    }
}
