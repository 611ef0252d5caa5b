//! The tasks of one driver, and how they are woken.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::Remote;

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// Names a task: its place, and how many tasks had that place before, so that a late wake-up does not reach another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    place: u32,
    generation: u32,
}

impl Key {
    /// The future of `block_on` itself.
    pub(super) const MAIN: Self = Self { place: u32::MAX, generation: 0 };
}

/// Wakes one task, from any thread.
pub(super) struct TaskWaker {
    key: Key,
    /// In the queue, or on its way to it.
    queued: AtomicBool,
    remote: Arc<Remote>,
}

impl TaskWaker {
    pub(super) fn new(key: Key, remote: &Arc<Remote>) -> Arc<Self> {
        Arc::new(Self { key, queued: AtomicBool::new(false), remote: Arc::clone(remote) })
    }

    /// As the standard library's.
    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// The task is about to be polled: from now on a wake-up means another poll. What was written before an earlier one is seen.
    pub(super) fn starts(&self) {
        self.queued.swap(false, Ordering::AcqRel);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.remote.wake(self.key);
        }
    }
}

struct Task {
    state: Arc<TaskWaker>,
    waker: Waker,
    /// `None` once it has ended.
    work: RefCell<Option<Work>>,
}

#[derive(Default)]
struct Place {
    generation: u32,
    task: Option<Rc<Task>>,
}

/// All tasks, and which of them have been woken, in that order.
#[derive(Default)]
pub(super) struct Tasks {
    places: RefCell<Vec<Place>>,
    free: RefCell<Vec<u32>>,
    queue: RefCell<VecDeque<Key>>,
    /// No task is taken any more.
    closed: Cell<bool>,
}

impl Tasks {
    /// Adds a task; it is polled soon.
    pub(super) fn add(&self, work: Work, remote: &Arc<Remote>) {
        if self.closed.get() {
            return;
        }
        let mut places = self.places.borrow_mut();
        let free = self.free.borrow_mut().pop();
        let place = free.unwrap_or_else(|| {
            places.push(Place::default());
            // A thread does not have four thousand million tasks.
            (places.len() - 1) as u32
        });
        let Some(slot) = places.get_mut(place as usize) else { return };
        let state = TaskWaker::new(Key { place, generation: slot.generation }, remote);
        let waker = state.waker();
        slot.task = Some(Rc::new(Task { waker: waker.clone(), state, work: RefCell::new(Some(work)) }));
        drop(places);
        waker.wake();
    }

    /// The next that has been woken.
    pub(super) fn next(&self) -> Option<Key> {
        self.queue.borrow_mut().pop_front()
    }

    /// One that has been woken.
    pub(super) fn push(&self, key: Key) {
        self.queue.borrow_mut().push_back(key);
    }

    /// Whether nothing has been woken.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Polls a task. A panic ends it; it is dropped while the panic unwinds, so that what it owns can tell.
    pub(super) fn run(&self, key: Key) {
        let Some(task) = self.task(key) else { return };
        task.state.starts();
        let mut work = task.work.borrow_mut();
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let held = DroppedByPanic(&mut work);
            held.0.as_mut().map_or(Poll::Ready(()), |work| work.as_mut().poll(&mut Context::from_waker(&task.waker)))
        }));
        if !matches!(polled, Ok(Poll::Pending)) {
            let ended = work.take();
            drop(work);
            self.forget(key);
            drop(ended);
        }
    }

    fn task(&self, key: Key) -> Option<Rc<Task>> {
        let places = self.places.borrow();
        let place = places.get(key.place as usize).filter(|place| place.generation == key.generation)?;
        place.task.clone()
    }

    fn forget(&self, key: Key) {
        let mut places = self.places.borrow_mut();
        if let Some(place) = places.get_mut(key.place as usize)
            && place.generation == key.generation
        {
            place.generation = place.generation.wrapping_add(1);
            let task = place.task.take();
            self.free.borrow_mut().push(key.place);
            drop(places);
            drop(task);
        }
    }

    /// Drops all tasks, and those that come.
    pub(super) fn clear(&self) {
        self.closed.set(true);
        let places = std::mem::take(&mut *self.places.borrow_mut());
        for task in places.into_iter().filter_map(|place| place.task) {
            let work = task.work.borrow_mut().take();
            drop(work);
        }
    }
}

/// Drops what it holds if the thread panics while it is there.
struct DroppedByPanic<'a>(&'a mut Option<Work>);

impl Drop for DroppedByPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0 = None;
        }
    }
}
