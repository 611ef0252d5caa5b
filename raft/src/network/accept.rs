//! Connections of peers: TLS before anything else, and a line in the log for each that is refused.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;

use super::{newcomers::Newcomers, refusals::Refusals};

/// A connection that does not finish its handshake in time is closed.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Handshakes at once; the oldest is given up for a further one.
const HANDSHAKES: usize = 256;
/// After an error of the listener (no descriptors left).
const PAUSE: Duration = Duration::from_millis(100);

/// Connections that have shown that they are TLS, with or without a client certificate of the cluster. Ends when it is dropped.
pub(crate) fn incoming(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    refusals: Arc<Refusals>,
) -> ReceiverStream<io::Result<TlsStream<TcpStream>>> {
    let (ready, connections) = mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            () = accept(listener, tls.into(), refusals, ready.clone()) => {}
            () = ready.closed() => {}
        }
    });
    ReceiverStream::new(connections)
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, refusals: Arc<Refusals>, ready: mpsc::Sender<io::Result<TlsStream<TcpStream>>>) {
    let handshakes = Newcomers::new(HANDSHAKES);
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(e) => {
                tracing::warn!(error = %e, "peer port cannot accept");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (tls, refusals, ready) = (tls.clone(), refusals.clone(), ready.clone());
        let log = refusals.clone();
        let crowded = handshakes.admit(|place| {
            let task = async move {
                let shaken = shake_hands(&tls, socket).await;
                drop(place);
                match shaken {
                    // Closed: the server has ended.
                    Ok(stream) => drop(ready.send(Ok(stream)).await),
                    Err(e) => refuse(&refusals, peer, &e),
                }
            };
            tokio::spawn(task).abort_handle()
        });
        if crowded {
            log.log(None, "tls", "too many connections without a handshake: the oldest is closed");
        }
    }
}

async fn shake_hands(tls: &TlsAcceptor, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    socket.set_nodelay(true)?;
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no handshake within 5 s");
    tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(socket)).await.map_err(late)?
}

/// A balancer that only looks whether the port is open sends nothing: no news.
fn refuse(refusals: &Refusals, peer: SocketAddr, e: &io::Error) {
    if e.kind() == io::ErrorKind::UnexpectedEof {
        tracing::debug!(%peer, "peer port: connection closed before its handshake");
    } else {
        refusals.log(Some(peer), "tls", &e.to_string());
    }
}
