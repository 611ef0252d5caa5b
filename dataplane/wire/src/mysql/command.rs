//! What a client asks: the first byte of a command packet and what follows it.

use super::reader::{Reader, WireError};

/// Command bytes.
pub mod byte {
    /// COM_QUIT.
    pub const QUIT: u8 = 0x01;
    /// COM_INIT_DB.
    pub const INIT_DB: u8 = 0x02;
    /// COM_QUERY.
    pub const QUERY: u8 = 0x03;
    /// COM_FIELD_LIST.
    pub const FIELD_LIST: u8 = 0x04;
    /// COM_STATISTICS.
    pub const STATISTICS: u8 = 0x09;
    /// COM_PROCESS_KILL.
    pub const PROCESS_KILL: u8 = 0x0c;
    /// COM_PING.
    pub const PING: u8 = 0x0e;
    /// COM_CHANGE_USER.
    pub const CHANGE_USER: u8 = 0x11;
    /// COM_STMT_PREPARE.
    pub const STMT_PREPARE: u8 = 0x16;
    /// COM_STMT_EXECUTE.
    pub const STMT_EXECUTE: u8 = 0x17;
    /// COM_STMT_SEND_LONG_DATA.
    pub const STMT_SEND_LONG_DATA: u8 = 0x18;
    /// COM_STMT_CLOSE.
    pub const STMT_CLOSE: u8 = 0x19;
    /// COM_STMT_RESET.
    pub const STMT_RESET: u8 = 0x1a;
    /// COM_SET_OPTION.
    pub const SET_OPTION: u8 = 0x1b;
    /// COM_STMT_FETCH.
    pub const STMT_FETCH: u8 = 0x1c;
    /// COM_RESET_CONNECTION.
    pub const RESET_CONNECTION: u8 = 0x1f;
}

/// A command, borrowed from its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// Close; no answer.
    Quit,
    /// Change the schema.
    InitDb(&'a [u8]),
    /// A statement in text (without QUERY_ATTRIBUTES, which is not offered).
    Query(&'a [u8]),
    /// Columns of a table.
    FieldList {
        /// Table name.
        table: &'a [u8],
        /// Pattern of column names; empty = all.
        wildcard: &'a [u8],
    },
    /// One line about the server.
    Statistics,
    /// KILL CONNECTION.
    ProcessKill(u32),
    /// Alive?
    Ping,
    /// Log in anew; the body is for [`super::handshake::ChangeUser::decode`].
    ChangeUser(&'a [u8]),
    /// Prepare a statement.
    Prepare(&'a [u8]),
    /// Execute a prepared statement.
    Execute {
        /// Statement id.
        statement: u32,
        /// Cursor flags: 0 = none, 1 = read-only.
        flags: u8,
        /// NULL bitmap, types, values: for [`super::params::ExecuteBody`].
        body: &'a [u8],
    },
    /// A piece of a long parameter; no answer.
    SendLongData {
        /// Statement id.
        statement: u32,
        /// Parameter number from 0.
        parameter: u16,
        /// The bytes.
        data: &'a [u8],
    },
    /// Forget a statement; no answer.
    CloseStatement(u32),
    /// Clear long data and cursor.
    ResetStatement(u32),
    /// Multi-statements on (0) or off (1).
    SetOption(u16),
    /// Rows of an open cursor.
    Fetch {
        /// Statement id.
        statement: u32,
        /// How many.
        rows: u32,
    },
    /// Back to the state after login.
    ResetConnection,
    /// Anything else, by its byte.
    Other(u8),
}

impl<'a> Command<'a> {
    /// Reads a command packet's payload.
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(payload);
        let command = match reader.u8("command")? {
            byte::QUIT => Self::Quit,
            byte::INIT_DB => Self::InitDb(reader.take_rest()),
            byte::QUERY => Self::Query(reader.take_rest()),
            byte::FIELD_LIST => Self::FieldList { table: reader.nul_bytes("table")?, wildcard: reader.take_rest() },
            byte::STATISTICS => Self::Statistics,
            byte::PROCESS_KILL => Self::ProcessKill(reader.u32("connection id")?),
            byte::PING => Self::Ping,
            byte::CHANGE_USER => Self::ChangeUser(reader.take_rest()),
            byte::STMT_PREPARE => Self::Prepare(reader.take_rest()),
            byte::STMT_EXECUTE => {
                let statement = reader.u32("statement id")?;
                let flags = reader.u8("cursor flags")?;
                reader.u32("iteration count")?;
                Self::Execute { statement, flags, body: reader.take_rest() }
            }
            byte::STMT_SEND_LONG_DATA => Self::SendLongData {
                statement: reader.u32("statement id")?,
                parameter: reader.u16("parameter number")?,
                data: reader.take_rest(),
            },
            byte::STMT_CLOSE => Self::CloseStatement(reader.u32("statement id")?),
            byte::STMT_RESET => Self::ResetStatement(reader.u32("statement id")?),
            byte::SET_OPTION => Self::SetOption(reader.u16("option")?),
            byte::STMT_FETCH => Self::Fetch { statement: reader.u32("statement id")?, rows: reader.u32("row count")? },
            byte::RESET_CONNECTION => Self::ResetConnection,
            other => Self::Other(other),
        };
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_byte_by_byte() {
        let cases: [(&[u8], Command<'_>); 12] = [
            (&[1], Command::Quit),
            (b"\x02shop", Command::InitDb(b"shop")),
            (b"\x03SELECT 1", Command::Query(b"SELECT 1")),
            (b"\x04t\0a%", Command::FieldList { table: b"t", wildcard: b"a%" }),
            (&[0x0e], Command::Ping),
            (b"\x16SELECT ?", Command::Prepare(b"SELECT ?")),
            (&[0x17, 1, 0, 0, 0, 1, 1, 0, 0, 0, 9], Command::Execute { statement: 1, flags: 1, body: &[9] }),
            (&[0x18, 2, 0, 0, 0, 3, 0, 7, 8], Command::SendLongData { statement: 2, parameter: 3, data: &[7, 8] }),
            (&[0x19, 4, 0, 0, 0], Command::CloseStatement(4)),
            (&[0x1b, 1, 0], Command::SetOption(1)),
            (&[0x1c, 1, 0, 0, 0, 10, 0, 0, 0], Command::Fetch { statement: 1, rows: 10 }),
            (&[0x12, 0, 0], Command::Other(0x12)),
        ];
        for (payload, expected) in cases {
            assert_eq!(Command::decode(payload), Ok(expected));
        }
    }

    #[test]
    fn truncated_commands_are_errors() {
        for payload in [&[][..], &[0x17, 1, 0, 0, 0, 1, 1, 0, 0], &[0x18, 1, 0, 0, 0, 1], &[0x19, 1], &[0x1c, 1, 0, 0, 0], b"\x04t"] {
            assert!(Command::decode(payload).is_err(), "{payload:?}");
        }
    }

    #[test]
    fn commands_never_panic() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let _ = Command::decode(bytes);
        });
    }
}
