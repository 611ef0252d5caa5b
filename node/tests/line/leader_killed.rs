//! kill -9 of the leader, its return, and kill -9 of another node: clients of the surviving nodes see nothing of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use quorumsql_chaos::cluster::Demo;
use quorumsql_chaos::servers::MariaDb;

use super::support::{ADMIN_MYSQL, admin, eventually, fingerprint, leader, mysql, run, text, try_mysql};

/// One client: transactions without a pause until told to stop; its error, if any, and how many it did.
struct Client {
    node: usize,
    done: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<Result<(), String>>,
}

fn start_client(host: String, node: usize, number: usize, stop: Arc<AtomicBool>) -> Client {
    let done = Arc::new(AtomicU64::new(0));
    let count = done.clone();
    let task = tokio::spawn(async move {
        let mut conn = mysql(&host).await;
        while !stop.load(Ordering::Relaxed) {
            let statements = [
                "BEGIN".to_owned(),
                format!("UPDATE accounts SET balance = balance + 1 WHERE id = {number}"),
                format!("SELECT balance FROM accounts WHERE id = {number}"),
                "COMMIT".to_owned(),
            ];
            for sql in statements {
                conn.query_drop(&sql).await.map_err(|error| format!("{sql}: {error}"))?;
            }
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    });
    Client { node, done, task }
}

#[test]
fn clients_of_surviving_nodes_see_no_error_when_nodes_are_killed() {
    let server = MariaDb::start(1, &[]);
    let mut demo = Demo::start(3, &["--mysql", &server.address()]);
    let _table = server.root(
        "USE demo; CREATE TABLE accounts (id INT PRIMARY KEY, balance INT NOT NULL); INSERT INTO accounts SELECT seq, 0 FROM seq_1_to_8",
    );
    run(async {
        let stop = Arc::new(AtomicBool::new(false));
        let clients: Vec<Client> =
            (1..=8).map(|number| start_client(demo.host(number % 3 + 1), number % 3 + 1, number, stop.clone())).collect();
        progress(&clients, &[1, 2, 3]).await;

        let first = leader(&demo, &[1, 2, 3]).await.expect("a leader");
        demo.kill(first);
        let others: Vec<usize> = (1..=3).filter(|&node| node != first).collect();
        progress(&clients, &others).await;
        eventually("a change to be accepted without the old leader", Duration::from_secs(20), async || {
            let Ok(mut conn) = try_mysql(&demo.host(others[0]), ADMIN_MYSQL, "admin", "admin", None).await else { return false };
            conn.query_drop("UPDATE mysql_servers SET comment = 'changed while a node was down'").await.is_ok()
        })
        .await;

        demo.restart(first);
        eventually("the killed node to be a voter with equal applied index", Duration::from_secs(30), async || {
            caught_up(&demo, first, others[0]).await
        })
        .await;

        let second = others[0];
        demo.kill(second);
        let survivor = others[1];
        progress(&clients, &[survivor]).await;
        stop.store(true, Ordering::Relaxed);

        let mut balance = 0;
        for client in clients {
            let ended = client.task.await.expect("the client's task");
            balance += client.done.load(Ordering::Relaxed);
            if client.node == survivor {
                assert_eq!(ended, Ok(()), "a client of the node that never died");
            }
        }
        demo.restart(second);
        eventually("the second killed node to catch up", Duration::from_secs(30), async || caught_up(&demo, second, survivor).await).await;
        let stored: u64 = server.root("SELECT SUM(balance) FROM demo.accounts").trim().parse().expect("a sum");
        assert!(stored >= balance && stored <= balance + 8, "{balance} transactions were acknowledged, {stored} are stored");
        assert_equal_tables(&demo).await;
    });
}

/// Waits until every client of `nodes` has done ten more transactions; an error of one of them fails here.
async fn progress(clients: &[Client], nodes: &[usize]) {
    for client in clients.iter().filter(|client| nodes.contains(&client.node)) {
        let from = client.done.load(Ordering::Relaxed);
        eventually("a client to go on", Duration::from_secs(20), async || {
            client.task.is_finished() || client.done.load(Ordering::Relaxed) > from + 10
        })
        .await;
        assert!(!client.task.is_finished(), "a client of surviving node {} ended with an error", client.node);
    }
}

async fn caught_up(demo: &Demo, node: usize, witness: usize) -> bool {
    let Ok(mut conn) = try_mysql(&demo.host(witness), ADMIN_MYSQL, "admin", "admin", None).await else { return false };
    let sql = "SELECT slot, voter, applied_index FROM stats_cluster_nodes";
    let Ok(rows) = conn.query::<(String, String, String), _>(sql).await else { return false };
    let of = |slot: usize| rows.iter().find(|row| row.0 == slot.to_string());
    let (Some(one), Some(other)) = (of(node), of(witness)) else { return false };
    let Ok(mut own) = try_mysql(&demo.host(node), ADMIN_MYSQL, "admin", "admin", None).await else { return false };
    let here = own.query_first::<String, _>(format!("SELECT applied_index FROM stats_cluster_nodes WHERE slot = {node}")).await;
    one.1 == "1" && here.is_ok_and(|index| index.is_some_and(|index| index.parse::<u64>().ok() >= other.2.parse::<u64>().ok()))
}

/// All three nodes hold the same tables, hashes and revisions.
pub(crate) async fn assert_equal_tables(demo: &Demo) {
    let mut all = Vec::new();
    for node in 1..=3 {
        let mut conn = admin(&demo.host(node)).await;
        let _linearizable = text(&mut conn, "SELECT COUNT(*) FROM mysql_servers").await;
        all.push(fingerprint(&demo.host(node)).await);
    }
    assert_eq!(all[0], all[1], "nodes 1 and 2 differ");
    assert_eq!(all[0], all[2], "nodes 1 and 3 differ");
}
