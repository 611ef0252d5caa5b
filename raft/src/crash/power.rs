//! Loss of power under both log stores.

use std::{fs, path::Path};

use super::{
    Dice, Orders,
    disk::{Loss, Recording, recorder},
    log::{Model, check},
};
use crate::LogStoreKind;

/// Points tried for each kind of loss.
const POINTS: usize = 10;

/// Lets a child work with the recorder and returns what it did.
pub(super) fn record(directory: &Path, test: &str, store: LogStoreKind, operations: u64) -> Recording {
    let directory = fs::canonicalize(directory).unwrap();
    let (root, log) = (directory.join("data"), directory.join("log"));
    fs::create_dir(&root).unwrap();
    let orders = Orders { directory: root.clone(), store, seed: 7, operations };
    let (recorder, root_text, log_text) = (recorder(&directory), root.display().to_string(), log.display().to_string());
    let environment = [("LD_PRELOAD", recorder.to_str().unwrap()), ("POWER_ROOT", &root_text), ("POWER_LOG", &log_text)];
    let status = orders.start(test, &environment).wait().unwrap();
    assert!(status.success(), "{}", orders.output());
    Recording::read(&log, &root)
}

/// Failures among so many points.
async fn failures(recording: &Recording, store: LogStoreKind, loss: Loss, dice: &mut Dice) -> Vec<String> {
    let mut failures = Vec::new();
    for _ in 0..POINTS {
        let directory = tempfile::tempdir().unwrap();
        let point = recording.point(dice);
        recording.lose_power(point, loss, dice, directory.path());
        if let Err(what) = check(directory.path(), store, &Model::default(), 7, recording.acknowledged(point)).await {
            failures.push(format!("{loss:?} at {point}: {what}"));
        }
    }
    failures
}

async fn the_log_survives(store: LogStoreKind, flushed: &str) {
    let directory = tempfile::tempdir().unwrap();
    let recording = record(directory.path(), "crash::log::writer", store, 400);
    let mut dice = Dice(3);
    for loss in Loss::ALL {
        assert_eq!(failures(&recording, store, loss, &mut dice).await, [""; 0], "{store:?}");
    }
    // Without the store's flush of that file the same points must fail, or this test sees nothing.
    let unsafe_store = recording.deaf(flushed);
    assert!(!failures(&unsafe_store, store, Loss::All, &mut dice).await.is_empty(), "{store:?}: a lost flush went unnoticed");
}

#[tokio::test]
async fn what_sled_acknowledged_survives_loss_of_power() {
    the_log_survives(LogStoreKind::Sled, "log/db").await;
}

#[tokio::test]
async fn what_sqlite_acknowledged_survives_loss_of_power() {
    the_log_survives(LogStoreKind::Sqlite, "log.sqlite-wal").await;
}
