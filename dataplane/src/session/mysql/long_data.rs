//! Parameters that come in pieces (COM_STMT_SEND_LONG_DATA): kept until the execution, which is when a server hears of them.

use quorumsql_wire::mysql::error_code::{self, ErrorCode};

/// The long parameters of one statement.
#[derive(Debug, Default)]
pub(crate) struct LongData {
    /// By parameter.
    all: Vec<(u16, Vec<u8>)>,
    /// What was wrong with a piece. As on servers, executions fail from then on, until COM_STMT_RESET.
    wrong: Option<Wrong>,
}

/// What a piece can have wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wrong {
    /// More came than fits.
    TooLong,
    /// The statement has no such parameter.
    NoParameter,
}

impl Wrong {
    /// What an execution is answered.
    pub(crate) fn error(self) -> (ErrorCode, String) {
        let (code, text) = match self {
            Self::TooLong => (
                error_code::UNKNOWN,
                "Parameter of prepared statement which is set through mysql_send_long_data() is longer than 'max_allowed_packet' bytes",
            ),
            Self::NoParameter => (error_code::WRONG_ARGUMENTS, "Incorrect arguments to mysqld_stmt_send_long_data"),
        };
        (code, text.to_owned())
    }
}

impl LongData {
    /// Appends a piece to parameter `parameter` of `parameters`. `limit` bounds all pieces together, in bytes.
    pub(crate) fn add(&mut self, parameter: u16, parameters: u16, data: &[u8], limit: usize) {
        let total: usize = self.all.iter().map(|(_, bytes)| bytes.len()).sum();
        if parameter >= parameters {
            self.fail(Wrong::NoParameter);
        } else if total.saturating_add(data.len()) > limit {
            self.fail(Wrong::TooLong);
        } else if self.wrong.is_none() {
            match self.all.iter_mut().find(|(known, _)| *known == parameter) {
                Some((_, bytes)) => bytes.extend_from_slice(data),
                None => self.all.push((parameter, data.to_vec())),
            }
        }
    }

    /// A piece was wrong, as this side or the server found.
    pub(crate) fn fail(&mut self, wrong: Wrong) {
        self.wrong = self.wrong.or(Some(wrong));
        self.sent();
    }

    /// What is wrong with it.
    pub(crate) fn wrong(&self) -> Option<Wrong> {
        self.wrong
    }

    /// Nothing has come.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What has come, by parameter.
    pub(crate) fn all(&self) -> &[(u16, Vec<u8>)] {
        &self.all
    }

    /// What has come for a parameter.
    pub(crate) fn of(&self, index: usize) -> Option<&[u8]> {
        self.all.iter().find(|(parameter, _)| usize::from(*parameter) == index).map(|(_, data)| data.as_slice())
    }

    /// The statement has been executed with it.
    pub(crate) fn sent(&mut self) {
        self.all = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_put_together_and_bounded_together() {
        let mut long = LongData::default();
        long.add(0, 2, b"abc", 5);
        long.add(0, 2, b"d", 5);
        assert_eq!((long.of(0), long.of(1)), (Some(&b"abcd"[..]), None));
        long.add(1, 2, b"xy", 5);
        assert_eq!(long.wrong(), Some(Wrong::TooLong));
        long.add(1, 2, b"", 5);
        long.add(2, 2, b"x", 5);
        assert!(long.is_empty(), "nothing is kept for an execution that must fail");
        long.sent();
        assert_eq!(long.wrong(), Some(Wrong::TooLong), "the first that was wrong, until a reset");
        long = LongData::default();
        long.add(2, 2, b"x", 5);
        assert_eq!(long.wrong(), Some(Wrong::NoParameter));
    }
}
