//! COM_CHANGE_USER and COM_RESET_CONNECTION (mysql-dataplane 1.12).

use std::sync::Arc;

use quorumsql_wire::mysql::handshake::{CACHING_SHA2, ChangeUser, NATIVE, new_scramble};
use quorumsql_wire::mysql::server_auth::{AuthStep, FirstReply, Proof, ServerAuth};
use quorumsql_wire::mysql::{Capabilities, error_code};

use super::login::{Refusal, denied, passwords, pool_key, read_payload};
use super::reply::send_packets;
use super::{Client, Flow};
use crate::backend::mysql::{Product, ServerLogin};
use crate::config::{Protocol, User};
use crate::session::mysql::state::SessionState;

impl Client {
    /// Everything but user and schema returns to the state after login; the connection is reset or given back.
    pub(super) async fn reset_connection(&mut self, sequence: u8) -> Flow {
        self.give_up_connection().await;
        self.state.reset();
        // MariaDB does it at login only.
        if self.capabilities.contains(Capabilities::IGNORE_SPACE) && self.shown_product() == Product::Mysql {
            self.state.ignore_space();
        }
        self.send_ok(sequence, "").await
    }

    /// Logs in anew, always with a fresh scramble. A refusal closes the connection, as a server does.
    pub(super) async fn change_user(&mut self, body: &[u8], sequence: u8) -> Flow {
        let limit = self.ctx.config().side(Protocol::Mysql).variables.connect_timeout_client;
        let ticker = self.ctx.ticker().clone();
        match ticker.guard(limit, Box::pin(self.try_change_user(body, sequence))).await {
            Ok(Some(flow)) => flow,
            Ok(None) | Err(_) => Flow::Close,
        }
    }

    /// `None` = the client has gone.
    async fn try_change_user(&mut self, body: &[u8], mut sequence: u8) -> Option<Flow> {
        let Ok(change) = ChangeUser::decode(body, self.capabilities) else {
            return Some(self.refuse_user(sequence, (error_code::HANDSHAKE, "Bad handshake".into())).await);
        };
        let config = self.ctx.config();
        let name = String::from_utf8_lossy(change.user).into_owned();
        let user = config.side(Protocol::Mysql).users.get(&name).cloned();
        let proof = match self.prove(&change, user.as_ref(), &name, &mut sequence).await? {
            Ok(proof) => proof,
            Err(refusal) => return Some(self.refuse_user(sequence, refusal).await),
        };
        let user = user?;
        let Some(place) = self.ctx.limits().user(Protocol::Mysql, &user.name, user.max_connections) else {
            let limit = user.max_connections;
            let text = format!("User '{name}' has exceeded the 'max_user_connections' resource (current value: {limit})");
            return Some(self.refuse_user(sequence, (error_code::USER_LIMIT, text)).await);
        };
        if user.require_tls && self.link.tls().is_none() {
            let text = format!("ProxySQL Error: Access denied for user '{name}' (using password: YES). SSL is required");
            return Some(self.refuse_user(sequence, (error_code::ACCESS_DENIED, text)).await);
        }
        self.give_up_connection().await;
        let schema = change.schema.map(|schema| String::from_utf8_lossy(schema).into_owned());
        let schema =
            schema.or_else(|| user.default_schema.clone()).unwrap_or_else(|| config.side(Protocol::Mysql).variables.default_schema.clone());
        let charset = change.charset.and_then(|id| u8::try_from(id).ok()).filter(|id| *id != 0).unwrap_or(self.state.login_charset);
        self.identity.user_place = place;
        self.become_user(user, proof, &schema, charset);
        Some(self.send_ok(sequence, "").await)
    }

    async fn prove(
        &mut self,
        change: &ChangeUser<'_>,
        user: Option<&Arc<User>>,
        name: &str,
        sequence: &mut u8,
    ) -> Option<Result<Proof, Refusal>> {
        let stored = user.map(|user| user.password.clone()).unwrap_or_default();
        let config = self.ctx.config();
        let default_plugin = &config.side(Protocol::Mysql).variables.default_authentication_plugin;
        let first = FirstReply {
            offered: if *default_plugin == CACHING_SHA2 { CACHING_SHA2 } else { NATIVE },
            scramble: new_scramble().ok()?,
            client_plugin: change.plugin,
            reply: change.auth,
            fresh_scramble: new_scramble().ok()?,
            secure: self.link.is_secure(),
        };
        let mut with_password = !change.auth.is_empty();
        let (mut auth, mut step) = ServerAuth::change_user(passwords(user), self.worker.known_password(&stored), &first);
        loop {
            match step {
                AuthStep::Continue(payload) => {
                    send_packets(&mut self.link, *sequence, |packets| packets.payload(&payload)).await;
                    let reply = read_payload(&mut self.link, sequence).await?;
                    with_password |= !reply.is_empty();
                    step = auth.on_reply(&reply);
                }
                AuthStep::Accepted { before, proof, .. } => {
                    if !before.is_empty() {
                        send_packets(&mut self.link, *sequence, |packets| packets.payload(&before)).await;
                        *sequence = sequence.wrapping_add(1);
                    }
                    return Some(Ok(proof));
                }
                AuthStep::Denied(denial) => return Some(Err(denied(name, &self.state.origin.client_addr, with_password, denial))),
            }
        }
    }

    fn become_user(&mut self, user: Arc<User>, proof: Proof, schema: &str, charset: u8) {
        let origin = self.ctx.origin(&self.link, &user.name, schema);
        self.session.set_origin(&origin);
        self.key = pool_key(&self.pool, &user.name, self.capabilities);
        self.server_login = ServerLogin { proof, charset };
        let (number, statements) = (self.state.last.number, self.state.statements.forgotten());
        self.state = SessionState { statements, ..SessionState::new(origin, charset, self.state.multi_statements) };
        self.state.last.number = number + 1;
        if self.capabilities.contains(Capabilities::IGNORE_SPACE) {
            self.state.ignore_space();
        }
        self.identity.user = user;
    }

    async fn refuse_user(&mut self, sequence: u8, (code, text): Refusal) -> Flow {
        tracing::info!(client = %self.link.peer_addr(), code = code.code, "{text}");
        let _ = self.send_error(sequence, code, text).await;
        Flow::Close
    }
}
