//! Five nodes, their disks and the network between them, on one simulated clock.

use std::{
    collections::BTreeMap,
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use openraft::{Config, ServerState};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::time::Instant;

use super::{
    checker::{Failure, Journal},
    dice::Dice,
    disk::{Disk, Tail},
    network::Network,
    node::{Mutation, Node, Parts},
    runtime::Host,
};
use crate::{core, handle::Timings, type_config::Member};

pub(crate) const NODES: Range<u64> = 1..6;

/// What a schedule may change of the cluster before it starts.
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// As in production unless a mutant is wanted.
    pub(crate) config: Config,
    /// Time of a message.
    pub(crate) delay: Range<Duration>,
    /// Time of a flush.
    pub(crate) flush: Range<Duration>,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let config = core::config("simulated", &Timings::default()).expect("the default timings are valid");
        Self { seed, config, delay: us(300)..us(2300), flush: us(500)..ms(15) }
    }
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// What a crash leaves of `state.db`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rows {
    /// All that was committed, as after kill -9.
    All,
    /// What was there when the node started, as after a power loss without a checkpoint since (`synchronous` is NORMAL).
    OfTheStart,
}

pub(crate) struct Cluster {
    pub(crate) seed: u64,
    pub(crate) network: Network,
    pub(crate) journal: Arc<Journal>,
    config: Arc<Config>,
    disks: BTreeMap<u64, Disk>,
    mutations: Mutex<BTreeMap<u64, Mutation>>,
    lives: AtomicU64,
    directory: TempDir,
}

/// Runs a simulation: one thread, and a clock that jumps to the next timer whenever nothing is left to do.
pub(crate) fn simulate<T>(body: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(body)
}

impl Cluster {
    /// Five empty nodes that have become one cluster.
    pub(crate) async fn form(plan: Plan) -> Arc<Self> {
        let Plan { seed, config, delay, flush } = plan;
        let cluster = Arc::new(Self {
            seed,
            network: Network::new(seed, delay),
            journal: Arc::new(Journal::new()),
            config: Arc::new(config),
            disks: NODES.map(|id| (id, Disk::new(Dice::of(seed, &[DISK, id]), flush.clone()))).collect(),
            mutations: Mutex::default(),
            lives: AtomicU64::new(0),
            directory: directory(),
        });
        for id in NODES {
            cluster.start(id).await;
        }
        let member = |id| (id, Member { raft_addr: format!("node{id}:6035"), name: format!("node{id}") });
        let first = cluster.network.node(1).expect("just started");
        first.raft.initialize(NODES.map(member).collect::<BTreeMap<_, _>>()).await.expect("an empty node can be initialized");
        cluster.leader().await;
        cluster
    }

    pub(crate) fn disk(&self, id: u64) -> &Disk {
        &self.disks[&id]
    }

    /// From the node's next start on.
    pub(crate) fn mutate(&self, id: u64, mutation: Mutation) {
        self.mutations.lock().insert(id, mutation);
    }

    pub(crate) fn is_up(&self, id: u64) -> bool {
        self.network.node(id).is_some()
    }

    /// Starts a node that is down.
    pub(crate) async fn start(&self, id: u64) {
        let life = self.lives.fetch_add(1, Ordering::Relaxed);
        let host = Host::new(Dice::of(self.seed, &[HOST, id, life]));
        let mutation = self.mutations.lock().get(&id).copied().unwrap_or_default();
        self.save_state(id).expect("files can be copied");
        let parts = Parts {
            id,
            host,
            config: self.config.clone(),
            network: self.network.clone(),
            disk: self.disks[&id].clone(),
            directory: self.directory.path().join(id.to_string()),
            mutation,
        };
        match Node::start(parts).await {
            Ok(node) => {
                let applied = node.state.applied();
                self.journal.note(format!("node {id} starts, applied ({}, {})", applied.term, applied.index));
                self.network.plug(&node);
            }
            Err(reason) => self.journal.fail(Failure::Ended { node: id, reason: format!("does not start: {reason}") }),
        }
    }

    /// One node stops where it is, its unflushed writes are gone or not.
    pub(crate) fn crash(&self, id: u64, tail: Tail, rows: Rows) {
        let Some(node) = self.network.node(id) else { return };
        node.host.kill();
        self.network.unplug(id);
        self.check_alive(&node);
        let lost = self.disks[&id].crash(tail);
        if rows == Rows::OfTheStart {
            self.restore_state(id).expect("files can be copied");
        }
        let applied = node.state.applied();
        self.journal.note(format!("node {id} crashes, {lost} writes lost, applied ({}, {}), {rows:?}", applied.term, applied.index));
    }

    fn state_files(&self, id: u64) -> [(PathBuf, PathBuf); 2] {
        let directory = self.directory.path().join(id.to_string());
        ["state.db", "state.db-wal"].map(|name| (directory.join(name), directory.join(format!("saved.{name}"))))
    }

    fn save_state(&self, id: u64) -> io::Result<()> {
        self.state_files(id).iter().try_for_each(|(file, saved)| copy_or_remove(file, saved))
    }

    /// New files: who still has the old ones open changes nothing in them.
    fn restore_state(&self, id: u64) -> io::Result<()> {
        let files = self.state_files(id);
        for (file, _) in &files {
            remove(file)?;
        }
        remove(&files[0].0.with_extension("db-shm"))?;
        files.iter().try_for_each(|(file, saved)| copy_or_remove(saved, file))
    }

    /// What must hold of a node at every time.
    pub(crate) fn check_alive(&self, node: &Node) {
        if let Some(reason) = node.ended() {
            self.journal.fail(Failure::Ended { node: node.id, reason });
        }
        let (applied, durable_below) = (node.state.applied(), self.disks[&node.id].durable_below());
        let in_snapshot = node.snapshots.current().and_then(|snapshot| snapshot.meta.last_log_id);
        let covered = in_snapshot.is_some_and(|last| last.index >= applied.index);
        if applied.index >= durable_below && !covered && !applied.membership.is_empty() {
            self.journal.fail(Failure::AheadOfLog { node: node.id, applied: applied.index, durable_below });
        }
    }

    /// The node that leads the highest term, if it knows that it does.
    pub(crate) fn known_leader(&self) -> Option<Arc<Node>> {
        let nodes = self.network.nodes();
        let leads = |node: &&Arc<Node>| node.metrics().state == ServerState::Leader;
        nodes.iter().filter(leads).max_by_key(|node| node.metrics().current_term).cloned()
    }

    /// Waits for a leader; a cluster that has a majority gets one.
    pub(crate) async fn leader(&self) -> Arc<Node> {
        self.leader_among(&NODES.collect::<Vec<_>>()).await
    }

    /// Waits for a leader that is one of `ids` and whose followers know it.
    pub(crate) async fn leader_among(&self, ids: &[u64]) -> Arc<Node> {
        let found = || {
            let leader = self.known_leader().filter(|leader| ids.contains(&leader.id))?;
            let knows = |node: &&Arc<Node>| node.metrics().current_leader == Some(leader.id);
            let following = self.network.nodes().iter().filter(knows).count();
            (following > ids.len() / 2).then_some(leader)
        };
        self.until("a leader", ms(60_000), found).await.expect("a cluster with a majority elects a leader")
    }

    /// Waits until `found` gives something. Without it within `limit` of simulated time, the failure is noted.
    pub(crate) async fn until<T>(&self, what: &str, limit: Duration, found: impl Fn() -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(found) = found() {
                return Some(found);
            }
            if Instant::now() >= deadline {
                self.journal.fail(Failure::NoProgress(format!("{what} within {limit:?}")));
                return None;
            }
            tokio::time::sleep(ms(1)).await;
        }
    }

    /// Repairs the network and starts who is down.
    pub(crate) async fn heal(&self) {
        self.network.heal();
        for id in NODES.filter(|id| !self.is_up(*id)) {
            self.start(id).await;
        }
        self.journal.note("healed".into());
    }

    /// After healing: all nodes run and have applied the same entries.
    pub(crate) async fn settle(&self) {
        let settled = || {
            let positions: Vec<_> = self.network.nodes().iter().map(|node| node.metrics()).collect();
            let last = positions.iter().map(|metrics| metrics.last_log_index).max()?;
            let equal = positions.iter().all(|metrics| metrics.last_applied.map(|id| id.index) == last);
            let one_leader = positions.iter().all(|metrics| metrics.current_leader.is_some());
            (equal && one_leader && positions.len() == NODES.count()).then_some(())
        };
        let ended = || self.network.nodes().iter().any(|node| node.ended().is_some()).then_some(());
        self.until("all nodes at the same index", ms(60_000), || settled().or_else(ended)).await;
        self.network.nodes().iter().for_each(|node| self.check_alive(node));
    }

    pub(crate) fn state_db(&self, id: u64) -> PathBuf {
        self.directory.path().join(id.to_string()).join("state.db")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.network.nodes().iter().for_each(|node| node.host.kill());
    }
}

fn copy_or_remove(from: &Path, to: &Path) -> io::Result<()> {
    if from.exists() { fs::copy(from, to).map(drop) } else { remove(to) }
}

fn remove(file: &Path) -> io::Result<()> {
    if file.exists() { fs::remove_file(file) } else { Ok(()) }
}

const DISK: u64 = 1;
const HOST: u64 = 2;

/// In memory where the system has such a place: SQLite's syncs cost nothing there.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let made = made.expect("a directory");
    for id in NODES {
        fs::create_dir(made.path().join(id.to_string())).expect("a directory");
    }
    made
}
