//! EXPLAIN RULES: the way of a statement, told step by step (observability-and-operations.md 6.3).
//!
//! Lexer, rules and guard are the data plane's own functions. No hit is counted and no server is touched.

use std::sync::Arc;

use quorumsql_wire::sql::{Class, Effects, Scan, scan_mysql, scan_pgsql};

use crate::config::{HostgroupId, Protocol, ProtocolConfig, RuleId, RuntimeConfig, Server, ServerStatus};
use crate::guard::{self, Facts};
use crate::origin::Origin;
use crate::routing;
use crate::rules::{Decision, Input, Tried, Verdict};
use crate::session::mysql::local::{self, Backslash, Local, Reading};
use crate::session::mysql::set::SetStatement;
use crate::stats::PoolRow;

/// What is asked. The session that is imagined has just logged in: no transaction, no pin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// Which data plane.
    pub protocol: Protocol,
    /// The statement.
    pub sql: String,
    /// Its user; empty = nobody's.
    pub user: String,
    /// Its schema or database; `None` = the user's default.
    pub schema: Option<String>,
    /// Address of the client.
    pub client: String,
    /// Address and port of ours to which the client connected.
    pub proxy: (String, u16),
}

/// One step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// `parse`, `rule`, `default`, `answer`, `guard`, `pin`, `server`.
    pub kind: &'static str,
    /// The rule, where it is one.
    pub rule_id: Option<RuleId>,
    /// `matched`, `not matched`, `skipped`, `applied`, `kept`, `redirected`, `refused`, `eligible`, `not eligible`.
    pub result: &'static str,
    /// Why.
    pub detail: String,
    /// What follows.
    pub effect: String,
}

impl Step {
    fn new(kind: &'static str, result: &'static str, detail: impl Into<String>, effect: impl Into<String>) -> Self {
        Self { kind, rule_id: None, result, detail: detail.into(), effect: effect.into() }
    }
}

/// Tells what would become of the statement under `config`; `pool` says how its servers are now.
pub(crate) fn explain(config: &RuntimeConfig, pool: &[PoolRow], question: &Question) -> Vec<Step> {
    let side = config.side(question.protocol);
    let scan = scan(side, question);
    let mut steps = vec![parsed(&scan)];
    let user = side.users.get(question.user.as_str());
    let schema = question.schema.clone().or_else(|| user?.default_schema.clone());
    let schema = schema.as_deref().unwrap_or(match question.protocol {
        Protocol::Mysql => &side.variables.default_schema,
        Protocol::Pgsql => &question.user,
    });
    let (proxy_addr, proxy_port) = &question.proxy;
    let origin = Arc::new(Origin {
        user: question.user.as_str().into(),
        schema: schema.into(),
        client_addr: question.client.as_str().into(),
        proxy_addr: proxy_addr.as_str().into(),
        proxy_port: *proxy_port,
    });
    let (tried, decision) =
        side.rules.explain(&Input { origin: &origin, digest: scan.digest, digest_text: &scan.digest_text, sql: question.sql.as_bytes() });
    steps.extend(tried.into_iter().map(rule));
    if let Some(answer) = answered(side, question, &scan, &decision) {
        steps.push(answer);
        return steps;
    }
    let Some(wanted) = wanted(side, question, &decision, &mut steps) else { return steps };
    if let Some(hostgroup) = guarded(side, &scan, wanted, question, &mut steps) {
        steps.extend(pins(&scan, &decision));
        steps.extend(servers(side, pool, question.protocol, hostgroup));
    }
    steps
}

fn scan(side: &ProtocolConfig, question: &Question) -> Scan {
    let mut scan = Scan::new();
    let options = side.variables.digest_options;
    match question.protocol {
        Protocol::Mysql => scan_mysql(question.sql.as_bytes(), &options, &mut scan),
        Protocol::Pgsql => scan_pgsql(question.sql.as_bytes(), &options, &mut scan),
    }
    scan
}

fn parsed(scan: &Scan) -> Step {
    let text = String::from_utf8_lossy(&scan.digest_text);
    let effects = if scan.effects == Effects::NONE { String::new() } else { format!(", effects {:?}", scan.effects) };
    Step::new("parse", "", format!("digest 0x{:016X}: {text}", scan.digest), format!("{}{effects}", class_name(scan.class)))
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Empty => "empty",
        Class::Read => "plain read",
        Class::LockingRead => "locking read",
        Class::Write => "write",
        Class::Ddl => "DDL",
        Class::Transaction(_) => "transaction control",
        Class::Set => "SET",
        Class::Neutral => "neutral",
        Class::Use => "USE",
        Class::Call => "CALL",
        Class::Kill => "KILL",
        Class::Other => "not known to be a plain read",
    }
}

fn rule(tried: Tried) -> Step {
    let (result, detail) = match tried.result {
        Verdict::Matched => ("matched", String::new()),
        Verdict::Applied => ("applied", "apply=1: the last rule".to_owned()),
        Verdict::NotMatched(reason) => ("not matched", reason),
        Verdict::Skipped(wanted, flag) => ("skipped", format!("flagIN {wanted}, current {flag}")),
    };
    Step { rule_id: Some(tried.rule_id), ..Step::new("rule", result, detail, tried.effect) }
}

/// What is answered without a server.
fn answered(side: &ProtocolConfig, question: &Question, scan: &Scan, decision: &Decision) -> Option<Step> {
    let answer = |result, detail: &str, effect: String| Some(Step::new("answer", result, detail, effect));
    if let Some(text) = &decision.ok_msg {
        return answer("applied", "OK_msg of a rule", format!("OK: {text}"));
    }
    if let Some(text) = &decision.error_msg {
        return answer("refused", "error_msg of a rule", format!("error: {text}"));
    }
    if question.protocol == Protocol::Pgsql {
        return None;
    }
    let (detail, effect) = match local::recognise(question.sql.as_bytes(), scan, Reading::new(&side.variables, Backslash::Escapes))? {
        Local::Set(SetStatement::Absorbed(absorbed)) if !absorbed.ask => {
            ("a SET that is tracked", "remembered by the session, sent before its next statement")
        }
        Local::Use(_) | Local::Set(_) | Local::Kill { .. } => return None,
        Local::EndTransaction => ("no transaction is open", "OK"),
        Local::Ask(_) => ("known to the session", "one row"),
        Local::ShowWarnings => ("no statement with warnings came before", "no warnings"),
        Local::Internal(_) => ("the session as JSON", "one row"),
        Local::Dollars => ("asks for the version's syntax", "error"),
    };
    answer("applied", detail, effect.to_owned())
}

/// The hostgroup of the rules, or the user's own; `None` = there is neither.
fn wanted(side: &ProtocolConfig, question: &Question, decision: &Decision, steps: &mut Vec<Step>) -> Option<HostgroupId> {
    if decision.destination.is_some() {
        return decision.destination;
    }
    let no_rule = "no rule names a hostgroup";
    if let Some(user) = side.users.get(question.user.as_str()) {
        let id = user.default_hostgroup;
        steps.push(Step::new(
            "default",
            "applied",
            format!("{no_rule}: default_hostgroup of '{}'", user.name),
            format!("hostgroup {}", id.0),
        ));
        return Some(id);
    }
    let who = if question.user.is_empty() { "say USER '…'".to_owned() } else { format!("there is no active user '{}'", question.user) };
    steps.push(Step::new("default", "not matched", format!("{no_rule}, and the default hostgroup is the user's: {who}"), "no hostgroup"));
    None
}

/// The hostgroup after the guard; `None` = refused.
fn guarded(side: &ProtocolConfig, scan: &Scan, wanted: HostgroupId, question: &Question, steps: &mut Vec<Step>) -> Option<HostgroupId> {
    let mode = side.variables.routing_guard;
    let facts = Facts { set_is_tracked: is_tracked_set(question, scan), ..Facts::default() };
    let reason = guard::why(&side.domains, wanted, scan.class, scan.effects, &facts);
    let detail = match (reason, side.domains.iter().find(|domain| domain.reader == wanted && domain.writer != wanted)) {
        (Some(reason), _) => reason.to_owned(),
        (None, Some(domain)) => format!("may run on reader hostgroup {} of writer {}", wanted.0, domain.writer.0),
        (None, None) => format!("hostgroup {} is no reader of a pair", wanted.0),
    };
    let (result, effect, hostgroup) = match guard::guard(&side.domains, wanted, scan.class, scan.effects, &facts, mode) {
        guard::Verdict::Keep => ("kept", format!("hostgroup {}", wanted.0), Some(wanted)),
        guard::Verdict::Redirect(writer) => ("redirected", format!("hostgroup {}", writer.0), Some(writer)),
        guard::Verdict::Reject(text) => ("refused", format!("error: {text}"), None),
    };
    let off = if mode == crate::config::GuardMode::Off { " (routing_guard is off)" } else { "" };
    steps.push(Step::new("guard", result, detail + off, effect));
    hostgroup
}

fn is_tracked_set(question: &Question, scan: &Scan) -> bool {
    question.protocol == Protocol::Pgsql && scan.class == Class::Set && scan.effects == Effects::SESSION_SETTING
}

fn pins(scan: &Scan, decision: &Decision) -> Option<Step> {
    if decision.multiplex == Some(2) {
        return Some(Step::new("pin", "not matched", "multiplex=2 of a rule", "the connection is not kept"));
    }
    if decision.multiplex == Some(0) {
        return Some(Step::new("pin", "applied", "multiplex=0 of a rule", "the session keeps its connection"));
    }
    let keeps = scan.effects.intersects(Effects::PINS);
    keeps.then(|| Step::new("pin", "applied", format!("{:?}", scan.effects), "the session keeps its connection afterwards"))
}

/// Candidates, and why the others are none.
fn servers(side: &ProtocolConfig, pool: &[PoolRow], protocol: Protocol, hostgroup: HostgroupId) -> Vec<Step> {
    let Some(group) = side.hostgroups.get(&hostgroup).filter(|group| !group.servers.is_empty()) else {
        return vec![Step::new(
            "server",
            "not eligible",
            format!("hostgroup {} has no servers", hostgroup.0),
            "the statement waits, then 9001",
        )];
    };
    let row_of =
        |server: &Server| pool.iter().find(|row| row.protocol == protocol && row.hostgroup == hostgroup && row.address == server.address);
    group
        .servers
        .iter()
        .map(|server| {
            let row = row_of(server);
            let status = row.map_or(server.status, |row| row.status);
            let connections = row.map_or(0, |row| row.used + row.free);
            let detail = format!(
                "{} {} weight {}, connections {connections} of {}, latency {} us",
                server.address,
                status.as_str(),
                server.weight,
                server.max_connections,
                server.latency_us
            );
            let (result, effect) = eligible(server, status, row.map_or(0, |row| row.used));
            Step::new("server", result, detail, effect)
        })
        .collect()
}

fn eligible(server: &Server, status: ServerStatus, used: u64) -> (&'static str, &'static str) {
    match status {
        ServerStatus::Online if server.weight == 0 => ("not eligible", "weight 0: never chosen"),
        ServerStatus::Online if !routing::is_candidate(server) => ("not eligible", "its latency is too high"),
        ServerStatus::Online if used >= u64::from(server.max_connections) => {
            ("eligible", "all connections are in use: the statement waits")
        }
        ServerStatus::Online => ("eligible", "chosen by weight"),
        ServerStatus::Shunned | ServerStatus::Unreachable => ("not eligible", "shunned"),
        ServerStatus::OfflineSoft | ServerStatus::OfflineHard => ("not eligible", "taken out of service"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use super::*;
    use crate::config::{Domain, GuardMode, Hostgroup, ServerAddress, User, Variables};
    use crate::rules::{CompileOptions, RuleRow, RuleSet};

    fn server(hostgroup: HostgroupId, host: &str, weight: u32, status: ServerStatus) -> Arc<Server> {
        let address = ServerAddress { host: host.into(), port: 3306 };
        Arc::new(Server {
            hostgroup,
            address,
            status,
            weight,
            max_connections: 10,
            tls: crate::tls::ServerTls::Disable,
            latency_us: 0,
            trouble: None,
        })
    }

    fn config(mode: GuardMode) -> RuntimeConfig {
        let (writer, reader) = (HostgroupId(10), HostgroupId(20));
        let to = |rule_id, pattern: &str, hostgroup| RuleRow {
            rule_id,
            match_digest: Some(pattern.into()),
            destination_hostgroup: Some(hostgroup),
            apply: true,
            ..RuleRow::default()
        };
        let other = RuleRow { username: Some("root".into()), ..to(1, "^SELECT", writer) };
        let later = RuleRow { flag_in: 7, ..to(2, "^SELECT", writer) };
        let no = RuleRow {
            rule_id: 3,
            match_pattern: Some("forbidden".into()),
            error_msg: Some("no".into()),
            apply: true,
            ..RuleRow::default()
        };
        let rules = vec![other, later, no, to(4, "^SELECT", reader)];
        let user = User {
            name: "app".into(),
            password: String::new(),
            additional_password: None,
            require_tls: false,
            default_hostgroup: writer,
            default_schema: None,
            transaction_persistent: true,
            max_connections: 1,
        };
        let group = |id, servers| (id, Arc::new(Hostgroup { id, servers }));
        let side = ProtocolConfig {
            users: HashMap::from([("app".to_owned(), Arc::new(user))]),
            hostgroups: HashMap::from([
                group(writer, vec![server(writer, "w", 1, ServerStatus::Online)]),
                group(reader, vec![server(reader, "a", 0, ServerStatus::Online), server(reader, "b", 5, ServerStatus::Shunned)]),
            ]),
            rules: Arc::new(RuleSet::compile(rules, CompileOptions::default()).unwrap().0),
            domains: vec![Domain { writer, reader }],
            variables: Arc::new(Variables { routing_guard: mode, ..Variables::default() }),
            ..ProtocolConfig::default()
        };
        RuntimeConfig { index: 1, revision: 1, mysql: Arc::new(side), pgsql: Arc::default() }
    }

    fn told(mode: GuardMode, sql: &str, user: &str) -> Vec<String> {
        let proxy = ("127.0.0.1".to_owned(), 6033);
        let question =
            Question { protocol: Protocol::Mysql, sql: sql.into(), user: user.into(), schema: None, client: "127.0.0.1".into(), proxy };
        let steps = explain(&config(mode), &[], &question);
        let line = |step: Step| {
            let rule = step.rule_id.map_or(String::new(), |rule| format!(" {}", rule.0));
            format!("{}{rule} | {} | {} | {}", step.kind, step.result, step.detail, step.effect)
        };
        steps.into_iter().skip(1).map(line).collect()
    }

    const NOT_ROOT: &str = "rule 1 | not matched | username: 'app' is not 'root' | ";
    const LATER: &str = "rule 2 | skipped | flagIN 7, current 0 | ";
    const ALLOWED: &str = "rule 3 | not matched | match_pattern: no match | ";
    const TO_READER: &str = "rule 4 | applied | apply=1: the last rule | destination_hostgroup=20";

    #[test]
    fn a_read_is_followed_to_its_candidates() {
        let want = [
            NOT_ROOT,
            LATER,
            ALLOWED,
            TO_READER,
            "guard | kept | may run on reader hostgroup 20 of writer 10 | hostgroup 20",
            "server | not eligible | a:3306 ONLINE weight 0, connections 0 of 10, latency 0 us | weight 0: never chosen",
            "server | not eligible | b:3306 SHUNNED weight 5, connections 0 of 10, latency 0 us | shunned",
        ];
        assert_eq!(told(GuardMode::Redirect, "SELECT 1", "app"), want);
    }

    #[test]
    fn the_guard_says_its_part() {
        let sql = "SELECT 1 FROM t FOR UPDATE";
        let redirected = "guard | redirected | a locking read | hostgroup 10";
        let writer = "server | eligible | w:3306 ONLINE weight 1, connections 0 of 10, latency 0 us | chosen by weight";
        assert_eq!(told(GuardMode::Redirect, sql, "app"), [NOT_ROOT, LATER, ALLOWED, TO_READER, redirected, writer]);
        let refused = told(GuardMode::Reject, sql, "app");
        assert!(refused[4].starts_with("guard | refused | a locking read | error: routing guard"), "{refused:?}");
        assert_eq!(refused.len(), 5);
        let off = told(GuardMode::Off, sql, "app");
        assert_eq!(off[4], "guard | kept | a locking read (routing_guard is off) | hostgroup 20");
    }

    #[test]
    fn answers_defaults_pins_and_strangers() {
        let last = |sql, user| told(GuardMode::Redirect, sql, user).pop().unwrap();
        assert_eq!(last("UPDATE forbidden SET a = 1", "app"), "answer | refused | error_msg of a rule | error: no");
        assert_eq!(last("COMMIT", "app"), "answer | applied | no transaction is open | OK");
        let default = told(GuardMode::Redirect, "UPDATE t SET a = @x", "app");
        assert_eq!(default[4], "default | applied | no rule names a hostgroup: default_hostgroup of 'app' | hostgroup 10");
        assert_eq!(default[5], "guard | kept | hostgroup 10 is no reader of a pair | hostgroup 10");
        assert!(default[6].starts_with("pin | applied | ") && default[6].contains("USER_VARIABLE"), "{default:?}");
        assert!(last("UPDATE t SET a = 1", "").contains("say USER"), "{}", last("UPDATE t SET a = 1", ""));
        assert!(last("UPDATE t SET a = 1", "bob").contains("no active user 'bob'"));
    }
}
