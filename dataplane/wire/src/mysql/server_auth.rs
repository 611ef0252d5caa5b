//! Our side as a server: which plugin to ask of a client, and whether its replies prove the password.
//!
//! ```text
//! begin ──► Accepted                       the first reply was for the right plugin and right
//!       ├─► Denied
//!       └─► Continue(AuthSwitchRequest) ─ on_reply ─► Accepted | Denied | Continue(0x01 0x04) ─ on_reply ─► Accepted | Denied
//! ```
//! The caller frames what `Continue` and `Accepted.before` hold as packets, continuing the sequence.

use zeroize::Zeroizing;

use super::auth::{Stage1, StoredPassword, native_stage1, native_stage2, native_verify, sha2_verify};
use super::handshake::{AuthSwitch, CACHING_SHA2, CLEAR, NATIVE, Scramble};

/// What a login proved, and with what a server connection can therefore be opened.
#[derive(Clone, PartialEq, Eq)]
pub enum Proof {
    /// The account has no password.
    Empty,
    /// The password itself is known.
    Clear(Zeroizing<Vec<u8>>),
    /// `SHA1(password)` is known: enough for `mysql_native_password`.
    Stage1(Zeroizing<Stage1>),
}

impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "Empty",
            Self::Clear(_) => "Clear(…)",
            Self::Stage1(_) => "Stage1(…)",
        })
    }
}

/// Why a login fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// Wrong password, unknown user, or a reply that makes no sense: 1045, the same text for all.
    WrongPassword,
    /// Only the password in clear can be checked against the stored hash, and the connection is not encrypted.
    NeedsSecureChannel,
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthStep {
    /// Send this payload and pass the client's next payload to [`ServerAuth::on_reply`].
    Continue(Vec<u8>),
    /// The client is who it says. Send `before` (if not empty) as a packet of its own, then OK.
    Accepted {
        /// `0x01 0x03` of the fast path, or nothing.
        before: Vec<u8>,
        /// What was proved.
        proof: Proof,
        /// Index in `passwords` of the one that matched.
        which: usize,
    },
    /// Send ERR and close.
    Denied(Denial),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plugin {
    Native,
    CachingSha2,
    Clear,
}

impl Plugin {
    fn named(name: &[u8]) -> Option<Self> {
        if name == NATIVE.as_bytes() {
            Some(Self::Native)
        } else if name == CACHING_SHA2.as_bytes() {
            Some(Self::CachingSha2)
        } else if name == CLEAR.as_bytes() {
            Some(Self::Clear)
        } else {
            None
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Native => NATIVE,
            Self::CachingSha2 => CACHING_SHA2,
            Self::Clear => CLEAR,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expect {
    /// The reply of the current plugin to the current scramble.
    Reply,
    /// The password in clear and a NUL, after `0x01 0x04`.
    FullPassword,
}

/// One login, from the client's first reply to the end.
#[derive(Debug)]
pub struct ServerAuth {
    passwords: Vec<StoredPassword>,
    /// Password in clear of this account, learnt from an earlier full authentication.
    known_clear: Option<Zeroizing<Vec<u8>>>,
    secure: bool,
    plugin: Plugin,
    scramble: Scramble,
    expect: Expect,
}

/// What the caller knows when a client's first reply has arrived.
#[derive(Debug)]
pub struct FirstReply<'a> {
    /// Plugin named in our greeting.
    pub offered: &'a str,
    /// Scramble of our greeting.
    pub scramble: Scramble,
    /// Plugin that the client names.
    pub client_plugin: Option<&'a [u8]>,
    /// Its reply.
    pub reply: &'a [u8],
    /// A fresh scramble, used if the plugin must be switched.
    pub fresh_scramble: Scramble,
    /// `true` on TLS and Unix sockets: a password may travel in clear.
    pub secure: bool,
}

impl ServerAuth {
    /// Judges the first reply. `passwords` are the account's, the primary first ([`StoredPassword::Nobody`] for an unknown user);
    /// `known_clear` its password in clear if an earlier login proved it.
    #[must_use]
    pub fn begin(passwords: Vec<StoredPassword>, known_clear: Option<Zeroizing<Vec<u8>>>, first: &FirstReply<'_>) -> (Self, AuthStep) {
        let named = first.client_plugin.and_then(Plugin::named);
        let offered = Plugin::named(first.offered.as_bytes());
        let spoken = if first.client_plugin.is_some() { named } else { Some(Plugin::Native) };
        let mut auth =
            Self { passwords, known_clear, secure: first.secure, plugin: Plugin::Native, scramble: first.scramble, expect: Expect::Reply };
        auth.plugin = auth.choose(spoken);
        let replied_for_it = spoken == Some(auth.plugin) && (auth.plugin == Plugin::Clear || offered == Some(auth.plugin));
        let without_plugins = first.client_plugin.is_none() && auth.plugin == Plugin::Native && !first.reply.is_empty();
        if replied_for_it || without_plugins {
            let step = auth.on_reply(first.reply);
            return (auth, step);
        }
        auth.scramble = first.fresh_scramble;
        let step = AuthStep::Continue(auth.switch_request());
        (auth, step)
    }

    /// COM_CHANGE_USER: always asks with a fresh scramble, whatever the packet's reply was.
    #[must_use]
    pub fn change_user(
        passwords: Vec<StoredPassword>,
        known_clear: Option<Zeroizing<Vec<u8>>>,
        first: &FirstReply<'_>,
    ) -> (Self, AuthStep) {
        let spoken = first.client_plugin.and_then(Plugin::named);
        let mut auth = Self {
            passwords,
            known_clear,
            secure: first.secure,
            plugin: Plugin::Native,
            scramble: first.fresh_scramble,
            expect: Expect::Reply,
        };
        auth.plugin = auth.choose(spoken);
        let step = AuthStep::Continue(auth.switch_request());
        (auth, step)
    }

    /// The plugin that fits client and stored form (mysql-dataplane 1.5).
    fn choose(&self, spoken: Option<Plugin>) -> Plugin {
        let primary = self.passwords.first().unwrap_or(&StoredPassword::Nobody);
        match (spoken, primary) {
            (Some(Plugin::Clear), _) if self.secure => Plugin::Clear,
            // A native hash can be checked against a caching_sha2 client only by full authentication.
            (Some(Plugin::CachingSha2), StoredPassword::Native(_)) if !self.secure && self.known_clear.is_none() => Plugin::Native,
            (Some(Plugin::CachingSha2), _) | (_, StoredPassword::Sha2(_)) => Plugin::CachingSha2,
            _ => Plugin::Native,
        }
    }

    fn switch_request(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        AuthSwitch { plugin: self.plugin.name().as_bytes(), data: &self.scramble }.encode(&mut payload);
        payload
    }

    /// Name of the plugin in use.
    #[must_use]
    pub const fn plugin(&self) -> &'static str {
        self.plugin.name()
    }

    /// The client's next payload.
    #[must_use]
    pub fn on_reply(&mut self, payload: &[u8]) -> AuthStep {
        match (self.expect, self.plugin) {
            (Expect::FullPassword, _) | (_, Plugin::Clear) => self.full(payload),
            (Expect::Reply, Plugin::Native) => self.native(payload),
            (Expect::Reply, Plugin::CachingSha2) => self.fast(payload),
        }
    }

    fn native(&self, reply: &[u8]) -> AuthStep {
        for (which, password) in self.passwords.iter().enumerate() {
            let proof = match password {
                StoredPassword::Empty => reply.is_empty().then_some(Proof::Empty),
                StoredPassword::Clear(clear) => {
                    native_verify(&native_stage2(&native_stage1(clear)), &self.scramble, reply).map(|_| Proof::Clear(clear.clone()))
                }
                StoredPassword::Native(stage2) => {
                    native_verify(stage2, &self.scramble, reply).map(|stage1| Proof::Stage1(Zeroizing::new(stage1)))
                }
                StoredPassword::Sha2(_) | StoredPassword::Nobody => None,
            };
            if let Some(proof) = proof {
                return AuthStep::Accepted { before: Vec::new(), proof, which };
            }
        }
        AuthStep::Denied(Denial::WrongPassword)
    }

    fn fast(&mut self, reply: &[u8]) -> AuthStep {
        // An empty password travels as an empty packet, or as a lone NUL after a switch.
        if reply.is_empty() || reply == [0] {
            return match self.passwords.iter().position(|password| *password == StoredPassword::Empty) {
                Some(which) => AuthStep::Accepted { before: Vec::new(), proof: Proof::Empty, which },
                None => AuthStep::Denied(Denial::WrongPassword),
            };
        }
        let mut only_full = false;
        for (which, password) in self.passwords.iter().enumerate() {
            let clear = match password {
                StoredPassword::Clear(clear) => Some(clear),
                StoredPassword::Native(_) | StoredPassword::Sha2(_) => {
                    only_full = true;
                    self.known_clear.as_ref()
                }
                StoredPassword::Empty | StoredPassword::Nobody => None,
            };
            if let Some(clear) = clear.filter(|clear| sha2_verify(clear, &self.scramble, reply)) {
                return AuthStep::Accepted { before: vec![1, 3], proof: Proof::Clear(clear.clone()), which };
            }
        }
        match (only_full, self.secure) {
            (false, _) => AuthStep::Denied(Denial::WrongPassword),
            (true, false) => AuthStep::Denied(Denial::NeedsSecureChannel),
            (true, true) => {
                self.expect = Expect::FullPassword;
                AuthStep::Continue(vec![1, 4])
            }
        }
    }

    fn full(&self, payload: &[u8]) -> AuthStep {
        let password = payload.strip_suffix(&[0]).unwrap_or(payload);
        if !self.secure {
            return AuthStep::Denied(Denial::NeedsSecureChannel);
        }
        match self.passwords.iter().position(|stored| stored.verify_clear(password)) {
            Some(which) if password.is_empty() => AuthStep::Accepted { before: Vec::new(), proof: Proof::Empty, which },
            Some(which) => AuthStep::Accepted { before: Vec::new(), proof: Proof::Clear(Zeroizing::new(password.to_vec())), which },
            None => AuthStep::Denied(Denial::WrongPassword),
        }
    }
}

#[cfg(test)]
#[path = "server_auth_test.rs"]
mod tests;
