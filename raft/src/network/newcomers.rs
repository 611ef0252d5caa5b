//! Peers and clients that have not shown yet who they are, bounded: those who connect and never speak can neither use up
//! descriptors nor keep others from coming in.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// The tasks of newcomers. When there are too many, the one that has been waiting longest is aborted: who means to speak has
/// done so long before. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Newcomers {
    max: usize,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    tasks: BTreeMap<u64, AbortHandle>,
    last: u64,
}

/// A newcomer's place; dropping it says that it is none any more.
#[derive(Debug)]
#[must_use = "the place is given up when it is dropped"]
pub struct Newcomer {
    number: u64,
    waiting: Arc<Mutex<Waiting>>,
}

impl Newcomers {
    /// At most `max` at once.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { max, waiting: Arc::default() }
    }

    /// Starts a newcomer's task by `spawn`; true if an older one was aborted for it. The task drops its place once the newcomer
    /// has shown who it is.
    pub fn admit(&self, spawn: impl FnOnce(Newcomer) -> AbortHandle) -> bool {
        let mut waiting = self.waiting.lock();
        let oldest = if waiting.tasks.len() >= self.max { waiting.tasks.pop_first() } else { None };
        waiting.last += 1;
        let number = waiting.last;
        // The lock is held, so that a task which ends at once finds its entry.
        let task = spawn(Newcomer { number, waiting: Arc::clone(&self.waiting) });
        waiting.tasks.insert(number, task);
        drop(waiting);
        oldest.inspect(|(_, task)| task.abort()).is_some()
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.waiting.lock().tasks.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn the_oldest_makes_room_and_who_has_spoken_counts_no_more() {
        let newcomers = Newcomers::new(2);
        let come = |speaks: oneshot::Receiver<()>| {
            let (ended, end) = oneshot::channel();
            let spawn = move |place: Newcomer| {
                let task = async move {
                    let spoke = speaks.await.is_ok();
                    drop(place);
                    let _ = ended.send(spoke);
                };
                tokio::spawn(task).abort_handle()
            };
            (newcomers.admit(spawn), end)
        };
        let (_silent, speaks) = oneshot::channel();
        let (made_room, first) = come(speaks);
        let (speak, speaks) = oneshot::channel();
        let (_, second) = come(speaks);
        let (_also_silent, speaks) = oneshot::channel();
        let (made_more_room, _third) = come(speaks);
        assert_eq!((made_room, made_more_room), (false, true));
        assert!(first.await.is_err(), "aborted");
        speak.send(()).unwrap();
        assert_eq!(second.await, Ok(true));
        let (_again_silent, speaks) = oneshot::channel();
        assert!(!come(speaks).0, "there is a free place");
    }
}
