//! Bringing a connection to a session's state before a statement (mysql-dataplane 5.7). On the usual path nothing differs and
//! nothing is sent.

use quorumsql_wire::mysql::ErrPacket;
use quorumsql_wire::mysql::command::byte;
use quorumsql_wire::mysql::scanner::Question;

use super::Backend;
use super::call::BrokenBackend;
use crate::session::mysql::names::{Collate, Names};
use crate::session::mysql::state::SessionState;
use crate::session::mysql::tracked::{self, Variables};

/// Why a statement cannot run on the connection.
#[derive(Debug)]
pub(crate) enum AlignError {
    /// The server refused; the payload of its ERR goes to the client, the connection stays good.
    Refused(Vec<u8>),
    /// The connection is of no use any more.
    Broken(BrokenBackend),
}

impl From<BrokenBackend> for AlignError {
    fn from(error: BrokenBackend) -> Self {
        Self::Broken(error)
    }
}

impl Backend {
    /// `true` if [`Self::align`] has nothing to do. No wait, no allocation.
    pub(crate) fn is_aligned(&self, session: &SessionState) -> bool {
        let state = &self.state;
        state.schema.as_deref() == Some(session.schema.as_str())
            && state.names == session.names
            && state.variables == session.variables
            && state.autocommit() == session.autocommit
            && state.multi_statements == session.multi_statements
    }

    /// Sends what differs. Safe on a connection that has no transaction open, or whose session is the one it serves already.
    pub(crate) async fn align(&mut self, session: &SessionState) -> Result<(), AlignError> {
        // Not by `= DEFAULT`: MySQL 9 takes it for OFF with foreign_key_checks. Never with a transaction open: a session's own
        // connection has nothing that the session has not set.
        let foreign = self.state.variables.keys().any(|name| !session.variables.contains_key(name));
        if foreign && !self.reset().await? {
            return Err(BrokenBackend::Closed.into());
        }
        if self.state.schema.as_deref() != Some(session.schema.as_str()) {
            self.align_schema(&session.schema).await?;
        }
        if self.state.autocommit() != session.autocommit {
            let sql = if session.autocommit { "SET autocommit=1" } else { "SET autocommit=0" };
            self.run(sql).await?.map_err(AlignError::Refused)?;
        }
        if self.state.multi_statements != session.multi_statements {
            let option = u8::from(!session.multi_statements);
            self.call(Question::Simple, &[byte::SET_OPTION, option, 0]).await?.map_err(AlignError::Refused)?;
            self.state.multi_statements = session.multi_statements;
        }
        if self.state.names != session.names {
            self.align_names(&session.names).await?;
        }
        if self.state.variables != session.variables {
            self.align_variables(&session.variables).await?;
        }
        Ok(())
    }

    async fn align_schema(&mut self, schema: &str) -> Result<(), AlignError> {
        let mut payload = vec![byte::INIT_DB];
        payload.extend_from_slice(schema.as_bytes());
        self.call(Question::Simple, &payload).await?.map_err(AlignError::Refused)?;
        self.state.schema = Some(schema.to_owned());
        Ok(())
    }

    /// Sets what the session has set otherwise.
    async fn align_variables(&mut self, wanted: &Variables) -> Result<(), AlignError> {
        for (name, literal) in wanted {
            if self.state.variables.get(name) != Some(literal) {
                self.set_variable(name, literal).await?;
                self.state.variables.insert(name, literal.clone());
            }
        }
        Ok(())
    }

    /// A variable that the server does not have is left out quietly: names of the other product are harmless.
    async fn set_variable(&mut self, name: &str, literal: &str) -> Result<(), AlignError> {
        let sql = tracked::statement(name, literal);
        match self.run(&sql).await? {
            Err(payload) if !is_unknown_variable(&payload) => Err(AlignError::Refused(payload)),
            _ => Ok(()),
        }
    }

    async fn align_names(&mut self, names: &Names) -> Result<(), AlignError> {
        if let Some(sql) = names.statement(Collate::Exact)
            && let Err(refused) = self.run(&sql).await?
        {
            // A collation of the other product in a handshake: the server falls back to the character set's default, and so
            // does this.
            let fallback = names.statement(Collate::Default).filter(|fallback| *fallback != sql);
            let Some(fallback) = fallback else { return Err(AlignError::Refused(refused)) };
            self.run(&fallback).await?.map_err(AlignError::Refused)?;
        }
        self.state.names = names.clone();
        Ok(())
    }
}

/// 1064, 1193, 1651 (mysql-dataplane 5.7).
fn is_unknown_variable(payload: &[u8]) -> bool {
    ErrPacket::decode(payload).is_ok_and(|err| matches!(err.code, 1064 | 1193 | 1651))
}
