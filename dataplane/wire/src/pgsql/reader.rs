//! A cursor over one message body, and the error of everything that decodes.

use std::ffi::CStr;

use thiserror::Error;

/// Why bytes are not a message.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum WireError {
    /// A length field below its minimum.
    #[error("message length {0} is too small")]
    LengthTooSmall(u32),
    /// A length above the caller's cap.
    #[error("message of {length} bytes is longer than the limit of {limit}")]
    TooLong {
        /// Announced length.
        length: u64,
        /// The cap.
        limit: u64,
    },
    /// The body ends early, a text has no end, or bytes are left over.
    #[error("invalid message format")]
    Malformed,
    /// A type byte that this side does not know.
    #[error("invalid frontend message type {0}")]
    UnknownType(u8),
}

/// Reads the fields of one body from front to back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        if self.rest.len() < length {
            return Err(WireError::Malformed);
        }
        let (head, tail) = self.rest.split_at(length);
        self.rest = tail;
        Ok(head)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, WireError> {
        Ok(self.bytes(1)?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        let raw = self.bytes(2)?;
        Ok(u16::from_be_bytes([raw[0], raw[1]]))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        let raw = self.bytes(4)?;
        Ok(u32::from_be_bytes([raw[0], raw[1], raw[2], raw[3]]))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, WireError> {
        Ok(self.u32()? as i32)
    }

    /// Bytes up to a NUL, which is consumed and not returned.
    pub(crate) fn text(&mut self) -> Result<&'a [u8], WireError> {
        // Looks at many bytes at once: the texts of statements are read here.
        let text = CStr::from_bytes_until_nul(self.rest).map_err(|_| WireError::Malformed)?.to_bytes();
        self.rest = &self.rest[text.len() + 1..];
        Ok(text)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Every field has been read: nothing may be left.
    pub(crate) fn end(&self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Malformed) }
    }
}
