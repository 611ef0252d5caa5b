//! openraft's own storage suite over both log stores and the state machine.

use std::sync::Arc;

use openraft::{
    EntryPayload, StorageError,
    storage::RaftStateMachine,
    testing::log::{StoreBuilder, Suite},
};
use tempfile::TempDir;

use crate::{
    core::snapshot_if_ahead,
    handle::LogStoreKind,
    log_store::{LogStore, Progress},
    machine::Machine,
    snapshots::Snapshots,
    state_machine::StateMachine,
    type_config::{Entry, TypeConfig, log_id},
};

struct Builder(LogStoreKind);

impl StoreBuilder<TypeConfig, LogStore, Machine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, Machine), StorageError<TypeConfig>> {
        let directory = tempfile::tempdir().unwrap();
        let log = LogStore::open(&directory.path().join("raft"), self.0, "suite").unwrap();
        let state = StateMachine::open(&directory.path().join("state.db")).unwrap();
        let snapshots = Snapshots::open(&directory.path().join("snapshots")).unwrap();
        // The suite applies entries that no log holds: nothing to wait for (R2).
        Ok((directory, log, Machine::new(Arc::new(state), Arc::new(snapshots), None)))
    }
}

#[tokio::test]
async fn a_state_ahead_of_its_log_gets_a_snapshot_first() {
    let (_directory, log, mut machine) = Builder(LogStoreKind::Sled).build().await.unwrap();
    snapshot_if_ahead(&machine, &log).await.unwrap();
    assert!(machine.snapshots().current().is_none());
    let applied = Entry { log_id: log_id(1, 1), payload: EntryPayload::Blank };
    machine.apply(futures::stream::iter([Ok((applied, None))])).await.unwrap();
    snapshot_if_ahead(&machine, &log).await.unwrap();
    assert_eq!(machine.snapshots().current().unwrap().meta.last_log_id, Some(log_id(1, 1)));
}

#[tokio::test]
async fn apply_waits_for_the_own_log_and_fails_with_it() {
    let (directory, _log, machine) = Builder(LogStoreKind::Sqlite).build().await.unwrap();
    let (progress, watch) = tokio::sync::watch::channel(Progress::default());
    let state = Arc::new(StateMachine::open(&directory.path().join("other.db")).unwrap());
    let mut machine = Machine::new(state.clone(), machine.snapshots().clone(), Some(watch));
    let mut other = machine.clone();
    let entry = |index| Ok((Entry { log_id: log_id(1, index), payload: EntryPayload::Blank }, None));
    let mut applying = std::pin::pin!(machine.apply(futures::stream::iter([entry(1)])));
    assert!(futures::poll!(applying.as_mut()).is_pending());
    assert_eq!(state.applied().index, 0);
    progress.send_modify(|progress| progress.flushed_below = 2);
    applying.await.unwrap();
    assert_eq!(state.applied().index, 1);

    progress.send_modify(|progress| progress.failed = Some("disk".into()));
    assert!(other.apply(futures::stream::iter([entry(2)])).await.is_err());
}

#[tokio::test]
async fn sled_and_the_state_machine_keep_openrafts_contract() {
    Suite::test_all(Builder(LogStoreKind::Sled)).await.unwrap();
}

#[tokio::test]
async fn sqlite_and_the_state_machine_keep_openrafts_contract() {
    Suite::test_all(Builder(LogStoreKind::Sqlite)).await.unwrap();
}
