//! SpookyHash V2, 64-bit form with seed 0 (Bob Jenkins, public domain): the reference's digest hash
//! (mysql-dataplane.md 7.2). Not for hash tables that an attacker can fill: it is not keyed.

const SC: u64 = 0xdead_beef_dead_beef;
/// Words of a block of the long form.
const WORDS: usize = 12;
const BLOCK: usize = WORDS * 8;
/// Shorter messages use the short form.
const SHORT_LIMIT: usize = 2 * BLOCK;

/// The 64-bit hash of `message`.
#[must_use]
pub fn spooky_hash64(message: &[u8]) -> u64 {
    if message.len() < SHORT_LIMIT { short(message) } else { long(message) }
}

/// Up to eight bytes, little-endian.
fn word(bytes: &[u8]) -> u64 {
    let mut buffer = [0; 8];
    let len = bytes.len().min(8);
    buffer[..len].copy_from_slice(&bytes[..len]);
    u64::from_le_bytes(buffer)
}

fn short(message: &[u8]) -> u64 {
    let mut h = [0, 0, SC, SC];
    let mut chunks = message.chunks_exact(32);
    for chunk in &mut chunks {
        h[2] = h[2].wrapping_add(word(&chunk[..8]));
        h[3] = h[3].wrapping_add(word(&chunk[8..16]));
        short_mix(&mut h);
        h[0] = h[0].wrapping_add(word(&chunk[16..24]));
        h[1] = h[1].wrapping_add(word(&chunk[24..]));
    }
    let mut rest = chunks.remainder();
    if rest.len() >= 16 {
        h[2] = h[2].wrapping_add(word(&rest[..8]));
        h[3] = h[3].wrapping_add(word(&rest[8..16]));
        short_mix(&mut h);
        rest = &rest[16..];
    }
    h[3] = h[3].wrapping_add((message.len() as u64) << 56);
    if rest.is_empty() {
        h[2] = h[2].wrapping_add(SC);
        h[3] = h[3].wrapping_add(SC);
    } else {
        h[2] = h[2].wrapping_add(word(rest));
        h[3] = h[3].wrapping_add(word(rest.get(8..).unwrap_or_default()));
    }
    short_end(&mut h);
    h[0]
}

fn short_mix(h: &mut [u64; 4]) {
    for (i, rotation) in [50, 52, 30, 41, 54, 48, 38, 37, 62, 34, 5, 36].into_iter().enumerate() {
        let (a, b, c) = ((i + 2) % 4, (i + 3) % 4, i % 4);
        h[a] = h[a].rotate_left(rotation).wrapping_add(h[b]);
        h[c] ^= h[a];
    }
}

fn short_end(h: &mut [u64; 4]) {
    for (i, rotation) in [15, 52, 26, 51, 28, 9, 47, 54, 32, 25, 63].into_iter().enumerate() {
        let (a, b) = ((i + 3) % 4, (i + 2) % 4);
        h[a] ^= h[b];
        h[b] = h[b].rotate_left(rotation);
        h[a] = h[a].wrapping_add(h[b]);
    }
}

fn long(message: &[u8]) -> u64 {
    let mut h = [0, 0, SC, 0, 0, SC, 0, 0, SC, 0, 0, SC];
    let mut blocks = message.chunks_exact(BLOCK);
    for block in &mut blocks {
        mix(&mut h, block);
    }
    let rest = blocks.remainder();
    let mut last = [0; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    last[BLOCK - 1] = rest.len() as u8;
    for (h, bytes) in h.iter_mut().zip(last.chunks_exact(8)) {
        *h = h.wrapping_add(word(bytes));
    }
    for _ in 0..3 {
        end_partial(&mut h);
    }
    h[0]
}

fn mix(h: &mut [u64; WORDS], block: &[u8]) {
    const ROTATIONS: [u32; WORDS] = [11, 32, 43, 31, 17, 28, 39, 57, 55, 54, 22, 46];
    for i in 0..WORDS {
        h[i] = h[i].wrapping_add(word(&block[i * 8..i * 8 + 8]));
        h[(i + 2) % WORDS] ^= h[(i + 10) % WORDS];
        h[(i + 11) % WORDS] ^= h[i];
        h[i] = h[i].rotate_left(ROTATIONS[i]);
        h[(i + 11) % WORDS] = h[(i + 11) % WORDS].wrapping_add(h[(i + 1) % WORDS]);
    }
}

fn end_partial(h: &mut [u64; WORDS]) {
    const ROTATIONS: [u32; WORDS] = [44, 15, 34, 21, 38, 33, 10, 13, 38, 53, 42, 54];
    for (i, rotation) in ROTATIONS.into_iter().enumerate() {
        let (a, b, c) = ((i + 11) % WORDS, (i + 1) % WORDS, (i + 2) % WORDS);
        h[a] = h[a].wrapping_add(h[b]);
        h[c] ^= h[a];
        h[b] = h[b].rotate_left(rotation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of mysql-dataplane.md 7.2.
    #[test]
    fn reference_vectors() {
        let select = |count: usize| [b"SELECT ".as_slice(), &vec![b'a'; count]].concat();
        let table = [
            (Vec::new(), 0x2327_06FC_6BF5_0919),
            (b"SELECT ?".to_vec(), 0x1C46_AE52_9DD5_A40E),
            (select(184), 0xB810_8E24_AEFB_678A),
            (select(185), 0xCB1D_AF40_4AEB_3DBD),
            (select(200), 0xBC10_5E4B_CA61_05F9),
            (select(1000), 0x9FEA_75AB_0995_BEB9),
        ];
        for (message, want) in table {
            assert_eq!(spooky_hash64(&message), want, "{} bytes", message.len());
        }
    }
}
