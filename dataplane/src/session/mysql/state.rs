//! The part of a session that follows the client from connection to connection.

use std::sync::Arc;

use quorumsql_wire::mysql::ErrPacket;
use quorumsql_wire::sql::Effects;

use super::names::{Names, NamesChange};
use super::pins::Pins;
use super::set::Absorbed;
use super::statements::{Setting, Statements};
use super::tracked::{self, Variables};
use crate::origin::Origin;

/// `LAST_INSERT_ID()` of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct InsertId {
    /// The value.
    pub(crate) value: u64,
    /// The value is what an OK told, which a row with an explicit id has, too: the connection knows better.
    pub(crate) doubtful: bool,
}

/// What `FOUND_ROWS()`, `ROW_COUNT()` and SHOW WARNINGS tell of the last statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Last {
    /// Rows of the last result.
    pub(crate) found_rows: u64,
    /// Rows that the last statement changed; -1 after a result and after an error.
    pub(crate) row_count: i64,
    /// Its error.
    pub(crate) error: Option<ErrPacket>,
    /// Its number in the session: a connection that knows it has these counts.
    pub(crate) number: u64,
}

impl Last {
    /// Before the first statement.
    pub(crate) const NOTHING: Self = Self { found_rows: 0, row_count: 0, error: None, number: 0 };

    /// The statement did not get as far as to run.
    pub(crate) fn failed(&mut self, error: ErrPacket) {
        self.error = Some(error);
        self.counted(-1, None);
    }

    /// The statement was answered here, with so many rows.
    pub(crate) fn local(&mut self, rows: Option<u64>) {
        self.error = None;
        self.counted(if rows.is_some() { -1 } else { 0 }, rows);
    }

    /// A statement has ended with these counts; without rows, `FOUND_ROWS()` stays.
    pub(crate) fn counted(&mut self, row_count: i64, found_rows: Option<u64>) {
        self.row_count = row_count;
        self.found_rows = found_rows.unwrap_or(self.found_rows);
        self.number += 1;
    }
}

/// One client's logical state.
#[derive(Debug)]
pub(crate) struct SessionState {
    /// Whose it is. The schema is that of the login, which may not exist, or the last that a server took.
    pub(crate) origin: Arc<Origin>,
    /// `autocommit`.
    pub(crate) autocommit: bool,
    /// Character set and collation.
    pub(crate) names: Names,
    /// Tracked variables that differ from the server's defaults.
    pub(crate) variables: Variables,
    /// Collation id of the handshake, to which COM_RESET_CONNECTION returns.
    pub(crate) login_charset: u8,
    /// MULTI_STATEMENTS, changed by COM_SET_OPTION.
    pub(crate) multi_statements: bool,
    /// `NO_BACKSLASH_ESCAPES` as the last answer's status told.
    pub(crate) no_backslash_escapes: bool,
    /// The last answer's status told `ANSI_QUOTES`.
    pub(crate) tells_ansi_quotes: bool,
    /// `LAST_INSERT_ID()`.
    pub(crate) last_insert_id: InsertId,
    /// What the last statement left behind, where a server would remember it.
    pub(crate) last: Last,
    /// Prepared statements.
    pub(crate) statements: Statements,
    /// Why the connection in hand is kept.
    pub(crate) pins: Pins,
}

/// The part of it that a connection is brought to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal<'a> {
    /// Schema.
    pub(crate) schema: &'a str,
    /// `autocommit`.
    pub(crate) autocommit: bool,
    /// Character set and collation.
    pub(crate) names: &'a Names,
    /// Tracked variables.
    pub(crate) variables: &'a Variables,
    /// MULTI_STATEMENTS.
    pub(crate) multi_statements: bool,
    /// What the last statement left behind.
    pub(crate) last: &'a Last,
}

impl<'a> Goal<'a> {
    /// The same, but for what a statement was prepared under.
    pub(crate) fn under(self, setting: &'a Setting) -> Self {
        Self { schema: &setting.schema, names: &setting.names, variables: &setting.variables, ..self }
    }
}

impl SessionState {
    /// Where a connection is brought to for it.
    pub(crate) fn goal(&self) -> Goal<'_> {
        let Self { origin, autocommit, names, variables, multi_statements, last, .. } = self;
        Goal { schema: &origin.schema, autocommit: *autocommit, names, variables, multi_statements: *multi_statements, last }
    }

    /// What a statement is prepared under now.
    pub(crate) fn setting(&self) -> Setting {
        Setting::new(&self.origin.schema, &self.names, &self.variables)
    }

    /// The state after login.
    pub(crate) fn new(origin: Arc<Origin>, login_charset: u8, multi_statements: bool) -> Self {
        Self {
            origin,
            autocommit: true,
            names: Names::login(login_charset),
            variables: Variables::new(),
            login_charset,
            multi_statements,
            no_backslash_escapes: false,
            tells_ansi_quotes: false,
            last_insert_id: InsertId::default(),
            last: Last::NOTHING,
            statements: Statements::default(),
            pins: Pins::default(),
        }
    }

    /// COM_RESET_CONNECTION: everything returns to its value after login, but the schema and what `FOUND_ROWS()` and
    /// `ROW_COUNT()` tell, as on servers.
    pub(crate) fn reset(&mut self) {
        let last = Last { error: None, ..self.last };
        let statements = self.statements.forgotten();
        *self = Self { last, statements, ..Self::new(Arc::clone(&self.origin), self.login_charset, self.multi_statements) };
        self.names = Names::reset(self.login_charset);
    }

    /// CLIENT_IGNORE_SPACE at login sets a mode. It is not left to the login at a server, because a connection loses it when it
    /// is reset.
    pub(crate) fn ignore_space(&mut self) {
        let mode = "CONCAT_WS(',', NULLIF(@@GLOBAL.sql_mode, ''), 'IGNORE_SPACE')";
        self.variables.insert(tracked::SQL_MODE, mode.to_owned());
    }

    /// Remembers what an absorbed SET says.
    pub(crate) fn absorb(&mut self, absorbed: &Absorbed) {
        if let Some(autocommit) = absorbed.autocommit {
            self.autocommit = autocommit;
        }
        for change in &absorbed.names {
            self.names.apply(NamesChange::clone(change), &self.origin.schema);
        }
        tracked::apply(&mut self.variables, &absorbed.variables);
        if absorbed.variables.iter().any(|(name, _)| *name == tracked::SQL_MODE)
            && let Some(mode) = self.variables.get(tracked::SQL_MODE)
        {
            self.no_backslash_escapes = tracked::has_mode(mode, "NO_BACKSLASH_ESCAPES");
            self.tells_ansi_quotes &= tracked::has_mode(mode, "ANSI_QUOTES");
        }
    }

    /// Double quotes hold names.
    pub(crate) fn ansi_quotes(&self) -> bool {
        self.variables.get(tracked::SQL_MODE).is_some_and(|mode| tracked::has_mode(mode, "ANSI_QUOTES"))
    }

    /// The statement reads `LAST_INSERT_ID()`, by name or because `sql_auto_is_null` is on.
    pub(crate) fn reads_insert_id(&self, effects: Effects) -> bool {
        effects.contains(Effects::LAST_INSERT_ID) || self.variables.contains_key("sql_auto_is_null")
    }
}
