//! Tokio as openraft's runtime, with two additions for tasks of a simulated host: seeded random numbers, and a death that stops all
//! of them at once. Every other test of this crate gets plain tokio.

use std::{
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use openraft::{AsyncRuntime, OptionalSend, TokioRuntime};
use openraft_rt::deterministic_rng::DeterministicRng;
use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinHandle};

use super::dice::Dice;

type Seeded = DeterministicRng<TokioRuntime>;

tokio::task_local! {
    static HOST: Arc<Host>;
}

/// One life of a simulated process: everything that it runs dies with it.
pub(crate) struct Host {
    dice: Dice,
    dead: AtomicBool,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Host {
    pub(crate) fn new(dice: Dice) -> Arc<Self> {
        Arc::new(Self { dice, dead: AtomicBool::new(false), tasks: Mutex::default() })
    }

    /// Runs a task that belongs to this host, as do those that it spawns through openraft.
    pub(crate) fn spawn<T: Send + 'static>(self: &Arc<Self>, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        let handle = tokio::spawn(HOST.scope(self.clone(), task));
        if self.dead.load(Ordering::Relaxed) {
            handle.abort();
        }
        let mut tasks = self.tasks.lock();
        if tasks.len() == tasks.capacity() {
            tasks.retain(|task| !task.is_finished());
        }
        tasks.push(handle.abort_handle());
        handle
    }

    /// As kill -9: no task of this host takes another step.
    pub(crate) fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.tasks.lock().drain(..).for_each(|task| task.abort());
    }
}

/// How long blocking work takes on the simulated clock; `None` outside the simulation.
pub(crate) fn blocking_pause() -> Option<Duration> {
    HOST.try_with(|host| Duration::from_micros(host.dice.below(600))).ok()
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Runtime(TokioRuntime);

impl AsyncRuntime for Runtime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = <Seeded as AsyncRuntime>::ThreadLocalRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        match HOST.try_with(Arc::clone) {
            Ok(host) => host.spawn(future),
            Err(_) => tokio::spawn(future),
        }
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: Self::Instant, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        join_error.is_panic()
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        let seed = HOST.try_with(|host| host.dice.next()).unwrap_or_else(|_| {
            let mut random = [0; 8];
            getrandom::fill(&mut random).expect("the system has random numbers");
            u64::from_be_bytes(random)
        });
        Seeded::scope(seed, async { Seeded::thread_rng() }).now_or_never().expect("is ready at once")
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F: Future<Output = T>, T>(&mut self, future: F) -> T {
        self.0.block_on(future)
    }

    fn spawn_blocking<F, T>(work: F) -> impl Future<Output = Result<T, io::Error>> + Send
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        crate::blocking::run(work)
    }
}
