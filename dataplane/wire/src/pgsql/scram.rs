//! SCRAM-SHA-256, both sides (RFC 5802, RFC 7677; PostgreSQL manual, "SASL Authentication").
//!
//! Channel binding is `tls-server-end-point` ([`super::channel_binding`]). The user name inside the exchange is ignored, as PostgreSQL does.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use thiserror::Error;
use zeroize::Zeroize;

use super::client_keys::KnownKeys;
use super::password::equal;

/// The mechanism's name.
pub const MECHANISM: &str = "SCRAM-SHA-256";
/// The name of the one with channel binding.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";
/// How the one kind of channel binding that there is starts (RFC 5802, section 7).
const BINDING_HEADER: &str = "p=tls-server-end-point,,";
/// Iterations of a verifier that we derive (PostgreSQL's default).
pub const DEFAULT_ITERATIONS: u32 = 4096;
/// Most iterations that a server may ask of us: a bound on the CPU time that a hostile one can take.
pub const MAX_ITERATIONS: u32 = 1_000_000;
/// Longest salt, decoded, that is accepted from either side.
pub const MAX_SALT: usize = 1024;
/// Random bytes in a nonce of ours.
pub const NONCE_BYTES: usize = 18;

pub(super) type Key = [u8; 32];

/// Why a SCRAM exchange ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ScramError {
    /// The message breaks the grammar.
    #[error("malformed SCRAM message")]
    Malformed,
    /// The client believes that we do not offer what we offer, or wants a binding that we do not offer.
    #[error("SCRAM channel binding negotiation error")]
    ChannelBinding,
    /// The proof is wrong.
    #[error("wrong password")]
    WrongPassword,
    /// The server could not prove that it knows the password.
    #[error("invalid server signature")]
    ServerSignature,
    /// The server asks for more iterations than [`MAX_ITERATIONS`], or none.
    #[error("SCRAM iteration count {0} is out of range")]
    Iterations(u32),
}

/// What both sides say of channel binding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Binding<'a> {
    /// The server offers none.
    NotOffered,
    /// Offered or possible, and the client took the mechanism without it.
    NotChosen,
    /// Chosen: hash of the server's certificate.
    Bound(&'a [u8]),
}

impl Binding<'_> {
    /// `c=` for [`BINDING_HEADER`].
    fn bound(data: &[u8]) -> String {
        BASE64.encode([BINDING_HEADER.as_bytes(), data].concat())
    }
}

/// What a server stores of a password: `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: Key,
    server_key: Key,
}

impl Verifier {
    /// Derives a verifier: PBKDF2, 1–3 ms of CPU, so do it once per secret and keep it.
    #[must_use]
    pub fn derive(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let mut salted = salted_password(password, salt, iterations);
        let stored_key = Sha256::digest(hmac(&salted, &[b"Client Key"])).into();
        let server_key = hmac(&salted, &[b"Server Key"]);
        salted.zeroize();
        Self { iterations, salt: salt.to_vec(), stored_key, server_key }
    }

    /// Parses the stored form.
    #[must_use]
    pub fn parse(stored: &str) -> Option<Self> {
        let (iterations, rest) = stored.strip_prefix("SCRAM-SHA-256$")?.split_once(':')?;
        let (salt, keys) = rest.split_once('$')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let iterations = iterations.parse().ok().filter(|count| (1..=MAX_ITERATIONS).contains(count))?;
        let salt = BASE64.decode(salt).ok().filter(|salt| !salt.is_empty() && salt.len() <= MAX_SALT)?;
        Some(Self { iterations, salt, stored_key: decode_key(stored_key)?, server_key: decode_key(server_key)? })
    }

    /// A verifier that no password fits, always the same for one user and secret: for users that do not exist.
    #[must_use]
    pub fn mock(secret: &[u8], user: &str) -> Self {
        let salt = Self::salt_for(secret, user);
        let key = hmac(secret, &[b"key", &salt]);
        Self { iterations: DEFAULT_ITERATIONS, salt: salt.to_vec(), stored_key: key, server_key: key }
    }

    /// The salt of a mock verifier. Verifiers that are derived from clear text take it too, so that salts do not tell who exists.
    #[must_use]
    pub fn salt_for(secret: &[u8], user: &str) -> [u8; 16] {
        let seed = hmac(secret, &[b"mock", user.as_bytes()]);
        let mut salt = [0; 16];
        salt.copy_from_slice(&seed[..16]);
        salt
    }

    /// The stored form.
    #[must_use]
    pub fn to_stored(&self) -> String {
        let [salt, stored, server] = [&self.salt[..], &self.stored_key, &self.server_key].map(|bytes| BASE64.encode(bytes));
        format!("SCRAM-SHA-256${}:{salt}${stored}:{server}", self.iterations)
    }

    /// Whether `password` fits; derives, so it is as dear as [`Verifier::derive`].
    #[must_use]
    pub fn verify_password(&self, password: &[u8]) -> bool {
        equal(&Self::derive(password, &self.salt, self.iterations).stored_key, &self.stored_key)
    }
}

/// The server's side after its first message.
#[derive(Clone)]
pub struct ServerExchange {
    verifier: Verifier,
    alternative: Option<Verifier>,
    /// client-first-message-bare , server-first-message.
    transcript: Vec<u8>,
    /// What `c=` must be.
    binding: String,
    nonce: String,
}

impl ServerExchange {
    /// Answers the client's first message; returns the challenge to send in SASLContinue. `nonce` is [`NONCE_BYTES`] of fresh randomness.
    ///
    /// # Errors
    /// A message that breaks the grammar, or whose channel binding is not that of its mechanism. A client that can bind and
    /// thinks that we cannot, when we have offered it, was lied to on the way.
    pub fn start(
        verifier: Verifier,
        client_first: &[u8],
        nonce: &[u8; NONCE_BYTES],
        offer: Binding<'_>,
    ) -> Result<(Self, Vec<u8>), ScramError> {
        let message = std::str::from_utf8(client_first).map_err(|_| ScramError::Malformed)?;
        let (binding, bare) = match (offer, message.get(..3)) {
            (Binding::Bound(data), _) => (Binding::bound(data), message.strip_prefix(BINDING_HEADER).ok_or(ScramError::Malformed)?),
            (_, Some("n,,")) => ("biws".to_owned(), &message[3..]),
            (Binding::NotOffered, Some("y,,")) => ("eSws".to_owned(), &message[3..]),
            (Binding::NotChosen, Some("y,,")) => return Err(ScramError::ChannelBinding),
            _ => return Err(ScramError::Malformed),
        };
        let mut parts = bare.split(',');
        if !parts.next().is_some_and(|user| user.starts_with("n=")) {
            return Err(ScramError::Malformed);
        }
        let client_nonce = parts.next().and_then(|part| part.strip_prefix("r=")).ok_or(ScramError::Malformed)?;
        if client_nonce.is_empty() || !client_nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ScramError::Malformed);
        }
        let nonce = format!("{client_nonce}{}", BASE64.encode(nonce));
        let challenge = format!("r={nonce},s={},i={}", BASE64.encode(&verifier.salt), verifier.iterations);
        let transcript = [bare.as_bytes(), b",", challenge.as_bytes()].concat();
        Ok((Self { verifier, alternative: None, transcript, binding, nonce }, challenge.into_bytes()))
    }

    /// Accepts a second password too, if its verifier has the salt and iterations that the challenge named.
    #[must_use]
    pub fn or(mut self, alternative: Option<Verifier>) -> Self {
        let fits = |other: &Verifier| other.salt == self.verifier.salt && other.iterations == self.verifier.iterations;
        self.alternative = alternative.filter(fits);
        self
    }

    /// Checks the client's final message; returns the data of SASLFinal.
    ///
    /// # Errors
    /// A message that breaks the grammar, or a proof that does not fit.
    pub fn finish(&self, client_final: &[u8]) -> Result<Vec<u8>, ScramError> {
        let message = std::str::from_utf8(client_final).map_err(|_| ScramError::Malformed)?;
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or(ScramError::Malformed)?;
        let proof: Key = decode_key(proof).ok_or(ScramError::Malformed)?;
        let mut parts = without_proof.split(',');
        let binding = parts.next().and_then(|part| part.strip_prefix("c=")).ok_or(ScramError::Malformed)?;
        let nonce = parts.next().and_then(|part| part.strip_prefix("r=")).ok_or(ScramError::Malformed)?;
        if nonce != self.nonce {
            return Err(ScramError::Malformed);
        }
        if binding != self.binding {
            return Err(ScramError::ChannelBinding);
        }
        let auth_message: [&[u8]; 3] = [&self.transcript, b",", without_proof.as_bytes()];
        let proven = |verifier: &&Verifier| {
            let client_key = xor(proof, hmac(&verifier.stored_key, &auth_message));
            equal(&Sha256::digest(client_key), &verifier.stored_key)
        };
        let verifier =
            [Some(&self.verifier), self.alternative.as_ref()].into_iter().flatten().find(proven).ok_or(ScramError::WrongPassword)?;
        Ok(format!("v={}", BASE64.encode(hmac(&verifier.server_key, &auth_message))).into_bytes())
    }
}

/// The client's side, for logging in to servers.
pub struct ClientExchange {
    password: Vec<u8>,
    first_bare: String,
    /// What `c=` will be.
    binding: String,
    signature: Option<Key>,
}

impl ClientExchange {
    /// Starts; returns the data of SASLInitialResponse. `nonce` is [`NONCE_BYTES`] of fresh randomness.
    #[must_use]
    /// `NotChosen` = we could, but the server does not offer it.
    pub fn start(password: &[u8], nonce: &[u8; NONCE_BYTES], binding: Binding<'_>) -> (Self, Vec<u8>) {
        let first_bare = format!("n=,r={}", BASE64.encode(nonce));
        let (header, binding) = match binding {
            Binding::NotOffered => ("n,,", "biws".to_owned()),
            Binding::NotChosen => ("y,,", "eSws".to_owned()),
            Binding::Bound(data) => (BINDING_HEADER, Binding::bound(data)),
        };
        let first = format!("{header}{first_bare}").into_bytes();
        (Self { password: password.to_vec(), first_bare, binding, signature: None }, first)
    }

    /// Answers the server's challenge; returns the data of SASLResponse. Derives the key (PBKDF2) unless it is among the known ones.
    ///
    /// # Errors
    /// A challenge that breaks the grammar or asks for too much work.
    pub fn on_challenge(&mut self, challenge: &[u8], known: &mut KnownKeys) -> Result<Vec<u8>, ScramError> {
        let text = std::str::from_utf8(challenge).map_err(|_| ScramError::Malformed)?;
        let mut parts = text.split(',');
        let mut field = |prefix: &str| parts.next().and_then(|part| part.strip_prefix(prefix)).ok_or(ScramError::Malformed);
        let (nonce, salt, iterations) = (field("r=")?, field("s=")?, field("i=")?);
        let own = self.first_bare.strip_prefix("n=,r=").unwrap_or_default();
        if !nonce.starts_with(own) || nonce.len() == own.len() || self.signature.is_some() {
            return Err(ScramError::Malformed);
        }
        let salt = BASE64.decode(salt).map_err(|_| ScramError::Malformed)?;
        if salt.is_empty() || salt.len() > MAX_SALT {
            return Err(ScramError::Malformed);
        }
        let iterations: u32 = iterations.parse().map_err(|_| ScramError::Malformed)?;
        if !(1..=MAX_ITERATIONS).contains(&iterations) {
            return Err(ScramError::Iterations(iterations));
        }
        let keys = known.of(&self.password, &salt, iterations);
        let stored_key: Key = Sha256::digest(keys.client).into();
        let without_proof = format!("c={},r={nonce}", self.binding);
        let auth_message: [&[u8]; 5] = [self.first_bare.as_bytes(), b",", challenge, b",", without_proof.as_bytes()];
        let proof = xor(keys.client, hmac(&stored_key, &auth_message));
        self.signature = Some(hmac(&keys.server, &auth_message));
        self.password.zeroize();
        Ok(format!("{without_proof},p={}", BASE64.encode(proof)).into_bytes())
    }

    /// Checks the server's final message: without it, AuthenticationOk must not be believed.
    ///
    /// # Errors
    /// Not the signature of one who knows the password.
    pub fn on_final(&self, data: &[u8]) -> Result<(), ScramError> {
        let signature = data.strip_prefix(b"v=").and_then(|text| std::str::from_utf8(text).ok()).and_then(decode_key);
        match (signature, self.signature) {
            (Some(theirs), Some(ours)) if equal(&theirs, &ours) => Ok(()),
            _ => Err(ScramError::ServerSignature),
        }
    }
}

impl Drop for ClientExchange {
    fn drop(&mut self) {
        self.password.zeroize();
    }
}

fn decode_key(text: &str) -> Option<Key> {
    BASE64.decode(text).ok()?.try_into().ok()
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length")
}

pub(super) fn hmac(key: &[u8], parts: &[&[u8]]) -> Key {
    let mut mac = keyed(key);
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn xor(mut left: Key, right: Key) -> Key {
    for (left, right) in left.iter_mut().zip(right) {
        *left ^= right;
    }
    left
}

/// PBKDF2-HMAC-SHA-256 with one block. SASLprep applies to valid UTF-8; anything else is taken as bytes (PostgreSQL's rule).
pub(super) fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> Key {
    let prepared = std::str::from_utf8(password).ok().and_then(|text| stringprep::saslprep(text).ok());
    let mac = keyed(prepared.as_ref().map_or(password, |text| text.as_bytes()));
    let mut first = mac.clone();
    first.update(salt);
    first.update(&[0, 0, 0, 1]);
    let mut block: Key = first.finalize().into_bytes().into();
    let mut sum = block;
    for _ in 1..iterations {
        let mut next = mac.clone();
        next.update(&block);
        block = next.finalize().into_bytes().into();
        sum = xor(sum, block);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: &str = "W22ZaJ0SNY7soEsUEjb6gQ==";

    /// RFC 7677, section 3, with the user name left in.
    #[test]
    fn the_example_of_the_rfc() {
        let verifier = Verifier::derive(b"pencil", &BASE64.decode(SALT).unwrap(), 4096);
        assert_eq!(
            verifier.to_stored(),
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        );
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let challenge = format!("r={nonce},s={SALT},i=4096");
        let exchange = ServerExchange {
            verifier,
            alternative: None,
            transcript: format!("n=user,r=rOprNGfwEbeRWgbNEkqO,{challenge}").into_bytes(),
            binding: "biws".into(),
            nonce: nonce.into(),
        };
        let last = format!("c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        assert_eq!(exchange.finish(last.as_bytes()).unwrap(), b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    fn exchange(stored: &[u8], given: &[u8]) -> Result<(), ScramError> {
        let verifier = Verifier::derive(stored, b"0123456789abcdef", 2);
        let (mut client, first) = ClientExchange::start(given, &[7; NONCE_BYTES], Binding::NotOffered);
        let (server, challenge) = ServerExchange::start(verifier, &first, &[9; NONCE_BYTES], Binding::NotOffered)?;
        let answer = client.on_challenge(&challenge, &mut KnownKeys::default())?;
        client.on_final(&server.finish(&answer)?)
    }

    #[test]
    fn both_sides_agree() {
        assert_eq!(exchange(b"secret", b"secret"), Ok(()));
        assert_eq!(exchange(b"secret", b"Secret"), Err(ScramError::WrongPassword));
        assert_eq!(exchange("a\u{a0}b".as_bytes(), b"a b"), Ok(()), "SASLprep maps the no-break space");
        assert_eq!(exchange(b"\xff\xfe", b"\xff\xfe"), Ok(()), "not UTF-8: bytes as they are");
    }

    #[test]
    fn channel_binding_must_be_what_both_sides_see() {
        use Binding::{Bound, NotChosen, NotOffered};
        for (client, server, expected) in [
            (Bound(b"hash"), Bound(b"hash"), Ok(())),
            (NotChosen, NotOffered, Ok(())),
            (NotOffered, NotChosen, Ok(())),
            // Another certificate in the middle.
            (Bound(b"hash"), Bound(b"other"), Err(ScramError::ChannelBinding)),
            // Our offer was taken out in the middle.
            (NotChosen, NotChosen, Err(ScramError::ChannelBinding)),
            // Mechanism and header contradict each other.
            (Bound(b"hash"), NotChosen, Err(ScramError::Malformed)),
            (NotOffered, Bound(b"hash"), Err(ScramError::Malformed)),
        ] {
            let (mut one, first) = ClientExchange::start(b"secret", &[7; NONCE_BYTES], client);
            let verifier = Verifier::derive(b"secret", b"salt", 2);
            let outcome = ServerExchange::start(verifier, &first, &[9; NONCE_BYTES], server).and_then(|(other, challenge)| {
                let answer = one.on_challenge(&challenge, &mut KnownKeys::default())?;
                one.on_final(&other.finish(&answer)?)
            });
            assert_eq!(outcome, expected, "{client:?} {server:?}");
        }
    }

    #[test]
    fn the_second_password_counts_when_its_salt_is_the_same() {
        for (salt, expected) in [(&b"salt"[..], true), (b"tlas", false)] {
            let (mut client, first) = ClientExchange::start(b"new", &[7; NONCE_BYTES], Binding::NotOffered);
            let (server, challenge) =
                ServerExchange::start(Verifier::derive(b"old", b"salt", 2), &first, &[9; NONCE_BYTES], Binding::NotOffered).unwrap();
            let server = server.or(Some(Verifier::derive(b"new", salt, 2)));
            let answer = client.on_challenge(&challenge, &mut KnownKeys::default()).unwrap();
            assert_eq!(server.finish(&answer).is_ok_and(|last| client.on_final(&last).is_ok()), expected);
        }
    }

    #[test]
    fn stored_form_comes_back() {
        let verifier = Verifier::derive(b"x", b"salt", 3);
        assert!(Verifier::parse(&verifier.to_stored()) == Some(verifier.clone()));
        assert!(verifier.verify_password(b"x") && !verifier.verify_password(b"y"));
        for bad in ["", "SCRAM-SHA-256$", "SCRAM-SHA-256$0:YQ==$YQ==:YQ==", "SCRAM-SHA-256$4096:YQ==$YQ==:YQ==", "SCRAM-SHA-1$1:a$b:c"] {
            assert!(Verifier::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn mock_is_stable_and_fits_nothing() {
        assert!(Verifier::mock(b"k", "u") == Verifier::mock(b"k", "u"));
        assert!(Verifier::mock(b"k", "u") != Verifier::mock(b"k", "v"));
    }

    #[test]
    fn malformed_first_messages() {
        let verifier = Verifier::mock(b"", "");
        for bad in ["", "n,", "n,a=x,n=,r=abc", "p=tls-server-end-point,,n=,r=abc", "n,,r=abc", "n,,n=", "n,,n=,r=", "n,,n=,r=a b"] {
            assert!(ServerExchange::start(verifier.clone(), bad.as_bytes(), &[0; NONCE_BYTES], Binding::NotOffered).is_err(), "{bad}");
        }
    }

    #[test]
    fn malformed_last_messages() {
        let (server, _) = ServerExchange::start(Verifier::mock(b"", ""), b"n,,n=,r=abc", &[0; NONCE_BYTES], Binding::NotOffered).unwrap();
        let nonce = server.nonce.clone();
        let proof = BASE64.encode([0; 32]);
        for (message, expected) in [
            (String::new(), ScramError::Malformed),
            (format!("c=biws,r={nonce}"), ScramError::Malformed),
            (format!("c=biws,r={nonce},p=AAAA"), ScramError::Malformed),
            (format!("c=biws,r={nonce}x,p={proof}"), ScramError::Malformed),
            (format!("c=eSws,r={nonce},p={proof}"), ScramError::ChannelBinding),
            (format!("c=biws,r={nonce},p={proof}"), ScramError::WrongPassword),
        ] {
            assert_eq!(server.finish(message.as_bytes()), Err(expected), "{message}");
        }
    }

    #[test]
    fn hostile_challenges() {
        for bad in ["", "r=x,s=YQ==,i=1", "r=NONCE,s=YQ==,i=1", "r=NONCEx,s=,i=1", "r=NONCEx,s=YQ==,i=0", "r=NONCEx,s=YQ==,i=4294967295"] {
            let (mut client, first) = ClientExchange::start(b"p", &[7; NONCE_BYTES], Binding::NotOffered);
            let nonce = String::from_utf8(first[8..].to_vec()).unwrap();
            let challenge = bad.replace("NONCE", &nonce);
            assert!(client.on_challenge(challenge.as_bytes(), &mut KnownKeys::default()).is_err(), "{bad}");
            assert_eq!(client.on_final(b"v=AAAA"), Err(ScramError::ServerSignature));
        }
    }
}
