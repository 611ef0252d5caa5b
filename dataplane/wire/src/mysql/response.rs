//! OK, ERR and EOF packets.

use super::capabilities::{Capabilities, Status};
use super::error_code::ErrorCode;
use super::reader::{Reader, WireError};
use super::writer::Put;

/// Longest message text of an ERR packet (`MYSQL_ERRMSG_SIZE`).
pub const MAX_ERROR_MESSAGE: usize = 512;

/// An OK packet. In a result set that ends with it (DEPRECATE_EOF) its first byte is 0xFE.
///
/// ```text
/// int<1> 0 or 0xFE | lenenc affected | lenenc insert id | int<2> status | int<2> warnings
/// string<lenenc> info, if anything follows | string<lenenc> session state, if SESSION_TRACK and SESSION_STATE_CHANGED
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OkPacket<'a> {
    /// Affected rows.
    pub affected: u64,
    /// Last insert id.
    pub insert_id: u64,
    /// Status.
    pub status: Status,
    /// Number of warnings.
    pub warnings: u16,
    /// Text such as `Rows matched: 1  Changed: 1  Warnings: 0`.
    pub info: &'a [u8],
    /// Session state changes, undecoded ([`super::track::changes`]); empty = none.
    pub state: &'a [u8],
}

impl<'a> OkPacket<'a> {
    /// Reads a payload that starts with 0 or 0xFE, of a connection with these capabilities.
    pub fn decode(payload: &'a [u8], capabilities: Capabilities) -> Result<Self, WireError> {
        let mut reader = Reader::new(payload);
        if !matches!(reader.u8("OK")?, 0 | 0xfe) {
            return Err(WireError::Malformed("not an OK packet"));
        }
        let affected = reader.lenenc("affected rows")?;
        let insert_id = reader.lenenc("insert id")?;
        let status = Status(reader.u16("status")?);
        let warnings = reader.u16("warnings")?;
        let mut ok = Self { affected, insert_id, status, warnings, info: &[], state: &[] };
        if reader.is_empty() {
            return Ok(ok);
        }
        let tracked = capabilities.contains(Capabilities::SESSION_TRACK);
        // The manual says string<EOF> without SESSION_TRACK; MySQL and MariaDB send string<lenenc> in both cases.
        let mut lenenc = reader;
        ok.info = match lenenc.lenenc_bytes("info") {
            Ok(info) => {
                reader = lenenc;
                info
            }
            Err(_) if !tracked => reader.take_rest(),
            Err(error) => return Err(error),
        };
        if tracked && status.contains(Status::SESSION_STATE_CHANGED) {
            ok.state = reader.lenenc_bytes("session state")?;
        }
        Ok(ok)
    }

    /// Appends the payload with first byte 0, or 0xFE at the end of a result set.
    pub fn encode(&self, header: u8, out: &mut Vec<u8>) {
        let status = if self.state.is_empty() { self.status.without(Status::SESSION_STATE_CHANGED) } else { self.status };
        out.u8(header);
        out.lenenc(self.affected);
        out.lenenc(self.insert_id);
        out.u16(status.0);
        out.u16(self.warnings);
        if !self.info.is_empty() || !self.state.is_empty() {
            out.lenenc_bytes(self.info);
        }
        if !self.state.is_empty() {
            out.lenenc_bytes(self.state);
        }
    }
}

/// An ERR packet.
///
/// ```text
/// int<1> 0xFF | int<2> code | '#' | 5 bytes SQLSTATE | string<EOF> message
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrPacket {
    /// Error number.
    pub code: u16,
    /// SQLSTATE; `HY000` where the server sends none (before the login has begun).
    pub sqlstate: [u8; 5],
    /// Text; bytes that are no UTF-8 are replaced.
    pub message: String,
}

impl ErrPacket {
    /// An error of our own.
    #[must_use]
    pub fn new(error: ErrorCode, message: impl Into<String>) -> Self {
        Self { code: error.code, sqlstate: error.sqlstate, message: message.into() }
    }

    /// Reads a payload that starts with 0xFF.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(payload);
        if reader.u8("ERR")? != 0xff {
            return Err(WireError::Malformed("not an ERR packet"));
        }
        let code = reader.u16("error code")?;
        let sqlstate = if reader.rest().first() == Some(&b'#') {
            reader.u8("SQLSTATE")?;
            reader.array("SQLSTATE")?
        } else {
            *b"HY000"
        };
        Ok(Self { code, sqlstate, message: String::from_utf8_lossy(reader.take_rest()).into_owned() })
    }

    /// Appends the payload; the message is cut at [`MAX_ERROR_MESSAGE`] bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut end = self.message.len().min(MAX_ERROR_MESSAGE);
        while !self.message.is_char_boundary(end) {
            end -= 1;
        }
        out.u8(0xff);
        out.u16(self.code);
        out.u8(b'#');
        out.bytes(&self.sqlstate);
        out.bytes(&self.message.as_bytes()[..end]);
    }
}

/// An EOF packet: 0xFE, warnings, status; at most 8 bytes, which tells it from a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EofPacket {
    /// Number of warnings.
    pub warnings: u16,
    /// Status.
    pub status: Status,
}

impl EofPacket {
    /// Reads a payload that starts with 0xFE.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(payload);
        if reader.u8("EOF")? != 0xfe || payload.len() > 8 {
            return Err(WireError::Malformed("not an EOF packet"));
        }
        Ok(Self { warnings: reader.u16("warnings")?, status: Status(reader.u16("status")?) })
    }

    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.u8(0xfe);
        out.u16(self.warnings);
        out.u16(self.status.0);
    }
}

/// The answer to COM_STMT_PREPARE, before the definitions of parameters and columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrepareOk {
    /// Statement id.
    pub statement: u32,
    /// Columns of its result.
    pub columns: u16,
    /// Parameters.
    pub parameters: u16,
    /// Number of warnings.
    pub warnings: u16,
}

impl PrepareOk {
    /// Reads a payload that starts with 0.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(payload);
        if reader.u8("prepare OK")? != 0 {
            return Err(WireError::Malformed("not an answer to COM_STMT_PREPARE"));
        }
        let statement = reader.u32("statement id")?;
        let columns = reader.u16("column count")?;
        let parameters = reader.u16("parameter count")?;
        reader.u8("filler")?;
        let warnings = if reader.is_empty() { 0 } else { reader.u16("warnings")? };
        Ok(Self { statement, columns, parameters, warnings })
    }

    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.u8(0);
        out.u32(self.statement);
        out.u16(self.columns);
        out.u16(self.parameters);
        out.u8(0);
        out.u16(self.warnings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mysql::error_code;

    const TRACK: Capabilities = Capabilities::SESSION_TRACK;

    #[test]
    fn ok_packets_byte_by_byte() {
        let plain = [0, 1, 0xfc, 0, 1, 2, 0, 3, 0];
        let ok = OkPacket { affected: 1, insert_id: 256, status: Status(2), warnings: 3, ..OkPacket::default() };
        assert_eq!(OkPacket::decode(&plain, TRACK), Ok(ok));
        let mut out = Vec::new();
        ok.encode(0, &mut out);
        assert_eq!(out, plain);
        for end in 0..plain.len() {
            assert!(OkPacket::decode(&plain[..end], TRACK).is_err(), "{end}");
        }
    }

    #[test]
    fn info_and_session_state() {
        let bytes = b"\xfe\0\0\x02\x40\0\0\x02hi\x04\x01\x02\x01a";
        let ok = OkPacket::decode(bytes, TRACK).unwrap();
        assert_eq!((ok.info, ok.state), (&b"hi"[..], &b"\x01\x02\x01a"[..]));
        let mut out = Vec::new();
        ok.encode(0xfe, &mut out);
        assert_eq!(out, bytes);
        let stripped = OkPacket { state: &[], ..ok };
        out.clear();
        stripped.encode(0xfe, &mut out);
        assert_eq!(out, b"\xfe\0\0\x02\0\0\0\x02hi");
        assert!(OkPacket::decode(b"\xfe\0\0\x02\x40\0\0\x02hi\x09\x01", TRACK).is_err(), "a length that lies");
        assert_eq!(OkPacket::decode(b"\0\0\0\x02\0\0\0Text", Capabilities::NONE).unwrap().info, b"Text");
    }

    #[test]
    fn errors_with_and_without_sqlstate() {
        let err = ErrPacket::decode(b"\xff\x48\x04#HY000No tables used").unwrap();
        assert_eq!((err.code, &err.sqlstate, &*err.message), (1096, b"HY000", "No tables used"));
        let early = ErrPacket::decode(b"\xff\x10\x04Too many connections").unwrap();
        assert_eq!((early.code, &*early.message), (1040, "Too many connections"));
        let long = ErrPacket::new(error_code::UNKNOWN, "ä".repeat(400));
        let mut out = Vec::new();
        long.encode(&mut out);
        assert_eq!(out.len(), 9 + MAX_ERROR_MESSAGE);
        for end in 0..3 {
            assert!(ErrPacket::decode(&err_bytes()[..end]).is_err());
        }
        assert!(ErrPacket::decode(b"\xff\x48\x04#HY0").is_err());
    }

    fn err_bytes() -> Vec<u8> {
        b"\xff\x48\x04#HY000x".to_vec()
    }

    #[test]
    fn eof_and_prepare_answers() {
        let eof = EofPacket { warnings: 1, status: Status::AUTOCOMMIT };
        let mut out = Vec::new();
        eof.encode(&mut out);
        assert_eq!(out, [0xfe, 1, 0, 2, 0]);
        assert_eq!(EofPacket::decode(&out), Ok(eof));
        assert!(EofPacket::decode(&[0xfe; 9]).is_err());

        let prepared = PrepareOk { statement: 7, columns: 2, parameters: 1, warnings: 0 };
        out.clear();
        prepared.encode(&mut out);
        assert_eq!(out, [0, 7, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0]);
        assert_eq!(PrepareOk::decode(&out), Ok(prepared));
        assert!(PrepareOk::decode(&out[..9]).is_err());
    }

    #[test]
    fn answers_never_panic() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let _ = OkPacket::decode(bytes, TRACK);
            let _ = OkPacket::decode(bytes, Capabilities::NONE);
            let _ = ErrPacket::decode(bytes);
            let _ = EofPacket::decode(bytes);
            let _ = PrepareOk::decode(bytes);
        });
    }
}
