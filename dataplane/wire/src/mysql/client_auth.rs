//! Our side as a client of a database: answers to its greeting and to what it asks after that.

use thiserror::Error;

use super::auth::{RsaError, native_reply, native_stage1, rsa_encrypt, sha2_reply};
use super::handshake::{AuthSwitch, CACHING_SHA2, CLEAR, NATIVE, Scramble};
use super::reader::WireError;
use super::response::ErrPacket;
use super::server_auth::Proof;

/// Why a login at a server cannot go on.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ClientAuthError {
    /// The server asks for a plugin that is not spoken here.
    #[error("the server asks for the authentication plugin {0:?}, which is not supported")]
    UnknownPlugin(String),
    /// Only `SHA1(password)` is known, which serves `mysql_native_password` alone.
    #[error("the server asks for {0}, for which the password must be known in clear; it is stored as a hash")]
    PasswordNotKnown(&'static str),
    /// The server wants the password in clear over plain text.
    #[error("the server asks for the password in clear on a connection without TLS")]
    NotSecure,
    /// RSA.
    #[error(transparent)]
    Rsa(#[from] RsaError),
    /// Bytes.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The server refused.
    #[error("{} ({}): {}", .0.code, String::from_utf8_lossy(&.0.sqlstate), .0.message)]
    Refused(ErrPacket),
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientStep {
    /// Send this payload, then read the next packet.
    Send(Vec<u8>),
    /// Read the next packet.
    Wait,
    /// Logged in; the payload was the OK packet.
    Done,
}

/// One login at a server.
#[derive(Debug)]
pub struct ClientAuth {
    secret: Proof,
    secure: bool,
    scramble: Scramble,
    plugin: &'static str,
    awaits_key: bool,
}

impl ClientAuth {
    /// Plugin name and reply for the handshake response. `secure` = TLS or a Unix socket.
    pub fn begin(secret: Proof, plugin: &str, scramble: Scramble, secure: bool) -> Result<(Self, &'static str, Vec<u8>), ClientAuthError> {
        let mut auth = Self { secret, secure, scramble, plugin: NATIVE, awaits_key: false };
        // With a plugin that is unknown here or cannot be served, offer native: the server will switch.
        auth.plugin = match plugin {
            CACHING_SHA2 if !matches!(auth.secret, Proof::Stage1(_)) => CACHING_SHA2,
            _ => NATIVE,
        };
        let reply = auth.reply()?;
        let plugin = auth.plugin;
        Ok((auth, plugin, reply))
    }

    fn reply(&self) -> Result<Vec<u8>, ClientAuthError> {
        match (self.plugin, &self.secret) {
            (CLEAR, _) if !self.secure => Err(ClientAuthError::NotSecure),
            (CLEAR, Proof::Empty) => Ok(vec![0]),
            (_, Proof::Empty) => Ok(Vec::new()),
            (NATIVE, Proof::Clear(password)) => Ok(native_reply(&native_stage1(password), &self.scramble).to_vec()),
            (NATIVE, Proof::Stage1(stage1)) => Ok(native_reply(stage1, &self.scramble).to_vec()),
            (CACHING_SHA2, Proof::Clear(password)) => Ok(sha2_reply(password, &self.scramble).to_vec()),
            (_, Proof::Clear(password)) => Ok(with_nul(password)),
            (plugin, Proof::Stage1(_)) => Err(ClientAuthError::PasswordNotKnown(plugin)),
        }
    }

    /// The server's next payload.
    pub fn on_packet(&mut self, payload: &[u8]) -> Result<ClientStep, ClientAuthError> {
        match payload.first() {
            Some(0) => Ok(ClientStep::Done),
            Some(0xff) => Err(ClientAuthError::Refused(ErrPacket::decode(payload)?)),
            Some(0xfe) => self.on_switch(payload),
            Some(1) => self.on_more(&payload[1..]),
            _ => Err(WireError::Malformed("unexpected packet during login").into()),
        }
    }

    fn on_switch(&mut self, payload: &[u8]) -> Result<ClientStep, ClientAuthError> {
        let switch = AuthSwitch::decode(payload)?;
        self.plugin = [NATIVE, CACHING_SHA2, CLEAR]
            .into_iter()
            .find(|name| name.as_bytes() == switch.plugin)
            .ok_or_else(|| ClientAuthError::UnknownPlugin(String::from_utf8_lossy(switch.plugin).into_owned()))?;
        if self.plugin != CLEAR {
            self.scramble = switch.scramble().ok_or(WireError::Malformed("authentication switch without a scramble"))?;
        }
        Ok(ClientStep::Send(self.reply()?))
    }

    /// `caching_sha2_password` after the reply: 3 = fast path succeeded, 4 = full authentication, else the key asked for.
    fn on_more(&mut self, data: &[u8]) -> Result<ClientStep, ClientAuthError> {
        if self.plugin != CACHING_SHA2 {
            return Err(WireError::Malformed("unexpected authentication data").into());
        }
        let Proof::Clear(password) = &self.secret else {
            return Err(ClientAuthError::PasswordNotKnown(CACHING_SHA2));
        };
        if std::mem::take(&mut self.awaits_key) {
            return Ok(ClientStep::Send(rsa_encrypt(data, password, &self.scramble)?));
        }
        match data {
            [3] => Ok(ClientStep::Wait),
            [4] if self.secure => Ok(ClientStep::Send(with_nul(password))),
            [4] => {
                self.awaits_key = true;
                Ok(ClientStep::Send(vec![2]))
            }
            _ => Err(WireError::Malformed("unknown caching_sha2_password step").into()),
        }
    }
}

fn with_nul(password: &[u8]) -> Vec<u8> {
    let mut text = password.to_vec();
    text.push(0);
    text
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    const SCRAMBLE: Scramble = *b"abcdefgh12345678ABCD";

    fn clear() -> Proof {
        Proof::Clear(Zeroizing::new(b"secret".to_vec()))
    }

    fn switch(plugin: &str) -> Vec<u8> {
        let mut payload = Vec::new();
        AuthSwitch { plugin: plugin.as_bytes(), data: &SCRAMBLE }.encode(&mut payload);
        payload
    }

    #[test]
    fn full_authentication_over_plain_text_asks_for_the_key() {
        let (mut auth, plugin, reply) = ClientAuth::begin(clear(), CACHING_SHA2, SCRAMBLE, false).unwrap();
        assert_eq!((plugin, reply.len()), (CACHING_SHA2, 32));
        assert_eq!(auth.on_packet(&[1, 4]), Ok(ClientStep::Send(vec![2])));
        let mut key = vec![1];
        key.extend_from_slice(include_bytes!("testdata/server_public_key.pem"));
        assert!(matches!(auth.on_packet(&key), Ok(ClientStep::Send(cipher)) if cipher.len() == 256));
        assert_eq!(auth.on_packet(&[0, 0, 0, 2, 0, 0, 0]), Ok(ClientStep::Done));
    }

    #[test]
    fn a_bad_key_is_an_error() {
        let (mut auth, ..) = ClientAuth::begin(clear(), CACHING_SHA2, SCRAMBLE, false).unwrap();
        auth.on_packet(&[1, 4]).unwrap();
        assert_eq!(auth.on_packet(b"\x01no key"), Err(ClientAuthError::Rsa(RsaError::Key)));
    }

    #[test]
    fn the_fast_path_and_tls() {
        let (mut auth, ..) = ClientAuth::begin(clear(), CACHING_SHA2, SCRAMBLE, true).unwrap();
        assert_eq!(auth.on_packet(&[1, 3]), Ok(ClientStep::Wait));
        assert_eq!(auth.on_packet(&[1, 4]), Ok(ClientStep::Send(b"secret\0".to_vec())));
    }

    #[test]
    fn a_hash_serves_native_servers_only() {
        let stage1 = Proof::Stage1(Zeroizing::new(native_stage1(b"secret")));
        let (mut auth, plugin, reply) = ClientAuth::begin(stage1, CACHING_SHA2, SCRAMBLE, false).unwrap();
        assert_eq!((plugin, reply), (NATIVE, native_reply(&native_stage1(b"secret"), &SCRAMBLE).to_vec()));
        assert_eq!(auth.on_packet(&switch(CACHING_SHA2)), Err(ClientAuthError::PasswordNotKnown(CACHING_SHA2)));
    }

    #[test]
    fn what_a_server_may_not_ask() {
        let (mut auth, ..) = ClientAuth::begin(clear(), NATIVE, SCRAMBLE, false).unwrap();
        assert!(matches!(auth.on_packet(&switch("client_ed25519")), Err(ClientAuthError::UnknownPlugin(_))));
        assert_eq!(auth.on_packet(b"\xfemysql_clear_password\0"), Err(ClientAuthError::NotSecure));
        assert!(auth.on_packet(&[0xfe]).is_err());
        assert!(auth.on_packet(&[]).is_err());
        assert!(matches!(auth.on_packet(b"\xff\x15\x04#28000denied"), Err(ClientAuthError::Refused(err)) if err.code == 1045));
    }
}
