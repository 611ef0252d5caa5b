//! The task: takes requests in order, computes a batch, proposes it, answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message;
use quorumsql_proto::log as pb;
use tokio::sync::{mpsc, watch};

use super::batch;
use super::speculation::Speculation;
use super::work::{Answer, Computed, Task};
use super::{Log, ProposeError};
use crate::blocking;
use crate::command::{Applied, Rejection, Validator};
use crate::state_machine::{ApplyOutcome, ApplyResult, StateMachine, StorageError};

/// Requests in a batch (raft-and-storage.md 4.4).
const BATCH_TASKS: usize = 64;
/// A request whose entry met other rows is computed again this often.
const MAX_RETRIES: u32 = 3;
/// An empty entry shows that the leader lives when nothing else was proposed for this long.
const TICK: Duration = Duration::from_secs(5);

/// What the task owns.
pub(super) struct Worker<L> {
    state: Arc<StateMachine>,
    log: Arc<L>,
    validator: Arc<dyn Validator>,
    lead: watch::Receiver<Option<u64>>,
    applied: watch::Receiver<Applied>,
    /// Opened at the first batch.
    speculation: Arc<Mutex<Option<Speculation>>>,
    pending: VecDeque<Task>,
}

/// What woke the task.
enum Event {
    Lead,
    Task(Option<Box<Task>>),
    Idle,
}

impl<L: Log> Worker<L> {
    pub(super) fn new(state: Arc<StateMachine>, log: Arc<L>, validator: Arc<dyn Validator>, lead: watch::Receiver<Option<u64>>) -> Self {
        let applied = state.watch();
        Self { state, log, validator, lead, applied, speculation: Arc::default(), pending: VecDeque::new() }
    }

    fn leading(&mut self) -> Option<u64> {
        *self.lead.borrow_and_update()
    }
}

/// Runs until all handles are dropped.
pub(super) async fn run<L: Log>(mut worker: Worker<L>, mut tasks: mpsc::Receiver<Task>) {
    loop {
        let Some(term) = worker.leading() else {
            worker.pending.drain(..).for_each(|task| task.answer(Answer::NotLeader));
            tokio::select! {
                biased;
                changed = worker.lead.changed() => if changed.is_err() { return },
                task = tasks.recv() => match task {
                    Some(task) => task.answer(Answer::NotLeader),
                    None => return,
                },
            }
            continue;
        };
        if !worker.open(term).await {
            continue;
        }
        if worker.pending.is_empty() {
            let event = tokio::select! {
                biased;
                changed = worker.lead.changed() => if changed.is_err() { return } else { Event::Lead },
                task = tasks.recv() => Event::Task(task.map(Box::new)),
                () = tokio::time::sleep(TICK) => Event::Idle,
            };
            match event {
                Event::Lead => continue,
                Event::Task(Some(task)) => worker.pending.push_back(*task),
                Event::Task(None) => return,
                Event::Idle => {
                    worker.tick(term).await;
                    continue;
                }
            }
        }
        while worker.pending.len() < BATCH_TASKS
            && let Ok(task) = tasks.try_recv()
        {
            worker.pending.push_back(task);
        }
        worker.batch(term).await;
    }
}

impl<L: Log> Worker<L> {
    /// Waits until an entry of this term is applied here, so that the rows are those of all earlier leaders.
    /// False when leadership changed meanwhile.
    async fn open(&mut self, term: u64) -> bool {
        while self.state.applied().term < term {
            tokio::select! {
                biased;
                _ = self.lead.changed() => return false,
                changed = self.applied.changed() => if changed.is_err() { return false },
            }
        }
        true
    }

    async fn tick(&self, term: u64) {
        let op = Some(pb::log_entry::Op::Tick(pb::Tick {}));
        let entry = pb::LogEntry { format: 1, required_level: 1, expect: Some(self.state.expect()), op, ..pb::LogEntry::default() };
        let answers = self.log.propose(term, vec![entry.encode_to_vec().into()]).await;
        if let Some(Err(error)) = answers.first() {
            tracing::debug!(?error, "tick not applied");
        }
    }

    async fn batch(&mut self, term: u64) {
        let taken: Vec<Task> = self.pending.drain(..).filter(|task| task.progress.take()).collect();
        if taken.is_empty() {
            return;
        }
        let (state, speculation, validator) = (self.state.clone(), self.speculation.clone(), self.validator.clone());
        let work = blocking::run(move || {
            let computed = compute(&state, &speculation, &validator, &taken);
            (taken, computed)
        });
        let (taken, computed) = match work.await {
            Ok((taken, Ok(computed))) => (taken, computed),
            Ok((taken, Err(error))) => {
                tracing::error!(%error, "batch could not be computed");
                if error.is_broken_file() {
                    self.state.fail(&error);
                }
                let rejection = Rejection::admin(format!("the change could not be computed: {error}"));
                taken.into_iter().for_each(|task| task.answer(Answer::Rejected(rejection.clone())));
                return;
            }
            Err(error) => {
                // The tasks are gone with the panic: their callers see a dropped reply, which is "unknown".
                tracing::error!(%error, "proposer panicked");
                *self.speculation.lock() = None;
                return;
            }
        };
        let mut proposed = Vec::new();
        let mut entries = Vec::new();
        for (task, computed) in taken.into_iter().zip(computed) {
            match computed {
                Computed::Entry(entry) => {
                    entries.push(entry);
                    proposed.push(task);
                }
                Computed::Answer(answer) => task.answer(answer),
                Computed::Deferred => self.pending.push_back(task),
            }
        }
        if !entries.is_empty() {
            self.propose(term, proposed, entries).await;
        }
    }

    async fn propose(&mut self, term: u64, tasks: Vec<Task>, entries: Vec<bytes::Bytes>) {
        let mut answers = self.log.propose(term, entries).await.into_iter();
        let mut again = Vec::new();
        for task in tasks {
            match answers.next() {
                Some(Ok(result)) if result.outcome == ApplyOutcome::Retry && task.retries() < MAX_RETRIES => {
                    again.push(task.once_more());
                }
                Some(answer) => task.answer(final_answer(answer)),
                None => task.answer(Answer::Unknown),
            }
        }
        again.into_iter().rev().for_each(|task| self.pending.push_front(task));
    }
}

fn final_answer(answer: Result<ApplyResult, ProposeError>) -> Answer {
    match answer {
        Ok(result) => Answer::Applied(result),
        Err(ProposeError::NotLeader { .. } | ProposeError::LeaseExpired) => Answer::NotLeader,
        Err(ProposeError::Discarded | ProposeError::Fatal(_)) => Answer::Unknown,
    }
}

fn compute(
    state: &StateMachine,
    speculation: &Mutex<Option<Speculation>>,
    validator: &Arc<dyn Validator>,
    tasks: &[Task],
) -> Result<Vec<Computed>, StorageError> {
    let mut speculation = speculation.lock();
    if speculation.is_none() {
        *speculation = Some(Speculation::open(state.path())?);
    }
    match speculation.as_ref() {
        Some(open) => batch::compute(state, open, validator, tasks),
        None => Err(StorageError::Stopped),
    }
}
