//! How a session gets a server connection, gives it back, and leaves it.

use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::pgsql::backend::TransactionStatus;
use quorumsql_wire::pgsql::error_fields::{ErrorFields, Severity};
use quorumsql_wire::pgsql::sqlstate;
use quorumsql_wire::sql::Effects;

use super::count::Counts;
use super::doubt::Doubt;
use super::{Attached, CANCELLED, End, Exchange, Unit, shutdown};
use crate::backend::pgsql::{BackendError, Login, Pgsql, Wanted, send_cancel};
use crate::config::{HostgroupId, Protocol};
use crate::pool::{AcquireError, PooledConnection, Request};
use crate::session::pgsql::parameters::Parameters;
use crate::session::pgsql::pins::Pins;
use crate::session::pgsql::responses::Responses;
use crate::worker::driver;
use crate::worker::session::Signal;

/// Time for the good-bye of a client's state on its server connection.
const RESET_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);

impl Exchange<'_> {
    /// Gets a connection for the unit at the front and gives it the client's settings. A failure is the unit's answer.
    pub(super) async fn attach(&mut self, hostgroup: HostgroupId) -> Result<(), End> {
        let login = self.foreseen_login();
        let conn = loop {
            let mut conn = match self.acquire(hostgroup, login.as_ref()).await {
                Ok(conn) => conn,
                Err(AcquireError::ClientGone) => return Err(End::Quiet),
                Err(AcquireError::Interrupted(Signal::Kill)) => return Err(End::Fatal(shutdown())),
                Err(error) => {
                    self.client.ctx.stats(Protocol::Pgsql).acquire_failed.add(1);
                    (self.decided, self.changes) = (None, None);
                    return self.fail_front(&acquire_error(&error));
                }
            };
            let client = &*self.client;
            let reads_sequences = self.decided.is_some_and(|unit| unit.effects.intersects(Effects::LAST_INSERT_ID));
            let wanted = Wanted {
                session: client.session.id(),
                settings: &client.settings,
                names: &login.as_ref().unwrap_or(&client.login).names,
                reads_sequences,
            };
            if conn.suits(wanted) {
                break conn;
            }
            let limit = self.config.pgsql.variables.connect_timeout_server;
            let error = match client.ctx.ticker().guard(limit, Box::pin(conn.adapt(wanted))).await {
                Ok(Ok(())) => break conn,
                // It is closed. One that is opened in its place suits.
                Ok(Err(BackendError::Unsuitable)) => continue,
                Ok(Err(BackendError::Server(fields))) => ErrorFields { severity: Severity::Error, ..*fields },
                Ok(Err(error)) => not_adapted(&error),
                Err(error) => not_adapted(&error),
            };
            (self.decided, self.changes) = (None, None);
            return self.fail_front(&error.detail("while setting the session's parameters on its connection"));
        };
        self.client.session.set_hostgroup(hostgroup);
        let mark = conn.prepared.clock();
        let (due, sent) = self.client.worker.take_queues();
        self.server = Some(Attached {
            conn,
            to_server: None,
            due: Responses::reusing(due),
            counts: Counts::new(&self.client.ctx, sent),
            pins: Pins::default(),
            unit: Unit::default(),
            mark,
            own: Vec::new(),
            leaving: false,
            terminated: false,
            expired: false,
            cancelled: false,
            parameters: Parameters::new(&self.client.start, &self.client.settings),
            portals: Vec::new(),
            bound: None,
            undefined: Vec::new(),
            text_names: Vec::new(),
            reported: false,
            failed: false,
            reshaped: 0,
            doubt: Doubt::default(),
            sequence_left: 0,
            session: self.client.session.id(),
        });
        Ok(())
    }

    /// The login with the names that the unit at the front gives to parameters and does nothing else: it may be the session's first, and so begins
    /// on a connection that knows them.
    fn foreseen_login(&mut self) -> Option<Login> {
        let only = self.only.take();
        let change = match (self.changes.as_deref(), &only) {
            (Some([change]), _) => change,
            (None, Some(statement)) => statement.change.as_ref()?,
            _ => return None,
        };
        let login = &self.client.login;
        login.names.with(change.foreseen()).map(|names| Login { password: login.password.clone(), names })
    }

    /// Gets a connection from the pool.
    async fn acquire(&mut self, hostgroup: HostgroupId, login: Option<&Login>) -> Result<PooledConnection<Pgsql>, AcquireError> {
        let has_said_goodbye = self.has_said_goodbye();
        let client = &mut *self.client;
        let login = login.unwrap_or(&client.login);
        if has_said_goodbye && let Some(input) = self.input.take() {
            // Its statements are run though it may be gone: with bytes to be read, its socket is not watched.
            client.link.unread(input);
        }
        let request = Request { session: &client.session, client: &mut client.link, key: &client.key, login, hostgroup };
        let acquired = client.pool.acquire(&self.config, request).await;
        if has_said_goodbye {
            self.input = client.link.recv().await.ok();
        }
        acquired
    }

    /// Gives the connection back if nothing ties the session to it; called when something may have ended.
    pub(super) fn detach_if_free(&mut self) -> Result<(), End> {
        let Some(server) = &mut self.server else { return Ok(()) };
        if !server.due.is_idle() || server.to_server.is_some() {
            return Ok(());
        }
        server.pins.settle();
        if server.conn.status != TransactionStatus::Idle {
            return Ok(());
        }
        if !server.pins.is_empty() {
            if server.doubt.is_open() {
                self.ask();
            }
            return Ok(());
        }
        if !self.config.pgsql.variables.multiplexing {
            return Ok(());
        }
        if let Some(server) = self.server.take() {
            let Attached { mut conn, parameters, due, counts, .. } = server;
            self.client.worker.put_queues((due.into_queue(), counts.into_queue()));
            if !conn.tainted && conn.scanner.pending() == 0 {
                conn.have = Arc::clone(parameters.have());
                conn.release();
            }
        }
        Ok(())
    }

    /// Puts the connection away when the session ends: nobody sees what this client left on it.
    pub(super) fn leave(&mut self) {
        if let Some(out) = self.out.take() {
            self.client.link.send_at_once(&out);
        }
        let Some(server) = self.server.take() else { return };
        let ctx = Rc::clone(&self.client.ctx);
        if !server.due.is_idle() || server.to_server.is_some() || server.conn.tainted {
            // What runs is stopped: closing the socket alone lets it run on.
            if let (Some(key), false) = (&server.conn.key, server.due.is_empty()) {
                send_cancel(&ctx, key.clone());
            }
            return;
        }
        if server.pins.outlives_discard() {
            return;
        }
        let mut conn = server.conn;
        driver::spawn(async move {
            match ctx.ticker().guard(RESET_LIMIT, Box::pin(conn.reset())).await {
                Ok(Ok(())) => conn.release(),
                Ok(Err(error)) => tracing::debug!(%error, "connection is closed: it cannot be reset"),
                Err(error) => tracing::debug!(%error, "connection is closed: it cannot be reset"),
            }
        });
    }
}

fn not_adapted(error: &dyn std::fmt::Display) -> ErrorFields {
    ErrorFields::error(sqlstate::CONNECTION_FAILURE, format!("cannot set the session's parameters on the server: {error}"))
}

/// The client's text for a unit that gets no connection. What stands behind it is in the detail.
fn acquire_error(error: &AcquireError) -> ErrorFields {
    match error {
        AcquireError::Refused(refusal) => {
            let code = std::str::from_utf8(&refusal.sqlstate).unwrap_or(sqlstate::CONNECTION_FAILURE);
            ErrorFields::error(code, format!("server login failed: {}", refusal.message))
        }
        AcquireError::Interrupted(Signal::KillQuery) => ErrorFields::error(sqlstate::QUERY_CANCELED, CANCELLED),
        other => ErrorFields::error(sqlstate::UNABLE_TO_CONNECT, other.to_string()).detail(other.cause()),
    }
}
