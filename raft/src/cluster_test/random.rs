//! Any sequence of admin statements through any nodes leaves every node with the same file, and the same tables as one node that
//! executes them in the order of their commits: also after a node was restarted, and after one got a snapshot.

use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;

use super::*;
use crate::{
    command::{EditConflicts, Layer, LayerCopy, Value},
    root_hash,
    tables::{MODULES, TABLES},
};

/// A failing seed is run again with this environment variable.
const SEED: &str = "QUORUMSQL_SEED";

/// Small deterministic generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn of<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[usize::try_from(self.below(items.len() as u64)).unwrap()]
    }

    fn op(&mut self) -> Op {
        match self.below(10) {
            0 | 1 => self.copy(),
            _ => {
                let (text, params) = self.statement();
                Op::Sql { masked: text.clone(), text, params }
            }
        }
    }

    /// Valid or not: refusals are part of the game.
    fn statement(&mut self) -> (String, Vec<Value>) {
        let (n, m) = (self.below(6), self.below(6));
        let layer = self.of(&["", "", "disk.", "main."]);
        let rules = self.of(&["mysql_query_rules", "pgsql_query_rules"]);
        let servers = self.of(&["mysql_servers", "pgsql_servers"]);
        let text = match self.below(18) {
            0 | 1 => format!("INSERT INTO {layer}{servers} (hostgroup_id, hostname, weight) VALUES ({n}, 'h{m}', {m})"),
            2 => format!("REPLACE INTO {layer}{servers} (hostgroup_id, hostname, weight, comment) VALUES ({n}, 'h{m}', {m}, 'ä {n}')"),
            3 => format!("UPDATE OR REPLACE {layer}{servers} SET hostgroup_id = {m} WHERE hostgroup_id = {n}"),
            4 => format!("DELETE FROM {layer}{servers} WHERE hostgroup_id < {n} AND weight > {m}"),
            5 => format!("REPLACE INTO {layer}mysql_replication_hostgroups VALUES ({n}, {}, 'read_only', '{m}')", m + 10),
            6 | 7 => format!("INSERT INTO {layer}{rules} (active, match_digest, comment) VALUES (1, '^SELECT {n}', {n}.5)"),
            8 => format!("DELETE FROM {layer}{rules} WHERE rule_id % 3 = {}", n % 3),
            9 => format!("UPDATE {layer}{rules} SET rule_id = rule_id + {n} WHERE comment > {m}"),
            10 => format!("REPLACE INTO {layer}{rules} (rule_id, active, apply) VALUES ({}, {}, 1)", n * 7, m % 2),
            11 => format!("INSERT OR IGNORE INTO {servers} SELECT * FROM disk.{servers} WHERE weight <> {n}"),
            12 => {
                format!("UPDATE {layer}global_variables SET variable_value = '{}' WHERE variable_name = 'mysql-max_connections'", n * 100)
            }
            13 => format!("INSERT INTO {layer}mysql_users (username, password, default_hostgroup) VALUES ('u{n}', 'p{m}', {m})"),
            14 => format!("UPDATE {layer}mysql_users SET default_hostgroup = (SELECT count(*) FROM {rules}), comment = username"),
            15 => format!("DELETE FROM {layer}mysql_users WHERE username = 'u{n}'"),
            16 => {
                let text = format!("INSERT INTO {layer}{servers} (hostgroup_id, hostname, comment) VALUES (?1, ?2, ?3)");
                let word = Value::Text("x".repeat(usize::try_from(n * 50).unwrap()));
                return (text, vec![Value::Integer(n.cast_signed()), Value::Text(format!("p{m}")), word]);
            }
            _ => self
                .of(&[
                    "INSERT INTO mysql_servers (hostgroup_id) VALUES (1)",
                    "INSERT INTO no_such_table VALUES (1)",
                    "UPDATE runtime_mysql_servers SET weight = 1",
                    "DROP TABLE mysql_servers",
                    "INSERT INTO mysql_servers (hostgroup_id, hostname, port) VALUES (1, 'h', 700000)",
                    "DELETE FROM",
                    "UPDATE mysql_query_rules SET active = 7",
                ])
                .to_owned(),
        };
        (text, Vec::new())
    }

    fn copy(&mut self) -> Op {
        use Layer::{Disk, Memory, Runtime};
        let (from, to) = *self.of(&[&(Memory, Runtime), &(Memory, Runtime), &(Runtime, Memory), &(Memory, Disk), &(Disk, Memory)]);
        let all = self.below(4) == 0;
        let one = self.below(MODULES.len() as u64);
        let modules: Vec<String> =
            MODULES.iter().zip(0..).filter(|(_, n)| all || *n == one).map(|(module, _)| module.name.to_owned()).collect();
        Op::LayerCopy(LayerCopy {
            seen: vec![None; modules.len()],
            modules,
            from,
            to,
            if_revision: (self.below(6) == 0).then(|| self.below(8)),
            dry_run: self.below(8) == 0,
            force: self.below(3) > 0,
            comment: String::new(),
            conflicts: EditConflicts::Warn,
        })
    }
}

/// What was asked, by the number that is its request's client id.
#[derive(Default)]
struct Asked {
    next: AtomicU64,
    ops: parking_lot::Mutex<Vec<Op>>,
}

impl Asked {
    fn request(&self, op: Op) -> Request {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut ops = self.ops.lock();
        ops.push(op.clone());
        assert_eq!(ops.len() as u64, number + 1, "one thread asks");
        let mut client = [0xee; 16];
        client[8..].copy_from_slice(&number.to_be_bytes());
        Request { id: RequestId { client, seq: 1 }, origin: origin(), op, timeout: Duration::from_secs(10) }
    }

    /// Everything that reached the log, in its order: each request has a client of its own, and nodes remember the last request of each.
    fn in_commit_order(&self, connection: &Connection) -> Vec<Op> {
        let sql = r#"SELECT client_id FROM request_ids WHERE substr(client_id, 1, 8) = x'eeeeeeeeeeeeeeee' ORDER BY "index""#;
        let mut statement = connection.prepare(sql).unwrap();
        let numbers = statement.query_map([], |row| row.get::<_, Vec<u8>>(0)).unwrap();
        let ops = self.ops.lock();
        let number = |id: Vec<u8>| usize::try_from(u64::from_be_bytes(id[8..].try_into().unwrap())).unwrap();
        numbers.map(|id| ops[number(id.unwrap())].clone()).collect()
    }
}

/// `count` statements through `nodes`, three at a time.
async fn run(nodes: &[Node], asked: &Asked, dice: &mut Dice, count: usize) {
    for _ in 0..count / 3 {
        let together = (0..3).map(|_| {
            let node = usize::try_from(dice.below(nodes.len() as u64)).unwrap();
            nodes[node].on().submit(asked.request(dice.op()))
        });
        let together: Vec<_> = together.collect();
        for outcome in futures::future::join_all(together).await {
            assert!(!matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
        }
    }
}

fn lines(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    let width = statement.column_count();
    let row = |row: &rusqlite::Row<'_>| (0..width).map(|n| row.get_ref(n).map(|value| format!("{value:?}"))).collect::<Result<Vec<_>, _>>();
    statement.query_map([], row).unwrap().map(|row| row.unwrap().join("|")).collect()
}

/// Applied index, and every row of every table of the file.
fn whole_file(node: &Node) -> (u64, Vec<String>) {
    let mut connection = node.on().reader().unwrap();
    let transaction = connection.transaction().unwrap();
    let index: i64 = transaction.query_row("SELECT last_index FROM raft_meta", [], |row| row.get(0)).unwrap();
    let names = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
    let names: Vec<String> = transaction.prepare(names).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let mut all = Vec::new();
    for name in names {
        let mut rows = lines(&transaction, &format!("SELECT * FROM {name}"));
        rows.sort();
        all.extend(rows.into_iter().map(|row| format!("{name}: {row}")));
    }
    (index.unsigned_abs(), all)
}

/// All admin tables in all layers with their AUTOINCREMENT counters, and the revision.
fn tables(connection: &Connection) -> Vec<String> {
    let mut all = lines(connection, "SELECT runtime_revision FROM raft_meta");
    all.extend(lines(connection, "SELECT name, seq FROM sqlite_sequence WHERE seq > 0 ORDER BY name"));
    for table in TABLES {
        for prefix in ["", "base_runtime_", "disk_"] {
            let rows = lines(connection, &format!("SELECT * FROM {prefix}{} ORDER BY {}", table.name, table.primary_key.join(", ")));
            all.extend(rows.into_iter().map(|row| format!("{prefix}{}: {row}", table.name)));
        }
    }
    all
}

/// The same file everywhere at the same index; a tick may come in between.
async fn assert_equal_files(nodes: &[Node], seed: u64) {
    let begin = Instant::now();
    loop {
        let files: Vec<_> = nodes.iter().map(whole_file).collect();
        if files.iter().all(|(index, _)| *index == files[0].0) {
            for (node, (_, file)) in nodes.iter().zip(&files) {
                let differing: Vec<_> = file.iter().filter(|line| !files[0].1.contains(line)).collect();
                assert!(*file == files[0].1, "seed {seed}: {} has {differing:#?}", node.options.name);
                assert_eq!(node.on().status().consensus_stopped, None, "seed {seed}");
            }
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "seed {seed}: {:?}", files.iter().map(|(index, _)| index).collect::<Vec<_>>());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Cuts the log of every node up to a snapshot of what is applied.
async fn snapshot_and_purge(nodes: &[Node]) {
    for node in nodes {
        let core = node.on().core().clone();
        let work = async move {
            let applied = core.metrics().last_applied.map_or(0, |id| id.index);
            core.raft.trigger().snapshot().await.unwrap();
            let built = |metrics: &crate::type_config::Metrics| metrics.snapshot.is_some_and(|id| id.index >= applied);
            core.raft.wait(Some(PATIENCE)).metrics(built, "snapshot").await.unwrap();
            core.raft.trigger().purge_log(applied).await.unwrap();
            let purged = |metrics: &crate::type_config::Metrics| metrics.purged.is_some_and(|id| id.index >= applied);
            core.raft.wait(Some(PATIENCE)).metrics(purged, "purged").await.unwrap();
        };
        node.on().run(work).await;
    }
}

async fn one_seed(seed: u64, log_store: LogStoreKind) {
    println!("{SEED}={seed}");
    let (mut dice, asked) = (Dice(seed), Asked::default());
    let mut nodes = cluster(3, log_store).await;
    run(&nodes, &asked, &mut dice, 60).await;
    assert_equal_files(&nodes, seed).await;

    // One is away while the others go on and cut their logs: it comes back by a snapshot.
    let away = usize::try_from(dice.below(3)).unwrap();
    let mut absent = nodes.remove(away);
    absent.kill();
    run(&nodes, &asked, &mut dice, 45).await;
    snapshot_and_purge(&nodes).await;
    let before = nodes[0].on().status().applied_index;
    absent.start().await;
    nodes.push(absent);
    nodes[2].until("caught up", |status| status.applied_index >= before && status.read_only_reason.is_none()).await;
    run(&nodes, &asked, &mut dice, 45).await;
    assert_equal_files(&nodes, seed).await;

    // Another is restarted and reads its own log again.
    let again = usize::try_from(dice.below(2)).unwrap();
    nodes[again].kill();
    nodes[again].start().await;
    nodes[again].until("back", |status| status.applied_index >= before && status.read_only_reason.is_none()).await;
    run(&nodes, &asked, &mut dice, 30).await;
    assert_equal_files(&nodes, seed).await;

    let reader = nodes[0].on().reader().unwrap();
    let ops = asked.in_commit_order(&reader);
    assert!(ops.len() > 60, "seed {seed}: only {} statements had an effect", ops.len());
    let (single, again) = (cluster(1, log_store).await, Asked::default());
    for op in ops {
        single[0].on().submit(again.request(op)).await;
    }
    let alone = single[0].on().reader().unwrap();
    let (together, alone_tables) = (tables(&reader), tables(&alone));
    let differing: Vec<_> = together.iter().filter(|line| !alone_tables.contains(line)).collect();
    assert!(together == alone_tables, "seed {seed}: a single node has other tables than {differing:#?}");
    assert_eq!(root_hash(&reader).unwrap(), root_hash(&alone).unwrap(), "seed {seed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn random_statements_through_random_nodes_leave_equal_tables() {
    if let Some(seed) = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()) {
        return one_seed(seed, LogStoreKind::Sqlite).await;
    }
    let mut fresh = [0; 8];
    getrandom::fill(&mut fresh).unwrap();
    for (seed, log_store) in [(1, LogStoreKind::Sled), (u64::from_be_bytes(fresh), LogStoreKind::Sqlite)] {
        one_seed(seed, log_store).await;
    }
}
