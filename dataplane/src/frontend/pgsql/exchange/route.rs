//! Rules, routing guard and pins: where a statement goes, or why it does not.

use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::sqlstate;
use quorumsql_wire::sql::{Class, Effects};

use super::request::Done;
use super::{End, Exchange, Unit};
use crate::config::{HostgroupId, Protocol};
use crate::guard::{Facts, Verdict, guard};
use crate::rules::{Decision, Input};
use crate::worker::scans::Scanned;

/// A statement as routing sees it.
#[derive(Clone, Copy)]
pub(super) struct Looked<'s> {
    pub(super) sql: &'s [u8],
    /// What it scanned to.
    pub(super) scanned: &'s Scanned,
}

/// Where a unit goes.
pub(super) enum Route {
    /// To a server of this hostgroup.
    To(HostgroupId, Option<u8>),
    /// Nowhere: this is the answer.
    Refused(ErrorFields),
    /// Nowhere: a rule says that all is well, with this text.
    Accepted(std::sync::Arc<str>),
}

impl Exchange<'_> {
    /// Runs a statement through the rules; counts it and their hits.
    pub(super) fn decide(&mut self, looked: Looked<'_>) -> Decision {
        self.client.ctx.stats(Protocol::Pgsql).queries.add(1);
        let input =
            Input { origin: &self.client.origin, digest: looked.scanned.digest, digest_text: &looked.scanned.digest_text, sql: looked.sql };
        self.client.ctx.evaluate(&self.config, Protocol::Pgsql, &input, looked.scanned)
    }

    /// Rules, then guard, for a unit that has no connection yet.
    pub(super) fn route(&mut self, looked: Looked<'_>, class: Class, effects: Effects) -> Route {
        let decision = self.decide(looked);
        if let Some(text) = decision.ok_msg {
            return Route::Accepted(text);
        }
        if let Some(text) = decision.error_msg {
            return Route::Refused(ErrorFields::error(sqlstate::INSUFFICIENT_PRIVILEGE, &*text));
        }
        let hostgroup = decision.destination.unwrap_or_else(|| self.default_hostgroup());
        match self.guarded(hostgroup, class, effects, decision.destination_rule, Some(looked)) {
            Ok(hostgroup) => Route::To(hostgroup, decision.multiplex),
            Err(fields) => Route::Refused(fields),
        }
    }

    /// The hostgroup that the guard lets a statement have.
    fn guarded(
        &self,
        hostgroup: HostgroupId,
        class: Class,
        effects: Effects,
        rule: Option<usize>,
        looked: Option<Looked<'_>>,
    ) -> Result<HostgroupId, ErrorFields> {
        let side = &self.config.pgsql;
        let verdict = guard(&side.domains, hostgroup, class, effects, &Facts::default(), side.variables.routing_guard);
        if let Some(Looked { scanned, .. }) = looked {
            self.client.ctx.shared().guard_told.tell(scanned.digest, &scanned.digest_text, hostgroup, &verdict);
        }
        let count = || {
            self.client.ctx.stats(Protocol::Pgsql).guarded.add(1);
            if let Some(rule) = rule {
                self.config.rule_cells(Protocol::Pgsql).guarded(rule);
            }
        };
        match verdict {
            Verdict::Keep => Ok(hostgroup),
            Verdict::Redirect(writer) => {
                count();
                Ok(writer)
            }
            Verdict::Reject(text) => {
                count();
                Err(ErrorFields::error(sqlstate::READ_ONLY_SQL_TRANSACTION, text))
            }
        }
    }

    /// The user's default hostgroup as configured now; a user that was removed keeps working on hostgroup 0 until it leaves, where
    /// it finds no server unless there is one.
    pub(super) fn default_hostgroup(&self) -> HostgroupId {
        self.config.pgsql.users.get(&*self.client.origin.user).map_or(HostgroupId(0), |user| user.default_hostgroup)
    }

    /// Rules for a statement of a session that has a connection: the connection stays, but rules can refuse, and a pinned session cannot
    /// reach another domain, nor write where only reads go.
    pub(super) fn check_attached(&mut self, looked: Looked<'_>, class: Class) -> Result<Decision, ErrorFields> {
        let decision = self.decide(looked);
        if let Some(text) = &decision.error_msg
            && decision.ok_msg.is_none()
        {
            return Err(ErrorFields::error(sqlstate::INSUFFICIENT_PRIVILEGE, &**text));
        }
        let Some(server) = &self.server else { return Ok(decision) };
        let (here, is_pinned) = (server.conn.hostgroup(), !server.pins.is_empty());
        if !is_pinned || self.in_transaction() {
            // In a transaction; or within a batch of which the server has a part already, and perhaps a BEGIN in it.
            let refused = may_write(looked, class) && !only_sets(looked) && self.only_reads(here);
            return if refused { Err(read_only(looked)) } else { Ok(decision) };
        }
        let side = &self.config.pgsql;
        let domain = side.domains.iter().find(|domain| domain.writer == here || domain.reader == here);
        let is_same =
            |wanted: HostgroupId| wanted == here || domain.is_some_and(|domain| domain.writer == wanted || domain.reader == wanted);
        if let Some(wanted) = decision.destination.filter(|wanted| !is_same(*wanted)) {
            return Err(locked(here, wanted));
        }
        let verdict = guard(
            &side.domains,
            here,
            class,
            Effects::NONE,
            &Facts { set_is_tracked: true, ..Facts::default() },
            side.variables.routing_guard,
        );
        match verdict {
            Verdict::Redirect(writer) => Err(locked(here, writer)),
            Verdict::Reject(text) => Err(ErrorFields::error(sqlstate::READ_ONLY_SQL_TRANSACTION, text)),
            Verdict::Keep => Ok(decision),
        }
    }

    /// Whether the guard lets nobody write there. A transaction that has begun there was read-only, and may have changed its mind.
    fn only_reads(&self, hostgroup: HostgroupId) -> bool {
        let side = &self.config.pgsql;
        let verdict = guard(&side.domains, hostgroup, Class::Write, Effects::NONE, &Facts::default(), side.variables.routing_guard);
        verdict != Verdict::Keep
    }

    /// Whether the server is in a transaction, as far as it has said.
    pub(super) fn in_transaction(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.conn.status != quorumsql_wire::pgsql::backend::TransactionStatus::Idle)
    }

    /// FunctionCall: it may do anything, so it goes to the default hostgroup's writer.
    pub(super) fn route_function_call(&mut self) -> Result<Done, End> {
        self.client.ctx.stats(Protocol::Pgsql).queries.add(1);
        match self.guarded(self.default_hostgroup(), Class::Other, Effects::NONE, None, None) {
            Ok(hostgroup) => {
                self.decided = Some(Unit { class: Class::Other, ..Unit::default() });
                Ok(Done::Attach(hostgroup))
            }
            Err(fields) => {
                self.say_error(&fields, true);
                Ok(Done::Consumed)
            }
        }
    }
}

/// Whether it, or one of several statements, does what no read-only transaction of a server allows.
fn may_write(looked: Looked<'_>, class: Class) -> bool {
    const DEFINITIONS: [&str; 7] = ["CREATE", "DROP", "TRUNCATE", "GRANT", "REVOKE", "COMMENT", "REFRESH"];
    class == Class::Write || looked.scanned.writes || (class == Class::Ddl && DEFINITIONS.contains(&&*verb(looked.sql)))
}

/// Its first word.
fn verb(sql: &[u8]) -> String {
    sql.trim_ascii_start().iter().take_while(|byte| byte.is_ascii_alphabetic()).map(|byte| char::from(byte.to_ascii_uppercase())).collect()
}

/// What makes it more than a read is a call of set_config().
fn only_sets(looked: Looked<'_>) -> bool {
    looked.scanned.effects.intersects(Effects::SET_CONFIG) && verb(looked.sql) == "SELECT"
}

/// What a read-only transaction says to a statement that writes.
fn read_only(looked: Looked<'_>) -> ErrorFields {
    let mut verb = verb(looked.sql);
    if verb.is_empty() || looked.scanned.statements > 1 {
        verb = "a statement that writes".into();
    }
    let text = format!("cannot execute {verb} in a read-only transaction");
    ErrorFields::error(sqlstate::READ_ONLY_SQL_TRANSACTION, text).detail("the transaction has begun on a server that is for reading")
}

fn locked(here: HostgroupId, wanted: HostgroupId) -> ErrorFields {
    let text = format!("ProxySQL Error: connection is locked to hostgroup {} but trying to reach hostgroup {}", here.0, wanted.0);
    ErrorFields::error(sqlstate::INVALID_TRANSACTION_STATE, text)
}
