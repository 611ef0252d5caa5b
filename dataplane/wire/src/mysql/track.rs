//! Session state changes in OK packets (`SESSION_TRACK`).

use super::reader::{Reader, WireError};

/// One change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// Type 0: a system variable has a new value.
    Variable {
        /// Name.
        name: &'a [u8],
        /// Value.
        value: &'a [u8],
    },
    /// Type 1: the schema.
    Schema(&'a [u8]),
    /// Type 2: some session state changed (`session_track_state_change`).
    State(bool),
    /// Any other type: 3 GTIDs, 4 and 5 transaction.
    Other(u8),
}

/// The changes in [`super::OkPacket::state`].
#[derive(Clone, Debug)]
pub struct Changes<'a> {
    reader: Reader<'a>,
    /// Type 0 may hold several name/value pairs (MariaDB sends one; the format allows more).
    variables: Reader<'a>,
}

/// Iterates over session state data. After an error it ends.
#[must_use]
pub const fn changes(state: &[u8]) -> Changes<'_> {
    Changes { reader: Reader::new(state), variables: Reader::new(&[]) }
}

impl<'a> Changes<'a> {
    fn read(&mut self) -> Result<Option<Change<'a>>, WireError> {
        loop {
            if !self.variables.is_empty() {
                let name = self.variables.lenenc_bytes("variable name")?;
                let value = self.variables.lenenc_bytes("variable value")?;
                return Ok(Some(Change::Variable { name, value }));
            }
            if self.reader.is_empty() {
                return Ok(None);
            }
            let kind = self.reader.u8("session state type")?;
            let data = self.reader.lenenc_bytes("session state")?;
            match kind {
                0 => self.variables = Reader::new(data),
                1 => return Ok(Some(Change::Schema(Reader::new(data).lenenc_bytes("schema")?))),
                // MySQL's manual shows a string<lenenc> inside; MySQL 9.7 and MariaDB 10.11 send the lone digit.
                2 => return Ok(Some(Change::State(data.last() == Some(&b'1')))),
                other => return Ok(Some(Change::Other(other))),
            }
        }
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Result<Change<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let result = self.read().transpose();
        if matches!(result, Some(Err(_))) {
            *self = changes(&[]);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type() {
        let state = b"\x00\x0f\x0aautocommit\x03OFF\x01\x05\x04shop\x02\x011\x05\x01\x00";
        let all: Result<Vec<_>, _> = changes(state).collect();
        let expected =
            [Change::Variable { name: b"autocommit", value: b"OFF" }, Change::Schema(b"shop"), Change::State(true), Change::Other(5)];
        assert_eq!(all.unwrap(), expected);
    }

    #[test]
    fn lies_end_the_list() {
        for state in [&b"\x00\xff"[..], b"\x01\x09\x04sh", b"\x00\x02\x09a"] {
            let all: Vec<_> = changes(state).collect();
            assert!(all.len() == 1 && all[0].is_err(), "{state:?}");
        }
    }

    #[test]
    fn session_state_never_panics() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| assert!(changes(bytes).count() <= bytes.len() + 1));
    }
}
