//! TLS with clients of both protocols.

use crate::config::Protocol;
use crate::tls::{ClientTls, TlsError};
use crate::worker::WorkerContext;
use crate::worker::link::Link;

/// The handshake with a client that has asked for it; counted, and logged with its address if it fails. Then there is
/// nothing to say to it any more: TLS has its own alerts.
pub(super) async fn accept(link: &mut Link, tls: &ClientTls, ctx: &WorkerContext, protocol: Protocol) -> Result<(), TlsError> {
    let done = link.accept_tls(tls).await;
    let cells = ctx.stats(protocol);
    match &done {
        Ok(()) => cells.tls_handshakes.add(1),
        Err(error) => {
            cells.tls_failed.add(1);
            tracing::info!(client = %link.peer_addr(), ?protocol, "TLS handshake with a client failed: {error}");
        }
    }
    done
}
