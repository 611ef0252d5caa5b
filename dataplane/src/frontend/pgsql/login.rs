//! From the first byte to the first ReadyForQuery (pgsql-dataplane.md section 2).

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quorumsql_wire::pgsql::auth::{MESSAGE_CAP, Method, ServerAuth, ServerStep};
use quorumsql_wire::pgsql::backend::{self, TransactionStatus};
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::startup::{self, FirstPacket, StartupPacket, StartupParameters};
use quorumsql_wire::pgsql::{WireError, frame, sqlstate};

use super::worker::{PgWorker, WelcomeKey, cancel, variables};
use super::{Client, Newcomer, shutdown};
use crate::backend::pgsql::{BackendError, Login, Pgsql, Wanted, nonce};
use crate::config::{Protocol, User};
use crate::frontend::tls;
use crate::limits::Permit;
use crate::origin::Origin;
use crate::pool::{AcquireError, KeyParts, Pool, PoolKey, Request};
use crate::session::pgsql::custom::CustomNames;
use crate::session::pgsql::prepared::Told;
use crate::session::pgsql::settings::Settings;
use crate::tls::{ALPN_POSTGRESQL, ClientTls};
use crate::worker::WorkerContext;
use crate::worker::chunk::Chunk;
use crate::worker::link::Link;
use crate::worker::session::{SessionGuard, Signal};

/// Longest wait for a server at login: after it the client is let in without one.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// Why a client is not let in.
enum Refused {
    /// Closed without a word: not a client, gone, or already answered.
    Quiet,
    /// The client is told.
    Told(ErrorFields),
}

impl From<io::Error> for Refused {
    fn from(_: io::Error) -> Self {
        Self::Quiet
    }
}

impl From<ErrorFields> for Refused {
    fn from(fields: ErrorFields) -> Self {
        Self::Told(fields)
    }
}

impl From<WireError> for Refused {
    fn from(_: WireError) -> Self {
        Self::Quiet
    }
}

/// Logs a client in; `None` = it is not let in and has been told.
pub(super) async fn run(newcomer: Box<Newcomer>) -> Option<Box<Client>> {
    let Newcomer { mut link, session, ctx } = *newcomer;
    let limit = variables(&ctx).connect_timeout_client;
    let dialogue = Box::pin(dialogue(&mut link, &session, &ctx));
    let outcome = ctx.ticker().guard(limit, dialogue).await.unwrap_or(Err(Refused::Quiet));
    match outcome {
        Ok(Some(entrant)) => Some(entrant.into_client(link, session, ctx)),
        Ok(None) => None,
        Err(refused) => {
            if let Refused::Told(fields) = refused {
                tracing::debug!(session.id = session.id(), client = %link.peer_addr(), message = fields.message, "login refused");
                let mut out = Vec::new();
                fields.encode(&mut out);
                link.send_at_once(&out);
            }
            ctx.stats(Protocol::Pgsql).aborted.add(1);
            None
        }
    }
}

/// One who may come in.
struct Entrant {
    worker: Rc<PgWorker>,
    pool: Rc<Pool<Pgsql>>,
    key: PoolKey,
    login: Login,
    origin: Arc<Origin>,
    settings: Settings,
    places: (Permit, Permit),
}

impl Entrant {
    fn into_client(self, link: Link, session: SessionGuard, ctx: Rc<WorkerContext>) -> Box<Client> {
        let settings = Arc::new(self.settings);
        Box::new(Client {
            link,
            session,
            ctx,
            worker: self.worker,
            pool: self.pool,
            key: self.key,
            login: self.login,
            origin: self.origin,
            start: Arc::clone(&settings),
            settings,
            statements: HashMap::new(),
            unnamed: None,
            told: Told::default(),
            skip_to_sync: false,
            aborted: None,
            _places: self.places,
        })
    }
}

async fn dialogue(link: &mut Link, session: &SessionGuard, ctx: &Rc<WorkerContext>) -> Result<Option<Entrant>, Refused> {
    let mut buffer = Vec::new();
    let Some((packet, tls)) = first_packets(link, ctx, &mut buffer).await? else { return Ok(None) };
    let parameters = packet.parameters().map_err(|error| error.error_fields())?;
    let mut out = Vec::with_capacity(1024);
    let (minor, tell) = packet.negotiate(&parameters);
    if tell {
        backend::negotiate_protocol_version(&mut out, minor, &parameters.extensions);
    }
    parameters.refuse_replication().map_err(|error| error.error_fields())?;
    if session.take_signal().is_some_and(|signal| matches!(signal, Signal::Drain | Signal::Kill)) {
        return Err(shutdown().into());
    }
    let max = variables(ctx).max_connections;
    let place = ctx.shared().limits.client(Protocol::Pgsql, max).ok_or_else(|| too_many("sorry, too many clients already".into()))?;
    let worker = PgWorker::of(ctx);
    let user = authenticate(link, ctx, &worker, &parameters, tls.as_deref(), &mut buffer, &mut out).await?;
    if user.require_tls && tls.is_none() {
        let text = format!("ProxySQL Error: Access denied for user '{}' (using password: YES). SSL is required", user.name);
        return Err(ErrorFields::fatal(sqlstate::INVALID_AUTHORIZATION_SPECIFICATION, text).into());
    }
    let user_place = ctx.shared().limits.user(Protocol::Pgsql, &user.name, user.max_connections);
    let user_place = user_place.ok_or_else(|| too_many(format!("too many connections for role \"{}\"", user.name)))?;

    let StartupParameters { user: name, database, settings, .. } = parameters;
    let (settings, fixed) = Settings::from_startup(settings);
    if let Some(text) = settings.unsuitable() {
        return Err(ErrorFields::fatal(sqlstate::FEATURE_NOT_SUPPORTED, text).into());
    }
    let startup = fixed.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let pool = Pool::of(ctx);
    let key = pool.key(KeyParts { user: name.clone(), database: database.clone(), startup, ..KeyParts::default() });
    let names = CustomNames::among(settings.iter().map(|(name, _)| name));
    let login = Login { password: user.password.clone(), names };
    let origin = ctx.origin(link, &name, &database);
    let mut entrant = Entrant { worker, pool, key, login, origin, settings, places: (place, user_place) };
    backend::authentication_ok(&mut out);
    let start = out.len();
    welcome(link, session, ctx, &entrant, &user, fixed, &mut out).await?;
    entrant.settings.respell(&out[start..]);
    backend::backend_key_data(&mut out, session.id(), &new_key(session, &entrant.worker)?);
    backend::ready_for_query(&mut out, TransactionStatus::Idle);
    session.logged_in();
    session.set_origin(&entrant.origin);
    session.note("Sleep", ctx.ticker().now());
    link.send_bytes(&out).await?;
    if !buffer.is_empty() {
        // The client did not wait for the welcome.
        link.unread(Chunk::from_vec(buffer));
    }
    Ok(Some(entrant))
}

fn too_many(text: String) -> ErrorFields {
    ErrorFields::fatal(sqlstate::TOO_MANY_CONNECTIONS, text)
}

fn new_key(session: &SessionGuard, worker: &PgWorker) -> io::Result<[u8; 4]> {
    let mut key = [0; 4];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    worker.note_key(session.id(), key);
    Ok(key)
}

/// Answers what comes before the start-up packet, and says with what TLS it came; `None` = there will be none (cancel
/// requests). Inside TLS, only these two are legal.
async fn first_packets(
    link: &mut Link,
    ctx: &Rc<WorkerContext>,
    buffer: &mut Vec<u8>,
) -> Result<Option<(StartupPacket, Option<Arc<ClientTls>>)>, Refused> {
    let offered = ctx.config().side(Protocol::Pgsql).client_tls.clone();
    let (mut tls_asked, mut gss_asked) = (false, false);
    loop {
        let Some((packet, size)) = startup::decode_first_packet(buffer)? else {
            receive(link, buffer).await?;
            continue;
        };
        buffer.drain(..size);
        match (packet, &offered) {
            (FirstPacket::Startup(packet), _) => return Ok(Some((packet, offered.filter(|_| link.tls().is_some())))),
            (FirstPacket::Cancel { pid, key }, _) => {
                cancel(ctx, pid, &key);
                return Ok(None);
            }
            _ if link.tls().is_some() => return Err(Refused::Quiet),
            (FirstPacket::DirectTls, Some(tls)) => direct_tls(link, ctx, tls, std::mem::take(buffer)).await?,
            (FirstPacket::SslRequest, Some(tls)) => {
                // A client waits for the answer: these bytes were put there by somebody else (CVE-2021-23214).
                if !buffer.is_empty() {
                    let text = "received unencrypted data after SSL request";
                    return Err(ErrorFields::fatal(sqlstate::PROTOCOL_VIOLATION, text).into());
                }
                link.send_bytes(&[startup::ACCEPT_TLS]).await?;
                tls::accept(link, tls, ctx, Protocol::Pgsql).await.map_err(|_| Refused::Quiet)?;
            }
            (FirstPacket::SslRequest, None) if !tls_asked => {
                tls_asked = true;
                link.send_bytes(&[startup::REFUSE_ENCRYPTION]).await?;
            }
            (FirstPacket::GssEncRequest, _) if !gss_asked => {
                gss_asked = true;
                link.send_bytes(&[startup::REFUSE_ENCRYPTION]).await?;
            }
            _ => return Err(Refused::Quiet),
        }
    }
}

/// TLS without a request for it (`sslnegotiation=direct`): the client must say that it means PostgreSQL, so that what another
/// protocol's client was made to send is never taken for a login.
async fn direct_tls(link: &mut Link, ctx: &Rc<WorkerContext>, tls: &ClientTls, hello: Vec<u8>) -> Result<(), Refused> {
    link.unread(Chunk::from_vec(hello));
    tls::accept(link, tls, ctx, Protocol::Pgsql).await.map_err(|_| Refused::Quiet)?;
    if link.tls().and_then(|facts| facts.alpn_protocol()) == Some(ALPN_POSTGRESQL) {
        return Ok(());
    }
    tracing::info!(client = %link.peer_addr(), "direct TLS without the ALPN name `postgresql` is refused");
    Err(Refused::Quiet)
}

async fn receive(link: &mut Link, buffer: &mut Vec<u8>) -> Result<(), Refused> {
    let chunk = link.recv().await?;
    if chunk.is_empty() {
        return Err(Refused::Quiet);
    }
    buffer.extend_from_slice(&chunk);
    Ok(())
}

async fn authenticate(
    link: &mut Link,
    ctx: &Rc<WorkerContext>,
    worker: &PgWorker,
    parameters: &StartupParameters,
    tls: Option<&ClientTls>,
    buffer: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<Arc<User>, Refused> {
    let user = ctx.config().side(Protocol::Pgsql).users.get(&parameters.user).cloned();
    let secrets = worker.secrets(&parameters.user, user.as_deref());
    let mut auth = ServerAuth::start(&parameters.user, secrets, Method::default(), tls.and_then(ClientTls::end_point), nonce()?, out);
    loop {
        link.send_bytes(out).await?;
        out.clear();
        let step = loop {
            if let Some(frame) = frame::decode(buffer, MESSAGE_CAP)? {
                if frame.tag != b'p' {
                    let text = format!("expected password response, got message type {}", frame.tag);
                    return Err(ErrorFields::fatal(sqlstate::PROTOCOL_VIOLATION, text).into());
                }
                let size = frame.size();
                let step = auth.on_message(frame.body, out);
                buffer.drain(..size);
                break step;
            }
            receive(link, buffer).await?;
        };
        match step {
            ServerStep::Continue => {}
            ServerStep::Failed(fields) => return Err(fields.into()),
            ServerStep::Done => {
                return user.ok_or_else(|| quorumsql_wire::pgsql::auth::password_failed(&parameters.user).into());
            }
        }
    }
}

/// Appends the ParameterStatus messages: from memory, from a server of the user's hostgroup, or, if none can be had, made up.
async fn welcome(
    link: &mut Link,
    session: &SessionGuard,
    ctx: &Rc<WorkerContext>,
    entrant: &Entrant,
    user: &User,
    fixed: Settings,
    out: &mut Vec<u8>,
) -> Result<(), Refused> {
    let config = ctx.config();
    let key = WelcomeKey {
        hostgroup: user.default_hostgroup,
        user: entrant.origin.user.to_string(),
        database: entrant.origin.schema.to_string(),
        settings: entrant.settings.clone(),
        fixed,
    };
    if let Some(known) = entrant.worker.welcome(config.index, &key) {
        out.extend_from_slice(&known);
        return Ok(());
    }
    let probe = async {
        let Login { names, .. } = &entrant.login;
        let wanted = Wanted { session: session.id(), settings: &Arc::new(entrant.settings.clone()), names, reads_sequences: false };
        loop {
            let request = Request { session, client: link, key: &entrant.key, login: &entrant.login, hostgroup: user.default_hostgroup };
            let mut server = entrant.pool.acquire(&config, request).await?;
            match server.adapt(wanted).await {
                Err(BackendError::Unsuitable) => {}
                aligned => return Ok::<_, AcquireError>((server, aligned)),
            }
        }
    };
    match ctx.ticker().guard(PROBE_LIMIT, Box::pin(probe)).await {
        Ok(Ok((server, Ok(())))) => {
            let mut messages = Vec::with_capacity(512);
            server.welcome(&mut messages);
            server.release();
            out.extend_from_slice(&messages);
            entrant.worker.keep_welcome(config.index, key, &messages);
            return Ok(());
        }
        // The server's refusal of a parameter, or of the login, is the client's to read.
        Ok(Ok((_, Err(BackendError::Server(fields))))) => {
            return Err(ErrorFields { severity: quorumsql_wire::pgsql::error_fields::Severity::Fatal, ..*fields }.into());
        }
        Ok(Err(AcquireError::Refused(error))) => {
            let fields = ErrorFields::decode(&error.raw)?;
            return Err(ErrorFields { severity: quorumsql_wire::pgsql::error_fields::Severity::Fatal, ..fields }.into());
        }
        Ok(Err(AcquireError::ClientGone)) => return Err(Refused::Quiet),
        Ok(Err(AcquireError::Interrupted(_))) => return Err(shutdown().into()),
        Ok(Err(error)) => tracing::info!(session.id = session.id(), cause = error.cause(), "client is let in without a server: {error}"),
        Ok(Ok((_, Err(error)))) => tracing::info!(session.id = session.id(), "client is let in without a server: {error}"),
        Err(error) => tracing::info!(session.id = session.id(), "client is let in without a server: {error}"),
    }
    made_up_welcome(ctx, entrant, out);
    Ok(())
}

/// What a PostgreSQL server would report, when none can be asked: an outage of the servers must not lock clients out.
fn made_up_welcome(ctx: &WorkerContext, entrant: &Entrant, out: &mut Vec<u8>) {
    let variables = variables(ctx);
    let encoding = match variables.default_charset.as_str() {
        "" | "utf8mb4" => "UTF8",
        other => other,
    };
    let wanted = |name: &str, otherwise: &str| {
        let own = entrant.settings.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        own.map_or_else(|| otherwise.to_owned(), |(_, value)| value.to_owned())
    };
    let values = [
        ("application_name", wanted("application_name", "")),
        ("client_encoding", wanted("client_encoding", encoding)),
        ("DateStyle", wanted("datestyle", "ISO, MDY")),
        ("default_transaction_read_only", wanted("default_transaction_read_only", "off")),
        ("in_hot_standby", "off".into()),
        ("integer_datetimes", "on".into()),
        ("IntervalStyle", wanted("intervalstyle", "postgres")),
        ("is_superuser", "off".into()),
        ("server_encoding", "UTF8".into()),
        ("server_version", variables.server_version.clone()),
        ("session_authorization", entrant.origin.user.to_string()),
        ("standard_conforming_strings", wanted("standard_conforming_strings", "on")),
        ("TimeZone", wanted("timezone", "GMT")),
    ];
    for (name, value) in values {
        backend::parameter_status(out, name.as_bytes(), value.as_bytes());
    }
}
