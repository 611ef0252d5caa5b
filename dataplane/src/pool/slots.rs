//! `max_connections` of a server row over all workers, and the one fair queue of those who wait for a connection of it.
//!
//! A slot is the right to have one connection, idle or used. Taking one is an atomic; the queue behind the mutex is
//! touched at the limit only. A waiter gets a slot, or a connection that has its slot, in the order of arrival.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::key::PoolKey;
use crate::config::TlsMode;
use crate::limits::Gauge;

/// Slots of one server row.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    held: Gauge,
    waiting: AtomicU32,
    queue: Mutex<VecDeque<Arc<Waiter>>>,
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
    pub(crate) tls: TlsMode,
    pub(crate) key: PoolKey,
    state: Mutex<WaiterState>,
}

enum WaiterState {
    Waiting(Option<Waker>),
    Granted(Grant),
    Gone,
}

impl Waiter {
    pub(crate) fn new(worker: usize, tls: TlsMode, key: PoolKey) -> Arc<Self> {
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

    /// Whether somebody waits. Read per release; written at the limit only.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Takes a slot if one is free and nobody waits for it.
    pub(crate) fn try_take(&self, max: u32) -> bool {
        !self.has_waiters() && self.held.try_take(max)
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
            if queue.is_empty() || !self.held.try_take(max) {
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

    /// The first waiter, taken out of the queue: the caller must grant it something that has a slot.
    pub(crate) fn next_waiter(&self) -> Option<Arc<Waiter>> {
        if !self.has_waiters() {
            return None;
        }
        self.pop(&mut self.queue.lock())
    }

    /// Queues `waiter` at the end. A slot that became free in the meantime goes to the first in the queue at once.
    pub(crate) fn enqueue(&self, waiter: &Arc<Waiter>, max: u32) {
        {
            let mut queue = self.queue.lock();
            queue.push_back(Arc::clone(waiter));
            self.waiting.fetch_add(1, Ordering::SeqCst);
        }
        self.serve_waiters(max);
    }

    /// Takes a waiter that gave up out of the queue.
    pub(crate) fn remove(&self, waiter: &Arc<Waiter>) {
        let mut queue = self.queue.lock();
        if let Some(position) = queue.iter().position(|other| Arc::ptr_eq(other, waiter)) {
            queue.remove(position);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Sends all waiters away to choose another server.
    pub(crate) fn dismiss(&self) {
        let waiters = {
            let mut queue = self.queue.lock();
            self.waiting.store(0, Ordering::SeqCst);
            std::mem::take(&mut *queue)
        };
        for waiter in waiters {
            // One that has gone needs no word.
            let _ = waiter.grant(Grant::Retry);
        }
    }

    fn pop(&self, queue: &mut VecDeque<Arc<Waiter>>) -> Option<Arc<Waiter>> {
        let waiter = queue.pop_front()?;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        Some(waiter)
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("worker", &self.worker).finish_non_exhaustive()
    }
}
