//! Statements of our own on a connection that nobody else uses at the moment: aligning settings, resetting.

use std::sync::Arc;

use quorumsql_wire::pgsql::backend::{TransactionStatus, tag};
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frontend;
use quorumsql_wire::pgsql::scanner::Step;

use super::{BackendError, PgBackend};
use crate::session::pgsql::custom::CustomNames;
use crate::session::pgsql::responses::ends_connection;
use crate::session::pgsql::settings::{Settings, reset};

/// What a session needs of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'s> {
    /// Its id.
    pub(crate) session: u32,
    pub(crate) settings: &'s Arc<Settings>,
    /// Parameters of its own that it has named: all that the connection knows are among them, and it is to know all of them.
    pub(crate) names: &'s CustomNames,
    /// It looks at sequences, so that somebody else's are in its way.
    pub(crate) reads_sequences: bool,
}

impl PgBackend {
    /// Whether a session can use the connection as it is.
    pub(crate) fn suits(&self, wanted: Wanted<'_>) -> bool {
        let is_foreign = |owner| owner != 0 && owner != wanted.session;
        let has_settings = Arc::ptr_eq(&self.have, wanted.settings) || self.have == *wanted.settings;
        let has_names = self.names.len() == wanted.names.len();
        has_settings && has_names && !is_foreign(self.unsure) && !(wanted.reads_sequences && is_foreign(self.writer))
    }

    /// Makes the connection suit a session.
    ///
    /// # Errors
    /// A value that the server refuses ([`BackendError::Server`]), a lost connection, or one that knows more than the session may see
    /// ([`BackendError::Unsuitable`]); close it in each case.
    pub(crate) async fn adapt(&mut self, wanted: Wanted<'_>) -> Result<(), BackendError> {
        let Wanted { session, settings, names, reads_sequences } = wanted;
        if self.unsure != 0 && self.unsure != session {
            self.reset().await?;
        }
        if !self.names.is_within(names) {
            return Err(BackendError::Unsuitable);
        }
        if reads_sequences && self.writer != session && self.writer != 0 {
            self.run("DISCARD SEQUENCES").await?;
            self.writer = 0;
        }
        let mut sql = String::new();
        for name in names.missing_in(&self.names) {
            reset(&mut sql, name);
        }
        sql.extend(settings.align(&self.have));
        if !sql.is_empty() {
            self.run(&sql).await?;
        }
        self.have = Arc::clone(settings);
        if self.names.len() != names.len() {
            self.names = names.clone();
        }
        Ok(())
    }

    /// Ends what a client left behind: a transaction, then every state of the session.
    ///
    /// # Errors
    /// The connection must be closed.
    pub(crate) async fn reset(&mut self) -> Result<(), BackendError> {
        if self.status != TransactionStatus::Idle {
            self.run("ROLLBACK").await?;
        }
        self.run("DISCARD ALL").await?;
        self.forget_state();
        if std::mem::take(&mut self.unsure) != 0 {
            self.note_names_of_functions().await?;
        }
        Ok(())
    }

    /// Asks whether the server is well: an empty query.
    ///
    /// # Errors
    /// The connection must be closed.
    pub(crate) async fn ping(&mut self) -> Result<(), BackendError> {
        self.run("").await
    }

    /// Runs `sql` by the simple protocol and throws its rows away.
    async fn run(&mut self, sql: &str) -> Result<(), BackendError> {
        self.column(sql, 0).await.map(drop)
    }

    /// Runs `sql` by the simple protocol and returns the first values of at most so many rows. A Query destroys the unnamed statement.
    pub(super) async fn column(&mut self, sql: &str, limit: usize) -> Result<Vec<String>, BackendError> {
        let mut values = Vec::new();
        let mut request = Vec::with_capacity(sql.len() + 6);
        frontend::query(&mut request, sql.as_bytes());
        self.link.send_bytes(&request).await?;
        self.prepared.unnamed = 0;
        let mut refused = None;
        loop {
            let mut chunk = match self.rest.take() {
                Some(mut rest) => {
                    if self.link.recv_more(&mut rest).await? == 0 {
                        return Err(BackendError::Closed);
                    }
                    rest
                }
                None => self.link.recv().await?,
            };
            if chunk.is_empty() {
                return Err(BackendError::Closed);
            }
            loop {
                let size = match self.scanner.next(&chunk)? {
                    Step::Need => break,
                    Step::Start { tag: tag::DATA_ROW, body, size } => {
                        if values.len() < limit {
                            values.extend(first_value(body));
                        }
                        size
                    }
                    Step::Rest { size } | Step::Start { size, .. } => size,
                    Step::Whole { tag: tag::PARAMETER_STATUS, body, size } => {
                        let body = body.to_vec();
                        self.note_parameter_status(&body);
                        size
                    }
                    Step::Whole { tag: tag::ERROR, body, size } => {
                        let fields = ErrorFields::decode(body)?;
                        if ends_connection(fields.severity) {
                            return Err(BackendError::Server(Box::new(fields)));
                        }
                        refused = Some(fields);
                        size
                    }
                    Step::Whole { tag: tag::READY, body, size } => {
                        self.status = TransactionStatus::decode(body)?;
                        chunk.advance(size);
                        if !chunk.is_empty() {
                            self.rest = Some(chunk);
                        }
                        return match refused {
                            Some(fields) => Err(BackendError::Server(Box::new(fields))),
                            None => Ok(values),
                        };
                    }
                    Step::Whole { size, .. } => size,
                };
                chunk.advance(size);
            }
            self.rest = (!chunk.is_empty()).then_some(chunk);
        }
    }
}

/// The first value of a DataRow, if it is not NULL: behind the number of columns (2) comes its length (4).
fn first_value(row: &[u8]) -> Option<String> {
    let length = usize::try_from(i32::from_be_bytes(*row.get(2..)?.first_chunk()?)).ok()?;
    Some(String::from_utf8_lossy(row.get(6..)?.get(..length)?).into_owned())
}
