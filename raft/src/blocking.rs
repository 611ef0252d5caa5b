//! Work that waits for files and SQLite, kept off the threads that answer peers.

use std::io;

/// Runs `work` where it may block. An error says that it panicked, or that the runtime has ended.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    #[cfg(test)]
    if let Some(pause) = crate::sim::blocking_pause() {
        // The simulation has one thread and its own clock.
        tokio::time::sleep(pause).await;
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}
