//! One life of a node: openraft, the log store, the machine with its `state.db` and the proposer, as `core` puts them together.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use openraft::{Config, async_runtime::WatchReceiver};
use parking_lot::Mutex;
use quorumsql_proto::peer as pb;

use super::{
    disk::Disk,
    network::{Dialer, Network},
    runtime::Host,
};
use crate::{
    command::{Outcome, Request, TableRows, Validator},
    core::{RaftLog, leadership, snapshot_if_ahead},
    log_store::LogStore,
    machine::Machine,
    network::request,
    proposer::{Proposer, ProposerAnswer},
    snapshots::Snapshots,
    state_machine::StateMachine,
    type_config::{Metrics, Raft},
};

/// What a life is made of.
pub(crate) struct Parts {
    pub(crate) id: u64,
    pub(crate) host: Arc<Host>,
    pub(crate) config: Arc<Config>,
    pub(crate) network: Network,
    pub(crate) disk: Disk,
    pub(crate) directory: PathBuf,
    pub(crate) mutation: Mutation,
}

/// What is broken in the machine of a node, to see that it is noticed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Mutation {
    #[default]
    None,
    /// Apply does not wait for the own log (R2).
    AppliesUnflushed,
    /// This entry is not applied.
    Skips { index: u64 },
}

pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) host: Arc<Host>,
    pub(crate) raft: Raft,
    pub(crate) state: Arc<StateMachine>,
    pub(crate) snapshots: Arc<Snapshots>,
    proposer: Proposer,
    network: Network,
    /// Why its part in consensus is over.
    ended: Mutex<Option<String>>,
}

impl Node {
    /// Opens storage in the order of rules R1–R4 and starts everything.
    pub(crate) async fn start(parts: Parts) -> Result<Arc<Self>, String> {
        let host = parts.host.clone();
        let started = host.spawn(Self::open(parts)).await;
        started.map_err(|e| e.to_string())?
    }

    async fn open(parts: Parts) -> Result<Arc<Self>, String> {
        let Parts { id, host, config, network, disk, directory, mutation } = parts;
        let (log, state, snapshots) = open_storage(&host, disk, &directory).map_err(|e| e.to_string())?;
        let progress = (mutation != Mutation::AppliesUnflushed).then(|| log.progress());
        let mut machine = Machine::new(state.clone(), snapshots.clone(), progress);
        if let Mutation::Skips { index } = mutation {
            machine.skip(index);
        }
        snapshot_if_ahead(&machine, &log).await.map_err(|e| e.to_string())?;
        let dialer = Dialer { network: network.clone(), from: id };
        let raft = Raft::build(id, config, dialer, log, machine).await.map_err(|e| e.to_string())?;
        let (proposer, task) = Proposer::new(state.clone(), Arc::new(RaftLog { raft: raft.clone() }), Arc::new(AnyRows));
        host.spawn(task);
        let node = Arc::new(Self { id, host: host.clone(), raft, state, snapshots, proposer, network, ended: Mutex::default() });
        node.raft.run();
        let followed = node.clone();
        host.spawn(async move {
            let reason = leadership::follow(&followed.raft, id, &followed.proposer, |_| {}).await;
            *followed.ended.lock() = Some(reason);
        });
        Ok(node)
    }

    pub(crate) fn metrics(&self) -> Metrics {
        self.raft.metrics().borrow_watched().clone()
    }

    pub(crate) fn ended(&self) -> Option<String> {
        self.ended.lock().clone()
    }

    /// One attempt at a client's write; `None` = nothing was proposed.
    pub(crate) async fn execute(&self, request: Request) -> Option<Outcome> {
        match self.metrics().current_leader? {
            leader if leader == self.id => decided(self.proposer.execute(request).await),
            leader => {
                let timeout = request.timeout;
                let forwarded = self.network.forward(self.id, leader, request::request_to(&request, timeout));
                match tokio::time::timeout(timeout, forwarded).await {
                    Ok(Some(response)) => request::outcome_from(response).expect("a leader answers in its own format"),
                    Ok(None) | Err(_) => Some(unknown()),
                }
            }
        }
    }

    pub(crate) async fn execute_forwarded(&self, request: pb::ForwardRequest) -> Option<pb::ForwardResponse> {
        let request = request::request_from(request).ok()?;
        Some(match decided(self.proposer.execute(request).await) {
            Some(outcome) => request::outcome_to(outcome),
            None => pb::ForwardResponse { result: Some(pb::forward_response::Result::NotLeader(pb::NotLeader::default())) },
        })
    }
}

/// The answer when none came.
pub(crate) fn unknown() -> Outcome {
    Outcome::Unknown(crate::command::Rejection::read_only("no answer"))
}

fn decided(answer: ProposerAnswer) -> Option<Outcome> {
    match answer {
        ProposerAnswer::Outcome(outcome) => Some(outcome),
        ProposerAnswer::NotLeader => None,
    }
}

fn open_storage(host: &Arc<Host>, disk: Disk, directory: &Path) -> io::Result<(LogStore, Arc<StateMachine>, Arc<Snapshots>)> {
    let writer = (disk.clone(), host.clone());
    let run = move |writes| {
        let (disk, host) = writer;
        host.spawn(disk.write(writes));
        Ok(())
    };
    let log = LogStore::recover(Box::new(disk), "simulated", run).map_err(io::Error::other)?;
    let state = StateMachine::open(&directory.join("state.db")).map_err(io::Error::other)?;
    let snapshots = Snapshots::open(&directory.join("snapshots"))?;
    Ok((log, Arc::new(state), Arc::new(snapshots)))
}

/// How long a client waits for one attempt.
pub(crate) const ATTEMPT: Duration = Duration::from_secs(2);

struct AnyRows;

impl Validator for AnyRows {
    fn validate(&self, _: &str, _: &[TableRows]) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }
}
