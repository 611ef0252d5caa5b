//! What clients were told, what happened, and whether it may be so.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags, types::ValueRef};
use tokio::time::Instant;

use super::cluster::{Cluster, NODES};

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// An acknowledged write is missing on a node.
    Lost { node: u64, write: String },
    /// A write took effect more than once.
    Duplicate { node: u64, write: String },
    /// A write was refused and is there.
    Refused { node: u64, write: String },
    /// Two acknowledgements name one index.
    SharedIndex { index: u64, writes: [String; 2] },
    /// Two nodes disagree.
    Differ { nodes: [u64; 2], first: String },
    /// A node's part in consensus is over.
    Ended { node: u64, reason: String },
    /// R2: the state machine has what the own log may lose.
    AheadOfLog { node: u64, applied: u64, durable_below: u64 },
    /// Something did not happen that must.
    NoProgress(String),
    /// A node that reaches nobody has raised its term, and deposes the leader when it comes back.
    TermRaised { node: u64, from: u64, to: u64 },
    /// Two nodes led one term.
    TwoLeaders { term: u64, leaders: [u64; 2] },
}

#[derive(Default)]
struct Told {
    events: Vec<String>,
    acknowledged: BTreeMap<String, u64>,
    by_index: BTreeMap<u64, String>,
    refused: BTreeSet<String>,
    unknown: usize,
    leaders: BTreeMap<u64, u64>,
    failures: Vec<Failure>,
}

/// Everything that was seen from outside, in order.
pub(crate) struct Journal {
    begin: Instant,
    told: Mutex<Told>,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self { begin: Instant::now(), told: Mutex::default() }
    }

    pub(crate) fn note(&self, event: String) {
        let at = self.begin.elapsed();
        self.told.lock().events.push(format!("{:9.4} {event}", at.as_secs_f64()));
    }

    pub(crate) fn fail(&self, failure: Failure) {
        self.note(format!("FAILURE {failure:?}"));
        self.told.lock().failures.push(failure);
    }

    /// A write was acknowledged at `index`; `write` is the comment of the row that it put in.
    pub(crate) fn acknowledged(&self, write: &str, index: u64) {
        self.note(format!("acknowledged {write} at {index}"));
        let other = {
            let mut told = self.told.lock();
            told.acknowledged.insert(write.into(), index);
            told.by_index.insert(index, write.into())
        };
        if let Some(other) = other {
            self.fail(Failure::SharedIndex { index, writes: [other, write.into()] });
        }
    }

    pub(crate) fn refused(&self, write: &str, why: &str) {
        self.note(format!("refused {write}: {why}"));
        self.told.lock().refused.insert(write.into());
    }

    pub(crate) fn unknown(&self, write: &str) {
        self.note(format!("unknown {write}"));
        self.told.lock().unknown += 1;
    }

    /// A node was seen to lead.
    pub(crate) fn leads(&self, term: u64, node: u64) {
        let other = self.told.lock().leaders.insert(term, node);
        match other {
            None => self.note(format!("node {node} leads term {term}")),
            Some(other) if other != node => self.fail(Failure::TwoLeaders { term, leaders: [other, node] }),
            Some(_) => {}
        }
    }

    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.told.lock().failures.clone()
    }

    pub(crate) fn counts(&self) -> Counts {
        let told = self.told.lock();
        Counts { acknowledged: told.acknowledged.len(), refused: told.refused.len(), unknown: told.unknown, terms: told.leaders.len() }
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.told.lock().events.clone()
    }
}

/// How much a run has seen.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub(crate) acknowledged: usize,
    pub(crate) refused: usize,
    pub(crate) unknown: usize,
    pub(crate) terms: usize,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.unknown += other.unknown;
        self.terms += other.terms;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, refused, unknown, terms } = self;
        write!(f, "{acknowledged} acknowledged, {refused} refused, {unknown} unknown, {terms} terms")
    }
}

/// Compares what clients were told with the rows of every node, and the nodes with each other.
pub(crate) fn check(cluster: &Cluster) {
    let dumps: BTreeMap<u64, Vec<String>> = NODES.map(|id| (id, dump(cluster, id))).collect();
    let first = &dumps[&NODES.start];
    for (id, other) in &dumps {
        if other != first {
            let differs = first.iter().zip(other).find(|(a, b)| a != b);
            let differs = differs.map_or_else(|| "number of rows".into(), |(a, b)| format!("{a} | {b}"));
            cluster.journal.fail(Failure::Differ { nodes: [NODES.start, *id], first: differs });
        }
        check_rows(cluster, *id);
    }
}

fn check_rows(cluster: &Cluster, node: u64) {
    let mut times: BTreeMap<String, u64> = BTreeMap::new();
    for write in comments(cluster, node) {
        *times.entry(write).or_default() += 1;
    }
    let failures: Vec<Failure> = {
        let told = cluster.journal.told.lock();
        let lost = told.acknowledged.keys().filter(|write| !write.starts_with(NO_ROW) && !times.contains_key(*write));
        let lost = lost.map(|write| Failure::Lost { node, write: write.clone() });
        let duplicate = times.iter().filter(|(_, times)| **times > 1).map(|(write, _)| Failure::Duplicate { node, write: write.clone() });
        let refused = told.refused.iter().filter(|write| times.contains_key(*write));
        lost.chain(duplicate).chain(refused.map(|write| Failure::Refused { node, write: write.clone() })).collect()
    };
    failures.into_iter().for_each(|failure| cluster.journal.fail(failure));
}

/// Name of writes that put in no row, as LOAD.
pub(crate) const NO_ROW: &str = "load";

fn open(cluster: &Cluster, node: u64) -> Connection {
    Connection::open_with_flags(cluster.state_db(node), OpenFlags::SQLITE_OPEN_READ_ONLY).expect("state.db opens")
}

fn comments(cluster: &Cluster, node: u64) -> Vec<String> {
    let connection = open(cluster, node);
    let mut statement = connection.prepare("SELECT comment FROM mysql_query_rules").expect("the table exists");
    let rows = statement.query_map([], |row| row.get(0)).expect("is read");
    rows.map(|row| row.expect("is text")).collect()
}

/// All tables of `state.db` with all their rows, hashes included, sorted.
fn dump(cluster: &Cluster, node: u64) -> Vec<String> {
    let connection = open(cluster, node);
    let mut names = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").expect("is valid");
    let names: Vec<String> = names.query_map([], |row| row.get(0)).expect("is read").map(|name| name.expect("is text")).collect();
    let mut lines = Vec::new();
    for table in names {
        let mut statement = connection.prepare(&format!("SELECT * FROM \"{table}\"")).expect("the table exists");
        let width = statement.column_count();
        let mut rows = statement.query([]).expect("is read");
        let first = lines.len();
        while let Some(row) = rows.next().expect("is read") {
            let cells: Vec<String> = (0..width).map(|column| cell(row.get_ref(column).expect("exists"))).collect();
            lines.push(format!("{table}: {}", cells.join(", ")));
        }
        lines[first..].sort();
    }
    lines
}

fn cell(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".into(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
