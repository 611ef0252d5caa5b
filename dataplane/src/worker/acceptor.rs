//! One thread per listener: accepts sockets and hands each to the worker with the fewest sessions.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;

use super::connect;
use super::runtime::{Message, Shared, WorkerSeat};
use crate::config::Protocol;

/// Connections that the kernel may hold for us: a storm of logins after a fail-over is normal.
const BACKLOG: i32 = 4096;
/// Pause after a failed accept (no descriptors left), so that the thread does not spin.
const PAUSE: Duration = Duration::from_millis(50);

/// A client's socket, non-blocking, not registered with a runtime yet.
#[derive(Debug)]
pub(crate) enum Accepted {
    Tcp(TcpStream),
    Unix(UnixStream),
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A listener with its thread. Dropping it stops listening.
pub(crate) struct Acceptor {
    listener: Arc<Listener>,
    address: String,
    path: Option<PathBuf>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Listens on `address` (`ip:port`, port 0 = any; or `/path` of a Unix socket).
    pub(crate) fn start(shared: Arc<Shared>, protocol: Protocol, address: &str) -> io::Result<Self> {
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let (listener, path) = if address.starts_with('/') {
            (Listener::Unix(bind_unix(Path::new(address))?), Some(PathBuf::from(address)))
        } else {
            (Listener::Tcp(TcpListener::bind(address)?), None)
        };
        // The standard library listens with a short backlog; a second `listen` replaces it.
        rustix::net::listen(&listener, BACKLOG)?;
        let bound = match &listener {
            Listener::Tcp(listener) => listener.local_addr()?.to_string(),
            Listener::Unix(_) => address.to_owned(),
        };
        let listener = Arc::new(listener);
        let stopped = Arc::new(AtomicBool::new(false));
        let thread = {
            let (listener, stopped) = (Arc::clone(&listener), Arc::clone(&stopped));
            thread::Builder::new().name(format!("accept-{bound}")).spawn(move || run(&shared, protocol, number, &listener, &stopped))?
        };
        Ok(Self { listener, address: bound, path, stopped, thread: Some(thread) })
    }

    /// The address that is really listened on.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // Wakes the accept that the thread waits in.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread has been reported by the panic hook.
            let _ = thread.join();
        }
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

fn run(shared: &Shared, protocol: Protocol, number: usize, listener: &Listener, stopped: &AtomicBool) {
    while !stopped.load(Ordering::Acquire) {
        match listener.accept() {
            Ok(socket) if !stopped.load(Ordering::Acquire) => hand_out(shared, protocol, number, socket),
            Ok(_) => return,
            Err(_) if stopped.load(Ordering::Acquire) => return,
            // The client gave up while it was queued.
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a client");
                thread::park_timeout(PAUSE);
            }
        }
    }
}

impl Listener {
    fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (socket, _) = listener.accept()?;
                connect::tune(&socket);
                socket.set_nonblocking(true)?;
                Ok(Accepted::Tcp(socket))
            }
            Self::Unix(listener) => {
                let (socket, _) = listener.accept()?;
                socket.set_nonblocking(true)?;
                Ok(Accepted::Unix(socket))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// Binds a Unix socket that every local user may connect to, over one that nobody listens on any more.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let stale = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    if stale {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
    Ok(listener)
}

fn hand_out(shared: &Shared, protocol: Protocol, number: usize, socket: Accepted) {
    let Some(seat) = least_loaded(&shared.seats) else { return };
    seat.session_comes();
    match seat.inbox.try_send(Message::Accept(protocol, number, socket)) {
        Ok(()) => {}
        // The worker is far behind: later clients wait in the kernel's queue.
        Err(TrySendError::Full(message)) => {
            if seat.inbox.blocking_send(message).is_err() {
                seat.session_ended();
            }
        }
        Err(TrySendError::Closed(_)) => seat.session_ended(),
    }
}

/// The worker with the fewest sessions, the first of several.
fn least_loaded(seats: &[Arc<WorkerSeat>]) -> Option<&Arc<WorkerSeat>> {
    seats.iter().min_by_key(|seat| seat.sessions())
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").field("address", &self.address).finish_non_exhaustive()
    }
}
