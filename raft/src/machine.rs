//! The state machine as openraft drives it: waits, threads and snapshots around the pure [`StateMachine`].

use std::{io, sync::Arc};

use futures::{Stream, StreamExt};
use openraft::{
    EntryPayload, RaftSnapshotBuilder,
    storage::{EntryResponder, RaftStateMachine},
};
use tokio::sync::watch;
use tracing::Instrument;

use crate::{
    blocking,
    divergence::{Divergence, EXIT_UNDECODABLE},
    log_store::Progress,
    network::convert,
    snapshots::Snapshots,
    state_machine::{ApplyEntry, ApplyResult, Payload, StateMachine, StorageError},
    type_config::{Answer, Entry, LogId, Snapshot, SnapshotData, SnapshotMeta, StoredMembership, TypeConfig, log_id, or_zero, term_of},
};

/// Entries of one SQLite transaction.
const BATCH: usize = 256;

/// Clones are one machine.
#[derive(Clone)]
pub(crate) struct Machine {
    state: Arc<StateMachine>,
    snapshots: Arc<Snapshots>,
    /// Apply waits until the own log holds the entries durably (R2). `None` only where there is no log, in the storage suite.
    log: Option<watch::Receiver<Progress>>,
    /// An entry that is not applied: the simulation must notice.
    #[cfg(test)]
    skipped: Option<u64>,
    /// Who judges when an entry contradicts the tables; `None` = nobody, then apply fails.
    divergence: Option<Divergence>,
}

impl Machine {
    pub(crate) fn new(state: Arc<StateMachine>, snapshots: Arc<Snapshots>, log: Option<watch::Receiver<Progress>>) -> Self {
        Self {
            state,
            snapshots,
            log,
            #[cfg(test)]
            skipped: None,
            divergence: None,
        }
    }

    #[cfg(test)]
    pub(crate) fn skip(&mut self, index: u64) {
        self.skipped = Some(index);
    }

    /// With somebody to judge contradictions, and to end the process when this build does not understand an entry.
    pub(crate) fn judged_by(self, divergence: Divergence) -> Self {
        Self { divergence: Some(divergence), ..self }
    }

    pub(crate) fn snapshots(&self) -> &Arc<Snapshots> {
        &self.snapshots
    }

    /// What is applied, and the membership in it.
    pub(crate) fn applied(&self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let applied = self.state.applied();
        // A cluster's first entry is (0, 0), a membership; without one nothing is applied.
        let some = applied.term != 0 || applied.index != 0 || !applied.membership.is_empty();
        Ok((some.then(|| log_id(applied.term, applied.index)), convert::decode_membership(&applied.membership)?))
    }

    /// Builds a snapshot and makes it the current one.
    pub(crate) async fn snapshot(&self) -> io::Result<Snapshot> {
        let (state, snapshots) = (self.state.clone(), self.snapshots.clone());
        let built = move || {
            let file = state.build_snapshot(snapshots.directory()).map_err(io::Error::other)?;
            snapshots.adopt_built(&file)
        };
        blocking::run(built).await?
    }

    async fn wait_until_durable(&mut self, index: u64) -> io::Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let progress = log
            .wait_for(|progress| progress.flushed_below > index || progress.failed.is_some())
            .await
            .map_err(|_| io::Error::other("the log writer has stopped"))?;
        match &progress.failed {
            None => Ok(()),
            Some(reason) => Err(io::Error::other(reason.clone())),
        }
    }
}

impl Machine {
    /// Applies a batch; an entry that contradicts this node's tables only after a majority of voters has found them right.
    async fn apply_rows(&self, mut rows: Vec<ApplyEntry>) -> io::Result<Vec<ApplyResult>> {
        let (mut results, mut judged) = (Vec::with_capacity(rows.len()), None);
        loop {
            let (index, at, reason) = match self.apply_once(rows.clone(), judged).await? {
                Ok(more) => {
                    results.extend(more);
                    return Ok(results);
                }
                Err(StorageError::Diverged { index, at, reason }) => (index, at, format!("entry {index} does not fit: {reason}")),
                Err(e) => return Err(self.leave_if_undecodable(e)),
            };
            // What comes before the entry is beyond doubt.
            let rest = rows.split_off(rows.iter().position(|row| row.index == index).unwrap_or_default());
            results.extend(self.apply_once(rows, Some(index)).await?.map_err(io::Error::other)?);
            let Some(divergence) = &self.divergence else { return Err(io::Error::other(reason)) };
            divergence.judge(at, reason).await.map_err(io::Error::other)?;
            (rows, judged) = (rest, Some(index));
        }
    }

    async fn apply_once(&self, rows: Vec<ApplyEntry>, judged: Option<u64>) -> io::Result<Result<Vec<ApplyResult>, StorageError>> {
        let (state, span) = (self.state.clone(), tracing::Span::current());
        let work = move || match judged {
            None => state.apply(rows),
            Some(judged) => state.apply_judged(rows, judged),
        };
        blocking::run(move || span.in_scope(work)).await
    }

    /// An entry that this build can't understand ends the process: to skip it would let this node differ from the others.
    fn leave_if_undecodable(&self, e: StorageError) -> io::Error {
        if let Some(divergence) = self.divergence.as_ref().filter(|_| e.is_undecodable()) {
            divergence.leave(EXIT_UNDECODABLE, e.to_string());
        }
        io::Error::other(e)
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        self.applied()
    }

    async fn apply<S>(&mut self, entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + Send,
    {
        let mut batches = entries.ready_chunks(BATCH);
        while let Some(batch) = batches.next().await {
            let (mut rows, mut responders) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
            for item in batch {
                let (entry, responder) = item?;
                let row = to_apply(&entry);
                #[cfg(test)]
                let row = if self.skipped == Some(row.index) { ApplyEntry { payload: Payload::Blank, ..row } } else { row };
                rows.push(row);
                responders.push(responder);
            }
            let Some(last) = rows.last().map(|row| row.index) else { continue };
            self.wait_until_durable(last).await?;
            let span = tracing::info_span!("raft.apply", raft.index = last, raft.entries = rows.len());
            let results = self.apply_rows(rows).instrument(span).await?;
            if results.len() != responders.len() {
                return Err(io::Error::other("apply answered another number of entries than it was given"));
            }
            for (responder, result) in responders.into_iter().zip(results) {
                if let Some(responder) = responder {
                    responder.send(Answer(Some(result)));
                }
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: SnapshotData) -> Result<(), io::Error> {
        let (machine, state, snapshots, meta) = (self.clone(), self.state.clone(), self.snapshots.clone(), meta.clone());
        let install = move || {
            let id = or_zero(meta.last_log_id);
            let membership = convert::encode_membership(&meta.last_membership);
            state.install_snapshot(&snapshot.path, term_of(&id), id.index, membership).map_err(|e| machine.leave_if_undecodable(e))?;
            tracing::info!(term = term_of(&id), index = id.index, bytes = snapshot.size, "snapshot installed");
            snapshots.adopt_installed(&meta, snapshot)
        };
        blocking::run(install).await?
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        Ok(self.snapshots.current())
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Machine {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        self.snapshot().await
    }
}

fn to_apply(entry: &Entry) -> ApplyEntry {
    let payload = match &entry.payload {
        // Position (0, 0) with no membership means "nothing applied": an empty membership tells it apart.
        EntryPayload::Blank if entry.log_id == log_id(0, 0) => {
            Payload::Membership(convert::encode_membership(&StoredMembership::default()))
        }
        EntryPayload::Blank => Payload::Blank,
        EntryPayload::Normal(data) => Payload::Data(data.0.clone()),
        EntryPayload::Membership(membership) => {
            let stored = StoredMembership::new(Some(entry.log_id), membership.clone());
            Payload::Membership(convert::encode_membership(&stored))
        }
    };
    ApplyEntry { term: term_of(&entry.log_id), index: entry.log_id.index, payload }
}
