//! The bounded buffer that a lexical pass writes to.

use super::ScanOptions;
use super::bytes::{DIGIT, is};
use super::collapse::{Collapse, trim_end};

/// Digest text under construction. It never grows beyond `max_query_length`: when full, the later passes fold what is
/// there, and the lexical pass goes on if that made enough room (the reference's behaviour for long value lists).
#[derive(Debug)]
pub(crate) struct Output<'a> {
    text: &'a mut Vec<u8>,
    options: &'a ScanOptions,
    quoted_identifiers: bool,
    continued: bool,
    full: bool,
}

impl<'a> Output<'a> {
    pub(crate) fn new(text: &'a mut Vec<u8>, options: &'a ScanOptions, quoted_identifiers: bool) -> Self {
        text.clear();
        Self { text, options, quoted_identifiers, continued: false, full: options.max_query_length == 0 }
    }

    /// Nothing more will be taken: the pass can end.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Makes room for `wanted` bytes if it can; the room there is.
    #[inline]
    fn room(&mut self, wanted: usize) -> usize {
        let room = self.options.max_query_length - self.text.len();
        if room >= wanted { wanted } else { self.make_room(wanted) }
    }

    #[cold]
    fn make_room(&mut self, wanted: usize) -> usize {
        self.collapse();
        self.continued = true;
        let room = self.options.max_query_length.saturating_sub(self.text.len());
        // A fold that frees little would make the whole quadratic.
        let enough = room >= wanted && room >= self.options.max_query_length / 4;
        self.full = !enough;
        room.min(wanted)
    }

    fn collapse(&mut self) {
        Collapse { options: self.options, quoted_identifiers: self.quoted_identifiers, continued: self.continued }.run(self.text);
    }

    /// Copies text, in lower case if so configured.
    #[inline]
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        let start = self.text.len();
        self.copy_exact(bytes);
        if self.options.lowercase {
            let start = start.min(self.text.len());
            self.text[start..].make_ascii_lowercase();
        }
    }

    /// Copies text as it is.
    #[inline]
    pub(crate) fn copy_exact(&mut self, bytes: &[u8]) {
        if !self.full {
            let room = self.room(bytes.len());
            self.text.extend_from_slice(&bytes[..room]);
        }
    }

    /// Copies a word that begins with a digit and is no number; where the end of the buffer makes it one, a `?`.
    #[inline]
    pub(crate) fn copy_candidate(&mut self, bytes: &[u8]) {
        if self.full {
            return;
        }
        let room = self.room(bytes.len());
        let cut = &bytes[..room];
        if room < bytes.len() && room > 0 && cut.iter().all(|byte| is(*byte, DIGIT)) {
            self.text.push(b'?');
        } else {
            self.copy_cut(cut);
        }
    }

    fn copy_cut(&mut self, bytes: &[u8]) {
        let start = self.text.len();
        self.text.extend_from_slice(bytes);
        if self.options.lowercase {
            self.text[start..].make_ascii_lowercase();
        }
    }

    /// A replaced literal.
    pub(crate) fn literal(&mut self) {
        self.byte(b'?');
    }

    /// One byte that has no case.
    #[inline]
    pub(crate) fn byte(&mut self, byte: u8) {
        if !self.full && self.room(1) == 1 {
            self.text.push(byte);
        }
    }

    /// A blank, unless the text is empty or ends in one.
    #[inline]
    pub(crate) fn blank(&mut self) {
        if self.text.last().is_some_and(|last| *last != b' ') {
            self.byte(b' ');
        }
    }

    /// The later passes.
    pub(crate) fn finish(mut self) {
        self.collapse();
        trim_end(self.text);
    }
}
