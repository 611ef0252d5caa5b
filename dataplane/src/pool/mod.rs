//! Server connections: idle ones per worker, limits and waiting over all workers.
//!
//! # How a protocol uses it
//! ```text
//! pub(crate) struct Mysql;
//! impl Dialect for Mysql { type Backend = Box<MysqlBackend>; … }       // login dialogue with a server
//!
//! // once per session, after login:
//! let pool: Rc<Pool<Mysql>> = Pool::of(&ctx);
//! let key = pool.key(KeyParts { user, capabilities, ..KeyParts::default() });
//!
//! // per statement that has no pinned connection:
//! let config = ctx.config();
//! let mut server = pool.acquire(&config, Request { session: &session, client: &mut link, key: &key, login: &login, hostgroup }).await?;
//! server.link().send(command).await?;                // derefs to D::Backend
//! let answer = server.recv_watching(&mut link)…;     // as the protocol likes
//! server.cells().queries.add(1);                     // and bytes_sent, bytes_recv
//! server.release();                                  // idle again, or to the first waiter; only in a clean state
//! // Dropping it instead closes the connection and gives its slot back: right for every error and every cancellation.
//! // Keeping it in the session = pinned.
//! ```
//! The fast path of `acquire` (an idle connection is there) does not wait, allocate, lock or write to shared memory.

mod acquire;
mod connection;
mod error;
mod health;
mod inner;
mod key;
mod row;
mod slots;
mod sweep;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;

pub use acquire::Request;
pub use connection::PooledConnection;
pub use error::{AcquireError, ConnectError, Fault, ServerError};
pub use key::{KeyParts, PoolKey};
pub(crate) use row::Rows;
pub use row::{RowCells, ServerRow};

use crate::config::{Protocol, Server};
use crate::worker::chunk::Chunk;
use crate::worker::link::Link;
use crate::worker::ticker::Ticker;
use crate::worker::{Shared, Sweep, WorkerContext};
use connection::Entry;
use inner::IdleLists;
use key::Keys;

/// How well a backend suits a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suits {
    /// It must not have it.
    Not,
    /// It can have it, if there is none that suits better.
    Fairly,
    /// It is as good as any.
    Well,
}

/// What the pool must know of a protocol.
pub trait Dialect: Sized + 'static {
    /// Which one.
    const PROTOCOL: Protocol;
    /// A connection to a server, logged in. Box it if it is big: it is moved per statement.
    type Backend: 'static;
    /// What a login needs beside the key (secrets, the client's TLS facts), and what else the session's connections must suit.
    type Login;
    /// A backend without its worker.
    type Parcel: Send + 'static;

    /// Opens a socket (`ctx.connect(&server.address)`) and logs in. Runs under `connect_timeout_server`; may be dropped.
    fn connect(
        ctx: Rc<WorkerContext>,
        server: Arc<Server>,
        key: PoolKey,
        login: &Self::Login,
    ) -> impl Future<Output = Result<Self::Backend, ConnectError>>;

    /// The backend's socket.
    fn link(backend: &mut Self::Backend) -> &mut Link;

    /// How well an idle backend suits a session of this login, which is asked of those with its key.
    fn suits(_backend: &Self::Backend, _login: &Self::Login) -> Suits {
        Suits::Well
    }

    /// An idle backend said something; false closes it.
    fn on_idle_bytes(_backend: &mut Self::Backend, _bytes: &Chunk) -> bool {
        false
    }

    /// Asks an idle backend whether it is well (COM_PING, an empty query). Runs under a deadline; an error closes it.
    fn ping(_backend: &mut Self::Backend) -> impl Future<Output = io::Result<()>> {
        std::future::ready(Ok(()))
    }

    /// What is sent, without waiting, to a healthy connection before it is closed (COM_QUIT, Terminate).
    fn goodbye() -> &'static [u8];

    /// Detaches an idle backend from its worker (`Link::into_parcel`); an error closes it.
    fn pack(backend: Self::Backend) -> io::Result<Self::Parcel>;

    /// Attaches it to another worker (`Link::from_parcel`).
    fn unpack(parcel: Self::Parcel, ctx: &WorkerContext) -> io::Result<Self::Backend>;
}

/// The server connections of one worker and one protocol.
pub struct Pool<D: Dialect> {
    ctx: Weak<WorkerContext>,
    shared: Arc<Shared>,
    worker: usize,
    ticker: Ticker,
    idle: RefCell<IdleLists<Box<Entry<D>>>>,
    /// Connections on their way to a waiter of this worker, by the waiter's name.
    handed: RefCell<HashMap<usize, Box<Entry<D>>>>,
    keys: RefCell<Keys>,
    /// `connection_max_age` in ticks, as the last sweep read it; `u64::MAX` = none.
    max_age: Cell<u64>,
}

impl<D: Dialect> Pool<D> {
    /// This worker's pool of the dialect. Look it up once per session.
    pub fn of(ctx: &Rc<WorkerContext>) -> Rc<Self> {
        let mut made = false;
        let pool = ctx.extension(|ctx| {
            made = true;
            Self {
                ctx: Rc::downgrade(ctx),
                shared: Arc::clone(ctx.shared()),
                worker: ctx.index(),
                ticker: ctx.ticker().clone(),
                idle: RefCell::default(),
                handed: RefCell::default(),
                keys: RefCell::default(),
                max_age: Cell::new(u64::MAX),
            }
        });
        if made {
            ctx.add_sweep(Rc::clone(&pool) as Rc<dyn Sweep>);
        }
        pool
    }

    /// The key of these values; sessions of one worker share it.
    pub fn key(&self, parts: KeyParts) -> PoolKey {
        self.keys.borrow_mut().intern(parts)
    }
}

impl<D: Dialect> fmt::Debug for Pool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("protocol", &D::PROTOCOL).field("worker", &self.worker).finish_non_exhaustive()
    }
}
