//! Bounded reading of one payload.

use thiserror::Error;

/// What is wrong with bytes of the other side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum WireError {
    /// A field reaches beyond the end of its packet.
    #[error("malformed packet: it ends inside {0}")]
    Truncated(&'static str),
    /// A field has a value that the protocol does not allow there.
    #[error("malformed packet: {0}")]
    Malformed(&'static str),
    /// A packet, or what it announces, is larger than the limit of this place.
    #[error("packet of {announced} bytes exceeds the limit of {limit}")]
    TooLong {
        /// Bytes announced so far.
        announced: usize,
        /// The limit.
        limit: usize,
    },
    /// The parts of one packet do not count up.
    #[error("packet sequence is out of order")]
    Sequence,
}

/// A cursor over one payload; it can only reach that payload's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub const fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }

    /// What has not been read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// `true` at the end.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Exactly `count` bytes.
    pub fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], WireError> {
        let (head, tail) = self.rest.split_at_checked(count).ok_or(WireError::Truncated(what))?;
        self.rest = tail;
        Ok(head)
    }

    /// Exactly `N` bytes.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], WireError> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(WireError::Truncated(what))?;
        self.rest = tail;
        Ok(*head)
    }

    /// `int<1>`.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, WireError> {
        Ok(self.array::<1>(what)?[0])
    }

    /// `int<2>`, little endian as all integers here.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    /// `int<3>`.
    pub fn u24(&mut self, what: &'static str) -> Result<u32, WireError> {
        let [a, b, c] = self.array(what)?;
        Ok(u32::from_le_bytes([a, b, c, 0]))
    }

    /// `int<4>`.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// `int<8>`.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// `int<lenenc>`; 0xFB (NULL in rows) and 0xFF are errors here.
    pub fn lenenc(&mut self, what: &'static str) -> Result<u64, WireError> {
        match self.u8(what)? {
            short @ 0..=0xfa => Ok(u64::from(short)),
            0xfc => Ok(u64::from(self.u16(what)?)),
            0xfd => Ok(u64::from(self.u24(what)?)),
            0xfe => self.u64(what),
            _ => Err(WireError::Malformed("length-encoded integer starts with a reserved byte")),
        }
    }

    /// `string<lenenc>`.
    pub fn lenenc_bytes(&mut self, what: &'static str) -> Result<&'a [u8], WireError> {
        let length = usize::try_from(self.lenenc(what)?).map_err(|_| WireError::Truncated(what))?;
        self.take(length, what)
    }

    /// `string<lenenc>` of a text row, `None` = NULL.
    pub fn nullable_bytes(&mut self, what: &'static str) -> Result<Option<&'a [u8]>, WireError> {
        if self.rest.first() == Some(&0xfb) {
            self.rest = &self.rest[1..];
            return Ok(None);
        }
        self.lenenc_bytes(what).map(Some)
    }

    /// `string<NUL>` without its NUL.
    pub fn nul_bytes(&mut self, what: &'static str) -> Result<&'a [u8], WireError> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(WireError::Truncated(what))?;
        let text = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(text)
    }

    /// `string<EOF>`: everything that is left.
    pub fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_encoded_integers_of_every_width() {
        let cases: [(&[u8], Result<u64, WireError>); 8] = [
            (&[0], Ok(0)),
            (&[0xfa], Ok(250)),
            (&[0xfc, 0xfb, 0], Ok(251)),
            (&[0xfd, 0, 0, 1], Ok(65_536)),
            (&[0xfe, 0, 0, 0, 1, 0, 0, 0, 0], Ok(16_777_216)),
            (&[0xfc, 1], Err(WireError::Truncated("n"))),
            (&[0xfb], Err(WireError::Malformed("length-encoded integer starts with a reserved byte"))),
            (&[], Err(WireError::Truncated("n"))),
        ];
        for (bytes, expected) in cases {
            assert_eq!(Reader::new(bytes).lenenc("n"), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_length_that_lies_is_an_error() {
        assert_eq!(Reader::new(&[5, b'a', b'b']).lenenc_bytes("s"), Err(WireError::Truncated("s")));
        let huge = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(Reader::new(&huge).lenenc_bytes("s"), Err(WireError::Truncated("s")));
        assert_eq!(Reader::new(b"abc").nul_bytes("s"), Err(WireError::Truncated("s")));
    }

    #[test]
    fn text_fields() {
        let mut reader = Reader::new(b"ab\0\x02cd\xfbrest");
        assert_eq!(reader.nul_bytes("a"), Ok(&b"ab"[..]));
        assert_eq!(reader.nullable_bytes("b"), Ok(Some(&b"cd"[..])));
        assert_eq!(reader.nullable_bytes("c"), Ok(None));
        assert_eq!(reader.take_rest(), b"rest");
        assert!(reader.is_empty());
    }
}
