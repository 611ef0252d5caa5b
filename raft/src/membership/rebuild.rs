//! A new log for the only voter of a cluster whose own is damaged (rule S12).
//!
//! What was applied is in `state.db`: the next start finds it ahead of the log and writes a snapshot first (R4). Where there are
//! other voters, they hold what this one may have acknowledged and forgotten: there it is removed and joins again.

use std::{fs, path::PathBuf};

use openraft::storage::RaftLogStorage;

use crate::{
    core::owner,
    error::StartError,
    handle::{RaftOptions, on_own_runtime},
    identity::{Identity, Layout},
    log_store::LogStore,
    network::convert,
    state_machine::StateMachine,
    type_config::Vote,
};

/// What `rebuild` did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RebuildReport {
    /// Index of the last change that this node goes on with.
    pub applied_index: u64,
    /// Where the damaged log is now.
    pub damaged: PathBuf,
}

/// Sets the damaged log of a node that does not run aside, and gives it an empty one.
///
/// # Errors
/// When the log is not damaged, or in use, when this is not the only voter, or storage fails. Nothing is changed then.
pub async fn rebuild(options: &RaftOptions) -> Result<RebuildReport, StartError> {
    let options = options.clone();
    on_own_runtime(async move { renew(&options).await }).await
}

async fn renew(options: &RaftOptions) -> Result<RebuildReport, StartError> {
    let layout = Layout::new(&options.data_dir);
    let identity = Identity::read(&layout)?;
    let (directory, kind, owned_by) = (layout.raft(), options.log_store, owner(&identity));
    match tokio::task::spawn_blocking(move || LogStore::open(&directory, kind, &owned_by).map(drop)).await {
        // sled panics where its file contradicts itself.
        Err(_) | Ok(Err(StartError::LogDamaged { .. })) => {}
        Ok(Err(StartError::Storage(reason))) if !in_use(&reason) => {}
        Ok(Err(e)) => return Err(e),
        Ok(Ok(())) => return Err(StartError::Options("the raft log is not damaged: nothing was changed".into())),
    }
    let state = StateMachine::open(&layout.state()).map_err(|e| StartError::Storage(e.to_string()))?;
    let applied = state.applied();
    let membership = convert::decode_membership(&applied.membership).map_err(|e| StartError::Storage(e.to_string()))?;
    if membership.voter_ids().any(|voter| voter != identity.node_id) || membership.voter_ids().count() != 1 {
        let reason = format!("node {} is not the only voter: remove this member and join it again", identity.node_id);
        return Err(StartError::Options(reason));
    }

    let damaged = layout.root().join(format!("raft-damaged-at-{}", applied.index));
    if damaged.exists() {
        return Err(StartError::Options(format!("{} is in the way", damaged.display())));
    }
    fs::rename(layout.raft(), &damaged).map_err(storage)?;
    layout.create().map_err(storage)?;
    let mut log = LogStore::open(&layout.raft(), options.log_store, &owner(&identity))?;
    // The next election must be of a later term than anything that was applied.
    log.save_vote(&Vote::new(applied.term, identity.node_id)).await.map_err(storage)?;
    log.close().await.map_err(storage)?;
    Ok(RebuildReport { applied_index: applied.index, damaged })
}

/// What sled and SQLite say while another process has the log.
fn in_use(reason: &str) -> bool {
    ["acquire lock", "is locked"].iter().any(|words| reason.contains(words))
}

fn storage(e: std::io::Error) -> StartError {
    StartError::Storage(e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        LogStoreKind,
        cluster_test::{Node, cluster},
        command::Outcome,
    };

    async fn insert(node: &mut Node, host: &str) {
        let outcome = node.submit(format!("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (1, '{host}')")).await;
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    }

    /// Takes an entry out of the middle of a log that is not in use.
    fn damage(node: &Node) {
        let file = rusqlite::Connection::open(node.options.data_dir.join("raft/log.sqlite")).unwrap();
        let sql = "DELETE FROM log WHERE idx = (SELECT max(idx) - 2 FROM log)";
        assert_eq!(file.execute(sql, []).unwrap(), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn the_only_voter_goes_on_with_what_it_had_applied() {
        let mut nodes = cluster(1, LogStoreKind::Sqlite).await;
        for host in ["a", "b", "c", "d"] {
            insert(&mut nodes[0], host).await;
        }
        let before = nodes[0].on().status();
        nodes[0].kill();
        let options = nodes[0].options.clone();
        assert!(rebuild(&options).await.unwrap_err().to_string().contains("not damaged"));
        damage(&nodes[0]);
        let report = rebuild(&options).await.unwrap();
        assert_eq!(report.applied_index, before.applied_index);
        assert!(report.damaged.join("log.sqlite").exists());
        nodes[0].start().await;
        nodes[0].until("leading", |status| status.leader_id.is_some() && status.term > before.term).await;
        insert(&mut nodes[0], "e").await;
        assert_eq!(nodes[0].hosts(), ["a", "b", "c", "d", "e"]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn one_of_several_voters_is_told_to_join_again() {
        let mut nodes = cluster(2, LogStoreKind::Sqlite).await;
        nodes[1].kill();
        damage(&nodes[1]);
        let refused = rebuild(&nodes[1].options).await.unwrap_err().to_string();
        assert!(refused.ends_with("is not the only voter: remove this member and join it again"), "{refused}");
    }
}
