//! The second to fourth pass of digest normalisation (mysql-dataplane.md 7.1), in place on the text that a dialect's
//! lexical pass has made. All four are linear in the text.

use super::ScanOptions;
use super::bytes::{self, BLANK_OR_SIGN, DIGIT, HIGH, WORD};

/// What the passes must know beyond the options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collapse<'a> {
    /// Options of the digest.
    pub(crate) options: &'a ScanOptions,
    /// Double quotes enclose identifiers, which are copied byte for byte (PostgreSQL).
    pub(crate) quoted_identifiers: bool,
    /// The text has been through the passes before and was continued: its ends are lists that were cut already.
    pub(crate) continued: bool,
}

impl Collapse<'_> {
    /// All passes.
    pub(crate) fn run(&self, text: &mut Vec<u8>) {
        self.blanks_and_signs(text);
        if text.contains(&b'(') {
            self.value_lists(text);
            if self.options.groups_grouping_limit > 0 {
                self.tuple_lists(text);
            }
        }
    }

    /// Pass 2. The neighbours of a byte are read from the buffer that is being overwritten, as in the reference: once the
    /// text has shrunk, the ones before it may be output already, and digests depend on that.
    fn blanks_and_signs(&self, text: &mut Vec<u8>) {
        let special = BLANK_OR_SIGN | if self.options.no_digits { DIGIT } else { 0 };
        let mut write = 0;
        let mut read = 0;
        let mut parameter = false;
        while read < text.len() {
            let plain = text[read..].iter().position(|byte| bytes::is(*byte, special)).unwrap_or(text.len() - read);
            if plain > 0 {
                if write < read {
                    text.copy_within(read..read + plain, write);
                }
                write += plain;
                read += plain;
                parameter = false;
                continue;
            }
            let byte = text[read];
            match byte {
                b'"' if self.quoted_identifiers => {
                    let end = bytes::quoted_end(text, read, false).map_or(text.len(), |(_, end)| end);
                    text.copy_within(read..end, write);
                    write += end - read;
                    read = end;
                    continue;
                }
                b' ' if self.drops_blank(text, read) => {}
                b'+' | b'-' if drops_sign(text, read) => {}
                b'0'..=b'9' if self.options.no_digits => {
                    parameter = self.quoted_identifiers && (parameter || (read > 0 && text[read - 1] == b'$'));
                    if parameter || write == 0 || text[write - 1] != b'?' {
                        text[write] = if parameter { byte } else { b'?' };
                        write += 1;
                    }
                    read += 1;
                    continue;
                }
                _ => {
                    text[write] = byte;
                    write += 1;
                }
            }
            parameter = false;
            read += 1;
        }
        text.truncate(write);
    }

    fn drops_blank(&self, text: &[u8], at: usize) -> bool {
        let (before, after) = (left(text, at, 1), right(text, at));
        if before == b'(' || after == b')' {
            return true;
        }
        if self.options.keep_comment && before == b'/' && left(text, at, 2) == b'*' {
            return false;
        }
        before == b',' || after == b',' || (is_operator(before) && after == b'?') || (before == b'?' && is_operator(after))
    }

    /// Pass 3: in a region from `(` to the next `)`, a run of values that is longer than the limit by two.
    fn value_lists(&self, text: &mut Vec<u8>) {
        let limit = self.options.grouping_limit;
        let (mut read, mut write) = (0, 0);
        let mut inside = false;
        while read < text.len() {
            let byte = text[read];
            if !inside || byte != b'?' || !text[read..].starts_with(b"?,?,") || is_operator(left(text, read, 1)) {
                inside = if inside { byte != b')' } else { byte == b'(' };
                text[write] = byte;
                write += 1;
                read += 1;
                if self.continued && inside && ends_with_cut_list(&text[..write], limit) {
                    read = skip_values(text, read);
                }
                continue;
            }
            let pairs = text[read..].chunks_exact(2).take_while(|pair| *pair == b"?,").count();
            let end = read + 2 * pairs;
            let closed = text.get(end + 1) == Some(&b')');
            let elements = pairs + usize::from(closed);
            if elements < limit.saturating_add(2) {
                text.copy_within(read..end, write);
                write += end - read;
                read = end;
                continue;
            }
            text.copy_within(read..read + 2 * limit, write);
            write += 2 * limit;
            text[write..write + 3].copy_from_slice(b"...");
            write += 3;
            read = if closed { end + 1 } else { end - 1 };
            if self.continued && !closed {
                read = skip_values(text, read);
            }
        }
        text.truncate(write);
    }

    /// Pass 4: lists of tuples that pass 3 has cut.
    fn tuple_lists(&self, text: &mut Vec<u8>) {
        let (limit, groups) = (self.options.grouping_limit, self.options.groups_grouping_limit);
        let tuple = 2 * limit + 5;
        let (mut read, mut write) = (0, 0);
        while read < text.len() {
            if !is_cut_tuple(&text[read..], limit) {
                text[write] = text[read];
                write += 1;
                read += 1;
                continue;
            }
            let start = read;
            read += tuple;
            let mut count = 1;
            while text.get(read) == Some(&b',') && is_cut_tuple(&text[read + 1..], limit) {
                count += 1;
                read += tuple + 1;
            }
            let kept = count.min(groups);
            let length = kept * (tuple + 1) - 1;
            text.copy_within(start..start + length, write);
            write += length;
            let was_cut = self.continued && count >= groups && text[read..].starts_with(b",...");
            if was_cut {
                read += 4;
                while text.get(read) == Some(&b',') && is_cut_tuple(&text[read + 1..], limit) {
                    read += tuple + 1;
                }
            }
            if was_cut || count > groups {
                text[write..write + 4].copy_from_slice(b",...");
                write += 4;
            }
        }
        text.truncate(write);
    }
}

/// Removes trailing blanks and semicolons, but for the first byte.
pub(crate) fn trim_end(text: &mut Vec<u8>) {
    while text.len() > 1 && matches!(text.last(), Some(b' ' | b';')) {
        text.pop();
    }
}

fn left(text: &[u8], at: usize, distance: usize) -> u8 {
    if at >= distance { text[at - distance] } else { b'0' }
}

fn right(text: &[u8], at: usize) -> u8 {
    text.get(at + 1).copied().unwrap_or(0)
}

fn is_operator(byte: u8) -> bool {
    matches!(byte, b'+' | b'-' | b'*' | b'/' | b'%')
}

/// A sign that belongs to the number behind it.
fn drops_sign(text: &[u8], at: usize) -> bool {
    let (before, after) = (left(text, at, 1), right(text, at));
    let starts_number = after == b'?' || after == b' ';
    if before == b' ' {
        let further = left(text, at, 2);
        return bytes::is(further, WORD) || (further != b'?' && further != b')' && starts_number);
    }
    !bytes::is(before, WORD) && before != b'?' && before != b')' && starts_number
}

/// `(` + limit × `?,` + `...)`.
fn is_cut_tuple(text: &[u8], limit: usize) -> bool {
    let Some(rest) = text.strip_prefix(b"(") else { return false };
    rest.len() >= 2 * limit + 4 && rest[2 * limit..].starts_with(b"...)") && rest.chunks_exact(2).take(limit).all(|pair| pair == b"?,")
}

fn ends_with_cut_list(text: &[u8], limit: usize) -> bool {
    let Some(rest) = text.strip_suffix(b"...") else { return false };
    rest.len() >= 2 * limit && rest[rest.len() - 2 * limit..].chunks_exact(2).all(|pair| pair == b"?,")
}

/// Behind a list that was cut: values that came later.
fn skip_values(text: &[u8], mut at: usize) -> usize {
    while text[at..].starts_with(b",?") && text.get(at + 2).is_none_or(|byte| !bytes::is(*byte, WORD | DIGIT | HIGH)) {
        at += 2;
    }
    at
}
