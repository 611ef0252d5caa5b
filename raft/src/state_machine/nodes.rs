//! Members, their overrides and tokens, and the first entry of a cluster (raft-and-storage.md section 7).

use quorumsql_proto::log as pb;
use rusqlite::OptionalExtension;

use super::apply::Context;
use super::change::apply_table;
use super::result::ApplyResult;
use super::schema::{signed, unsigned};
use super::{ApplyOutcome, StorageError, hash};
use crate::command::Layer;

/// Slots are what ids on the wire carry: 7 bits, 0 unused.
const SLOTS: std::ops::RangeInclusive<u8> = 1..=127;

/// The first entry: cluster id, first node, rows of all layers.
pub(crate) fn bootstrap(context: &mut Context<'_>, op: &pb::Bootstrap) -> Result<ApplyResult, StorageError> {
    if !context.meta.cluster_id.is_empty() {
        let message = format!("cluster {} is already formed", context.meta.cluster_id);
        return Ok(context.refused(ApplyOutcome::Refused, message));
    }
    let Some(node) = &op.node else {
        return Err(context.damaged("bootstrap without a node"));
    };
    context.meta.cluster_id.clone_from(&op.cluster_id);
    let before = hash::runtime_summary(context.connection)?;
    for layer in [Layer::Disk, Layer::Memory, Layer::Runtime] {
        for change in &op.tables {
            apply_table(context, layer, change)?;
        }
    }
    // All layers are equal now.
    context.connection.execute("DELETE FROM dirty", [])?;
    let modules: Vec<&str> = context.changes.modules(Layer::Runtime).into_iter().collect();
    let revision = (!context.changes.runtime.is_empty()).then(|| context.new_revision(before, modules.join(",")));
    context.describe_revision("bootstrap");
    insert_node(context, op.node_id, 1, node, role(node.voter))?;
    Ok(ApplyResult { revision, node_id: op.node_id, slot: 1, ..ApplyResult::ok(context.index) })
}

/// A new member: its id is the index of this entry, its slot the lowest free one.
pub(crate) fn allocate(context: &mut Context<'_>, op: &pb::NodeAlloc) -> Result<ApplyResult, StorageError> {
    let mut voter = op.voter;
    if !op.token_sha256.is_empty() {
        match consume_token(context, &op.token_sha256)? {
            Ok(may_vote) => voter = voter && may_vote,
            Err(message) => return Ok(context.refused(ApplyOutcome::Refused, message)),
        }
    }
    if let Some(message) = replacement_refusal(context, op.replaces, voter)? {
        return Ok(context.refused(ApplyOutcome::Refused, message));
    }
    for (column, what, wanted) in [("name", "name", &op.name), ("raft_addr", "address", &op.raft_addr)] {
        let sql = format!("SELECT node_id FROM cluster_nodes WHERE {column} = ?1 AND removed_index IS NULL AND node_id <> ?2");
        let taken: Option<i64> =
            context.connection.prepare_cached(&sql)?.query_row((wanted, signed(op.replaces)), |row| row.get(0)).optional()?;
        if let Some(node) = taken {
            let message = format!("node {node} has the {what} {wanted}; choose another one, or replace that node");
            return Ok(context.refused(ApplyOutcome::Refused, message));
        }
    }
    let Some(slot) = free_slot(context)? else {
        return Ok(context.refused(ApplyOutcome::Refused, "a cluster has at most 127 members"));
    };
    insert_node(context, context.index, slot, op, role(voter))?;
    Ok(ApplyResult { node_id: context.index, slot, message: role(voter).into(), ..ApplyResult::ok(context.index) })
}

/// Why a new node cannot take the place of `old`; 0 = it takes nobody's.
fn replacement_refusal(context: &Context<'_>, old: u64, voter: bool) -> Result<Option<String>, StorageError> {
    if old == 0 {
        return Ok(None);
    }
    let sql = "SELECT role FROM cluster_nodes WHERE node_id = ?1 AND removed_index IS NULL";
    let found: Option<String> = context.connection.prepare_cached(sql)?.query_row([signed(old)], |row| row.get(0)).optional()?;
    let sql = "SELECT node_id FROM cluster_nodes WHERE replaces = ?1 AND removed_index IS NULL";
    let successor: Option<i64> = context.connection.prepare_cached(sql)?.query_row([signed(old)], |row| row.get(0)).optional()?;
    Ok(match (found, successor) {
        (None, _) => Some(format!("node {old} is not a member of this cluster and cannot be replaced")),
        (_, Some(successor)) => Some(format!("node {successor} is about to replace node {old}; remove it to choose another one")),
        (Some(role), None) if role == "voter" && !voter => Some(format!("node {old} votes: replacing it needs a voter token")),
        _ => None,
    })
}

fn role(voter: bool) -> &'static str {
    if voter { "voter" } else { "learner" }
}

fn free_slot(context: &Context<'_>) -> Result<Option<u8>, StorageError> {
    let mut statement = context.connection.prepare_cached("SELECT slot FROM cluster_nodes WHERE removed_index IS NULL")?;
    let taken = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<u8>>>()?;
    Ok(SLOTS.into_iter().find(|slot| !taken.contains(slot)))
}

fn insert_node(context: &mut Context<'_>, id: u64, slot: u8, node: &pb::NodeAlloc, role: &str) -> Result<(), StorageError> {
    let sql = "INSERT INTO cluster_nodes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, NULL, ?10, ?11, nullif(?12, 0))";
    context.connection.prepare_cached(sql)?.execute(rusqlite::params![
        signed(id),
        slot,
        node.name,
        node.raft_addr,
        node.client_addr,
        role,
        node.zone,
        node.build,
        signed(context.index),
        node.incarnation,
        &node.cert_sha256[..],
        signed(node.replaces),
    ])?;
    for value in &node.overrides {
        write_override(context, id, &value.name, Some(&value.value))?;
    }
    Ok(())
}

/// Takes one use from a token; the reason if that cannot be.
fn consume_token(context: &Context<'_>, sha256: &[u8]) -> Result<Result<bool, String>, StorageError> {
    let sql = "SELECT role, expires_ms, uses_left FROM join_tokens WHERE token_sha256 = ?1";
    let found: Option<(String, i64, i64)> =
        context.connection.prepare_cached(sql)?.query_row([sha256], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
    let Some((role, expires_ms, uses_left)) = found else {
        return Ok(Err("join token is unknown; create one with quorumsql token create".into()));
    };
    if uses_left < 1 {
        return Ok(Err("join token has been used; create another one with quorumsql token create".into()));
    }
    if unsigned(expires_ms) < context.entry.proposed_at_ms {
        return Ok(Err("join token has expired; create another one with quorumsql token create".into()));
    }
    context.connection.prepare_cached("UPDATE join_tokens SET uses_left = uses_left - 1 WHERE token_sha256 = ?1")?.execute([sha256])?;
    Ok(Ok(role == "voter"))
}

/// Changes what is known about a member.
pub(crate) fn upsert(context: &mut Context<'_>, op: &pb::NodeUpsert) -> Result<ApplyResult, StorageError> {
    let sql = "UPDATE cluster_nodes SET raft_addr = coalesce(?2, raft_addr), client_addr = coalesce(?3, client_addr), \
               zone = coalesce(?4, zone), build = coalesce(?5, build), incarnation = coalesce(?6, incarnation), \
               cert_sha256 = coalesce(?7, cert_sha256), role = coalesce(?8, role) WHERE node_id = ?1 AND removed_index IS NULL";
    let changed = context.connection.prepare_cached(sql)?.execute(rusqlite::params![
        signed(op.node_id),
        op.raft_addr,
        op.client_addr,
        op.zone,
        op.build,
        op.incarnation,
        op.cert_sha256.as_deref(),
        op.voter.map(role),
    ])?;
    member_changed(context, op.node_id, changed)
}

/// The member is none any more; its row stays, so that its id is known for ever.
pub(crate) fn remove(context: &mut Context<'_>, op: &pb::NodeRemove) -> Result<ApplyResult, StorageError> {
    let sql = "UPDATE cluster_nodes SET removed_index = ?2 WHERE node_id = ?1 AND removed_index IS NULL";
    let changed = context.connection.prepare_cached(sql)?.execute((signed(op.node_id), signed(context.index)))?;
    context.connection.prepare_cached("DELETE FROM node_overrides WHERE node_id = ?1")?.execute([signed(op.node_id)])?;
    member_changed(context, op.node_id, changed)
}

fn member_changed(context: &Context<'_>, node_id: u64, changed: usize) -> Result<ApplyResult, StorageError> {
    if changed == 1 {
        return Ok(ApplyResult::ok(context.index));
    }
    Ok(context.refused(ApplyOutcome::Refused, format!("node {node_id} is not a member of this cluster")))
}

/// `node_overrides`: acts at once and has no layers (design.md section 12).
pub(crate) fn set_override(context: &mut Context<'_>, op: &pb::NodeOverride) -> Result<ApplyResult, StorageError> {
    let sql = "SELECT count(*) FROM cluster_nodes WHERE node_id = ?1 AND removed_index IS NULL";
    let members: u32 = context.connection.prepare_cached(sql)?.query_row([signed(op.node_id)], |row| row.get(0))?;
    if members != 1 {
        return member_changed(context, op.node_id, 0);
    }
    let affected = write_override(context, op.node_id, &op.name, op.value.as_deref())?;
    Ok(ApplyResult { affected, ..ApplyResult::ok(context.index) })
}

fn write_override(context: &mut Context<'_>, node_id: u64, name: &str, value: Option<&str>) -> Result<u64, StorageError> {
    context.meta.runtime_index = context.index;
    let changed = match value {
        Some(value) => {
            let sql = "INSERT OR REPLACE INTO node_overrides VALUES (?1, ?2, ?3, ?4, ?5)";
            let parameters = (signed(node_id), name, value, context.author(), signed(context.index));
            context.connection.prepare_cached(sql)?.execute(parameters)?
        }
        None => {
            let sql = "DELETE FROM node_overrides WHERE node_id = ?1 AND name = ?2";
            context.connection.prepare_cached(sql)?.execute((signed(node_id), name))?
        }
    };
    Ok(changed as u64)
}

/// A token that lets one node in.
pub(crate) fn add_token(context: &mut Context<'_>, op: &pb::JoinToken) -> Result<ApplyResult, StorageError> {
    let now = signed(context.entry.proposed_at_ms);
    context.connection.prepare_cached("DELETE FROM join_tokens WHERE expires_ms < ?1")?.execute([now])?;
    let sql = "INSERT OR REPLACE INTO join_tokens VALUES (?1, ?2, ?3, 1, ?4)";
    let parameters = (&op.token_sha256[..], role(op.voter), signed(op.expires_ms), context.author());
    context.connection.prepare_cached(sql)?.execute(parameters)?;
    Ok(ApplyResult::ok(context.index))
}
