//! Statements that are prepared on one server connection.

use std::sync::Arc;

use crate::session::mysql::statements::StatementText;

/// Most statements that a connection keeps prepared; the least recently used one is closed for a new one.
const MAX_PREPARED: usize = 64;

#[derive(Debug)]
struct Prepared {
    text: Arc<StatementText>,
    id: u32,
}

/// The statements, most recently used last.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    prepared: Vec<Prepared>,
}

impl Registry {
    /// The server's id of a statement, which becomes the most recently used.
    pub(crate) fn find(&mut self, text: &Arc<StatementText>) -> Option<u32> {
        let at = self.prepared.iter().rposition(|prepared| prepared.text == *text)?;
        let last = self.prepared.len() - 1;
        if at != last {
            let prepared = self.prepared.remove(at);
            self.prepared.push(prepared);
        }
        Some(self.prepared[last].id)
    }

    /// Whether a statement is prepared.
    pub(crate) fn has(&self, text: &Arc<StatementText>) -> bool {
        self.prepared.iter().rev().any(|prepared| prepared.text == *text)
    }

    /// Adds a statement. Returns the server's id of one that must be closed for it: the same text prepared before, or the
    /// least recently used.
    pub(crate) fn add(&mut self, text: Arc<StatementText>, id: u32) -> Option<u32> {
        let same = self.prepared.iter().position(|prepared| prepared.text == text);
        let closed = match same {
            Some(at) => Some(self.prepared.remove(at).id),
            None if self.prepared.len() >= MAX_PREPARED => Some(self.prepared.remove(0).id),
            None => None,
        };
        self.prepared.push(Prepared { text, id });
        closed
    }

    /// The server does not know the statement any more.
    pub(crate) fn forget(&mut self, text: &Arc<StatementText>) {
        self.prepared.retain(|prepared| prepared.text != *text);
    }

    /// The server has forgotten all (COM_RESET_CONNECTION).
    pub(crate) fn clear(&mut self) {
        self.prepared = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_is_closed_for_a_new_one() {
        let text = |number: u32| StatementText::new(number.to_string().as_bytes(), "s");
        let mut registry = Registry::default();
        let count = u32::try_from(MAX_PREPARED).unwrap();
        for number in 0..count {
            assert_eq!(registry.add(text(number), number), None);
        }
        assert!(registry.has(&text(0)));
        assert_eq!(registry.find(&text(0)), Some(0));
        assert_eq!(registry.add(text(1000), 1000), Some(1));
        assert!(!registry.has(&text(1)));
        assert_eq!(registry.find(&text(1)), None);
        assert_eq!(registry.add(text(1000), 1001), Some(1000), "the same text again");
        assert_eq!(registry.find(&text(1000)), Some(1001));
        registry.forget(&text(1000));
        assert_eq!(registry.find(&text(1000)), None);
        registry.clear();
        assert_eq!(registry.find(&text(0)), None);
    }
}
