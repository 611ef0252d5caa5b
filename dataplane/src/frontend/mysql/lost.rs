//! Statements without a connection, and connections that were lost under one (mysql-dataplane 9).

use quorumsql_wire::mysql::error_code;

use super::exchange::AtBoundary;
use super::kill::Aim;
use super::relay::RelayEnd;
use super::{Client, Flow};
use crate::backend::mysql::Mysql;
use crate::config::Protocol;
use crate::pool::{AcquireError, PooledConnection};
use crate::session::mysql::pins::Pins;
use crate::worker::session::Signal;

impl Client {
    /// No connection: nothing has run, the session goes on.
    pub(super) async fn on_no_connection(&mut self, error: AcquireError, sequence: u8) -> Flow {
        self.ctx.stats(Protocol::Mysql).acquire_failed.add(1);
        tracing::warn!(cause = error.cause(), client = %self.link.peer_addr(), "no server connection: {error}");
        match error {
            AcquireError::Timeout { ref cause, .. } => {
                self.send_error(sequence, error_code::CONNECT_TIMEOUT, format!("{error} ({cause})")).await
            }
            AcquireError::Failed { ref cause, .. } => {
                self.send_error(sequence, error_code::CONNECT_FAILURE, format!("{error} ({cause})")).await
            }
            AcquireError::Refused(refused) => self.send_payload(sequence, &refused.raw).await,
            AcquireError::ClientGone => Flow::Close,
            AcquireError::Interrupted(Signal::KillQuery) => {
                self.send_error(sequence, error_code::INTERRUPTED, "Query execution was interrupted").await
            }
            AcquireError::Interrupted(_) => Flow::Close,
        }
    }

    /// The connection was lost in the middle. The session goes on if it loses no state by it and the client can be told.
    pub(super) async fn on_lost(&mut self, server: PooledConnection<Mysql>, end: RelayEnd, sequence: u8, boundary: AtBoundary) -> Flow {
        let lost_state = self.state.pins.hard();
        self.state.pins = Pins::default();
        self.state.last_insert_id.doubtful = false;
        self.spoiled = false;
        let (code, text) = match end {
            RelayEnd::ClientGone | RelayEnd::Interrupted(Signal::Kill) => {
                self.kill_on_server(&server, Aim::Connection);
                return Flow::Close;
            }
            RelayEnd::TimedOut => {
                self.kill_on_server(&server, Aim::Connection);
                (error_code::QUERY_TIMEOUT, "Query execution was interrupted, query_timeout exceeded".to_owned())
            }
            RelayEnd::ServerLost(error) => {
                tracing::warn!(error, server = %server.address(), "server connection lost during a statement");
                (error_code::SERVER_LOST, "Lost connection to MySQL server during query".to_owned())
            }
            RelayEnd::Protocol(error) => {
                tracing::error!(%error, server = %server.address(), "server broke the protocol");
                (error_code::SERVER_LOST, "Lost connection to MySQL server during query".to_owned())
            }
            // Before the statement was sent; while it runs, the server is asked to end it.
            RelayEnd::Interrupted(Signal::KillQuery) => (error_code::INTERRUPTED, "Query execution was interrupted".to_owned()),
            RelayEnd::Interrupted(_) => (error_code::SERVER_LOST, "Lost connection to MySQL server during query".to_owned()),
        };
        drop(server);
        if boundary == AtBoundary::No {
            return Flow::Close;
        }
        let _ = self.send_error(sequence, code, text).await;
        if lost_state { Flow::Close } else { Flow::Continue }
    }
}
