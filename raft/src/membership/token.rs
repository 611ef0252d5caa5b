//! Join tokens: base64 of cluster id, SHA-256 of the authority's certificate, and 32 secret bytes.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

/// Lets one node in, once.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) cluster_id: String,
    pub(crate) authority_sha256: [u8; 32],
    pub(crate) secret: [u8; 32],
}

impl Token {
    /// A new secret for the cluster.
    pub(crate) fn new(cluster_id: &str, authority_sha256: [u8; 32]) -> Result<Self, getrandom::Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)?;
        Ok(Self { cluster_id: cluster_id.to_owned(), authority_sha256, secret })
    }

    /// What is stored in the log in place of the secret.
    pub(crate) fn secret_sha256(&self) -> [u8; 32] {
        Sha256::digest(self.secret).into()
    }

    pub(crate) fn encode(&self) -> Option<String> {
        let hex = self.cluster_id.replace('-', "");
        let mut bytes = Vec::with_capacity(80);
        for pair in hex.as_bytes().chunks(2) {
            bytes.push(u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?);
        }
        bytes.extend_from_slice(&self.authority_sha256);
        bytes.extend_from_slice(&self.secret);
        (bytes.len() == 80).then(|| URL_SAFE_NO_PAD.encode(bytes))
    }

    pub(crate) fn decode(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim()).ok()?;
        let (id, rest) = bytes.split_first_chunk::<16>()?;
        let (authority_sha256, rest) = rest.split_first_chunk::<32>()?;
        let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
        let cluster_id = format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
        Some(Self { cluster_id, authority_sha256: *authority_sha256, secret: rest.try_into().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_being_typed_and_damaged_ones_are_refused() {
        let token = Token::new("0b0e7a52-1234-4000-8000-0000000000ff", [9; 32]).unwrap();
        let text = token.encode().unwrap();
        assert!(Token::decode(&format!(" {text}\n")).is_some_and(|decoded| decoded == token));
        for damaged in ["", "x", &text[1..], &format!("{text}AAAA"), "€"] {
            assert!(Token::decode(damaged).is_none(), "{damaged}");
        }
    }
}
