//! Clients that have not logged in yet: bounded per listener, so that peers who connect and never speak can neither use up
//! descriptors and memory nor keep others from logging in.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::session::{SessionEntry, Signal};

/// Most clients of one listener that have not logged in, all workers together. When one more comes, the one that has been
/// waiting longest is closed: who means to log in has done so long before.
const MAX_NEWCOMERS: usize = 8192;
/// Ticks between two log lines of it.
const SAY_EVERY: u64 = 100;

/// Which listener, and the how many-th of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    listener: usize,
    number: u64,
}

/// Those of one worker.
#[derive(Debug)]
pub(super) struct Newcomers {
    by_listener: HashMap<usize, BTreeMap<u64, Rc<SessionEntry>>>,
    next: u64,
    max: usize,
    said: Option<u64>,
}

impl Newcomers {
    /// The share of one of `workers`.
    pub(super) fn new(workers: usize) -> Self {
        Self { by_listener: HashMap::new(), next: 0, max: MAX_NEWCOMERS / workers.max(1), said: None }
    }

    /// A client has come; closes the oldest if there are too many. `now` is the worker's tick.
    pub(super) fn add(&mut self, listener: usize, entry: &Rc<SessionEntry>, now: u64) -> Place {
        let waiting = self.by_listener.entry(listener).or_default();
        if waiting.len() >= self.max
            && let Some((_, oldest)) = waiting.pop_first()
        {
            oldest.signal(Signal::Kill);
            if self.said.is_none_or(|said| now >= said + SAY_EVERY) {
                self.said = Some(now);
                tracing::warn!(
                    client = %oldest.client(),
                    waiting = self.max,
                    "too many clients that do not log in: the one that has waited longest is closed"
                );
            }
        }
        self.next += 1;
        waiting.insert(self.next, Rc::clone(entry));
        Place { listener, number: self.next }
    }

    /// The client has logged in, or has gone.
    pub(super) fn remove(&mut self, place: Place) {
        if let Some(waiting) = self.by_listener.get_mut(&place.listener) {
            waiting.remove(&place.number);
            if waiting.is_empty() {
                self.by_listener.remove(&place.listener);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Protocol;
    use crate::worker::testing::{Workers, client, config};

    #[test]
    fn the_oldest_who_has_not_logged_in_makes_room() {
        let workers = Workers::new(1, config(1, &[]));
        let sessions: Vec<_> = (0..4).map(|_| client(&workers.contexts[0], Protocol::Mysql).2).collect();
        let mut newcomers = Newcomers { max: 2, ..Newcomers::new(1) };
        let told = |index: usize| sessions[index].entry().take_signal();
        let places: Vec<_> = (0..3).map(|index| newcomers.add(7, &sessions[index].entry(), 0)).collect();
        assert_eq!((told(0), told(1), told(2)), (Some(Signal::Kill), None, None));
        newcomers.remove(places[1]);
        let elsewhere = newcomers.add(8, &sessions[1].entry(), 0);
        newcomers.add(7, &sessions[3].entry(), 0);
        assert_eq!((told(1), told(2), told(3)), (None, None, None), "who has logged in counts no more, and each listener for itself");
        newcomers.remove(elsewhere);
        newcomers.remove(elsewhere);
        assert!(!newcomers.by_listener.contains_key(&8));
    }
}
