//! The same log gives the same state: applied entry by entry, in batches, and through a snapshot.

use super::*;
use crate::state_machine::{StorageError, root_hash};

fn fresh(directory: &Path, name: &str) -> StateMachine {
    StateMachine::open(&directory.join(name)).expect("opens")
}

/// Applies the lab's log elsewhere in three ways and compares everything.
pub(super) fn assert_equal_elsewhere(lab: &Lab) {
    let entries = lab.log.inner.lock().entries.clone();
    let directory = tempfile::tempdir().expect("directory");
    let expected = dump(lab.state.path());

    let single = fresh(directory.path(), "single.db");
    entries.iter().for_each(|entry| drop(single.apply(vec![entry.clone()]).expect("applies")));
    assert_eq!(dump(single.path()), expected);

    let half = fresh(directory.path(), "half.db");
    let (first, second) = entries.split_at(entries.len() / 2 + 1);
    half.apply(first.to_vec()).expect("applies");
    let snapshot = half.build_snapshot(&directory.path().join("snapshots")).expect("builds");
    let restored = fresh(directory.path(), "restored.db");
    restored.install_snapshot(&snapshot.path, snapshot.term, snapshot.index, snapshot.membership.clone()).expect("installs");
    assert_eq!(dump(restored.path()), dump(half.path()));
    assert_eq!(restored.applied(), half.applied());
    restored.apply(second.to_vec()).expect("applies");
    assert_eq!(dump(restored.path()), expected);
    let hash = |path: &Path| root_hash(&Connection::open(path).expect("opens")).expect("hash");
    assert_eq!(hash(restored.path()), hash(lab.state.path()));
    assert_eq!(restored.applied(), lab.state.applied());
    // The running hashes are those of the rows: a snapshot whose hashes were wrong would be refused.
    let last = lab.state.build_snapshot(&directory.path().join("last")).expect("builds");
    restored.install_snapshot(&last.path, last.term, last.index, last.membership).expect("hashes agree with the rows");
}

#[tokio::test]
async fn snapshots_are_checked_before_they_are_installed() {
    let lab = Lab::new().await;
    let directory = lab.directory.path().join("snapshots");
    for n in 0..3 {
        lab.ok(&format!("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES ({n}, 'a')")).await;
        let snapshot = lab.state.build_snapshot(&directory).expect("builds");
        assert_eq!((snapshot.index, snapshot.membership.as_slice()), (lab.log_length() as u64, [1, 2, 3].as_slice()));
    }
    let mut names: Vec<_> = std::fs::read_dir(&directory).expect("reads").map(|file| file.expect("file").file_name()).collect();
    names.sort();
    assert_eq!(names, ["3-4.db", "3-5.db", "3-6.db"]);

    let path = directory.join("3-6.db");
    // The proposer's connection goes on over an installed snapshot.
    lab.state.install_snapshot(&path, 3, 6, vec![1, 2, 3]).expect("installs");
    lab.ok("UPDATE mysql_servers SET weight = 3").await;
    assert_eq!(lab.rows("SELECT count(*), sum(weight) FROM mysql_servers"), ["3|9"]);
    let wrong = lab.state.install_snapshot(&path, 3, 7, vec![]).expect_err("another index");
    assert_eq!(wrong.to_string(), "snapshot holds entry 6 of term 3, not 7 of term 3");
    Connection::open(&path).expect("opens").execute("UPDATE mysql_servers SET weight = 4", []).expect("tampers");
    let wrong = lab.state.install_snapshot(&path, 3, 6, vec![]).expect_err("rows without their hashes");
    let text = "the rows of snapshot 3-6 do not have the hashes stored in it: memory mysql_servers: 3 rows, hash 0x";
    assert!(wrong.to_string().starts_with(text), "{wrong}");
    // A refused file leaves the state usable, and a reader that was open before an installation goes on.
    let reader = lab.reader();
    let good = directory.join("3-5.db");
    lab.state.install_snapshot(&good, 3, 5, vec![4]).expect("installs");
    assert_eq!(rows(&reader, "SELECT count(*) FROM mysql_servers"), ["2"]);
    assert_eq!(lab.state.applied().membership, [4]);

    // Rows that were changed behind the back are handed to nobody.
    lab.state.on_writer(|connection| connection.execute("UPDATE mysql_servers SET weight = 4", []).expect("tampers"));
    let altered = lab.state.build_snapshot(&directory).expect_err("altered");
    assert!(altered.to_string().contains("memory mysql_servers: 2 rows, hash 0x"), "{altered}");
    assert_eq!(lab.state.failure().borrow().as_ref(), Some(&altered.to_string()));
}

#[tokio::test]
async fn apply_is_strict_and_stops_for_good() {
    let lab = Lab::new().await;
    lab.ok("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (1, 'a')").await;
    let entries = lab.log.inner.lock().entries.clone();
    let (last, earlier) = entries.split_last().expect("entries");
    let Payload::Data(bytes) = &last.payload else { panic!("data") };
    let entry = pb::LogEntry::decode(bytes.clone()).expect("decodes");
    type Edit = fn(&mut pb::LogEntry);
    let cases: [(&str, Edit); 4] = [
        ("entry 4 is damaged: unknown table other", |entry| change_of(entry).table = "other".into()),
        ("entry 4 is damaged: unknown column of mysql_servers", |entry| change_of(entry).columns[0] = "other".into()),
        ("entry 4 does not fit this node's rows: row (1, 'a', 3306) of mysql_servers is missing", |entry| {
            let row = change_of(entry).rows[0].new.clone();
            change_of(entry).rows[0].old = row;
        }),
        ("entry 4 needs feature level 2, this build knows 1", |entry| entry.required_level = 2),
    ];
    for (expected, edit) in cases {
        let directory = tempfile::tempdir().expect("directory");
        let machine = fresh(directory.path(), "state.db");
        machine.apply(earlier.to_vec()).expect("applies");
        let before = dump(machine.path());
        let mut entry = entry.clone();
        edit(&mut entry);
        let payload = Payload::Data(entry.encode_to_vec().into());
        let error = machine.apply(vec![ApplyEntry { payload, ..last.clone() }]).expect_err(expected);
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.is_undecodable(), !matches!(error, StorageError::Diverged { .. }));
        assert!(matches!(machine.apply(vec![last.clone()]), Err(StorageError::Stopped)));
        assert_eq!(dump(machine.path()), before);
    }
}

fn change_of(entry: &mut pb::LogEntry) -> &mut pb::TableChange {
    let Some(pb::log_entry::Op::Change(change)) = &mut entry.op else { panic!("a change") };
    &mut change.tables[0]
}

#[tokio::test]
async fn entries_of_an_older_layout_fill_new_columns_with_defaults() {
    let lab = Lab::new().await;
    let text = |text: &str| pb::Value { kind: Some(pb::value::Kind::Text(text.into())) };
    let number = |value: i64| pb::Value { kind: Some(pb::value::Kind::Integer(value)) };
    let key = |weight| vec![number(1), text("a"), number(3306), number(weight)];
    let entry = |row: pb::RowChange| {
        let columns = ["hostgroup_id", "hostname", "port", "weight"].map(String::from).to_vec();
        let table = pb::TableChange { table: "mysql_servers".into(), columns, rows: vec![row], ..pb::TableChange::default() };
        let op = Some(pb::log_entry::Op::Change(pb::Change { tables: vec![table], ..pb::Change::default() }));
        Payload::Data(pb::LogEntry { format: 1, op, ..pb::LogEntry::default() }.encode_to_vec().into())
    };
    lab.log.append(vec![entry(pb::RowChange { old: vec![], new: key(5) }), entry(pb::RowChange { old: key(5), new: key(6) })]);
    assert_eq!(lab.rows("SELECT weight, max_connections, status FROM mysql_servers"), ["6|1000|ONLINE"]);
    lab.log.append(vec![entry(pb::RowChange { old: key(6), new: vec![] })]);
    assert_eq!(lab.rows("SELECT count(*) FROM mysql_servers"), ["0"]);
    assert_equal_elsewhere(&lab);
}

/// Small deterministic generator, so that a failing seed can be run again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[tokio::test]
async fn random_statements_give_equal_states_everywhere() {
    for seed in 1..=4 {
        let mut dice = Dice(seed);
        let lab = Lab::new().await;
        for _ in 0..60 {
            let (n, m) = (dice.below(6), dice.below(6));
            let layer = ["", "disk.", "main."][dice.below(3) as usize];
            let sql = match dice.below(8) {
                0 => format!("INSERT INTO {layer}mysql_servers (hostgroup_id, hostname, weight) VALUES ({n}, 'h{m}', {m})"),
                1 => format!("REPLACE INTO {layer}mysql_replication_hostgroups VALUES ({n}, {}, 'read_only', '{m}')", m + 10),
                2 => format!("UPDATE OR REPLACE {layer}mysql_servers SET hostgroup_id = {m} WHERE hostgroup_id = {n}"),
                3 => format!("DELETE FROM {layer}mysql_servers WHERE hostgroup_id < {n} AND weight > {m}"),
                4 => format!("INSERT INTO {layer}mysql_query_rules (active, comment) VALUES (1, {n}.5)"),
                5 => format!("DELETE FROM {layer}mysql_query_rules WHERE rule_id % 3 = {}", n % 3),
                6 => format!("INSERT OR IGNORE INTO mysql_servers SELECT * FROM disk.mysql_servers WHERE weight <> {n}"),
                _ => format!("UPDATE {layer}mysql_query_rules SET rule_id = rule_id + {n} WHERE active = 1 AND comment > {m}"),
            };
            // Constraint errors are part of the game.
            lab.outcome(Lab::sql_op(&sql)).await;
            let module = ["MYSQL SERVERS", "MYSQL QUERY RULES"][dice.below(2) as usize];
            let direction = match dice.below(8) {
                0 | 1 => LayerCopy { force: true, ..load(module) },
                2 => copy(module, Layer::Runtime, Layer::Memory),
                3 => copy(module, Layer::Disk, Layer::Memory),
                4 => copy(module, Layer::Memory, Layer::Disk),
                _ => continue,
            };
            let to = direction.to;
            lab.copy(direction).await;
            if to == Layer::Runtime {
                for table in tables::module_named(module).expect("exists").tables {
                    let all = |name: &str| lab.rows(&format!("SELECT * FROM {name} ORDER BY 1, 2, 3"));
                    assert_eq!(all(table), all(&format!("base_runtime_{table}")), "seed {seed}");
                }
            }
        }
        assert_equal_elsewhere(&lab);
    }
}

#[tokio::test]
async fn clocks_of_proposers_change_nothing_but_the_times_that_are_shown() {
    let lab = Lab::new().await;
    // Enough revisions for history to be pruned.
    for n in 0..20 {
        lab.ok(&format!("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES ({n}, 'a')")).await;
        let op = Lab::sql_op(&format!("UPDATE mysql_servers SET weight = {n} WHERE hostgroup_id = {n}"));
        lab.submit(RequestId { client: [n; 16], seq: 1 }, op).await;
        lab.copy(load("MYSQL SERVERS")).await;
    }
    let without_times = |path: &Path| {
        let connection = Connection::open(path).expect("opens");
        connection.execute_batch("UPDATE config_history SET at_ms = 0; UPDATE request_ids SET used_ms = 0").expect("forgets times");
        dump(path)
    };
    let directory = tempfile::tempdir().expect("directory");
    // Years back and forth from entry to entry, as with a leader after the other whose clocks are wrong.
    let jumping = fresh(directory.path(), "jumping.db");
    for (mut entry, at) in lab.log.inner.lock().entries.clone().into_iter().zip([0, 1 << 45, 1 << 40, 1 << 50].into_iter().cycle()) {
        if let Payload::Data(bytes) = &entry.payload {
            let edited = pb::LogEntry { proposed_at_ms: at, ..pb::LogEntry::decode(bytes.clone()).expect("decodes") };
            entry.payload = Payload::Data(edited.encode_to_vec().into());
        }
        jumping.apply(vec![entry]).expect("applies");
    }
    assert_eq!(without_times(jumping.path()), without_times(lab.state.path()));
}
