//! Writes from any node: here if this node leads, else at the leader, one hop away (raft-and-storage.md 6.1, 6.3).
//!
//! *Not leader* and a lost lease are tried again until the deadline. After a broken connection, a lost leader or an unknown outcome
//! the leader is asked what became of the request; only what it does not know is sent again, with the same request id: the
//! proposer and apply answer an id that they know from `request_ids`, so nothing is executed twice.

use std::time::{Duration, Instant};

use openraft::async_runtime::WatchReceiver;
use quorumsql_proto::peer as pb;

use super::{Core, left};
use crate::{
    command::{Committed, Op, Outcome, Rejection, Request, RequestId, Value},
    membership,
    network::{MAX_STATEMENT_BYTES, client::never_sent, request},
    proposer::ProposerAnswer,
    state_machine::known_result,
};

pub(super) const FIRST_BACK_OFF: Duration = Duration::from_millis(5);
pub(super) const LONGEST_BACK_OFF: Duration = Duration::from_millis(100);

/// How one attempt ended.
enum Attempt {
    Decided(Outcome),
    /// Nothing was executed; there may be a leader soon.
    NoLeader,
    /// Nothing was executed: the leader could not be reached.
    Unreachable {
        leader: u64,
        address: String,
    },
    /// It may have been executed.
    Unknown,
    /// Asked: no entry of it was applied until now.
    NotApplied,
}

/// What a writer knows of its request after some attempts.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Known {
    /// An earlier attempt may have been executed, or may still be.
    pub(crate) maybe_done: bool,
}

impl Known {
    /// The answer, if it decides. A full queue, or a leader that did not come to a repetition, does not undo the first attempt, which
    /// may wait in the same queue.
    pub(crate) fn decide(&mut self, answer: Outcome) -> Option<Outcome> {
        match answer {
            Outcome::Rejected(rejection) if self.maybe_done && rejection.is_of_the_moment() => None,
            Outcome::Unknown(_) => {
                self.maybe_done = true;
                None
            }
            decided => Some(decided),
        }
    }
}

fn no_answer(request: &Request, started: Instant) -> Outcome {
    Outcome::Unknown(Rejection::no_answer(started.elapsed().as_millis(), &request.id.client, request.id.seq))
}

impl Core {
    /// One write; see [`crate::Consensus::submit`].
    pub(crate) async fn submit(&self, request: Request) -> Outcome {
        if let Op::Sql { text, params, .. } = &request.op {
            let bytes = text.len() + params.iter().map(Value::size).sum::<usize>();
            if bytes > MAX_STATEMENT_BYTES {
                return Outcome::Rejected(Rejection::long_statement(bytes, MAX_STATEMENT_BYTES));
            }
        }
        let started = Instant::now();
        let deadline = started + request.timeout;
        // Whether to ask what became of it before it is sent again.
        let (mut known, mut ask) = (Known::default(), false);
        let mut back_off = FIRST_BACK_OFF;
        loop {
            if let Some(reason) = self.read_only_reason(&self.metrics()) {
                return if known.maybe_done { no_answer(&request, started) } else { Outcome::Rejected(Rejection::read_only(reason)) };
            }
            let attempt = match ask {
                true => self.inquire(&request.id, deadline).await,
                false => self.attempt(&request, deadline).await,
            };
            let mut refusal = None;
            match attempt {
                Attempt::Decided(outcome) => match known.decide(outcome) {
                    Some(Outcome::Committed(committed)) => return Outcome::Committed(self.until_live(committed, deadline).await),
                    Some(outcome) => return outcome,
                    None => ask = true,
                },
                Attempt::Unknown => (known.maybe_done, ask) = (true, true),
                // What is still on its way to a leader has the same request id: it is not executed twice.
                Attempt::NotApplied => {
                    ask = false;
                    continue;
                }
                Attempt::NoLeader => {}
                Attempt::Unreachable { leader, address } => {
                    refusal = Some(format!("configuration is read-only: leader node {leader} at {address} does not answer"));
                }
            }
            if left(deadline) <= back_off {
                let refused = || Outcome::Rejected(Rejection::read_only(self.refusal(refusal)));
                return if known.maybe_done { no_answer(&request, started) } else { refused() };
            }
            // A new leader ends the wait at once.
            let leader = self.metrics().current_leader;
            drop(tokio::time::timeout(back_off, self.leader_is_not(leader)).await);
            back_off = (back_off * 2).min(LONGEST_BACK_OFF);
        }
    }

    pub(super) fn refusal(&self, known: Option<String>) -> String {
        known
            .or_else(|| self.read_only_reason(&self.metrics()))
            .unwrap_or_else(|| "configuration is read-only: no leader yet, try again".into())
    }

    async fn attempt(&self, request: &Request, deadline: Instant) -> Attempt {
        let metrics = self.metrics();
        match metrics.current_leader {
            None => Attempt::NoLeader,
            Some(leader) if leader == self.identity.node_id => {
                let request = Request { timeout: left(deadline), ..request.clone() };
                match self.execute(request).await {
                    ProposerAnswer::Outcome(outcome) => Attempt::Decided(outcome),
                    ProposerAnswer::NotLeader => Attempt::NoLeader,
                }
            }
            Some(leader) => {
                let Some(address) = metrics.membership_config.get_node(&leader).map(|node| node.raft_addr.clone()) else {
                    return Attempt::NoLeader;
                };
                tokio::select! {
                    attempt = self.forward(request, leader, address, deadline) => attempt,
                    // A leader that was killed or cut off may never answer: ask its successor.
                    () = self.leader_is_not(Some(leader)) => Attempt::Unknown,
                }
            }
        }
    }

    async fn forward(&self, request: &Request, leader: u64, address: String, deadline: Instant) -> Attempt {
        let Ok(mut client) = self.peers.internal(leader, &address) else { return Attempt::Unreachable { leader, address } };
        let timeout = left(deadline);
        match tokio::time::timeout(timeout, client.forward_sql(request::request_to(request, timeout))).await {
            Ok(Ok(response)) => match request::outcome_from(response.into_inner()) {
                Ok(Some(outcome)) => Attempt::Decided(outcome),
                Ok(None) => Attempt::NoLeader,
                Err(_) => Attempt::Unknown,
            },
            Ok(Err(status)) if never_sent(&status) => Attempt::Unreachable { leader, address },
            Ok(Err(_)) | Err(_) => Attempt::Unknown,
        }
    }

    /// Asks the leader what became of a request.
    async fn inquire(&self, id: &RequestId, deadline: Instant) -> Attempt {
        let metrics = self.metrics();
        let Some(leader) = metrics.current_leader else { return Attempt::NoLeader };
        let known = if leader == self.identity.node_id {
            tokio::time::timeout(left(deadline), self.outcome(id)).await.ok().and_then(Result::ok)
        } else {
            let Some(node) = metrics.membership_config.get_node(&leader) else { return Attempt::NoLeader };
            let Ok(mut client) = self.peers.internal(leader, &node.raft_addr) else { return Attempt::NoLeader };
            let question = pb::OutcomeRequest { client_id: id.client.to_vec().into(), seq: id.seq };
            let answer = tokio::time::timeout(left(deadline), client.outcome(question)).await;
            answer.ok().and_then(Result::ok).and_then(|answer| request::known_from(answer.into_inner()))
        };
        match known {
            Some(Some(outcome)) => Attempt::Decided(outcome),
            Some(None) => Attempt::NotApplied,
            None => Attempt::NoLeader,
        }
    }

    /// On the leader: what became of a request, as of an index that a quorum confirmed after the question. `None` = not applied.
    ///
    /// # Errors
    /// This node does not lead, or cannot tell.
    pub(crate) async fn outcome(&self, id: &RequestId) -> Result<Option<Outcome>, String> {
        let index = self.read_index().await?.index;
        self.applied_at_least(index).await.ok_or("this node's state machine has stopped")?;
        let known = self.query(|connection| known_result(connection, index, id)).map_err(|e| e.to_string())?;
        Ok(known.map(|result| match result.into_committed() {
            Ok(committed) => Outcome::Committed(committed),
            Err(rejection) => Outcome::Rejected(rejection),
        }))
    }

    /// Waits until this node knows another leader than `leader`.
    pub(super) async fn leader_is_not(&self, leader: Option<u64>) {
        let mut metrics = self.raft.metrics();
        while metrics.borrow_watched().current_leader == leader {
            if metrics.changed().await.is_err() {
                // openraft has ended: there is no news to come, the caller's deadline decides.
                std::future::pending::<()>().await;
            }
        }
    }

    /// On the leader.
    async fn execute(&self, request: Request) -> ProposerAnswer {
        match request.op {
            Op::RemoveNode { node_id, force } => membership::remove(self, request, node_id, force).await,
            _ => self.proposer.execute(request).await,
        }
    }

    /// A request that another node forwarded: executed here or not at all, never forwarded again.
    pub(crate) async fn execute_forwarded(&self, request: Request) -> pb::ForwardResponse {
        match self.execute(request).await {
            ProposerAnswer::Outcome(outcome) => request::outcome_to(outcome),
            ProposerAnswer::NotLeader => {
                let result = pb::forward_response::Result::NotLeader(self.not_leader(String::new()));
                pb::ForwardResponse { result: Some(result) }
            }
        }
    }

    pub(crate) fn not_leader(&self, reason: String) -> pb::NotLeader {
        pb::NotLeader { leader_id: self.metrics().current_leader.unwrap_or(0), reason }
    }

    /// Waits until this node has applied a write and its RUNTIME objects follow it, so that its client reads what it wrote.
    async fn until_live(&self, committed: Committed, deadline: Instant) -> Committed {
        let index = committed.index;
        let mut stopped = self.stopped.subscribe();
        let live = async {
            let target = self.applied_at_least(index).await?.min(index);
            let mut live = self.live.subscribe();
            live.wait_for(|live| live.is_none_or(|live| live >= target)).await.ok().map(drop)
        };
        let live = tokio::select! {
            live = tokio::time::timeout(left(deadline), live) => matches!(live, Ok(Some(()))),
            // A node that takes no part any more (it may just have been removed) applies nothing.
            _ = stopped.wait_for(Option::is_some) => false,
        };
        let mut warnings = committed.warnings;
        if !live {
            warnings.push(format!("committed at index {index}, not yet live here"));
        }
        Committed { live, warnings, ..committed }
    }

    /// Waits for the index; the `runtime_index` as of then.
    pub(super) async fn applied_at_least(&self, index: u64) -> Option<u64> {
        let mut applied = self.state.watch();
        let applied = applied.wait_for(|applied| applied.index >= index).await.ok()?;
        Some(applied.runtime_index)
    }
}
