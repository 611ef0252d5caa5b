//! Sessions of PostgreSQL clients.
//!
//! ```text
//! login ─► wait (owns no buffer) ─► exchange: requests ─► route ─► attach ─► pump both directions ─► detach ─► wait
//! ```
//! [`login`] lets a client in; [`exchange`] serves it from the first byte of a request until no server connection is held and nothing is
//! outstanding; [`worker`] is what all sessions of a worker share.

mod exchange;
mod login;
mod worker;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::sqlstate;

use crate::backend::pgsql::{Login, Pgsql};
use crate::config::Protocol;
use crate::limits::Permit;
use crate::origin::Origin;
use crate::pool::{Pool, PoolKey};
use crate::session::pgsql::prepared::{Statement, Told};
use crate::session::pgsql::settings::Settings;
use crate::worker::WorkerContext;
use crate::worker::driver;
use crate::worker::link::Link;
use crate::worker::session::{SessionGuard, Signal};
use crate::worker::wait::Wake;
use worker::PgWorker;

/// Statements of which more is kept than the client has.
const TOLD_SLACK: usize = 16;

/// Starts the task of a client.
pub(crate) fn spawn(link: Link, session: SessionGuard, ctx: Rc<WorkerContext>) {
    driver::spawn(serve(Box::new(Newcomer { link, session, ctx })));
}

/// A connection of which nothing is known yet.
struct Newcomer {
    link: Link,
    session: SessionGuard,
    ctx: Rc<WorkerContext>,
}

/// A logged-in client.
struct Client {
    link: Link,
    session: SessionGuard,
    ctx: Rc<WorkerContext>,
    worker: Rc<PgWorker>,
    pool: Rc<Pool<Pgsql>>,
    key: PoolKey,
    login: Login,
    origin: Arc<Origin>,
    /// What it asked for at start-up, in the server's spelling where it reports it.
    start: Arc<Settings>,
    /// The same with what it has set since.
    settings: Arc<Settings>,
    /// Prepared statements by the client's names.
    statements: HashMap<Box<[u8]>, Rc<Statement>>,
    /// Its unnamed statement, and the stamp by which a server connection remembers holding it.
    unnamed: Option<(u64, Rc<Statement>)>,
    /// What rows it was told that its statements have.
    told: Told,
    /// Its batch has failed: everything is thrown away up to Sync.
    skip_to_sync: bool,
    /// Its transaction was lost with its server; it reads as failed until it ends it.
    aborted: Option<Aborted>,
    _places: (Permit, Permit),
}

/// A transaction that is gone (pgsql-dataplane.md 8.2).
#[derive(Debug, Default)]
struct Aborted {
    /// What became of the server; told once.
    cause: Option<String>,
    /// The statement that was parsed in this batch ends the transaction.
    exit_parsed: bool,
}

/// How a session ends.
#[derive(Debug)]
enum End {
    /// Nothing to say: the client has gone, or said good-bye.
    Quiet,
    /// The client is told why.
    Fatal(ErrorFields),
    /// The message at the front does not read as its tag says. What follows from that is the server's to say, so that no session ends with it.
    Malformed,
}

/// Serves one client to its end. The waiting future holds one pointer beside the wait itself.
async fn serve(newcomer: Box<Newcomer>) {
    let Some(mut client) = Box::pin(login::run(newcomer)).await else { return };
    loop {
        client.session.timer.arm(client.ctx.config().variables(Protocol::Pgsql).wait_timeout);
        let client = &mut *client;
        let end = match client.session.wait(&mut client.link).await {
            Wake::Bytes(chunk) if chunk.is_empty() => End::Quiet,
            Wake::Bytes(chunk) => match Box::pin(exchange::run(client, chunk)).await {
                Ok(()) => continue,
                Err(end) => end,
            },
            Wake::Broken(_) => End::Quiet,
            Wake::Expired => {
                End::Fatal(ErrorFields::fatal(sqlstate::IDLE_SESSION_TIMEOUT, "terminating connection due to idle-session timeout"))
            }
            // The statement to cancel, or the server that is gone, is none of an idle session's.
            Wake::Signal(Signal::KillQuery | Signal::ServerGone) => continue,
            Wake::Signal(Signal::Kill | Signal::Drain) => End::Fatal(shutdown()),
        };
        client.end(&end);
        return;
    }
}

/// What a session reads that is told to stop.
fn shutdown() -> ErrorFields {
    ErrorFields::fatal(sqlstate::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
}

impl Client {
    /// Notes what rows the client is told that a statement has; what it was told of statements that it has no more is forgotten in time.
    fn note_told(&mut self, id: u64, shape: u64) {
        if self.told.len() > 2 * self.statements.len() + TOLD_SLACK {
            let known = self.statements.values().chain(self.unnamed.iter().map(|(_, statement)| statement));
            self.told = known.filter_map(|statement| self.told.get_key_value(&statement.id)).map(|(id, shape)| (*id, *shape)).collect();
        }
        self.told.insert(id, shape);
    }

    /// Says the last word and counts the end.
    fn end(&mut self, end: &End) {
        if let End::Fatal(fields) = end {
            let mut out = Vec::with_capacity(128);
            fields.encode(&mut out);
            self.link.send_at_once(&out);
            self.ctx.stats(Protocol::Pgsql).aborted.add(1);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.worker.forget_key(self.session.id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<F: Future>(_make: impl Fn(Box<Newcomer>) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_waiting_client_is_cheap() {
        assert!(size_of_future(serve) <= 128, "{} bytes", size_of_future(serve));
    }
}
