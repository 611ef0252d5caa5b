//! The part of a session that follows the client from connection to connection.

use super::names::Names;
use super::pins::Pins;
use super::statements::Statements;
use super::tracked::Variables;

/// One client's logical state.
#[derive(Debug)]
pub(crate) struct SessionState {
    /// Schema, never validated here: a missing one shows when a statement reaches a server.
    pub(crate) schema: String,
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
    /// Last insert id that a server told.
    pub(crate) last_insert_id: u64,
    /// Prepared statements.
    pub(crate) statements: Statements,
    /// Why the connection in hand is kept.
    pub(crate) pins: Pins,
}

impl SessionState {
    /// The state after login.
    pub(crate) fn new(schema: String, login_charset: u8, multi_statements: bool) -> Self {
        Self {
            schema,
            autocommit: true,
            names: Names::Login(login_charset),
            variables: Variables::new(),
            login_charset,
            multi_statements,
            no_backslash_escapes: false,
            last_insert_id: 0,
            statements: Statements::default(),
            pins: Pins::default(),
        }
    }

    /// COM_RESET_CONNECTION: everything but the schema returns to its value after login.
    pub(crate) fn reset(&mut self, multi_statements: bool) {
        *self = Self::new(std::mem::take(&mut self.schema), self.login_charset, multi_statements);
    }
}
