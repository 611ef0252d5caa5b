//! Statement text: digest, routing class and effects, in one call per statement.
//!
//! [`scan_mysql`] and [`scan_pgsql`] look at the bytes of a statement and fill a [`Scan`] that the session reuses, so that
//! a statement costs no allocation. Two readings of the text happen in one call, because they differ on purpose:
//! the *digest* follows the reference's normalisation with its quirks (mysql-dataplane.md 7.1, pgsql-dataplane.md 5.8),
//! since users store its hashes; the *class and effects* come from a lexer that reads the text as the server does,
//! since a wrong route is worse than an error.
//!
//! Nothing here fails or panics, whatever the bytes: text that is not understood is [`Class::Other`]. Nesting is counted,
//! not recursed into; memory is bounded by [`ScanOptions::max_query_length`].

mod bytes;
mod class;
mod collapse;
mod effects;
mod encoding;
mod keyword;
mod mysql;
mod output;
mod pgsql;
mod skeleton;
mod spooky;
mod token;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod vectors;

pub use class::{Class, Transaction};
pub use effects::Effects;
pub use encoding::Encoding;
pub use mysql::{MysqlSet, SetItem, SetScope, SetValue, parse_mysql_set, parse_mysql_use, scan_mysql};
pub use pgsql::{
    PgsqlConfig, PgsqlConfigValue, PgsqlSession, PgsqlSet, PreparedName, PreparedUse, TransactionModes, parse_pgsql_session,
    parse_pgsql_set, pgsql_prepared_names, scan_pgsql, sets_only_plain_names,
};
pub use skeleton::{Dialect, MAX_SKELETON, skeleton};
pub use spooky::spooky_hash64;

/// How digests are made and strings are read; the `*-query_digests_*` variables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanOptions {
    /// `query_digests_lowercase`: ASCII lower case of everything that is copied.
    pub lowercase: bool,
    /// `query_digests_replace_null`: NULL becomes `?`.
    pub replace_null: bool,
    /// `query_digests_no_digits`: digits inside identifiers become `?`.
    pub no_digits: bool,
    /// `query_digests_keep_comment`: block comments stay.
    pub keep_comment: bool,
    /// `query_digests_grouping_limit`: longer lists of values are cut to this many.
    pub grouping_limit: usize,
    /// `query_digests_groups_grouping_limit`: longer lists of tuples are cut to this many; 0 = off.
    pub groups_grouping_limit: usize,
    /// `query_digests_max_query_length`: most bytes of digest text.
    pub max_query_length: usize,
    /// `query_digests_max_digest_length`: most bytes of it that are hashed.
    pub max_digest_length: usize,
    /// Backslash escapes in plain strings: false under MySQL's NO_BACKSLASH_ESCAPES and PostgreSQL's
    /// `standard_conforming_strings=on`. The MySQL digest ignores it, as the reference does.
    pub backslash_escapes: bool,
    /// MySQL's `ANSI_QUOTES`: double quotes hold a name. The digest ignores it, as the reference does.
    pub ansi_quotes: bool,
}

impl ScanOptions {
    /// The reference's defaults for MySQL.
    pub const MYSQL: Self = Self {
        lowercase: false,
        replace_null: false,
        no_digits: false,
        keep_comment: false,
        grouping_limit: 3,
        groups_grouping_limit: 10,
        max_query_length: 65_000,
        max_digest_length: 2048,
        backslash_escapes: true,
        ansi_quotes: false,
    };

    /// The reference's defaults for PostgreSQL.
    pub const PGSQL: Self = Self { backslash_escapes: false, ..Self::MYSQL };
}

/// What is known of one statement text. Kept by the session and filled anew for each.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Normalised text: literals are `?`, blanks and comments folded.
    pub digest_text: Vec<u8>,
    /// SpookyHash of its first `max_digest_length` bytes.
    pub digest: u64,
    /// Class of all statements together.
    pub class: Class,
    /// Class of the first statement that is not empty.
    pub first: Class,
    /// Effects of all statements together.
    pub effects: Effects,
    /// Statements that are not empty.
    pub statements: u32,
    /// One of its statements is [`Class::Write`], whatever the class of all together is.
    pub writes: bool,
    /// It calls nothing and names no variable, so that it cannot ask for anything of its session.
    pub bare: bool,
}

impl Scan {
    /// An empty scan.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the last statement, keeps the buffer.
    fn clear(&mut self) {
        self.digest_text.clear();
        self.digest = 0;
        self.class = Class::Empty;
        self.first = Class::Empty;
        self.effects = Effects::NONE;
        self.statements = 0;
        self.writes = false;
        self.bare = false;
    }

    /// Digest and class are known.
    fn finish(&mut self, options: &ScanOptions) {
        let hashed = self.digest_text.len().min(options.max_digest_length);
        self.digest = spooky_hash64(&self.digest_text[..hashed]);
        let whole = self.digest_text.len() < options.max_query_length;
        self.bare = whole && !self.digest_text.iter().any(|byte| matches!(byte, b'(' | b'@' | b'$'));
    }

    /// Adds one statement of the text.
    fn add(&mut self, class: Class, effects: Effects) {
        if self.statements == 0 {
            self.first = class;
            self.class = class;
        } else {
            self.class = self.class.join(class);
            self.effects |= Effects::MULTI;
        }
        self.statements = self.statements.saturating_add(1);
        self.effects |= effects;
        self.writes |= class == Class::Write;
    }
}
