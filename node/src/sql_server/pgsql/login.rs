//! Start-up packet, TLS, authentication.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io;
use std::sync::{Arc, LazyLock};

use quorumsql_dataplane::tls::ClientTls;
use quorumsql_wire::pgsql::auth::{MESSAGE_CAP, Method, Secrets, ServerAuth, ServerStep};
use quorumsql_wire::pgsql::backend::{self, TransactionStatus};
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::startup::{ACCEPT_TLS, FirstPacket, REFUSE_ENCRYPTION, StartupPacket, StartupParameters, decode_first_packet};
use quorumsql_wire::pgsql::{frame, scram};

use super::message::error_fields;
use crate::sql_server::database::{Database, Face, Login};
use crate::sql_server::listener::{Client, ServeOptions};
use crate::sql_server::socket::Socket;

/// Encryption requests that a client may send before its start-up packet.
const MAX_REQUESTS: usize = 4;

/// Logs a client in; `None` = it was refused and told so, or it only wanted to cancel.
pub(super) async fn login<D: Database>(
    socket: Socket,
    client: Client,
    database: &D,
    options: &ServeOptions,
) -> io::Result<Option<(Socket, D::Session)>> {
    // One for the whole login, whatever is reloaded meanwhile.
    let parameters = database.parameters(Face::Pgsql).await;
    let shown = options.shown(&parameters).map(|shown| Arc::clone(&shown.pgsql));
    let (mut socket, packet) = match first(socket, shown.as_deref()).await? {
        First::Start(socket, packet) => (socket, packet),
        First::Cancel { pid, key } => {
            if key == cancel_key(pid) {
                database.cancel(pid);
            }
            return Ok(None);
        }
    };
    match start(&mut socket, &packet, client, database, options, shown.as_deref()).await? {
        Ok(session) => Ok(Some((socket, session))),
        Err(error) => {
            let mut out = Vec::new();
            error.encode(&mut out);
            socket.send(&mut out).await?;
            Ok(None)
        }
    }
}

/// What a client wants, after all requests for encryption.
enum First {
    Start(Socket, StartupPacket),
    /// Another connection's statement is to end; there is no answer.
    Cancel {
        pid: u32,
        key: Vec<u8>,
    },
}

/// Keys with which clients cancel, made from the connection's number and a secret of this process.
fn cancel_key(pid: u32) -> [u8; 4] {
    static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let hash = SECRET.hash_one(pid).to_be_bytes();
    [hash[0], hash[1], hash[2], hash[3]]
}

/// Answers requests for encryption until the start-up packet is there.
async fn first(mut socket: Socket, tls: Option<&ClientTls>) -> io::Result<First> {
    for _ in 0..MAX_REQUESTS {
        let packet = read_first(&mut socket).await?;
        match (packet, tls) {
            (FirstPacket::Startup(packet), _) => return Ok(First::Start(socket, packet)),
            (FirstPacket::Cancel { pid, key }, _) => return Ok(First::Cancel { pid, key }),
            _ if socket.secure => return Err(io::Error::new(io::ErrorKind::InvalidData, "a request for encryption inside TLS")),
            (FirstPacket::SslRequest, Some(tls)) => {
                // A client waits for the answer; bytes that came along were put there by somebody else (CVE-2021-23222).
                if !socket.arrived.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "plain bytes after a request for TLS"));
                }
                socket.send(&mut vec![ACCEPT_TLS]).await?;
                socket = socket.upgrade(Arc::clone(tls.config())).await?;
            }
            (FirstPacket::SslRequest | FirstPacket::GssEncRequest, _) => socket.send(&mut vec![REFUSE_ENCRYPTION]).await?,
            (FirstPacket::DirectTls, Some(tls)) => {
                socket = socket.upgrade(Arc::clone(tls.config())).await?;
                if !socket.named {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "direct TLS without the ALPN name `postgresql`"));
                }
            }
            (FirstPacket::DirectTls, None) => return Err(io::Error::new(io::ErrorKind::InvalidData, "TLS that is not offered")),
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "too many requests for encryption"))
}

async fn read_first(socket: &mut Socket) -> io::Result<FirstPacket> {
    loop {
        let decoded =
            decode_first_packet(&socket.arrived).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        if let Some((packet, size)) = decoded {
            bytes::Buf::advance(&mut socket.arrived, size);
            return Ok(packet);
        }
        socket.fill().await?;
    }
}

/// The inner error is for the client.
async fn start<D: Database>(
    socket: &mut Socket,
    packet: &StartupPacket,
    client: Client,
    database: &D,
    options: &ServeOptions,
    tls: Option<&ClientTls>,
) -> io::Result<Result<D::Session, ErrorFields>> {
    let parameters = match packet.parameters().and_then(|parameters| parameters.refuse_replication().map(|()| parameters)) {
        Ok(parameters) => parameters,
        Err(error) => return Ok(Err(error.error_fields())),
    };
    if options.require_tls && !socket.secure {
        let text = format!("no encryption for host \"{}\": use TLS (sslmode=require)", client.peer);
        return Ok(Err(ErrorFields::fatal("28000", text)));
    }
    let mut out = Vec::new();
    if let (minor, true) = packet.negotiate(&parameters) {
        backend::negotiate_protocol_version(&mut out, minor, &parameters.extensions);
    }
    let login = Login {
        face: Face::Pgsql,
        user: parameters.user.clone(),
        database: parameters.database.clone(),
        peer: client.peer,
        connection_id: client.connection_id,
    };
    let account = match database.account(&login).await {
        Ok(account) => account,
        Err(refusal) => return Ok(Err(error_fields(&refusal, true))),
    };
    let secure = socket.secure;
    let secrets = secrets(&login.user, account.map(|account| account.secret)).await?;
    if let Err(error) = prove(socket, &login.user, secrets, tls.filter(|_| secure), out).await? {
        tracing::info!(user = %login.user, peer = %login.peer, "admin or embedded login refused");
        return Ok(Err(error));
    }
    match database.open(login).await {
        Ok(session) => {
            let facts = database.parameters(Face::Pgsql).await;
            welcome(socket, client, &parameters, facts).await?;
            Ok(Ok(session))
        }
        Err(refusal) => Ok(Err(error_fields(&refusal, true))),
    }
}

/// Deriving a verifier costs milliseconds of CPU: not on the runtime's threads.
async fn secrets(user: &str, secret: Option<String>) -> io::Result<Arc<Secrets>> {
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).map_err(|error| io::Error::other(error.to_string()))?;
    let user = user.to_owned();
    let derived = tokio::task::spawn_blocking(move || match secret {
        Some(secret) => Secrets::prepare(&user, &secret, None, &salt),
        None => Secrets::unknown(&user, &salt),
    });
    Ok(Arc::new(derived.await.map_err(io::Error::other)?))
}

async fn prove(
    socket: &mut Socket,
    user: &str,
    secrets: Arc<Secrets>,
    tls: Option<&ClientTls>,
    mut out: Vec<u8>,
) -> io::Result<Result<(), ErrorFields>> {
    let mut random = [0; scram::NONCE_BYTES];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let mut auth = ServerAuth::start(user, secrets, Method::Scram, tls.and_then(ClientTls::end_point), random, &mut out);
    loop {
        socket.send(&mut out).await?;
        let body = read_password(socket).await?;
        match auth.on_message(&body, &mut out) {
            ServerStep::Continue => {}
            ServerStep::Done => {
                backend::authentication_ok(&mut out);
                socket.send(&mut out).await?;
                return Ok(Ok(()));
            }
            ServerStep::Failed(error) => {
                socket.send(&mut out).await?;
                return Ok(Err(error));
            }
        }
    }
}

async fn read_password(socket: &mut Socket) -> io::Result<Vec<u8>> {
    loop {
        let decoded =
            frame::decode(&socket.arrived, MESSAGE_CAP).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        if let Some(found) = decoded {
            if found.tag != b'p' {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a password was expected"));
            }
            let (body, size) = (found.body.to_vec(), found.size());
            bytes::Buf::advance(&mut socket.arrived, size);
            return Ok(body);
        }
        socket.fill().await?;
    }
}

async fn welcome(
    socket: &mut Socket,
    client: Client,
    parameters: &StartupParameters,
    facts: crate::sql_server::Parameters,
) -> io::Result<()> {
    let mut out = Vec::new();
    let asked = |name: &str| parameters.settings.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let fixed = [
        ("server_version", facts.server_version),
        ("server_encoding", "UTF8".to_owned()),
        ("client_encoding", "UTF8".to_owned()),
        ("application_name", asked("application_name").unwrap_or_default()),
        ("DateStyle", "ISO, MDY".to_owned()),
        ("IntervalStyle", "postgres".to_owned()),
        ("TimeZone", "UTC".to_owned()),
        ("integer_datetimes", "on".to_owned()),
        ("standard_conforming_strings", "on".to_owned()),
        ("session_authorization", parameters.user.clone()),
    ];
    for (name, value) in
        fixed.iter().map(|(name, value)| (*name, value)).chain(facts.pgsql.iter().map(|(name, value)| (name.as_str(), value)))
    {
        backend::parameter_status(&mut out, name.as_bytes(), value.as_bytes());
    }
    backend::backend_key_data(&mut out, client.connection_id, &cancel_key(client.connection_id));
    backend::ready_for_query(&mut out, TransactionStatus::Idle);
    socket.send(&mut out).await
}
