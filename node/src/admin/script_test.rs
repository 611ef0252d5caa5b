//! Runs `node/tests/admin/*.sql` against a cluster of one node in this process.
//!
//! A block is a statement, `----`, and what it answers: `ok AFFECTED[: info]`, `error CODE STATE: text`, or `[column | …]`
//! and a line per row; then `warning: text` lines. `@name` in front of the statement chooses the connection (its user is the
//! name without digits); `# …` is a comment; blank lines part blocks. `…` in an expected line stands for anything.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quorumsql_dataplane::config::RuntimeConfig;
use quorumsql_dataplane::{DataPlane, DataPlaneOptions};
use quorumsql_raft::membership::init;
use quorumsql_raft::{Consensus, LogStoreKind, RaftOptions, Timings};

use super::context::Context;
use super::database::AdminDatabase;
use super::local::LocalTables;
use super::session::AdminSession;
use crate::runtime::RowValidator;
use crate::sql_server::value::text;
use crate::sql_server::{Answer, Database as _, Face, Login, Session as _, SqlError};

struct NoFacts;

impl LocalTables for NoFacts {
    fn reload_tls(&self) -> Result<(), String> {
        Ok(())
    }

    fn reopen_logs(&self) {}

    fn shut_down(&self) {}
}

/// A cluster of one node.
pub(super) struct SingleNode {
    _directory: tempfile::TempDir,
    pub(super) database: Arc<AdminDatabase>,
    consensus: Consensus,
}

pub(super) async fn single_node() -> SingleNode {
    let directory = tempfile::tempdir().unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let options = RaftOptions {
        data_dir: directory.path().to_owned(),
        name: "node1".into(),
        log_store: LogStoreKind::Sqlite,
        timings: Timings::default(),
        peer_listen: address.clone(),
        advertise: address,
        build: "test".into(),
    };
    init(&options, Vec::new()).await.unwrap();
    let consensus = Consensus::start(options, Arc::new(RowValidator)).await.unwrap();
    let mut applied = consensus.watch();
    while consensus.status().leader_id != Some(1) {
        let _ = tokio::time::timeout(Duration::from_millis(20), applied.changed()).await;
    }
    let config = RuntimeConfig { index: 0, revision: 0, mysql: Arc::default(), pgsql: Arc::default() };
    let dataplane = DataPlane::start(DataPlaneOptions { threads: 1, slot: 1 }, Arc::new(config)).unwrap();
    let context = Arc::new(Context::new(consensus.clone(), dataplane, Arc::new(NoFacts)));
    SingleNode { _directory: directory, database: Arc::new(AdminDatabase::new(context)), consensus }
}

impl SingleNode {
    pub(super) async fn session(&self, user: &str, face: Face) -> AdminSession {
        let login = Login { face, user: user.into(), database: String::new(), peer: IpAddr::V4(Ipv4Addr::LOCALHOST), connection_id: 7 };
        self.database.open(login).await.unwrap()
    }
}

async fn check(path: &Path) -> Vec<String> {
    let node = single_node().await;
    let mut sessions = BTreeMap::new();
    let mut wrong = Vec::new();
    for block in std::fs::read_to_string(path).unwrap().split("\n\n").filter(|block| !block.trim().is_empty()) {
        let lines: Vec<&str> = block.lines().filter(|line| !line.starts_with('#')).collect();
        let text = lines.join("\n");
        let Some((statement, expected)) = text.split_once("\n----") else {
            assert!(text.trim().is_empty(), "{}: no ---- in {block}", path.display());
            continue;
        };
        let (name, sql) = match statement.trim().strip_prefix('@').and_then(|rest| rest.split_once(char::is_whitespace)) {
            Some((name, sql)) => (name, sql),
            None => ("admin", statement.trim()),
        };
        if !sessions.contains_key(name) {
            sessions.insert(name.to_owned(), node.session(name.trim_end_matches(char::is_numeric), Face::Mysql).await);
        }
        let session = sessions.get_mut(name).unwrap();
        let found = show(session.execute(sql, &[]).await);
        if !alike(expected.trim(), found.trim()) {
            wrong.push(format!("{}\n{sql}\n---- expected\n{}\n---- found\n{found}\n", path.display(), expected.trim()));
        }
    }
    node.consensus.shutdown().await;
    wrong
}

fn show(result: Result<Answer, SqlError>) -> String {
    let notices = |notices: &[String]| notices.iter().map(|notice| format!("\nwarning: {notice}")).collect::<String>();
    match result {
        Err(error) => format!("error {} {}: {}", error.mysql_code, error.mysql_state, error.message),
        Ok(Answer::Done(done)) => {
            let info = if done.info.is_empty() { String::new() } else { format!(": {}", done.info) };
            format!("ok {}{info}{}", done.affected, notices(&done.notices))
        }
        Ok(Answer::Rows(rows)) => {
            let head: Vec<&str> = rows.columns.iter().map(|column| column.name.as_str()).collect();
            let cell = |value| text(value).map_or("NULL".to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned());
            let body: Vec<String> = rows.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join(" | ")).collect();
            format!("[{}]\n{}{}", head.join(" | "), body.join("\n"), notices(&rows.notices))
        }
    }
}

/// Line by line; `…` matches anything, blank ends of lines do not count.
fn alike(expected: &str, found: &str) -> bool {
    let fits = |(expected, found): (&str, &str)| {
        let parts: Vec<&str> = expected.trim_end().split('…').collect();
        let mut rest = found.trim_end();
        if parts.len() == 1 {
            return rest == parts[0];
        }
        for (at, part) in parts.iter().enumerate() {
            let place = if at == 0 {
                rest.starts_with(part).then_some(0)
            } else if at + 1 == parts.len() {
                rest.ends_with(part).then(|| rest.len() - part.len())
            } else {
                rest.find(part)
            };
            let Some(place) = place else { return false };
            rest = &rest[place + part.len()..];
        }
        true
    };
    expected.lines().count() == found.lines().count() && expected.lines().zip(found.lines()).all(fits)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_answer_as_the_files_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/admin");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "sql"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let mut wrong = Vec::new();
    for path in files {
        wrong.extend(check(&path).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
