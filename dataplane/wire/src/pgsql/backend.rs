//! Messages that servers send (PostgreSQL manual, "Message Formats", version 15).

use super::frame::{encode, put_text};
use super::reader::{Reader, WireError};

/// Type bytes of server messages that a relay looks at.
pub mod tag {
    /// Authentication request, or its end.
    pub const AUTHENTICATION: u8 = b'R';
    /// BackendKeyData.
    pub const BACKEND_KEY_DATA: u8 = b'K';
    /// BindComplete.
    pub const BIND_COMPLETE: u8 = b'2';
    /// CloseComplete.
    pub const CLOSE_COMPLETE: u8 = b'3';
    /// CommandComplete.
    pub const COMMAND_COMPLETE: u8 = b'C';
    /// CopyBothResponse.
    pub const COPY_BOTH: u8 = b'W';
    /// CopyData.
    pub const COPY_DATA: u8 = b'd';
    /// CopyDone.
    pub const COPY_DONE: u8 = b'c';
    /// CopyInResponse.
    pub const COPY_IN: u8 = b'G';
    /// CopyOutResponse.
    pub const COPY_OUT: u8 = b'H';
    /// DataRow.
    pub const DATA_ROW: u8 = b'D';
    /// EmptyQueryResponse.
    pub const EMPTY_QUERY: u8 = b'I';
    /// ErrorResponse.
    pub const ERROR: u8 = b'E';
    /// FunctionCallResponse.
    pub const FUNCTION_CALL: u8 = b'V';
    /// NegotiateProtocolVersion.
    pub const NEGOTIATE: u8 = b'v';
    /// NoData.
    pub const NO_DATA: u8 = b'n';
    /// NoticeResponse.
    pub const NOTICE: u8 = b'N';
    /// NotificationResponse.
    pub const NOTIFICATION: u8 = b'A';
    /// ParameterDescription.
    pub const PARAMETER_DESCRIPTION: u8 = b't';
    /// ParameterStatus.
    pub const PARAMETER_STATUS: u8 = b'S';
    /// ParseComplete.
    pub const PARSE_COMPLETE: u8 = b'1';
    /// PortalSuspended.
    pub const PORTAL_SUSPENDED: u8 = b's';
    /// ReadyForQuery.
    pub const READY: u8 = b'Z';
    /// RowDescription.
    pub const ROW_DESCRIPTION: u8 = b'T';
}

/// The status byte of ReadyForQuery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TransactionStatus {
    /// `I`: outside a transaction.
    #[default]
    Idle,
    /// `T`: in a transaction.
    InTransaction,
    /// `E`: in a failed transaction.
    Failed,
}

impl TransactionStatus {
    /// The byte on the wire.
    #[must_use]
    pub const fn as_byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::InTransaction => b'T',
            Self::Failed => b'E',
        }
    }

    /// From the body of ReadyForQuery.
    ///
    /// # Errors
    /// Anything but one known byte.
    pub const fn decode(body: &[u8]) -> Result<Self, WireError> {
        match body {
            b"I" => Ok(Self::Idle),
            b"T" => Ok(Self::InTransaction),
            b"E" => Ok(Self::Failed),
            _ => Err(WireError::Malformed),
        }
    }
}

/// An authentication request of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Authentication<'a> {
    /// Logged in.
    Ok,
    /// Wants the clear-text password.
    CleartextPassword,
    /// Wants an md5 password with this salt.
    Md5Password([u8; 4]),
    /// Wants SASL; names of mechanisms, each with its NUL, ended by an empty one.
    Sasl(&'a [u8]),
    /// SASL challenge.
    SaslContinue(&'a [u8]),
    /// SASL outcome.
    SaslFinal(&'a [u8]),
    /// Another method (Kerberos, GSS, SSPI …), by number.
    Unsupported(u32),
}

impl<'a> Authentication<'a> {
    /// Decodes the body of `R`.
    ///
    /// # Errors
    /// A body that does not fit its kind.
    pub fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let message = match reader.u32()? {
            0 => Self::Ok,
            3 => Self::CleartextPassword,
            5 => {
                let salt = reader.bytes(4)?;
                Self::Md5Password([salt[0], salt[1], salt[2], salt[3]])
            }
            10 => Self::Sasl(reader.rest()),
            11 => Self::SaslContinue(reader.rest()),
            12 => Self::SaslFinal(reader.rest()),
            other => {
                reader.rest();
                Self::Unsupported(other)
            }
        };
        reader.end()?;
        Ok(message)
    }
}

/// Names in an `R 10` list.
pub fn sasl_mechanisms(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == 0).filter(|name| !name.is_empty())
}

/// ParameterStatus: name and value.
///
/// # Errors
/// Not exactly two texts.
pub fn decode_parameter_status(body: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
    let mut reader = Reader::new(body);
    let pair = (reader.text()?, reader.text()?);
    reader.end()?;
    Ok(pair)
}

/// BackendKeyData: process id and key (4 to 256 bytes).
///
/// # Errors
/// A key of another length.
pub fn decode_backend_key_data(body: &[u8]) -> Result<(u32, &[u8]), WireError> {
    let mut reader = Reader::new(body);
    let pid = reader.u32()?;
    let key = reader.rest();
    if (4..=super::startup::CANCEL_KEY_LENGTH).contains(&key.len()) { Ok((pid, key)) } else { Err(WireError::Malformed) }
}

/// CommandComplete: the tag, as `SELECT 1`.
///
/// # Errors
/// Not exactly one text.
pub fn decode_command_complete(body: &[u8]) -> Result<&[u8], WireError> {
    let mut reader = Reader::new(body);
    let text = reader.text()?;
    reader.end()?;
    Ok(text)
}

/// One column of a RowDescription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// Name.
    pub name: String,
    /// Oid of its table; 0 = none.
    pub table_oid: u32,
    /// Number in the table; 0 = none.
    pub attribute: i16,
    /// Oid of the type, for example [`oid::TEXT`].
    pub type_oid: u32,
    /// Bytes of the type; negative = variable.
    pub type_length: i16,
    /// Modifier; −1 = none.
    pub type_modifier: i32,
    /// 0 = text, 1 = binary.
    pub format: i16,
}

/// Oids of common types (`pg_type.dat`, PostgreSQL 15).
pub mod oid {
    /// `boolean`.
    pub const BOOL: u32 = 16;
    /// `bytea`.
    pub const BYTEA: u32 = 17;
    /// `bigint`.
    pub const INT8: u32 = 20;
    /// `integer`.
    pub const INT4: u32 = 23;
    /// `text`.
    pub const TEXT: u32 = 25;
    /// `double precision`.
    pub const FLOAT8: u32 = 701;
    /// `character varying`.
    pub const VARCHAR: u32 = 1043;
    /// `numeric`.
    pub const NUMERIC: u32 = 1700;
}

impl Column {
    /// A column of no table, in text form, with the length that belongs to the type.
    #[must_use]
    pub fn new(name: impl Into<String>, type_oid: u32) -> Self {
        let type_length = match type_oid {
            oid::BOOL => 1,
            oid::INT4 => 4,
            oid::INT8 | oid::FLOAT8 => 8,
            _ => -1,
        };
        Self { name: name.into(), table_oid: 0, attribute: 0, type_oid, type_length, type_modifier: -1, format: 0 }
    }
}

/// AuthenticationOk.
pub fn authentication_ok(out: &mut Vec<u8>) {
    authentication(out, 0, &[]);
}

/// AuthenticationCleartextPassword.
pub fn authentication_cleartext(out: &mut Vec<u8>) {
    authentication(out, 3, &[]);
}

/// AuthenticationMD5Password.
pub fn authentication_md5(out: &mut Vec<u8>, salt: [u8; 4]) {
    authentication(out, 5, &salt);
}

/// AuthenticationSASL with `mechanisms` in order of preference.
pub fn authentication_sasl(out: &mut Vec<u8>, mechanisms: &[&str]) {
    encode(out, tag::AUTHENTICATION, |out| {
        out.extend_from_slice(&10_u32.to_be_bytes());
        for mechanism in mechanisms {
            put_text(out, mechanism.as_bytes());
        }
        out.push(0);
    });
}

/// AuthenticationSASLContinue.
pub fn authentication_sasl_continue(out: &mut Vec<u8>, data: &[u8]) {
    authentication(out, 11, data);
}

/// AuthenticationSASLFinal.
pub fn authentication_sasl_final(out: &mut Vec<u8>, data: &[u8]) {
    authentication(out, 12, data);
}

fn authentication(out: &mut Vec<u8>, kind: u32, data: &[u8]) {
    encode(out, tag::AUTHENTICATION, |out| {
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(data);
    });
}

/// NegotiateProtocolVersion: we speak 3.`minor` and none of `unknown`.
pub fn negotiate_protocol_version(out: &mut Vec<u8>, minor: u16, unknown: &[String]) {
    encode(out, tag::NEGOTIATE, |out| {
        out.extend_from_slice(&(0x0003_0000 | u32::from(minor)).to_be_bytes());
        out.extend_from_slice(&(unknown.len() as u32).to_be_bytes());
        for name in unknown {
            put_text(out, name.as_bytes());
        }
    });
}

/// ParameterStatus.
pub fn parameter_status(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    encode(out, tag::PARAMETER_STATUS, |out| {
        put_text(out, name);
        put_text(out, value);
    });
}

/// BackendKeyData.
pub fn backend_key_data(out: &mut Vec<u8>, pid: u32, key: &[u8]) {
    encode(out, tag::BACKEND_KEY_DATA, |out| {
        out.extend_from_slice(&pid.to_be_bytes());
        out.extend_from_slice(key);
    });
}

/// ReadyForQuery.
pub fn ready_for_query(out: &mut Vec<u8>, status: TransactionStatus) {
    encode(out, tag::READY, |out| out.push(status.as_byte()));
}

/// RowDescription. PostgreSQL has at most 1664 result columns; the count is 16 bits wide.
pub fn row_description(out: &mut Vec<u8>, columns: &[Column]) {
    encode(out, tag::ROW_DESCRIPTION, |out| {
        out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
        for column in columns {
            put_text(out, column.name.as_bytes());
            out.extend_from_slice(&column.table_oid.to_be_bytes());
            out.extend_from_slice(&column.attribute.to_be_bytes());
            out.extend_from_slice(&column.type_oid.to_be_bytes());
            out.extend_from_slice(&column.type_length.to_be_bytes());
            out.extend_from_slice(&column.type_modifier.to_be_bytes());
            out.extend_from_slice(&column.format.to_be_bytes());
        }
    });
}

/// DataRow; `None` = NULL.
pub fn data_row<'a>(out: &mut Vec<u8>, values: impl ExactSizeIterator<Item = Option<&'a [u8]>>) {
    encode(out, tag::DATA_ROW, |out| {
        out.extend_from_slice(&(values.len() as u16).to_be_bytes());
        for value in values {
            match value {
                None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
                Some(value) => {
                    out.extend_from_slice(&(value.len() as u32).to_be_bytes());
                    out.extend_from_slice(value);
                }
            }
        }
    });
}

/// ParameterDescription.
pub fn parameter_description(out: &mut Vec<u8>, oids: &[u32]) {
    encode(out, tag::PARAMETER_DESCRIPTION, |out| {
        out.extend_from_slice(&(oids.len() as u16).to_be_bytes());
        for oid in oids {
            out.extend_from_slice(&oid.to_be_bytes());
        }
    });
}

/// CommandComplete with a tag as `INSERT 0 1`.
pub fn command_complete(out: &mut Vec<u8>, text: &str) {
    encode(out, tag::COMMAND_COMPLETE, |out| put_text(out, text.as_bytes()));
}

/// EmptyQueryResponse.
pub fn empty_query(out: &mut Vec<u8>) {
    encode(out, tag::EMPTY_QUERY, |_| {});
}

/// ParseComplete.
pub fn parse_complete(out: &mut Vec<u8>) {
    encode(out, tag::PARSE_COMPLETE, |_| {});
}

/// BindComplete.
pub fn bind_complete(out: &mut Vec<u8>) {
    encode(out, tag::BIND_COMPLETE, |_| {});
}

/// CloseComplete.
pub fn close_complete(out: &mut Vec<u8>) {
    encode(out, tag::CLOSE_COMPLETE, |_| {});
}

/// NoData.
pub fn no_data(out: &mut Vec<u8>) {
    encode(out, tag::NO_DATA, |_| {});
}

/// PortalSuspended.
pub fn portal_suspended(out: &mut Vec<u8>) {
    encode(out, tag::PORTAL_SUSPENDED, |_| {});
}

#[cfg(test)]
mod tests {
    use super::super::frame;
    use super::*;

    #[test]
    fn bytes_of_a_result() {
        let mut out = Vec::new();
        row_description(&mut out, &[Column::new("a", oid::INT4)]);
        data_row(&mut out, [Some(&b"1"[..]), None].into_iter());
        command_complete(&mut out, "SELECT 1");
        ready_for_query(&mut out, TransactionStatus::Idle);
        let expected = [
            &b"T\0\0\0\x1a\0\x01a\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0"[..],
            b"D\0\0\0\x0f\0\x02\0\0\0\x01\x31\xff\xff\xff\xff",
            b"C\0\0\0\x0dSELECT 1\0",
            b"Z\0\0\0\x05I",
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn bytes_of_a_welcome() {
        let mut out = Vec::new();
        authentication_ok(&mut out);
        negotiate_protocol_version(&mut out, 2, &["_pq_.x".into()]);
        parameter_status(&mut out, b"TimeZone", b"UTC");
        backend_key_data(&mut out, 7, &[1, 2, 3, 4]);
        let expected = [
            &b"R\0\0\0\x08\0\0\0\0"[..],
            b"v\0\0\0\x13\0\x03\0\x02\0\0\0\x01_pq_.x\0",
            b"S\0\0\0\x11TimeZone\0UTC\0",
            b"K\0\0\0\x0c\0\0\0\x07\x01\x02\x03\x04",
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn empty_messages() {
        let mut out = Vec::new();
        for put in [parse_complete, bind_complete, close_complete, no_data, portal_suspended, empty_query] {
            put(&mut out);
        }
        let tags: Vec<u8> = out.chunks(5).map(|message| message[0]).collect();
        assert_eq!(tags, b"123nsI");
    }

    #[test]
    fn authentication_requests() {
        let mut out = Vec::new();
        authentication_sasl(&mut out, &["SCRAM-SHA-256"]);
        assert_eq!(out, b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0");
        let cases: [(&[u8], Result<Authentication<'_>, WireError>); 8] = [
            (b"\0\0\0\0", Ok(Authentication::Ok)),
            (b"\0\0\0\0x", Err(WireError::Malformed)),
            (b"\0\0\0\x03", Ok(Authentication::CleartextPassword)),
            (b"\0\0\0\x05abcd", Ok(Authentication::Md5Password(*b"abcd"))),
            (b"\0\0\0\x05abc", Err(WireError::Malformed)),
            (b"\0\0\0\x0aA\0\0", Ok(Authentication::Sasl(b"A\0\0"))),
            (b"\0\0\0\x07", Ok(Authentication::Unsupported(7))),
            (b"\0\0\0", Err(WireError::Malformed)),
        ];
        for (body, expected) in cases {
            assert_eq!(Authentication::decode(body), expected, "{body:?}");
        }
        let names: Vec<&[u8]> = sasl_mechanisms(b"A\0B\0\0").collect();
        assert_eq!(names, [b"A", b"B"]);
    }

    #[test]
    fn short_bodies() {
        assert_eq!(decode_parameter_status(b"a\0b\0"), Ok((&b"a"[..], &b"b"[..])));
        assert!(decode_parameter_status(b"a\0b").is_err());
        assert_eq!(decode_backend_key_data(b"\0\0\0\x01abcd"), Ok((1, &b"abcd"[..])));
        assert!(decode_backend_key_data(b"\0\0\0\x01abc").is_err());
        assert_eq!(decode_command_complete(b"BEGIN\0"), Ok(&b"BEGIN"[..]));
        for (body, expected) in [(&b"I"[..], true), (b"X", false), (b"", false), (b"II", false)] {
            assert_eq!(TransactionStatus::decode(body).is_ok(), expected, "{body:?}");
        }
        let mut out = Vec::new();
        parameter_description(&mut out, &[23, 0]);
        assert_eq!(frame::decode(&out, 100).unwrap().unwrap().body, b"\0\x02\0\0\0\x17\0\0\0\0");
    }
}
