//! Byte classes, as tables.

/// `A–Z a–z 0–9 _ $`: the reference's word characters.
pub(crate) const WORD: u8 = 1;
/// Blank, tab, LF, CR: the reference's spaces.
pub(crate) const SPACE: u8 = 2;
/// `0–9`.
pub(crate) const DIGIT: u8 = 4;
/// Bytes from 0x80 on: parts of identifiers for the servers, not for the reference's digests.
pub(crate) const HIGH: u8 = 8;
/// Vertical tab and form feed: spaces for the servers, not for the reference's digests.
pub(crate) const RARE_SPACE: u8 = 16;
/// Blank, `+`, `-`, `"`: what the second pass of a digest looks at.
pub(crate) const BLANK_OR_SIGN: u8 = 32;

static CLASSES: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = match i as u8 {
            b'0'..=b'9' => WORD | DIGIT,
            b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'$' => WORD,
            b' ' => SPACE | BLANK_OR_SIGN,
            b'\t' | b'\n' | b'\r' => SPACE,
            b'+' | b'-' | b'"' => BLANK_OR_SIGN,
            0x0b | 0x0c => RARE_SPACE,
            0x80.. => HIGH,
            _ => 0,
        };
        i += 1;
    }
    table
};

/// True if `byte` is of one of the classes in `mask`.
#[inline]
pub(crate) fn is(byte: u8, mask: u8) -> bool {
    CLASSES[usize::from(byte)] & mask != 0
}

/// Index of the first byte at or after `from` that is in none of the classes in `mask`.
#[inline]
pub(crate) fn skip(text: &[u8], from: usize, mask: u8) -> usize {
    let mut at = from;
    while at < text.len() && is(text[at], mask) {
        at += 1;
    }
    at
}

/// Index of the first `needle` at or after `from`, or the end of the text.
#[inline]
pub(crate) fn find(text: &[u8], from: usize, needle: u8) -> usize {
    text.get(from..).and_then(|rest| rest.iter().position(|byte| *byte == needle)).map_or(text.len(), |offset| from + offset)
}

/// Index just behind the first `*/` at or after `from`, or the end of the text; and whether it was there.
#[inline]
pub(crate) fn comment_end(text: &[u8], from: usize) -> (usize, bool) {
    let rest = text.get(from..).unwrap_or_default();
    rest.windows(2).position(|pair| pair == b"*/").map_or((text.len(), false), |offset| (from + offset + 2, true))
}

/// The constant that starts with the quote at `start`: index of its closing quote and index behind it; `None` if it never ends.
/// A doubled quote is part of it; so is whatever follows a backslash, where `backslash` says so.
#[inline]
pub(crate) fn quoted_end(text: &[u8], start: usize, backslash: bool) -> Option<(usize, usize)> {
    let quote = *text.get(start)?;
    let mut at = start + 1;
    loop {
        let byte = *text.get(at)?;
        if byte == quote {
            if text.get(at + 1) != Some(&quote) {
                return Some((at, at + 1));
            }
            at += 2;
        } else if byte == b'\\' && backslash {
            at += 2;
        } else {
            at += 1;
        }
    }
}
