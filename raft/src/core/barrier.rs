//! Reads of configuration: as fresh as their level demands (raft-and-storage.md 6.2).

use std::time::{Duration, Instant};

use openraft::{
    ReadPolicy,
    errors::{ForwardReason, LinearizableReadError, RaftError},
};
use quorumsql_proto::peer as pb;

use super::{
    Core, left,
    submit::{FIRST_BACK_OFF, LONGEST_BACK_OFF},
};
use crate::{
    command::{ReadLevel, ReadMark, Rejection},
    network::convert,
    type_config::LogId,
};

impl Core {
    /// Makes the following read as fresh as `level` demands; see [`crate::Consensus::barrier`].
    pub(crate) async fn barrier(&self, level: ReadLevel, timeout: Duration) -> Result<ReadMark, Rejection> {
        let metrics = self.metrics();
        if level == ReadLevel::Local {
            return Ok(self.mark(None));
        }
        let refused = match self.read_only_reason(&metrics) {
            Some(reason) => reason,
            None => match tokio::time::timeout(timeout, self.linearize(timeout)).await {
                Ok(Ok(())) => return Ok(self.mark(None)),
                Ok(Err(reason)) => reason,
                Err(_) => format!("no leader confirmed the read within {} ms", timeout.as_millis()),
            },
        };
        if level == ReadLevel::Linearizable {
            return Err(Rejection::read_only(refused));
        }
        let contact = match self.leader_contact(&self.metrics()) {
            Some((leader, age)) => format!("last contact with leader node {leader} {} ms ago", age.as_millis()),
            None => "no contact with a leader since the start".to_owned(),
        };
        let index = self.state.watch().borrow().index;
        Ok(self.mark(Some(format!("local read at applied index {index}, {contact}: {refused}"))))
    }

    fn mark(&self, warning: Option<String>) -> ReadMark {
        ReadMark { applied_index: self.state.watch().borrow().index, warning }
    }

    /// Asks the leader for its read index, again until the time is over, and waits until it is applied here.
    async fn linearize(&self, timeout: Duration) -> Result<(), String> {
        let deadline = Instant::now() + timeout;
        let mut back_off = FIRST_BACK_OFF;
        loop {
            match self.leader_read_index(left(deadline)).await {
                Ok(index) => {
                    self.applied_at_least(index).await.ok_or("this node's state machine has stopped")?;
                    return Ok(());
                }
                Err(reason) if left(deadline) <= back_off => return Err(reason),
                Err(_) => {
                    tokio::time::sleep(back_off).await;
                    back_off = (back_off * 2).min(LONGEST_BACK_OFF);
                }
            }
        }
    }

    async fn leader_read_index(&self, timeout: Duration) -> Result<u64, String> {
        let metrics = self.metrics();
        let leader = metrics.current_leader.ok_or("no leader")?;
        if leader == self.identity.node_id {
            return self.read_index().await.map(|id| id.index);
        }
        let address = metrics.membership_config.get_node(&leader).map(|node| node.raft_addr.clone()).ok_or("no leader")?;
        let mut client = self.peers.internal(leader, &address).map_err(|e| e.message().to_owned())?;
        let answer = tokio::time::timeout(timeout, client.read_index(pb::ReadIndexRequest {})).await;
        let unreachable = || format!("leader node {leader} at {address} does not answer");
        let answer = answer.map_err(|_| unreachable())?.map_err(|_| unreachable())?;
        match answer.into_inner().result {
            Some(pb::read_index_response::Result::ReadLogId(id)) => Ok(convert::log_id_from(&id).index),
            Some(pb::read_index_response::Result::NotLeader(not_leader)) => {
                Err(format!("node {leader} does not lead: {}", not_leader.reason))
            }
            None => Err("malformed answer of the leader".into()),
        }
    }

    /// On the leader: an index that every later linearizable read must have applied, confirmed by a quorum.
    pub(crate) async fn read_index(&self) -> Result<LogId, String> {
        match self.raft.get_read_linearizer(ReadPolicy::ReadIndex).await {
            Ok(linearizer) => Ok(*linearizer.read_log_id().log_id()),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) if forward.reason == ForwardReason::LeaseExpired => {
                Err("its lease has expired".into())
            }
            Err(e) => Err(e.to_string()),
        }
    }
}
