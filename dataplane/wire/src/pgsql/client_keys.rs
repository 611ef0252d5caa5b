//! What a client of SCRAM-SHA-256 derives from a password, kept so that it is derived once.
//!
//! PBKDF2 takes 1–3 ms (thirty times that in a debug build), in which a worker serves nobody. A server's salt for a role stays the same until
//! the password is changed, so a worker that opens a hundred connections of one user needs one derivation.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use sha2::{Digest, Sha256};
use zeroize::Zeroize;

use super::scram::{Key, hmac, salted_password};

/// Keys that are kept; more than this many pairs of user and server start anew.
const LIMIT: usize = 1_000;

/// `ClientKey` and `ServerKey` of RFC 5802, section 3.
#[derive(Clone)]
pub(super) struct ClientKeys {
    pub(super) client: Key,
    pub(super) server: Key,
}

impl ClientKeys {
    fn derive(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let mut salted = salted_password(password, salt, iterations);
        let keys = Self { client: hmac(&salted, &[b"Client Key"]), server: hmac(&salted, &[b"Server Key"]) };
        salted.zeroize();
        keys
    }
}

impl Drop for ClientKeys {
    fn drop(&mut self) {
        self.client.zeroize();
        self.server.zeroize();
    }
}

/// What keys depend on; of the password only a hash is kept.
#[derive(PartialEq, Eq, Hash)]
struct Source {
    password: Key,
    salt: Box<[u8]>,
    iterations: u32,
}

/// Keys that were derived before. At most 1000; a server that gives a new salt each time only costs its derivations.
#[derive(Default)]
pub struct KnownKeys(HashMap<Source, ClientKeys>);

impl KnownKeys {
    /// The keys of a password with this salt, derived if they are not known.
    pub(super) fn of(&mut self, password: &[u8], salt: &[u8], iterations: u32) -> ClientKeys {
        if self.0.len() >= LIMIT {
            self.0.clear();
        }
        let source = Source { password: Sha256::digest(password).into(), salt: salt.into(), iterations };
        match self.0.entry(source) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => place.insert(ClientKeys::derive(password, salt, iterations)).clone(),
        }
    }
}

impl std::fmt::Debug for KnownKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KnownKeys").field("count", &self.0.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::scram::{Binding, ClientExchange, NONCE_BYTES, ServerExchange, Verifier};
    use super::*;

    fn login(keys: &mut KnownKeys, password: &[u8], salt: &[u8], iterations: u32) -> bool {
        let (mut client, first) = ClientExchange::start(password, &[7; NONCE_BYTES], Binding::NotOffered);
        let verifier = Verifier::derive(b"secret", salt, iterations);
        let (server, challenge) = ServerExchange::start(verifier, &first, &[9; NONCE_BYTES], Binding::NotOffered).unwrap();
        let answer = client.on_challenge(&challenge, keys).unwrap();
        server.finish(&answer).is_ok_and(|last| client.on_final(&last).is_ok())
    }

    #[test]
    fn keys_are_derived_once_for_each_password_salt_and_count() {
        let mut keys = KnownKeys::default();
        for (password, salt, iterations, accepted, count) in [
            (&b"secret"[..], &b"salt"[..], 2, true, 1),
            (b"secret", b"salt", 2, true, 1),
            (b"other", b"salt", 2, false, 2),
            (b"secret", b"tlas", 2, true, 3),
            (b"secret", b"salt", 3, true, 4),
        ] {
            let outcome = (login(&mut keys, password, salt, iterations), keys.0.len());
            assert_eq!(outcome, (accepted, count), "{password:?} {salt:?} {iterations}");
        }
        // What is known is used, right or wrong.
        keys.0.values_mut().for_each(|keys| keys.client = [0; 32]);
        assert!(!login(&mut keys, b"secret", b"salt", 2));
    }

    #[test]
    fn the_number_of_kept_keys_is_bounded() {
        let mut keys = KnownKeys::default();
        for salt in 0..=LIMIT {
            keys.of(b"p", &salt.to_be_bytes(), 1);
        }
        assert_eq!(keys.0.len(), 1);
    }
}
