//! A writer of the log whose operations follow from a seed, and what must be found of them.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
};

use openraft::{
    EntryPayload, RaftLogReader,
    storage::{IOFlushed, RaftLogStorage},
    type_config::TypeConfigExt,
};

use super::{Acks, Dice, Orders};
use crate::{
    LogStoreKind,
    error::StartError,
    identity::Layout,
    log_store::LogStore,
    type_config::{Entry, Payload, TypeConfig, Vote, log_id, term_of},
};

/// Appends that may wait for their acknowledgement.
const PENDING: usize = 8;

#[derive(Clone, Debug)]
enum Operation {
    Append { term: u64, from: u64, to: u64 },
    Truncate { after: u64 },
    Purge { term: u64, upto: u64 },
    Vote { term: u64, node: u64 },
    Committed,
}

/// What is done or not done as a whole, whenever the process dies.
enum Step {
    Put(u64, u64),
    Remove(u64),
    Purge(u64, u64),
    Vote(u64, u64),
}

/// What a log holds.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Model {
    vote: Option<(u64, u64)>,
    purged: Option<(u64, u64)>,
    /// Term by index.
    entries: BTreeMap<u64, u64>,
}

impl Model {
    fn take(&mut self, step: &Step) {
        match *step {
            Step::Put(index, term) => drop(self.entries.insert(index, term)),
            Step::Remove(index) => drop(self.entries.remove(&index)),
            Step::Vote(term, node) => self.vote = Some((term, node)),
            Step::Purge(term, index) => {
                self.purged = Some((term, index));
                self.entries = self.entries.split_off(&(index + 1));
            }
        }
    }

    fn end(&self) -> u64 {
        let after = |index: u64| index + 1;
        self.entries.keys().next_back().copied().or(self.purged.map(|(_, index)| index)).map_or(0, after)
    }

    /// What a log holds, whose entries must be what their ids say.
    async fn read(log: &mut LogStore) -> Self {
        let mut reader = log.get_log_reader().await;
        let vote = reader.read_vote().await.unwrap().map(|vote| (vote.leader_id.term, vote.leader_id.voted_for));
        let purged = log.get_log_state().await.unwrap().last_purged_log_id.map(|id| (term_of(&id), id.index));
        let mut entries = BTreeMap::new();
        for entry in reader.try_get_log_entries(0..).await.unwrap() {
            let (term, index) = (term_of(&entry.log_id), entry.log_id.index);
            assert!(entry == self::entry(term, index), "entry {index} of term {term} holds something else");
            entries.insert(index, term);
        }
        Self { vote, purged, entries }
    }
}

/// The entry that stands at this place: some need several rows.
fn entry(term: u64, index: u64) -> Entry {
    let mut dice = Dice(term << 32 | index);
    let size = if dice.below(8) == 0 { dice.below(12_000) } else { dice.below(300) };
    let bytes: Vec<u8> = (0..size).map(|_| dice.next() as u8).collect();
    Entry { log_id: log_id(term, index), payload: EntryPayload::Normal(Payload(bytes.into())) }
}

/// The operations of a seed on a log.
struct Plan {
    dice: Dice,
    term: u64,
    model: Model,
}

impl Plan {
    fn new(model: Model, seed: u64) -> Self {
        let terms = model.entries.values().copied().chain(model.vote.map(|(term, _)| term)).chain(model.purged.map(|(term, _)| term));
        Self { dice: Dice(seed), term: terms.max().unwrap_or(0) + 1, model }
    }

    fn next(&mut self) -> (Operation, Vec<Step>) {
        let (first, end) = (self.model.purged.map_or(0, |(_, index)| index + 1), self.model.end());
        let (operation, steps) = match self.dice.below(20) {
            0 | 1 => {
                self.term += 1;
                let (term, node) = (self.term, self.dice.below(5));
                (Operation::Vote { term, node }, vec![Step::Vote(term, node)])
            }
            2 if end > first + 20 => {
                // What is put there afterwards has another term, as a new leader's entries have.
                self.term += 1;
                let after = end - 1 - self.dice.below(12);
                (Operation::Truncate { after }, (after + 1..end).rev().map(Step::Remove).collect())
            }
            3 if end > first + 60 => {
                let upto = first + self.dice.below(end - first - 20);
                let term = self.model.entries[&upto];
                (Operation::Purge { term, upto }, vec![Step::Purge(term, upto)])
            }
            4 => (Operation::Committed, Vec::new()),
            _ => {
                let (term, from, to) = (self.term, end, end + 1 + self.dice.below(6));
                (Operation::Append { term, from, to }, (from..to).map(|index| Step::Put(index, term)).collect())
            }
        };
        steps.iter().for_each(|step| self.model.take(step));
        (operation, steps)
    }
}

fn open(directory: &Path, store: LogStoreKind) -> Result<LogStore, StartError> {
    let layout = Layout::new(directory);
    layout.create().unwrap();
    LogStore::open(&layout.root().join("raft"), store, "crash")
}

/// A child's work: operations without a pause until it is killed or has done all.
#[tokio::test]
async fn writer() {
    let Some(orders) = Orders::read() else { return };
    let mut log = open(&orders.directory, orders.store).unwrap();
    let mut plan = Plan::new(Model::read(&mut log).await, orders.seed);
    let (mut acks, mut acknowledged, mut pending) = (Acks::create(&orders.directory), 0, VecDeque::new());
    acks.say(0);
    for _ in 0..orders.operations {
        let (operation, _) = plan.next();
        let last = log.get_log_state().await.unwrap().last_log_id;
        match operation {
            Operation::Append { term, from, to } => {
                let (done, answer) = <TypeConfig as TypeConfigExt>::oneshot();
                log.append((from..to).map(|index| entry(term, index)).collect::<Vec<_>>(), IOFlushed::signal(done)).await.unwrap();
                pending.push_back(answer);
            }
            other => {
                match other {
                    Operation::Truncate { after } => {
                        let id = log.get_log_reader().await.try_get_log_entries(after..=after).await.unwrap()[0].log_id;
                        log.truncate_after(Some(id)).await.unwrap();
                    }
                    Operation::Purge { term, upto } => log.purge(log_id(term, upto)).await.unwrap(),
                    Operation::Vote { term, node } => log.save_vote(&Vote::new(term, node)).await.unwrap(),
                    Operation::Committed | Operation::Append { .. } => log.save_committed(last).await.unwrap(),
                }
                // What was appended before it is durable, but the acknowledgement may be under way; the commit mark has none.
                while let Some(answer) = pending.pop_front() {
                    answer.await.unwrap().unwrap();
                    acknowledged += 1;
                }
                acknowledged += 1;
                acks.say(acknowledged);
            }
        }
        while pending.len() > PENDING {
            pending.pop_front().unwrap().await.unwrap().unwrap();
            acknowledged += 1;
            acks.say(acknowledged);
        }
    }
    std::process::exit(0);
}

/// Opens a log that was left by a [`writer`] which began with `before`: everything acknowledged must be there, and of what followed
/// a beginning, step by step.
pub(super) async fn check(directory: &Path, store: LogStoreKind, before: &Model, seed: u64, acknowledged: u64) -> Result<Model, String> {
    let mut log = open(directory, store).map_err(|e| e.to_string())?;
    let found = Model::read(&mut log).await;
    log.close().await.map_err(|e| e.to_string())?;
    let (mut plan, mut model, mut possible) = (Plan::new(before.clone(), seed), before.clone(), Vec::new());
    for number in 0..=acknowledged + PENDING as u64 + 2 {
        for step in plan.next().1 {
            if number >= acknowledged {
                possible.push(model.clone());
            }
            model.take(&step);
        }
    }
    if possible.contains(&found) {
        return Ok(found);
    }
    let least = &possible[0];
    let show = |model: &Model| format!("vote {:?}, purged {:?}, end {}", model.vote, model.purged, model.end());
    Err(format!("after {acknowledged} acknowledged operations: at least {}; found {}", show(least), show(&found)))
}
