//! Limits on clients that span workers: atomics taken when a session starts, not per query.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::config::Protocol;
use crate::stats::index;

/// A number of things that exist, with a limit that the taker names.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU32);

impl Gauge {
    /// Counts one more unless `max` are counted already.
    pub(crate) fn try_take(&self, max: u32) -> bool {
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |held| (held < max).then_some(held + 1)).is_ok()
    }

    pub(crate) fn put_back(&self) {
        let before = self.0.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "more was put back than taken");
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Clients per protocol and per user, all workers together.
#[derive(Debug, Default)]
pub struct ClientLimits {
    clients: [Arc<Gauge>; 2],
    users: Mutex<HashMap<(Protocol, String), Arc<Gauge>>>,
}

/// A place under a limit; dropping it gives the place back.
#[derive(Debug)]
#[must_use = "the place is given back when the permit is dropped"]
pub struct Permit(Arc<Gauge>);

impl ClientLimits {
    /// A place under the protocol's `max_connections`; `None` = 1040 / 53300, after the client has authenticated.
    pub fn client(&self, protocol: Protocol, max: u32) -> Option<Permit> {
        Permit::take(&self.clients[index(protocol)], max)
    }

    /// A place under the user's `max_connections`; `None` = 1226 / 53300. Call it with an authenticated user only, so that
    /// names which do not exist are not remembered.
    pub fn user(&self, protocol: Protocol, user: &str, max: u32) -> Option<Permit> {
        let mut users = self.users.lock();
        if users.len() >= 1024 {
            users.retain(|_, gauge| gauge.get() > 0);
        }
        Permit::take(users.entry((protocol, user.to_owned())).or_default(), max)
    }

    /// Clients of `user` now.
    #[must_use]
    pub fn user_connections(&self, protocol: Protocol, user: &str) -> u32 {
        self.users.lock().get(&(protocol, user.to_owned())).map_or(0, |gauge| gauge.get())
    }
}

impl Permit {
    fn take(gauge: &Arc<Gauge>, max: u32) -> Option<Self> {
        gauge.try_take(max).then(|| Self(Arc::clone(gauge)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.put_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_protocols_have_places_of_their_own() {
        let limits = ClientLimits::default();
        let first = limits.user(Protocol::Mysql, "a", 1);
        assert!(first.is_some());
        assert!(limits.user(Protocol::Mysql, "a", 1).is_none());
        assert!(limits.user(Protocol::Pgsql, "a", 1).is_some());
        assert!(limits.user(Protocol::Mysql, "b", 1).is_some());
        assert_eq!(limits.user_connections(Protocol::Mysql, "a"), 1);
        drop(first);
        assert_eq!(limits.user_connections(Protocol::Mysql, "a"), 0);
        assert!(limits.client(Protocol::Mysql, 0).is_none());
        assert!(limits.client(Protocol::Mysql, 1).is_some());
    }
}
