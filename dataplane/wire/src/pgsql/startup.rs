//! The untyped packets that open a connection: start-up, encryption requests, cancel requests (pgsql-dataplane.md 2.1–2.5).

use thiserror::Error;

use super::error_fields::ErrorFields;
use super::frame::{encode_untyped, put_text};
use super::reader::{Reader, WireError};
use super::sqlstate;

/// Smallest and largest first packet that PostgreSQL reads; outside it closes without a word.
pub const PACKET_LENGTHS: std::ops::RangeInclusive<usize> = 8..=10_000;
/// Answer to SSLRequest and GSSENCRequest: go on in plain text.
pub const REFUSE_ENCRYPTION: u8 = b'N';
/// Answer to SSLRequest: start the TLS handshake now.
pub const ACCEPT_TLS: u8 = b'S';
/// First byte of a TLS handshake record: direct TLS.
pub const TLS_RECORD: u8 = 0x16;
/// Most bytes of a user or database name that PostgreSQL keeps.
pub const NAME_LENGTH: usize = 63;
/// Longest cancel key of protocol 3.2.
pub const CANCEL_KEY_LENGTH: usize = 256;

const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

/// What a client opened its connection with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FirstPacket {
    /// Asks for TLS; answered with one byte.
    SslRequest,
    /// Asks for GSSAPI encryption; answered with one byte.
    GssEncRequest,
    /// A TLS handshake without a request. No byte was consumed.
    DirectTls,
    /// Wants the statement of another connection stopped; never answered.
    Cancel {
        /// Process id given at login.
        pid: u32,
        /// Secret given at login: 4 bytes in 3.0, up to 256 in 3.2.
        key: Vec<u8>,
    },
    /// Wants to log in.
    Startup(StartupPacket),
}

/// Body of a StartupMessage, not yet judged: [`StartupPacket::parameters`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartupPacket {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
    body: Vec<u8>,
}

/// What a client asked for at start-up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StartupParameters {
    /// `user`, cut to 63 bytes.
    pub user: String,
    /// `database`, cut to 63 bytes; the user's name when missing.
    pub database: String,
    /// `replication` as sent, when present.
    pub replication: Option<String>,
    /// Settings for the session in the order sent: names in lower case, those of `options` first (so that a later one wins).
    pub settings: Vec<(String, String)>,
    /// Names of `_pq_.` protocol extensions, none of which is known.
    pub extensions: Vec<String>,
}

/// Why a start-up packet is refused; the connection is closed after it.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum StartupError {
    /// Another protocol version.
    #[error("unsupported frontend protocol {0}.{1}: server supports 3.0 to 3.2")]
    Version(u16, u16),
    /// Bytes after the terminator, or none.
    #[error("invalid startup packet layout: expected terminator as last byte")]
    Layout,
    /// No user.
    #[error("no PostgreSQL user name specified in startup packet")]
    NoUser,
    /// `options` with something other than settings.
    #[error("unsupported options startup parameter: only '-c config=val' and '--config=val' are allowed")]
    Options,
    /// A value of `replication` that is none.
    #[error("invalid value for parameter \"replication\": \"{0}\"")]
    Replication(String),
    /// A replication connection.
    #[error("replication connections are not supported by this proxy")]
    ReplicationUnsupported,
}

impl StartupError {
    /// The error that the client reads.
    #[must_use]
    pub fn error_fields(&self) -> ErrorFields {
        let code = match self {
            Self::Version(..) | Self::Options | Self::ReplicationUnsupported => sqlstate::FEATURE_NOT_SUPPORTED,
            Self::Layout => sqlstate::PROTOCOL_VIOLATION,
            Self::NoUser => sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
            Self::Replication(_) => sqlstate::INVALID_PARAMETER_VALUE,
        };
        let fields = ErrorFields::fatal(code, self.to_string());
        match self {
            Self::Replication(_) => fields.hint("Valid values are: \"false\", 0, \"true\", 1, \"database\"."),
            _ => fields,
        }
    }
}

/// The first packet in `buffer` and the bytes it takes; `None` = more are needed.
///
/// # Errors
/// Anything that is no first packet: close without an answer, as PostgreSQL does.
pub fn decode_first_packet(buffer: &[u8]) -> Result<Option<(FirstPacket, usize)>, WireError> {
    match buffer.first() {
        None => return Ok(None),
        Some(&TLS_RECORD) => return Ok(Some((FirstPacket::DirectTls, 0))),
        Some(_) => {}
    }
    let Some(head) = buffer.get(..4) else { return Ok(None) };
    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    let size = length as usize;
    if size < *PACKET_LENGTHS.start() {
        return Err(WireError::LengthTooSmall(length));
    }
    if size > *PACKET_LENGTHS.end() {
        return Err(WireError::TooLong { length: u64::from(length), limit: *PACKET_LENGTHS.end() as u64 });
    }
    let Some(packet) = buffer.get(4..size) else { return Ok(None) };
    let mut reader = Reader::new(packet);
    let code = reader.u32()?;
    let first = match code {
        SSL | GSS => {
            reader.end()?;
            if code == SSL { FirstPacket::SslRequest } else { FirstPacket::GssEncRequest }
        }
        CANCEL => {
            let pid = reader.u32()?;
            let key = reader.rest();
            if !(4..=CANCEL_KEY_LENGTH).contains(&key.len()) {
                return Err(WireError::Malformed);
            }
            FirstPacket::Cancel { pid, key: key.to_vec() }
        }
        _ if (code >> 16) == 1234 => return Err(WireError::Malformed),
        _ => FirstPacket::Startup(StartupPacket { major: (code >> 16) as u16, minor: code as u16, body: reader.rest().to_vec() }),
    };
    Ok(Some((first, size)))
}

impl StartupPacket {
    /// The parameters, checked in PostgreSQL's order.
    ///
    /// # Errors
    /// Each has its text for the client ([`StartupError::error_fields`]).
    pub fn parameters(&self) -> Result<StartupParameters, StartupError> {
        if self.major != 3 {
            return Err(StartupError::Version(self.major, self.minor));
        }
        let mut parameters = StartupParameters::default();
        let mut explicit = Vec::new();
        let mut reader = Reader::new(&self.body);
        let mut text = || reader.text().map(|text| String::from_utf8_lossy(text).into_owned());
        loop {
            let name = text().map_err(|_| StartupError::Layout)?;
            if name.is_empty() {
                break;
            }
            let value = text().map_err(|_| StartupError::Layout)?;
            match name.as_str() {
                "user" => parameters.user = cut_name(value),
                "database" => parameters.database = cut_name(value),
                "replication" => parameters.replication = Some(value),
                "options" => parameters.settings.extend(parse_options(&value)?),
                _ if name.starts_with("_pq_.") => parameters.extensions.push(name),
                _ => explicit.push((name.to_ascii_lowercase(), value)),
            }
        }
        if !reader.is_empty() {
            return Err(StartupError::Layout);
        }
        if parameters.user.is_empty() {
            return Err(StartupError::NoUser);
        }
        if parameters.database.is_empty() {
            parameters.database.clone_from(&parameters.user);
        }
        parameters.settings.extend(explicit);
        Ok(parameters)
    }

    /// The version spoken from here on, and whether the client must be told by NegotiateProtocolVersion.
    #[must_use]
    pub fn negotiate(&self, parameters: &StartupParameters) -> (u16, bool) {
        let minor = if self.minor >= 2 { 2 } else { 0 };
        (minor, !parameters.extensions.is_empty() || !matches!(self.minor, 0 | 2))
    }
}

impl StartupParameters {
    /// Whether a replication connection is wanted.
    ///
    /// # Errors
    /// Replication is refused, as is a value that is none.
    pub fn refuse_replication(&self) -> Result<(), StartupError> {
        let Some(value) = &self.replication else { return Ok(()) };
        match value.to_ascii_lowercase().as_str() {
            "false" | "off" | "no" | "0" => Ok(()),
            "true" | "on" | "yes" | "1" | "database" => Err(StartupError::ReplicationUnsupported),
            _ => Err(StartupError::Replication(value.clone())),
        }
    }
}

fn cut_name(mut name: String) -> String {
    if name.len() > NAME_LENGTH {
        let end = (0..=NAME_LENGTH).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
        name.truncate(end);
    }
    name
}

/// `options` by PostgreSQL's grammar: words split at white space, a backslash takes the next character as it is.
fn parse_options(options: &str) -> Result<Vec<(String, String)>, StartupError> {
    let mut words = split_words(options).into_iter();
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let (setting, long) = if let Some(rest) = word.strip_prefix("--") {
            (rest.to_owned(), true)
        } else if let Some(rest) = word.strip_prefix("-c") {
            (if rest.is_empty() { words.next().ok_or(StartupError::Options)? } else { rest.to_owned() }, false)
        } else {
            return Err(StartupError::Options);
        };
        let (name, value) = setting.split_once('=').ok_or(StartupError::Options)?;
        if name.is_empty() {
            return Err(StartupError::Options);
        }
        let name = name.to_ascii_lowercase();
        settings.push((if long { name.replace('-', "_") } else { name }, value.to_owned()));
    }
    Ok(settings)
}

fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = None::<String>;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            _ if character.is_ascii_whitespace() => words.extend(word.take()),
            '\\' => word.get_or_insert_default().extend(characters.next()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// A StartupMessage of protocol 3.0, as we send it to servers.
pub fn startup_message<'a>(out: &mut Vec<u8>, parameters: impl IntoIterator<Item = (&'a str, &'a str)>) {
    encode_untyped(out, |out| {
        out.extend_from_slice(&0x0003_0000_u32.to_be_bytes());
        for (name, value) in parameters {
            put_text(out, name.as_bytes());
            put_text(out, value.as_bytes());
        }
        out.push(0);
    });
}

/// An SSLRequest.
pub fn ssl_request(out: &mut Vec<u8>) {
    encode_untyped(out, |out| out.extend_from_slice(&SSL.to_be_bytes()));
}

/// A CancelRequest for a server's process id and key.
pub fn cancel_request(out: &mut Vec<u8>, pid: u32, key: &[u8]) {
    encode_untyped(out, |out| {
        out.extend_from_slice(&CANCEL.to_be_bytes());
        out.extend_from_slice(&pid.to_be_bytes());
        out.extend_from_slice(key);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn startup(major: u16, minor: u16, body: &[u8]) -> StartupPacket {
        StartupPacket { major, minor, body: body.to_vec() }
    }

    #[test]
    fn first_packets() {
        let key = FirstPacket::Cancel { pid: 7, key: vec![1, 2, 3, 4] };
        let cases: [(&[u8], FirstPacket, usize); 5] = [
            (b"\0\0\0\x08\x04\xd2\x16\x2f", FirstPacket::SslRequest, 8),
            (b"\0\0\0\x08\x04\xd2\x16\x30", FirstPacket::GssEncRequest, 8),
            (b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07\x01\x02\x03\x04", key, 16),
            (b"\x16\x03\x01", FirstPacket::DirectTls, 0),
            (b"\0\0\0\x11\0\x03\0\0user\0me\0\0extra", FirstPacket::Startup(startup(3, 0, b"user\0me\0\0")), 17),
        ];
        for (bytes, expected, size) in cases {
            assert_eq!(decode_first_packet(bytes), Ok(Some((expected, size))), "{bytes:?}");
            for cut in 1..size {
                assert_eq!(decode_first_packet(&bytes[..cut]), Ok(None), "{bytes:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn what_is_no_first_packet() {
        let cases: [&[u8]; 6] = [
            b"\0\0\0\x07\0\x03\0",
            b"GET / HTTP/1.1\r\n",
            b"\0\0\x27\x11\0\x03\0\0",
            b"\0\0\0\x09\x04\xd2\x16\x2f\0",
            b"\0\0\0\x0e\x04\xd2\x16\x2e\0\0\0\x07\x01\x02",
            b"\0\0\0\x08\x04\xd2\x16\x31",
        ];
        for bytes in cases {
            assert!(decode_first_packet(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn parameters_are_sorted_out() {
        let packet = startup(3, 0, b"user\0me\0options\0-c a.b=1\\ 2 --work-mem=3 -cx==\0DateStyle\0ISO\0_pq_.foo\0\0\0");
        let parameters = packet.parameters().unwrap();
        assert_eq!((parameters.user.as_str(), parameters.database.as_str()), ("me", "me"));
        let settings: Vec<(&str, &str)> = parameters.settings.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(settings, [("a.b", "1 2"), ("work_mem", "3"), ("x", "="), ("datestyle", "ISO")]);
        assert_eq!(packet.negotiate(&parameters), (0, true));
    }

    #[test]
    fn refused_parameters() {
        let cases: [(StartupPacket, StartupError); 7] = [
            (startup(2, 0, b""), StartupError::Version(2, 0)),
            (startup(4, 1, b""), StartupError::Version(4, 1)),
            (startup(3, 0, b"user\0me\0"), StartupError::Layout),
            (startup(3, 0, b"user\0me\0\0x"), StartupError::Layout),
            (startup(3, 0, b"database\0d\0\0"), StartupError::NoUser),
            (startup(3, 0, b"user\0me\0options\0-d 5\0\0"), StartupError::Options),
            (startup(3, 0, b"user\0me\0options\0-c\0\0"), StartupError::Options),
        ];
        for (packet, expected) in cases {
            assert_eq!(packet.parameters(), Err(expected), "{packet:?}");
        }
    }

    #[test]
    fn replication_is_refused() {
        for (value, expected) in [
            ("on", Err(StartupError::ReplicationUnsupported)),
            ("DATABASE", Err(StartupError::ReplicationUnsupported)),
            ("0", Ok(())),
            ("x", Err(StartupError::Replication("x".into()))),
        ] {
            let parameters = StartupParameters { replication: Some(value.into()), ..StartupParameters::default() };
            assert_eq!(parameters.refuse_replication(), expected, "{value}");
        }
    }

    #[test]
    fn versions_are_negotiated() {
        for (minor, extensions, expected) in
            [(0, 0, (0, false)), (2, 0, (2, false)), (1, 0, (0, true)), (9999, 0, (2, true)), (0, 1, (0, true))]
        {
            let parameters = StartupParameters { extensions: vec!["_pq_.x".into(); extensions], ..StartupParameters::default() };
            assert_eq!(startup(3, minor, b"").negotiate(&parameters), expected, "{minor}");
        }
    }

    #[test]
    fn long_names_are_cut_at_a_character() {
        assert_eq!(cut_name("ä".repeat(40)).len(), 62);
    }

    #[test]
    fn what_we_send_first() {
        let mut out = Vec::new();
        startup_message(&mut out, [("user", "u"), ("database", "d")]);
        assert_eq!(out, b"\0\0\0\x1b\0\x03\0\0user\0u\0database\0d\0\0");
        out.clear();
        cancel_request(&mut out, 7, &[1, 2, 3, 4]);
        assert_eq!(out, b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07\x01\x02\x03\x04");
        out.clear();
        ssl_request(&mut out);
        assert_eq!(out, b"\0\0\0\x08\x04\xd2\x16\x2f");
    }
}
