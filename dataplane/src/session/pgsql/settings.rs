//! Parameters by name and value (pgsql-dataplane.md 2.4, 3.2, 3.7).
//!
//! Those that PostgreSQL accepts only at start-up are part of the pool key. All others are aligned: before a client uses a connection, the
//! difference between what it wants and what the connection has is set in one round trip.

use std::fmt::Write as _;

use quorumsql_wire::pgsql::{backend, frame};

/// Accepted at start-up only, or without effect later.
const START_ONLY: [&str; 8] = [
    "ignore_system_indexes",
    "jit_debugging_support",
    "jit_profiling_support",
    "local_preload_libraries",
    "log_connections",
    "log_disconnections",
    "post_auth_delay",
    "session_preload_libraries",
];
/// Settings that one client may send; PostgreSQL's packet limit allows more only with absurd names.
const LIMIT: usize = 256;

/// Settings by name: names in lower case, sorted, each once.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Settings(Vec<(String, String)>);

impl Settings {
    /// Sorts start-up parameters out: those to align, and those that must be in the start-up packet. A later one wins.
    pub(crate) fn from_startup(parameters: Vec<(String, String)>) -> (Self, Self) {
        let mut all = Vec::<(String, String)>::new();
        for (name, value) in parameters.into_iter().rev().take(LIMIT) {
            if !all.iter().any(|(known, _)| *known == name) {
                all.push((name, value));
            }
        }
        all.sort_unstable();
        let (fixed, aligned) = all.into_iter().partition(|(name, _)| START_ONLY.contains(&name.as_str()));
        (Self(aligned), Self(fixed))
    }

    /// Takes over how a server spells these values in the ParameterStatus messages of its welcome: that is what they go back to.
    pub(crate) fn respell(&mut self, welcome: &[u8]) {
        let mut rest = welcome;
        while !self.0.is_empty()
            && let Ok(Some(frame)) = frame::decode(rest, rest.len())
        {
            rest = &rest[frame.size()..];
            let Ok((name, value)) = backend::decode_parameter_status(frame.body) else { continue };
            let (Ok(name), Ok(value)) = (std::str::from_utf8(name), std::str::from_utf8(value)) else { continue };
            let name = name.to_ascii_lowercase();
            if self.get(&name).is_some() {
                self.set(&name, value);
            }
        }
    }

    /// Why no client can start with these: what they make of the session cannot be given to any connection and taken away again.
    pub(crate) fn unsuitable(&self) -> Option<&'static str> {
        let off = |value: &str| ["off", "false", "no", "0"].iter().any(|off| off.eq_ignore_ascii_case(value.trim()));
        if self.get("search_path").is_some_and(|path| path.to_ascii_lowercase().contains("pg_temp")) {
            return Some("a search_path with pg_temp cannot be a start-up parameter: use SET in the session");
        }
        if self.get("standard_conforming_strings").is_some_and(off) {
            return Some("standard_conforming_strings = off cannot be a start-up parameter: use SET in the session");
        }
        None
    }

    /// Notes a value.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        match self.0.binary_search_by(|(known, _)| known.as_str().cmp(name)) {
            Ok(index) => value.clone_into(&mut self.0[index].1),
            Err(index) => self.0.insert(index, (name.to_owned(), value.to_owned())),
        }
    }

    /// Forgets a value.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// The value of `name`.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok().map(|index| self.0[index].1.as_str())
    }

    /// Whether there is room for another.
    pub(crate) fn has_room_for(&self, name: &str) -> bool {
        self.0.len() < LIMIT || self.get(name).is_some()
    }

    /// Whether a connection can be told of them: statements of ours are UTF-8, which is another text in another `client_encoding`.
    pub(crate) fn can_be_said(&self) -> bool {
        let is_utf8 = |name: &str| matches!(name.trim_matches('\'').to_ascii_lowercase().as_str(), "utf8" | "utf-8" | "unicode");
        self.get("client_encoding").is_none_or(is_utf8) || self.0.iter().all(|(_, value)| value.is_ascii())
    }

    /// Names and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Statements that turn a connection that has `have` into one that has `self`; `None` = nothing to do.
    /// `set_config` reads a value exactly as the start-up packet does, which SET does not (lists, quotes).
    pub(crate) fn align(&self, have: &Self) -> Option<String> {
        if self == have {
            return None;
        }
        let mut sql = String::new();
        for (name, _) in have.iter().filter(|(name, _)| !self.iter().any(|(wanted, _)| wanted == *name)) {
            reset(&mut sql, name);
        }
        let mut separator = "SELECT ";
        for (name, value) in self.iter().filter(|wanted| !have.iter().any(|known| known == *wanted)) {
            let _ = write!(sql, "{separator}pg_catalog.set_config({}, {}, false)", literal(name), literal(value));
            separator = ", ";
        }
        Some(sql)
    }
}

/// Appends the statement that resets a parameter; it makes one of an application's own known.
pub(crate) fn reset(sql: &mut String, name: &str) {
    let _ = write!(sql, "RESET \"{}\"; ", name.replace('"', "\"\""));
}

/// A literal that reads the same whatever `standard_conforming_strings` is.
pub(crate) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        Settings::from_startup(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()).0
    }

    #[test]
    fn the_last_of_equal_names_wins_and_some_stay_at_start_up() {
        let pairs = [("b", "1"), ("a", "2"), ("b", "3"), ("post_auth_delay", "4")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        let (aligned, fixed) = Settings::from_startup(pairs.to_vec());
        assert_eq!(aligned, settings(&[("a", "2"), ("b", "3")]));
        assert_eq!(fixed.iter().collect::<Vec<_>>(), [("post_auth_delay", "4")]);
    }

    #[test]
    fn a_server_spells_values_in_its_own_way() {
        let mut own = settings(&[("timezone", "utc"), ("work_mem", "64")]);
        let mut welcome = Vec::new();
        for (name, value) in [("TimeZone", "UTC"), ("DateStyle", "ISO, MDY")] {
            backend::parameter_status(&mut welcome, name.as_bytes(), value.as_bytes());
        }
        own.respell(&welcome);
        assert_eq!(own, settings(&[("timezone", "UTC"), ("work_mem", "64")]));
    }

    #[test]
    fn what_no_session_can_start_with() {
        for (name, value, refused) in [
            ("search_path", "public, PG_TEMP", true),
            ("search_path", "\"$user\", public", false),
            ("standard_conforming_strings", "Off", true),
            ("standard_conforming_strings", "on", false),
            ("application_name", "pg_temp", false),
        ] {
            assert_eq!(settings(&[(name, value)]).unsuitable().is_some(), refused, "{name} {value}");
        }
    }

    #[test]
    fn values_are_noted_in_order() {
        let mut noted = settings(&[("b", "1")]);
        for (name, value) in [("c", "2"), ("a", "3"), ("b", "4")] {
            noted.set(name, value);
        }
        assert_eq!(noted, settings(&[("a", "3"), ("b", "4"), ("c", "2")]));
        noted.remove("b");
        noted.remove("never");
        assert_eq!((noted.get("a"), noted.get("b")), (Some("3"), None));
    }

    #[test]
    fn only_the_difference_is_set() {
        let cases = [
            (settings(&[]), settings(&[]), None),
            (settings(&[("a", "1")]), settings(&[("a", "1")]), None),
            (settings(&[("a", "1")]), settings(&[]), Some("SELECT pg_catalog.set_config(E'a', E'1', false)")),
            (settings(&[]), settings(&[("a.b", "1")]), Some("RESET \"a.b\"; ")),
            (
                settings(&[("a", "it's"), ("c", "\\"), ("d", "4")]),
                settings(&[("b", "2"), ("d", "4")]),
                Some("RESET \"b\"; SELECT pg_catalog.set_config(E'a', E'it''s', false), pg_catalog.set_config(E'c', E'\\\\', false)"),
            ),
        ];
        for (want, have, expected) in cases {
            assert_eq!(want.align(&have).as_deref(), expected);
        }
    }
}
