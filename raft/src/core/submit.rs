//! Writes and linearizable reads from any node: here if this node leads, else at the leader, one hop away.
//!
//! A write is repeated with the same request id until its deadline; the proposer answers an id that it knows from `request_ids`,
//! so a repetition after an unknown outcome asks what became of the first one and never executes twice.

use std::time::{Duration, Instant};

use openraft::{
    ReadPolicy,
    async_runtime::WatchReceiver,
    errors::{ForwardReason, LinearizableReadError, RaftError},
};
use quorumsql_proto::peer as pb;

use super::{Core, left};
use crate::{
    command::{Committed, Op, Outcome, ReadLevel, ReadMark, Rejection, Request, Value},
    network::{MAX_STATEMENT_BYTES, client::never_sent, convert, request},
    proposer::ProposerAnswer,
    type_config::LogId,
};

const FIRST_BACK_OFF: Duration = Duration::from_millis(5);
const LONGEST_BACK_OFF: Duration = Duration::from_millis(100);

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
        let deadline = Instant::now() + request.timeout;
        let (mut back_off, mut maybe_done) = (FIRST_BACK_OFF, false);
        loop {
            if let Some(reason) = self.read_only_reason(&self.metrics()) {
                return if maybe_done { self.no_answer(&request) } else { Outcome::Rejected(Rejection::read_only(reason)) };
            }
            let attempt = self.attempt(&request, deadline).await;
            let refusal = match attempt {
                Attempt::Decided(Outcome::Committed(committed)) => return Outcome::Committed(self.until_live(committed, deadline).await),
                Attempt::Decided(Outcome::Rejected(rejection)) => return Outcome::Rejected(rejection),
                Attempt::Decided(Outcome::Unknown(_)) | Attempt::Unknown => {
                    maybe_done = true;
                    None
                }
                Attempt::NoLeader => None,
                Attempt::Unreachable { leader, address } => {
                    Some(format!("configuration is read-only: leader node {leader} at {address} does not answer"))
                }
            };
            if left(deadline) <= back_off {
                return if maybe_done { self.no_answer(&request) } else { Outcome::Rejected(Rejection::read_only(self.refusal(refusal))) };
            }
            // A new leader ends the wait at once.
            let known = self.metrics().current_leader;
            drop(tokio::time::timeout(back_off, self.leader_is_not(known)).await);
            back_off = (back_off * 2).min(LONGEST_BACK_OFF);
        }
    }

    fn no_answer(&self, request: &Request) -> Outcome {
        Outcome::Unknown(Rejection::no_answer(request.timeout.as_millis(), &request.id.client, request.id.seq))
    }

    fn refusal(&self, known: Option<String>) -> String {
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
                match self.proposer.execute(request).await {
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

    /// Waits until this node knows another leader than `leader`.
    async fn leader_is_not(&self, leader: Option<u64>) {
        let mut metrics = self.raft.metrics();
        while metrics.borrow_watched().current_leader == leader {
            if metrics.changed().await.is_err() {
                // openraft has ended: there is no news to come, the caller's deadline decides.
                std::future::pending::<()>().await;
            }
        }
    }

    /// A request that another node forwarded: executed here or not at all, never forwarded again.
    pub(crate) async fn execute_forwarded(&self, request: Request) -> pb::ForwardResponse {
        match self.proposer.execute(request).await {
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
        let live = tokio::time::timeout(left(deadline), async {
            let target = self.applied_at_least(index).await?.min(index);
            let mut live = self.live.subscribe();
            live.wait_for(|live| live.is_none_or(|live| live >= target)).await.ok().map(drop)
        });
        let live = matches!(live.await, Ok(Some(())));
        let mut warnings = committed.warnings;
        if !live {
            warnings.push(format!("committed at index {index}, not yet live here"));
        }
        Committed { live, warnings, ..committed }
    }

    /// Waits for the index; the `runtime_index` as of then.
    async fn applied_at_least(&self, index: u64) -> Option<u64> {
        let mut applied = self.state.watch();
        let applied = applied.wait_for(|applied| applied.index >= index).await.ok()?;
        Some(applied.runtime_index)
    }

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
