//! Accepts clients of one face and runs their dialogues.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use quorumsql_raft::{Newcomer, Newcomers};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::database::{Database, Face, Parameters};
use crate::tls::{Certificates, Shown};

/// How a listener serves.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServeOptions {
    /// Offered to clients; `None` = plain text only.
    pub(crate) tls: Option<Arc<Certificates>>,
    /// Clients that do not use TLS are refused.
    pub(crate) require_tls: bool,
}

impl ServeOptions {
    /// What a client that comes now is shown, unless the database wants no TLS and the listener does not demand it.
    pub(crate) fn shown(&self, parameters: &Parameters) -> Option<Arc<Shown>> {
        let offered = self.require_tls || !parameters.plain;
        self.tls.as_ref().filter(|_| offered).map(|certificates| certificates.current())
    }
}

/// Sessions of one listener, newcomers included; more are refused.
const MAX_SESSIONS: usize = 1536;
/// Clients of one listener that have not logged in; the oldest is closed for a further one.
const MAX_NEWCOMERS: usize = 512;

/// Time that a client has to log in.
pub(crate) const LOGIN_TIME: Duration = Duration::from_secs(10);

/// Wait after an error of `accept` (descriptors used up).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until the future is dropped, which ends its sessions too.
pub(crate) async fn serve<D: Database>(face: Face, listener: TcpListener, database: Arc<D>, options: ServeOptions) {
    let places = Arc::new(Semaphore::new(MAX_SESSIONS));
    let newcomers = Newcomers::new(MAX_NEWCOMERS);
    let counter = AtomicU32::new(1);
    let mut sessions = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = sessions.join_next() => {
                if let Err(error) = ended
                    && !error.is_cancelled()
                {
                    tracing::error!(?face, %error, "sql session failed");
                }
                continue;
            }
        };
        match accepted {
            Ok((socket, peer)) => {
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                    tracing::warn!(?face, %peer, "sql client refused: {MAX_SESSIONS} sessions are open");
                    continue;
                };
                let client = Client { peer: peer.ip().to_canonical(), connection_id: counter.fetch_add(1, Ordering::Relaxed) };
                let (database, options) = (Arc::clone(&database), options.clone());
                let crowded = newcomers.admit(|newcomer| {
                    sessions.spawn(async move {
                        converse(face, socket, client, newcomer, database, options).await;
                        drop(place);
                    })
                });
                if crowded {
                    tracing::debug!(?face, "more than {MAX_NEWCOMERS} clients that have not logged in: the oldest is closed");
                }
            }
            Err(error) => {
                tracing::warn!(?face, %error, "sql listener cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A client before login.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    /// Where it is.
    pub(crate) peer: IpAddr,
    /// Its number on this listener.
    pub(crate) connection_id: u32,
}

async fn converse<D: Database>(face: Face, socket: TcpStream, client: Client, newcomer: Newcomer, database: Arc<D>, options: ServeOptions) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "nodelay");
    }
    let ended = match face {
        Face::Mysql => super::mysql::converse(socket, client, newcomer, database, options).await,
        Face::Pgsql => super::pgsql::converse(socket, client, newcomer, database, options).await,
    };
    if let Err(error) = ended {
        tracing::debug!(?face, peer = %client.peer, %error, "sql client gone");
    }
}
