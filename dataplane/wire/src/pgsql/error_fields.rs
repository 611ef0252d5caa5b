//! ErrorResponse and NoticeResponse (PostgreSQL manual, "Error and Notice Message Fields").

use super::frame::{encode, put_text};
use super::reader::{Reader, WireError};

/// How bad it is; spelled in fields `S` and `V`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// The statement failed.
    Error,
    /// The connection ends.
    Fatal,
    /// The server is going down.
    Panic,
    /// A warning (NoticeResponse).
    Warning,
    /// A notice (NoticeResponse), or one of the lower levels.
    Notice,
}

impl Severity {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
            Self::Panic => "PANIC",
            Self::Warning => "WARNING",
            Self::Notice => "NOTICE",
        }
    }

    fn parse(word: &[u8]) -> Self {
        match word {
            b"ERROR" => Self::Error,
            b"FATAL" => Self::Fatal,
            b"PANIC" => Self::Panic,
            b"WARNING" => Self::Warning,
            _ => Self::Notice,
        }
    }
}

/// An error or notice of our own, or what we need of a server's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorFields {
    /// `S` and `V`.
    pub severity: Severity,
    /// `C`: SQLSTATE.
    pub code: String,
    /// `M`.
    pub message: String,
    /// `D`.
    pub detail: Option<String>,
    /// `H`.
    pub hint: Option<String>,
    /// `P`: position in the statement, 1 = its first character.
    pub position: Option<u32>,
}

impl ErrorFields {
    fn new(severity: Severity, code: &str, message: impl Into<String>) -> Self {
        Self { severity, code: code.into(), message: message.into(), detail: None, hint: None, position: None }
    }

    /// An error after which the connection goes on.
    #[must_use]
    pub fn error(code: &str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, message)
    }

    /// An error after which the connection is closed.
    #[must_use]
    pub fn fatal(code: &str, message: impl Into<String>) -> Self {
        Self::new(Severity::Fatal, code, message)
    }

    /// A warning.
    #[must_use]
    pub fn warning(code: &str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, message)
    }

    /// A notice.
    #[must_use]
    pub fn notice(code: &str, message: impl Into<String>) -> Self {
        Self::new(Severity::Notice, code, message)
    }

    /// With field `D`.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// With field `H`.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With field `P`.
    #[must_use]
    pub const fn position(mut self, position: u32) -> Self {
        self.position = Some(position);
        self
    }

    /// Reads the body of a server's `E` or `N`. Fields missing from it are empty (a server error without a SQLSTATE is legal), unknown ones are
    /// skipped, and a body cut off in the middle yields what came before the cut.
    ///
    /// # Errors
    /// Only an empty body.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let mut fields = Self::error("", "");
        let mut localized = None;
        let mut severity = None;
        loop {
            let kind = match reader.byte() {
                Ok(0) => break,
                Ok(kind) => kind,
                Err(_) if severity.or(localized).is_some() => break,
                Err(error) => return Err(error),
            };
            let Ok(value) = reader.text() else { break };
            let text = || String::from_utf8_lossy(value).into_owned();
            match kind {
                b'S' => localized = Some(value),
                b'V' => severity = Some(value),
                b'C' => fields.code = text(),
                b'M' => fields.message = text(),
                b'D' => fields.detail = Some(text()),
                b'H' => fields.hint = Some(text()),
                b'P' => fields.position = text().parse().ok(),
                _ => {}
            }
        }
        fields.severity = severity.or(localized).map_or(Severity::Error, Severity::parse);
        Ok(fields)
    }

    /// Appends the message: ErrorResponse, or NoticeResponse for a warning or notice.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let tag = if matches!(self.severity, Severity::Warning | Severity::Notice) { b'N' } else { b'E' };
        encode(out, tag, |out| {
            let mut field = |kind: u8, value: &str| {
                out.push(kind);
                put_text(out, value.as_bytes());
            };
            field(b'S', self.severity.as_str());
            field(b'V', self.severity.as_str());
            field(b'C', &self.code);
            field(b'M', &self.message);
            if let Some(detail) = &self.detail {
                field(b'D', detail);
            }
            if let Some(hint) = &self.hint {
                field(b'H', hint);
            }
            if let Some(position) = self.position {
                field(b'P', &position.to_string());
            }
            field(b'R', "quorumsql");
            out.push(0);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame;
    use super::*;

    #[test]
    fn bytes_of_an_error() {
        let mut out = Vec::new();
        ErrorFields::fatal("28P01", "no").hint("try").encode(&mut out);
        assert_eq!(out, b"E\0\0\0\x2eSFATAL\0VFATAL\0C28P01\0Mno\0Htry\0Rquorumsql\0\0");
    }

    #[test]
    fn errors_come_back_as_they_went() {
        for fields in [
            ErrorFields::error("42P01", "relation \"x\" does not exist").position(15),
            ErrorFields::fatal("57P01", "bye").detail("d").hint("h"),
            ErrorFields::warning("25P01", "there is no transaction in progress"),
            ErrorFields::notice("00000", ""),
        ] {
            let mut out = Vec::new();
            fields.encode(&mut out);
            let frame = frame::decode(&out, 1000).unwrap().unwrap();
            assert_eq!(ErrorFields::decode(frame.body), Ok(fields));
        }
    }

    #[test]
    fn odd_server_errors() {
        type Seen = Option<(Severity, &'static str, &'static str)>;
        let cases: [(&[u8], Seen); 5] = [
            (b"", None),
            (b"\0", Some((Severity::Error, "", ""))),
            (b"SERREUR\0VERROR\0C42601\0Merreur\0\0", Some((Severity::Error, "42601", "erreur"))),
            (b"SFATAL\0Mno code\0\0", Some((Severity::Fatal, "", "no code"))),
            (b"SERROR\0C22012\0Mcut of", Some((Severity::Error, "22012", ""))),
        ];
        for (body, expected) in cases {
            let fields = ErrorFields::decode(body).ok();
            assert_eq!(fields.as_ref().map(|f| (f.severity, f.code.as_str(), f.message.as_str())), expected, "{body:?}");
        }
    }
}
