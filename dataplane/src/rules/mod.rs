//! Query rules: rows, compiled form, evaluation (mysql-dataplane.md 7.3, pgsql-dataplane.md 5.2).
//!
//! [`RuleSet::compile`] turns rows into matchers once per configuration; `RuleSet::evaluate` runs a statement through
//! them. What is decided by the digest, the user, the schema and the listener alone is decided once per combination and
//! remembered in the worker's [`VerdictCache`] as the list of rules still to be tried; `client_addr`, `match_pattern` and
//! flags are tried per statement. A text that is known remembers its last combination itself, so that nothing is hashed. Hit
//! counters count as without the cache.

mod cache;
mod compile;
mod evaluate;
mod explain;
mod pattern;

use crate::config::{HostgroupId, RuleId};

pub(crate) use cache::LastVerdict;
pub use cache::VerdictCache;
pub use compile::{CompileOptions, RuleError, RuleSet};
pub use evaluate::{Decision, Input};
pub use explain::{Tried, Verdict};

/// The columns of an active `*_query_rules` row that have an effect; `None` = the column is NULL.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleRow {
    /// `rule_id`; evaluation is in ascending order.
    pub rule_id: i64,
    /// `username`, exact; an empty text means any.
    pub username: Option<String>,
    /// `schemaname` or `database`, exact.
    pub schemaname: Option<String>,
    /// `flagIN`.
    pub flag_in: u32,
    /// `client_addr`, exact or a prefix with one trailing `%`.
    pub client_addr: Option<String>,
    /// `proxy_addr`.
    pub proxy_addr: Option<String>,
    /// `proxy_port`.
    pub proxy_port: Option<u16>,
    /// `digest`, parsed from `0x` and 16 hex digits.
    pub digest: Option<u64>,
    /// `match_digest`.
    pub match_digest: Option<String>,
    /// `match_pattern`.
    pub match_pattern: Option<String>,
    /// `negate_match_pattern`.
    pub negate_match_pattern: bool,
    /// `re_modifiers` contains CASELESS.
    pub caseless: bool,
    /// `flagOUT`.
    pub flag_out: Option<u32>,
    /// `destination_hostgroup`.
    pub destination_hostgroup: Option<HostgroupId>,
    /// `apply`.
    pub apply: bool,
    /// `error_msg`.
    pub error_msg: Option<String>,
    /// `OK_msg`.
    pub ok_msg: Option<String>,
    /// `multiplex`: 0, 1 or 2.
    pub multiplex: Option<u8>,
}

impl RuleSet {
    /// Ids of the rules in evaluation order; hit counters have this length and order.
    pub fn ids(&self) -> impl Iterator<Item = RuleId> + '_ {
        self.rules.iter().map(|rule| rule.id)
    }
}

#[cfg(test)]
mod tests;
