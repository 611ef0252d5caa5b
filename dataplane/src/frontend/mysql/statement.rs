//! Where a statement goes: rules, what needs no server, held connection, routing guard (design.md section 12 "Data plane").

use std::rc::Rc;

use quorumsql_wire::mysql::error_code;
use quorumsql_wire::sql::{Class, Effects, Encoding, ScanOptions};

use super::exchange::Work;
use super::request::Request;
use super::{Client, Flow};
use crate::config::{Domain, HostgroupId, Protocol};
use crate::guard::{Facts, Verdict, guard};
use crate::rules::{Decision, Input};
use crate::session::mysql::local::{self, Backslash, Reading};
use crate::session::mysql::pins::Sent;
use crate::session::mysql::set::Absorbed;
use crate::worker::scans::Scanned;
use crate::worker::snapshot::Snapshot;

/// A statement that a server must run.
pub(super) struct Plan {
    /// Where.
    pub(super) hostgroup: HostgroupId,
    /// On the connection that the session holds.
    pub(super) on_held: bool,
    /// What its text says that it leaves behind.
    pub(super) sent: Sent,
    /// A SET that the session understands but that goes to the held connection.
    pub(super) absorbed: Option<Absorbed>,
    /// The schema that it changes to, when it is a USE.
    pub(super) schema: Option<String>,
    /// The configuration under which it was routed.
    pub(super) config: Rc<Snapshot>,
}

/// In which form a statement came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// COM_QUERY.
    Text,
    /// COM_STMT_PREPARE, COM_STMT_EXECUTE: nothing is answered here.
    Binary,
}

/// What routing came to.
pub(super) enum Routed {
    /// A server must run it.
    Run(Plan),
    /// The client has its answer.
    Answered(Flow),
}

impl Client {
    /// COM_QUERY.
    pub(super) async fn query(&mut self, request: Request) -> Flow {
        let config = self.ctx.config();
        let started = self.start_count(&config);
        let sql = &request.payload()[1..];
        let scan = self.scan(&config, sql);
        let routed = self.route(Rc::clone(&config), sql, &scan, Form::Text, request.answer_sequence).await;
        let counting = self.counting(&config, started, &routed, &scan);
        let flow = match routed {
            Routed::Answered(flow) => flow,
            Routed::Run(plan) => self.run(&plan, Work::Query(&request), request.answer_sequence).await,
        };
        self.end_count(counting);
        flow
    }

    /// COM_FIELD_LIST goes to the user's default hostgroup, or to the held connection.
    pub(super) async fn field_list(&mut self, request: Request) -> Flow {
        let plan = self.neutral_plan();
        self.run(&plan, Work::FieldList(&request), request.answer_sequence).await
    }

    /// COM_INIT_DB goes there, too: only a server knows whether the schema exists and may be used.
    pub(super) async fn init_db(&mut self, request: Request, schema: String) -> Flow {
        let mut plan = Plan { schema: Some(schema), ..self.neutral_plan() };
        // MySQL's answer has the number of warnings that are there, and they stay.
        plan.sent.effects = Effects::SHOW_WARNINGS;
        self.run(&plan, Work::Query(&request), request.answer_sequence).await
    }

    fn neutral_plan(&self) -> Plan {
        let config = self.ctx.config();
        let on_held = self.held.is_some();
        let sent = Sent {
            class: Class::Neutral,
            effects: Effects::NONE,
            harmless_set: false,
            single_set: false,
            multiplex: None,
            server_tracks: true,
        };
        let hostgroup = self.held.as_ref().map_or(self.identity.user.default_hostgroup, |held| held.hostgroup());
        Plan { hostgroup, on_held, sent, absorbed: None, schema: None, config }
    }

    /// Reads a statement's text.
    pub(super) fn scan(&self, config: &Snapshot, sql: &[u8]) -> Rc<Scanned> {
        let options = ScanOptions {
            backslash_escapes: !self.state.no_backslash_escapes,
            ansi_quotes: self.state.ansi_quotes(),
            ..config.variables(Protocol::Mysql).digest_options
        };
        self.ctx.scan(Protocol::Mysql, &self.state.names.encoding(sql).plain(sql), &options)
    }

    /// Decides where a statement goes, or answers it.
    pub(super) async fn route(&mut self, config: Rc<Snapshot>, sql: &[u8], scan: &Scanned, form: Form, sequence: u8) -> Routed {
        self.ctx.stats(Protocol::Mysql).queries.add(1);
        let decision = self.evaluate(&config, sql, scan);
        if let Some(text) = &decision.ok_msg {
            return Routed::Answered(self.send_ok(sequence, text).await);
        }
        if let Some(text) = &decision.error_msg {
            return Routed::Answered(self.send_error(sequence, error_code::NOT_ALLOWED, &**text).await);
        }
        if scan.effects.contains(Effects::LOCAL_INFILE) {
            let text = "Unsupported 'LOAD DATA LOCAL INFILE' command";
            return Routed::Answered(self.send_error(sequence, error_code::UNSUPPORTED_LOCAL_INFILE, text).await);
        }
        let mut plan = Plan {
            hostgroup: decision.destination.unwrap_or(self.identity.user.default_hostgroup),
            on_held: false,
            sent: Sent {
                class: scan.class,
                effects: scan.effects,
                harmless_set: false,
                single_set: false,
                multiplex: decision.multiplex,
                server_tracks: true,
            },
            absorbed: None,
            schema: None,
            config,
        };
        if form == Form::Text
            && self.state.names.encoding(sql) == Encoding::Plain
            && let Some(local) = local::recognise(sql, scan, Reading::new(plan.config.variables(Protocol::Mysql), self.backslash()))
            && let Some(flow) = Box::pin(self.answer_here(local, &mut plan, sequence)).await
        {
            return Routed::Answered(flow);
        }
        match self.place(&mut plan, &decision, scan) {
            Ok(()) => Routed::Run(plan),
            Err((code, text)) => Routed::Answered(self.send_error(sequence, code, text).await),
        }
    }

    fn backslash(&self) -> Backslash {
        if self.state.no_backslash_escapes { Backslash::Plain } else { Backslash::Escapes }
    }

    fn evaluate(&self, config: &Snapshot, sql: &[u8], scan: &Scanned) -> Decision {
        let input = Input { origin: &self.state.origin, digest: scan.digest, digest_text: &scan.digest_text, sql };
        self.ctx.evaluate(config, Protocol::Mysql, &input, scan)
    }

    /// Held connection, routing guard. An error is the client's answer.
    fn place(&self, plan: &mut Plan, decision: &Decision, scan: &Scanned) -> Result<(), (error_code::ErrorCode, String)> {
        let config = Rc::clone(&plan.config);
        let side = config.side(Protocol::Mysql);
        let Sent { class, effects, .. } = plan.sent;
        if let Some(held) = &self.held {
            const NEEDS_IT: [Effects; 3] = [Effects::SHOW_WARNINGS, Effects::LAST_INSERT_ID, Effects::FOUND_ROWS];
            let here = held.hostgroup();
            if self.state.pins.hard() {
                if self.state.pins.beyond_transaction() {
                    stays(&side.domains, here, plan.hostgroup, class)?;
                }
                (plan.hostgroup, plan.on_held) = (here, true);
                return Ok(());
            }
            if plan.absorbed.is_some() || NEEDS_IT.iter().any(|effect| effects.contains(*effect)) {
                (plan.hostgroup, plan.on_held) = (here, true);
                return Ok(());
            }
        }
        let facts = Facts { set_is_tracked: plan.absorbed.is_some(), read_opens_transaction: !self.state.autocommit, ..Facts::default() };
        let verdict = guard(&side.domains, plan.hostgroup, class, effects, &facts, side.variables.routing_guard);
        if verdict != Verdict::Keep {
            self.count_guarded(&config, decision);
            self.ctx.shared().guard_told.tell(scan.digest, &scan.digest_text, plan.hostgroup, &verdict);
        }
        match verdict {
            Verdict::Keep => {}
            Verdict::Redirect(writer) => plan.hostgroup = writer,
            Verdict::Reject(text) => return Err((error_code::NOT_ALLOWED, text)),
        }
        plan.on_held = self.held.as_ref().is_some_and(|held| held.hostgroup() == plan.hostgroup);
        Ok(())
    }

    fn count_guarded(&self, config: &Snapshot, decision: &Decision) {
        self.ctx.stats(Protocol::Mysql).guarded.add(1);
        if let Some(position) = decision.destination_rule {
            config.rule_cells(Protocol::Mysql).guarded(position);
        }
    }
}

/// Whether a statement may run on the connection to which its session is pinned (9006 if not).
fn stays(domains: &[Domain], here: HostgroupId, wanted: HostgroupId, class: Class) -> Result<(), (error_code::ErrorCode, String)> {
    let locked = |to: HostgroupId| {
        let text = format!("ProxySQL Error: connection is locked to hostgroup {} but trying to reach hostgroup {}", here.0, to.0);
        Err((error_code::LOCKED, text))
    };
    if class.is_neutral() || matches!(class, Class::Set | Class::Transaction(_)) {
        return Ok(());
    }
    let domain = domains.iter().find(|domain| domain.writer == here || domain.reader == here);
    match domain {
        Some(domain) if domain.reader == here && domain.writer != here && !class.is_plain_read() => locked(domain.writer),
        Some(domain) if wanted == domain.writer || wanted == domain.reader => Ok(()),
        _ if wanted == here => Ok(()),
        _ => locked(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_session_stays_in_its_domain() {
        let (w, r, other) = (HostgroupId(10), HostgroupId(20), HostgroupId(30));
        let domains = [Domain { writer: w, reader: r }];
        let cases = [
            (w, r, Class::Read, true),
            (w, w, Class::Write, true),
            (w, other, Class::Read, false),
            (w, other, Class::Set, true),
            (r, w, Class::Read, true),
            (r, r, Class::Write, false),
            (other, other, Class::Write, true),
            (other, w, Class::Read, false),
        ];
        for (here, wanted, class, allowed) in cases {
            assert_eq!(stays(&domains, here, wanted, class).is_ok(), allowed, "{here:?} {wanted:?} {class:?}");
        }
        let (code, text) = stays(&domains, r, r, Class::Write).unwrap_err();
        assert_eq!(code, error_code::LOCKED);
        assert_eq!(text, "ProxySQL Error: connection is locked to hostgroup 20 but trying to reach hostgroup 10");
    }
}
