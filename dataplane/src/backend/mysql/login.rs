//! Logging in at a server.

use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::mysql::client_auth::{ClientAuth, ClientAuthError, ClientStep};
use quorumsql_wire::mysql::handshake::{Greeting, HandshakeResponse, MAX_LOGIN_PACKET, SslRequest, put_attribute};
use quorumsql_wire::mysql::packet::decode_packet;
use quorumsql_wire::mysql::{Capabilities, ErrPacket, OkPacket, PacketWriter, Status, WireError};

use super::call::BrokenBackend;
use super::counts::CountsOf;
use super::diagnostics::Diagnostics;
use super::{Backend, BackendState, KEY_CAPABILITIES, Product, Registry, ServerLogin};
use crate::config::Server;
use crate::pool::{ConnectError, Fault, PoolKey, ServerError};
use crate::session::mysql::names::{Names, handshake_id};
use crate::session::mysql::tracked::Variables;
use crate::tls::TlsError;
use crate::worker::WorkerContext;
use crate::worker::chunk::Chunk;
use crate::worker::link::Link;

/// Capabilities that every connection wants.
const WANTED: Capabilities = Capabilities(
    Capabilities::LONG_PASSWORD.0
        | Capabilities::PROTOCOL_41.0
        | Capabilities::SECURE_CONNECTION.0
        | Capabilities::TRANSACTIONS.0
        | Capabilities::PLUGIN_AUTH.0
        | Capabilities::PLUGIN_AUTH_LENENC.0
        | Capabilities::CONNECT_ATTRS.0
        | Capabilities::SESSION_TRACK.0,
);

/// Largest packet that we say to take.
const MAX_PACKET: u32 = 1 << 30;

/// Makes the server tell in OK packets that session state has changed, and the new `sql_mode`. Which other variable it was is
/// not asked for: the flag covers all of them, and with `session_track_system_variables='*'` MySQL 9 adds a `statement_id` to
/// every single OK.
pub(super) const TRACKING: &str =
    "SET session_track_system_variables='sql_mode', session_track_transaction_info=OFF, session_track_state_change=ON";

/// Opens a connection and logs in as the pool key's user.
pub(super) async fn connect(
    ctx: Rc<WorkerContext>,
    server: Arc<Server>,
    key: PoolKey,
    login: &ServerLogin,
) -> Result<Backend, ConnectError> {
    let link = ctx.connect(&server.address).await?;
    let mut wire = LoginWire { link, early: None, sequence: 0 };
    let payload = wire.read().await?;
    refuse(&payload)?;
    let greeting = Greeting::decode(&payload).map_err(protocol)?;
    let capabilities = negotiate(&greeting, Capabilities(u32::try_from(key.parts().capabilities).unwrap_or_default()))?;
    let product = Product::of(&greeting.server_version);
    let charset = handshake_id(login.charset, product);
    let request = SslRequest { capabilities: capabilities.with(Capabilities::SSL), max_packet: MAX_PACKET, charset };
    wire.encrypt(&server, &greeting, request).await?;
    let capabilities = if wire.link.tls().is_some() { request.capabilities } else { capabilities };
    let secure = wire.link.is_secure();
    let (auth, plugin, reply) = ClientAuth::begin(login.proof.clone(), &greeting.plugin, greeting.scramble, secure).map_err(unusable)?;
    let mut attributes = Vec::new();
    put_attribute(&mut attributes, "program_name", "quorumsql");
    let response = HandshakeResponse {
        capabilities,
        max_packet: MAX_PACKET,
        charset,
        user: key.parts().user.as_bytes(),
        auth: &reply,
        schema: None,
        plugin: Some(plugin.as_bytes()),
        attributes: &attributes,
    };
    let mut payload = Vec::new();
    response.encode(&mut payload);
    wire.write(&payload).await?;
    let status = authenticate(&mut wire, auth, capabilities).await?;
    let mut backend = Backend {
        link: wire.finish(),
        state: BackendState {
            thread_id: greeting.connection_id,
            product,
            capabilities,
            schema: None,
            names: Names::login(login.charset),
            variables: Variables::new(),
            status,
            has_insert_id: false,
            diagnostics: Diagnostics::Empty,
            counts_of: CountsOf::NOBODY,
            unsure: false,
            multi_statements: capabilities.contains(Capabilities::MULTI_STATEMENTS),
            tracks: false,
            registry: Registry::new(product),
        },
    };
    backend.start_tracking().await.map_err(|error| ConnectError::Protocol(error.to_string()))?;
    Ok(backend)
}

impl Backend {
    /// Asks for session state in OK packets. A server that cannot is used without.
    pub(super) async fn start_tracking(&mut self) -> Result<(), BrokenBackend> {
        self.state.tracks = self.state.capabilities.contains(Capabilities::SESSION_TRACK) && self.run(TRACKING).await?.is_ok();
        Ok(())
    }

    /// Takes all session state off the connection, so that it may serve another client.
    pub(crate) async fn reset(&mut self) -> Result<bool, BrokenBackend> {
        if self.pipeline(&[vec![quorumsql_wire::mysql::command::byte::RESET_CONNECTION]]).await?.iter().any(Result::is_err) {
            return Ok(false);
        }
        self.state.registry.clear();
        self.state.names = Names::UNKNOWN;
        self.state.variables.clear();
        self.state.schema = None;
        self.state.has_insert_id = false;
        self.state.unsure = false;
        self.state.diagnostics = Diagnostics::Empty;
        self.start_tracking().await?;
        Ok(true)
    }
}

fn negotiate(greeting: &Greeting, client: Capabilities) -> Result<Capabilities, ConnectError> {
    let client = client & KEY_CAPABILITIES;
    let missing = client.without(greeting.capabilities);
    // The form of every answer depends on these: they cannot be left out quietly.
    if missing.0 & (Capabilities::DEPRECATE_EOF.0 | Capabilities::MULTI_STATEMENTS.0) != 0 {
        let text = format!("server {} lacks capabilities that the client uses: {:#x}", greeting.server_version, missing.0);
        return Err(ConnectError::Unusable(text));
    }
    Ok((WANTED | client) & greeting.capabilities)
}

async fn authenticate(wire: &mut LoginWire, mut auth: ClientAuth, capabilities: Capabilities) -> Result<Status, ConnectError> {
    loop {
        let payload = wire.read().await?;
        refuse(&payload)?;
        match auth.on_packet(&payload).map_err(unusable)? {
            ClientStep::Send(reply) => wire.write(&reply).await?,
            ClientStep::Wait => {}
            ClientStep::Done => return Ok(OkPacket::decode(&payload, capabilities).map_err(protocol)?.status),
        }
    }
}

/// An ERR packet ends the login.
fn refuse(payload: &[u8]) -> Result<(), ConnectError> {
    if payload.first() != Some(&0xff) {
        return Ok(());
    }
    let err = ErrPacket::decode(payload).map_err(protocol)?;
    let fault = fault(err.code);
    let mut raw = Vec::new();
    err.encode(&mut raw);
    Err(ConnectError::Server { error: ServerError { code: err.code, sqlstate: err.sqlstate, message: err.message, raw }, fault })
}

/// Errors that are the user's or the schema's fault and never shun a server (mysql-dataplane 9.4).
fn fault(code: u16) -> Fault {
    match code {
        1007
        | 1008
        | 1044
        | 1045
        | 1048..=1052
        | 1054..=1075
        | 1099..=1104
        | 1106..=1113
        | 1116..=1118
        | 1120
        | 1136
        | 1138..=1149
        | 1203
        | 1226
        | 1820
        | 1862
        | 3118 => Fault::Client,
        _ => Fault::Server,
    }
}

fn protocol(error: WireError) -> ConnectError {
    ConnectError::Protocol(error.to_string())
}

fn unusable(error: ClientAuthError) -> ConnectError {
    match error {
        ClientAuthError::Wire(error) => protocol(error),
        other => ConnectError::Unusable(other.to_string()),
    }
}

/// Packets of the login, one at a time.
struct LoginWire {
    link: Link,
    early: Option<Chunk>,
    sequence: u8,
}

impl LoginWire {
    async fn read(&mut self) -> Result<Vec<u8>, ConnectError> {
        let mut chunk = match self.early.take() {
            Some(early) => early,
            None => self.link.recv().await?,
        };
        loop {
            if chunk.is_empty() {
                return Err(ConnectError::Protocol("server closed the connection during login".into()));
            }
            if let Some(packet) = decode_packet(&chunk, MAX_LOGIN_PACKET).map_err(protocol)? {
                let (payload, consumed) = (packet.payload.to_vec(), packet.consumed);
                self.sequence = packet.sequence.wrapping_add(1);
                chunk.advance(consumed);
                self.early = (!chunk.is_empty()).then_some(chunk);
                return Ok(payload);
            }
            if self.link.recv_more(&mut chunk).await? == 0 {
                return Err(ConnectError::Protocol("server closed the connection during login".into()));
            }
        }
    }

    /// TLS as the server's row says. A Unix socket needs none.
    async fn encrypt(&mut self, server: &Server, greeting: &Greeting, request: SslRequest) -> Result<(), ConnectError> {
        let Some(connector) = server.tls.connector().filter(|_| server.address.port != 0) else { return Ok(()) };
        if !greeting.capabilities.contains(Capabilities::SSL) {
            return Ok(server.tls.not_offered()?);
        }
        if self.early.is_some() {
            return Err(TlsError::PlainBytes.into());
        }
        let mut payload = Vec::new();
        request.encode(&mut payload);
        self.write(&payload).await?;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(self.link.connect_tls(connector, &server.address.host).await?)
    }

    async fn write(&mut self, payload: &[u8]) -> Result<(), ConnectError> {
        let mut bytes = Vec::with_capacity(payload.len() + 4);
        PacketWriter::new(&mut bytes, self.sequence).payload(payload);
        self.link.send_bytes(&bytes).await?;
        Ok(())
    }

    fn finish(mut self) -> Link {
        if let Some(early) = self.early.take() {
            self.link.unread(early);
        }
        self.link
    }
}
