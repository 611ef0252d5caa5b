//! Random faults over many seeds.

use std::{
    collections::BTreeSet,
    panic,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    checker::{Counts, Failure, Journal, check},
    client::Client,
    cluster::{Cluster, NODES, Plan, ms, simulate},
    faults,
};

/// Simulated time of faults, a seed.
const FAULTS_MS: u64 = 12_000;
const CLIENTS: u64 = 4;
/// Seeds of a run; `QUORUMSQL_SIM_SEEDS` takes another number of them, `QUORUMSQL_SIM_SEED` one.
const SEEDS: u64 = 24;

#[test]
fn nothing_acknowledged_is_lost_under_random_faults() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seeds = match number("QUORUMSQL_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("QUORUMSQL_SIM_SEEDS").unwrap_or(SEEDS) + 1,
    };
    let (next, last) = (AtomicU64::new(seeds.start), seeds.end);
    let (total, failed) = (Mutex::new(Counts::default()), Mutex::new(BTreeSet::new()));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= last {
                        return;
                    }
                    let Ok(journal) = panic::catch_unwind(|| run(seed, ms(FAULTS_MS))) else {
                        println!("seed {seed}: the simulation itself panicked");
                        failed.lock().insert(seed);
                        continue;
                    };
                    total.lock().add(journal.counts());
                    if !journal.failures().is_empty() {
                        failed.lock().insert(seed);
                        println!("seed {seed}: {:#?}\n{}", journal.failures(), journal.events().join("\n"));
                    }
                }
            });
        }
    });
    println!("{} seeds: {}", last - seeds.start, total.lock());
    let failed = failed.lock();
    assert!(failed.is_empty(), "seeds {failed:?} failed; QUORUMSQL_SIM_SEED runs one again");
    assert!(total.lock().acknowledged > 0);
}

#[test]
fn one_seed_has_one_history() {
    let (first, again) = (run(5, ms(5000)), run(5, ms(5000)));
    for (line, (first, again)) in first.events().iter().zip(again.events()).enumerate() {
        assert_eq!(*first, again, "event {line}");
    }
    assert_eq!(first.events().len(), again.events().len());
    assert_ne!(first.events(), run(6, ms(1000)).events());
}

/// One seed: clients write while faults happen, then all is repaired, and everything must be there.
fn run(seed: u64, duration: Duration) -> Arc<Journal> {
    simulate(async {
        let cluster = Cluster::form(Plan::new(seed)).await;
        let end = Instant::now() + duration;
        let clients: Vec<_> = (1..=CLIENTS)
            .map(|number| {
                let cluster = cluster.clone();
                tokio::spawn(async move { Client::new(seed, number).run(&cluster, end).await })
            })
            .collect();
        faults::run(cluster.clone(), end).await;
        for client in clients {
            client.await.expect("a client does not fail");
        }
        cluster.heal().await;
        must_progress(&cluster).await;
        cluster.settle().await;
        check(&cluster);
        cluster.journal.clone()
    })
}

/// After the repair every node takes writes.
async fn must_progress(cluster: &Cluster) {
    let mut client = Client::new(cluster.seed, CLIENTS + 1);
    for door in NODES {
        let before = cluster.journal.counts().acknowledged;
        client.insert(cluster, Some(door), ms(20_000)).await;
        if cluster.journal.counts().acknowledged == before {
            cluster.journal.fail(Failure::NoProgress(format!("a write through node {door} after the repair")));
        }
    }
}
