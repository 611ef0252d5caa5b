//! What a statement is, as far as routing needs to know.

/// Class of one statement, or of all statements of one text together (see [`Class::join`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Class {
    /// Nothing but blanks, comments and semicolons.
    #[default]
    Empty,
    /// Reads without locking rows: SELECT, VALUES, TABLE, `WITH … SELECT`, `EXPLAIN` without ANALYZE, `COPY … TO STDOUT`.
    Read,
    /// A SELECT with `FOR UPDATE`, `FOR SHARE`, `LOCK IN SHARE MODE` and the like.
    LockingRead,
    /// INSERT, UPDATE, DELETE, REPLACE, MERGE, LOAD DATA, `COPY … FROM`, a SELECT that writes a file, a table or a sequence.
    Write,
    /// Definition and maintenance: CREATE, ALTER, DROP, TRUNCATE, GRANT, ANALYZE, VACUUM, NOTIFY, LOCK …
    Ddl,
    /// Begins, ends or divides a transaction.
    Transaction(Transaction),
    /// SET in all its forms, and PostgreSQL's RESET. [`super::parse_mysql_set`] and [`super::parse_pgsql_set`] read the assignments.
    Set,
    /// SHOW, HELP, and what only concerns the connection it is sent on (PostgreSQL: DISCARD, DEALLOCATE, CLOSE, FETCH, MOVE, UNLISTEN).
    Neutral,
    /// MySQL's `USE db`.
    Use,
    /// CALL.
    Call,
    /// MySQL's KILL.
    Kill,
    /// Anything else, anything not understood, several statements of different kinds: never a plain read.
    Other,
}

/// Which transaction control statement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transaction {
    /// BEGIN, START TRANSACTION.
    Begin {
        /// It says READ ONLY (PostgreSQL: and not SERIALIZABLE, which a standby refuses).
        read_only: bool,
    },
    /// COMMIT, END.
    Commit,
    /// ROLLBACK, ABORT.
    Rollback,
    /// SAVEPOINT, RELEASE, ROLLBACK TO.
    Savepoint,
    /// XA (MySQL), PREPARE TRANSACTION, COMMIT PREPARED, ROLLBACK PREPARED (PostgreSQL).
    TwoPhase,
}

impl Class {
    /// True where a reader may run the statement (effects are judged apart: [`super::Effects::PINS`]).
    #[must_use]
    pub const fn is_plain_read(self) -> bool {
        matches!(self, Self::Read | Self::Transaction(Transaction::Begin { read_only: true }))
    }

    /// True where the routing guard has no say: the statement concerns the connection, not the data.
    /// SET is not among them: whether it was absorbed or creates a pin is the session's knowledge.
    #[must_use]
    pub const fn is_neutral(self) -> bool {
        matches!(
            self,
            Self::Empty
                | Self::Neutral
                | Self::Use
                | Self::Transaction(Transaction::Commit | Transaction::Rollback | Transaction::Savepoint)
        )
    }

    /// Class of two statements that are sent in one text: reads and neutral statements together are a read, equal classes
    /// stay what they are (but for transaction control), all else is [`Class::Other`].
    #[must_use]
    pub const fn join(self, next: Self) -> Self {
        match (self, next) {
            (Self::Empty, class) | (class, Self::Empty) => class,
            (Self::Read, Self::Read | Self::Neutral) | (Self::Neutral, Self::Read) => Self::Read,
            (Self::Neutral, Self::Neutral) => Self::Neutral,
            (Self::Set, Self::Set) => Self::Set,
            (Self::Write, Self::Write) => Self::Write,
            (Self::Ddl, Self::Ddl) => Self::Ddl,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_reads_stay_a_read_and_mixtures_do_not() {
        let begin = Class::Transaction(Transaction::Begin { read_only: true });
        let table = [
            (Class::Empty, Class::Read, Class::Read),
            (Class::Read, Class::Empty, Class::Read),
            (Class::Read, Class::Neutral, Class::Read),
            (Class::Neutral, Class::Neutral, Class::Neutral),
            (Class::Read, Class::Write, Class::Other),
            (Class::Read, Class::LockingRead, Class::Other),
            (begin, Class::Read, Class::Other),
            (Class::Set, Class::Set, Class::Set),
        ];
        for (a, b, want) in table {
            assert_eq!(a.join(b), want, "{a:?} then {b:?}");
        }
    }
}
