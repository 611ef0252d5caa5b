//! Random admin statements through random nodes, one of which is killed on the way: all nodes have the same tables in the end, and
//! so has a single node that was told the same.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use quorumsql_chaos::cluster::Demo;

use super::leader_killed::assert_equal_tables;
use super::support::{Dice, admin, eventually, fingerprint, run, seed};

/// Statements of one run.
const STATEMENTS: usize = 120;

impl Dice {
    fn statement(&mut self) -> String {
        let (n, m) = (self.below(6), self.below(6));
        let layer = ["", "main.", "disk."][self.below(3)];
        let module = ["MYSQL SERVERS", "MYSQL QUERY RULES", "MYSQL VARIABLES", "PGSQL QUERY RULES"][self.below(4)];
        match self.below(14) {
            0 | 1 => format!("INSERT INTO {layer}mysql_servers (hostgroup_id, hostname, weight) VALUES ({n}, '127.0.0.1{m}', {m})"),
            2 => format!("REPLACE INTO {layer}mysql_servers (hostgroup_id, hostname, comment) VALUES ({n}, '127.0.0.1{m}', 'c{n}')"),
            3 => format!("DELETE FROM {layer}mysql_servers WHERE hostgroup_id < {n} AND weight > {m}"),
            4 | 5 => format!("INSERT INTO {layer}mysql_query_rules (active, match_digest) VALUES (1, '^SELECT {n}')"),
            6 => format!("INSERT INTO {layer}pgsql_query_rules (active, match_digest, comment) VALUES (0, '^SELECT {n}', '{m}')"),
            7 => format!("DELETE FROM {layer}mysql_query_rules WHERE rule_id % 3 = {}", n % 3),
            8 => format!("UPDATE mysql_query_rules SET apply = 1, comment = 'of {n}' WHERE rule_id > {m}"),
            9 => format!("SET mysql-max_connections = {}", 100 * (n + 1)),
            10 => format!("LOAD {module} TO RUNTIME FORCE"),
            11 => format!("SAVE {module} TO DISK"),
            12 => format!("LOAD {module} FROM DISK"),
            _ => ["INSERT INTO mysql_servers (hostgroup_id) VALUES (1)", "INSERT INTO nothing VALUES (1)", "DELETE FROM"][n % 3].to_owned(),
        }
    }
}

/// Both begin without the rows that name the demo's own servers.
const EMPTY: [&str; 6] = [
    "DELETE FROM mysql_servers",
    "DELETE FROM pgsql_servers",
    "DELETE FROM mysql_replication_hostgroups",
    "DELETE FROM pgsql_replication_hostgroups",
    "LOAD MYSQL SERVERS TO RUNTIME FORCE",
    "LOAD PGSQL SERVERS TO RUNTIME FORCE",
];
const EMPTY_DISK: [&str; 2] = ["SAVE MYSQL SERVERS TO DISK", "SAVE PGSQL SERVERS TO DISK"];

/// Runs one statement until it is decided; a refusal decides, too. Without a leader it is asked again.
async fn decide(demo: &Demo, node: usize, sql: &str) -> Result<(), String> {
    let mut answer = Ok(());
    eventually("a statement to be decided", Duration::from_secs(30), async || {
        answer = admin(&demo.host(node)).await.query_drop(sql).await.map_err(|error| error.to_string());
        answer.as_ref().err().is_none_or(|text| !text.contains("read-only"))
    })
    .await;
    answer
}

#[test]
fn random_statements_through_random_nodes_leave_equal_tables() {
    let seed = seed();
    let mut cluster = Demo::start(3, &[]);
    let single = Demo::start(1, &[]);
    run(async {
        let mut dice = Dice(seed);
        let mut nodes = vec![1, 2, 3];
        let (mut down, mut accepted) = (None, 0);
        let statements = EMPTY.into_iter().chain(EMPTY_DISK).map(str::to_owned);
        let statements: Vec<String> = statements.chain((0..STATEMENTS).map(|_| dice.statement())).collect();
        for (position, sql) in statements.iter().enumerate() {
            if position == STATEMENTS / 3 {
                let node = nodes.remove(dice.below(3));
                cluster.kill(node);
                down = Some(node);
            }
            if position == 2 * STATEMENTS / 3
                && let Some(node) = down
            {
                cluster.restart(node);
                let ready = async || cluster.http(node, "/readyz").is_some_and(|(code, _)| code == 200);
                eventually("the killed node to be back", Duration::from_secs(60), ready).await;
                nodes.push(node);
            }
            let together = decide(&cluster, nodes[dice.below(nodes.len())], sql).await;
            let alone = decide(&single, 1, sql).await;
            assert_eq!(together.is_ok(), alone.is_ok(), "seed {seed}: {sql}: {together:?}, {alone:?}");
            accepted += usize::from(together.is_ok());
        }
        assert!(accepted > STATEMENTS / 2, "seed {seed}: only {accepted} statements were accepted");
        assert_equal_tables(&cluster).await;
        let (together, alone) = (fingerprint(&cluster.host(1)).await, fingerprint(&single.host(1)).await);
        let differing: Vec<_> = together.iter().filter(|row| !alone.contains(row)).collect();
        assert!(differing.is_empty() && together.len() == alone.len(), "seed {seed}: a single node lacks {differing:#?}");
    });
}
