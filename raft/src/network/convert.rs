//! openraft's values ⇄ `quorumsql.peer.v1`. Only this module knows both sides.

use std::collections::{BTreeMap, BTreeSet};

use openraft::{
    EntryPayload,
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, TransferLeaderError, TransferLeaderRequest, TransferLeaderResponse, VoteRequest,
        VoteResponse,
    },
};
use prost::Message;
use quorumsql_proto::peer as pb;

use crate::type_config::{Entry, LogId, Member, Membership, Payload, StoredMembership, TypeConfig, Vote, log_id, term_of};

/// A message lacks what it must have, or contradicts itself.
#[derive(Debug, thiserror::Error)]
#[error("malformed {0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

impl From<Malformed> for tonic::Status {
    fn from(e: Malformed) -> Self {
        Self::invalid_argument(e.to_string())
    }
}

impl From<Malformed> for std::io::Error {
    fn from(e: Malformed) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, e)
    }
}

// === ids and votes ===

pub(crate) fn log_id_to(id: &LogId) -> pb::LogId {
    pb::LogId { term: term_of(id), index: id.index }
}

pub(crate) fn log_id_from(id: &pb::LogId) -> LogId {
    log_id(id.term, id.index)
}

fn some_log_id_to(id: Option<&LogId>) -> Option<pb::LogId> {
    id.map(log_id_to)
}

fn some_log_id_from(id: Option<&pb::LogId>) -> Option<LogId> {
    id.map(log_id_from)
}

pub(crate) fn vote_to(vote: &Vote) -> pb::Vote {
    pb::Vote { term: vote.leader_id.term, node_id: vote.leader_id.voted_for, committed: vote.committed }
}

pub(crate) fn vote_from(vote: &pb::Vote) -> Vote {
    if vote.committed { Vote::new_committed(vote.term, vote.node_id) } else { Vote::new(vote.term, vote.node_id) }
}

fn need_vote(vote: Option<&pb::Vote>) -> Result<Vote, Malformed> {
    vote.map(vote_from).ok_or(Malformed("vote"))
}

// === membership ===

pub(crate) fn membership_to(membership: &Membership) -> pb::Membership {
    let member = |(id, node): (&u64, &Member)| pb::Member { node_id: *id, raft_addr: node.raft_addr.clone(), name: node.name.clone() };
    pb::Membership {
        configs: membership.get_joint_config().iter().map(|set| pb::VoterSet { ids: set.iter().copied().collect() }).collect(),
        members: membership.nodes().map(member).collect(),
    }
}

pub(crate) fn membership_from(membership: pb::Membership) -> Result<Membership, Malformed> {
    let configs: Vec<BTreeSet<u64>> = membership.configs.into_iter().map(|set| set.ids.into_iter().collect()).collect();
    let members: BTreeMap<u64, Member> =
        membership.members.into_iter().map(|m| (m.node_id, Member { raft_addr: m.raft_addr, name: m.name })).collect();
    Membership::new(configs, members).map_err(|_| Malformed("membership"))
}

/// A membership with the entry that made it: what the state machine keeps as opaque bytes.
pub(crate) fn encode_membership(membership: &StoredMembership) -> Vec<u8> {
    stored_membership_to(membership).encode_to_vec()
}

pub(crate) fn decode_membership(bytes: &[u8]) -> Result<StoredMembership, Malformed> {
    if bytes.is_empty() {
        return Ok(StoredMembership::default());
    }
    stored_membership_from(pb::StoredMembership::decode(bytes).map_err(|_| Malformed("membership"))?)
}

pub(crate) fn stored_membership_to(membership: &StoredMembership) -> pb::StoredMembership {
    pb::StoredMembership { log_id: some_log_id_to(membership.log_id().as_ref()), membership: Some(membership_to(membership.membership())) }
}

pub(crate) fn stored_membership_from(stored: pb::StoredMembership) -> Result<StoredMembership, Malformed> {
    let membership = membership_from(stored.membership.unwrap_or_default())?;
    Ok(StoredMembership::new(some_log_id_from(stored.log_id.as_ref()), membership))
}

// === entries ===

pub(crate) fn entry_to(entry: &Entry) -> pb::Entry {
    let payload = match &entry.payload {
        EntryPayload::Blank => pb::entry::Payload::Blank(pb::Blank {}),
        EntryPayload::Membership(membership) => pb::entry::Payload::Membership(membership_to(membership)),
        EntryPayload::Normal(payload) => pb::entry::Payload::Data(payload.0.clone()),
    };
    pb::Entry { log_id: Some(log_id_to(&entry.log_id)), payload: Some(payload) }
}

pub(crate) fn entry_from(entry: pb::Entry) -> Result<Entry, Malformed> {
    let log_id = log_id_from(entry.log_id.as_ref().ok_or(Malformed("entry"))?);
    let payload = match entry.payload.ok_or(Malformed("entry"))? {
        pb::entry::Payload::Blank(pb::Blank {}) => EntryPayload::Blank,
        pb::entry::Payload::Membership(membership) => EntryPayload::Membership(membership_from(membership)?),
        pb::entry::Payload::Data(data) => EntryPayload::Normal(Payload(data)),
    };
    Ok(Entry { log_id, payload })
}

// === append ===

pub(crate) fn append_request_to(request: &AppendEntriesRequest<TypeConfig>) -> pb::AppendRequest {
    pb::AppendRequest {
        vote: Some(vote_to(&request.vote)),
        prev_log_id: some_log_id_to(request.prev_log_id.as_ref()),
        entries: request.entries.iter().map(entry_to).collect(),
        leader_commit: some_log_id_to(request.leader_commit.as_ref()),
    }
}

pub(crate) fn append_request_from(request: pb::AppendRequest) -> Result<AppendEntriesRequest<TypeConfig>, Malformed> {
    let prev_log_id = some_log_id_from(request.prev_log_id.as_ref());
    let entries = request.entries.into_iter().map(entry_from).collect::<Result<Vec<_>, _>>()?;
    let mut next = prev_log_id.as_ref().map(|id| id.index + 1);
    for entry in &entries {
        if next.is_some_and(|next| entry.log_id.index != next) {
            return Err(Malformed("append request: entries do not follow each other"));
        }
        next = entry.log_id.index.checked_add(1);
    }
    Ok(AppendEntriesRequest {
        vote: need_vote(request.vote.as_ref())?,
        prev_log_id,
        entries,
        leader_commit: some_log_id_from(request.leader_commit.as_ref()),
    })
}

pub(crate) fn append_response_to(response: &AppendEntriesResponse<TypeConfig>) -> pb::AppendResponse {
    use pb::append_response::Result as Pb;
    let result = match response {
        AppendEntriesResponse::Success => Pb::Success(pb::Blank {}),
        AppendEntriesResponse::PartialSuccess(Some(id)) => Pb::Partial(log_id_to(id)),
        AppendEntriesResponse::PartialSuccess(None) | AppendEntriesResponse::Conflict => Pb::Conflict(pb::Blank {}),
        AppendEntriesResponse::HigherVote(vote) => Pb::HigherVote(vote_to(vote)),
    };
    pb::AppendResponse { result: Some(result) }
}

pub(crate) fn append_response_from(response: pb::AppendResponse) -> Result<AppendEntriesResponse<TypeConfig>, Malformed> {
    use pb::append_response::Result as Pb;
    Ok(match response.result.ok_or(Malformed("append response"))? {
        Pb::Success(pb::Blank {}) => AppendEntriesResponse::Success,
        Pb::Partial(id) => AppendEntriesResponse::PartialSuccess(Some(log_id_from(&id))),
        Pb::Conflict(pb::Blank {}) => AppendEntriesResponse::Conflict,
        Pb::HigherVote(vote) => AppendEntriesResponse::HigherVote(vote_from(&vote)),
    })
}

// === votes and transfer ===

pub(crate) fn vote_request_to(request: &VoteRequest<TypeConfig>) -> pb::VoteRequest {
    pb::VoteRequest {
        vote: Some(vote_to(&request.vote)),
        last_log_id: some_log_id_to(request.last_log_id.as_ref()),
        leadership_transfer: request.leadership_transfer,
    }
}

pub(crate) fn vote_request_from(request: &pb::VoteRequest) -> Result<VoteRequest<TypeConfig>, Malformed> {
    Ok(VoteRequest {
        vote: need_vote(request.vote.as_ref())?,
        last_log_id: some_log_id_from(request.last_log_id.as_ref()),
        leadership_transfer: request.leadership_transfer,
    })
}

pub(crate) fn vote_response_to(response: &VoteResponse<TypeConfig>) -> pb::VoteResponse {
    pb::VoteResponse {
        vote: Some(vote_to(&response.vote)),
        granted: response.vote_granted,
        last_log_id: some_log_id_to(response.last_log_id.as_ref()),
    }
}

pub(crate) fn vote_response_from(response: &pb::VoteResponse) -> Result<VoteResponse<TypeConfig>, Malformed> {
    Ok(VoteResponse {
        vote: need_vote(response.vote.as_ref())?,
        vote_granted: response.granted,
        last_log_id: some_log_id_from(response.last_log_id.as_ref()),
    })
}

pub(crate) fn transfer_request_to(request: &TransferLeaderRequest<TypeConfig>) -> pb::TransferLeaderRequest {
    pb::TransferLeaderRequest {
        from_leader: Some(vote_to(request.from_leader())),
        to_node_id: *request.to_node_id(),
        last_log_id: some_log_id_to(request.last_log_id()),
    }
}

pub(crate) fn transfer_request_from(request: &pb::TransferLeaderRequest) -> Result<TransferLeaderRequest<TypeConfig>, Malformed> {
    let from = need_vote(request.from_leader.as_ref())?;
    Ok(TransferLeaderRequest::new(from, request.to_node_id, some_log_id_from(request.last_log_id.as_ref())))
}

pub(crate) fn transfer_response_to(response: &TransferLeaderResponse<TypeConfig>) -> pb::TransferLeaderResponse {
    use pb::transfer_leader_response::Refusal;
    let refusal = match response {
        Ok(()) => None,
        Err(TransferLeaderError::VoteChanged { expected, actual }) => {
            Some(Refusal::VoteChanged(pb::VoteChanged { expected: Some(vote_to(expected)), actual: Some(vote_to(actual)) }))
        }
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => Some(Refusal::LogNotFlushed(pb::LogNotFlushed {
            expected: some_log_id_to(expected.as_ref()),
            actual: some_log_id_to(actual.as_ref()),
        })),
    };
    pb::TransferLeaderResponse { refusal }
}

pub(crate) fn transfer_response_from(response: &pb::TransferLeaderResponse) -> Result<TransferLeaderResponse<TypeConfig>, Malformed> {
    use pb::transfer_leader_response::Refusal;
    Ok(match &response.refusal {
        None => Ok(()),
        Some(Refusal::VoteChanged(changed)) => Err(TransferLeaderError::VoteChanged {
            expected: need_vote(changed.expected.as_ref())?,
            actual: need_vote(changed.actual.as_ref())?,
        }),
        Some(Refusal::LogNotFlushed(log)) => Err(TransferLeaderError::LogNotFlushed {
            expected: some_log_id_from(log.expected.as_ref()),
            actual: some_log_id_from(log.actual.as_ref()),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members() -> Membership {
        let nodes: BTreeMap<u64, Member> =
            [1, 2, 9].map(|id| (id, Member { raft_addr: format!("127.0.0.{id}:6035"), name: format!("n{id}") })).into();
        Membership::new(vec![[1, 2].into(), [2, 9].into()], nodes).unwrap()
    }

    #[test]
    fn every_kind_of_entry_survives_a_round_trip() {
        for payload in [EntryPayload::Blank, EntryPayload::Membership(members()), EntryPayload::Normal(Payload("row".into()))] {
            let entry = Entry { log_id: log_id(3, 17), payload };
            let bytes = entry_to(&entry).encode_to_vec();
            assert_eq!(entry_from(pb::Entry::decode(&bytes[..]).unwrap()).unwrap(), entry);
        }
    }

    #[test]
    fn stored_membership_survives_and_empty_bytes_are_none() {
        let stored = StoredMembership::new(Some(log_id(0, 0)), members());
        assert_eq!(decode_membership(&encode_membership(&stored)).unwrap(), stored);
        assert_eq!(decode_membership(&[]).unwrap(), StoredMembership::default());
    }

    #[test]
    fn entries_with_a_gap_are_refused() {
        let blank = |index| entry_to(&Entry { log_id: log_id(1, index), payload: EntryPayload::Blank });
        let request = |entries| pb::AppendRequest {
            vote: Some(vote_to(&Vote::new_committed(1, 1))),
            prev_log_id: Some(pb::LogId { term: 1, index: 4 }),
            entries,
            leader_commit: None,
        };
        assert!(append_request_from(request(vec![blank(5), blank(6)])).is_ok());
        assert!(append_request_from(request(vec![blank(5), blank(7)])).is_err());
        assert!(append_request_from(request(vec![blank(6)])).is_err());
    }
}
