//! Why a session keeps its server connection between statements (mysql-dataplane 6.1).

use quorumsql_wire::sql::{Class, Effects};

/// The reasons. *Hard* ones hold the connection whatever comes; *soft* ones give it up when time passes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pins {
    /// A transaction is open, or may be after an error.
    pub(crate) transaction: bool,
    /// Session state that is not tracked; until reset or the end of the session.
    pub(crate) state: bool,
    /// SET TRANSACTION for the next one; until that has ended.
    pub(crate) next_transaction: bool,
    /// GET_LOCK; until RELEASE_ALL_LOCKS.
    pub(crate) locks: bool,
    /// LOCK TABLES; until UNLOCK TABLES.
    pub(crate) tables: bool,
    /// Client's ids of the statements with an open cursor.
    pub(crate) cursors: Vec<u32>,
    /// The last statement left warnings that SHOW WARNINGS would tell.
    pub(crate) warnings: bool,
    /// SQL_CALC_FOUND_ROWS; until a statement after it.
    pub(crate) found_rows: bool,
    /// Statements for which an insert id keeps the connection.
    pub(crate) insert_id: u32,
}

/// Effects after which the connection is the session's until reset.
const STATE: [Effects; 11] = [
    Effects::USER_VARIABLE,
    Effects::TEMP_TABLE,
    Effects::PREPARE_TEXT,
    Effects::EXECUTE_TEXT,
    Effects::HOLD_CURSOR,
    Effects::ROLE,
    Effects::HANDLER,
    Effects::XA,
    Effects::NEXTVAL,
    Effects::HIDDEN,
    Effects::AMBIGUOUS,
];

/// Whether a statement got an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failed {
    No,
    Yes,
}

/// A statement's part in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    /// Class.
    pub(crate) class: Class,
    /// Effects.
    pub(crate) effects: Effects,
    /// A SET that pins nothing: tracked, or global only.
    pub(crate) harmless_set: bool,
    /// A SET of one assignment: it fails as a whole.
    pub(crate) single_set: bool,
    /// `multiplex` of the matching rule.
    pub(crate) multiplex: Option<u8>,
    /// The connection reports changes of session state by itself.
    pub(crate) server_tracks: bool,
}

impl Sent {
    /// It shows the warnings or the error of the statement before it, or may.
    pub(crate) fn reads_diagnostics(&self) -> bool {
        const READERS: [Effects; 3] = [Effects::SHOW_WARNINGS, Effects::EXECUTE_TEXT, Effects::HIDDEN];
        self.class == Class::Call || READERS.iter().any(|effect| self.effects.contains(*effect))
    }
}

impl Pins {
    /// Holds the connection whatever the next statement is.
    pub(crate) fn hard(&self) -> bool {
        self.transaction || self.beyond_transaction()
    }

    /// Hard, by more than a transaction.
    pub(crate) fn beyond_transaction(&self) -> bool {
        self.state || self.next_transaction || self.locks || self.tables || !self.cursors.is_empty()
    }

    /// Keeps the connection for a few statements or a while, not until the session ends.
    pub(crate) fn soft(&self) -> bool {
        self.warnings || self.found_rows || self.insert_id > 0
    }

    /// Any reason.
    pub(crate) fn any(&self) -> bool {
        self.hard() || self.soft()
    }

    /// Drops the soft reasons.
    pub(crate) fn drop_soft(&mut self) {
        self.warnings = false;
        self.found_rows = false;
        self.insert_id = 0;
    }

    /// A statement is about to run: soft reasons end with it.
    pub(crate) fn before(&mut self, effects: Effects) {
        if !effects.contains(Effects::SHOW_WARNINGS) {
            self.warnings = false;
        }
        self.found_rows = false;
        self.insert_id = self.insert_id.saturating_sub(1);
    }

    /// Whether a transaction is open now.
    pub(crate) fn in_transaction(&mut self, open: bool) {
        if self.transaction && !open {
            self.next_transaction = false;
        }
        self.transaction = open;
    }

    /// A statement has been sent; its text says what it leaves behind, for the most part whether it succeeded or not.
    pub(crate) fn after(&mut self, sent: Sent, failed: Failed) {
        let Sent { class, effects, .. } = sent;
        let mut state = STATE.iter().any(|effect| effects.contains(*effect));
        if effects.contains(Effects::TRANSACTION_SETTING) {
            self.next_transaction |= failed == Failed::No;
        } else if class == Class::Set && !sent.harmless_set && !(sent.single_set && failed == Failed::Yes) {
            state = true;
        }
        if !sent.server_tracks && (effects.contains(Effects::MULTI) && class == Class::Other || class == Class::Call) {
            state = true;
        }
        match sent.multiplex {
            Some(0) => self.state = true,
            Some(1) => self.state = state,
            // The operator vouches for user variables, SETs and sequences of this statement.
            Some(2) if class == Class::Set || effects.intersects(Effects::USER_VARIABLE | Effects::NEXTVAL) => {}
            _ => self.state |= state,
        }
        if effects.contains(Effects::LOCK_TABLES) {
            self.tables = true;
        } else if effects.contains(Effects::UNLOCK_TABLES) && failed == Failed::No {
            self.tables = false;
        }
        if effects.contains(Effects::LOCK) {
            self.locks = true;
        } else if effects.contains(Effects::RELEASE_LOCKS) && failed == Failed::No {
            self.locks = false;
        }
        self.found_rows = effects.contains(Effects::CALC_FOUND_ROWS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(class: Class, effects: Effects) -> Sent {
        Sent { class, effects, harmless_set: false, single_set: false, multiplex: None, server_tracks: true }
    }

    #[test]
    fn what_pins_until_reset() {
        for effect in STATE {
            let mut pins = Pins::default();
            pins.after(sent(Class::Read, effect), Failed::No);
            assert!(pins.state && pins.hard(), "{effect:?}");
            pins.before(Effects::NONE);
            assert!(pins.hard());
        }
        let mut pins = Pins::default();
        pins.after(sent(Class::Set, Effects::NONE), Failed::No);
        assert!(pins.state);
    }

    #[test]
    fn what_pins_nothing() {
        for case in [
            sent(Class::Read, Effects::NONE),
            sent(Class::Write, Effects::LAST_INSERT_ID),
            Sent { harmless_set: true, ..sent(Class::Set, Effects::NONE) },
            Sent { multiplex: Some(2), ..sent(Class::Set, Effects::NONE) },
            sent(Class::Call, Effects::NONE),
        ] {
            let mut pins = Pins::default();
            pins.after(case, Failed::No);
            assert!(!pins.any(), "{case:?}");
        }
        let mut pins = Pins::default();
        pins.after(Sent { server_tracks: false, ..sent(Class::Call, Effects::NONE) }, Failed::No);
        assert!(pins.state, "an old server does not say what a procedure changed");
    }

    #[test]
    fn tables_stay_locked_until_unlocked() {
        let mut pins = Pins::default();
        pins.after(sent(Class::Ddl, Effects::LOCK_TABLES), Failed::No);
        pins.after(sent(Class::Write, Effects::NONE), Failed::No);
        assert!(pins.tables);
        pins.after(sent(Class::Ddl, Effects::UNLOCK_TABLES), Failed::No);
        assert!(!pins.any());
    }

    #[test]
    fn soft_reasons_end_with_statements() {
        let mut pins = Pins { warnings: true, insert_id: 2, ..Pins::default() };
        pins.before(Effects::SHOW_WARNINGS);
        assert!(pins.warnings && pins.insert_id == 1);
        pins.before(Effects::NONE);
        assert!(!pins.any());
    }

    #[test]
    fn rules_decide_multiplexing() {
        let mut pins = Pins::default();
        pins.after(Sent { multiplex: Some(0), ..sent(Class::Read, Effects::NONE) }, Failed::No);
        assert!(pins.state);
        pins.after(Sent { multiplex: Some(1), ..sent(Class::Read, Effects::NONE) }, Failed::No);
        assert!(!pins.state);
    }

    #[test]
    fn reasons_that_end_by_themselves() {
        let mut pins = Pins::default();
        pins.after(sent(Class::Read, Effects::LOCK), Failed::No);
        assert!(pins.hard());
        pins.after(sent(Class::Read, Effects::RELEASE_LOCKS), Failed::No);
        assert!(!pins.any());
        pins.after(sent(Class::Ddl, Effects::LOCK_TABLES), Failed::No);
        pins.after(sent(Class::Neutral, Effects::UNLOCK_TABLES), Failed::Yes);
        assert!(pins.hard(), "a syntax error");
        pins.after(sent(Class::Neutral, Effects::UNLOCK_TABLES), Failed::No);
        assert!(!pins.any());
        let setting = sent(Class::Set, Effects::TRANSACTION_SETTING);
        pins.after(setting, Failed::Yes);
        assert!(!pins.any(), "the server did not take it");
        pins.after(setting, Failed::No);
        assert!(pins.hard());
        pins.in_transaction(true);
        assert!(pins.beyond_transaction());
        pins.in_transaction(false);
        assert!(!pins.any());
    }

    #[test]
    fn a_single_set_that_fails_leaves_nothing() {
        for (single_set, failed, state) in [(true, Failed::Yes, false), (false, Failed::Yes, true), (true, Failed::No, true)] {
            let mut pins = Pins::default();
            pins.after(Sent { single_set, ..sent(Class::Set, Effects::NONE) }, failed);
            assert_eq!(pins.state, state);
        }
    }
}
