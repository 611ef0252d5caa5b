//! What a process asks of the operating system: threads, descriptors, its pid file, its parent.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::process::{Resource, Signal, getrlimit, setrlimit};

/// Threads of the control plane; workers and consensus have their own.
const CONTROL_THREADS: usize = 2;

/// The runtime of everything but the data plane and consensus.
pub(crate) fn control_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(CONTROL_THREADS).thread_name("control").enable_all().build()?)
}

/// Raises the soft limit of open files to the hard one: every client and every server connection takes one.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        eprintln!("cannot raise the limit of open files: {error}");
    }
}

/// SIGTERM when the process that started this one ends, however it ends.
pub(crate) fn stop_with_parent() -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).context("cannot follow the parent process")
}

/// A file with this process's id, removed at the end if it is still ours.
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    pub(crate) fn write(path: &Path) -> anyhow::Result<Self> {
        fs::write(path, format!("{}\n", std::process::id())).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let ours = fs::read_to_string(&self.0).is_ok_and(|text| text.trim() == std::process::id().to_string());
        if ours && let Err(error) = fs::remove_file(&self.0) {
            tracing::warn!(%error, path = %self.0.display(), "cannot remove the pid file");
        }
    }
}
