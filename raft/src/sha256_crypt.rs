//! SHA-256 crypt (U. Drepper, "Unix crypt using SHA-256 and SHA-512"), the hash inside `caching_sha2_password`.
//! MySQL uses it with salts of 20 bytes, longer than the 16 of the specification.

use sha2::{Digest, Sha256};

/// The 43 characters after the salt.
pub(crate) fn hash(password: &[u8], salt: &[u8], rounds: u32) -> String {
    let alternate = Sha256::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut first = Sha256::new().chain_update(password).chain_update(salt);
    repeat(&mut first, &alternate, password.len());
    let mut bits = password.len();
    while bits > 0 {
        if bits & 1 == 1 {
            first.update(alternate);
        } else {
            first.update(password);
        }
        bits >>= 1;
    }
    let mut digest = first.finalize();
    let p_bytes = stretched(password, password.len(), password.len());
    let s_bytes = stretched(salt, 16 + usize::from(digest[0]), salt.len());
    for round in 0..rounds {
        let mut hasher = Sha256::new();
        if round & 1 == 1 {
            hasher.update(&p_bytes);
        } else {
            hasher.update(digest);
        }
        if round % 3 != 0 {
            hasher.update(&s_bytes);
        }
        if round % 7 != 0 {
            hasher.update(&p_bytes);
        }
        if round & 1 == 1 {
            hasher.update(digest);
        } else {
            hasher.update(&p_bytes);
        }
        digest = hasher.finalize();
    }
    encode(&digest)
}

/// Adds `block` again and again up to `length` bytes.
fn repeat(hasher: &mut Sha256, block: &[u8], length: usize) {
    for start in (0..length).step_by(block.len()) {
        hasher.update(&block[..block.len().min(length - start)]);
    }
}

/// The digest of `times` copies of `text`, repeated to `length` bytes.
fn stretched(text: &[u8], times: usize, length: usize) -> Vec<u8> {
    let mut hasher = Sha256::new();
    (0..times).for_each(|_| hasher.update(text));
    hasher.finalize().iter().copied().cycle().take(length).collect()
}

/// crypt's base 64, three bytes at a time in the order that the specification lists.
fn encode(digest: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut text = String::with_capacity(43);
    let mut push = |mut value: u32, characters: usize| {
        for _ in 0..characters {
            text.push(char::from(ALPHABET[(value & 63) as usize]));
            value >>= 6;
        }
    };
    let (mut a, mut b, mut c) = (0, 10, 20);
    for _ in 0..10 {
        push(u32::from(digest[a]) << 16 | u32::from(digest[b]) << 8 | u32::from(digest[c]), 4);
        (a, b, c) = (c + 1, a + 1, b + 1);
    }
    push(u32::from(digest[31]) << 8 | u32::from(digest[30]), 3);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specification_s_vector() {
        assert_eq!(hash(b"Hello world!", b"saltstring", 5000), "5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5");
    }
}
