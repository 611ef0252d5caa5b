//! Where a statement comes from: by what rules and digests tell sessions apart.

use std::cell::RefCell;
use std::sync::Arc;

/// Who asks, by which way. Sessions of a worker that agree in everything share one: its address tells two apart, and it is kept once.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Origin {
    /// Name of the session's user.
    pub user: Box<str>,
    /// Current schema; PostgreSQL: database.
    pub schema: Box<str>,
    /// Address of the client, without port.
    pub client_addr: Box<str>,
    /// Address of ours to which the client connected.
    pub proxy_addr: Box<str>,
    /// Port of ours to which the client connected; 0 for a Unix socket.
    pub proxy_port: u16,
}

/// What was found last, and for whom: found again at a glance for the same origin.
#[derive(Debug)]
pub(crate) struct Last<T>(RefCell<Option<(Arc<Origin>, T)>>);

impl<T> Default for Last<T> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<T: Clone> Last<T> {
    /// What was found, if it `holds` and is that of `origin`: of the same one, or of another by `is_of`, which is then the last.
    pub(crate) fn get(&self, origin: &Arc<Origin>, holds: impl FnOnce(&T) -> bool, is_of: impl FnOnce(&T) -> bool) -> Option<T> {
        let mut last = self.0.borrow_mut();
        let (whose, found) = last.as_mut().filter(|(_, found)| holds(found))?;
        if !Arc::ptr_eq(whose, origin) {
            if !is_of(found) {
                return None;
            }
            *whose = Arc::clone(origin);
        }
        Some(found.clone())
    }

    /// Remembers what was found.
    pub(crate) fn set(&self, origin: &Arc<Origin>, found: T) {
        *self.0.borrow_mut() = Some((Arc::clone(origin), found));
    }

    /// Forgets it.
    pub(crate) fn clear(&mut self) {
        self.0.take();
    }
}
