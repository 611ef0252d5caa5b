//! openraft's own storage suite over both log stores and the state machine.

use std::sync::Arc;

use openraft::{
    StorageError,
    testing::log::{StoreBuilder, Suite},
};
use tempfile::TempDir;

use crate::{
    handle::LogStoreKind, log_store::LogStore, machine::Machine, snapshots::Snapshots, state_machine::StateMachine, type_config::TypeConfig,
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
async fn sled_and_the_state_machine_keep_openrafts_contract() {
    Suite::test_all(Builder(LogStoreKind::Sled)).await.unwrap();
}

#[tokio::test]
async fn sqlite_and_the_state_machine_keep_openrafts_contract() {
    Suite::test_all(Builder(LogStoreKind::Sqlite)).await.unwrap();
}
