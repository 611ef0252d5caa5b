//! What the pool must know of PostgreSQL.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::scanner::Scanner;
use quorumsql_wire::pgsql::sqlstate;

use super::{BackendError, Credentials, PgBackend, connect};
use crate::config::{Protocol, Server};
use crate::pool::{ConnectError, Dialect, Fault, PoolKey, ServerError, Suits};
use crate::session::pgsql::custom::CustomNames;
use crate::worker::WorkerContext;
use crate::worker::chunk::Chunk;
use crate::worker::link::{Link, LinkParcel};

/// PostgreSQL, for the pool.
#[derive(Debug)]
pub(crate) struct Pgsql;

/// What a login needs beside the pool key, and what an idle connection must suit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Login {
    /// Password as stored.
    pub(crate) password: String,
    /// Parameters of its own that the session has named: a connection that knows others is not for it.
    pub(crate) names: CustomNames,
}

/// An idle connection on its way to another worker.
pub(crate) struct Parcel {
    link: LinkParcel,
    backend: Box<PgParts>,
}

/// [`PgBackend`] without its socket.
struct PgParts {
    scanner: Scanner,
    prepared: crate::session::pgsql::prepared::Prepared,
    have: Arc<crate::session::pgsql::settings::Settings>,
    names: CustomNames,
    defaults: super::Report,
    report: super::Report,
    owners: (u32, u32),
    key: Option<super::CancelKey>,
}

impl Dialect for Pgsql {
    const PROTOCOL: Protocol = Protocol::Pgsql;
    type Backend = Box<PgBackend>;
    type Login = Login;
    type Parcel = Parcel;

    async fn connect(ctx: Rc<WorkerContext>, server: Arc<Server>, key: PoolKey, login: &Login) -> Result<Self::Backend, ConnectError> {
        let parts = key.parts();
        let credentials = Credentials { user: &parts.user, password: &login.password, database: &parts.database, startup: &parts.startup };
        connect(&ctx, &server, credentials).await.map(Box::new).map_err(ConnectError::from)
    }

    fn link(backend: &mut Self::Backend) -> &mut Link {
        &mut backend.link
    }

    fn suits(backend: &Self::Backend, login: &Login) -> Suits {
        match (backend.names.len(), login.names.len()) {
            (0, 0) => Suits::Well,
            _ if !backend.names.is_within(&login.names) => Suits::Not,
            (known, wanted) if known == wanted => Suits::Well,
            _ => Suits::Fairly,
        }
    }

    fn on_idle_bytes(backend: &mut Self::Backend, bytes: &Chunk) -> bool {
        backend.on_idle_bytes(bytes)
    }

    async fn ping(backend: &mut Self::Backend) -> io::Result<()> {
        backend.ping().await.map_err(io::Error::other)
    }

    fn goodbye() -> &'static [u8] {
        b"X\0\0\0\x04"
    }

    fn pack(backend: Self::Backend) -> io::Result<Parcel> {
        let PgBackend { link, scanner, rest, prepared, have, names, defaults, report, unsure, writer, key, .. } = *backend;
        let owners = (unsure, writer);
        if rest.is_some() {
            return Err(io::Error::other("half a message has arrived"));
        }
        Ok(Parcel {
            link: link.into_parcel()?,
            backend: Box::new(PgParts { scanner, prepared, have, names, defaults, report, owners, key }),
        })
    }

    fn unpack(parcel: Parcel, ctx: &WorkerContext) -> io::Result<Self::Backend> {
        let PgParts { scanner, prepared, have, names, defaults, report, owners: (unsure, writer), key } = *parcel.backend;
        let link = Link::from_parcel(parcel.link, ctx.chunks().clone())?;
        let status = quorumsql_wire::pgsql::backend::TransactionStatus::Idle;
        let question = super::named::Question::default();
        Ok(Box::new(PgBackend {
            link,
            scanner,
            rest: None,
            status,
            prepared,
            have,
            names,
            question,
            defaults,
            unsure,
            writer,
            report,
            key,
            tainted: false,
        }))
    }
}

impl From<BackendError> for ConnectError {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Server(fields) => {
                let fault = fault(&fields.code);
                Self::Server { error: server_error(&fields), fault }
            }
            BackendError::Io(error) => Self::Io(error),
            BackendError::Tls(error) => Self::Tls(error),
            BackendError::Auth(_) | BackendError::Unsuitable => Self::Unusable(error.to_string()),
            BackendError::Closed | BackendError::Protocol(_) | BackendError::Unexpected(_) => Self::Protocol(error.to_string()),
        }
    }
}

fn server_error(fields: &ErrorFields) -> ServerError {
    let mut sqlstate = *b"08006";
    if let Ok(code) = fields.code.as_bytes().try_into() {
        sqlstate = code;
    }
    let mut raw = Vec::new();
    fields.encode(&mut raw);
    raw.drain(..quorumsql_wire::pgsql::frame::HEADER_LENGTH);
    ServerError { code: 0, sqlstate, message: fields.message.clone(), raw }
}

/// Whose fault a refused login is, by SQLSTATE: what the client or its account got wrong is told at once, all else may pass. `57P03` is said
/// by a server that starts, recovers or stops.
fn fault(code: &str) -> Fault {
    if code == sqlstate::CANNOT_CONNECT_NOW {
        return Fault::Starting;
    }
    match code.get(..2) {
        // Wrong password, unknown database, bad parameter, no privilege, unsupported feature.
        Some("28" | "3D" | "22" | "42" | "0A" | "55") => Fault::Client,
        _ => Fault::Server,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_fault() {
        for (code, expected) in [
            ("28P01", Fault::Client),
            ("3D000", Fault::Client),
            ("42704", Fault::Client),
            ("53300", Fault::Server),
            ("57P03", Fault::Starting),
            ("57P01", Fault::Server),
            ("", Fault::Server),
        ] {
            assert_eq!(fault(code), expected, "{code}");
        }
    }
}
