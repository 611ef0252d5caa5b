//! Messages that clients send after login (PostgreSQL manual, "Message Formats", version 15).

use super::frame::{Frame, encode, put_text};
use super::reader::{Reader, WireError};

/// What Describe and Close name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A prepared statement, `S`.
    Statement,
    /// A portal, `P`.
    Portal,
}

impl Target {
    const fn as_byte(self) -> u8 {
        match self {
            Self::Statement => b'S',
            Self::Portal => b'P',
        }
    }
}

/// One message of a client. Names and texts are bytes as they came: their encoding is the client's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrontendMessage<'a> {
    /// `Q`: run a text of statements.
    Query(&'a [u8]),
    /// `P`: make a prepared statement.
    Parse(Parse<'a>),
    /// `B`: make a portal from a prepared statement.
    Bind(Bind<'a>),
    /// `D`.
    Describe(Target, &'a [u8]),
    /// `E`: run a portal.
    Execute {
        /// Portal name; empty = the unnamed one.
        portal: &'a [u8],
        /// Most rows; 0 = all.
        max_rows: u32,
    },
    /// `C`.
    Close(Target, &'a [u8]),
    /// `S`: end of a batch.
    Sync,
    /// `H`: send what is pending.
    Flush,
    /// `X`: goodbye.
    Terminate,
    /// `d`.
    CopyData(&'a [u8]),
    /// `c`.
    CopyDone,
    /// `f`, with the client's reason.
    CopyFail(&'a [u8]),
    /// `p`: an answer to an authentication request, undecoded.
    Password(&'a [u8]),
    /// `F`: call a function by oid, undecoded.
    FunctionCall(&'a [u8]),
}

/// Fields of Parse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parse<'a> {
    /// Statement name; empty = the unnamed one.
    pub name: &'a [u8],
    /// The statement.
    pub sql: &'a [u8],
    /// Oids of parameter types, 4 bytes each, big-endian; 0 = to be inferred.
    pub parameter_types: &'a [u8],
}

impl<'a> Parse<'a> {
    /// The parameter types as numbers.
    pub fn oids(&self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.parameter_types.chunks_exact(4).map(|raw| u32::from_be_bytes([raw[0], raw[1], raw[2], raw[3]]))
    }
}

/// Fields of Bind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bind<'a> {
    /// Portal name; empty = the unnamed one.
    pub portal: &'a [u8],
    /// Statement name; empty = the unnamed one.
    pub statement: &'a [u8],
    /// Formats, values and result formats, undecoded: [`Bind::arguments`].
    pub rest: &'a [u8],
}

/// Whether a value is text or binary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Format code 0.
    Text,
    /// Format code 1.
    Binary,
}

/// Formats given for several values: none = all text, one = for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Formats<'a>(&'a [u8]);

impl Formats<'_> {
    /// How many codes were given.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.0.len() / 2
    }

    /// The format of value `index`; `None` = a code that is neither, or none given for it.
    #[must_use]
    pub fn of(&self, index: usize) -> Option<Format> {
        let index = match self.count() {
            0 => return Some(Format::Text),
            1 => 0,
            _ => index,
        };
        match self.0.get(index * 2..index * 2 + 2)? {
            [0, 0] => Some(Format::Text),
            [0, 1] => Some(Format::Binary),
            _ => None,
        }
    }
}

/// Decoded arguments of Bind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arguments<'a> {
    /// Formats of the values.
    pub formats: Formats<'a>,
    /// Values; `None` = NULL.
    pub values: Vec<Option<&'a [u8]>>,
    /// Formats wanted for result columns.
    pub result_formats: Formats<'a>,
}

impl<'a> Bind<'a> {
    /// Decodes the part behind the names; a proxy never needs it. Counts are unsigned: 65535 values are legal.
    ///
    /// # Errors
    /// Lengths that do not add up.
    pub fn arguments(&self) -> Result<Arguments<'a>, WireError> {
        let mut reader = Reader::new(self.rest);
        let count = reader.u16()?;
        let formats = Formats(reader.bytes(usize::from(count) * 2)?);
        let count = reader.u16()?;
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(match reader.i32()? {
                -1 => None,
                length => Some(reader.bytes(usize::try_from(length).map_err(|_| WireError::Malformed)?)?),
            });
        }
        let count = reader.u16()?;
        let result_formats = Formats(reader.bytes(usize::from(count) * 2)?);
        reader.end()?;
        Ok(Arguments { formats, values, result_formats })
    }
}

impl<'a> FrontendMessage<'a> {
    /// Decodes a whole message.
    ///
    /// # Errors
    /// An unknown type, or a body that does not fit its type.
    pub fn decode(frame: Frame<'a>) -> Result<Self, WireError> {
        let mut reader = Reader::new(frame.body);
        let message = match frame.tag {
            b'Q' => Self::Query(reader.text()?),
            b'P' => {
                let (name, sql) = (reader.text()?, reader.text()?);
                let count = reader.u16()?;
                Self::Parse(Parse { name, sql, parameter_types: reader.bytes(usize::from(count) * 4)? })
            }
            b'B' => Self::Bind(Bind { portal: reader.text()?, statement: reader.text()?, rest: reader.rest() }),
            b'D' => {
                let target = target(&mut reader)?;
                Self::Describe(target, reader.text()?)
            }
            b'C' => {
                let target = target(&mut reader)?;
                Self::Close(target, reader.text()?)
            }
            b'E' => Self::Execute { portal: reader.text()?, max_rows: reader.u32()? },
            b'S' => Self::Sync,
            b'H' => Self::Flush,
            b'X' => Self::Terminate,
            b'd' => Self::CopyData(reader.rest()),
            b'c' => Self::CopyDone,
            b'f' => Self::CopyFail(reader.text()?),
            b'p' => Self::Password(reader.rest()),
            b'F' => Self::FunctionCall(reader.rest()),
            other => return Err(WireError::UnknownType(other)),
        };
        reader.end()?;
        Ok(message)
    }

    /// Whether `tag` is the type of a message that a logged-in client may send.
    #[must_use]
    pub const fn is_known(tag: u8) -> bool {
        matches!(tag, b'Q' | b'P' | b'B' | b'D' | b'C' | b'E' | b'S' | b'H' | b'X' | b'd' | b'c' | b'f' | b'F')
    }
}

fn target(reader: &mut Reader<'_>) -> Result<Target, WireError> {
    match reader.byte()? {
        b'S' => Ok(Target::Statement),
        b'P' => Ok(Target::Portal),
        _ => Err(WireError::Malformed),
    }
}

/// Query.
pub fn query(out: &mut Vec<u8>, sql: &[u8]) {
    encode(out, b'Q', |out| put_text(out, sql));
}

/// Parse; `parameter_types` as in [`Parse`].
pub fn parse(out: &mut Vec<u8>, name: &[u8], sql: &[u8], parameter_types: &[u8]) {
    encode(out, b'P', |out| {
        put_text(out, name);
        put_text(out, sql);
        out.extend_from_slice(&((parameter_types.len() / 4) as u16).to_be_bytes());
        out.extend_from_slice(parameter_types);
    });
}

/// Bind with the part behind the names as it came.
pub fn bind(out: &mut Vec<u8>, portal: &[u8], statement: &[u8], rest: &[u8]) {
    encode(out, b'B', |out| {
        put_text(out, portal);
        put_text(out, statement);
        out.extend_from_slice(rest);
    });
}

/// Describe.
pub fn describe(out: &mut Vec<u8>, target: Target, name: &[u8]) {
    encode(out, b'D', |out| {
        out.push(target.as_byte());
        put_text(out, name);
    });
}

/// Close.
pub fn close(out: &mut Vec<u8>, target: Target, name: &[u8]) {
    encode(out, b'C', |out| {
        out.push(target.as_byte());
        put_text(out, name);
    });
}

/// Execute.
pub fn execute(out: &mut Vec<u8>, portal: &[u8], max_rows: u32) {
    encode(out, b'E', |out| {
        put_text(out, portal);
        out.extend_from_slice(&max_rows.to_be_bytes());
    });
}

/// Sync.
pub fn sync(out: &mut Vec<u8>) {
    encode(out, b'S', |_| {});
}

/// Terminate.
pub fn terminate(out: &mut Vec<u8>) {
    encode(out, b'X', |_| {});
}

/// CopyFail.
pub fn copy_fail(out: &mut Vec<u8>, reason: &[u8]) {
    encode(out, b'f', |out| put_text(out, reason));
}

/// PasswordMessage: a clear-text or md5 password.
pub fn password(out: &mut Vec<u8>, text: &[u8]) {
    encode(out, b'p', |out| put_text(out, text));
}

/// SASLInitialResponse.
pub fn sasl_initial_response(out: &mut Vec<u8>, mechanism: &[u8], data: &[u8]) {
    encode(out, b'p', |out| {
        put_text(out, mechanism);
        out.extend_from_slice(&(data.len() as u32).to_be_bytes());
        out.extend_from_slice(data);
    });
}

/// SASLResponse.
pub fn sasl_response(out: &mut Vec<u8>, data: &[u8]) {
    encode(out, b'p', |out| out.extend_from_slice(data));
}

/// Body of a PasswordMessage.
///
/// # Errors
/// No NUL, or something behind it.
pub fn decode_password(body: &[u8]) -> Result<&[u8], WireError> {
    let mut reader = Reader::new(body);
    let text = reader.text()?;
    reader.end()?;
    Ok(text)
}

/// Body of a SASLInitialResponse: mechanism and data (`None` = length −1).
///
/// # Errors
/// Lengths that do not add up.
pub fn decode_sasl_initial_response(body: &[u8]) -> Result<(&[u8], Option<&[u8]>), WireError> {
    let mut reader = Reader::new(body);
    let mechanism = reader.text()?;
    let data = match reader.i32()? {
        -1 => None,
        length => Some(reader.bytes(usize::try_from(length).map_err(|_| WireError::Malformed)?)?),
    };
    reader.end()?;
    Ok((mechanism, data))
}

#[cfg(test)]
mod tests {
    use super::super::frame;
    use super::*;

    fn decoded(bytes: &[u8]) -> Result<FrontendMessage<'_>, WireError> {
        FrontendMessage::decode(frame::decode(bytes, 1 << 20)?.unwrap())
    }

    #[test]
    fn messages_of_a_client() {
        let parse = Parse { name: b"s", sql: b"SELECT $1", parameter_types: b"\0\0\0\x17" };
        let bind = Bind { portal: b"p", statement: b"s", rest: b"\0\0\0\x01\0\0\0\x01" };
        let cases: [(&[u8], FrontendMessage<'_>); 14] = [
            (b"Q\0\0\0\x0dSELECT 1\0", FrontendMessage::Query(b"SELECT 1")),
            (b"P\0\0\0\x16s\0SELECT $1\0\0\x01\0\0\0\x17", FrontendMessage::Parse(parse)),
            (b"B\0\0\0\x10p\0s\0\0\0\0\x01\0\0\0\x01", FrontendMessage::Bind(bind)),
            (b"D\0\0\0\x07Ss\0", FrontendMessage::Describe(Target::Statement, b"s")),
            (b"D\0\0\0\x06P\0", FrontendMessage::Describe(Target::Portal, b"")),
            (b"E\0\0\0\x09\0\0\0\0\x05", FrontendMessage::Execute { portal: b"", max_rows: 5 }),
            (b"C\0\0\0\x07Ss\0", FrontendMessage::Close(Target::Statement, b"s")),
            (b"S\0\0\0\x04", FrontendMessage::Sync),
            (b"H\0\0\0\x04", FrontendMessage::Flush),
            (b"X\0\0\0\x04", FrontendMessage::Terminate),
            (b"d\0\0\0\x06ab", FrontendMessage::CopyData(b"ab")),
            (b"c\0\0\0\x04", FrontendMessage::CopyDone),
            (b"f\0\0\0\x07no\0", FrontendMessage::CopyFail(b"no")),
            (b"p\0\0\0\x06ab", FrontendMessage::Password(b"ab")),
        ];
        for (bytes, expected) in cases {
            assert_eq!(decoded(bytes), Ok(expected), "{bytes:?}");
        }
    }

    #[test]
    fn bodies_that_lie() {
        let cases: [&[u8]; 9] = [
            b"Q\0\0\0\x05S",
            b"Q\0\0\0\x07a\0b",
            b"P\0\0\0\x09s\0q\0\0",
            b"P\0\0\0\x0as\0q\0\xff\xff",
            b"B\0\0\0\x06p\0",
            b"D\0\0\0\x07Xs\0",
            b"E\0\0\0\x08\0\0\0\0",
            b"S\0\0\0\x05x",
            b"?\0\0\0\x04",
        ];
        for bytes in cases {
            assert!(decoded(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn arguments_of_bind() {
        let rest = b"\0\x01\0\x01\0\x02\0\0\0\x02ab\xff\xff\xff\xff\0\x02\0\0\0\x01";
        let bind = Bind { portal: b"", statement: b"", rest };
        let arguments = bind.arguments().unwrap();
        assert_eq!(arguments.values, [Some(&b"ab"[..]), None]);
        assert_eq!((arguments.formats.of(0), arguments.formats.of(1)), (Some(Format::Binary), Some(Format::Binary)));
        assert_eq!([0, 1, 2].map(|i| arguments.result_formats.of(i)), [Some(Format::Text), Some(Format::Binary), None]);
        for cut in 0..rest.len() {
            assert!(Bind { rest: &rest[..cut], ..bind }.arguments().is_err(), "{cut}");
        }
        assert!(Bind { rest: b"\0\0\0\x01\xff\xff\xff\xfe\0\0", ..bind }.arguments().is_err());
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let mut out = Vec::new();
        parse(&mut out, b"s", b"SELECT $1", b"\0\0\0\x17");
        bind(&mut out, b"p", b"s", b"\0\0\0\0\0\0");
        describe(&mut out, Target::Portal, b"p");
        execute(&mut out, b"p", 7);
        close(&mut out, Target::Statement, b"s");
        query(&mut out, b"q");
        copy_fail(&mut out, b"r");
        sync(&mut out);
        terminate(&mut out);
        let mut rest = &out[..];
        let mut seen = Vec::new();
        while let Some(frame) = frame::decode(rest, 100).unwrap() {
            seen.push(FrontendMessage::decode(frame).unwrap());
            rest = &rest[frame.size()..];
        }
        assert_eq!(seen.len(), 9);
        assert_eq!(seen[0], FrontendMessage::Parse(Parse { name: b"s", sql: b"SELECT $1", parameter_types: b"\0\0\0\x17" }));
        assert_eq!(seen[3], FrontendMessage::Execute { portal: b"p", max_rows: 7 });
    }

    #[test]
    fn sasl_bodies() {
        assert_eq!(decode_sasl_initial_response(b"M\0\0\0\0\x02ab"), Ok((&b"M"[..], Some(&b"ab"[..]))));
        assert_eq!(decode_sasl_initial_response(b"M\0\xff\xff\xff\xff"), Ok((&b"M"[..], None)));
        for bad in [&b"M\0\0\0\0\x03ab"[..], b"M\0\0\0\0\x01ab", b"M\0\xff\xff\xff\xfe", b"M", b"M\0\x7f\xff\xff\xff"] {
            assert!(decode_sasl_initial_response(bad).is_err(), "{bad:?}");
        }
        assert_eq!(decode_password(b"pw\0"), Ok(&b"pw"[..]));
        assert!(decode_password(b"pw").is_err() && decode_password(b"pw\0x").is_err());
    }
}
