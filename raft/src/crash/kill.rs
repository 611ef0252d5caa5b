//! A writer of the log, killed at random moments, again and again on the same directory.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use super::{
    Acks, Dice, Orders,
    log::{Model, check},
};
use crate::LogStoreKind;

/// How long the rounds go on, unless `QUORUMSQL_KILL_ROUNDS` says how many there are.
const TIME: Duration = Duration::from_secs(12);
/// A child whose parent is gone ends by itself.
const OPERATIONS: u64 = 20_000;

async fn kill_again_and_again(store: LogStoreKind) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("data");
    fs::create_dir(&root).unwrap();
    let wanted: Option<u64> = std::env::var("QUORUMSQL_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let (begin, mut dice, mut model) = (Instant::now(), Dice(1), Model::default());
    let (mut rounds, mut operations) = (0, 0);
    while wanted.map_or(begin.elapsed() < TIME || rounds < 3, |wanted| rounds < wanted) {
        let _absent = fs::remove_file(root.join("acks"));
        let orders = Orders { directory: root.clone(), store, seed: rounds, operations: OPERATIONS };
        let mut child = orders.start("crash::log::writer", &[]);
        let enough = dice.below(120);
        while Acks::read(&root).is_none_or(|acks| acks < enough) {
            assert!(child.try_wait().unwrap().is_none(), "round {rounds}: {}", orders.output());
            thread::sleep(Duration::from_micros(500)); // the pause between two looks
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged = Acks::read(&root).unwrap();
        operations += acknowledged;
        model = check(&root, store, &model, rounds, acknowledged).await.unwrap_or_else(|what| panic!("{store:?}, round {rounds}: {what}"));
        rounds += 1;
    }
    println!("{store:?}: {rounds} kills, {operations} acknowledged operations");
}

#[tokio::test]
async fn what_sled_acknowledged_survives_kill_9() {
    kill_again_and_again(LogStoreKind::Sled).await;
}

#[tokio::test]
async fn what_sqlite_acknowledged_survives_kill_9() {
    kill_again_and_again(LogStoreKind::Sqlite).await;
}
