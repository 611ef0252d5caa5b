//! What ties a session to its server connection beyond a transaction (pgsql-dataplane.md 3.9).

use quorumsql_wire::sql::Effects;

/// Reasons for which a client keeps its connection until it disconnects or discards all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pins(u16);

impl Pins {
    const SET: u16 = 1;
    const PREPARE: u16 = 16;
    const ALL: [(u16, Effects, &'static str); 10] = [
        (Self::SET, Effects::SESSION_SETTING, "SET"),
        (2, Effects::TEMP_TABLE, "temporary table"),
        (4, Effects::LOCK, "advisory lock"),
        (8, Effects::LISTEN, "LISTEN"),
        (Self::PREPARE, Effects::PREPARE_TEXT, "PREPARE"),
        (32, Effects::HOLD_CURSOR, "WITH HOLD cursor"),
        (64, Effects::ROLE, "role"),
        (128, Effects::SEED, "random seed"),
        (256, Effects::LOAD_LIBRARY, "LOAD"),
        (512, Effects::HIDDEN, "statement body that may change the session"),
    ];
    /// Sequence state (currval) is a pin, too; it ends as the others do.
    const SEQUENCE: u16 = 1024;
    /// A rule says `multiplex=0`.
    const RULE: u16 = 2048;

    /// Whether nothing ties the session.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds the pins of a statement. Where in doubt there is a pin: a needless one costs a connection, a missing one a wrong answer.
    pub(crate) fn add(&mut self, effects: Effects) {
        for (bit, effect, _) in Self::ALL {
            if effects.intersects(effect) {
                self.0 |= bit;
            }
        }
        if effects.intersects(Effects::NEXTVAL) {
            self.0 |= Self::SEQUENCE;
        }
        if effects.intersects(Effects::SET_CONFIG) {
            self.0 |= Self::SET;
        }
    }

    /// Whether the server may know statements that were prepared as text.
    pub(crate) fn has_text_statements(self) -> bool {
        self.0 & Self::PREPARE != 0
    }

    /// A rule keeps the connection.
    pub(crate) fn add_rule(&mut self) {
        self.0 |= Self::RULE;
    }

    /// A rule lets the connection go (as far as it is concerned).
    pub(crate) fn remove_rule(&mut self) {
        self.0 &= !Self::RULE;
    }

    /// DISCARD ALL ended what lives on the server; a rule's pin stays.
    pub(crate) fn clear(&mut self) {
        self.0 &= Self::RULE;
    }

    /// The reasons, for messages.
    pub(crate) fn reasons(self) -> String {
        let named = Self::ALL.iter().filter(|(bit, ..)| self.0 & bit != 0).map(|(_, _, name)| *name);
        let more = [(Self::SEQUENCE, "sequence state"), (Self::RULE, "rule")];
        named.chain(more.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, name)| *name)).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_added_named_and_cleared() {
        let mut pins = Pins::default();
        pins.add(Effects::TRANSACTION_SETTING | Effects::MULTI | Effects::MAY_UNPIN);
        assert!(pins.is_empty());
        pins.add(Effects::LISTEN);
        pins.add(Effects::TEMP_TABLE | Effects::SESSION_SETTING);
        pins.add_rule();
        assert_eq!(pins.reasons(), "SET, temporary table, LISTEN, rule");
        pins.clear();
        assert_eq!(pins.reasons(), "rule");
    }
}
