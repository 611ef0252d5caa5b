//! The login of a client (mysql-dataplane 1.3 to 1.8).

use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::mysql::auth::StoredPassword;
use quorumsql_wire::mysql::error_code::{self, ErrorCode};
use quorumsql_wire::mysql::handshake::{
    CACHING_SHA2, Greeting, HandshakeResponse, MAX_LOGIN_PACKET, NATIVE, Scramble, SslRequest, new_scramble,
};
use quorumsql_wire::mysql::packet::decode_packet;
use quorumsql_wire::mysql::server_auth::{AuthStep, Denial, FirstReply, Proof, ServerAuth};
use quorumsql_wire::mysql::{Capabilities, ErrPacket, OkPacket, Status, charset};

use super::reply::send_packets;
use super::worker::MysqlWorker;
use super::{Client, Identity};
use crate::backend::mysql::{KEY_CAPABILITIES, Mysql, ServerLogin};
use crate::config::{Protocol, User, Variables};
use crate::frontend::tls;
use crate::limits::Permit;
use crate::pool::{KeyParts, Pool, PoolKey};
use crate::session::mysql::state::SessionState;
use crate::stats::digests::RowCounts;
use crate::worker::WorkerContext;
use crate::worker::chunk::Chunk;
use crate::worker::link::Link;
use crate::worker::session::SessionGuard;
use crate::worker::snapshot::Snapshot;

/// Greets a client and lets it in, or says why not. Bounded by `connect_timeout_client`.
pub(super) async fn log_in(link: Link, session: SessionGuard, ctx: Rc<WorkerContext>) -> Option<Box<Client>> {
    let config = ctx.config();
    let limit = config.side(Protocol::Mysql).variables.connect_timeout_client;
    let client_addr = link.peer_addr().to_string();
    let stats = Rc::clone(&ctx);
    let login = Login { wire: LoginWire { link, sequence: 0 }, session, ctx: Rc::clone(&ctx), config };
    match ctx.ticker().guard(limit, Box::pin(login.run())).await {
        Ok(Some(client)) => Some(client),
        Ok(None) => {
            stats.stats(Protocol::Mysql).aborted.add(1);
            None
        }
        Err(_) => {
            tracing::warn!("Closing not established client connection {client_addr} after {}ms", limit.as_millis());
            stats.stats(Protocol::Mysql).aborted.add(1);
            None
        }
    }
}

/// One packet at a time, both ways, with running sequence ids.
pub(super) struct LoginWire {
    pub(super) link: Link,
    pub(super) sequence: u8,
}

impl LoginWire {
    /// The client's next payload; `None` = gone, or no protocol.
    pub(super) async fn read(&mut self) -> Option<Vec<u8>> {
        read_payload(&mut self.link, &mut self.sequence).await
    }

    pub(super) async fn write(&mut self, payload: &[u8]) {
        send_packets(&mut self.link, self.sequence, |packets| packets.payload(payload)).await;
        self.sequence = self.sequence.wrapping_add(1);
    }
}

/// The next payload of a login dialogue; `sequence` becomes the answer's.
pub(super) async fn read_payload(link: &mut Link, sequence: &mut u8) -> Option<Vec<u8>> {
    let mut chunk: Chunk = link.recv().await.ok()?;
    loop {
        if let Some(packet) = decode_packet(&chunk, MAX_LOGIN_PACKET).ok()? {
            let payload = packet.payload.to_vec();
            let consumed = packet.consumed;
            *sequence = packet.sequence.wrapping_add(1);
            chunk.advance(consumed);
            link.unread(chunk);
            return Some(payload);
        }
        if link.recv_more(&mut chunk).await.ok()? == 0 {
            return None;
        }
    }
}

/// What the stored password of a user is, and what is known beyond it.
pub(super) fn passwords(user: Option<&Arc<User>>) -> Vec<StoredPassword> {
    match user {
        None => vec![StoredPassword::Nobody],
        Some(user) => std::iter::once(user.password.as_str())
            .chain(user.additional_password.as_deref())
            .map(|text| StoredPassword::parse(text.as_bytes()))
            .collect(),
    }
}

/// Why a login fails: code and text.
pub(super) type Refusal = (ErrorCode, String);

/// The text of 1045 (mysql-dataplane 1.8).
pub(super) fn denied(user: &str, client: &str, with_password: bool, denial: Denial) -> Refusal {
    let using = if with_password { "YES" } else { "NO" };
    let text = match denial {
        Denial::WrongPassword => format!("ProxySQL Error: Access denied for user '{user}'@'{client}' (using password: {using})"),
        Denial::NeedsSecureChannel => format!(
            "ProxySQL Error: Access denied for user '{user}'@'{client}': the stored password is a hash that only full \
             authentication can check, which needs an encrypted connection; connect with TLS or a Unix socket, or store the \
             password in clear or as a mysql_native_password hash"
        ),
    };
    (error_code::ACCESS_DENIED, text)
}

struct Login {
    wire: LoginWire,
    session: SessionGuard,
    ctx: Rc<WorkerContext>,
    config: Rc<Snapshot>,
}

impl Login {
    async fn run(mut self) -> Option<Box<Client>> {
        let variables = Arc::clone(&self.config.side(Protocol::Mysql).variables);
        let offered = if variables.default_authentication_plugin == CACHING_SHA2 { CACHING_SHA2 } else { NATIVE };
        let scramble = new_scramble().ok()?;
        self.greet(&variables, offered, scramble).await;
        let mut payload = self.wire.read().await?;
        if let (Some(tls), Some(_)) = (&self.config.side(Protocol::Mysql).client_tls, SslRequest::decode(&payload)) {
            tls::accept(&mut self.wire.link, tls, &self.ctx, Protocol::Mysql).await.ok()?;
            payload = self.wire.read().await?;
        }
        let Ok(response) = HandshakeResponse::decode(&payload) else {
            return self.refuse((error_code::HANDSHAKE, "Bad handshake".into())).await;
        };
        let user_name = String::from_utf8_lossy(response.user).into_owned();
        let user = self.config.side(Protocol::Mysql).users.get(&user_name).cloned();
        let worker = self.ctx.extension(|_| MysqlWorker::default());
        let proof = match self.authenticate(&response, user.as_ref(), &worker, offered, scramble).await? {
            Ok(proof) => proof,
            Err(refusal) => return self.refuse(refusal).await,
        };
        let user = user?;
        match self.admit(&user, &variables) {
            Ok(places) => Some(welcome(self.into_client(&response, user, proof, worker, &variables, places)).await),
            Err(refusal) => self.refuse(refusal).await,
        }
    }

    async fn greet(&mut self, variables: &Variables, offered: &str, scramble: Scramble) {
        let greeting = Greeting {
            server_version: variables.server_version.clone(),
            connection_id: self.session.id(),
            scramble,
            capabilities: match self.config.side(Protocol::Mysql).client_tls {
                Some(_) => Capabilities::SERVER_DEFAULT.with(Capabilities::SSL),
                None => Capabilities::SERVER_DEFAULT,
            },
            charset: default_charset(variables),
            status: Status::AUTOCOMMIT,
            plugin: offered.to_owned(),
        };
        let mut payload = Vec::new();
        greeting.encode(&mut payload);
        self.wire.write(&payload).await;
    }

    /// The dialogue; `None` = the client has gone.
    async fn authenticate(
        &mut self,
        response: &HandshakeResponse<'_>,
        user: Option<&Arc<User>>,
        worker: &MysqlWorker,
        offered: &str,
        scramble: Scramble,
    ) -> Option<Result<Proof, Refusal>> {
        let stored = user.map(|user| user.password.clone()).unwrap_or_default();
        let first = FirstReply {
            offered,
            scramble,
            client_plugin: response.plugin,
            reply: response.auth,
            fresh_scramble: new_scramble().ok()?,
            secure: self.wire.link.is_secure(),
        };
        let mut with_password = !response.auth.is_empty();
        let (mut auth, mut step) = ServerAuth::begin(passwords(user), worker.known_password(&stored), &first);
        loop {
            match step {
                AuthStep::Continue(payload) => {
                    self.wire.write(&payload).await;
                    let reply = self.wire.read().await?;
                    with_password |= !reply.is_empty();
                    step = auth.on_reply(&reply);
                }
                AuthStep::Accepted { before, proof, which } => {
                    if !before.is_empty() {
                        self.wire.write(&before).await;
                    }
                    if let (Proof::Clear(clear), 0) = (&proof, which) {
                        worker.remember_password(&stored, clear);
                    }
                    return Some(Ok(proof));
                }
                AuthStep::Denied(denial) => {
                    let name = String::from_utf8_lossy(response.user);
                    let client = self.wire.link.peer_addr().host();
                    return Some(Err(denied(&name, &client, with_password, denial)));
                }
            }
        }
    }

    /// The checks after the password, in the order of mysql-dataplane 1.8: the client's places under the limits.
    fn admit(&self, user: &User, variables: &Variables) -> Result<(Permit, Permit), Refusal> {
        let limits = self.ctx.limits();
        let Some(place) = limits.client(Protocol::Mysql, variables.max_connections) else {
            return Err((error_code::CON_COUNT, "Too many connections".into()));
        };
        let (name, max) = (&user.name, user.max_connections);
        let Some(user_place) = limits.user(Protocol::Mysql, name, max) else {
            let text = format!("User '{name}' has exceeded the 'max_user_connections' resource (current value: {max})");
            return Err((error_code::USER_LIMIT, text));
        };
        if user.require_tls && self.wire.link.tls().is_none() {
            let using = if user.password.is_empty() { "NO" } else { "YES" };
            let text = format!("ProxySQL Error: Access denied for user '{name}' (using password: {using}). SSL is required");
            return Err((error_code::ACCESS_DENIED, text));
        }
        Ok((place, user_place))
    }

    /// The session as it is after login.
    fn into_client(
        self,
        response: &HandshakeResponse<'_>,
        user: Arc<User>,
        proof: Proof,
        worker: Rc<MysqlWorker>,
        variables: &Variables,
        (place, user_place): (Permit, Permit),
    ) -> Box<Client> {
        let schema = response.schema.map(|name| String::from_utf8_lossy(name).into_owned());
        let schema = schema.or_else(|| user.default_schema.clone()).unwrap_or_else(|| variables.default_schema.clone());
        let mut capabilities = response.capabilities & Capabilities::SERVER_DEFAULT;
        if capabilities.contains(Capabilities::MULTI_STATEMENTS) {
            capabilities = capabilities.with(Capabilities::MULTI_RESULTS);
        }
        let charset = if response.charset == 0 { default_charset(variables) } else { response.charset };
        let Self { wire, session, ctx, .. } = self;
        let identity = Identity { _place: place, user_place, user };
        session.logged_in();
        let origin = ctx.origin(&wire.link, &identity.user.name, &schema);
        session.set_origin(&origin);
        let mut state = SessionState::new(origin, charset, capabilities.contains(Capabilities::MULTI_STATEMENTS));
        if capabilities.contains(Capabilities::IGNORE_SPACE) {
            state.ignore_space();
        }
        let pool = Pool::of(&ctx);
        Box::new(Client {
            key: pool_key(&pool, &identity.user.name, capabilities),
            pool,
            server_login: ServerLogin { proof, charset },
            state,
            link: wire.link,
            login_sequence: wire.sequence,
            session,
            ctx,
            worker,
            identity,
            capabilities,
            held: None,
            prepared_parameters: None,
            rows: RowCounts::default(),
            spoiled: false,
        })
    }

    async fn refuse(&mut self, (code, text): Refusal) -> Option<Box<Client>> {
        tracing::info!(client = %self.wire.link.peer_addr(), code = code.code, "{text}");
        let mut payload = Vec::new();
        ErrPacket::new(code, text).encode(&mut payload);
        self.wire.write(&payload).await;
        None
    }
}

/// What connections must be like for this client.
pub(super) fn pool_key(pool: &Pool<Mysql>, user: &str, capabilities: Capabilities) -> PoolKey {
    let capabilities = u64::from((capabilities & KEY_CAPABILITIES).0);
    pool.key(KeyParts { user: user.to_owned(), capabilities, ..KeyParts::default() })
}

/// The OK that ends the login.
async fn welcome(mut client: Box<Client>) -> Box<Client> {
    let ok = OkPacket { status: Status::AUTOCOMMIT, ..OkPacket::default() };
    let sequence = client.login_sequence;
    send_packets(&mut client.link, sequence, |packets| packets.packet(|out| ok.encode(0, out))).await;
    client
}

/// The collation id of greetings, and of clients that name none: `default_collation_connection`, else that of `default_charset`.
fn default_charset(variables: &Variables) -> u8 {
    charset::collation_id(&variables.default_collation_connection)
        .or_else(|| charset::default_collation_id(&variables.default_charset.to_ascii_lowercase()))
        .and_then(|id| u8::try_from(id).ok())
        .unwrap_or(charset::UTF8_GENERAL_CI)
}
