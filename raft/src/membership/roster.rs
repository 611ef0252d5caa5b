//! `cluster_nodes` in memory: who may speak to this node, and who is to be added, replaced or taken out.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;
use tonic::Status;

use crate::{core::Core, network::metadata, type_config::Member};

/// A row of `cluster_nodes`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) member: Member,
    pub(crate) slot: u8,
    /// May vote, and does once it has caught up.
    pub(crate) voter: bool,
    pub(crate) incarnation: String,
    /// The member whose place it takes.
    pub(crate) replaces: Option<u64>,
    /// Index of its removal.
    pub(crate) removed: Option<u64>,
    /// Removed, and out of the membership that is applied here: nobody listens to it any more.
    pub(crate) gone: bool,
}

impl Row {
    pub(crate) fn is_member(&self) -> bool {
        self.removed.is_none()
    }
}

/// By node id, removed ones included.
pub(crate) type Rows = Arc<BTreeMap<u64, Row>>;

/// The rows as of the last refresh.
#[derive(Default)]
pub(crate) struct Roster {
    /// With the applied index as of which they were read.
    rows: RwLock<(u64, Rows)>,
}

impl Roster {
    pub(crate) fn rows(&self) -> Rows {
        self.rows.read().1.clone()
    }

    /// Reads the rows anew if anything was applied since.
    pub(crate) fn refresh(&self, core: &Core) -> rusqlite::Result<Rows> {
        let applied = core.state.watch().borrow().index;
        {
            let known = self.rows.read();
            if known.0 == applied && applied != 0 {
                return Ok(known.1.clone());
            }
        }
        let members: Vec<u64> = core.applied_members();
        let mut rows = core.query(read)?;
        for (id, row) in &mut rows {
            row.gone = row.removed.is_some() && !members.contains(id);
        }
        let rows = Arc::new(rows);
        *self.rows.write() = (applied, rows.clone());
        Ok(rows)
    }

    /// Whether this node listens to `id`. Ids without a row are served: a fresh learner knows nobody, and a voter that slept
    /// must accept a leader of which it has never heard.
    ///
    /// # Errors
    /// PERMISSION_DENIED that says `quorumsql-expelled` to a node that was removed or comes with another data directory.
    pub(crate) fn admits(&self, cluster_id: &str, id: u64, incarnation: Option<&str>) -> Result<(), Status> {
        let rows = self.rows();
        let Some(row) = rows.get(&id) else { return Ok(()) };
        match row.removed {
            Some(index) if row.gone => Err(metadata::expelled(removed_text(cluster_id, id, index), metadata::REMOVED)),
            _ if incarnation != Some(row.incarnation.as_str()) => {
                Err(metadata::expelled(incarnation_text(cluster_id, id, &row.incarnation), metadata::OTHER_INCARNATION))
            }
            _ => Ok(()),
        }
    }
}

/// What a removed node is told, and says when it is started again.
pub(crate) fn removed_text(cluster_id: &str, id: u64, index: u64) -> String {
    format!(
        "node {id} was removed from cluster {cluster_id} at index {index}: this data directory cannot come back; \
         set it aside and join again as a new node"
    )
}

/// raft-and-storage.md 7.2.
pub(crate) fn incarnation_text(cluster_id: &str, id: u64, incarnation: &str) -> String {
    format!("node {id} of cluster {cluster_id} is known with incarnation {incarnation}; remove it and join again as a new node")
}

fn read(connection: &rusqlite::Connection) -> rusqlite::Result<BTreeMap<u64, Row>> {
    let sql = "SELECT node_id, raft_addr, name, slot, role, incarnation, replaces, removed_index FROM cluster_nodes";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| {
        let unsigned = |value: i64| value.unsigned_abs();
        let found = Row {
            member: Member { raft_addr: row.get(1)?, name: row.get(2)? },
            slot: row.get(3)?,
            voter: row.get::<_, String>(4)? == "voter",
            incarnation: row.get(5)?,
            replaces: row.get::<_, Option<i64>>(6)?.map(unsigned),
            removed: row.get::<_, Option<i64>>(7)?.map(unsigned),
            gone: false,
        };
        Ok((row.get::<_, i64>(0)?.unsigned_abs(), found))
    })?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(incarnation: &str, removed: Option<u64>, gone: bool) -> Row {
        let member = Member { raft_addr: "h:1".into(), name: "n".into() };
        Row { member, slot: 1, voter: true, incarnation: incarnation.into(), replaces: None, removed, gone }
    }

    #[test]
    fn strangers_are_served_and_the_removed_and_the_replaced_disks_are_not() {
        let rows = BTreeMap::from([(1, row("a", None, false)), (2, row("b", Some(7), true)), (3, row("c", Some(8), false))]);
        let roster = Roster { rows: RwLock::new((9, Arc::new(rows))) };
        for (id, incarnation, expected) in [
            (9, Some("x"), None),
            (1, Some("a"), None),
            (1, Some("b"), Some("node 1 of cluster c1 is known with incarnation a; remove it and join again as a new node")),
            (1, None, Some("node 1 of cluster c1 is known with incarnation a; remove it and join again as a new node")),
            (
                2,
                Some("b"),
                Some(
                    "node 2 was removed from cluster c1 at index 7: this data directory cannot come back; \
                     set it aside and join again as a new node",
                ),
            ),
            // Removed, but the change of membership is still under way and may need its vote.
            (3, Some("c"), None),
        ] {
            let refusal = roster.admits("c1", id, incarnation).err();
            assert_eq!(refusal.as_ref().map(Status::message), expected, "{id} {incarnation:?}");
            assert!(refusal.is_none_or(|status| metadata::is_expelled(&status)));
        }
    }
}
