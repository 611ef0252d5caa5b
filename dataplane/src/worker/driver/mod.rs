//! What drives a worker's thread: tasks, and the sockets that wake them.
//!
//! A single thread needs little of what a general runtime does: no task moves, no socket has two readers, time comes from the
//! ticker. hot-path.md (sections 2 and 13) measured what that is worth, and the benchmark says so, too. Futures and wakers are
//! the standard ones, so that channels of other crates work here; the polling of sockets is `mio`'s.
//!
//! ```text
//! block_on ─► run what has been woken (at most a round) ─► turn: wait for sockets, or only look ─► …
//!               task.poll ─► socket.poll_read ─► not ready: keeps the task's waker
//!               turn ─► event ─► readiness of the socket, its wakers ─► queue
//! ```

mod socket;
mod tasks;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use mio::{Events, Token};
use parking_lot::Mutex;

pub(crate) use socket::Driven;
use socket::Sockets;
use tasks::{Key, TaskWaker, Tasks};

/// Tasks that run before sockets are looked at again.
const ROUND: usize = 64;
/// Reads and writes of one task in a row: what always has more to do lets others run.
const BUDGET: u32 = 128;
/// Events taken from the kernel at once.
const EVENTS: usize = 1024;
/// The event that tells of wake-ups from other threads; above all numbers of sockets.
const BELL: Token = Token(usize::MAX);

thread_local! {
    static CURRENT: RefCell<Option<Rc<Driver>>> = const { RefCell::new(None) };
}

/// Drives one thread.
pub(crate) struct Driver {
    poll: RefCell<mio::Poll>,
    events: RefCell<Events>,
    sockets: Sockets,
    tasks: Tasks,
    remote: Arc<Remote>,
    budget: Cell<u32>,
    /// Times that the sockets were looked at.
    turns: Cell<u64>,
}

/// What other threads may touch of a driver.
struct Remote {
    woken: Mutex<Vec<Key>>,
    bell: mio::Waker,
}

/// Starts a task on this thread, whose driver runs it after the task that runs now. Dropped if no driver runs, or when it ends.
pub(crate) fn spawn(task: impl Future<Output = ()> + 'static) {
    // Not within the borrow: what is dropped may spawn.
    let driver = CURRENT.with(|current| current.borrow().clone());
    if let Some(driver) = driver {
        driver.tasks.add(Box::pin(task), &driver.remote);
    }
}

/// Ready when the sockets have been looked at once more. Asked again up to a round of times until then: not for the query path.
pub(crate) async fn next_turn() {
    let turns = || CURRENT.with(|current| current.borrow().as_ref().map(|driver| driver.turns.get()));
    let seen = turns();
    std::future::poll_fn(|cx| {
        if seen.is_none() || turns() != seen {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs other tasks before it goes on.
#[cfg(test)]
pub(crate) async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs a future to its end on a driver of its own. For tests; a worker makes its driver first, to tell whether it can.
#[cfg(test)]
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    Driver::new().unwrap().block_on(future)
}

/// Makes a driver the thread's until it is dropped.
struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        let driver = CURRENT.with(|current| current.borrow().clone());
        if let Some(driver) = driver {
            // While it is still the thread's: what is dropped closes sockets.
            driver.tasks.clear();
        }
        let ended = CURRENT.with(|current| current.borrow_mut().take());
        drop(ended);
    }
}

impl Driver {
    /// A driver without tasks. Fails if the system has no descriptors left.
    pub(crate) fn new() -> io::Result<Rc<Self>> {
        let poll = mio::Poll::new()?;
        let bell = mio::Waker::new(poll.registry(), BELL)?;
        let registry = poll.registry().try_clone()?;
        Ok(Rc::new(Self {
            poll: RefCell::new(poll),
            events: RefCell::new(Events::with_capacity(EVENTS)),
            sockets: Sockets::new(registry),
            tasks: Tasks::default(),
            remote: Arc::new(Remote { woken: Mutex::default(), bell }),
            budget: Cell::new(0),
            turns: Cell::new(0),
        }))
    }

    /// Runs `future`, and the tasks that it and they spawn, until it ends; tasks that are left then are dropped.
    pub(crate) fn block_on<T>(self: &Rc<Self>, future: impl Future<Output = T>) -> T {
        CURRENT.with(|current| *current.borrow_mut() = Some(Rc::clone(self)));
        let _entered = Entered;
        let mut future = pin!(future);
        let main = TaskWaker::new(Key::MAIN, &self.remote);
        let waker = main.waker();
        waker.wake_by_ref();
        loop {
            for _ in 0..ROUND {
                match self.tasks.next() {
                    None => break,
                    Some(Key::MAIN) => {
                        main.starts();
                        self.budget.set(BUDGET);
                        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                            return done;
                        }
                    }
                    Some(key) => {
                        self.budget.set(BUDGET);
                        self.tasks.run(key);
                    }
                }
            }
            self.turn();
        }
    }

    /// Takes what the kernel has to tell; waits for it if there is nothing else to do.
    fn turn(&self) {
        let patience = if self.tasks.is_idle() { None } else { Some(Duration::ZERO) };
        let mut events = self.events.borrow_mut();
        match self.poll.borrow_mut().poll(&mut events, patience) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            // Only a bad descriptor or bad memory can be the reason: nothing that could be lived with.
            Err(error) => panic!("the kernel does not tell about sockets any more: {error}"),
        }
        self.turns.set(self.turns.get().wrapping_add(1));
        for event in &*events {
            if event.token() == BELL {
                let woken = std::mem::take(&mut *self.remote.woken.lock());
                woken.into_iter().for_each(|key| self.tasks.push(key));
            } else {
                self.sockets.tell(event);
            }
        }
    }

    /// Takes one step of the running task's budget; `false` = it must let others run.
    fn spend(&self, cx: &Context<'_>) -> bool {
        let Some(left) = self.budget.get().checked_sub(1) else {
            cx.waker().wake_by_ref();
            return false;
        };
        self.budget.set(left);
        true
    }
}

impl Remote {
    /// Puts a task into the queue of this driver's thread.
    fn wake(self: &Arc<Self>, key: Key) {
        let here = CURRENT.try_with(|current| match current.try_borrow().as_deref() {
            Ok(Some(driver)) if Arc::ptr_eq(&driver.remote, self) => {
                driver.tasks.push(key);
                true
            }
            _ => false,
        });
        if here != Ok(true) {
            self.woken.lock().push(key);
            // Only a driver that has ended cannot be told.
            let _ = self.bell.wake();
        }
    }
}

#[cfg(test)]
mod tests;
