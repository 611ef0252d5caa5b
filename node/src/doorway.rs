//! Clients of the gRPC and HTTP ports are handed to their servers once they have said something: the servers themselves would
//! wait for the first byte for ever.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quorumsql_raft::Newcomers;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::tls::Certificates;

/// Time that a client has for its first byte.
const FIRST_BYTE: Duration = Duration::from_secs(10);
/// Time for a TLS handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Clients that have not said anything, per listener.
const MAX_NEWCOMERS: usize = 512;
/// Pause after a failed accept (no descriptors left).
const PAUSE: Duration = Duration::from_millis(100);

/// Those who have spoken.
pub(crate) struct Doorway<S = TcpStream> {
    arrivals: mpsc::Receiver<(S, SocketAddr)>,
}

impl Doorway {
    /// Accepts on `listener` until the doorway is dropped.
    pub(crate) fn open(listener: TcpListener) -> Self {
        Self::with(listener, async |socket| Some(socket))
    }
}

impl Doorway<TlsStream<TcpStream>> {
    /// As [`Doorway::open`], for TLS with the certificate of the moment.
    pub(crate) fn open_tls(listener: TcpListener, certificates: Arc<Certificates>) -> Self {
        Self::with(listener, move |socket| {
            let handshake = TlsAcceptor::from(certificates.current().grpc.clone()).accept(socket);
            async move {
                let ended = tokio::time::timeout(HANDSHAKE_TIME, handshake).await;
                let ended = ended.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                ended.inspect_err(|error| tracing::debug!(%error, "TLS handshake failed")).ok()
            }
        })
    }
}

impl<S: Send + 'static> Doorway<S> {
    /// `greet` makes of a client that has spoken what the server is given; `None` = it goes.
    fn with<F: Future<Output = Option<S>> + Send + 'static>(
        listener: TcpListener,
        greet: impl Fn(TcpStream) -> F + Clone + Send + Sync + 'static,
    ) -> Self {
        let (ready, arrivals) = mpsc::channel(16);
        tokio::spawn(async move {
            tokio::select! {
                () = accept(&listener, &ready, &greet) => {}
                () = ready.closed() => {}
            }
        });
        Self { arrivals }
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Option<(S, SocketAddr)> {
        self.arrivals.recv().await
    }

    /// As a stream for tonic.
    pub(crate) fn into_stream(self) -> impl futures::Stream<Item = io::Result<S>> {
        futures::stream::unfold(self, |mut doorway| async move { doorway.next().await.map(|(socket, _)| (Ok(socket), doorway)) })
    }
}

async fn accept<S: Send + 'static, F: Future<Output = Option<S>> + Send + 'static>(
    listener: &TcpListener,
    ready: &mpsc::Sender<(S, SocketAddr)>,
    greet: &(impl Fn(TcpStream) -> F + Clone + Send + 'static),
) {
    let newcomers = Newcomers::new(MAX_NEWCOMERS);
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a client");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (ready, greet) = (ready.clone(), greet.clone());
        newcomers.admit(|place| {
            let task = async move {
                let spoke = tokio::time::timeout(FIRST_BYTE, socket.peek(&mut [0])).await;
                let greeted = if matches!(spoke, Ok(Ok(1..))) { greet(socket).await } else { None };
                drop(place);
                if let Some(stream) = greeted {
                    // The server may have ended.
                    let _ = ready.send((stream, peer)).await;
                }
            };
            tokio::spawn(task).abort_handle()
        });
    }
}
