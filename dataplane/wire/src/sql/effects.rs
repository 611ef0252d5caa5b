//! What a statement does to, or needs from, the session state that lives in a server connection.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// A set of effects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Effects(u32);

macro_rules! effects {
    ($($(#[$doc:meta])* $name:ident = $bit:expr;)*) => {
        impl Effects {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)*

            const NAMES: &[(&str, Self)] = &[$((stringify!($name), Self::$name)),*];
        }
    };
}

effects! {
    /// Names a user variable (`@a`), to read or to write it.
    USER_VARIABLE = 0;
    /// Creates a temporary table, view or sequence that outlives the statement.
    TEMP_TABLE = 1;
    /// Takes a connection-level lock: GET_LOCK, `pg_advisory_lock` and its kin (not `_xact_`).
    LOCK = 2;
    /// LOCK TABLES, FLUSH TABLES WITH READ LOCK, LOCK INSTANCE, BACKUP STAGE.
    LOCK_TABLES = 3;
    /// UNLOCK TABLES: ends `LOCK_TABLES`.
    UNLOCK_TABLES = 4;
    /// MySQL: gives back every connection-level lock, and does nothing else: `SELECT RELEASE_ALL_LOCKS()`.
    RELEASE_LOCKS = 5;
    /// Reads LAST_INSERT_ID() or @@identity; in PostgreSQL currval() or lastval().
    LAST_INSERT_ID = 6;
    /// Says SQL_CALC_FOUND_ROWS.
    CALC_FOUND_ROWS = 7;
    /// Reads FOUND_ROWS() or ROW_COUNT().
    FOUND_ROWS = 8;
    /// PREPARE as text, or in PostgreSQL `PREPARE n AS`.
    PREPARE_TEXT = 9;
    /// EXECUTE of a statement that was prepared as text.
    EXECUTE_TEXT = 10;
    /// LISTEN.
    LISTEN = 11;
    /// UNLISTEN * or UNLISTEN of a channel.
    UNLISTEN = 12;
    /// SHOW WARNINGS, SHOW COUNT(*) WARNINGS, SHOW ERRORS, @@warning_count: needs the connection of the last statement.
    SHOW_WARNINGS = 13;
    /// More than one statement in the text.
    MULTI = 14;
    /// DISCARD ALL.
    DISCARD_ALL = 15;
    /// DISCARD TEMP.
    DISCARD_TEMP = 16;
    /// DECLARE … WITH HOLD.
    HOLD_CURSOR = 17;
    /// SET ROLE, SET SESSION AUTHORIZATION, SET RESOURCE GROUP.
    ROLE = 18;
    /// nextval(): later currval() needs the same connection. MariaDB: takes a value of a sequence, or tells the last one.
    NEXTVAL = 19;
    /// Calls set_config(), which sets a parameter without SET.
    SET_CONFIG = 20;
    /// HANDLER … OPEN.
    HANDLER = 21;
    /// XA: the branch belongs to the connection until it is prepared.
    XA = 22;
    /// setseed() or SET SEED.
    SEED = 23;
    /// LOAD 'library', ALTER SYSTEM: changes the server process for good.
    LOAD_LIBRARY = 24;
    /// DO or another body that may change the session in ways that the text hides (it names LISTEN, TEMP or set_config).
    HIDDEN = 25;
    /// Too deeply nested, or a comment or string that servers of different versions read differently.
    AMBIGUOUS = 26;
    /// SET TRANSACTION, SET LOCAL: for the transaction only.
    TRANSACTION_SETTING = 27;
    /// CLOSE, DEALLOCATE, pg_advisory_unlock, DROP of a temporary object: a pin may be over.
    MAY_UNPIN = 28;
    /// LOAD DATA LOCAL INFILE: the server will ask the client for a file.
    LOCAL_INFILE = 29;
    /// PostgreSQL: SET or RESET of something that outlives the transaction, also among several statements.
    SESSION_SETTING = 30;
    /// PostgreSQL: calls a function that is none of the server's own, or runs a procedure or block: what it leaves in the session does not
    /// show in the text.
    CALLS_UNKNOWN = 31;
}

impl Effects {
    /// No effect.
    pub const NONE: Self = Self(0);

    /// Effects that tie the session to its server connection, or need a connection that it is tied to: a statement with
    /// one of them is not plain for the routing guard (design.md section 12 "Data plane").
    pub const PINS: Self = Self(
        Self::USER_VARIABLE.0
            | Self::TEMP_TABLE.0
            | Self::LOCK.0
            | Self::LOCK_TABLES.0
            | Self::LAST_INSERT_ID.0
            | Self::CALC_FOUND_ROWS.0
            | Self::FOUND_ROWS.0
            | Self::PREPARE_TEXT.0
            | Self::EXECUTE_TEXT.0
            | Self::LISTEN.0
            | Self::HOLD_CURSOR.0
            | Self::ROLE.0
            | Self::NEXTVAL.0
            | Self::SET_CONFIG.0
            | Self::HANDLER.0
            | Self::XA.0
            | Self::SEED.0
            | Self::LOAD_LIBRARY.0
            | Self::HIDDEN.0
            | Self::AMBIGUOUS.0,
    );

    /// True if no bit is set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if all bits of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if any bit of `other` is set.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The bits, for a compact copy in a registry of statements.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl BitOr for Effects {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Effects {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Effects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_set();
        for (name, bit) in Self::NAMES {
            if self.contains(*bit) {
                list.entry(&format_args!("{name}"));
            }
        }
        list.finish()
    }
}
