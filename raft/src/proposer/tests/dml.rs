//! Statements: what they change, what they answer, what they may not do.

use super::*;

const SERVERS: &str = "SELECT hostgroup_id, hostname, port, weight FROM mysql_servers ORDER BY 1, 2, 3";

/// Statements in order, each with its affected rows; then the rows that they leave.
async fn check(statements: &[(&str, u64)], query: &str, expected: &[&str]) {
    let lab = Lab::new().await;
    for (sql, affected) in statements {
        assert_eq!(lab.ok(sql).await.affected, *affected, "{sql}");
    }
    assert_eq!(lab.rows(query), expected);
    replay::assert_equal_elsewhere(&lab);
}

#[tokio::test]
async fn insert_update_delete_count_their_rows() {
    let statements = [
        ("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (10, 'a'), (20, 'b'), (20, 'c')", 3),
        ("UPDATE mysql_servers SET weight = 5 WHERE hostgroup_id = 20", 2),
        ("UPDATE main.mysql_servers SET weight = weight", 3),
        ("DELETE FROM mysql_servers WHERE hostname = \"b\"", 1),
        ("DELETE FROM mysql_servers WHERE hostname = 'none'", 0),
    ];
    check(&statements, SERVERS, &["10|a|3306|1", "20|c|3306|5"]).await;
}

#[tokio::test]
async fn keys_may_change_and_rows_may_be_replaced() {
    let statements = [
        ("INSERT INTO mysql_replication_hostgroups VALUES (1, 2, 'read_only', 'x'), (3, 4, 'read_only', 'y')", 2),
        // Meets the key of one row and the unique reader_hostgroup of the other: both go.
        ("REPLACE INTO mysql_replication_hostgroups VALUES (1, 4, 'read_only', 'z')", 1),
        ("UPDATE mysql_replication_hostgroups SET writer_hostgroup = 9", 1),
        ("INSERT OR IGNORE INTO mysql_replication_hostgroups VALUES (9, 1, 'read_only', '')", 0),
        (
            "INSERT INTO mysql_replication_hostgroups VALUES (9, 5, 'read_only', '') ON CONFLICT (writer_hostgroup) DO UPDATE SET comment = 'upsert'",
            1,
        ),
    ];
    check(&statements, "SELECT * FROM mysql_replication_hostgroups", &["9|4|read_only|upsert"]).await;
}

#[tokio::test]
async fn rows_may_swap_their_keys_step_by_step() {
    let statements = [
        ("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (1, 'a'), (2, 'a')", 2),
        ("UPDATE mysql_servers SET hostgroup_id = hostgroup_id + 10", 2),
        ("INSERT INTO mysql_servers (hostgroup_id, hostname, weight) SELECT hostgroup_id - 10, hostname, 7 FROM mysql_servers", 2),
        (
            "WITH big AS (SELECT max(hostgroup_id) AS h FROM mysql_servers) DELETE FROM mysql_servers WHERE hostgroup_id = (SELECT h FROM big)",
            1,
        ),
    ];
    check(&statements, SERVERS, &["1|a|3306|7", "2|a|3306|7", "11|a|3306|1"]).await;
}

#[tokio::test]
async fn the_counter_of_rule_ids_is_replicated() {
    let lab = Lab::new().await;
    assert_eq!(lab.ok("INSERT INTO mysql_query_rules (active, match_digest) VALUES (1, '^SELECT')").await.last_insert_id, 1);
    assert_eq!(lab.ok("INSERT INTO mysql_query_rules (rule_id, active) VALUES (50, 1)").await.last_insert_id, 50);
    lab.ok("DELETE FROM mysql_query_rules WHERE rule_id = 50").await;
    assert_eq!(lab.ok("INSERT INTO mysql_query_rules (active) VALUES (0)").await.last_insert_id, 51);
    assert_eq!(lab.ok("UPDATE mysql_query_rules SET active = 1").await.last_insert_id, 0);
    assert_eq!(lab.rows("SELECT seq FROM sqlite_sequence WHERE name = 'mysql_query_rules'"), ["51"]);
    replay::assert_equal_elsewhere(&lab);
}

#[tokio::test]
async fn the_disk_layer_is_written_under_its_qualified_name() {
    let statements = [
        ("INSERT INTO disk.mysql_servers (hostgroup_id, hostname) VALUES (10, 'a')", 1),
        ("INSERT INTO main.mysql_servers SELECT * FROM disk.mysql_servers", 1),
        ("DELETE FROM disk.mysql_servers WHERE mysql_servers.hostname = 'a'", 1),
        ("INSERT INTO disk.pgsql_query_rules (active) VALUES (1)", 1),
    ];
    check(&statements, SERVERS, &["10|a|3306|1"]).await;
}

#[tokio::test]
async fn parameters_are_bound() {
    let lab = Lab::new().await;
    let op = Op::Sql {
        text: "INSERT INTO mysql_users (username, password, default_hostgroup) VALUES (?, ?, ?)".into(),
        params: vec![Value::Text("o'neil".into()), Value::Null, Value::Text("7".into())],
        masked: String::new(),
    };
    assert!(matches!(lab.outcome(op).await, Outcome::Committed(Committed { affected: 1, .. })));
    assert_eq!(
        lab.rows("SELECT username, password, default_hostgroup, typeof(default_hostgroup) FROM mysql_users"),
        ["o'neil|NULL|7|integer"]
    );
    lab.ok("UPDATE mysql_users SET password = mysql_native_password('x')").await;
    assert_eq!(lab.rows("SELECT length(password) FROM mysql_users"), ["41"]);
}

#[tokio::test]
async fn errors_of_sqlite_come_back_with_the_prefix_and_nothing_is_replicated() {
    let lab = Lab::new().await;
    lab.ok("INSERT INTO disk.mysql_servers (hostgroup_id, hostname) VALUES (1, 'a')").await;
    let before = lab.log_length();
    let cases = [
        ("INSERT INTO mysql_servers (hostgroup_id) VALUES (1)", "NOT NULL constraint failed: mysql_servers.hostname"),
        ("INSERT INTO mysql_servers (hostname, port) VALUES ('a', 70000)", "CHECK constraint failed: port >= 0 AND port <= 65535"),
        (
            "INSERT INTO disk.mysql_servers (hostgroup_id, hostname) VALUES (1, 'a')",
            "UNIQUE constraint failed: mysql_servers.hostgroup_id, mysql_servers.hostname, mysql_servers.port",
        ),
        ("INSERT INTO mysql_server VALUES (1)", "no such table: mysql_server"),
        ("UPDATE mysql_servers SET wait = 1", "no such column: wait"),
        ("LOAD MYSQL SERVERS TO RUNTIM", "near \"LOAD\": syntax error"),
        ("INSERT INTO mysql_query_rules (rule_id) VALUES ('x')", "datatype mismatch"),
        ("INSERT INTO mysql_servers VALUES (1, 2)", "table mysql_servers has 12 columns but 2 values were supplied"),
        (
            "INSERT INTO mysql_users (username, attributes) VALUES ('a', '{')",
            "CHECK constraint failed: JSON_VALID(attributes) OR attributes = ''",
        ),
        ("INSERT INTO mysql_users (username) VALUES (CAST(x'ff' AS TEXT))", "text must be UTF-8"),
    ];
    for (sql, expected) in cases {
        assert_eq!(lab.refused_sql(sql).await, format!("ProxySQL Admin Error: {expected}"), "{sql}");
    }
    assert_eq!(lab.log_length(), before);
}

#[tokio::test]
async fn what_is_not_a_change_of_the_configuration_is_refused() {
    let lab = Lab::new().await;
    let cases = [
        ("ATTACH 'x.db' AS x", "ATTACH and DETACH are not available here"),
        ("PRAGMA synchronous = OFF", "PRAGMA synchronous is not available here"),
        ("CREATE TABLE t (a)", "tables of the configuration cannot be created, changed or dropped"),
        ("CREATE TEMP TABLE t (a)", "tables of the configuration cannot be created, changed or dropped"),
        ("DROP TABLE mysql_servers", "tables of the configuration cannot be created, changed or dropped"),
        ("ALTER TABLE mysql_servers ADD COLUMN x", "tables of the configuration cannot be created, changed or dropped"),
        (
            "INSERT INTO runtime_mysql_servers (hostname) VALUES ('a')",
            "runtime_mysql_servers is read-only: change mysql_servers and LOAD it TO RUNTIME",
        ),
        ("DELETE FROM main.runtime_mysql_servers", "runtime_mysql_servers is read-only: change mysql_servers and LOAD it TO RUNTIME"),
        ("DELETE FROM base_runtime_mysql_servers", "table base_runtime_mysql_servers cannot be changed"),
        ("DELETE FROM config_history", "table config_history cannot be changed"),
        ("DELETE FROM qs_captured", "table qs_captured cannot be changed"),
        ("UPDATE sqlite_sequence SET seq = 0", "tables of the configuration cannot be created, changed or dropped"),
        ("INSERT INTO mysql_servers (hostname) SELECT cluster_id FROM raft_meta", "no such table: raft_meta"),
        (
            "INSERT INTO mysql_servers (hostname) SELECT hostgroup FROM stats_mysql_query_rules",
            "stats_mysql_query_rules is this node's own and cannot be read in a change of the configuration",
        ),
        ("BEGIN", "transaction control does not belong into a change"),
        ("SAVEPOINT x", "transaction control does not belong into a change"),
        ("VACUUM INTO '/tmp/copy.db'", "cannot VACUUM from within a transaction"),
        ("ANALYZE", "tables of the configuration cannot be created, changed or dropped"),
        ("REINDEX mysql_servers", "tables of the configuration cannot be created, changed or dropped"),
        ("INSERT INTO mysql_servers (hostname) SELECT name FROM pragma_table_info('raft_meta')", "no such table: pragma_table_info"),
        ("INSERT INTO mysql_servers (hostname) SELECT sql FROM sqlite_master", "no such table: sqlite_master"),
        ("INSERT INTO mysql_servers (hostname) SELECT hex(data) FROM sqlite_dbpage", "no such table: sqlite_dbpage"),
        ("EXPLAIN DELETE FROM mysql_servers", "this statement changes nothing and cannot be replicated"),
        ("-- nothing", "SQL is empty or comment only"),
        ("SELECT 1", "this statement changes nothing and cannot be replicated"),
        (
            "INSERT INTO mysql_servers (hostname) VALUES ('a') RETURNING hostname",
            "RETURNING is not available: read the table after the change",
        ),
        ("INSERT INTO mysql_servers (hostname) VALUES ('a'); DELETE FROM mysql_servers", "one statement at a time"),
    ];
    let before = lab.log_length();
    for (sql, expected) in cases {
        assert_eq!(lab.refused_sql(sql).await, format!("ProxySQL Admin Error: {expected}"), "{sql}");
    }
    assert_eq!(lab.log_length(), before);
    lab.ok("INSERT INTO mysql_servers (hostname) SELECT value FROM json_each('[\"a\",\"b\"]')").await;
    assert_eq!(lab.rows("SELECT count(*) FROM mysql_servers"), ["2"]);
}

#[tokio::test]
async fn runtime_may_be_read_in_a_change() {
    let lab = Lab::new().await;
    lab.ok("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (10, 'a')").await;
    lab.copy(load("MYSQL SERVERS")).await;
    lab.ok("DELETE FROM mysql_servers").await;
    assert_eq!(lab.ok("INSERT INTO mysql_servers SELECT * FROM runtime_mysql_servers").await.affected, 1);
    assert_eq!(lab.ok("REPLACE INTO mysql_servers SELECT * FROM main.runtime_mysql_servers").await.affected, 1);
}

#[tokio::test]
async fn a_statement_that_ends_its_transaction_hurts_nobody_else() {
    let endless = "INSERT INTO mysql_servers (hostgroup_id, hostname) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                   SELECT 1, max(i) FROM n";
    let cases = [
        (endless, 3024, "statement interrupted: it did not end within its deadline; it has no effect"),
        (
            "INSERT OR ROLLBACK INTO mysql_servers (hostgroup_id, hostname) VALUES (1, 'a')",
            1045,
            "ProxySQL Admin Error: UNIQUE constraint failed: mysql_servers.hostgroup_id, mysql_servers.hostname, mysql_servers.port",
        ),
    ];
    for (sql, code, expected) in cases {
        let lab = Lab::new().await;
        let insert = |n: u8| {
            let op = Lab::sql_op(&format!("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES ({n}, 'a')"));
            lab.submit(RequestId { client: [n; 16], seq: 1 }, op)
        };
        let request = Request { id: lab.next_id(), origin: Lab::origin(), op: Lab::sql_op(sql), timeout: Duration::from_secs(3) };
        let (first, bad, second) = tokio::join!(insert(1), lab.proposer.execute(request), insert(2));
        let ProposerAnswer::Outcome(Outcome::Rejected(rejection)) = bad else { panic!("{bad:?}") };
        assert_eq!((rejection.mysql_code, rejection.message.as_str()), (code, expected));
        for answer in [first, second] {
            assert!(matches!(answer, ProposerAnswer::Outcome(Outcome::Committed(_))), "{answer:?}");
        }
        assert_eq!(lab.rows(SERVERS), ["1|a|3306|1", "2|a|3306|1"]);
        replay::assert_equal_elsewhere(&lab);
    }
}

#[tokio::test]
async fn a_change_above_one_entry_is_refused() {
    let lab = Lab::new().await;
    let sql = "INSERT INTO mysql_servers (hostgroup_id, hostname, comment) VALUES (1, 'a', printf('%.*c', 1100000, 'x'))";
    let rejection = lab.refused(Lab::sql_op(sql)).await;
    assert_eq!((rejection.mysql_code, rejection.pgsql_state.as_str()), (1153, "54000"));
    assert!(
        rejection.message.starts_with("change of 11") && rejection.message.ends_with(" bytes exceeds 1048576"),
        "{}",
        rejection.message
    );
    lab.ok(&sql.replace("1100000", "1000000")).await;
}

#[tokio::test]
async fn a_statement_that_changes_too_many_rows_is_stopped() {
    let lab = Lab::new().await;
    let many = |rows: u32| {
        format!(
            "INSERT INTO mysql_servers (hostgroup_id, hostname) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {rows}) \
             SELECT i, 'a' FROM n"
        )
    };
    assert_eq!(lab.refused_sql(&many(5_001)).await, "ProxySQL Admin Error: one statement cannot change more than 5000 rows");
    assert_eq!(lab.ok(&many(4_000)).await.affected, 4_000);
    assert_eq!(
        lab.refused_sql(&many(5_001)).await,
        "ProxySQL Admin Error: UNIQUE constraint failed: mysql_servers.hostgroup_id, mysql_servers.hostname, mysql_servers.port"
    );
}

#[tokio::test]
async fn many_writers_at_once_are_all_applied_in_batches() {
    let lab = Lab::new().await;
    let one = |n: u8| {
        let op = Lab::sql_op(&format!("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES ({n}, 'h')"));
        lab.submit(RequestId { client: [n; 16], seq: 1 }, op)
    };
    let answers = futures::future::join_all((0..200).map(one)).await;
    assert!(answers.iter().all(|answer| matches!(answer, ProposerAnswer::Outcome(Outcome::Committed(_)))), "{answers:?}");
    assert_eq!(lab.rows("SELECT count(*), count(DISTINCT hostgroup_id) FROM mysql_servers"), ["200|200"]);
    replay::assert_equal_elsewhere(&lab);
}
