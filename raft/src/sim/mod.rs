//! A cluster of five on a simulated clock (raft-and-storage.md 10.1): the real openraft, configuration, log store, machine, `state.db`
//! and proposer, over a network and disks that fail as a seed says.
//!
//! ```text
//! clients ─► Node (proposer, openraft, machine, state.db) ─► Network (delay, loss, cuts) ─► other nodes
//!                       └─► LogStore ─► Disk (flushes late, forgets its unflushed tail)
//! faults: crash, cut, isolate, partition, lose, transfer, snapshot        checker: what clients were told = what is there
//! ```
//! What is not the production's: threads, time, random numbers, sockets, and the disk under the log.

mod checker;
mod client;
mod cluster;
mod dice;
mod disk;
mod faults;
mod mutants;
mod network;
mod node;
pub(crate) mod runtime;
mod sweep;

pub(crate) use runtime::blocking_pause;

use checker::check;
use client::Client;
use cluster::{Cluster, NODES, Plan, ms, simulate};

#[test]
fn five_nodes_without_faults_acknowledge_every_write_and_are_equal() {
    simulate(async {
        let cluster = Cluster::form(Plan::new(1)).await;
        let mut client = Client::new(1, 1);
        for door in NODES.cycle().take(20) {
            client.insert(&cluster, Some(door), ms(5000)).await;
        }
        cluster.settle().await;
        check(&cluster);
        assert_eq!(cluster.journal.failures(), []);
        assert_eq!(cluster.journal.counts().acknowledged, 20);
    });
}
