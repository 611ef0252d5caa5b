use std::sync::{Arc, LazyLock};

use super::*;
use crate::origin::Origin;

fn rule(rule_id: i64) -> RuleRow {
    RuleRow { rule_id, caseless: true, ..RuleRow::default() }
}

fn to(rule_id: i64, match_digest: &str, hostgroup: u32) -> RuleRow {
    let destination_hostgroup = Some(HostgroupId(hostgroup));
    RuleRow { match_digest: Some(match_digest.into()), destination_hostgroup, apply: true, ..rule(rule_id) }
}

fn compile(rows: Vec<RuleRow>) -> RuleSet {
    RuleSet::compile(rows, CompileOptions::default()).unwrap().0
}

fn origin(user: &str, schema: &str, client: &str, proxy_port: u16) -> Origin {
    Origin { user: user.into(), schema: schema.into(), client_addr: client.into(), proxy_addr: "127.0.0.1".into(), proxy_port }
}

fn input(sql: &str) -> Input<'_> {
    static APP: LazyLock<Arc<Origin>> = LazyLock::new(|| Arc::new(origin("app", "shop", "10.1.2.3", 6033)));
    Input { origin: &APP, digest: 7, digest_text: sql.as_bytes(), sql: sql.as_bytes() }
}

/// Decision and positions of the hits, by the cache (twice) and as explained; all must agree.
fn evaluate(rules: &RuleSet, cache: &mut VerdictCache, input: &Input<'_>) -> (Decision, Vec<usize>) {
    let mut hits = [Vec::new(), Vec::new()];
    let (tried, plain) = rules.explain(input);
    let matched = |tried: &Tried| matches!(tried.result, Verdict::Matched | Verdict::Applied);
    let told: Vec<usize> = tried.iter().enumerate().filter(|(_, tried)| matched(tried)).map(|(position, _)| position).collect();
    let fresh = rules.evaluate(input, &LastVerdict::default(), cache, |position| hits[0].push(position));
    let cached = rules.evaluate(input, &LastVerdict::default(), cache, |position| hits[1].push(position));
    assert_eq!((&fresh, &hits[0]), (&plain, &told), "fresh, {input:?}");
    assert_eq!((&cached, &hits[1]), (&plain, &told), "cached, {input:?}");
    (plain, told)
}

fn destination(rules: &RuleSet, sql: &str) -> Option<u32> {
    evaluate(rules, &mut VerdictCache::new(), &input(sql)).0.destination.map(|hostgroup| hostgroup.0)
}

#[test]
fn the_classic_two_rules_split_reads_and_writes() {
    let rules = compile(vec![to(2, "^SELECT", 20), to(1, "^SELECT.*FOR UPDATE", 10)]);
    assert_eq!(rules.ids().collect::<Vec<_>>(), [RuleId(1), RuleId(2)]);
    assert_eq!(destination(&rules, "SELECT ?"), Some(20));
    assert_eq!(destination(&rules, "select a from t for update"), Some(10));
    assert_eq!(destination(&rules, "INSERT INTO t VALUES (?)"), None);
}

#[test]
fn every_criterion_can_exclude() {
    let with = |change: fn(&mut RuleRow)| {
        let mut row = RuleRow { destination_hostgroup: Some(HostgroupId(1)), ..rule(1) };
        change(&mut row);
        compile(vec![row])
    };
    let table: [(&str, RuleSet, bool); 18] = [
        ("user", with(|row| row.username = Some("app".into())), true),
        ("other user", with(|row| row.username = Some("APP".into())), false),
        ("any user", with(|row| row.username = Some(String::new())), true),
        ("schema", with(|row| row.schemaname = Some("shop".into())), true),
        ("other schema", with(|row| row.schemaname = Some("x".into())), false),
        ("flag", with(|row| row.flag_in = 1), false),
        ("client", with(|row| row.client_addr = Some("10.1.2.3".into())), true),
        ("client prefix", with(|row| row.client_addr = Some("10.1.%".into())), true),
        ("any client", with(|row| row.client_addr = Some("%".into())), true),
        ("other client", with(|row| row.client_addr = Some("10.2.%".into())), false),
        ("listener", with(|row| row.proxy_addr = Some("127.0.0.1".into())), true),
        ("other port", with(|row| row.proxy_port = Some(6034)), false),
        ("digest", with(|row| row.digest = Some(7)), true),
        ("other digest", with(|row| row.digest = Some(8)), false),
        ("digest text", with(|row| row.match_digest = Some("^select".into())), true),
        ("case", with(|row| (row.match_digest, row.caseless) = (Some("^select".into()), false)), false),
        ("negated", with(|row| (row.match_digest, row.negate_match_pattern) = (Some("UPDATE".into()), true)), true),
        ("pattern", with(|row| row.match_pattern = Some(r"\bt$".into())), true),
    ];
    for (name, rules, want) in table {
        assert_eq!(destination(&rules, "SELECT a FROM t").is_some(), want, "{name}");
    }
}

#[test]
fn later_rules_overwrite_earlier_ones_column_by_column() {
    let rules = compile(vec![
        RuleRow { destination_hostgroup: Some(HostgroupId(1)), multiplex: Some(0), ..rule(1) },
        RuleRow { destination_hostgroup: Some(HostgroupId(2)), error_msg: Some("no".into()), ..rule(2) },
        RuleRow { ok_msg: Some("yes".into()), apply: true, ..rule(3) },
        RuleRow { destination_hostgroup: Some(HostgroupId(4)), ..rule(4) },
    ]);
    let (decision, hits) = evaluate(&rules, &mut VerdictCache::new(), &input("SELECT ?"));
    assert_eq!(decision.destination, Some(HostgroupId(2)));
    assert_eq!(decision.destination_rule, Some(1));
    assert_eq!((decision.multiplex, decision.error_msg.as_deref(), decision.ok_msg.as_deref()), (Some(0), Some("no"), Some("yes")));
    assert!(decision.applied);
    assert_eq!(hits, [0, 1, 2]);
}

#[test]
fn flags_chain_forwards_only() {
    let rules = compile(vec![
        RuleRow { flag_in: 1, destination_hostgroup: Some(HostgroupId(9)), ..rule(1) },
        RuleRow { match_digest: Some("^SELECT".into()), flag_out: Some(1), ..rule(2) },
        RuleRow { destination_hostgroup: Some(HostgroupId(8)), ..rule(3) },
        RuleRow { flag_in: 1, destination_hostgroup: Some(HostgroupId(7)), flag_out: Some(0), ..rule(4) },
        RuleRow { multiplex: Some(1), ..rule(5) },
    ]);
    let (decision, hits) = evaluate(&rules, &mut VerdictCache::new(), &input("SELECT ?"));
    assert_eq!((decision.destination, hits), (Some(HostgroupId(7)), vec![1, 3, 4]));
    let (decision, hits) = evaluate(&rules, &mut VerdictCache::new(), &input("UPDATE t"));
    assert_eq!((decision.destination, hits), (Some(HostgroupId(8)), vec![2, 4]));
}

#[test]
fn a_bad_row_is_named() {
    let error = |row| RuleSet::compile(vec![rule(1), row], CompileOptions::default()).unwrap_err();
    let bad = error(RuleRow { match_digest: Some("a(b".into()), ..rule(7) });
    assert_eq!(bad.to_string(), "rule_id 7, column match_digest: unclosed group");
    let bad = error(RuleRow { match_pattern: Some("[".into()), ..rule(8) });
    assert_eq!((bad.rule_id, bad.column), (8, "match_pattern"));
    let bad = error(RuleRow { client_addr: Some("10.%.1".into()), ..rule(9) });
    assert_eq!((bad.rule_id, bad.column), (9, "client_addr"));
}

#[test]
fn what_works_but_perhaps_not_as_meant_is_warned_about() {
    let rows = vec![RuleRow { flag_out: Some(5), ..rule(1) }, to(2, "^SELECT(?!.*UPDATE)", 1)];
    let (_, warnings) = RuleSet::compile(rows, CompileOptions::default()).unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("backtracking") && warnings[1].contains("flagIN = 5"), "{warnings:?}");
}

#[test]
fn new_rules_forget_what_the_old_ones_decided() {
    let mut cache = VerdictCache::new();
    let old = compile(vec![to(1, "^SELECT", 20)]);
    let new = compile(vec![to(1, "^SELECT", 30)]);
    assert_eq!(evaluate(&old, &mut cache, &input("SELECT ?")).0.destination, Some(HostgroupId(20)));
    assert_eq!(evaluate(&new, &mut cache, &input("SELECT ?")).0.destination, Some(HostgroupId(30)));
    assert_eq!(cache.len(), 1);
}

#[test]
fn the_cache_is_bounded_and_keeps_what_is_used() {
    let rules = compile(vec![to(1, "^SELECT", 20)]);
    let mut cache = VerdictCache::new();
    for number in 0..20_000 {
        let text = format!("SELECT c{number}");
        rules.evaluate(&Input { digest: number, ..input(&text) }, &LastVerdict::default(), &mut cache, |_| {});
    }
    assert!(cache.len() <= 8192, "{}", cache.len());
    let long = "SELECT ".repeat(10_000);
    let before = cache.len();
    rules.evaluate(&input(&long), &LastVerdict::default(), &mut cache, |_| {});
    assert_eq!(cache.len(), before);
}

/// Few distinct values, so that criteria often hold.
fn random_rule(rule_id: i64, seed: &[u8; 12]) -> RuleRow {
    let pick = |n: usize, values: &[&str]| values.get(usize::from(seed[n]) % (values.len() + 2)).map(|text| (*text).to_owned());
    let optional = |n: usize| seed[n].is_multiple_of(4).then_some(u32::from(seed[n] / 4) % 3);
    RuleRow {
        rule_id,
        username: pick(0, &["app", "root"]),
        schemaname: pick(1, &["shop"]),
        flag_in: u32::from(seed[2] % 5).saturating_sub(2),
        client_addr: pick(3, &["10.%", "10.1.2.3"]).filter(|_| seed[3] >= 128),
        proxy_addr: None,
        proxy_port: seed[4].is_multiple_of(5).then_some(6033 + u16::from(seed[4] % 2)),
        digest: seed[5].is_multiple_of(6).then_some(u64::from(seed[5] % 2)),
        match_digest: pick(6, &["^SELECT", "FOR UPDATE$", "t1", "^(?!SELECT)"]),
        match_pattern: pick(7, &["1", "^.{9}$"]).filter(|_| seed[7] >= 128),
        negate_match_pattern: seed[8].is_multiple_of(4),
        caseless: !seed[8].is_multiple_of(3),
        flag_out: optional(9),
        destination_hostgroup: optional(10).map(HostgroupId),
        apply: seed[11].is_multiple_of(4),
        error_msg: seed[11].is_multiple_of(7).then(|| format!("e{rule_id}")),
        ok_msg: None,
        multiplex: seed[11].is_multiple_of(5).then_some(seed[11] % 3),
    }
}

#[test]
fn cached_and_uncached_evaluation_agree() {
    const TEXTS: [&str; 6] = ["SELECT ?", "select c from t1", "SELECT c FROM t1 FOR UPDATE", "UPDATE t1", "x", ""];
    const SQL: [&str; 3] = ["SELECT 1", "SELECT 2", "UPDATE t1"];
    const USERS: [&str; 3] = ["app", "root", "bob"];
    bolero::check!().with_type::<(Vec<[u8; 12]>, Vec<[u8; 6]>)>().for_each(|(rules, statements)| {
        let rows = rules.iter().take(24).zip(1..).map(|(seed, rule_id)| random_rule(rule_id, seed)).collect();
        let rules = compile(rows);
        let mut cache = VerdictCache::new();
        for seed in statements {
            let pick = |n: usize, count: usize| usize::from(seed[n]) % count;
            let client = ["10.1.2.3", "10.9.9.9", "::1"][pick(2, 3)];
            let from = origin(USERS[pick(0, 3)], ["shop", "x"][pick(1, 2)], client, 6033 + u16::from(seed[3] % 2));
            let statement = Input {
                origin: &Arc::new(from),
                digest: u64::from(seed[4] % 2),
                digest_text: TEXTS[pick(4, 6)].as_bytes(),
                sql: SQL[pick(5, 3)].as_bytes(),
            };
            evaluate(&rules, &mut cache, &statement);
        }
    });
}
