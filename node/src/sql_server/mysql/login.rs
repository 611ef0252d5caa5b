//! Greeting, TLS, authentication.

use std::io;

use quorumsql_wire::mysql::auth::StoredPassword;
use quorumsql_wire::mysql::handshake::{Greeting, HandshakeResponse, MAX_LOGIN_PACKET, NATIVE, Scramble, SslRequest, new_scramble};
use quorumsql_wire::mysql::response::OkPacket;
use quorumsql_wire::mysql::server_auth::{AuthStep, Denial, FirstReply, ServerAuth};
use quorumsql_wire::mysql::{Capabilities, PacketWriter};

use super::{err_packet, flags, read_packet};
use crate::sql_server::database::{Database, Face, Login, Parameters, Session as _, SqlError, Status};
use crate::sql_server::listener::{Client, ServeOptions};
use crate::sql_server::socket::Socket;

/// Collation utf8mb4_general_ci.
const CHARSET: u8 = 45;

type LoggedIn<D> = (Socket, Capabilities, <D as Database>::Session);

/// Logs a client in; `None` = it was refused and told so.
pub(super) async fn login<D: Database>(
    socket: Socket,
    client: Client,
    database: &D,
    options: &ServeOptions,
) -> io::Result<Option<LoggedIn<D>>> {
    let parameters = database.parameters(Face::Mysql).await;
    let shown = options.shown(&parameters);
    let mut dialogue = Dialogue { socket, client, parameters, scramble: scramble()?, out: Vec::new(), sequence: 0 };
    dialogue.greet(shown.is_some()).await?;
    let mut payload = dialogue.read().await?;
    if let (Some(shown), Some(_)) = (&shown, SslRequest::decode(&payload)) {
        dialogue.socket = dialogue.socket.upgrade(shown.mysql.config().clone()).await?;
        payload = dialogue.read().await?;
    }
    let response = HandshakeResponse::decode(&payload).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    match dialogue.authenticate(&response, database, options).await? {
        Ok((session, capabilities)) => Ok(Some((dialogue.socket, capabilities, session))),
        Err(error) => {
            dialogue.send(|out| err_packet(&error).encode(out)).await?;
            Ok(None)
        }
    }
}

struct Dialogue {
    socket: Socket,
    client: Client,
    parameters: Parameters,
    scramble: Scramble,
    out: Vec<u8>,
    sequence: u8,
}

impl Dialogue {
    async fn greet(&mut self, tls: bool) -> io::Result<()> {
        let plugin = if self.parameters.default_plugin.is_empty() { NATIVE.to_owned() } else { self.parameters.default_plugin.clone() };
        let capabilities = if tls { Capabilities::SERVER_DEFAULT.with(Capabilities::SSL) } else { Capabilities::SERVER_DEFAULT };
        let greeting = Greeting {
            server_version: self.parameters.server_version.clone(),
            connection_id: self.client.connection_id,
            scramble: self.scramble,
            capabilities,
            charset: CHARSET,
            status: flags(Status { autocommit: true, ..Status::default() }),
            plugin,
        };
        self.parameters.default_plugin.clone_from(&greeting.plugin);
        self.send(|out| greeting.encode(out)).await
    }

    async fn read(&mut self) -> io::Result<Vec<u8>> {
        let (payload, sequence) = read_packet(&mut self.socket, MAX_LOGIN_PACKET).await?;
        self.sequence = sequence.wrapping_add(1);
        Ok(payload)
    }

    async fn send(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut packets = PacketWriter::new(&mut self.out, self.sequence);
        packets.packet(fill);
        self.sequence = packets.sequence();
        self.socket.send(&mut self.out).await
    }

    /// The inner error is for the client.
    async fn authenticate<D: Database>(
        &mut self,
        response: &HandshakeResponse<'_>,
        database: &D,
        options: &ServeOptions,
    ) -> io::Result<Result<(D::Session, Capabilities), SqlError>> {
        if options.require_tls && !self.socket.secure {
            let text = "Connections using insecure transport are prohibited here: use TLS";
            return Ok(Err(SqlError::new(3159, "HY000", "28000", text)));
        }
        let login = Login {
            face: Face::Mysql,
            user: String::from_utf8_lossy(response.user).into_owned(),
            database: String::from_utf8_lossy(response.schema.unwrap_or_default()).into_owned(),
            peer: self.client.peer,
            connection_id: self.client.connection_id,
        };
        let stored = match database.account(&login).await {
            Ok(account) => account.map_or(StoredPassword::Nobody, |account| StoredPassword::parse(account.secret.as_bytes())),
            Err(refusal) => return Ok(Err(refusal)),
        };
        if let Err(denial) = self.prove(stored, response).await? {
            return Ok(Err(self.denied(denial, &login, !response.auth.is_empty())));
        }
        let schema = login.database.clone();
        let opened = database.open(login).await.and_then(|mut session| {
            let used = if schema.is_empty() { Ok(()) } else { session.use_database(&schema) };
            used.map(|()| session)
        });
        match opened {
            Ok(session) => {
                let ok = OkPacket { status: flags(session.status()), ..OkPacket::default() };
                self.send(|out| ok.encode(0, out)).await?;
                Ok(Ok((session, response.capabilities)))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    async fn prove(&mut self, stored: StoredPassword, response: &HandshakeResponse<'_>) -> io::Result<Result<(), Denial>> {
        let offered = self.parameters.default_plugin.clone();
        let first = FirstReply {
            offered: &offered,
            scramble: self.scramble,
            client_plugin: response.plugin,
            reply: response.auth,
            fresh_scramble: scramble()?,
            secure: self.socket.secure,
        };
        let (mut auth, mut step) = ServerAuth::begin(vec![stored], None, &first);
        loop {
            match step {
                AuthStep::Continue(payload) => {
                    self.send(|out| out.extend_from_slice(&payload)).await?;
                    step = auth.on_reply(&self.read().await?);
                }
                AuthStep::Accepted { before, .. } => {
                    if !before.is_empty() {
                        self.send(|out| out.extend_from_slice(&before)).await?;
                    }
                    return Ok(Ok(()));
                }
                AuthStep::Denied(denial) => return Ok(Err(denial)),
            }
        }
    }

    fn denied(&self, denial: Denial, login: &Login, with_password: bool) -> SqlError {
        let Login { user, peer, .. } = login;
        tracing::info!(%user, %peer, "admin or embedded login refused");
        match denial {
            Denial::WrongPassword => {
                let using = if with_password { "YES" } else { "NO" };
                let text =
                    format!("{}Access denied for user '{user}'@'{peer}' (using password: {using})", self.parameters.access_denied_prefix);
                SqlError::new(1045, "28000", "28P01", text)
            }
            Denial::NeedsSecureChannel => {
                let text = format!(
                    "the password of '{user}' is stored as a hash that can only be checked over TLS: connect with TLS, or use mysql_native_password"
                );
                SqlError::new(2061, "HY000", "28000", text)
            }
        }
    }
}

fn scramble() -> io::Result<Scramble> {
    new_scramble().map_err(|error| io::Error::other(error.to_string()))
}
