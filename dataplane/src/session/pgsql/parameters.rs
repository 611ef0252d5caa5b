//! The parameters of a session that holds a connection, with the way back that a transaction needs (pgsql-dataplane.md 3.7).

use std::sync::Arc;

use super::changes::Change;
use super::settings::Settings;

/// Parameters that a server reports when they change, and that a client can change.
const REPORTED: [&str; 7] =
    ["application_name", "client_encoding", "datestyle", "default_transaction_read_only", "intervalstyle", "search_path", "timezone"];
/// Savepoints that are followed.
const SAVEPOINTS: usize = 1000;

/// What the client wants and what the connection has. They differ only behind a RESET of what the client asked for at start-up.
#[derive(Clone, Debug)]
struct Pair {
    want: Arc<Settings>,
    have: Arc<Settings>,
}

/// The parameters of an attached session.
#[derive(Debug)]
pub(crate) struct Parameters {
    start: Arc<Settings>,
    now: Pair,
    /// As they were when the transaction began, if it has changed any.
    before: Option<Pair>,
    savepoints: Vec<(String, Pair)>,
    /// Names and values of which the client was told ahead of the connection.
    ahead: Vec<(String, String)>,
}

/// What the client is told of a parameter that its server reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Telling {
    /// The server's message.
    AsItIs,
    /// Nothing: it knows.
    Nothing,
    /// This value in place of the server's.
    Value(String),
}

/// A change cannot be followed: the session must keep its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotFollowed;

impl Parameters {
    /// Of a session that asked for `start`, and whose connection has just been given what it wants.
    pub(crate) fn new(start: &Arc<Settings>, want: &Arc<Settings>) -> Self {
        let now = Pair { want: Arc::clone(want), have: Arc::clone(want) };
        Self { start: Arc::clone(start), now, before: None, savepoints: Vec::new(), ahead: Vec::new() }
    }

    /// What the client wants.
    pub(crate) fn want(&self) -> &Arc<Settings> {
        &self.now.want
    }

    /// What the connection has.
    pub(crate) fn have(&self) -> &Arc<Settings> {
        &self.now.have
    }

    /// Statements that give the connection what the client wants; `None` = it has it.
    pub(crate) fn align(&self) -> Option<String> {
        if Arc::ptr_eq(&self.now.want, &self.now.have) { None } else { self.now.want.align(&self.now.have) }
    }

    /// They were run.
    pub(crate) fn on_aligned(&mut self) {
        self.remember();
        self.now.have = Arc::clone(&self.now.want);
    }

    /// A statement has succeeded.
    ///
    /// # Errors
    /// What it did cannot be followed.
    pub(crate) fn apply(&mut self, change: &Change) -> Result<(), NotFollowed> {
        match change {
            Change::Set(settings) => {
                for setting in settings {
                    if let Some(value) = &setting.value {
                        self.set(&setting.name, value)?;
                    }
                }
            }
            Change::Reset(name) => {
                self.remember();
                Arc::make_mut(&mut self.now.have).remove(name);
                let want = Arc::make_mut(&mut self.now.want);
                match self.start.get(name) {
                    Some(value) => want.set(name, value),
                    None => want.remove(name),
                }
            }
            Change::ResetAll => {
                self.remember();
                self.now = Pair { want: Arc::clone(&self.start), have: Arc::default() };
            }
            Change::Savepoint(name) => {
                if self.savepoints.len() == SAVEPOINTS {
                    return Err(NotFollowed);
                }
                self.savepoints.push((name.clone(), self.now.clone()));
            }
            Change::RollbackTo(name) => {
                let index = self.savepoints.iter().rposition(|(known, _)| known == name).ok_or(NotFollowed)?;
                self.savepoints.truncate(index + 1);
                self.now = self.savepoints[index].1.clone();
            }
            // What is bound has been resolved; by the simple protocol it is an error.
            Change::Unfollowed | Change::Unnamed | Change::Bound(_) => return Err(NotFollowed),
            Change::Nothing
            | Change::Role(_)
            | Change::Authorization(_)
            | Change::UnlistenAll
            | Change::Prepare(_)
            | Change::Deallocate(_)
            | Change::DeallocateAll => {}
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), NotFollowed> {
        if !self.now.want.has_room_for(name) || !self.now.have.has_room_for(name) {
            return Err(NotFollowed);
        }
        self.remember();
        Arc::make_mut(&mut self.now.have).set(name, value);
        let want = Arc::make_mut(&mut self.now.want);
        want.set(name, value);
        if want.can_be_said() { Ok(()) } else { Err(NotFollowed) }
    }

    fn remember(&mut self) {
        if self.before.is_none() {
            self.before = Some(self.now.clone());
        }
    }

    /// The transaction, an implicit one included, has been committed.
    pub(crate) fn commit(&mut self) {
        self.before = None;
        self.savepoints.clear();
    }

    /// It has been rolled back.
    pub(crate) fn roll_back(&mut self) {
        if let Some(before) = self.before.take() {
            self.now = before;
        }
        self.savepoints.clear();
    }

    /// DISCARD ALL.
    pub(crate) fn discard(&mut self) {
        self.now = Pair { want: Arc::clone(&self.start), have: Arc::default() };
        self.commit();
    }

    /// The server reports that `name` is `value`; `before` is what it reported last. Where the client wants what the connection is only given
    /// before the next unit (behind a RESET of what it asked for at start-up), it is told what it wants, as if it had the connection for itself.
    pub(crate) fn tell(&mut self, name: &str, before: Option<&str>, value: &str) -> Telling {
        let index = self.ahead.iter().position(|(known, _)| known == name);
        let ahead = index.map(|index| self.ahead.swap_remove(index).1);
        let pending = self.pending(&name.to_ascii_lowercase()).map(str::to_owned);
        if ahead.is_none() && pending.is_none() {
            return Telling::AsItIs;
        }
        if let Some(pending) = &pending {
            self.ahead.push((name.to_owned(), pending.clone()));
        }
        let value = pending.unwrap_or_else(|| value.to_owned());
        if ahead.as_deref().or(before) == Some(&value) { Telling::Nothing } else { Telling::Value(value) }
    }

    /// What the connection is still to be given of `name`.
    fn pending(&self, name: &str) -> Option<&str> {
        let Pair { want, have } = &self.now;
        if Arc::ptr_eq(want, have) { None } else { want.get(name).filter(|wanted| have.get(name) != Some(wanted)) }
    }

    /// Outside a transaction the server says that `name` is `value`; on a fresh connection it said `default`. What did not come by a SET that was
    /// followed came by a function, and is the client's all the same.
    ///
    /// # Errors
    /// It cannot be followed.
    pub(crate) fn observe(&mut self, name: &str, value: &str, default: Option<&str>) -> Result<(), NotFollowed> {
        let name = name.to_ascii_lowercase();
        if name == "standard_conforming_strings" {
            let expected = self.now.have.get(&name).or(default);
            return if expected.is_none_or(|expected| same(&name, expected, value)) { Ok(()) } else { Err(NotFollowed) };
        }
        if !REPORTED.contains(&name.as_str()) || self.now.have.get(&name).or(default).is_some_and(|known| same(&name, known, value)) {
            return Ok(());
        }
        self.set(&name, value)?;
        self.commit();
        Ok(())
    }
}

/// Whether two spellings of a value are surely the same value.
fn same(name: &str, one: &str, other: &str) -> bool {
    let plain = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>();
    match name {
        "client_encoding" | "datestyle" | "intervalstyle" => plain(one) == plain(other),
        "timezone" => one.eq_ignore_ascii_case(other),
        "default_transaction_read_only" | "standard_conforming_strings" => is_on(one) == is_on(other),
        _ => one == other,
    }
}

/// A boolean as PostgreSQL reads it, of what it has accepted.
fn is_on(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text == "1" || text == "on" || "true".starts_with(&text) || "yes".starts_with(&text)
}

#[cfg(test)]
mod tests {
    use super::super::changes::{Setting, changes};
    use super::*;
    use quorumsql_wire::sql::{Class, Effects};

    fn settings(pairs: &[(&str, &str)]) -> Arc<Settings> {
        Arc::new(Settings::from_startup(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()).0)
    }

    fn fresh(start: &[(&str, &str)]) -> Parameters {
        let start = settings(start);
        Parameters::new(&start, &start)
    }

    fn run(parameters: &mut Parameters, sql: &str) {
        for change in changes(sql.as_bytes(), Class::Other, Effects::MULTI).unwrap() {
            parameters.apply(&change).unwrap();
        }
    }

    #[test]
    fn transactions_and_savepoints_lead_back() {
        let mut parameters = fresh(&[("a", "0")]);
        run(&mut parameters, "SET b = 1; SAVEPOINT s; SET a = 2; SAVEPOINT t; SET a = 3; ROLLBACK TO s");
        assert_eq!(parameters.want(), &settings(&[("a", "0"), ("b", "1")]));
        run(&mut parameters, "SET a = 4; ROLLBACK TO s; SET c = 5");
        assert_eq!(parameters.want(), &settings(&[("a", "0"), ("b", "1"), ("c", "5")]));
        parameters.roll_back();
        assert_eq!(parameters.want(), &settings(&[("a", "0")]));
        run(&mut parameters, "SET a = 6");
        parameters.commit();
        parameters.roll_back();
        assert_eq!((parameters.want().get("a"), parameters.align()), (Some("6"), None));
        assert_eq!(parameters.apply(&Change::RollbackTo("s".into())), Err(NotFollowed), "it ended with its transaction");
    }

    #[test]
    fn a_reset_leads_to_what_was_asked_for_at_start_up() {
        let mut parameters = fresh(&[("a", "0")]);
        run(&mut parameters, "SET a = 1; RESET a");
        assert_eq!((parameters.want().get("a"), parameters.have().get("a")), (Some("0"), None));
        assert_eq!(parameters.align().as_deref(), Some("SELECT pg_catalog.set_config(E'a', E'0', false)"));
        parameters.on_aligned();
        assert_eq!(parameters.align(), None);
        run(&mut parameters, "SET b = 1; RESET ALL");
        assert_eq!((parameters.want().get("a"), parameters.want().get("b"), parameters.have().get("a")), (Some("0"), None, None));
        parameters.discard();
        assert_eq!(parameters.want(), &settings(&[("a", "0")]));
    }

    #[test]
    fn a_client_is_told_of_its_own_start_up_values_only() {
        let mut parameters = fresh(&[("application_name", "mine")]);
        let value = |text: &str| Telling::Value(text.into());
        run(&mut parameters, "SET application_name = 'x'");
        assert_eq!(parameters.tell("application_name", Some("mine"), "x"), Telling::AsItIs);
        run(&mut parameters, "RESET ALL");
        assert_eq!(parameters.tell("TimeZone", Some("UTC"), "GMT"), Telling::AsItIs);
        assert_eq!(parameters.tell("application_name", Some("x"), ""), value("mine"));
        run(&mut parameters, "RESET application_name");
        assert_eq!(parameters.tell("application_name", Some(""), ""), Telling::Nothing, "said once more, as by old servers");
        parameters.on_aligned();
        assert_eq!(parameters.tell("application_name", Some(""), "mine"), Telling::Nothing);
        run(&mut parameters, "RESET ALL");
        assert_eq!(parameters.tell("application_name", Some("mine"), ""), Telling::Nothing);
        run(&mut parameters, "SET application_name = 'y'");
        assert_eq!(parameters.tell("application_name", Some(""), "y"), value("y"));
        assert_eq!(parameters.tell("application_name", Some("y"), "z"), Telling::AsItIs);
    }

    #[test]
    fn what_a_function_has_set_is_seen_by_its_report() {
        let mut parameters = fresh(&[("client_encoding", "'utf-8'")]);
        let steps = [
            ("client_encoding", "UTF8", Some("UTF8"), None),
            ("TimeZone", "GMT", Some("GMT"), None),
            ("in_hot_standby", "on", Some("off"), None),
            ("TimeZone", "Asia/Tokyo", Some("GMT"), Some("Asia/Tokyo")),
            ("TimeZone", "GMT", Some("GMT"), Some("GMT")),
        ];
        for (name, value, default, expected) in steps {
            parameters.observe(name, value, default).unwrap();
            assert_eq!(parameters.want().get("timezone"), expected, "{name} {value}");
        }
        assert_eq!(parameters.want().get("client_encoding"), Some("'utf-8'"));
        assert_eq!(parameters.observe("standard_conforming_strings", "off", Some("on")), Err(NotFollowed));
    }

    #[test]
    fn values_beyond_the_client_encoding_are_not_followed() {
        for steps in [[("search_path", "日本"), ("client_encoding", "LATIN1")], [("client_encoding", "LATIN1"), ("app.x", "é")]] {
            let mut parameters = fresh(&[]);
            let set = |(name, value): (&str, &str)| Change::Set(vec![Setting { name: name.into(), value: Some(value.into()) }]);
            assert_eq!(parameters.apply(&set(("client_encoding", "UTF8"))), Ok(()));
            assert_eq!(parameters.apply(&set(steps[0])), Ok(()), "{steps:?}");
            assert_eq!(parameters.apply(&set(steps[1])), Err(NotFollowed), "{steps:?}");
        }
    }

    #[test]
    fn settings_are_bounded() {
        let mut parameters = fresh(&[]);
        let outcome = (0..1000)
            .map(|number| Setting { name: format!("a.x{number}"), value: Some(String::new()) })
            .try_for_each(|setting| parameters.apply(&Change::Set(vec![setting])));
        assert_eq!(outcome, Err(NotFollowed));
    }
}
