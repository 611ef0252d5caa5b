//! Clients of the gRPC and HTTP ports are handed to their servers once they have said something: the servers themselves would
//! wait for the first byte for ever.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use quorumsql_raft::Newcomers;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Time that a client has for its first byte.
const FIRST_BYTE: Duration = Duration::from_secs(10);
/// Clients that have not said anything, per listener.
const MAX_NEWCOMERS: usize = 512;
/// Pause after a failed accept (no descriptors left).
const PAUSE: Duration = Duration::from_millis(100);

/// Those who have spoken.
pub(crate) struct Doorway {
    arrivals: mpsc::Receiver<(TcpStream, SocketAddr)>,
}

impl Doorway {
    /// Accepts on `listener` until the doorway is dropped.
    pub(crate) fn open(listener: TcpListener) -> Self {
        let (ready, arrivals) = mpsc::channel(16);
        tokio::spawn(async move {
            tokio::select! {
                () = accept(&listener, &ready) => {}
                () = ready.closed() => {}
            }
        });
        Self { arrivals }
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Option<(TcpStream, SocketAddr)> {
        self.arrivals.recv().await
    }

    /// As a stream for tonic.
    pub(crate) fn into_stream(self) -> impl futures::Stream<Item = io::Result<TcpStream>> {
        futures::stream::unfold(self, |mut doorway| async move { doorway.next().await.map(|(socket, _)| (Ok(socket), doorway)) })
    }
}

async fn accept(listener: &TcpListener, ready: &mpsc::Sender<(TcpStream, SocketAddr)>) {
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
        let ready = ready.clone();
        newcomers.admit(|place| {
            let task = async move {
                let spoke = tokio::time::timeout(FIRST_BYTE, socket.peek(&mut [0])).await;
                drop(place);
                if matches!(spoke, Ok(Ok(1..))) {
                    // The server may have ended.
                    let _ = ready.send((socket, peer)).await;
                }
            };
            tokio::spawn(task).abort_handle()
        });
    }
}
