//! Connections to PostgreSQL servers.

mod cancel;
mod dialect;
mod login;
mod named;
mod round_trip;
mod tls;

use std::fmt;
use std::sync::Arc;

use quorumsql_wire::pgsql::backend::{self, TransactionStatus, tag};
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::scanner::{Scanner, Step};

use crate::config::ServerAddress;
use crate::session::pgsql::custom::CustomNames;
use crate::session::pgsql::prepared::Prepared;
use crate::session::pgsql::settings::Settings;
use crate::tls::{ServerTls, TlsError};
use crate::worker::chunk::Chunk;
use crate::worker::link::Link;

pub(crate) use cancel::send_cancel;
pub(crate) use dialect::{Login, Pgsql};
pub(crate) use login::{Credentials, connect, nonce};
pub(crate) use round_trip::Wanted;

/// PostgreSQL 18 reports 16 parameters; a server that invents names is not followed.
const REPORT_LIMIT: usize = 64;

/// Names and values of ParameterStatus messages.
pub(crate) type Report = Vec<(Box<[u8]>, Box<[u8]>)>;

/// One connection with everything that we know of its state.
pub(crate) struct PgBackend {
    pub(crate) link: Link,
    pub(crate) scanner: Scanner,
    /// Bytes received and not yet understood (less than one message).
    pub(crate) rest: Option<Chunk>,
    pub(crate) status: TransactionStatus,
    pub(crate) prepared: Prepared,
    /// Settings that we have set on it.
    pub(crate) have: Arc<Settings>,
    /// Parameters of an application's own that it knows.
    pub(crate) names: CustomNames,
    /// What finds out which it knows behind functions.
    pub(crate) question: named::Question,
    /// Its ParameterStatus values when it was new.
    pub(crate) defaults: Report,
    /// The session that has called what may have left state behind that nobody saw; 0 = none.
    pub(crate) unsure: u32,
    /// The session that was the last to write, and so to use sequences; 0 = none.
    pub(crate) writer: u32,
    /// Its latest ParameterStatus values, in the order in which they first came.
    pub(crate) report: Report,
    /// To cancel what it runs; `None` for servers that tell no key.
    pub(crate) key: Option<CancelKey>,
    /// A cancel request may still hit it: it must not go to another client.
    pub(crate) tainted: bool,
}

/// Where and how to cancel.
#[derive(Clone, Debug)]
pub(crate) struct CancelKey {
    pub(crate) address: ServerAddress,
    pub(crate) tls: ServerTls,
    pub(crate) pid: u32,
    pub(crate) secret: Box<[u8]>,
}

/// Why a connection cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackendError {
    /// The server refused, in its own words.
    #[error("{}", .0.message)]
    Server(Box<ErrorFields>),
    /// The socket.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It closed.
    #[error("server closed the connection unexpectedly")]
    Closed,
    /// What it said is not PostgreSQL.
    #[error("protocol error of the server: {0}")]
    Protocol(#[from] quorumsql_wire::pgsql::WireError),
    /// A message that does not belong there.
    #[error("unexpected message \"{}\" from server", *.0 as char)]
    Unexpected(u8),
    /// We cannot prove who we are.
    #[error("server login failed: {0}")]
    Auth(#[from] quorumsql_wire::pgsql::auth::ClientAuthError),
    /// It knows parameters of an application's own that the session has never named.
    #[error("it knows custom parameters of another client")]
    Unsuitable,
    /// TLS was wanted and there is none.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
}

impl PgBackend {
    /// Notes a ParameterStatus.
    pub(crate) fn note_parameter(&mut self, name: &[u8], value: &[u8]) {
        if let Some((_, known)) = self.report.iter_mut().find(|(known, _)| **known == *name) {
            *known = value.into();
        } else if self.report.len() < REPORT_LIMIT {
            self.report.push((name.into(), value.into()));
        }
    }

    /// The same by the body of its message.
    pub(crate) fn note_parameter_status(&mut self, body: &[u8]) {
        if let Ok((name, value)) = backend::decode_parameter_status(body) {
            self.note_parameter(name, value);
        }
    }

    /// What it reported last of `name`.
    pub(crate) fn reported(&self, name: &str) -> Option<&str> {
        let (_, value) = self.report.iter().find(|(known, _)| **known == *name.as_bytes())?;
        std::str::from_utf8(value).ok()
    }

    /// DISCARD ALL has been done on it. It may still know names that nobody saw.
    pub(crate) fn forget_state(&mut self) {
        self.prepared.clear();
        self.have = Arc::default();
        self.writer = 0;
    }

    /// Its value of `name` when it was new.
    pub(crate) fn default_of(&self, name: &[u8]) -> Option<&[u8]> {
        self.defaults.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }

    /// The ParameterStatus messages of a welcome.
    pub(crate) fn welcome(&self, out: &mut Vec<u8>) {
        for (name, value) in &self.report {
            backend::parameter_status(out, name, value);
        }
    }

    /// An idle connection said something: parameters and notices are noted. A notification means a LISTEN that we do not know of;
    /// anything else, that the connection is ending: false.
    pub(crate) fn on_idle_bytes(&mut self, bytes: &[u8]) -> bool {
        let mut chunk = self.rest.take().unwrap_or_else(|| Chunk::from_vec(Vec::new()));
        chunk.extend_from_slice(bytes);
        loop {
            let size = match self.scanner.next(&chunk) {
                Ok(Step::Whole { tag: tag::PARAMETER_STATUS, body, size }) => {
                    let body = body.to_vec();
                    self.note_parameter_status(&body);
                    size
                }
                Ok(Step::Whole { tag: tag::NOTICE, size, .. }) => size,
                Ok(Step::Need) => break,
                Ok(_) | Err(_) => return false,
            };
            chunk.advance(size);
        }
        self.rest = (!chunk.is_empty()).then_some(chunk);
        true
    }
}

impl fmt::Debug for PgBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgBackend").field("link", &self.link).field("status", &self.status).finish_non_exhaustive()
    }
}
