//! What the rules do with a statement, rule by rule: the same decision as `RuleSet::evaluate`, with reasons.

use super::compile::{ClientMatch, Rule, RuleSet};
use super::evaluate::{Decision, Input};
use crate::config::RuleId;

/// How one rule took part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tried {
    /// The rule.
    pub rule_id: RuleId,
    /// Whether it matched.
    pub result: Verdict,
    /// What it said of the statement, if it matched.
    pub effect: String,
}

/// Whether a rule matched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It did, and evaluation went on.
    Matched,
    /// It did, and evaluation ended with it.
    Applied,
    /// The first of its criteria that did not hold, with both values.
    NotMatched(String),
    /// It was not looked at: its `flagIN`, and the flag at that moment.
    Skipped(u32, u32),
}

impl RuleSet {
    /// Tries the rules in order up to the one that ends it. Counts no hits.
    #[must_use]
    pub fn explain(&self, input: &Input<'_>) -> (Vec<Tried>, Decision) {
        let (mut tried, mut decision, mut flag) = (Vec::new(), Decision::default(), 0);
        for (position, rule) in self.rules.iter().enumerate() {
            let mut effect = String::new();
            let result = if rule.flag_in != flag {
                Verdict::Skipped(rule.flag_in, flag)
            } else if let Some(reason) = rule.first_failed(input) {
                Verdict::NotMatched(reason)
            } else {
                effect = rule.effect();
                rule.write(position, &mut decision);
                flag = rule.flag_out.unwrap_or(flag);
                decision.applied = rule.apply;
                if rule.apply { Verdict::Applied } else { Verdict::Matched }
            };
            tried.push(Tried { rule_id: rule.id, result, effect });
            if decision.applied {
                break;
            }
        }
        (tried, decision)
    }
}

impl Rule {
    /// The first criterion that does not hold.
    fn first_failed(&self, input: &Input<'_>) -> Option<String> {
        let origin = input.origin;
        let text = |name: &str, wanted: &Option<Box<str>>, value: &str| {
            wanted.as_ref().filter(|wanted| ***wanted != *value).map(|wanted| format!("{name}: '{value}' is not '{wanted}'"))
        };
        let pattern = |name: &str, pattern: Option<&super::pattern::Pattern>, value: &[u8]| {
            let found = pattern?.is_match(value);
            match found {
                None => Some(format!("{name}: given up at the step limit")),
                Some(found) if found == self.negate => {
                    Some(format!("{name}: {}", if found { "matches, and is negated" } else { "no match" }))
                }
                Some(_) => None,
            }
        };
        text("username", &self.user, &origin.user)
            .or_else(|| text("schemaname", &self.schema, &origin.schema))
            .or_else(|| text("proxy_addr", &self.proxy_addr, &origin.proxy_addr))
            .or_else(|| {
                let port = self.proxy_port.filter(|port| *port != origin.proxy_port)?;
                Some(format!("proxy_port: {} is not {port}", origin.proxy_port))
            })
            .or_else(|| {
                let digest = self.digest.filter(|digest| *digest != input.digest)?;
                Some(format!("digest: 0x{:016X} is not 0x{digest:016X}", input.digest))
            })
            .or_else(|| pattern("match_digest", self.match_digest.as_ref(), input.digest_text))
            .or_else(|| {
                let client = self.client.as_ref().filter(|client| !client.matches(&origin.client_addr))?;
                let wanted = match client {
                    ClientMatch::Exact(address) => address.to_string(),
                    ClientMatch::Prefix(prefix) => format!("{prefix}%"),
                };
                Some(format!("client_addr: '{}' is not '{wanted}'", origin.client_addr))
            })
            .or_else(|| pattern("match_pattern", self.match_pattern.as_ref(), input.sql))
    }

    fn effect(&self) -> String {
        let parts = [
            self.destination.map(|hostgroup| format!("destination_hostgroup={}", hostgroup.0)),
            self.error_msg.as_ref().map(|text| format!("error_msg={text}")),
            self.ok_msg.as_ref().map(|text| format!("OK_msg={text}")),
            self.multiplex.map(|multiplex| format!("multiplex={multiplex}")),
            self.flag_out.map(|flag| format!("flagOUT={flag}")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}
