//! A planned change of leader, asked for at any node.

use std::time::{Duration, Instant};

use quorumsql_proto::peer::{self as pb, transfer_response::Result as Pb};

use super::{Core, left, submit::LONGEST_BACK_OFF};
use crate::{
    command::{Rejection, Transferred},
    membership::transfer,
    network::{client::never_sent, request},
};

impl Core {
    /// See [`crate::Consensus::transfer_leadership`].
    pub(crate) async fn transfer_leadership(&self, to: Option<u64>, timeout: Duration) -> Result<Transferred, Rejection> {
        let started = Instant::now();
        let deadline = started + timeout;
        loop {
            let metrics = self.metrics();
            if let Some(reason) = self.read_only_reason(&metrics) {
                return Err(Rejection::read_only(reason));
            }
            match metrics.current_leader {
                Some(leader) if leader == self.identity.node_id => return transfer::lead(self, to, left(deadline)).await,
                Some(leader) => {
                    if let Some(answer) = self.ask_for_transfer(leader, to, started, deadline).await {
                        return answer;
                    }
                }
                None => {}
            }
            if left(deadline) <= LONGEST_BACK_OFF {
                return Err(Rejection::read_only(self.refusal(None)));
            }
            drop(tokio::time::timeout(LONGEST_BACK_OFF, self.leader_is_not(metrics.current_leader)).await);
        }
    }

    /// `None` = nothing was done: try again.
    async fn ask_for_transfer(
        &self,
        leader: u64,
        to: Option<u64>,
        started: Instant,
        deadline: Instant,
    ) -> Option<Result<Transferred, Rejection>> {
        let address = self.metrics().membership_config.get_node(&leader).map(|node| node.raft_addr.clone())?;
        let mut client = self.peers.internal(leader, &address).ok()?;
        let timeout_ms = u64::try_from(left(deadline).as_millis()).unwrap_or(u64::MAX);
        let question = pb::TransferRequest { to: to.unwrap_or(0), timeout_ms };
        let unknown = || {
            let waited = started.elapsed().as_millis();
            Err(Rejection::unknown(format!("no answer of leader node {leader} within {waited} ms; leadership may still be handed over")))
        };
        match tokio::time::timeout(left(deadline), client.transfer_leadership(question)).await {
            Ok(Ok(answer)) => match answer.into_inner().result? {
                Pb::Done(done) => Some(Ok(Transferred { new_leader: done.new_leader, took: Duration::from_millis(done.took_ms) })),
                Pb::Rejected(rejection) => Some(Err(request::rejection_from(rejection).ok()?)),
                Pb::NotLeader(_) => None,
            },
            Ok(Err(status)) if never_sent(&status) => None,
            Ok(Err(_)) | Err(_) => Some(unknown()),
        }
    }

    /// Asked by another node: carried out here or not at all.
    pub(crate) async fn transfer_forwarded(&self, question: pb::TransferRequest) -> pb::TransferResponse {
        let to = (question.to != 0).then_some(question.to);
        let result = if self.metrics().current_leader == Some(self.identity.node_id) {
            let timeout = Duration::from_millis(question.timeout_ms).min(request::MAX_TIMEOUT);
            match transfer::lead(self, to, timeout).await {
                Ok(Transferred { new_leader, took }) => {
                    Pb::Done(pb::Transferred { new_leader, took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX) })
                }
                Err(rejection) => Pb::Rejected(request::rejection_to(rejection)),
            }
        } else {
            Pb::NotLeader(self.not_leader(String::new()))
        };
        pb::TransferResponse { result: Some(result) }
    }
}
