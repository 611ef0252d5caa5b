//! Connections to MySQL and MariaDB servers.

pub(crate) mod align;
pub(crate) mod call;
pub(crate) mod counts;
pub(crate) mod diagnostics;
mod login;
mod registry;

use std::fmt;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::mysql::scanner::Answer;
use quorumsql_wire::mysql::server_auth::Proof;
use quorumsql_wire::mysql::track::{Change, changes};
use quorumsql_wire::mysql::{Capabilities, Status};

use crate::config::{Protocol, Server};
use crate::pool::{ConnectError, Dialect, PoolKey};
use crate::session::mysql::names::Names;
use crate::session::mysql::tracked::Variables;
use crate::worker::WorkerContext;
use crate::worker::chunk::Chunk;
use crate::worker::link::{Link, LinkParcel};
use counts::CountsOf;
use diagnostics::Diagnostics;
pub(crate) use registry::{Execution, Registry};

/// Capabilities of a client that change what a server answers: part of the pool key.
pub(crate) const KEY_CAPABILITIES: Capabilities = Capabilities(
    Capabilities::FOUND_ROWS.0
        | Capabilities::LONG_FLAG.0
        | Capabilities::NO_SCHEMA.0
        | Capabilities::ODBC.0
        | Capabilities::LOCAL_FILES.0
        | Capabilities::INTERACTIVE.0
        | Capabilities::TRANSACTIONS.0
        | Capabilities::MULTI_STATEMENTS.0
        | Capabilities::MULTI_RESULTS.0
        | Capabilities::PS_MULTI_RESULTS.0
        | Capabilities::DEPRECATE_EOF.0,
);

/// MySQL and MariaDB for the pool.
#[derive(Debug)]
pub(crate) struct Mysql;

/// What a login at a server needs beside the pool key.
#[derive(Clone, Debug)]
pub(crate) struct ServerLogin {
    /// What the client proved.
    pub(crate) proof: Proof,
    /// Collation id of its handshake.
    pub(crate) charset: u8,
}

/// A server connection, logged in.
pub(crate) struct Backend {
    pub(crate) link: Link,
    pub(crate) state: BackendState,
}

/// Whose server it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Product {
    /// MySQL.
    Mysql,
    /// MariaDB.
    Mariadb,
}

impl Product {
    /// As the version of its greeting says.
    pub(crate) fn of(server_version: &str) -> Self {
        if server_version.contains("MariaDB") { Self::Mariadb } else { Self::Mysql }
    }
}

/// What is known of it.
#[derive(Debug)]
pub(crate) struct BackendState {
    /// The server's id of it, for KILL.
    pub(crate) thread_id: u32,
    /// Whose server it is.
    pub(crate) product: Product,
    /// Negotiated.
    pub(crate) capabilities: Capabilities,
    /// Current schema; `None` = none or unknown.
    pub(crate) schema: Option<String>,
    /// Character set.
    pub(crate) names: Names,
    /// Tracked variables that differ from the server's defaults.
    pub(crate) variables: Variables,
    /// Status of the last answer that had one.
    pub(crate) status: Status,
    /// Its `LAST_INSERT_ID()` is that of the session that holds it.
    pub(crate) has_insert_id: bool,
    /// What it would show as warnings and errors.
    pub(crate) diagnostics: Diagnostics,
    /// Whose its `FOUND_ROWS()` and `ROW_COUNT()` are.
    pub(crate) counts_of: CountsOf,
    /// MULTI_STATEMENTS as set by COM_SET_OPTION.
    pub(crate) multi_statements: bool,
    /// The server reports changes of session state.
    pub(crate) tracks: bool,
    /// It may have changed in a way that only its next OK tells.
    pub(crate) unsure: bool,
    /// Prepared statements.
    pub(crate) registry: Registry,
}

/// What an answer changed that the session must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Changed {
    /// The schema; it is in [`BackendState::schema`].
    pub(crate) schema: bool,
    /// Something that is not tracked.
    pub(crate) untracked: bool,
}

impl BackendState {
    /// Whether `autocommit` is on.
    pub(crate) fn autocommit(&self) -> bool {
        self.status.contains(Status::AUTOCOMMIT)
    }

    /// Whether a transaction is open.
    pub(crate) fn in_transaction(&self) -> bool {
        self.status.contains(Status::IN_TRANS)
    }

    /// A session takes it, which may be another one than before.
    pub(crate) fn on_acquired(&mut self) {
        self.has_insert_id = false;
        if self.diagnostics == Diagnostics::Own {
            self.diagnostics = Diagnostics::Foreign;
        }
    }

    /// MySQL tells that the session has changed with the next OK, not with the EOF of the result set that changed it.
    pub(crate) fn tells_late(&self) -> bool {
        self.product == Product::Mysql && self.tracks && !self.capabilities.contains(Capabilities::DEPRECATE_EOF)
    }

    /// MariaDB's EOF has the flag, but no place for what it means, which may also be nothing: a cursor's own table, say.
    pub(crate) fn hints(&self, answer: &Answer) -> bool {
        let flagged = answer.status.is_some_and(|status| status.contains(Status::SESSION_STATE_CHANGED));
        self.product == Product::Mariadb && flagged && answer.state.is_empty()
    }

    /// Takes over what an answer says about the connection.
    pub(crate) fn on_answer(&mut self, answer: &Answer) -> Changed {
        if let Some(status) = answer.status {
            self.status = status;
        }
        let mut changed = Changed::default();
        let mut state = false;
        for change in changes(&answer.state) {
            match change {
                Ok(Change::Schema(name)) => {
                    self.schema = Some(String::from_utf8_lossy(name).into_owned());
                    changed.schema = true;
                }
                Ok(Change::Variable { name, .. }) if is_tracked(name) => {}
                // Whatever the server says in a way that is not understood counts as a change.
                Ok(Change::Variable { .. }) | Err(_) => changed.untracked = true,
                Ok(Change::State(on)) => state |= on,
                Ok(Change::Other(_)) => {}
            }
        }
        // A new schema is reported as changed state, too.
        changed.untracked |= state && !changed.schema;
        changed
    }
}

/// Variables whose value the session knows by other means, or that mean nothing to the next client.
fn is_tracked(name: &[u8]) -> bool {
    matches!(name, b"autocommit" | b"sql_mode" | b"statement_id")
}

impl Dialect for Mysql {
    const PROTOCOL: Protocol = Protocol::Mysql;
    type Backend = Backend;
    type Login = ServerLogin;
    type Parcel = BackendParcel;

    fn connect(
        ctx: Rc<WorkerContext>,
        server: Arc<Server>,
        key: PoolKey,
        login: &ServerLogin,
    ) -> impl Future<Output = Result<Backend, ConnectError>> {
        login::connect(ctx, server, key, login)
    }

    fn link(backend: &mut Backend) -> &mut Link {
        &mut backend.link
    }

    fn on_idle_bytes(_backend: &mut Backend, bytes: &Chunk) -> bool {
        // A server speaks unasked only to say why it closes (timeout, shutdown, KILL).
        tracing::debug!(bytes = bytes.len(), "an idle server connection spoke");
        false
    }

    fn goodbye() -> &'static [u8] {
        &[1, 0, 0, 0, 1]
    }

    fn pack(backend: Backend) -> io::Result<BackendParcel> {
        Ok(BackendParcel { link: backend.link.into_parcel()?, state: backend.state })
    }

    fn unpack(parcel: BackendParcel, ctx: &WorkerContext) -> io::Result<Backend> {
        Ok(Backend { link: Link::from_parcel(parcel.link, ctx.chunks().clone())?, state: parcel.state })
    }
}

/// A connection between two workers.
#[derive(Debug)]
pub(crate) struct BackendParcel {
    link: LinkParcel,
    state: BackendState,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("thread_id", &self.state.thread_id).finish_non_exhaustive()
    }
}
