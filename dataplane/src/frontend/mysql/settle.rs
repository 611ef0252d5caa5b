//! After an answer: what it changed in the session, and whether the connection is kept.

use std::sync::Arc;

use quorumsql_wire::mysql::command::byte;
use quorumsql_wire::mysql::scanner::{Answer, Question};
use quorumsql_wire::mysql::track::{Change, changes};
use quorumsql_wire::mysql::{Status, error_code};
use quorumsql_wire::sql::{Class, Effects, Transaction};

use super::exchange::{Work, close_on_server};
use super::statement::Plan;
use super::{Client, RESET_LIMIT};
use crate::backend::mysql::Mysql;
use crate::backend::mysql::counts::CountsOf;
use crate::backend::mysql::diagnostics::Diagnostics;
use crate::config::Protocol;
use crate::pool::PooledConnection;
use crate::session::mysql::calls;
use crate::session::mysql::pins::{Failed, Pins, Sent};
use crate::session::mysql::set_for;
use crate::session::mysql::state::InsertId;
use crate::session::mysql::tracked;
use crate::stats::digests::RowCounts;
use crate::worker::session::Signal;

/// `COMMIT RELEASE`: the server closes the connection behind its answer, and the session goes with it.
fn ends_session(sent: Sent) -> bool {
    let ends_transaction = matches!(sent.class, Class::Transaction(Transaction::Commit | Transaction::Rollback));
    ends_transaction && sent.effects.contains(Effects::HIDDEN)
}

impl Client {
    /// Takes over what the answer says, and decides whether the connection is kept.
    pub(super) async fn settle(&mut self, mut server: PooledConnection<Mysql>, plan: &Plan, work: &Work<'_>, answer: Answer) {
        let mut changed = server.state.on_answer(&answer);
        let preparing = matches!(work, Work::Prepare { .. });
        let failed = if answer.error.is_some() { Failed::Yes } else { Failed::No };
        // Not every server tells what a USE has done.
        if !changed.schema && failed == Failed::No && plan.schema.is_some() {
            server.state.schema.clone_from(&plan.schema);
        }
        if (changed.schema || plan.schema.is_some() && failed == Failed::No)
            && let Some(schema) = &server.state.schema
        {
            self.state.origin = self.ctx.origin_in(&self.state.origin, schema);
            self.session.set_origin(&self.state.origin);
        }
        if failed == Failed::No && !preparing {
            self.note_set(&mut server, plan, &answer);
        }
        self.note_status(&server, &answer, preparing);
        self.note_insert_id(&mut server, plan, &answer);
        self.rows = RowCounts { affected: answer.rows_affected, sent: answer.rows };
        let effects = plan.sent.effects;
        self.note_warnings(&mut server, effects, &answer);
        self.note_last(effects, &answer, preparing);
        if !preparing {
            server.state.counts_of = self.counts();
        }
        if answer.last_rows.is_some() {
            let (late, hints) = (server.state.tells_late(), server.state.hints(&answer));
            let calls = (late || hints) && work.sql().is_some_and(calls::may_call_stored);
            server.state.unsure |= late && calls;
            changed.untracked |= hints && calls;
            if late && !server.state.unsure && work.sql().is_some_and(calls::sets_for_itself) {
                // What it set is over; the report of it is still to come, and is nobody else's.
                self.ask_for_changes(&mut server).await;
            }
        } else if answer.error.is_none() {
            server.state.unsure = false;
        }
        if !preparing && failed == Failed::No && ends_session(plan.sent) {
            self.state.pins = Pins::default();
            self.session.signal(Signal::Kill);
            return;
        }
        let pins = &mut self.state.pins;
        if !preparing {
            pins.after(Sent { server_tracks: server.state.tracks, ..plan.sent }, failed);
            let known = plan.sent.harmless_set || effects.intersects(KNOWN) || plan.sent.multiplex == Some(2);
            pins.state |= changed.untracked && !known && !work.sql().is_some_and(|sql| set_for::leaves_nothing(plan.sent.class, sql));
        }
        self.note_prepared(&mut server, work, &answer).await;
        self.keep_or_release(server).await;
    }

    /// What the answer means for prepared statements and their cursors.
    async fn note_prepared(&mut self, server: &mut PooledConnection<Mysql>, work: &Work<'_>, answer: &Answer) {
        match work {
            Work::Prepare { id, text, .. } => {
                if let Some(prepared) = answer.prepared {
                    self.prepared_parameters = Some((*id, prepared.parameters));
                    let closed = server.state.registry.add(Arc::clone(text), prepared.statement);
                    close_on_server(server, closed).await;
                } else if answer.error.as_ref().is_some_and(|error| error.code == error_code::MAX_PREPARED.code) {
                    // The client may try again.
                    let closed = server.state.registry.shed();
                    close_on_server(server, closed).await;
                }
            }
            Work::Execute { id, statement, .. } => {
                let opened = answer.status.is_some_and(|status| status.contains(Status::CURSOR_EXISTS));
                server.state.registry.executed(statement.name, opened);
                let unknown = answer.error.as_ref().is_some_and(|error| error.code == error_code::UNKNOWN_STATEMENT.code);
                // Long data may be left on it for the next execution.
                let unclean = answer.error.is_some() && !statement.long_data.is_empty();
                if unknown || unclean {
                    let closed = server.state.registry.forget_last();
                    close_on_server(server, closed).await;
                }
                self.note_cursor(*id, opened);
            }
            Work::Fetch { id, name, .. } => {
                let status = answer.status.unwrap_or_default();
                if status.contains(Status::LAST_ROW_SENT) || answer.error.is_some() {
                    server.state.registry.close_cursor(*name);
                    self.note_cursor(*id, false);
                }
            }
            Work::Query(_) | Work::FieldList(_) => {}
        }
    }

    /// What the answer could not tell, before somebody else gets the connection, who would be told. A connection that does not
    /// answer is of no use: it is taken for changed, and closed when its reset fails.
    async fn ask_for_changes(&self, server: &mut PooledConnection<Mysql>) -> bool {
        let ping = Box::pin(server.call(Question::Simple, &[byte::PING]));
        match self.ctx.ticker().guard(RESET_LIMIT, ping).await {
            Ok(Ok(Ok(answer))) => server.state.on_answer(&answer).untracked,
            _ => true,
        }
    }

    /// A SET that the session understands has run on a server.
    fn note_set(&mut self, server: &mut PooledConnection<Mysql>, plan: &Plan, answer: &Answer) {
        let Some(absorbed) = &plan.absorbed else { return };
        self.state.absorb(absorbed);
        if !absorbed.names.is_empty() {
            server.state.names.clone_from(&self.state.names);
        }
        tracked::apply(&mut server.state.variables, &absorbed.variables);
        if !absorbed.told_sql_mode {
            return;
        }
        match told_sql_mode(answer) {
            Some(mode) => {
                let mode = [(tracked::SQL_MODE, Some(mode))];
                tracked::apply(&mut server.state.variables, &mode);
                tracked::apply(&mut self.state.variables, &mode);
            }
            None => self.state.pins.state = true,
        }
    }

    /// Warnings are told by the connection that has them. An error is remembered: the connection need not be kept for it.
    fn note_warnings(&mut self, server: &mut PooledConnection<Mysql>, effects: Effects, answer: &Answer) {
        let asks = effects.contains(Effects::SHOW_WARNINGS);
        let only_error = asks && self.state.last.error.is_some();
        let pins = &mut self.state.pins;
        pins.warnings = answer.warnings > 0 && !only_error || asks && pins.warnings;
        if answer.warnings > 0 || answer.error.is_some() {
            server.state.diagnostics = Diagnostics::Own;
        }
    }

    /// What FOUND_ROWS(), ROW_COUNT() and SHOW WARNINGS will tell.
    fn note_last(&mut self, effects: Effects, answer: &Answer, preparing: bool) {
        let last = &mut self.state.last;
        if answer.error.is_some() || !effects.contains(Effects::SHOW_WARNINGS) {
            last.error.clone_from(&answer.error);
        }
        if preparing {
            return;
        }
        match (&answer.error, answer.last_rows) {
            (None, None) => last.counted(i64::try_from(answer.affected).unwrap_or(i64::MAX), None),
            (None, rows) => last.counted(-1, rows),
            (Some(_), _) => last.counted(-1, None),
        }
    }

    /// What connections call the counts of this session's last statement.
    pub(super) fn counts(&self) -> CountsOf {
        CountsOf { session: self.session.id(), statement: self.state.last.number }
    }

    /// Transaction, autocommit and escapes, as the status says. After an error without one, a transaction that was open may
    /// still be, and with autocommit off one may have begun.
    fn note_status(&mut self, server: &PooledConnection<Mysql>, answer: &Answer, preparing: bool) {
        let state = &mut self.state;
        match answer.status {
            Some(status) => {
                state.autocommit = status.contains(Status::AUTOCOMMIT);
                state.no_backslash_escapes = status.contains(Status::NO_BACKSLASH_ESCAPES);
                state.tells_ansi_quotes = status.contains(Status::ANSI_QUOTES);
                state.pins.in_transaction(server.state.in_transaction());
            }
            None if answer.error.is_some() && !preparing => state.pins.transaction |= !state.autocommit,
            None => {}
        }
    }

    fn note_insert_id(&mut self, server: &mut PooledConnection<Mysql>, plan: &Plan, answer: &Answer) {
        if answer.insert_id == 0 {
            return;
        }
        server.state.has_insert_id = true;
        self.state.last_insert_id = InsertId { value: answer.insert_id, doubtful: true };
        if answer.affected > 0 && answer.error.is_none() {
            self.state.pins.insert_id = plan.config.side(Protocol::Mysql).variables.auto_increment_delay_multiplex;
        }
    }

    fn note_cursor(&mut self, id: u32, open: bool) {
        let cursors = &mut self.state.pins.cursors;
        cursors.retain(|other| *other != id);
        if open {
            cursors.push(id);
        }
    }

    /// Keeps the connection while there is a reason, else gives it back.
    pub(super) async fn keep_or_release(&mut self, server: PooledConnection<Mysql>) {
        if self.spoiled {
            // A KILL QUERY is on its way to it.
            self.spoiled = false;
            self.state.pins = Pins::default();
            self.state.last_insert_id.doubtful = false;
        } else if self.state.pins.any() {
            self.held = Some(server);
        } else {
            self.release(server).await;
        }
    }

    /// Gives a connection back that nothing holds any more, unless it turns out that something does.
    pub(super) async fn release(&mut self, mut server: PooledConnection<Mysql>) {
        if !self.ask_insert_id(&mut server).await {
            return;
        }
        if std::mem::take(&mut server.state.unsure) && self.ask_for_changes(&mut server).await {
            self.state.pins.state = true;
            self.held = Some(server);
        } else {
            server.release();
        }
    }

    /// Learns `LAST_INSERT_ID()` of the connection, if an OK has only hinted at it. `false` = the connection is of no use any
    /// more; what the OK said must do then.
    pub(super) async fn ask_insert_id(&mut self, server: &mut PooledConnection<Mysql>) -> bool {
        if !std::mem::take(&mut self.state.last_insert_id.doubtful) {
            return true;
        }
        let asked = Box::pin(server.select_number("SELECT LAST_INSERT_ID()"));
        let Ok(Ok(told)) = self.ctx.ticker().guard(RESET_LIMIT, asked).await else { return false };
        if let Some(value) = told {
            self.state.last_insert_id.value = value;
        }
        true
    }
}

/// The new value of `sql_mode`, as a literal.
fn told_sql_mode(answer: &Answer) -> Option<String> {
    let values = changes(&answer.state).filter_map(|change| match change {
        Ok(Change::Variable { name: b"sql_mode", value }) => Some(value),
        _ => None,
    });
    tracked::sql_mode(values.last()?)
}

/// Effects whose change of state is known and may end.
const KNOWN: Effects = Effects::TRANSACTION_SETTING;
