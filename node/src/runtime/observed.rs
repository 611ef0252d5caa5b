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
        self.0.get(&(protocol, host.to_owned(), port)).cloned().unwrap_or(Seen::Nothing)
    }

    /// Whether nothing that places servers differs.
    pub(crate) fn same_but_for_latency(&self, other: &Self) -> bool {
        let place = |seen: &Seen| match seen {
            Seen::Nothing => None,
            Seen::Probed { read_only, reachable, .. } => Some((*read_only, *reachable)),
        };
        self.0.len() == other.0.len() && self.0.iter().all(|(server, seen)| other.0.get(server).map(place) == Some(place(seen)))
    }
}

impl FromIterator<((Protocol, String, u16), Seen)> for Observed {
    fn from_iter<I: IntoIterator<Item = ((Protocol, String, u16), Seen)>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_times_alone_are_no_move() {
        let one = |read_only, latency_us| {
            Observed::from_iter([(
                (Protocol::Mysql, "a".to_owned(), 1),
                Seen::Probed { read_only, reachable: true, latency_us, trouble: None },
            )])
        };
        assert!(one(Some(true), 5).same_but_for_latency(&one(Some(true), 6)));
        assert!(!one(Some(true), 5).same_but_for_latency(&one(Some(false), 5)));
        assert!(!one(Some(true), 5).same_but_for_latency(&Observed::default()));
    }
}
