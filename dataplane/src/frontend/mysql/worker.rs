//! What the MySQL sessions of one worker share.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::intern::Interner;
use crate::session::mysql::statements::{StatementName, StatementText};

/// Passwords in clear that are remembered per worker.
const MAX_KNOWN: usize = 10_000;

/// Caches of one worker.
#[derive(Default)]
pub(super) struct MysqlWorker {
    /// Passwords that a full authentication proved, by stored hash: the fast path needs them. In memory only.
    known: RefCell<HashMap<String, Zeroizing<Vec<u8>>>>,
    /// What the sessions have prepared.
    texts: RefCell<Interner<StatementText>>,
    /// The last name that was given to a statement, above the bits that tell workers apart.
    last_name: Cell<u64>,
}

impl MysqlWorker {
    /// The one text that equals `text`.
    pub(super) fn text(&self, text: StatementText) -> Arc<StatementText> {
        self.texts.borrow_mut().intern(text)
    }

    /// A name for a statement of a client of this worker, which is number `index` of fewer than 65,536.
    pub(super) fn name(&self, index: usize) -> StatementName {
        self.last_name.set(self.last_name.get() + 1);
        StatementName(self.last_name.get() << 16 | index as u64)
    }

    /// The password behind a stored hash, if a login proved it.
    pub(super) fn known_password(&self, stored: &str) -> Option<Zeroizing<Vec<u8>>> {
        self.known.borrow().get(stored).cloned()
    }

    /// Remembers the password behind a stored hash.
    pub(super) fn remember_password(&self, stored: &str, clear: &Zeroizing<Vec<u8>>) {
        let mut known = self.known.borrow_mut();
        if known.len() < MAX_KNOWN {
            known.insert(stored.to_owned(), clear.clone());
        }
    }
}
