//! What a database must offer to be served by both faces.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;

pub(crate) use rusqlite::types::Value;

/// The protocol that the client speaks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Face {
    /// MySQL and MariaDB clients.
    Mysql,
    /// PostgreSQL clients.
    Pgsql,
}

/// Who is logging in, from where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Login {
    /// Protocol.
    pub(crate) face: Face,
    /// User name as sent.
    pub(crate) user: String,
    /// Initial schema or database; empty = none.
    pub(crate) database: String,
    /// Client address.
    pub(crate) peer: IpAddr,
    /// Number of the connection on this listener.
    pub(crate) connection_id: u32,
}

/// What the faces check a password against.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Account {
    /// Clear text, `*HEX` (native), `$A$…` (caching_sha2) or `SCRAM-SHA-256$…`; empty = no password.
    pub(crate) secret: String,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Account(…)")
    }
}

/// What a listener says before and after login.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Parameters {
    /// Version in the MySQL greeting, or `server_version` of PostgreSQL.
    pub(crate) server_version: String,
    /// MySQL: plugin in the greeting.
    pub(crate) default_plugin: String,
    /// PostgreSQL: further `ParameterStatus` pairs.
    pub(crate) pgsql: Vec<(String, String)>,
    /// TLS is not offered by a listener that does not demand it.
    pub(crate) plain: bool,
    /// First words of the texts of failed MySQL logins: `ProxySQL Error: ` or nothing.
    pub(crate) access_denied_prefix: &'static str,
}

/// Flags of the wire that a session decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Status {
    /// A transaction is open.
    pub(crate) in_transaction: bool,
    /// PostgreSQL: the open transaction has failed.
    pub(crate) failed: bool,
    /// MySQL: AUTOCOMMIT.
    pub(crate) autocommit: bool,
    /// Warnings of the last statement.
    pub(crate) warnings: u16,
}

/// How a result column goes over the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ColumnKind {
    /// VAR_STRING / text.
    Text,
    /// BIGINT / int8.
    Integer,
    /// INT / int4. SQLite stores 64 bits in any column: the binary form shows the nearest value that fits.
    Int4,
    /// DOUBLE / float8.
    Real,
    /// BLOB / bytea.
    Blob,
}

/// A result column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Column {
    /// Its name.
    pub(crate) name: String,
    /// Its type on the wire.
    pub(crate) kind: ColumnKind,
}

impl Column {
    /// A text column.
    pub(crate) fn text(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: ColumnKind::Text }
    }
}

/// A result set.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Rows {
    /// Columns.
    pub(crate) columns: Vec<Column>,
    /// Rows; each has as many values as there are columns.
    pub(crate) rows: Vec<Vec<Value>>,
    /// PostgreSQL notices that go before it.
    pub(crate) notices: Vec<String>,
}

impl Rows {
    /// Rows of text columns.
    pub(crate) fn text(names: &[&str], rows: Vec<Vec<Value>>) -> Self {
        Self { columns: names.iter().map(|name| Column::text(*name)).collect(), rows, notices: Vec::new() }
    }
}

/// A statement without a result set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Done {
    /// Affected rows.
    pub(crate) affected: u64,
    /// rowid of the last INSERT; 0 = none.
    pub(crate) last_insert_id: u64,
    /// Info text of the OK packet.
    pub(crate) info: String,
    /// PostgreSQL command tag, e.g. `INSERT 0 1`; empty = the statement's first word.
    pub(crate) tag: String,
    /// PostgreSQL notices.
    pub(crate) notices: Vec<String>,
    /// The server ends the connection after this answer (`PROXYSQL SHUTDOWN`).
    pub(crate) close: bool,
}

/// What a statement answers.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Answer {
    /// A result set.
    Rows(Rows),
    /// None.
    Done(Done),
}

/// What is known of a statement before it runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Description {
    /// Number of parameters.
    pub(crate) parameters: usize,
    /// Result columns; `None` = no result set.
    pub(crate) columns: Option<Vec<Column>>,
}

/// An error in both dialects.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct SqlError {
    /// MySQL error number.
    pub(crate) mysql_code: u16,
    /// MySQL SQLSTATE.
    pub(crate) mysql_state: String,
    /// PostgreSQL SQLSTATE.
    pub(crate) pgsql_state: String,
    /// Text.
    pub(crate) message: String,
}

impl SqlError {
    /// An error with its codes in both dialects.
    pub(crate) fn new(mysql_code: u16, mysql_state: &str, pgsql_state: &str, message: impl Into<String>) -> Self {
        Self { mysql_code, mysql_state: mysql_state.into(), pgsql_state: pgsql_state.into(), message: message.into() }
    }
}

/// A database that both faces can serve.
pub(crate) trait Database: Send + Sync + 'static {
    /// State of one connection.
    type Session: Session;

    /// What listeners of `face` say about themselves. Called once per connection.
    fn parameters(&self, face: Face) -> impl Future<Output = Parameters> + Send;

    /// The account to check the password against; `None` = no such user.
    ///
    /// # Errors
    /// A refusal that needs no password (`User 'admin' can only connect locally`).
    fn account(&self, login: &Login) -> impl Future<Output = Result<Option<Account>, SqlError>> + Send;

    /// The session of a client that has proven who it is.
    ///
    /// # Errors
    /// A refusal (too many sessions).
    fn open(&self, login: Login) -> impl Future<Output = Result<Self::Session, SqlError>> + Send;

    /// Ends what PostgreSQL connection `connection_id` runs; who asks has shown its key.
    fn cancel(&self, connection_id: u32) {
        let _ = connection_id;
    }
}

/// One connection's logical state. If a future is dropped (client gone) its statement is interrupted where it is.
pub(crate) trait Session: Send + 'static {
    /// Executes one statement. `params` are bound to `?` in order, or to `$n` by number.
    fn execute(&mut self, sql: &str, params: &[Value]) -> impl Future<Output = Result<Answer, SqlError>> + Send;

    /// Says what a statement takes and returns, without effects.
    fn describe(&mut self, sql: &str) -> impl Future<Output = Result<Description, SqlError>> + Send;

    /// MySQL's COM_INIT_DB.
    ///
    /// # Errors
    /// No such database.
    fn use_database(&mut self, name: &str) -> Result<(), SqlError>;

    /// Back to the state after login (COM_RESET_CONNECTION, DISCARD ALL).
    ///
    /// # Errors
    /// Not supported here.
    fn reset(&mut self) -> Result<(), SqlError>;

    /// Flags for the next packet.
    fn status(&self) -> Status;
}
