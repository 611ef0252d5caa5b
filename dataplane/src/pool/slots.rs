//! `max_connections` of a server row over all workers, and the one fair queue of those who wait for a connection of it.
//!
//! A slot is the right to have one connection, idle or used. Taking one is an atomic; the queue behind the mutex is
//! touched at the limit only. A waiter gets a slot, or a connection that has its slot, in the order of arrival, with one
//! bounded exception: a connection that comes back is offered to the waiters of its own worker up to [`STAY`] times in a
//! row before it must go to the oldest waiter elsewhere, because a change of worker costs as much as a small query.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::key::PoolKey;
use crate::limits::Gauge;
use crate::tls::ServerTls;

/// Slots of one server row.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    held: Gauge,
    /// Most that were held at a time.
    peak: AtomicU32,
    waiting: AtomicU32,
    queue: Mutex<Queue>,
}

/// Times that a row's connections may stay with their worker while an older waiter of another one is passed over.
const STAY: u32 = 4;

#[derive(Debug, Default)]
struct Queue {
    waiters: VecDeque<Arc<Waiter>>,
    /// How often the oldest waiter has been passed over.
    passed: u32,
}

/// What a waiter is given.
pub(crate) enum Grant {
    /// A slot: open a connection.
    Slot,
    /// A connection of its key with its slot, put down in its worker's pool under its name.
    Local,
    /// A connection of its key with its slot, from another worker, as the dialect packed it.
    Parcel(Box<dyn Any + Send>),
    /// Nothing: the server is not to be waited for any more, choose anew.
    Retry,
}

/// A place in the queue.
pub(crate) struct Waiter {
    pub(crate) worker: usize,
    pub(crate) tls: ServerTls,
    pub(crate) key: PoolKey,
    state: Mutex<WaiterState>,
}

enum WaiterState {
    Waiting(Option<Waker>),
    Granted(Grant),
    Gone,
}

impl Waiter {
    pub(crate) fn new(worker: usize, tls: ServerTls, key: PoolKey) -> Arc<Self> {
        Arc::new(Self { worker, tls, key, state: Mutex::new(WaiterState::Waiting(None)) })
    }

    /// Its name within the process while it lives.
    pub(crate) fn name(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self) as usize
    }

    /// Gives it `grant`; given back if it has gone or has a grant already.
    pub(crate) fn grant(&self, grant: Grant) -> Result<(), Grant> {
        let mut state = self.state.lock();
        let WaiterState::Waiting(waker) = &mut *state else { return Err(grant) };
        let waker = waker.take();
        *state = WaiterState::Granted(grant);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Grant> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, WaiterState::Gone) {
            WaiterState::Granted(grant) => Poll::Ready(grant),
            WaiterState::Gone => Poll::Ready(Grant::Retry),
            WaiterState::Waiting(waker) => {
                let waker = match waker {
                    Some(waker) if waker.will_wake(cx.waker()) => waker,
                    _ => cx.waker().clone(),
                };
                *state = WaiterState::Waiting(Some(waker));
                Poll::Pending
            }
        }
    }

    /// Stops waiting; returns a grant that came in the meantime and is now the caller's to pass on.
    pub(crate) fn cancel(&self) -> Option<Grant> {
        match std::mem::replace(&mut *self.state.lock(), WaiterState::Gone) {
            WaiterState::Granted(grant) => Some(grant),
            WaiterState::Waiting(_) | WaiterState::Gone => None,
        }
    }
}

impl Slots {
    /// Slots that are held now.
    pub(crate) fn held(&self) -> u32 {
        self.held.get()
    }

    /// Most slots that were held at a time.
    pub(crate) fn peak(&self) -> u32 {
        self.peak.load(Ordering::Relaxed)
    }

    fn take(&self, max: u32) -> bool {
        let taken = self.held.try_take(max);
        if taken {
            self.peak.fetch_max(self.held.get(), Ordering::Relaxed);
        }
        taken
    }

    /// Whether somebody waits. Read per release; written at the limit only.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Takes a slot if one is free and nobody waits for it.
    pub(crate) fn try_take(&self, max: u32) -> bool {
        !self.has_waiters() && self.take(max)
    }

    /// Gives a slot back: to the first waiter, else it is free. `max` as it is now, which may have sunk.
    pub(crate) fn put_back(&self, max: u32) {
        self.held.put_back();
        self.serve_waiters(max);
    }

    /// Hands free slots to waiters in their order.
    pub(crate) fn serve_waiters(&self, max: u32) {
        while self.has_waiters() {
            let mut queue = self.queue.lock();
            if queue.waiters.is_empty() || !self.take(max) {
                return;
            }
            let waiter = self.pop(&mut queue);
            drop(queue);
            let granted = waiter.is_some_and(|waiter| waiter.grant(Grant::Slot).is_ok());
            if !granted {
                self.held.put_back();
            }
        }
    }

    /// The waiter for a connection of `worker` that comes back, taken out of the queue: the caller must grant it something
    /// that has a slot.
    pub(crate) fn next_waiter(&self, worker: usize) -> Option<Arc<Waiter>> {
        if !self.has_waiters() {
            return None;
        }
        let mut queue = self.queue.lock();
        let near = queue.waiters.iter().position(|waiter| waiter.worker == worker);
        if let Some(near @ 1..) = near
            && queue.passed < STAY
        {
            queue.passed += 1;
            let waiter = queue.waiters.remove(near)?;
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return Some(waiter);
        }
        self.pop(&mut queue)
    }

    /// Queues `waiter` at the end. A slot that became free in the meantime goes to the first in the queue at once.
    pub(crate) fn enqueue(&self, waiter: &Arc<Waiter>, max: u32) {
        {
            let mut queue = self.queue.lock();
            queue.waiters.push_back(Arc::clone(waiter));
            self.waiting.fetch_add(1, Ordering::SeqCst);
        }
        self.serve_waiters(max);
    }

    /// Takes a waiter that gave up out of the queue.
    pub(crate) fn remove(&self, waiter: &Arc<Waiter>) {
        let mut queue = self.queue.lock();
        if let Some(position) = queue.waiters.iter().position(|other| Arc::ptr_eq(other, waiter)) {
            queue.waiters.remove(position);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Sends all waiters away to choose another server.
    pub(crate) fn dismiss(&self) {
        let waiters = {
            let mut queue = self.queue.lock();
            self.waiting.store(0, Ordering::SeqCst);
            std::mem::take(&mut queue.waiters)
        };
        for waiter in waiters {
            // One that has gone needs no word.
            let _ = waiter.grant(Grant::Retry);
        }
    }

    fn pop(&self, queue: &mut Queue) -> Option<Arc<Waiter>> {
        queue.passed = 0;
        let waiter = queue.waiters.pop_front()?;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        Some(waiter)
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("worker", &self.worker).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::key::KeyParts;

    fn waiter(worker: usize) -> Arc<Waiter> {
        Waiter::new(worker, ServerTls::Disable, PoolKey::new(KeyParts::default()))
    }

    #[test]
    fn a_connection_stays_with_its_worker_for_a_bounded_number_of_turns() {
        let slots = Slots::default();
        for worker in [1, 0, 0, 1, 0, 0, 0, 0] {
            slots.enqueue(&waiter(worker), 0);
        }
        let served: Vec<usize> = std::iter::from_fn(|| slots.next_waiter(0)).map(|waiter| waiter.worker).collect();
        assert_eq!(served, [0, 0, 0, 0, 1, 0, 0, 1]);
        assert!(!slots.has_waiters());
    }

    #[test]
    fn a_free_slot_goes_to_the_first_in_the_queue_and_never_beyond_the_limit() {
        let slots = Slots::default();
        assert!(slots.try_take(1));
        let (first, second) = (waiter(0), waiter(1));
        slots.enqueue(&first, 1);
        slots.enqueue(&second, 1);
        assert!(!slots.try_take(2), "nobody overtakes the queue");
        assert!(first.cancel().is_none());
        slots.remove(&first);
        slots.put_back(1);
        assert!(matches!(second.cancel(), Some(Grant::Slot)));
        assert_eq!(slots.held(), 1);
        assert!(second.grant(Grant::Slot).is_err());
    }

    #[test]
    fn a_raised_limit_serves_and_a_dismissal_empties_the_queue() {
        let slots = Slots::default();
        let waiters: Vec<_> = (0..3).map(waiter).collect();
        waiters.iter().for_each(|waiter| slots.enqueue(waiter, 0));
        slots.serve_waiters(1);
        slots.dismiss();
        let grants: Vec<_> = waiters.iter().map(|waiter| waiter.cancel()).collect();
        assert!(matches!(grants[..], [Some(Grant::Slot), Some(Grant::Retry), Some(Grant::Retry)]));
        assert!(!slots.has_waiters());
    }
}
