//! Rows → matchers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use regex::bytes::{RegexSet, RegexSetBuilder};

use super::RuleRow;
use super::pattern::Pattern;
use crate::config::{HostgroupId, RuleId};

/// From this many `match_digest` patterns on, one automaton for all replaces trying them one by one.
const SET_FROM: usize = 8;
/// Memory that the automaton of all `match_digest` patterns may take, bytes.
const SET_SIZE_LIMIT: usize = 64 << 20;

/// How rules are compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompileOptions {
    /// `query_processor_regex` = 1: patterns with look-around may use the backtracking engine.
    pub backtracking: bool,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self { backtracking: true }
    }
}

/// A row that cannot be compiled; the whole LOAD is refused with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("rule_id {rule_id}, column {column}: {message}")]
pub struct RuleError {
    /// `rule_id` of the row.
    pub rule_id: i64,
    /// Name of the column.
    pub column: &'static str,
    /// What is wrong with its value.
    pub message: String,
}

/// Compiled rules of one protocol, immutable.
#[derive(Debug, Default)]
pub struct RuleSet {
    pub(super) rules: Vec<Rule>,
    /// All linear `match_digest` patterns in one automaton, if there are many.
    pub(super) digests: Option<RegexSet>,
    /// Tells sets apart for caches; 0 = the empty set.
    pub(super) stamp: u64,
}

/// One rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) id: RuleId,
    pub(super) user: Option<Box<str>>,
    pub(super) schema: Option<Box<str>>,
    pub(super) flag_in: u32,
    pub(super) client: Option<ClientMatch>,
    pub(super) proxy_addr: Option<Box<str>>,
    pub(super) proxy_port: Option<u16>,
    pub(super) digest: Option<u64>,
    pub(super) match_digest: Option<Pattern>,
    /// Its number in [`RuleSet::digests`].
    pub(super) in_set: Option<usize>,
    pub(super) match_pattern: Option<Pattern>,
    pub(super) negate: bool,
    pub(super) flag_out: Option<u32>,
    pub(super) destination: Option<HostgroupId>,
    pub(super) apply: bool,
    pub(super) error_msg: Option<Arc<str>>,
    pub(super) ok_msg: Option<Arc<str>>,
    pub(super) multiplex: Option<u8>,
}

/// `client_addr`.
#[derive(Debug)]
pub(super) enum ClientMatch {
    Exact(Box<str>),
    Prefix(Box<str>),
}

impl ClientMatch {
    pub(super) fn matches(&self, address: &str) -> bool {
        match self {
            Self::Exact(text) => **text == *address,
            Self::Prefix(text) => address.starts_with(&**text),
        }
    }
}

impl Rule {
    /// Nothing about it has to be tried per statement, but for the flag.
    pub(super) fn is_static(&self) -> bool {
        self.client.is_none() && self.match_pattern.is_none()
    }
}

impl RuleSet {
    /// Compiles active rows. The texts are warnings: rules that work, but perhaps not as meant.
    ///
    /// # Errors
    /// The first row, by id, that is invalid.
    pub fn compile(mut rows: Vec<RuleRow>, options: CompileOptions) -> Result<(Self, Vec<String>), RuleError> {
        static STAMPS: AtomicU64 = AtomicU64::new(1);
        rows.sort_by_key(|row| row.rule_id);
        let mut warnings = Vec::new();
        let mut rules = Vec::with_capacity(rows.len());
        let mut set = Vec::new();
        for row in rows {
            let (rule, pattern) = compile_row(row, options, &mut warnings)?;
            rules.push(rule);
            set.extend(pattern.map(|text| (rules.len() - 1, text)));
        }
        warn_about_flags(&rules, &mut warnings);
        let digests = join_patterns(&mut rules, &set, &mut warnings);
        Ok((Self { rules, digests, stamp: STAMPS.fetch_add(1, Ordering::Relaxed) }, warnings))
    }
}

/// The rule, and its `match_digest` if that can be part of the common automaton.
fn compile_row(row: RuleRow, options: CompileOptions, warnings: &mut Vec<String>) -> Result<(Rule, Option<String>), RuleError> {
    let rule_id = row.rule_id;
    let mut compile = |column: &'static str, text: &Option<String>| {
        let Some(text) = text else { return Ok(None) };
        match Pattern::compile(text, row.caseless, options.backtracking) {
            Ok(pattern) => {
                if matches!(pattern, Pattern::Backtracking(_)) {
                    warnings
                        .push(format!("rule_id {rule_id}, column {column}: the pattern needs the backtracking engine, which is slower"));
                }
                Ok(Some(pattern))
            }
            Err(message) => Err(RuleError { rule_id, column, message }),
        }
    };
    let match_digest = compile("match_digest", &row.match_digest)?;
    let match_pattern = compile("match_pattern", &row.match_pattern)?;
    let for_set = match (&match_digest, &row.match_digest) {
        (Some(Pattern::Linear(_)), Some(text)) => Some(Pattern::for_set(text, row.caseless)),
        _ => None,
    };
    let rule = Rule {
        id: RuleId(rule_id),
        user: non_empty(row.username),
        schema: non_empty(row.schemaname),
        flag_in: row.flag_in,
        client: client_match(rule_id, row.client_addr)?,
        proxy_addr: non_empty(row.proxy_addr),
        proxy_port: row.proxy_port,
        digest: row.digest,
        match_digest,
        in_set: None,
        match_pattern,
        negate: row.negate_match_pattern,
        flag_out: row.flag_out,
        destination: row.destination_hostgroup,
        apply: row.apply,
        error_msg: row.error_msg.map(Arc::from),
        ok_msg: row.ok_msg.map(Arc::from),
        multiplex: row.multiplex,
    };
    Ok((rule, for_set))
}

/// An empty text means any, as NULL does.
fn non_empty(text: Option<String>) -> Option<Box<str>> {
    text.filter(|text| !text.is_empty()).map(String::into_boxed_str)
}

fn client_match(rule_id: i64, text: Option<String>) -> Result<Option<ClientMatch>, RuleError> {
    let Some(text) = non_empty(text) else { return Ok(None) };
    match text.find('%') {
        None => Ok(Some(ClientMatch::Exact(text))),
        Some(0) if text.len() == 1 => Ok(None),
        Some(at) if at + 1 == text.len() => Ok(Some(ClientMatch::Prefix(text[..at].into()))),
        Some(_) => Err(RuleError { rule_id, column: "client_addr", message: format!("`%` may only be the last character: {text}") }),
    }
}

/// A flag that only earlier rules accept leads nowhere.
fn warn_about_flags(rules: &[Rule], warnings: &mut Vec<String>) {
    for (position, rule) in rules.iter().enumerate() {
        if let Some(flag) = rule.flag_out
            && !rule.apply
            && !rules[position + 1..].iter().any(|later| later.flag_in == flag)
        {
            warnings.push(format!("rule_id {}: no later rule has flagIN = {flag}", rule.id.0));
        }
    }
}

/// Builds the automaton of all `match_digest` patterns and tells the rules their numbers in it.
fn join_patterns(rules: &mut [Rule], set: &[(usize, String)], warnings: &mut Vec<String>) -> Option<RegexSet> {
    if set.len() < SET_FROM {
        return None;
    }
    let texts = set.iter().map(|(_, text)| text);
    match RegexSetBuilder::new(texts).unicode(false).size_limit(SET_SIZE_LIMIT).build() {
        Ok(automaton) => {
            for (number, (position, _)) in set.iter().enumerate() {
                rules[*position].in_set = Some(number);
            }
            Some(automaton)
        }
        Err(error) => {
            warnings.push(format!("match_digest patterns are tried one by one: {error}"));
            None
        }
    }
}
