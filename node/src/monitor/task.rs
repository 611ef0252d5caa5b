//! A task whose life is its handle's.

use std::future::Future;

use tokio::task::AbortHandle;

/// Aborts its task when dropped. A panic in the task stays in the task.
#[derive(Debug)]
pub(super) struct AbortOnDrop(AbortHandle);

impl AbortOnDrop {
    pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work).abort_handle())
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
