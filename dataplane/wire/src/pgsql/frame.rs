//! Boundaries of typed messages: one type byte, then a big-endian length that counts itself but not the type.

use super::reader::WireError;

/// Type byte and length.
pub const HEADER_LENGTH: usize = 5;

/// The header of a typed message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Type byte.
    pub tag: u8,
    /// Bytes of the body, without the header.
    pub body: usize,
}

impl Header {
    /// Bytes of the whole message.
    #[must_use]
    pub const fn size(self) -> usize {
        HEADER_LENGTH + self.body
    }

    /// The header at the start of `buffer`; `None` = more bytes are needed. Does not ask for the body to be there.
    ///
    /// # Errors
    /// A length below 4, or a body longer than `cap`.
    pub fn decode(buffer: &[u8], cap: usize) -> Result<Option<Self>, WireError> {
        let Some(head) = buffer.get(..HEADER_LENGTH) else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let body = length.checked_sub(4).ok_or(WireError::LengthTooSmall(length))? as usize;
        if body > cap {
            return Err(WireError::TooLong { length: body as u64, limit: cap as u64 });
        }
        Ok(Some(Self { tag: head[0], body }))
    }
}

/// A whole typed message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Type byte.
    pub tag: u8,
    /// Body.
    pub body: &'a [u8],
}

impl Frame<'_> {
    /// Bytes that the message takes in the buffer.
    #[must_use]
    pub const fn size(&self) -> usize {
        HEADER_LENGTH + self.body.len()
    }
}

/// The whole message at the start of `buffer`; `None` = more bytes are needed.
///
/// # Errors
/// As [`Header::decode`].
pub fn decode(buffer: &[u8], cap: usize) -> Result<Option<Frame<'_>>, WireError> {
    let Some(header) = Header::decode(buffer, cap)? else { return Ok(None) };
    Ok(buffer.get(HEADER_LENGTH..header.size()).map(|body| Frame { tag: header.tag, body }))
}

/// Appends a message of type `tag` whose body `fill` writes; the length is set afterwards.
pub fn encode(out: &mut Vec<u8>, tag: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    encode_untyped(out, fill);
}

/// As [`encode`] without the type byte: the first packets of a connection.
pub fn encode_untyped(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    fill(out);
    let length = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends `text` and its NUL. A NUL inside would end the field early, so the text is cut there.
pub fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    out.extend_from_slice(&text[..end]);
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_their_lies() {
        type Expected = Result<Option<Header>, WireError>;
        let cases: [(&[u8], Expected); 6] = [
            (b"", Ok(None)),
            (b"Q\0\0\0", Ok(None)),
            (b"S\0\0\0\x04", Ok(Some(Header { tag: b'S', body: 0 }))),
            (b"S\0\0\0\x03", Err(WireError::LengthTooSmall(3))),
            (b"Q\0\0\0\x0e", Ok(Some(Header { tag: b'Q', body: 10 }))),
            (b"Q\xff\xff\xff\xff", Err(WireError::TooLong { length: 0xffff_fffb, limit: 10 })),
        ];
        for (bytes, expected) in cases {
            assert_eq!(Header::decode(bytes, 10), expected, "{bytes:?}");
        }
    }

    #[test]
    fn every_truncation_needs_more() {
        let whole = b"Q\0\0\0\x0dSELECT 1\0rest";
        for cut in 0..14 {
            assert_eq!(decode(&whole[..cut], 100), Ok(None), "{cut}");
        }
        let frame = decode(whole, 100).unwrap().unwrap();
        assert_eq!((frame.tag, frame.body, frame.size()), (b'Q', &b"SELECT 1\0"[..], 14));
    }

    #[test]
    fn text_is_cut_at_nul() {
        let mut out = Vec::new();
        encode(&mut out, b'N', |out| put_text(out, b"a\0b"));
        assert_eq!(out, b"N\0\0\0\x06a\0");
    }
}
