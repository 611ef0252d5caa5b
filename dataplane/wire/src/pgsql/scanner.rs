//! Walks a stream of server messages in place, so that a relay forwards whole reads without copying or decoding rows.

use super::backend::tag;
use super::frame::{HEADER_LENGTH, Header};
use super::reader::WireError;

/// Longest body of a message that is collected before it is looked at; of a longer one only this much is shown.
pub const LOOK_CAP: usize = 65_536;
/// Longest message that is passed on whole or not at all: so a server that dies between two reads leaves a stream that an error can follow.
pub const HOLD: usize = 8 * 1024;
/// Longest message that a server can send.
const SERVER_CAP: usize = i32::MAX as usize;

/// What comes next in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// A whole message that a relay looks at.
    Whole {
        /// Type byte.
        tag: u8,
        /// Body.
        body: &'a [u8],
        /// Bytes of the input that it takes.
        size: usize,
    },
    /// A message whose body nobody looks at (a row, COPY data, a description), or the start of such a one that is longer than [`HOLD`], or of
    /// any that is longer than [`LOOK_CAP`]. What is not there comes as [`Step::Rest`].
    Start {
        /// Type byte.
        tag: u8,
        /// The part of its body that is there.
        body: &'a [u8],
        /// Bytes of the input that this part takes.
        size: usize,
    },
    /// More of the message that a `Start` began.
    Rest {
        /// Bytes of the input that this part takes.
        size: usize,
    },
    /// The input ends inside something that must be seen whole: keep what is left and call again with more behind it.
    Need,
}

/// Position in the stream: at a message's start, or inside a body that is passed through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scanner {
    pending: usize,
}

impl Scanner {
    /// Bytes of a started message that have not come yet; above 0 the stream cannot be cut here.
    #[must_use]
    pub const fn pending(self) -> usize {
        self.pending
    }

    /// The next part of the stream at the start of `input`.
    ///
    /// # Errors
    /// A length below its minimum or above 2³¹−1: the stream is lost.
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Result<Step<'a>, WireError> {
        if self.pending > 0 && !input.is_empty() {
            let size = self.pending.min(input.len());
            self.pending -= size;
            return Ok(Step::Rest { size });
        }
        let Some(header) = Header::decode(input, SERVER_CAP)? else { return Ok(Step::Need) };
        let here = input.len().min(header.size());
        if here < header.size() && header.size() <= HOLD {
            return Ok(Step::Need);
        }
        if is_bulk(header.tag) || (header.body > LOOK_CAP && here >= HEADER_LENGTH + LOOK_CAP) {
            self.pending = header.size() - here;
            return Ok(Step::Start { tag: header.tag, body: &input[HEADER_LENGTH..here], size: here });
        }
        if here < header.size() {
            return Ok(Step::Need);
        }
        Ok(Step::Whole { tag: header.tag, body: &input[HEADER_LENGTH..here], size: here })
    }
}

const fn is_bulk(tag: u8) -> bool {
    matches!(
        tag,
        tag::DATA_ROW
            | tag::COPY_DATA
            | tag::ROW_DESCRIPTION
            | tag::PARAMETER_DESCRIPTION
            | tag::FUNCTION_CALL
            | tag::COPY_IN
            | tag::COPY_OUT
            | tag::COPY_BOTH
    )
}

#[cfg(test)]
mod tests {
    use super::super::backend;
    use super::*;

    /// Tags of messages in order, however the stream is cut.
    pub(crate) fn tags(stream: &[u8], cut: usize) -> Result<Vec<u8>, WireError> {
        let mut scanner = Scanner::default();
        let (mut held, mut tags) = (Vec::new(), Vec::new());
        for part in stream.chunks(cut.max(1)) {
            held.extend_from_slice(part);
            let mut at = 0;
            loop {
                match scanner.next(&held[at..])? {
                    Step::Whole { tag, size, .. } | Step::Start { tag, size, .. } => {
                        tags.push(tag);
                        at += size;
                    }
                    Step::Rest { size } => at += size,
                    Step::Need => break,
                }
            }
            held.drain(..at);
        }
        Ok(tags)
    }

    #[test]
    fn the_same_messages_however_the_stream_is_cut() {
        let mut stream = Vec::new();
        backend::row_description(&mut stream, &[backend::Column::new("a", backend::oid::TEXT)]);
        backend::data_row(&mut stream, [Some(&[b'x'; 300][..])].into_iter());
        backend::data_row(&mut stream, [Some(&[b'x'; HOLD][..])].into_iter());
        backend::command_complete(&mut stream, "SELECT 2");
        backend::ready_for_query(&mut stream, backend::TransactionStatus::Idle);
        for cut in 1..=stream.len() {
            assert_eq!(tags(&stream, cut).unwrap(), b"TDDCZ", "{cut}");
        }
    }

    #[test]
    fn a_short_row_comes_whole_and_a_long_one_as_it_comes() {
        let mut scanner = Scanner::default();
        assert_eq!(scanner.next(b"D\0\0\x1f\xffab").unwrap(), Step::Need);
        assert_eq!(scanner.next(b"D\0\0\x20\0ab").unwrap(), Step::Start { tag: b'D', body: b"ab", size: 7 });
        assert_eq!(scanner.pending(), HOLD - 6);
        assert_eq!(scanner.next(b"").unwrap(), Step::Need);
        let rest = [&vec![b'x'; HOLD - 6][..], b"Z"].concat();
        assert_eq!(scanner.next(&rest).unwrap(), Step::Rest { size: HOLD - 6 });
        assert_eq!(scanner.next(b"Z\0\0\0\x05").unwrap(), Step::Need);
        assert_eq!(scanner.next(b"Z\0\0\0\x05I").unwrap(), Step::Whole { tag: b'Z', body: b"I", size: 6 });
    }

    #[test]
    fn a_very_long_error_is_looked_at_in_part() {
        let mut stream = Vec::new();
        super::super::error_fields::ErrorFields::error("P0001", "x".repeat(100_000)).encode(&mut stream);
        let mut scanner = Scanner::default();
        assert_eq!(scanner.next(&stream[..1000]).unwrap(), Step::Need);
        let Step::Start { tag: b'E', body, size } = scanner.next(&stream[..70_000]).unwrap() else { panic!("not started") };
        assert_eq!((size, body.len()), (70_000, 69_995));
        assert_eq!(super::super::error_fields::ErrorFields::decode(body).unwrap().code, "P0001");
        assert_eq!(scanner.next(&stream[70_000..]).unwrap(), Step::Rest { size: stream.len() - 70_000 });
    }

    #[test]
    fn lengths_that_lie() {
        assert!(Scanner::default().next(b"Z\0\0\0\x03I").is_err());
        assert!(Scanner::default().next(b"D\x80\0\0\x10").is_err());
    }
}
