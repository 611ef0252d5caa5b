//! Bodies of SQL statements: `BEGIN ATOMIC … END`.

use crate::sql::keyword::Keyword;

/// Follows such a body, whose semicolons separate no statements of the text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Body {
    cases: u32,
    is_over: bool,
}

impl Body {
    /// A word of it, and the word before; behind AS any word is a label.
    pub(super) fn on_word(&mut self, previous: Option<Keyword>, word: Keyword, text: &[u8]) {
        if previous == Some(Keyword::As) {
            return;
        }
        if text.eq_ignore_ascii_case(b"case") {
            self.cases = self.cases.saturating_add(1);
        } else if word == Keyword::End {
            self.is_over |= self.cases == 0;
            self.cases = self.cases.saturating_sub(1);
        }
    }

    /// Its END has come.
    pub(super) fn is_over(self) -> bool {
        self.is_over
    }
}
