//! Password arithmetic: scrambles, stored forms, sha256-crypt, RSA. Dialogues are in [`super::server_auth`] and
//! [`super::client_auth`].

use std::fmt;

use rsa::pkcs8::DecodePublicKey;
use rsa::traits::PublicKeyParts;
use rsa::{BigUint, RsaPublicKey};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use thiserror::Error;
use zeroize::Zeroizing;

use super::handshake::Scramble;

/// `SHA1(password)`: what `mysql_native_password` needs to log in without the password.
pub type Stage1 = [u8; 20];

fn sha1(parts: &[&[u8]]) -> [u8; 20] {
    let mut hash = Sha1::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

fn xor<const N: usize>(left: [u8; N], right: [u8; N]) -> [u8; N] {
    std::array::from_fn(|i| left[i] ^ right[i])
}

/// Compares without an early end.
fn equal(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

/// `SHA1(password)`.
#[must_use]
pub fn native_stage1(password: &[u8]) -> Stage1 {
    sha1(&[password])
}

/// `SHA1(SHA1(password))`, the stored form behind `*HEX`.
#[must_use]
pub fn native_stage2(stage1: &Stage1) -> [u8; 20] {
    sha1(&[stage1])
}

/// `mysql_native_password`: `SHA1(p) XOR SHA1(scramble, SHA1(SHA1(p)))`.
#[must_use]
pub fn native_reply(stage1: &Stage1, scramble: &Scramble) -> [u8; 20] {
    xor(*stage1, sha1(&[scramble, &native_stage2(stage1)]))
}

/// Checks a native reply against stage 2; gives the stage 1 that the client proved to know.
#[must_use]
pub fn native_verify(stage2: &[u8; 20], scramble: &Scramble, reply: &[u8]) -> Option<Stage1> {
    let stage1 = xor(reply.try_into().ok()?, sha1(&[scramble, stage2]));
    equal(&native_stage2(&stage1), stage2).then_some(stage1)
}

/// `caching_sha2_password`: `SHA256(p) XOR SHA256(SHA256(SHA256(p)), scramble)`.
#[must_use]
pub fn sha2_reply(password: &[u8], scramble: &Scramble) -> [u8; 32] {
    let stage1 = sha256(&[password]);
    xor(stage1, sha256(&[&sha256(&[&stage1]), scramble]))
}

/// Checks a caching_sha2 reply against the password.
#[must_use]
pub fn sha2_verify(password: &[u8], scramble: &Scramble, reply: &[u8]) -> bool {
    equal(&sha2_reply(password, scramble), reply)
}

/// The 20 salt bytes and 43 characters of `$A$005$…`.
#[derive(Clone, PartialEq, Eq)]
pub struct Sha2Hash {
    rounds: u32,
    salt: [u8; 20],
    digest: [u8; 43],
}

impl Sha2Hash {
    /// Hashes a password with a salt, as `CREATE USER … IDENTIFIED WITH caching_sha2_password` does (5000 rounds).
    #[must_use]
    pub fn new(password: &[u8], salt: [u8; 20]) -> Self {
        Self { rounds: 5000, salt, digest: sha256_crypt(password, &salt, 5000) }
    }

    /// Reads the 70 bytes `$A$005$<salt><digest>`.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let rest = text.strip_prefix(b"$A$")?;
        let (thousands, rest) = rest.split_first_chunk::<3>()?;
        let thousands = u32::from_str_radix(std::str::from_utf8(thousands).ok()?, 16).ok()?;
        let (salt, digest) = rest.strip_prefix(b"$")?.split_first_chunk::<20>()?;
        let rounds = thousands * 1000;
        (1000..=MAX_ROUNDS).contains(&rounds).then_some(())?;
        Some(Self { rounds, salt: *salt, digest: digest.try_into().ok()? })
    }

    /// The 70 bytes.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        let mut text = format!("$A${:03X}$", self.rounds / 1000).into_bytes();
        text.extend_from_slice(&self.salt);
        text.extend_from_slice(&self.digest);
        text
    }

    /// Checks a password in clear. Cost: a few milliseconds of SHA-256.
    #[must_use]
    pub fn verify(&self, password: &[u8]) -> bool {
        equal(&sha256_crypt(password, &self.salt, self.rounds), &self.digest)
    }
}

impl fmt::Debug for Sha2Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sha2Hash(…)")
    }
}

/// Most rounds that a stored hash may ask for: the hash is computed while a client waits.
const MAX_ROUNDS: u32 = 100_000;

/// A stored password, by its form (mysql-dataplane 1.6).
#[derive(Clone, PartialEq, Eq)]
pub enum StoredPassword {
    /// No password.
    Empty,
    /// In clear.
    Clear(Zeroizing<Vec<u8>>),
    /// `*` and 40 hex digits: `SHA1(SHA1(p))`.
    Native([u8; 20]),
    /// `$A$005$…`.
    Sha2(Sha2Hash),
    /// An account that does not exist: every dialogue runs as for a native hash and fails at its end.
    Nobody,
}

impl StoredPassword {
    /// Reads the `password` column. What looks like no hash is a password in clear.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        if text.is_empty() {
            return Self::Empty;
        }
        if let Some(stage2) = parse_native(text) {
            return Self::Native(stage2);
        }
        match Sha2Hash::parse(text) {
            Some(hash) => Self::Sha2(hash),
            None => Self::Clear(Zeroizing::new(text.to_vec())),
        }
    }

    /// Checks a password that arrived in clear, and says what it proves.
    #[must_use]
    pub fn verify_clear(&self, password: &[u8]) -> bool {
        match self {
            Self::Empty => password.is_empty(),
            Self::Clear(stored) => equal(stored, password),
            Self::Native(stage2) => !password.is_empty() && equal(&native_stage2(&native_stage1(password)), stage2),
            Self::Sha2(hash) => !password.is_empty() && hash.verify(password),
            Self::Nobody => false,
        }
    }
}

impl fmt::Debug for StoredPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "Empty",
            Self::Clear(_) => "Clear(…)",
            Self::Native(_) => "Native(…)",
            Self::Sha2(_) => "Sha2(…)",
            Self::Nobody => "Nobody",
        })
    }
}

/// `*` and 40 hex digits.
fn parse_native(text: &[u8]) -> Option<[u8; 20]> {
    let digits = text.strip_prefix(b"*").filter(|digits| digits.len() == 40)?;
    let mut stage2 = [0; 20];
    for (byte, pair) in stage2.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(stage2)
}

/// The `*HEX` form of a password.
#[must_use]
pub fn native_hash_text(password: &[u8]) -> String {
    use std::fmt::Write;
    native_stage2(&native_stage1(password)).iter().fold(String::from("*"), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// sha256-crypt ("Unix crypt using SHA-256 and SHA-512", Ulrich Drepper, version 0.6), the 43 characters of its digest.
/// MySQL uses it with a salt of 20 bytes of any value.
fn sha256_crypt(password: &[u8], salt: &[u8], rounds: u32) -> [u8; 43] {
    let b = sha256(&[password, salt, password]);
    let mut hash = Sha256::new();
    hash.update(password);
    hash.update(salt);
    update_repeated(&mut hash, &b, password.len());
    let mut bits = password.len();
    while bits > 0 {
        hash.update(if bits & 1 == 1 { &b[..] } else { password });
        bits >>= 1;
    }
    let mut a: [u8; 32] = hash.finalize().into();

    let mut hash = Sha256::new();
    for _ in 0..password.len() {
        hash.update(password);
    }
    let p = repeated(&hash.finalize().into(), password.len());
    let mut hash = Sha256::new();
    for _ in 0..16 + usize::from(a[0]) {
        hash.update(salt);
    }
    let s = repeated(&hash.finalize().into(), salt.len());

    for round in 0..rounds {
        let mut hash = Sha256::new();
        hash.update(if round % 2 == 1 { &p[..] } else { &a[..] });
        if round % 3 != 0 {
            hash.update(&s);
        }
        if round % 7 != 0 {
            hash.update(&p);
        }
        hash.update(if round % 2 == 1 { &a[..] } else { &p[..] });
        a = hash.finalize().into();
    }
    crypt_base64(&a)
}

fn update_repeated(hash: &mut Sha256, block: &[u8; 32], mut length: usize) {
    while length > 0 {
        let part = length.min(block.len());
        hash.update(&block[..part]);
        length -= part;
    }
}

fn repeated(block: &[u8; 32], length: usize) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(block.iter().copied().cycle().take(length).collect())
}

/// crypt's own base 64: groups of three bytes in the order that the algorithm gives, low six bits first.
fn crypt_base64(digest: &[u8; 32]) -> [u8; 43] {
    const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut text = [0; 43];
    let mut at = 0;
    let mut put = |mut value: u32, count: usize| {
        for _ in 0..count {
            text[at] = ALPHABET[(value & 0x3f) as usize];
            value >>= 6;
            at += 1;
        }
    };
    let byte = |index: usize| u32::from(digest[index % 32]);
    for group in 0..10 {
        // (0,10,20) (21,1,11) (12,22,2) (3,13,23) …: each group starts 21 further, modulo 30.
        let first = group * 21 % 30;
        let (second, third) = ((first + 10) % 30, (first + 20) % 30);
        put(byte(first) << 16 | byte(second) << 8 | byte(third), 4);
    }
    put(byte(31) << 8 | byte(30), 3);
    text
}

/// Why a password could not be encrypted for a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RsaError {
    /// The server's key is no PEM public key, or not a sound one.
    #[error("the server's RSA public key is not usable")]
    Key,
    /// The password does not fit into the key's block.
    #[error("the password is too long for the server's RSA key")]
    TooLong,
    /// No random bytes.
    #[error("no random bytes from the system")]
    Random,
}

/// `caching_sha2_password` on a plain connection: `(password, NUL) XOR scramble`, RSA-OAEP with SHA-1 and MGF1-SHA-1.
///
/// Encryption only, with a public exponent: nothing secret decides the time it takes. Bad keys are errors.
pub fn rsa_encrypt(pem: &[u8], password: &[u8], scramble: &Scramble) -> Result<Vec<u8>, RsaError> {
    let pem = std::str::from_utf8(pem).map_err(|_| RsaError::Key)?.trim_matches(['\0', '\n', '\r', ' ']);
    let key = RsaPublicKey::from_public_key_pem(pem).map_err(|_| RsaError::Key)?;
    let size = key.size();
    let mut message = Zeroizing::new(password.to_vec());
    message.push(0);
    for (byte, mask) in message.iter_mut().zip(scramble.iter().cycle()) {
        *byte ^= mask;
    }
    let mut seed = [0; OAEP_HASH];
    getrandom::fill(&mut seed).map_err(|_| RsaError::Random)?;
    let block = Zeroizing::new(oaep_block(&message, size, seed)?);
    let cipher = BigUint::from_bytes_be(&block).modpow(key.e(), key.n()).to_bytes_be();
    let mut out = vec![0; size - cipher.len()];
    out.extend_from_slice(&cipher);
    Ok(out)
}

const OAEP_HASH: usize = 20;

/// EME-OAEP encoding with an empty label (RFC 8017, 7.1.1).
fn oaep_block(message: &[u8], size: usize, mut seed: [u8; OAEP_HASH]) -> Result<Vec<u8>, RsaError> {
    if size < 2 * OAEP_HASH + 2 || message.len() > size - 2 * OAEP_HASH - 2 {
        return Err(RsaError::TooLong);
    }
    let mut data = sha1(&[&[]]).to_vec();
    data.resize(size - OAEP_HASH - 1 - message.len() - 1, 0);
    data.push(1);
    data.extend_from_slice(message);
    mask(&mut data, &seed);
    mask(&mut seed, &data);
    let mut block = vec![0];
    block.extend_from_slice(&seed);
    block.append(&mut data);
    Ok(block)
}

/// XOR with MGF1-SHA-1 of `seed`.
fn mask(data: &mut [u8], seed: &[u8]) {
    for (counter, part) in (0u32..).zip(data.chunks_mut(OAEP_HASH)) {
        let stream = sha1(&[seed, &counter.to_be_bytes()]);
        part.iter_mut().zip(stream).for_each(|(byte, mask)| *byte ^= mask);
    }
}

#[cfg(test)]
#[path = "auth_test.rs"]
mod tests;
