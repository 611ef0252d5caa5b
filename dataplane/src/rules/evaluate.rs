//! A statement through the rules.

use std::rc::Rc;
use std::sync::Arc;

use regex::bytes::SetMatches;

use super::cache::{LastVerdict, MAX_TEXT, VerdictCache};
use super::compile::{Rule, RuleSet};
use super::pattern::Pattern;
use crate::config::HostgroupId;
use crate::origin::Origin;

/// What rules can match on.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Who asks.
    pub origin: &'a Arc<Origin>,
    /// Digest hash.
    pub digest: u64,
    /// Digest text.
    pub digest_text: &'a [u8],
    /// The statement as the client sent it, or as it was prepared.
    pub sql: &'a [u8],
}

/// What the rules said; a later matching rule overwrites an earlier one column by column.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decision {
    /// `destination_hostgroup`; `None` = the user's default.
    pub destination: Option<HostgroupId>,
    /// Position of the rule that gave the destination, for the counter of the routing guard.
    pub destination_rule: Option<usize>,
    /// `error_msg`: do not run, answer with this error.
    pub error_msg: Option<Arc<str>>,
    /// `OK_msg`: do not run, answer OK; comes before `error_msg`.
    pub ok_msg: Option<Arc<str>>,
    /// `multiplex`.
    pub multiplex: Option<u8>,
    /// A matching rule had `apply = 1`.
    pub applied: bool,
}

impl RuleSet {
    /// Evaluates the rules ([`RuleSet::explain`] is the same without memory); `hit` is called with the position of every rule that
    /// matches. `last` belongs to the text and is tried first. Allocates only for a combination of digest, user, schema and listener
    /// that neither knows.
    pub(crate) fn evaluate(&self, input: &Input<'_>, last: &LastVerdict, cache: &mut VerdictCache, hit: impl FnMut(usize)) -> Decision {
        if self.rules.is_empty() {
            return Decision::default();
        }
        if let Some(entry) = last.get(self.stamp, input) {
            return self.run(input, &entry.candidates, hit);
        }
        if input.digest_text.len() > MAX_TEXT {
            return self.run(input, &self.candidates(input), hit);
        }
        let entry = match cache.find(self.stamp, input) {
            Some(entry) => Rc::clone(entry),
            None => cache.insert(input, self.candidates(input)),
        };
        let decision = self.run(input, &entry.candidates, hit);
        last.set(input.origin, entry);
        decision
    }

    /// Tries the rules at `candidates`, whose static criteria hold.
    fn run(&self, input: &Input<'_>, candidates: &[u32], mut hit: impl FnMut(usize)) -> Decision {
        let mut decision = Decision::default();
        let mut flag = 0;
        for position in candidates.iter().map(|position| *position as usize) {
            let Some(rule) = self.rules.get(position) else { break };
            if rule.flag_in != flag || !rule.matches_dynamic(input) {
                continue;
            }
            hit(position);
            rule.write(position, &mut decision);
            if rule.apply {
                decision.applied = true;
                break;
            }
            flag = rule.flag_out.unwrap_or(flag);
        }
        decision
    }

    /// Positions of the rules that digest, user, schema and listener do not exclude, up to the one that surely ends it.
    fn candidates(&self, input: &Input<'_>) -> Box<[u32]> {
        let in_set = self.digests.as_ref().map(|set| set.matches(input.digest_text));
        let mut positions = Vec::new();
        let mut flag_is_zero = true;
        for (position, rule) in self.rules.iter().enumerate() {
            if (flag_is_zero && rule.flag_in != 0) || !rule.matches_static(input, in_set.as_ref()) {
                continue;
            }
            positions.push(position as u32);
            if flag_is_zero && rule.apply && rule.is_static() {
                break;
            }
            flag_is_zero &= rule.flag_out.is_none_or(|flag| flag == 0);
        }
        positions.into()
    }
}

impl Rule {
    /// User, schema, listener, digest, `match_digest`.
    fn matches_static(&self, input: &Input<'_>, in_set: Option<&SetMatches>) -> bool {
        let origin = input.origin;
        let equal = |wanted: &Option<Box<str>>, value: &str| wanted.as_ref().is_none_or(|wanted| **wanted == *value);
        equal(&self.user, &origin.user)
            && equal(&self.schema, &origin.schema)
            && equal(&self.proxy_addr, &origin.proxy_addr)
            && self.proxy_port.is_none_or(|port| port == origin.proxy_port)
            && self.digest.is_none_or(|digest| digest == input.digest)
            && match (in_set, self.in_set) {
                (Some(matches), Some(number)) => matches.matched(number) != self.negate,
                _ => self.pattern_holds(self.match_digest.as_ref(), input.digest_text),
            }
    }

    /// Client address, `match_pattern`.
    fn matches_dynamic(&self, input: &Input<'_>) -> bool {
        self.client.as_ref().is_none_or(|client| client.matches(&input.origin.client_addr))
            && self.pattern_holds(self.match_pattern.as_ref(), input.sql)
    }

    /// A pattern that could not be tried to its end does not hold, negated or not.
    fn pattern_holds(&self, pattern: Option<&Pattern>, text: &[u8]) -> bool {
        pattern.is_none_or(|pattern| pattern.is_match(text).is_some_and(|found| found != self.negate))
    }

    pub(super) fn write(&self, position: usize, decision: &mut Decision) {
        if self.destination.is_some() {
            decision.destination = self.destination;
            decision.destination_rule = Some(position);
        }
        if self.error_msg.is_some() {
            decision.error_msg.clone_from(&self.error_msg);
        }
        if self.ok_msg.is_some() {
            decision.ok_msg.clone_from(&self.ok_msg);
        }
        if self.multiplex.is_some() {
            decision.multiplex = self.multiplex;
        }
    }
}
