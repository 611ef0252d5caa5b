//! Two nodes whose tables differ at the same index: noticed, judged by the majority, ended (raft-and-storage.md 4.8).
//!
//! ```text
//!  apply: `expect` or a row contradicts ─┐
//!                                        ├─► Doubt ─► inquiry: (index, root) to all voters ─► verdict ─► go on | stop
//!  a peer reports another root ──────────┘                │
//!                                                         └─► each voter that is contradicted doubts itself, too
//! ```
//! An entry that contradicts this node's tables is not applied before the verdict. If the majority of voters has this node's root,
//! the leader was wrong, and the entry is applied if it fits. If the majority has another one, this node is wrong: it keeps a copy
//! of its tables as `state.db.diverged-<index>`, takes no part in consensus any more, and its process ends with 79 when more than one
//! other voter remains. Where no root has a majority, consensus stops on every node that is asked, and data planes go on.

mod inquiry;
mod verdict;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

pub(crate) use inquiry::{answer, run};

use crate::error::StartError;

/// Exit code of a node whose tables a majority contradicts.
pub(crate) const EXIT_DIVERGED: u8 = 79;
/// Exit code of a build that does not understand its log.
pub(crate) const EXIT_UNDECODABLE: u8 = 78;

/// Doubts that wait for the one before them; reports beyond that are repeated by their senders.
const WAITING: usize = 16;

/// Why this process has to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leave {
    /// 78: this build does not understand the log. 79: a majority contradicts this node's tables.
    pub exit_code: u8,
    /// For the log.
    pub reason: String,
}

/// This node's tables at an index are contradicted.
#[derive(Debug)]
pub(crate) struct Doubt {
    /// The index.
    at: u64,
    /// By whom and how.
    reason: String,
    /// Where apply waits for the verdict; an error is why it must not go on.
    reply: Option<oneshot::Sender<Result<(), String>>>,
}

/// Where doubts are put, and what has become of them. Clones are one.
#[derive(Clone)]
pub(crate) struct Divergence {
    doubts: mpsc::Sender<Doubt>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The doubt that is being judged: until then nothing here is served as current.
    pending: Mutex<Option<String>>,
    /// A majority contradicts this node, or there is no majority.
    confirmed: AtomicBool,
    /// The last foreign root that the majority has found wrong, and its index.
    dismissed: Mutex<Option<(u64, u128)>>,
    leave: watch::Sender<Option<Leave>>,
}

impl Divergence {
    /// The receiver is for [`run`].
    pub(crate) fn new() -> (Self, mpsc::Receiver<Doubt>) {
        let (doubts, waiting) = mpsc::channel(WAITING);
        (Self { doubts, shared: Arc::default() }, waiting)
    }

    /// An entry contradicts this node's tables at `at`: waits for the verdict. An error is why this node must not go on.
    pub(crate) async fn judge(&self, at: u64, reason: String) -> Result<(), String> {
        let (reply, verdict) = oneshot::channel();
        let ended = || "consensus has ended".to_owned();
        self.doubts.send(Doubt { at, reason, reply: Some(reply) }).await.map_err(|_| ended())?;
        verdict.await.map_err(|_| ended())?
    }

    /// A peer has `root` at `at`, this node another one.
    fn reported(&self, at: u64, root: u128, peer: u64) {
        if *self.shared.dismissed.lock() == Some((at, root)) {
            return;
        }
        let reason = format!("node {peer} reports the root {root:032x} at index {at}");
        // Full: the sender asks again until it has a verdict.
        let _ = self.doubts.try_send(Doubt { at, reason, reply: None });
    }

    /// Why nothing here can be called current just now.
    pub(crate) fn pending(&self) -> Option<String> {
        self.shared.pending.lock().clone()
    }

    /// Whether this node's tables are known to differ from a majority's, or there is none.
    pub(crate) fn confirmed(&self) -> bool {
        self.shared.confirmed.load(Ordering::Relaxed)
    }

    /// The process has to end; the first reason counts.
    pub(crate) fn leave(&self, exit_code: u8, reason: String) {
        self.shared.leave.send_if_modified(|leave| {
            let first = leave.is_none();
            leave.get_or_insert(Leave { exit_code, reason });
            first
        });
    }

    /// Waits until the process has to end.
    pub(crate) fn leaving(&self) -> watch::Receiver<Option<Leave>> {
        self.shared.leave.subscribe()
    }
}

/// `state.db.diverged-<index>` beside `state.db`.
fn copy_name(state: &Path, index: u64) -> PathBuf {
    state.with_file_name(format!("{DIVERGED}{index}"))
}

const DIVERGED: &str = "state.db.diverged-";

/// A node that a majority has contradicted does not come back with the same tables: it is replaced.
pub(crate) fn refuse_contradicted(directory: &Path, node_id: u64) -> Result<(), StartError> {
    let entries = std::fs::read_dir(directory).map_err(|e| StartError::Storage(format!("{}: {e}", directory.display())))?;
    let found = entries.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with(DIVERGED));
    match found {
        None => Ok(()),
        Some(entry) => Err(StartError::Diverged(format!(
            "a majority of voters has contradicted the tables of this node ({}); replace it: quorumsql join --replace {node_id} in an \
             empty data directory",
            entry.path().display()
        ))),
    }
}
