//! Requests and outcomes as they travel from a follower to the leader and back.

use std::time::Duration;

use quorumsql_proto::peer::{
    self as pb, forward_request::Op as PbOp, forward_response::Result as PbResult, outcome_response::Result as PbKnown,
};

use super::convert::Malformed;
use crate::command::{Channel, Committed, EditConflicts, Layer, LayerCopy, Op, Origin, Outcome, Rejection, Request, RequestId, Value};
use crate::{proposer, state_machine::cut};

/// The longest that a forwarded request may wait.
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(300);
/// Modules or parameters of one request.
const MAX_ITEMS: usize = 65_536;

pub(crate) fn request_to(request: &Request, timeout: Duration) -> pb::ForwardRequest {
    let Request { id, origin, op, timeout: _ } = request;
    pb::ForwardRequest {
        client_id: id.client.to_vec().into(),
        seq: id.seq,
        actor: origin.actor.clone(),
        channel: match origin.channel {
            Channel::Mysql => 0,
            Channel::Pgsql => 1,
            Channel::Grpc => 2,
            Channel::Internal => 3,
        },
        origin_node: origin.node,
        client_addr: origin.client_addr.clone(),
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        op: Some(op_to(op)),
    }
}

pub(crate) fn request_from(request: pb::ForwardRequest) -> Result<Request, Malformed> {
    let client = request.client_id[..].try_into().map_err(|_| Malformed("client id"))?;
    let channel = match request.channel {
        0 => Channel::Mysql,
        1 => Channel::Pgsql,
        2 => Channel::Grpc,
        3 => Channel::Internal,
        _ => return Err(Malformed("channel")),
    };
    Ok(Request {
        id: RequestId { client, seq: request.seq },
        origin: Origin { actor: request.actor, channel, node: request.origin_node, client_addr: request.client_addr },
        op: op_from(request.op.ok_or(Malformed("operation"))?)?,
        timeout: Duration::from_millis(request.timeout_ms).min(MAX_TIMEOUT),
    })
}

fn op_to(op: &Op) -> PbOp {
    match op {
        Op::Sql { text, params, masked } => PbOp::Sql(pb::Sql {
            text: text.clone(),
            params: params.iter().map(value_to).collect(),
            masked: cut(masked, proposer::MAX_HISTORY_BYTES).into(),
        }),
        Op::LayerCopy(copy) => PbOp::LayerCopy(copy_to(copy)),
        Op::NodeOverride { node_id, name, value } => {
            PbOp::NodeOverride(pb::NodeOverride { node_id: *node_id, name: name.clone(), value: value.clone() })
        }
        Op::JoinToken { sha256, voter, expires_ms } => {
            PbOp::JoinToken(pb::JoinToken { sha256: sha256.to_vec().into(), voter: *voter, expires_ms: *expires_ms })
        }
        Op::RemoveNode { node_id, force } => PbOp::RemoveNode(pb::RemoveNode { node_id: *node_id, force: *force }),
    }
}

fn op_from(op: PbOp) -> Result<Op, Malformed> {
    Ok(match op {
        PbOp::Sql(sql) => {
            if sql.params.len() > MAX_ITEMS {
                return Err(Malformed("parameters"));
            }
            Op::Sql { text: sql.text, params: sql.params.into_iter().map(value_from).collect::<Result<_, _>>()?, masked: sql.masked }
        }
        PbOp::LayerCopy(copy) => Op::LayerCopy(copy_from(copy)?),
        PbOp::NodeOverride(row) => Op::NodeOverride { node_id: row.node_id, name: row.name, value: row.value },
        PbOp::JoinToken(token) => Op::JoinToken {
            sha256: token.sha256[..].try_into().map_err(|_| Malformed("token"))?,
            voter: token.voter,
            expires_ms: token.expires_ms,
        },
        PbOp::RemoveNode(pb::RemoveNode { node_id, force }) => Op::RemoveNode { node_id, force },
    })
}

fn value_to(value: &Value) -> pb::Value {
    use pb::value::Value as Pb;
    let value = match value {
        Value::Null => Pb::Null(pb::Blank {}),
        Value::Integer(v) => Pb::Integer(*v),
        Value::Real(v) => Pb::Real(*v),
        Value::Text(v) => Pb::Text(v.clone()),
        Value::Blob(v) => Pb::Blob(v.clone().into()),
    };
    pb::Value { value: Some(value) }
}

fn value_from(value: pb::Value) -> Result<Value, Malformed> {
    use pb::value::Value as Pb;
    Ok(match value.value.ok_or(Malformed("value"))? {
        Pb::Null(pb::Blank {}) => Value::Null,
        Pb::Integer(v) => Value::Integer(v),
        Pb::Real(v) => Value::Real(v),
        Pb::Text(v) => Value::Text(v),
        Pb::Blob(v) => Value::Blob(v.to_vec()),
    })
}

fn layer_to(layer: Layer) -> u32 {
    match layer {
        Layer::Memory => 0,
        Layer::Runtime => 1,
        Layer::Disk => 2,
    }
}

fn layer_from(layer: u32) -> Result<Layer, Malformed> {
    match layer {
        0 => Ok(Layer::Memory),
        1 => Ok(Layer::Runtime),
        2 => Ok(Layer::Disk),
        _ => Err(Malformed("layer")),
    }
}

fn copy_to(copy: &LayerCopy) -> pb::LayerCopy {
    pb::LayerCopy {
        modules: copy.modules.clone(),
        from: layer_to(copy.from),
        to: layer_to(copy.to),
        if_revision: copy.if_revision,
        dry_run: copy.dry_run,
        force: copy.force,
        comment: copy.comment.clone(),
        seen: copy.seen.iter().map(|index| pb::OptionalIndex { index: *index }).collect(),
        conflicts: match copy.conflicts {
            EditConflicts::Warn => 0,
            EditConflicts::Error => 1,
            EditConflicts::Off => 2,
        },
    }
}

fn copy_from(copy: pb::LayerCopy) -> Result<LayerCopy, Malformed> {
    if copy.modules.len() > MAX_ITEMS || copy.seen.len() > MAX_ITEMS {
        return Err(Malformed("modules"));
    }
    Ok(LayerCopy {
        modules: copy.modules,
        from: layer_from(copy.from)?,
        to: layer_from(copy.to)?,
        if_revision: copy.if_revision,
        dry_run: copy.dry_run,
        force: copy.force,
        comment: copy.comment,
        seen: copy.seen.into_iter().map(|seen| seen.index).collect(),
        conflicts: match copy.conflicts {
            0 => EditConflicts::Warn,
            1 => EditConflicts::Error,
            2 => EditConflicts::Off,
            _ => return Err(Malformed("conflicts")),
        },
    })
}

/// `None` = ask the leader named in the answer.
pub(crate) fn outcome_from(response: pb::ForwardResponse) -> Result<Option<Outcome>, Malformed> {
    Ok(match response.result.ok_or(Malformed("outcome"))? {
        PbResult::Committed(committed) => Some(Outcome::Committed(committed_from(committed))),
        PbResult::Rejected(rejection) => Some(Outcome::Rejected(rejection_from(rejection)?)),
        PbResult::Unknown(rejection) => Some(Outcome::Unknown(rejection_from(rejection)?)),
        PbResult::NotLeader(_) => None,
    })
}

pub(crate) fn outcome_to(outcome: Outcome) -> pb::ForwardResponse {
    let result = match outcome {
        Outcome::Committed(committed) => PbResult::Committed(committed_to(committed)),
        Outcome::Rejected(rejection) => PbResult::Rejected(rejection_to(rejection)),
        Outcome::Unknown(rejection) => PbResult::Unknown(rejection_to(rejection)),
    };
    pb::ForwardResponse { result: Some(result) }
}

/// What the leader knows of a request, `Some(None)` = it was not applied; `None` = it cannot tell.
pub(crate) fn known_from(response: pb::OutcomeResponse) -> Option<Option<Outcome>> {
    match response.result? {
        PbKnown::Committed(committed) => Some(Some(Outcome::Committed(committed_from(committed)))),
        PbKnown::Rejected(rejection) => Some(Some(Outcome::Rejected(rejection_from(rejection).ok()?))),
        PbKnown::NotApplied(pb::Blank {}) => Some(None),
        PbKnown::NotLeader(_) => None,
    }
}

pub(crate) fn known_to(known: Option<Outcome>) -> pb::OutcomeResponse {
    let result = match known {
        Some(Outcome::Committed(committed)) => PbKnown::Committed(committed_to(committed)),
        Some(Outcome::Rejected(rejection) | Outcome::Unknown(rejection)) => PbKnown::Rejected(rejection_to(rejection)),
        None => PbKnown::NotApplied(pb::Blank {}),
    };
    pb::OutcomeResponse { result: Some(result) }
}

fn committed_to(committed: Committed) -> pb::Committed {
    pb::Committed {
        index: committed.index,
        revision: committed.revision,
        affected: committed.affected,
        last_insert_id: committed.last_insert_id,
        info: committed.info,
        warnings: committed.warnings,
        memory: committed.memory.into_iter().map(|(module, memory_index)| pb::ModuleIndex { module, memory_index }).collect(),
    }
}

fn committed_from(committed: pb::Committed) -> Committed {
    Committed {
        index: committed.index,
        revision: committed.revision,
        affected: committed.affected,
        last_insert_id: committed.last_insert_id,
        info: committed.info,
        warnings: committed.warnings,
        live: false,
        memory: committed.memory.into_iter().map(|row| (row.module, row.memory_index)).collect(),
    }
}

pub(crate) fn rejection_to(rejection: Rejection) -> pb::Rejection {
    pb::Rejection {
        mysql_code: rejection.mysql_code.into(),
        mysql_state: rejection.mysql_state,
        pgsql_state: rejection.pgsql_state,
        message: rejection.message,
    }
}

pub(crate) fn rejection_from(rejection: pb::Rejection) -> Result<Rejection, Malformed> {
    Ok(Rejection {
        mysql_code: u16::try_from(rejection.mysql_code).map_err(|_| Malformed("error code"))?,
        mysql_state: rejection.mysql_state,
        pgsql_state: rejection.pgsql_state,
        message: rejection.message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_survives_a_round_trip() {
        let copy = LayerCopy {
            modules: vec!["MYSQL SERVERS".into(), "MYSQL USERS".into()],
            from: Layer::Memory,
            to: Layer::Runtime,
            if_revision: Some(7),
            dry_run: true,
            force: true,
            comment: "c".into(),
            seen: vec![None, Some(0)],
            conflicts: EditConflicts::Error,
        };
        let params = vec![Value::Null, Value::Integer(-1), Value::Real(0.5), Value::Text("t".into()), Value::Blob(vec![0, 255])];
        let ops = [
            Op::Sql { text: "INSERT".into(), params, masked: "INSERT".into() },
            Op::LayerCopy(copy),
            Op::NodeOverride { node_id: 3, name: "mysql-interfaces".into(), value: None },
            Op::JoinToken { sha256: [4; 32], voter: true, expires_ms: 99 },
            Op::RemoveNode { node_id: 9, force: true },
        ];
        for op in ops {
            let origin = Origin { actor: "admin".into(), channel: Channel::Pgsql, node: 2, client_addr: "10.0.0.7".into() };
            let request = Request { id: RequestId { client: [3; 16], seq: 8 }, origin, op, timeout: Duration::from_secs(5) };
            assert_eq!(request_from(request_to(&request, request.timeout)).unwrap(), request);
        }
    }

    #[test]
    fn the_three_outcomes_stay_three() {
        let committed =
            Committed { index: 9, revision: Some(2), affected: 1, memory: vec![("MYSQL USERS".into(), 9)], ..Default::default() };
        for outcome in [
            Outcome::Committed(committed),
            Outcome::Rejected(Rejection::read_only("no quorum")),
            Outcome::Unknown(Rejection::unknown("no answer")),
        ] {
            assert_eq!(outcome_from(outcome_to(outcome.clone())).unwrap(), Some(outcome));
        }
    }
}
