//! What the MySQL sessions of one worker share.

use std::cell::RefCell;
use std::collections::HashMap;

use zeroize::Zeroizing;

/// Passwords in clear that are remembered per worker.
const MAX_KNOWN: usize = 10_000;

/// Caches of one worker.
#[derive(Default)]
pub(super) struct MysqlWorker {
    /// Passwords that a full authentication proved, by stored hash: the fast path needs them. In memory only.
    known: RefCell<HashMap<String, Zeroizing<Vec<u8>>>>,
}

impl MysqlWorker {
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
