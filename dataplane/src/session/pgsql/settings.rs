//! Parameters that a client asked for at start-up (pgsql-dataplane.md 2.4, 3.2, 3.7).
//!
//! Those that PostgreSQL accepts only at start-up are part of the pool key. All others are aligned: before a client uses a connection, the
//! difference between what it wants and what the connection has is set in one round trip.

use std::fmt::Write as _;

use quorumsql_wire::sql::{PgsqlSet, parse_pgsql_set};

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
/// Parameters that are more than a value, or whose value the lexer here depends on.
const UNFOLLOWED: [&str; 5] = ["backslash_quote", "role", "seed", "session_authorization", "standard_conforming_strings"];
/// Longest value that is followed.
const VALUE_LIMIT: usize = 1024;
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

    /// Notes a value.
    pub(crate) fn set(&mut self, setting: &Setting) {
        match self.0.binary_search_by(|(name, _)| name.as_str().cmp(&setting.name)) {
            Ok(index) => self.0[index].1.clone_from(&setting.value),
            Err(index) => self.0.insert(index, (setting.name.clone(), setting.value.clone())),
        }
    }

    /// Whether there is room for more.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= LIMIT
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
            let _ = write!(sql, "RESET \"{}\"; ", name.replace('"', "\"\""));
        }
        let mut separator = "SELECT ";
        for (name, value) in self.iter().filter(|wanted| !have.iter().any(|known| known == *wanted)) {
            let _ = write!(sql, "{separator}pg_catalog.set_config({}, {}, false)", literal(name), literal(value));
            separator = ", ";
        }
        Some(sql)
    }
}

/// A SET that is followed from connection to connection instead of pinning the session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Setting {
    name: String,
    /// As `set_config` takes it.
    value: String,
}

impl Setting {
    /// Reads a SET. `None` = it is none that can be followed: several values where one belongs, DEFAULT, LOCAL, RESET, a role, what
    /// concerns one transaction, or what is written in a way that `set_config` would read differently.
    pub(crate) fn of(sql: &[u8]) -> Option<Self> {
        let Some(PgsqlSet::Parameter { local: false, name, values: Some(values) }) = parse_pgsql_set(sql, false) else { return None };
        let name = name.to_ascii_lowercase();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
        if !name.bytes().all(is_plain) || name.starts_with("transaction_") || UNFOLLOWED.contains(&name.as_str()) {
            return None;
        }
        let value = match (name.as_str(), &values[..]) {
            ("search_path" | "temp_tablespaces", _) => values.iter().map(|value| identifier(value)).collect::<Vec<_>>().join(", "),
            ("datestyle", _) => values.join(", "),
            // A number is an offset whose sign and fraction SET reads in its own way.
            ("timezone", [value]) if !value.starts_with(|first: char| first.is_ascii_alphabetic()) => return None,
            (_, [value]) => value.clone(),
            _ => return None,
        };
        (value.len() <= VALUE_LIMIT).then_some(Self { name, value })
    }
}

/// As PostgreSQL writes a name into a list, only that a keyword needs no quotes here.
fn identifier(name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// A literal that reads the same whatever `standard_conforming_strings` is.
fn literal(text: &str) -> String {
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
    fn which_sets_are_followed() {
        for (sql, expected) in [
            ("SET work_mem = '8MB'", Some(("work_mem", "8MB"))),
            ("set session Work_Mem to 64;", Some(("work_mem", "64"))),
            ("SET search_path = mine, \"Odd\", 'x y'", Some(("search_path", "mine, \"Odd\", \"x y\""))),
            ("SET search_path TO ''", Some(("search_path", "\"\""))),
            ("SET DateStyle = ISO, DMY", Some(("datestyle", "iso, dmy"))),
            ("SET app.tenant = 'it''s'", Some(("app.tenant", "it's"))),
            ("SET TIME ZONE 'Asia/Tokyo'", Some(("timezone", "Asia/Tokyo"))),
            ("SET TIME ZONE -7", None),
            ("SET work_mem = DEFAULT", None),
            ("SET LOCAL work_mem = 64", None),
            ("SET ROLE x", None),
            ("SET transaction_read_only = on", None),
            ("SET standard_conforming_strings = off", None),
            ("RESET ALL", None),
            ("SET a = 1, 2", None),
        ] {
            let setting = Setting::of(sql.as_bytes());
            let expected = expected.map(|(name, value)| Setting { name: name.into(), value: value.into() });
            assert_eq!(
                setting.map(|s| (s.name, s.value.to_ascii_lowercase())),
                expected.map(|s| (s.name, s.value.to_ascii_lowercase())),
                "{sql}"
            );
        }
    }

    #[test]
    fn values_are_noted_in_order() {
        let mut noted = settings(&[("b", "1")]);
        for (name, value) in [("c", "2"), ("a", "3"), ("b", "4")] {
            noted.set(&Setting { name: name.into(), value: value.into() });
        }
        assert_eq!(noted, settings(&[("a", "3"), ("b", "4"), ("c", "2")]));
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
