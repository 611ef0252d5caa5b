//! A node behind HAProxy is drained and stopped: its clients reconnect through HAProxy at the first try and go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use quorumsql_chaos::cluster::{Demo, gone};
use quorumsql_chaos::servers::{HaProxy, MariaDb};
use rustix::process::Signal;

use super::support::{MYSQL, eventually, one, run, try_mysql};

#[derive(Default)]
struct Counts {
    done: AtomicU64,
    reconnects: AtomicU64,
    refused: AtomicU64,
}

#[test]
fn clients_of_a_drained_node_go_on_through_the_balancer() {
    let server = MariaDb::start(1, &[]);
    let limits =
        [("QUORUMSQL_DRAIN__INITIAL_WAIT", "2s"), ("QUORUMSQL_DRAIN__IDLE_SPREAD", "500ms"), ("QUORUMSQL_DRAIN__TRANSACTIONS", "3s")];
    let demo = Demo::start_with(3, &["--mysql", &server.address()], &limits);
    let nodes: Vec<_> = (1..=3).map(|node| (format!("{}:{MYSQL}", demo.host(node)), format!("{}:6070", demo.host(node)))).collect();
    let balancer = HaProxy::start(&nodes);
    run(async {
        eventually("HAProxy to see a node as up", Duration::from_secs(20), async || {
            try_mysql("127.0.0.1", balancer.port, "demo", "demo", None).await.is_ok()
        })
        .await;
        let stop = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..9).map(|_| (Arc::new(Counts::default()), stop.clone())).collect();
        let tasks: Vec<_> =
            clients.iter().map(|(counts, stop)| tokio::spawn(client(balancer.port, counts.clone(), stop.clone()))).collect();
        all_go_on(&clients).await;

        let pid = demo.pid(2);
        demo.signal(2, Signal::TERM);
        eventually("the node to say that it is not ready", Duration::from_secs(10), async || {
            demo.http(2, "/readyz").is_none_or(|(code, _)| code == 503)
        })
        .await;
        eventually("the drained node to end", Duration::from_secs(40), async || gone(pid)).await;
        all_go_on(&clients).await;

        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.expect("a client's task");
        }
        let sum = |count: fn(&Counts) -> &AtomicU64| clients.iter().map(|(counts, _)| count(counts).load(Ordering::Relaxed)).sum::<u64>();
        assert!(sum(|c| &c.reconnects) >= 1, "some client was on the drained node");
        assert_eq!(sum(|c| &c.refused), 0, "a reconnect through HAProxy was refused");
    });
}

/// Transactions without a pause; a broken connection is made anew through the balancer.
async fn client(port: u16, counts: Arc<Counts>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut conn) = try_mysql("127.0.0.1", port, "demo", "demo", Some("demo")).await else {
            counts.refused.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        loop {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let transaction = async {
                conn.query_drop("BEGIN").await?;
                conn.query_drop("SELECT 1").await?;
                conn.query_drop("COMMIT").await
            };
            if transaction.await.is_err() {
                break;
            }
            counts.done.fetch_add(1, Ordering::Relaxed);
        }
        counts.reconnects.fetch_add(1, Ordering::Relaxed);
    }
}

async fn all_go_on(clients: &[(Arc<Counts>, Arc<AtomicBool>)]) {
    for (counts, _) in clients {
        let from = counts.done.load(Ordering::Relaxed);
        eventually("a client to go on", Duration::from_secs(20), async || counts.done.load(Ordering::Relaxed) > from + 10).await;
    }
}

#[test]
fn an_open_transaction_may_finish_while_its_node_drains() {
    let demo = Demo::start_with(
        1,
        &[],
        &[("QUORUMSQL_DRAIN__INITIAL_WAIT", "0s"), ("QUORUMSQL_DRAIN__IDLE_SPREAD", "0s"), ("QUORUMSQL_DRAIN__TRANSACTIONS", "20s")],
    );
    run(async {
        let mut conn = super::support::mysql(&demo.host(1)).await;
        super::support::execute(&mut conn, &["CREATE TABLE drained (id INT PRIMARY KEY)", "BEGIN", "INSERT INTO drained VALUES (1)"]).await;
        let pid = demo.pid(1);
        demo.signal(1, Signal::TERM);
        eventually("the node to say that it is not ready", Duration::from_secs(10), async || {
            demo.http(1, "/readyz").is_none_or(|(code, _)| code == 503)
        })
        .await;
        assert_eq!(one(&mut conn, "SELECT COUNT(*) FROM drained").await, "1");
        super::support::execute(&mut conn, &["COMMIT"]).await;
        eventually("the node to end after the last transaction", Duration::from_secs(15), async || gone(pid)).await;
    });
}
