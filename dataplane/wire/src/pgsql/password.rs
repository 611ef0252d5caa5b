//! Passwords as they are stored and compared (pgsql-dataplane.md 2.6).

use md5::{Digest, Md5};
use subtle::ConstantTimeEq;

use super::scram::Verifier;

/// A stored password, by its form.
#[derive(Clone, PartialEq, Eq)]
pub enum StoredPassword {
    /// Nothing stored: nobody can log in.
    Empty,
    /// Clear text.
    Plain(String),
    /// `md5` and 32 hex digits: md5(password + user).
    Md5([u8; 32]),
    /// `SCRAM-SHA-256$…`.
    Scram(Verifier),
}

impl std::fmt::Debug for StoredPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "StoredPassword::Empty",
            Self::Plain(_) => "StoredPassword::Plain(..)",
            Self::Md5(_) => "StoredPassword::Md5(..)",
            Self::Scram(_) => "StoredPassword::Scram(..)",
        })
    }
}

impl StoredPassword {
    /// Recognises the form; anything that is neither of the hashed ones is clear text, as in PostgreSQL.
    #[must_use]
    pub fn parse(stored: &str) -> Self {
        if stored.is_empty() {
            return Self::Empty;
        }
        if let Some(verifier) = Verifier::parse(stored) {
            return Self::Scram(verifier);
        }
        match stored.strip_prefix("md5").map(str::as_bytes).and_then(|hex| <[u8; 32]>::try_from(hex).ok()) {
            Some(hex) if hex.iter().all(u8::is_ascii_hexdigit) => Self::Md5(hex.map(|digit| digit.to_ascii_lowercase())),
            _ => Self::Plain(stored.to_owned()),
        }
    }

    /// Whether `password` in clear text is the stored one.
    #[must_use]
    pub fn verify_cleartext(&self, user: &str, password: &[u8]) -> bool {
        match self {
            Self::Empty => false,
            Self::Plain(stored) => equal(stored.as_bytes(), password),
            Self::Md5(stored) => equal(stored, &md5_hex(&[password, user.as_bytes()])),
            Self::Scram(verifier) => verifier.verify_password(password),
        }
    }

    /// Whether `answer` (`md5` and hex) is right for `salt`; `None` = cannot be told from what is stored.
    #[must_use]
    pub fn verify_md5(&self, user: &str, salt: [u8; 4], answer: &[u8]) -> Option<bool> {
        let inner = match self {
            Self::Plain(stored) => md5_hex(&[stored.as_bytes(), user.as_bytes()]),
            Self::Md5(stored) => *stored,
            Self::Empty | Self::Scram(_) => return None,
        };
        Some(equal(&md5_answer_of_hash(&inner, salt), answer))
    }
}

/// The text that answers AuthenticationMD5Password when the password is known.
#[must_use]
pub fn md5_answer(user: &str, password: &[u8], salt: [u8; 4]) -> [u8; 35] {
    md5_answer_of_hash(&md5_hex(&[password, user.as_bytes()]), salt)
}

/// As [`md5_answer`], from the 32 hex digits of a stored md5 password.
#[must_use]
pub fn md5_answer_of_hash(hash: &[u8; 32], salt: [u8; 4]) -> [u8; 35] {
    let mut answer = *b"md500000000000000000000000000000000";
    answer[3..].copy_from_slice(&md5_hex(&[hash, &salt]));
    answer
}

fn md5_hex(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Md5::new();
    for part in parts {
        hash.update(part);
    }
    let mut hex = [0; 32];
    for (pair, byte) in hex.chunks_exact_mut(2).zip(hash.finalize()) {
        pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    hex
}

/// Compares secrets in constant time for equal lengths.
#[must_use]
pub fn equal(left: &[u8], right: &[u8]) -> bool {
    left.ct_eq(right).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_recognised() {
        let scram = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        assert!(matches!(StoredPassword::parse(scram), StoredPassword::Scram(_)));
        assert!(matches!(StoredPassword::parse("md562af4dd09bbb41884907a838a3233294"), StoredPassword::Md5(_)));
        for plain in ["secret", "md5short", "SCRAM-SHA-256$nonsense", "md5zzaf4dd09bbb41884907a838a3233294"] {
            assert!(matches!(StoredPassword::parse(plain), StoredPassword::Plain(_)), "{plain}");
        }
        assert!(matches!(StoredPassword::parse(""), StoredPassword::Empty));
    }

    #[test]
    fn md5_exchange() {
        let salt = [0x2a, 0x3d, 0x8f, 0xe0];
        assert_eq!(&md5_answer("md5_user", b"password", salt), b"md562af4dd09bbb41884907a838a3233294");
        let stored = format!("md5{}", String::from_utf8(md5_hex(&[b"password", b"md5_user"]).to_vec()).unwrap());
        for stored in ["password", stored.as_str()] {
            let stored = StoredPassword::parse(stored);
            assert_eq!(stored.verify_md5("md5_user", salt, b"md562af4dd09bbb41884907a838a3233294"), Some(true));
            assert_eq!(stored.verify_md5("md5_user", salt, b"md562af4dd09bbb41884907a838a3233295"), Some(false));
            assert!(stored.verify_cleartext("md5_user", b"password"));
            assert!(!stored.verify_cleartext("md5_user", b"Password"));
        }
        assert_eq!(StoredPassword::Empty.verify_md5("u", salt, b""), None);
        assert!(!StoredPassword::Empty.verify_cleartext("u", b""));
    }
}
