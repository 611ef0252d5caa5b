//! The whole path of a write without consensus: proposer, a log in memory, state machine.

mod dml;
mod layers;
mod nodes;
mod replay;
mod requests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use quorumsql_proto::log as pb;
use rusqlite::Connection;
use tempfile::TempDir;

use super::{CommandAnswer, Log, ProposeError, Proposer, ProposerAnswer};
use crate::command::{
    Channel, Committed, EditConflicts, Layer, LayerCopy, Op, Origin, Outcome, Rejection, Request, RequestId, TableRows, Validator, Value,
};
use crate::state_machine::{ApplyEntry, ApplyResult, Payload, StateMachine};
use crate::tables;

const TERM: u64 = 3;

/// Applies what is proposed at once and keeps it for other state machines.
struct MemoryLog {
    state: Arc<StateMachine>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    entries: Vec<ApplyEntry>,
    /// Errors that the next proposals meet instead of being appended.
    errors: Vec<ProposeError>,
    /// Entries of somebody else that come before the next proposal.
    intruders: Vec<Bytes>,
}

impl MemoryLog {
    fn append(&self, payloads: Vec<Payload>) -> Vec<ApplyResult> {
        let mut inner = self.inner.lock();
        let first = inner.entries.last().map_or(1, |entry| entry.index + 1);
        let batch: Vec<ApplyEntry> =
            payloads.into_iter().zip(first..).map(|(payload, index)| ApplyEntry { term: TERM, index, payload }).collect();
        inner.entries.extend(batch.iter().cloned());
        self.state.apply(batch).expect("applies")
    }
}

impl Log for MemoryLog {
    async fn propose(&self, term: u64, entries: Vec<Bytes>) -> Vec<Result<ApplyResult, ProposeError>> {
        assert_eq!(term, TERM);
        let (intruders, error) = {
            let mut inner = self.inner.lock();
            (std::mem::take(&mut inner.intruders), inner.errors.pop())
        };
        if let Some(error) = error {
            return entries.iter().map(|_| Err(error.clone())).collect();
        }
        let skipped = intruders.len();
        let all = intruders.into_iter().chain(entries).map(Payload::Data).collect();
        self.append(all).into_iter().skip(skipped).map(Ok).collect()
    }
}

/// Refuses the rows that a test names.
#[derive(Default)]
struct TestValidator {
    refuse: Mutex<Option<String>>,
}

impl Validator for TestValidator {
    fn validate(&self, module: &str, tables: &[TableRows]) -> Result<Vec<String>, String> {
        if let Some(reason) = self.refuse.lock().clone() {
            return Err(reason);
        }
        Ok(tables
            .iter()
            .flat_map(|table| &table.rows)
            .filter(|row| row.contains(&Value::Text("odd".into())))
            .map(|_| format!("{module}: odd"))
            .collect())
    }
}

struct Lab {
    directory: TempDir,
    state: Arc<StateMachine>,
    log: Arc<MemoryLog>,
    validator: Arc<TestValidator>,
    proposer: Proposer,
    sequence: AtomicU64,
}

impl Lab {
    /// A cluster of one node with the variables that have an effect, led by it.
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let state = Arc::new(StateMachine::open(&directory.path().join("state.db")).expect("opens"));
        let log = Arc::new(MemoryLog { state: state.clone(), inner: Mutex::default() });
        let validator = Arc::new(TestValidator::default());
        log.append(vec![Payload::Blank, Payload::Membership(vec![1, 2, 3]), Payload::Data(bootstrap().encode_to_vec().into())]);
        let proposer = Proposer::start(state.clone(), log.clone(), validator.clone());
        proposer.lead(Some(TERM));
        Self { directory, state, log, validator, proposer, sequence: AtomicU64::new(0) }
    }

    fn origin() -> Origin {
        Origin { actor: "admin".into(), channel: Channel::Mysql, node: 2, client_addr: "10.0.0.7".into() }
    }

    fn next_id(&self) -> RequestId {
        RequestId { client: [7; 16], seq: self.sequence.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    fn sql_op(text: &str) -> Op {
        Op::Sql { text: text.into(), params: Vec::new(), masked: text.into() }
    }

    async fn submit(&self, id: RequestId, op: Op) -> ProposerAnswer {
        self.proposer.execute(Request { id, origin: Self::origin(), op, timeout: Duration::from_secs(30) }).await
    }

    async fn outcome(&self, op: Op) -> Outcome {
        match self.submit(self.next_id(), op).await {
            ProposerAnswer::Outcome(outcome) => outcome,
            ProposerAnswer::NotLeader => panic!("not leader"),
        }
    }

    async fn ok(&self, sql: &str) -> Committed {
        match self.outcome(Self::sql_op(sql)).await {
            Outcome::Committed(committed) => committed,
            other => panic!("{sql}: {other:?}"),
        }
    }

    async fn refused(&self, op: Op) -> Rejection {
        match self.outcome(op).await {
            Outcome::Rejected(rejection) => rejection,
            other => panic!("{other:?}"),
        }
    }

    async fn refused_sql(&self, sql: &str) -> String {
        let rejection = self.refused(Self::sql_op(sql)).await;
        assert_eq!(
            (rejection.mysql_code, rejection.mysql_state.as_str(), rejection.pgsql_state.as_str()),
            (1045, "28000", "28000"),
            "{sql}"
        );
        rejection.message
    }

    async fn copy(&self, copy: LayerCopy) -> Committed {
        match self.outcome(Op::LayerCopy(copy)).await {
            Outcome::Committed(committed) => committed,
            other => panic!("{other:?}"),
        }
    }

    /// Index up to which the log goes.
    fn log_length(&self) -> usize {
        self.log.inner.lock().entries.len()
    }

    fn reader(&self) -> Connection {
        Connection::open_with_flags(self.state.path(), rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).expect("opens")
    }

    /// Rows as text, columns joined by `|`.
    fn rows(&self, sql: &str) -> Vec<String> {
        rows(&self.reader(), sql)
    }
}

fn copy(module: &str, from: Layer, to: Layer) -> LayerCopy {
    LayerCopy {
        modules: vec![module.into()],
        from,
        to,
        if_revision: None,
        dry_run: false,
        force: false,
        comment: String::new(),
        seen: vec![None],
        conflicts: EditConflicts::Warn,
    }
}

fn load(module: &str) -> LayerCopy {
    copy(module, Layer::Memory, Layer::Runtime)
}

/// The first entry: variables with their defaults, one node.
fn bootstrap() -> pb::LogEntry {
    let text = |text: &str| pb::Value { kind: Some(pb::value::Kind::Text(text.into())) };
    let rows = tables::variables()
        .iter()
        .filter(|variable| variable.effective)
        .map(|variable| pb::RowChange { old: vec![], new: vec![text(variable.name), text(variable.default)] });
    let table = pb::TableChange {
        table: "global_variables".into(),
        columns: vec!["variable_name".into(), "variable_value".into()],
        rows: rows.collect(),
        ..pb::TableChange::default()
    };
    let node = pb::NodeAlloc { name: "node1".into(), raft_addr: "127.0.0.1:6035".into(), voter: true, ..pb::NodeAlloc::default() };
    let op = pb::Bootstrap { cluster_id: "c1".into(), node_id: 1, node: Some(node), tables: vec![table] };
    let proposed_at_ms = u64::MAX >> 1;
    pb::LogEntry { format: 1, required_level: 1, proposed_at_ms, op: Some(pb::log_entry::Op::Bootstrap(op)), ..pb::LogEntry::default() }
}

fn rows(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).expect(sql);
    let width = statement.column_count();
    let row = |row: &rusqlite::Row<'_>| {
        let cell = |n| match row.get_ref(n) {
            Ok(rusqlite::types::ValueRef::Null) => "NULL".to_string(),
            Ok(rusqlite::types::ValueRef::Integer(value)) => value.to_string(),
            Ok(rusqlite::types::ValueRef::Text(text)) => String::from_utf8_lossy(text).into_owned(),
            other => format!("{other:?}"),
        };
        Ok((0..width).map(cell).collect::<Vec<_>>().join("|"))
    };
    statement.query_map([], row).expect(sql).map(|row| row.expect(sql)).collect()
}

/// All tables of `state.db` with all their rows, sorted.
fn dump(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).expect("opens");
    let mut lines = Vec::new();
    for table in rows(&connection, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name") {
        let mut found = rows(&connection, &format!("SELECT * FROM {table}"));
        found.sort();
        lines.extend(found.into_iter().map(|row| format!("{table}: {row}")));
    }
    lines
}
