//! Queries of a session that holds a connection.

use quorumsql_wire::pgsql::backend::TransactionStatus;
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frame::Header;
use quorumsql_wire::pgsql::frontend;
use quorumsql_wire::pgsql::sqlstate;
use quorumsql_wire::sql::Class;

use super::names::OurText;
use super::request::Done;
use super::route::Looked;
use super::{End, Exchange, Unit};
use crate::session::pgsql::pins::PinSet;
use crate::session::pgsql::responses::Expected;

impl Exchange<'_> {
    pub(super) fn forward_query(&mut self, header: Header, input: &[u8]) -> Result<Done, End> {
        if header.body > self.longest_statement() {
            return Ok(self.too_big(header, input));
        }
        let Some(sql) = self.query_text(header, input)? else { return Ok(Done::More(header.size())) };
        if self.decided.is_none()
            && let Some(done) = self.look_at_query(sql)
        {
            return Ok(done);
        }
        self.begin_unit(false);
        self.replace_unnamed(None);
        if self.server.as_ref().is_some_and(|server| !matches!(server.unit.class, Class::Read | Class::LockingRead | Class::Write)) {
            self.note_schema_change(sql);
        }
        let changes = self.changes.take();
        let delay = self.config.pgsql.variables.auto_increment_delay_multiplex;
        let (mut named, mut pins) = (None, PinSet::NONE);
        if let Some(server) = &mut self.server {
            let Unit { class, effects, .. } = server.unit;
            server.note_effects(class, effects, delay);
            pins = server.pins_of(effects, changes.as_deref());
            named = self.with_our_names(sql, effects, delay, &mut pins);
        }
        if let Some(server) = &mut self.server {
            server.pins.send(pins);
            server.conn.prepared.unnamed = 0;
            server.counts.query(self.counting.take());
        }
        self.push(Expected::Query { changes: changes.map(Into::into), pins });
        let Some(OurText { text, occupied }) = named else { return Ok(Done::AsIs) };
        let mut bytes = Vec::with_capacity(text.len() + 8);
        frontend::query(&mut bytes, &text);
        self.append(&bytes);
        occupied.iter().for_each(|name| self.occupy(name.as_bytes(), false));
        Ok(Done::Consumed)
    }

    /// A Query that was not looked at yet: the rules may refuse it, and some are answered without the server.
    fn look_at_query(&mut self, sql: &[u8]) -> Option<Done> {
        let quiet = self.server.as_ref().is_some_and(|server| server.due.is_empty());
        // The server answers what is due of a batch when it gets the Query, or a Query of ours in its place.
        let in_batch = self.server.as_ref().is_some_and(|server| server.due.is_in_batch());
        let failed = self.status() == TransactionStatus::Failed;
        let scan = self.scan(sql);
        let mut done = None;
        if !failed {
            done = self.by_name(sql, &scan);
        }
        let mut multiplex = None;
        if done.is_none() && scan.statements > 0 {
            let looked = Looked { sql, scanned: &scan };
            match self.check_attached(looked, scan.class) {
                Ok(decision) => {
                    multiplex = decision.multiplex;
                    if let Some(text) = decision.ok_msg {
                        done = Some(if quiet || in_batch { self.accept_query(&text, &scan) } else { Done::Later });
                    }
                }
                Err(fields) if in_batch || self.fails_transaction(&fields) => done = Some(self.fail_query(&fields)),
                Err(fields) if quiet => {
                    self.say_error(&fields, true);
                    done = Some(Done::Consumed);
                }
                Err(_) => done = Some(Done::Later),
            }
        }
        let hostgroup = self.server.as_ref().map(|server| server.conn.hostgroup());
        match done {
            None if scan.statements > 0 => self.counting = self.digest_entry(hostgroup, &scan),
            Some(Done::Consumed) => self.count_here(&scan),
            _ => {}
        }
        if done.is_none() {
            self.decided = Some(Unit { class: scan.class, effects: scan.effects, evaluated: 0, multiplex });
            self.changes = self.changes(sql, &scan);
        }
        done
    }

    /// Whether a refusal ends the transaction, as its server's would.
    fn fails_transaction(&self, fields: &ErrorFields) -> bool {
        self.in_transaction() && fields.code == sqlstate::READ_ONLY_SQL_TRANSACTION
    }
}
