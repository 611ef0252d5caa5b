//! What this node has seen of each server, as the rest of `runtime` asks for it.

use std::collections::HashMap;

use quorumsql_dataplane::config::Protocol;

use super::placement::Seen;

/// Observations by server. Never replicated, saved or hashed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Observed(HashMap<(Protocol, String, u16), Seen>);

impl Observed {
    /// What is known of one server.
    pub(crate) fn seen(&self, protocol: Protocol, host: &str, port: u16) -> Seen {
        self.0.get(&(protocol, host.to_owned(), port)).copied().unwrap_or(Seen::Nothing)
    }
}

impl FromIterator<((Protocol, String, u16), Seen)> for Observed {
    fn from_iter<I: IntoIterator<Item = ((Protocol, String, u16), Seen)>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}
