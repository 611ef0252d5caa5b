//! The server connection is gone while the session holds it (pgsql-dataplane.md section 8). Nothing that may have run is run again.

use std::sync::Arc;

use quorumsql_wire::pgsql::backend::{self, TransactionStatus};
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::sqlstate;
use quorumsql_wire::sql::{Class, Transaction};

use super::answer::ready;
use super::{CANCELLED, End, Exchange, QUERY_TIMEOUT};
use crate::frontend::pgsql::Aborted;
use crate::session::pgsql::responses::Unfinished;

/// What the client reads of the unit that was running.
enum Word {
    /// The transaction is gone with its server; it reads as failed until the client ends it.
    Aborted,
    /// It was to be rolled back, and is.
    RolledBack,
    /// Nobody knows whether it was committed.
    InDoubt,
    /// It was to be cancelled, and is: with this text.
    Cancelled(&'static str),
    /// The statement failed; outside a transaction.
    Lost,
}

impl Exchange<'_> {
    /// The connection has ended because of `cause`.
    pub(super) fn lost(&mut self, cause: String) -> Result<(), End> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        server.parameters.roll_back();
        self.client.settings = Arc::clone(server.parameters.want());
        tracing::info!(session.id = self.client.session.id(), server.addr = %server.conn.address(), cause, "lost the server connection");
        if server.conn.scanner.pending() > 0 || server.leaving {
            // A row that was begun cannot be finished, so that no error can be told.
            return Err(End::Quiet);
        }
        if server.pins.hold_state() {
            let text = format!("connection to server lost together with connection state ({})", server.pins.reasons());
            return Err(End::Fatal(ErrorFields::fatal(sqlstate::CONNECTION_FAILURE, text).detail(cause)));
        }
        let in_transaction = server.conn.status != TransactionStatus::Idle;
        let units = server.due.unfinished();
        if units.is_empty() {
            if in_transaction {
                self.client.aborted = Some(Aborted { cause: Some(cause), exit_parsed: false });
            }
            return Ok(());
        }
        let word = match (in_transaction, server.unit.class) {
            (true, Class::Transaction(Transaction::Commit | Transaction::TwoPhase)) => Word::InDoubt,
            (true, Class::Transaction(Transaction::Rollback)) if units[0] == Unfinished::Query => Word::RolledBack,
            (true, _) => Word::Aborted,
            (false, Class::Transaction(Transaction::TwoPhase)) => Word::InDoubt,
            (false, _) if server.expired => Word::Cancelled(QUERY_TIMEOUT),
            (false, _) if server.cancelled => Word::Cancelled(CANCELLED),
            (false, _) => Word::Lost,
        };
        drop(server);
        self.say_lost(&units, &word, &cause);
        Ok(())
    }

    /// The server has said what nobody expected: nothing that it says can be trusted any more.
    pub(super) fn broken(&mut self, text: String) -> End {
        let Some(server) = self.server.take() else { return End::Quiet };
        tracing::warn!(session.id = self.client.session.id(), server.addr = %server.conn.address(), text, "closed a server connection");
        if server.conn.scanner.pending() > 0 {
            return End::Quiet;
        }
        End::Fatal(ErrorFields::fatal(sqlstate::PROTOCOL_VIOLATION, text))
    }

    fn say_lost(&mut self, units: &[Unfinished], word: &Word, cause: &str) {
        let mut out = Vec::with_capacity(256);
        let mut status = TransactionStatus::Idle;
        match word {
            Word::Aborted => {
                status = TransactionStatus::Failed;
                self.client.aborted = Some(Aborted::default());
                ErrorFields::warning(sqlstate::WARNING, cause).encode(&mut out);
                failed_transaction().detail(format!("the connection to the server was lost: {cause}")).encode(&mut out);
            }
            Word::RolledBack => backend::command_complete(&mut out, "ROLLBACK"),
            Word::InDoubt => {
                let text = "connection to server lost while committing, transaction outcome unknown";
                ErrorFields::error(sqlstate::TRANSACTION_RESOLUTION_UNKNOWN, text).detail(cause).encode(&mut out);
            }
            Word::Cancelled(text) => ErrorFields::error(sqlstate::QUERY_CANCELED, *text).detail(cause).encode(&mut out),
            Word::Lost => lost_statement(cause).encode(&mut out),
        }
        for (index, unit) in units.iter().enumerate() {
            if index > 0 {
                if status == TransactionStatus::Failed { failed_transaction() } else { lost_statement(cause) }.encode(&mut out);
            }
            match unit {
                Unfinished::Query | Unfinished::Batch => {
                    ready(&mut out, status);
                    self.client.skip_to_sync = false;
                }
                Unfinished::OpenBatch => self.client.skip_to_sync = true,
            }
        }
        self.say(&out);
    }
}

fn lost_statement(cause: &str) -> ErrorFields {
    ErrorFields::error(sqlstate::CONNECTION_FAILURE, "Lost connection to PostgreSQL server during query").detail(cause)
}

/// PostgreSQL's words in a failed transaction.
pub(super) fn failed_transaction() -> ErrorFields {
    let text = "current transaction is aborted, commands ignored until end of transaction block";
    ErrorFields::error(sqlstate::IN_FAILED_SQL_TRANSACTION, text)
}
