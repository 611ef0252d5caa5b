//! A node learns that it is no member any more: from its own log, or because its peers do not listen to it.

use std::{fs, io::Write, sync::atomic::Ordering, time::Duration};

use futures::future::join_all;
use quorumsql_proto::peer as pb;

use super::roster::{incarnation_text, removed_text};
use crate::{
    core::Core,
    error::StartError,
    identity::{Identity, Layout},
    network::{client::Peers, metadata},
    type_config::StoredMembership,
};

/// At start, all peers together get so long to say that this node is removed.
const ASK_TIMEOUT: Duration = Duration::from_millis(500);

impl Core {
    /// Ends this node's part in consensus for good, and remembers it: its data directory cannot come back.
    pub(crate) fn expelled(&self, reason: &str) {
        if let Err(e) = mark(&self.layout, reason) {
            tracing::error!(error = %e, "cannot write {}", self.layout.removed().display());
        }
        self.expelled.store(true, Ordering::Relaxed);
        self.stop(reason);
    }

    /// Takes it from a peer that refuses a call; `true` if it was that.
    pub(crate) fn heed(&self, status: &tonic::Status) -> bool {
        let expelled = metadata::is_expelled(status);
        if expelled {
            self.expelled(status.message());
        }
        expelled
    }
}

fn mark(layout: &Layout, reason: &str) -> std::io::Result<()> {
    if layout.removed().exists() {
        return Ok(());
    }
    let mut file = fs::File::create(layout.removed())?;
    writeln!(file, "{reason}")?;
    file.sync_all()?;
    fs::File::open(layout.root())?.sync_all()
}

/// Before anything runs: by the mark of an earlier run, by the node's own row, and by what its peers say.
///
/// # Errors
/// [`StartError::Removed`].
pub(crate) async fn refuse_expelled(
    layout: &Layout,
    identity: &Identity,
    membership: &StoredMembership,
    peers: &Peers,
) -> Result<(), StartError> {
    match fs::read_to_string(layout.removed()) {
        Ok(text) => return Err(StartError::Removed(text.trim_end().to_owned())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(StartError::Storage(format!("{}: {e}", layout.removed().display()))),
    }
    own_row(layout, identity, membership)?;
    let asked = membership.voter_ids().filter(|id| *id != identity.node_id).filter_map(|id| {
        let address = &membership.get_node(&id)?.raft_addr;
        let mut client = peers.internal(id, address).ok()?;
        let report = pb::NodeReport { node_id: identity.node_id, incarnation: identity.incarnation.clone(), ..Default::default() };
        Some(async move { tokio::time::timeout(ASK_TIMEOUT, client.report_status(report)).await })
    });
    let refusals = join_all(asked).await.into_iter().filter_map(|answer| answer.ok()?.err());
    match refusals.into_iter().find(metadata::is_expelled) {
        None => Ok(()),
        Some(status) => {
            mark(layout, status.message()).map_err(|e| StartError::Storage(e.to_string()))?;
            Err(StartError::Removed(status.message().to_owned()))
        }
    }
}

/// What the node's own `cluster_nodes` says of it.
fn own_row(layout: &Layout, identity: &Identity, membership: &StoredMembership) -> Result<(), StartError> {
    let failed = |e: rusqlite::Error| StartError::Storage(format!("state.db: {e}"));
    let connection = crate::core::open_reader(layout).map_err(failed)?;
    let sql = "SELECT incarnation, removed_index FROM cluster_nodes WHERE node_id = ?1";
    let row = connection.query_row(sql, [identity.node_id.cast_signed()], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, Option<i64>>(1)?.map(i64::unsigned_abs)))
    });
    let (incarnation, removed) = match row {
        Ok(row) => row,
        Err(rusqlite::Error::QueryReturnedNoRows) => return Ok(()),
        Err(e) => return Err(failed(e)),
    };
    let Identity { cluster_id, node_id, .. } = identity;
    if incarnation != identity.incarnation {
        return Err(StartError::Removed(incarnation_text(cluster_id, *node_id, &incarnation)));
    }
    match removed {
        Some(index) if membership.get_node(node_id).is_none() => Err(StartError::Removed(removed_text(cluster_id, *node_id, index))),
        _ => Ok(()),
    }
}
