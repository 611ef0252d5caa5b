//! What ties a session to its server connection beyond a transaction (pgsql-dataplane.md 3.9).

use quorumsql_wire::sql::Effects;

/// Reasons that a statement makes when it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PinSet(u16);

impl PinSet {
    /// None.
    pub(crate) const NONE: Self = Self(0);

    /// Adds one.
    pub(crate) fn add(&mut self, pin: Pin) {
        self.0 |= pin.bit();
    }

    /// Adds those of another statement.
    pub(crate) fn join(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Reasons for which a client keeps its connection until what made them is over, it disconnects or discards all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pins {
    held: u16,
    /// Those of statements whose answers are due: they may turn out never to have run.
    sent: u16,
    /// Those that are over once the transaction is committed.
    over: u16,
}

/// One reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pin {
    /// A setting that is not followed.
    Set,
    /// The same, and it may be an application's own, which its server remembers to its end.
    Unnamed,
    /// Temporary objects.
    Temporary,
    /// Advisory locks.
    Lock,
    /// LISTEN.
    Listen,
    /// Statements that were prepared as text.
    Prepare,
    /// Cursors WITH HOLD.
    Cursor,
    /// SET ROLE.
    Role,
    /// SET SESSION AUTHORIZATION.
    Authorization,
    /// setseed().
    Seed,
    /// LOAD.
    Library,
    /// A body that may do any of this.
    Hidden,
    /// Sequence state (`currval`), for some statements.
    Sequence,
    /// A rule says `multiplex=0`.
    Rule,
}

impl Pin {
    const ALL: [(Self, &'static str); 14] = [
        (Self::Set, "SET"),
        (Self::Unnamed, "SET of an unknown name"),
        (Self::Temporary, "temporary table"),
        (Self::Lock, "advisory lock"),
        (Self::Listen, "LISTEN"),
        (Self::Prepare, "PREPARE"),
        (Self::Cursor, "WITH HOLD cursor"),
        (Self::Role, "role"),
        (Self::Authorization, "session authorization"),
        (Self::Seed, "random seed"),
        (Self::Library, "LOAD"),
        (Self::Hidden, "statement body that may change the session"),
        (Self::Sequence, "sequence state"),
        (Self::Rule, "rule"),
    ];
    /// Pins that a statement makes by being run. Settings, roles and sequences are judged by how it ends.
    const BY_EFFECT: [(Effects, Self); 8] = [
        (Effects::TEMP_TABLE, Self::Temporary),
        (Effects::LOCK, Self::Lock),
        (Effects::LISTEN, Self::Listen),
        (Effects::PREPARE_TEXT, Self::Prepare),
        (Effects::HOLD_CURSOR, Self::Cursor),
        (Effects::SEED, Self::Seed),
        (Effects::LOAD_LIBRARY, Self::Library),
        (Effects::HIDDEN, Self::Hidden),
    ];

    /// What a server can be asked about: rows that there are of it as long as what made the pin lives. Everything that is made in the temporary
    /// schema (2615 = pg_namespace) depends on it; that is how the server itself finds what DISCARD TEMP drops.
    const ASKED: [(Self, &'static str); 5] = [
        (
            Self::Temporary,
            "pg_depend WHERE refclassid OPERATOR(pg_catalog.=) 2615 AND refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()",
        ),
        (
            Self::Lock,
            "pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'advisory' AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()",
        ),
        (Self::Listen, "pg_listening_channels()"),
        (Self::Prepare, "pg_prepared_statements WHERE from_sql"),
        (Self::Cursor, "pg_cursors WHERE is_holdable"),
    ];

    const fn bit(self) -> u16 {
        1 << self as u16
    }

    /// The pins that a statement of these effects makes. Where in doubt there is a pin: a needless one costs a connection, a missing one a wrong
    /// answer.
    pub(crate) fn of(effects: Effects) -> PinSet {
        let made = Self::BY_EFFECT.iter().filter(|(effect, _)| effects.intersects(*effect));
        PinSet(made.fold(0, |all, (_, pin)| all | pin.bit()))
    }
}

impl Pins {
    fn all(self) -> u16 {
        self.held | self.sent
    }

    /// Whether nothing ties the session.
    pub(crate) fn is_empty(self) -> bool {
        self.all() == 0
    }

    /// Whether this ties it.
    pub(crate) fn has(self, pin: Pin) -> bool {
        self.all() & pin.bit() != 0
    }

    /// Whether this is all that ties it.
    pub(crate) fn is_only(self, pin: Pin) -> bool {
        self.all() == pin.bit()
    }

    /// A query without rows if all that ties the session, but for a sequence, is over; `None` = something ties it of which no server knows.
    pub(crate) fn question(self) -> Option<String> {
        let all = Pin::ASKED.iter().fold(Pin::Sequence.bit(), |all, (pin, _)| all | pin.bit());
        if self.all() & !all != 0 {
            return None;
        }
        let asked = Pin::ASKED.iter().filter(|(pin, _)| self.has(*pin));
        let parts: Vec<String> = asked.map(|(_, rows)| format!("SELECT 1 FROM pg_catalog.{rows}")).collect();
        (!parts.is_empty()).then(|| format!("{} LIMIT 1", parts.join(" UNION ALL ")))
    }

    /// There were no rows.
    pub(crate) fn remove_asked(&mut self) {
        Pin::ASKED.iter().for_each(|(pin, _)| self.remove(*pin));
    }

    /// Whether the connection holds state of the session that would be lost with it.
    pub(crate) fn hold_state(self) -> bool {
        self.all() & !(Pin::Rule.bit() | Pin::Sequence.bit()) != 0
    }

    /// Whether something is pinned that even DISCARD ALL leaves behind.
    pub(crate) fn outlives_discard(self) -> bool {
        [Pin::Seed, Pin::Library, Pin::Unnamed, Pin::Hidden].into_iter().any(|pin| self.has(pin))
    }

    /// A statement is sent that makes these.
    pub(crate) fn send(&mut self, pins: PinSet) {
        self.sent |= pins.0;
    }

    /// It was run, if only in part.
    pub(crate) fn run(&mut self, pins: PinSet) {
        self.held |= pins.0;
        self.over &= !pins.0;
    }

    /// Nothing is due any more: what was sent and has not run never will.
    pub(crate) fn settle(&mut self) {
        self.sent = 0;
    }

    /// Adds a pin.
    pub(crate) fn add(&mut self, pin: Pin) {
        self.held |= pin.bit();
        self.over &= !pin.bit();
    }

    /// Takes a pin away at once.
    pub(crate) fn remove(&mut self, pin: Pin) {
        self.held &= !pin.bit();
    }

    /// A statement has ended what `pin` stands for; for good only with its transaction.
    pub(crate) fn end(&mut self, pin: Pin) {
        self.over |= pin.bit();
    }

    /// No transaction is open any more, and the last one was committed.
    pub(crate) fn on_commit(&mut self) {
        self.held &= !self.over;
        self.over = 0;
    }

    /// The transaction, or a part of it, was rolled back: what it ended may live on.
    pub(crate) fn on_rollback(&mut self) {
        self.over = 0;
    }

    /// DISCARD ALL ended what lives on the server; a rule's pin stays.
    pub(crate) fn clear(&mut self) {
        self.held &= Pin::Rule.bit();
        self.over = 0;
    }

    /// The reasons, for messages.
    pub(crate) fn reasons(self) -> String {
        Pin::ALL.iter().filter(|(pin, _)| self.has(*pin)).map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_added_named_and_cleared() {
        let mut pins = Pins::default();
        pins.run(Pin::of(Effects::TRANSACTION_SETTING | Effects::MULTI | Effects::MAY_UNPIN | Effects::SESSION_SETTING | Effects::ROLE));
        assert!(pins.is_empty());
        pins.run(Pin::of(Effects::LISTEN));
        pins.run(Pin::of(Effects::TEMP_TABLE));
        pins.add(Pin::Set);
        pins.add(Pin::Rule);
        assert_eq!(pins.reasons(), "SET, temporary table, LISTEN, rule");
        pins.clear();
        assert!(!pins.hold_state());
        assert_eq!(pins.reasons(), "rule");
        for (pin, _) in Pin::ALL {
            pins.add(pin);
        }
        assert_eq!(pins.reasons().split(", ").count(), Pin::ALL.len());
    }

    #[test]
    fn what_never_runs_ties_only_until_nothing_is_due() {
        let mut pins = Pins::default();
        pins.send(Pin::of(Effects::HIDDEN | Effects::LOCK));
        pins.run(Pin::of(Effects::LOCK));
        assert_eq!(pins.reasons(), "advisory lock, statement body that may change the session");
        pins.clear();
        assert!(pins.has(Pin::Hidden), "it may still run");
        pins.settle();
        assert!(pins.is_empty());
    }

    #[test]
    fn a_server_is_asked_about_what_it_knows() {
        let mut pins = Pins::default();
        assert_eq!(pins.question(), None);
        pins.add(Pin::Sequence);
        assert_eq!(pins.question(), None);
        pins.add(Pin::Listen);
        pins.add(Pin::Cursor);
        let question = "SELECT 1 FROM pg_catalog.pg_listening_channels() UNION ALL \
             SELECT 1 FROM pg_catalog.pg_cursors WHERE is_holdable LIMIT 1";
        assert_eq!(pins.question().as_deref(), Some(question));
        pins.add(Pin::Set);
        assert_eq!(pins.question(), None);
        pins.remove(Pin::Set);
        pins.remove_asked();
        assert!(pins.is_only(Pin::Sequence));
    }

    #[test]
    fn what_a_transaction_ends_is_over_when_it_commits() {
        let mut pins = Pins::default();
        pins.add(Pin::Role);
        pins.end(Pin::Role);
        assert!(pins.has(Pin::Role));
        pins.on_rollback();
        pins.on_commit();
        assert!(pins.has(Pin::Role), "RESET ROLE was rolled back");
        pins.end(Pin::Role);
        pins.add(Pin::Role);
        pins.on_commit();
        assert!(pins.has(Pin::Role), "it was set again behind the RESET");
        pins.end(Pin::Role);
        pins.on_commit();
        assert!(pins.is_empty());
    }
}
