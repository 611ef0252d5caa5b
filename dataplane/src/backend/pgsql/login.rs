//! Logging in to a server.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::pgsql::auth::{CleartextPolicy, ClientAuth, ClientStep};
use quorumsql_wire::pgsql::backend::{self, TransactionStatus, tag};
use quorumsql_wire::pgsql::channel_binding::server_end_point;
use quorumsql_wire::pgsql::client_keys::KnownKeys;
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::scanner::Scanner;
use quorumsql_wire::pgsql::scram::NONCE_BYTES;
use quorumsql_wire::pgsql::{frame, startup};

use super::named::Question;
use super::tls::encrypt;
use super::{BackendError, CancelKey, PgBackend};
use crate::config::Server;
use crate::session::pgsql::custom::CustomNames;
use crate::session::pgsql::prepared::Prepared;
use crate::worker::WorkerContext;
use crate::worker::endpoint::Endpoint;
use crate::worker::link::Link;

/// Longest message during login.
const LOGIN_CAP: usize = 65_536;

/// As whom, where to, and with what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credentials<'a> {
    pub(crate) user: &'a str,
    /// As stored.
    pub(crate) password: &'a str,
    pub(crate) database: &'a str,
    /// Parameters that are accepted only here.
    pub(crate) startup: &'a [(String, String)],
}

/// Opens a connection and logs in. Bounded by the caller's deadline; dropping the future abandons the attempt.
pub(crate) async fn connect(ctx: &Rc<WorkerContext>, server: &Server, credentials: Credentials<'_>) -> Result<PgBackend, BackendError> {
    let mut link = ctx.connect(&server.address).await?;
    encrypt(&mut link, &server.address, &server.tls).await?;
    let mut out = Vec::with_capacity(256);
    let identity = [("user", credentials.user), ("database", credentials.database)];
    let more = credentials.startup.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    startup::startup_message(&mut out, identity.into_iter().chain(more));
    link.send_bytes(&out).await?;

    let policy = if link.is_secure() || is_local(link.peer_addr()) { CleartextPolicy::Allow } else { CleartextPolicy::Refuse };
    let keys = ctx.extension(|_| RefCell::<KnownKeys>::default());
    let mut auth = ClientAuth::new(credentials.user, credentials.password, policy).bound_to(end_point(&link)).remembering(keys);
    let mut reader = LoginReader::new(&mut link);
    loop {
        let (message, body) = reader.next().await?;
        if message == tag::ERROR {
            return Err(BackendError::Server(Box::new(ErrorFields::decode(&body)?)));
        }
        if message != tag::AUTHENTICATION {
            return Err(BackendError::Unexpected(message));
        }
        out.clear();
        let step = auth.on_request(&body, &nonce()?, &mut out)?;
        if !out.is_empty() {
            reader.link.send_bytes(&out).await?;
        }
        if step == ClientStep::Done {
            break;
        }
    }
    let mut welcome = Welcome::default();
    loop {
        let (message, body) = reader.next().await?;
        match message {
            tag::PARAMETER_STATUS => welcome.parameters.push(body),
            tag::BACKEND_KEY_DATA => {
                let (pid, secret) = backend::decode_backend_key_data(&body)?;
                welcome.key = Some(CancelKey { address: server.address.clone(), tls: server.tls.clone(), pid, secret: secret.into() });
            }
            tag::NOTICE => {}
            tag::ERROR => return Err(BackendError::Server(Box::new(ErrorFields::decode(&body)?))),
            tag::READY => break,
            other => return Err(BackendError::Unexpected(other)),
        }
        if welcome.parameters.len() > 256 {
            return Err(BackendError::Unexpected(message));
        }
    }
    if !reader.buffer.is_empty() {
        return Err(BackendError::Unexpected(reader.buffer[0]));
    }
    let mut connection = PgBackend {
        link,
        scanner: Scanner::default(),
        rest: None,
        status: TransactionStatus::Idle,
        prepared: Prepared::default(),
        have: Arc::default(),
        names: CustomNames::default(),
        question: Question::default(),
        defaults: Vec::new(),
        unsure: 0,
        writer: 0,
        report: Vec::with_capacity(16),
        key: welcome.key,
        tainted: false,
    };
    welcome.parameters.iter().for_each(|body| connection.note_parameter_status(body));
    connection.defaults.clone_from(&connection.report);
    Ok(connection)
}

#[derive(Default)]
struct Welcome {
    parameters: Vec<Vec<u8>>,
    key: Option<CancelKey>,
}

/// Whole messages of a server that logs us in.
struct LoginReader<'a> {
    link: &'a mut Link,
    buffer: Vec<u8>,
}

impl<'a> LoginReader<'a> {
    fn new(link: &'a mut Link) -> Self {
        Self { link, buffer: Vec::new() }
    }

    async fn next(&mut self) -> Result<(u8, Vec<u8>), BackendError> {
        loop {
            if let Some(frame) = frame::decode(&self.buffer, LOGIN_CAP)? {
                let message = (frame.tag, frame.body.to_vec());
                let size = frame.size();
                self.buffer.drain(..size);
                return Ok(message);
            }
            let chunk = self.link.recv().await?;
            if chunk.is_empty() {
                return Err(BackendError::Closed);
            }
            self.buffer.extend_from_slice(&chunk);
        }
    }
}

/// Fresh randomness for SCRAM.
pub(crate) fn nonce() -> std::io::Result<[u8; NONCE_BYTES]> {
    let mut bytes = [0; NONCE_BYTES];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes)
}

/// `tls-server-end-point` of the server's certificate.
fn end_point(link: &Link) -> Option<Vec<u8>> {
    server_end_point(link.tls()?.peer_certificates()?.first()?)
}

fn is_local(peer: &Endpoint) -> bool {
    peer.ip().is_none_or(|ip| ip.is_loopback())
}
