//! One coarse clock per worker that drives all deadlines: sessions and queries never create a timer of the runtime.
//!
//! (A timer that is created while none is pending makes the runtime wake itself: one write and one wait more per query,
//! hot-path.md section 3.) Arming a [`Timer`] is two stores; expiry is noticed up to one tick late, never early.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Length of a tick.
pub const TICK: Duration = Duration::from_millis(100);
/// `at` of a timer that is not armed.
const NEVER: u64 = u64::MAX;

/// Microseconds of the monotonic clock, for durations of statements. Half the cost of `Instant`, which is read twice per query.
pub(crate) fn micros() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000
}

/// The deadline passed before the future was ready; the future was dropped or is the caller's to drop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("deadline has passed")]
pub struct Expired;

/// The clock of one worker. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ticker {
    wheel: Rc<Wheel>,
}

#[derive(Debug)]
struct Wheel {
    now: Cell<u64>,
    /// No armed timer is due before this tick, so that most ticks look at nothing.
    earliest: Cell<u64>,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
}

#[derive(Debug)]
struct Slot {
    at: u64,
    waker: Option<Waker>,
}

impl Default for Ticker {
    fn default() -> Self {
        Self::new()
    }
}

impl Ticker {
    /// A clock that stands at tick 0.
    #[must_use]
    pub fn new() -> Self {
        let wheel = Wheel { now: Cell::new(0), earliest: Cell::new(NEVER), slots: RefCell::default(), free: RefCell::default() };
        Self { wheel: Rc::new(wheel) }
    }

    /// Ticks since the start of the worker.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.wheel.now.get()
    }

    /// A timer, not armed. Keep it for the life of a session and arm it again for each wait.
    #[must_use]
    pub fn timer(&self) -> Timer {
        let empty = Slot { at: NEVER, waker: None };
        let mut slots = self.wheel.slots.borrow_mut();
        let index = if let Some(index) = self.wheel.free.borrow_mut().pop() {
            slots[index as usize] = empty;
            index
        } else {
            slots.push(empty);
            u32::try_from(slots.len() - 1).expect("fewer than 2^32 timers")
        };
        Timer { wheel: Rc::clone(&self.wheel), index }
    }

    /// Runs `future` until it is ready or `limit` has passed (zero = no limit). For waits that are not per query: login,
    /// connecting, waiting for a connection. Box or pin a future that is not `Unpin`: `ticker.guard(limit, Box::pin(f))`.
    pub fn guard<F: Future + Unpin>(&self, limit: Duration, future: F) -> Guarded<F> {
        let timer = self.timer();
        timer.arm(limit);
        Guarded { timer, future }
    }

    /// Waits for the next tick.
    pub async fn next_tick(&self) {
        let timer = self.timer();
        timer.arm_at(self.now() + 1);
        timer.expired().await;
    }

    /// Moves the clock to `tick` and wakes what is due. Called by the worker's runtime, and by tests.
    pub fn advance_to(&self, tick: u64) {
        let wheel = &self.wheel;
        wheel.now.set(wheel.now.get().max(tick));
        if wheel.now.get() < wheel.earliest.get() {
            return;
        }
        let (due, earliest) = wheel.collect_due();
        wheel.earliest.set(earliest);
        for waker in due {
            waker.wake();
        }
    }
}

impl Wheel {
    /// Wakers of the timers that are due, and the tick of the first that is not. A due timer stays due until it is armed
    /// anew or cleared, but is woken only once.
    fn collect_due(&self) -> (Vec<Waker>, u64) {
        let now = self.now.get();
        let mut due = Vec::new();
        let mut earliest = NEVER;
        for slot in self.slots.borrow_mut().iter_mut() {
            if slot.at > now {
                earliest = earliest.min(slot.at);
            } else if let Some(waker) = slot.waker.take() {
                due.push(waker);
            }
        }
        (due, earliest)
    }

    fn set(&self, index: u32, at: u64) {
        self.slots.borrow_mut()[index as usize].at = at;
        if at < self.earliest.get() {
            self.earliest.set(at);
        }
    }
}

/// First tick at which `limit` from `now` has surely passed; zero means never.
fn due_at(now: u64, limit: Duration) -> u64 {
    if limit.is_zero() {
        return NEVER;
    }
    let ticks = limit.as_millis().div_ceil(TICK.as_millis());
    // One more, because `now` may be nearly a tick old.
    now.saturating_add(u64::try_from(ticks).unwrap_or(NEVER)).saturating_add(1)
}

/// One deadline that can be armed many times.
#[derive(Debug)]
pub struct Timer {
    wheel: Rc<Wheel>,
    index: u32,
}

impl Timer {
    /// Due when `limit` has passed from now; zero = never.
    pub fn arm(&self, limit: Duration) {
        self.arm_at(due_at(self.wheel.now.get(), limit));
    }

    /// Due at a tick of this worker's clock.
    pub fn arm_at(&self, tick: u64) {
        self.wheel.set(self.index, tick);
    }

    /// Never due.
    pub fn clear(&self) {
        self.wheel.slots.borrow_mut()[self.index as usize].at = NEVER;
    }

    /// Whether the deadline has passed.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.wheel.slots.borrow()[self.index as usize].at <= self.wheel.now.get()
    }

    /// Ready once the deadline has passed; otherwise the task is woken when it does.
    pub fn poll_expired(&self, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.wheel.now.get();
        let slot = &mut self.wheel.slots.borrow_mut()[self.index as usize];
        if slot.at <= now {
            return Poll::Ready(());
        }
        match &mut slot.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Waits for the deadline.
    pub async fn expired(&self) {
        std::future::poll_fn(|cx| self.poll_expired(cx)).await;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let unused = Slot { at: NEVER, waker: None };
        // The waker is dropped after the borrow ends: it may be the last handle of a task.
        let used = std::mem::replace(&mut self.wheel.slots.borrow_mut()[self.index as usize], unused);
        self.wheel.free.borrow_mut().push(self.index);
        drop(used);
    }
}

/// A future with a deadline; made by [`Ticker::guard`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Guarded<F> {
    timer: Timer,
    future: F,
}

impl<F: Future + Unpin> Future for Guarded<F> {
    type Output = Result<F::Output, Expired>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = Pin::new(&mut self.future).poll(cx) {
            return Poll::Ready(Ok(output));
        }
        self.timer.poll_expired(cx).map(|()| Err(Expired))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counting() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        (Arc::clone(&count), Waker::from(count))
    }

    #[test]
    fn a_deadline_is_never_early_and_at_most_two_ticks_late() {
        for (limit, first_due) in [(1, 2), (100, 2), (101, 3), (1000, 11)] {
            let ticker = Ticker::new();
            ticker.advance_to(5);
            let timer = ticker.timer();
            timer.arm(Duration::from_millis(limit));
            ticker.advance_to(5 + first_due - 1);
            assert!(!timer.is_due(), "{limit} ms was early");
            ticker.advance_to(5 + first_due);
            assert!(timer.is_due(), "{limit} ms was late");
        }
    }

    #[test]
    fn a_waiter_is_woken_once_when_due() {
        let ticker = Ticker::new();
        let (count, waker) = counting();
        let mut cx = Context::from_waker(&waker);
        let timer = ticker.timer();
        timer.arm(Duration::from_millis(200));
        assert!(timer.poll_expired(&mut cx).is_pending());
        ticker.advance_to(2);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        ticker.advance_to(3);
        ticker.advance_to(4);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(timer.poll_expired(&mut cx).is_ready());
    }

    #[test]
    fn clearing_or_zero_means_never() {
        let ticker = Ticker::new();
        let timer = ticker.timer();
        timer.arm(Duration::ZERO);
        ticker.advance_to(1_000_000);
        assert!(!timer.is_due());
        timer.arm(Duration::from_secs(1));
        timer.clear();
        ticker.advance_to(2_000_000);
        assert!(!timer.is_due());
        timer.arm(Duration::MAX);
        assert!(!timer.is_due());
    }

    #[test]
    fn slots_are_reused_and_start_clear() {
        let ticker = Ticker::new();
        let first = ticker.timer();
        first.arm(Duration::from_millis(1));
        drop(first);
        let second = ticker.timer();
        ticker.advance_to(100);
        assert!(!second.is_due());
        assert_eq!(ticker.wheel.slots.borrow().len(), 1);
    }

    #[test]
    fn guard_prefers_the_result_to_the_deadline() {
        let ticker = Ticker::new();
        let (_, waker) = counting();
        let mut cx = Context::from_waker(&waker);
        let mut never = ticker.guard(Duration::from_millis(100), std::future::pending::<()>());
        let mut ready = ticker.guard(Duration::from_millis(100), std::future::ready(7));
        assert!(Pin::new(&mut never).poll(&mut cx).is_pending());
        ticker.advance_to(10);
        assert_eq!(Pin::new(&mut never).poll(&mut cx), Poll::Ready(Err(Expired)));
        assert_eq!(Pin::new(&mut ready).poll(&mut cx), Poll::Ready(Ok(7)));
    }
}
