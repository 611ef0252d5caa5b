//! `stats_cluster_config` of the other nodes, asked for when somebody looks.

use std::{sync::Arc, time::Duration};

use quorumsql_proto::peer as pb;
use tokio::task::JoinSet;

use super::Core;
use crate::state_machine::{ModuleLayer, NodeConfig, config_state};

/// Modules in layers of one answer; there are less than a hundred.
const MAX_LAYERS: usize = 1024;

impl Core {
    /// What this node tells the others.
    pub(crate) fn config_state(&self) -> rusqlite::Result<pb::ConfigState> {
        let (applied_index, layers) = self.query(config_state)?;
        let contact = self.leader_contact(&self.metrics()).map(|(_, age)| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let layer = |found: ModuleLayer| pb::ModuleLayer {
            module: found.module,
            layer: found.layer,
            revision: found.revision,
            log_index: found.log_index,
            hash: found.hash,
        };
        Ok(pb::ConfigState { applied_index, contact_ms: contact, layers: layers.into_iter().map(layer).collect() })
    }

    /// The configurations of all other members that answer within `timeout`, by node id.
    pub(crate) async fn config_of_peers(self: Arc<Self>, timeout: Duration) -> Vec<NodeConfig> {
        let membership = self.metrics().membership_config;
        let mut calls = JoinSet::new();
        for (id, node) in membership.nodes().filter(|(id, _)| **id != self.identity.node_id) {
            let (core, id, address) = (self.clone(), *id, node.raft_addr.clone());
            calls.spawn(async move {
                let mut client = core.peers.internal(id, &address).ok()?;
                let answer = tokio::time::timeout(timeout, client.read_config_state(pb::ConfigStateRequest {})).await.ok()?.ok()?;
                Some(from_peer(id, answer.into_inner()))
            });
        }
        let mut found: Vec<NodeConfig> = calls.join_all().await.into_iter().flatten().collect();
        found.sort_by_key(|node| node.node_id);
        found
    }
}

fn from_peer(node_id: u64, state: pb::ConfigState) -> NodeConfig {
    let layer = |found: pb::ModuleLayer| ModuleLayer {
        module: found.module,
        layer: found.layer,
        revision: found.revision,
        log_index: found.log_index,
        hash: found.hash,
    };
    let layers = state.layers.into_iter().take(MAX_LAYERS).map(layer).collect();
    NodeConfig { node_id, applied_index: state.applied_index, contact_ms: state.contact_ms, layers }
}
