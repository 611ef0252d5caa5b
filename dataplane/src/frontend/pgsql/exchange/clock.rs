//! What ends a wait from outside: the session's timer, and signals.

use std::time::Duration;

use quorumsql_wire::pgsql::backend::TransactionStatus;
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::sqlstate;

use super::doubt::ASK_PAUSE_US;
use super::{Clock, End, Exchange, shutdown};
use crate::backend::pgsql::send_cancel;
use crate::session::pgsql::pins::Pin;
use crate::worker::session::Signal;

/// Time for which a sequence's state keeps a connection (`auto_increment_delay_multiplex_timeout_ms` of the reference, at its default).
const SEQUENCE_LIMIT: Duration = Duration::from_secs(10);
/// Time for a statement to end that was cancelled because its time was over (pgsql-dataplane.md 4.10).
const CANCEL_LIMIT: Duration = Duration::from_secs(2);

impl Exchange<'_> {
    /// Runs the session's timer for what the session is waiting for.
    pub(super) fn arm(&mut self) {
        let variables = &self.config.pgsql.variables;
        let (clock, limit) = match &self.server {
            None => (Clock::Nothing, variables.wait_timeout),
            Some(server) if server.expired => (Clock::Cancel, CANCEL_LIMIT),
            Some(server) if !server.due.is_empty() => (Clock::Query, variables.default_query_timeout),
            Some(server) if server.conn.status != TransactionStatus::Idle || server.due.is_in_batch() => {
                (Clock::Transaction, variables.max_transaction_idle_time)
            }
            Some(server) if server.doubt.is_open() => (Clock::Doubt, Duration::from_micros(ASK_PAUSE_US)),
            Some(server) if server.pins.is_only(Pin::Sequence) => (Clock::Sequence, SEQUENCE_LIMIT),
            Some(_) => (Clock::Pinned, variables.wait_timeout),
        };
        if clock != self.clock {
            self.clock = clock;
            self.client.session.timer.arm(limit);
        }
    }

    pub(super) fn on_expired(&mut self) -> Result<(), End> {
        let (code, text) = match self.clock {
            Clock::Query => {
                self.client.session.timer.clear();
                if let Some(server) = &mut self.server {
                    server.expired = true;
                }
                self.cancel_running();
                return Ok(());
            }
            Clock::Cancel => return self.lost("the server did not answer a cancel request".into()),
            Clock::Sequence => {
                if let Some(server) = &mut self.server {
                    server.pins.remove(Pin::Sequence);
                }
                return self.detach_if_free();
            }
            Clock::Doubt => {
                self.clock = Clock::Nothing;
                self.ask();
                return Ok(());
            }
            Clock::Transaction => {
                (sqlstate::IDLE_IN_TRANSACTION_SESSION_TIMEOUT, "terminating connection due to idle-in-transaction timeout")
            }
            Clock::Nothing | Clock::Pinned => (sqlstate::IDLE_SESSION_TIMEOUT, "terminating connection due to idle-session timeout"),
        };
        Err(End::Fatal(ErrorFields::fatal(code, text)))
    }

    pub(super) fn on_signal(&mut self, signal: Signal) -> Result<(), End> {
        match signal {
            Signal::Kill => return Err(End::Fatal(shutdown())),
            Signal::KillQuery => {
                if let Some(server) = &mut self.server {
                    server.cancelled |= !server.due.is_empty();
                }
                self.cancel_running();
            }
            Signal::ServerGone => self.lost("the server was taken out of service".into())?,
            // A drain waits for the end of what runs, but not for the end of a pin.
            Signal::Drain if self.is_pinned_idle() => return Err(End::Fatal(shutdown())),
            Signal::Drain => {}
        }
        Ok(())
    }

    /// Cancels what the server runs for this session, if it runs anything. The signal may arrive late: the connection is not used by another
    /// client any more.
    pub(super) fn cancel_running(&mut self) {
        if let Some(server) = &mut self.server
            && !server.due.is_empty()
            && let Some(key) = &server.conn.key
        {
            send_cancel(&self.client.ctx, key.clone());
            server.conn.tainted = true;
        }
    }
}
