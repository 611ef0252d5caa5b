//! Statements of our own on a connection that nobody else uses at the moment: aligning settings, resetting.

use std::sync::Arc;

use quorumsql_wire::pgsql::backend::{TransactionStatus, tag};
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frontend;
use quorumsql_wire::pgsql::scanner::Step;

use super::{BackendError, PgBackend};
use crate::session::pgsql::responses::ends_connection;
use crate::session::pgsql::settings::Settings;

impl PgBackend {
    /// Whether `session`, which wants these settings, can use the connection as it is. Somebody else's sequences are in its way only if it
    /// `reads_sequences`.
    pub(crate) fn suits(&self, session: u32, want: &Arc<Settings>, reads_sequences: bool) -> bool {
        let is_foreign = |owner| owner != 0 && owner != session;
        let has_settings = Arc::ptr_eq(&self.have, want) || self.have == *want;
        has_settings && !is_foreign(self.unsure) && !(reads_sequences && is_foreign(self.writer))
    }

    /// Makes the connection suit `session`.
    ///
    /// # Errors
    /// A value that the server refuses ([`BackendError::Server`]), or a lost connection; close it in both cases.
    pub(crate) async fn adapt(&mut self, session: u32, want: &Arc<Settings>, reads_sequences: bool) -> Result<(), BackendError> {
        if self.unsure != 0 && self.unsure != session {
            self.reset().await?;
        }
        if reads_sequences && self.writer != session && self.writer != 0 {
            self.run("DISCARD SEQUENCES").await?;
            self.writer = 0;
        }
        if let Some(sql) = want.align(&self.have) {
            self.run(&sql).await?;
        }
        self.have = Arc::clone(want);
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
        Ok(())
    }

    /// Asks whether the server is well: an empty query.
    ///
    /// # Errors
    /// The connection must be closed.
    pub(crate) async fn ping(&mut self) -> Result<(), BackendError> {
        self.run("").await
    }

    /// Runs `sql` by the simple protocol and throws its rows away. A Query destroys the unnamed statement.
    async fn run(&mut self, sql: &str) -> Result<(), BackendError> {
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
                            None => Ok(()),
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
