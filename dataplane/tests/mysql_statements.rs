//! Results, routing, limits and failures, with real servers behind.
#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[allow(dead_code, reason = "each test file uses a part of it")]
mod mysql_support;

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_support::{READER, Setup, WRITER, block_on, error, rule, run, text};
use quorumsql_chaos::process::wait_for;
use quorumsql_chaos::servers::{MariaDb, Mysql9};
use quorumsql_dataplane::config::Protocol;
use quorumsql_dataplane::rules::RuleRow;

#[test]
fn results_of_any_size_and_number_stream_through() {
    let server = MariaDb::start(1, &["--max-allowed-packet=128M"]);
    let proxy = Setup { connections: 5, ..Setup::sharing(server.port) }.start();
    block_on(async {
        let mut client = proxy.client().await;
        assert_eq!(text(&mut client, "SELECT LENGTH(REPEAT('x', 20000000))").await, "20000000");
        assert_eq!(text(&mut client, "SELECT REPEAT('y', 17000000)").await.len(), 17_000_000);
        assert_eq!(text(&mut client, &format!("SELECT LENGTH('{}')", "z".repeat(17_000_000))).await, "17000000");
        let rows: Vec<String> = client.query("SELECT REPEAT('r', 1000 + seq) FROM seq_1_to_20000").await.unwrap();
        assert_eq!((rows.len(), rows[19_999].len()), (20_000, 21_000));
        let mut results = client.query_iter("SELECT 1; SELECT 2, 3; DO 0; SELECT 4").await.unwrap();
        let mut sets = 0;
        while !results.is_empty() || sets < 4 {
            let _rows: Vec<mysql_async::Row> = results.collect().await.unwrap();
            sets += 1;
        }
        assert_eq!(sets, 4);
        drop(results);
        assert_eq!(error(&mut client, "SELECT 1 FROM nowhere").await, 1146);
        assert_eq!(error(&mut client, "").await, 1065);
        assert_eq!(text(&mut client, "SELECT 5").await, "5");
        client.disconnect().await.unwrap();
    });
}

#[test]
fn rules_and_the_guard_decide_where_statements_go() {
    let (writer, reader) = (MariaDb::start(1, &[]), MariaDb::start(2, &["--read-only=1"]));
    let denied =
        RuleRow { rule_id: 1, match_digest: Some("^DELETE".into()), error_msg: Some("no".into()), apply: true, ..RuleRow::default() };
    let ok = RuleRow { rule_id: 2, match_pattern: Some("^PLEASE".into()), ok_msg: Some("done".into()), apply: true, ..RuleRow::default() };
    let elsewhere = rule(3, "FROM elsewhere", 77);
    let setup = Setup {
        reader: Some(reader.port),
        connections: 5,
        rules: vec![denied, ok, elsewhere],
        variables: quorumsql_dataplane::config::Variables {
            connect_timeout_server_max: Duration::from_millis(300),
            ..quorumsql_dataplane::config::Variables::default()
        },
        ..Setup::sharing(writer.port)
    };
    let proxy = setup.start();
    block_on(async {
        let mut client = proxy.client().await;
        let server = |name: &'static str| if name == "writer" { "1" } else { "2" };
        assert_eq!(text(&mut client, "SELECT @@server_id").await, server("reader"));
        assert_eq!(text(&mut client, "SELECT @@server_id FOR UPDATE").await, server("writer"));
        run(&mut client, &["CREATE TABLE t (a INT)", "BEGIN"]).await;
        assert_eq!(text(&mut client, "SELECT @@server_id").await, server("writer"), "in a transaction");
        run(&mut client, &["COMMIT"]).await;
        assert_eq!(text(&mut client, "SELECT @@server_id").await, server("reader"));
        assert_eq!(error(&mut client, "DELETE FROM t").await, 1148);
        run(&mut client, &["PLEASE"]).await;
        assert_eq!(error(&mut client, "SELECT 1 FROM elsewhere").await, 9001);
        assert_eq!(text(&mut client, "SELECT @x := 4").await, "4");
        assert_eq!(text(&mut client, "SELECT @@server_id").await, server("writer"), "pinned by a user variable");
        assert_eq!(error(&mut client, "SELECT 1 FROM elsewhere").await, 9006);
        let id: u32 = client.exec_first("SELECT @@server_id", ()).await.unwrap().unwrap();
        assert_eq!(id, 1);
        client.disconnect().await.unwrap();
        let mut client = proxy.client().await;
        let id: u32 = client.exec_first("SELECT @@server_id", ()).await.unwrap().unwrap();
        assert_eq!(id, READER / 10, "prepared statements are routed, too");
        // A backslash may be half of a character, and a blank no ASCII.
        let locking: [(&str, &[u8]); 3] = [
            ("SET NAMES sjis", b"SELECT @@server_id, '\x95\\' FOR UPDATE"),
            ("SET NAMES latin1", b"SELECT @@server_id FOR\xa0UPDATE"),
            ("SET NAMES utf8mb4", b"SELECT @@server_id, 1.0FOR UPDATE"),
        ];
        for (names, sql) in locking {
            run(&mut client, &[names]).await;
            let row: mysql_async::Row = client.query_first(sql).await.unwrap().unwrap();
            assert_eq!(row.get::<u32, _>(0), Some(1), "{names}");
        }
        client.disconnect().await.unwrap();
    });
    let stats = proxy.plane.stats();
    assert!(stats.sessions(Protocol::Mysql).guarded >= 2);
    assert!(stats.pool.iter().any(|row| row.hostgroup.0 == WRITER && row.queries > 0));
}

#[test]
fn stored_password_forms_and_both_plugins() {
    let server = Mysql9::start(1, &[]);
    let _made = server.root("CREATE USER hashed@'%' IDENTIFIED BY 'secret'; GRANT ALL ON *.* TO hashed@'%';");
    let hash = quorumsql_wire::mysql::auth::native_hash_text(b"demo");
    let sha2 = quorumsql_wire::mysql::auth::Sha2Hash::new(b"secret", *b"0123456789abcdefghij").text();
    let users = vec![
        ("native".to_owned(), hash),
        ("hashed".to_owned(), String::from_utf8(sha2).unwrap()),
        ("unknown_there".to_owned(), "pw".to_owned()),
    ];
    for plugin in ["mysql_native_password", "caching_sha2_password"] {
        let mut setup = Setup { users: users.clone(), ..Setup::sharing(server.port) };
        setup.variables.default_authentication_plugin = plugin.into();
        let proxy = setup.start();
        block_on(async {
            let mut client = proxy.client().await;
            assert_eq!(text(&mut client, "SELECT 1").await, "1");
            client.disconnect().await.unwrap();
            for (name, password) in [("demo", "wrong"), ("nobody", "x"), ("hashed", "secret")] {
                let refused = proxy.login(name, password).await.unwrap_err();
                let mysql_async::Error::Server(refused) = refused else { panic!("{name}: {refused}") };
                assert_eq!((refused.code, refused.state.as_str()), (1045, "28000"));
                assert_eq!(refused.message.contains("TLS"), name == "hashed", "{}", refused.message);
            }
            // The server's refusal of the account is passed on when a statement needs it.
            let mut client = proxy.login("unknown_there", "pw").await;
            if let Ok(client) = &mut client {
                assert_eq!(error(client, "SELECT 1 + 0").await, 1045);
            }
        });
    }
}

#[test]
fn a_server_that_goes_away_costs_one_statement_at_most() {
    let mut server = MariaDb::start(1, &[]);
    let proxy = Setup { connections: 3, ..Setup::sharing(server.port) }.start();
    block_on(async {
        let (mut idle, mut busy) = (proxy.client().await, proxy.client().await);
        assert_eq!(text(&mut idle, "SELECT 1").await, "1");
        let running = tokio::spawn(async move {
            let code = error(&mut busy, "SELECT SLEEP(60)").await;
            (busy, code)
        });
        let plane = proxy.plane.clone();
        wait_until("the statement runs", move || plane.stats().pool.iter().any(|row| row.used == 1)).await;
        server.process.kill();
        let (mut busy, code) = running.await.unwrap();
        assert_eq!(code, 2013);
        tokio::task::spawn_blocking(move || {
            server.restart();
            server
        })
        .await
        .map(|server| {
            tokio::spawn(async move {
                // Both sessions lost no state and go on; the idle connection that died is replaced.
                assert_eq!(text(&mut idle, "SELECT 2").await, "2");
                assert_eq!(text(&mut busy, "SELECT 3").await, "3");
                drop(server);
            })
        })
        .unwrap()
        .await
        .unwrap();
    });
}

#[test]
fn a_client_that_goes_away_stops_its_statement() {
    let server = MariaDb::start(1, &[]);
    let proxy = Setup { connections: 3, ..Setup::sharing(server.port) }.start();
    block_on(async {
        let mut other = proxy.client().await;
        // A runtime of its own: mysql_async would wait for the answer before it closes.
        let doomed = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let gone = proxy.login_options("demo", "demo");
        let _running = doomed.spawn(async move {
            let mut gone = mysql_async::Conn::new(gone).await.unwrap();
            let _ = gone.query_drop("SELECT SLEEP(100)").await;
        });
        let count = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%'";
        while text(&mut other, count).await != "1" {
            tokio::task::yield_now().await;
        }
        doomed.shutdown_background();
        while text(&mut other, count).await != "0" {
            tokio::task::yield_now().await;
        }
        // KILL by another session of the same user.
        let mut victim = proxy.client().await;
        let id = text(&mut victim, "SELECT CONNECTION_ID()").await;
        let running = tokio::spawn(async move { error(&mut victim, "SELECT SLEEP(100)").await });
        while text(&mut other, count).await != "1" {
            tokio::task::yield_now().await;
        }
        run(&mut other, &[&format!("KILL QUERY {id}")]).await;
        assert_eq!(running.await.unwrap(), 1317);
        other.disconnect().await.unwrap();
    });
}

/// Waits for a condition of the data plane on a thread of its own, so that clients go on.
async fn wait_until(what: &'static str, test: impl Fn() -> bool + Send + 'static) {
    tokio::task::spawn_blocking(move || wait_for(what, Duration::from_secs(30), || test().then_some(()))).await.unwrap();
}

/// Counts of one digest text, summed over its rows.
async fn counted(proxy: &mysql_support::Proxy, take: bool) -> Vec<(String, u64, u64, u64)> {
    let rows = proxy.plane.digests(Protocol::Mysql, take).await;
    for row in &rows {
        assert!(row.min_time <= row.max_time && row.sum_time >= row.max_time && row.sum_time <= row.max_time * row.count, "{row:?}");
        let p99 = row.percentiles.get(990);
        assert!(p99 * 9 / 8 >= row.min_time && p99 <= row.max_time * 9 / 8 + 1, "{row:?}");
    }
    rows.into_iter().map(|row| (String::from_utf8(row.text).unwrap(), row.count, row.rows_affected, row.rows_sent)).collect()
}

#[test]
fn digests_are_exact_under_sixteen_clients() {
    let server = MariaDb::start(1, &[]);
    let proxy = Setup { connections: 8, threads: 2, ..Setup::sharing(server.port) }.start();
    block_on(async {
        run(&mut proxy.client().await, &["CREATE TABLE demo.counted (id INT PRIMARY KEY AUTO_INCREMENT, v INT)"]).await;
        let one = |client: usize| {
            let proxy = &proxy;
            async move {
                let mut conn = proxy.client().await;
                for turn in 0..50 {
                    run(&mut conn, &[&format!("INSERT INTO counted (v) VALUES ({client}), ({turn})")]).await;
                    let rows: Vec<u32> = conn.query(format!("SELECT seq FROM seq_1_to_10 WHERE seq > {}", turn % 3)).await.unwrap();
                    assert_eq!(rows.len(), 10 - turn % 3);
                    let _: Vec<u32> = conn.exec("SELECT seq FROM seq_1_to_3 WHERE seq > ?", (1,)).await.unwrap();
                }
                assert_eq!(error(&mut conn, "SELECT missing FROM counted").await, 1054);
                conn.disconnect().await.unwrap();
            }
        };
        // What a reader sees on the way is never more than what has run.
        let watch = async {
            let mut last = 0;
            while last < 16 * 50 {
                let now = counted(&proxy, false).await.into_iter().find(|row| row.0.starts_with("INSERT")).map_or(0, |row| row.1);
                assert!(now >= last && now <= 16 * 50, "{last} then {now}");
                last = now;
                tokio::task::yield_now().await;
            }
        };
        futures::future::join(futures::future::join_all((0..16).map(one)), watch).await;
        let rows = counted(&proxy, true).await;
        let of = |text: &str| {
            let row = rows.iter().find(|row| row.0 == text).unwrap_or_else(|| panic!("{text}: {rows:?}"));
            (row.1, row.2, row.3)
        };
        assert_eq!(of("INSERT INTO counted (v) VALUES (?),(?)"), (800, 1600, 0));
        let sent: u64 = (0..50).map(|turn| 10 - turn % 3).sum::<u64>() * 16;
        assert_eq!(of("SELECT seq FROM seq_1_to_10 WHERE seq > ?"), (800, 0, sent));
        assert_eq!(of("SELECT seq FROM seq_1_to_3 WHERE seq > ?"), (800, 0, 1600));
        assert_eq!(of("SELECT missing FROM counted"), (16, 0, 0));
        let left = counted(&proxy, false).await;
        assert!(!left.iter().any(|row| row.0.starts_with("INSERT")), "taken once: {left:?}");
    });
}
