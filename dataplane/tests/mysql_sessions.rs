//! Clients that share one server connection never see each other's state. Runs against MariaDB and MySQL 9.
#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[allow(dead_code, reason = "each test file uses a part of it")]
mod mysql_support;

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Value};
use mysql_support::{Proxy, Setup, block_on, error, run, text};
use quorumsql_chaos::servers::{MariaDb, Mysql9};

#[test]
fn clients_of_mariadb_share_a_connection_and_nothing_else() {
    let server = MariaDb::start(1, &[]);
    let proxy = Setup::sharing(server.port).start();
    block_on(everything(&proxy));
    drop(proxy);
    let proxy = Setup { connections: 2, ..Setup::sharing(server.port) }.start();
    block_on(each_gets_the_connection_that_suits(&proxy));
}

#[test]
fn clients_of_mysql_9_share_a_connection_and_nothing_else() {
    let server = Mysql9::start(1, &[]);
    let proxy = Setup::sharing(server.port).start();
    block_on(everything(&proxy));
    drop(proxy);
    let proxy = Setup { connections: 2, ..Setup::sharing(server.port) }.start();
    block_on(each_gets_the_connection_that_suits(&proxy));
}

/// Two clients that differ, or have prepared different statements, stay each on the connection that needs no change for it.
async fn each_gets_the_connection_that_suits(proxy: &Proxy) {
    const ID: &str = "SELECT CONNECTION_ID() + 0";
    let (mut a, mut b) = (proxy.client().await, proxy.client().await);
    run(&mut a, &["SET time_zone = '+01:00', sql_mode = ''", "BEGIN"]).await;
    run(&mut b, &["SET NAMES latin1", "BEGIN"]).await;
    let (one, two) = (text(&mut a, ID).await, text(&mut b, ID).await);
    assert_ne!(one, two);
    run(&mut a, &["COMMIT"]).await;
    run(&mut b, &["COMMIT"]).await;
    for _ in 0..3 {
        assert_eq!((text(&mut a, ID).await, text(&mut b, ID).await), (one.clone(), two.clone()));
        assert_eq!(text(&mut a, "SELECT CONCAT(@@time_zone, @@character_set_client)").await, "+01:00utf8mb4");
        assert_eq!(text(&mut b, "SELECT @@character_set_client").await, "latin1");
    }
    for client in [&mut a, &mut b] {
        client.reset().await.unwrap();
    }
    run(&mut a, &["BEGIN"]).await;
    run(&mut b, &["BEGIN"]).await;
    let (first, second) = (a.prep("SELECT 1, CONNECTION_ID() + ?").await.unwrap(), b.prep("SELECT 2, CONNECTION_ID() + ?").await.unwrap());
    run(&mut a, &["COMMIT"]).await;
    run(&mut b, &["COMMIT"]).await;
    let ids = async |client: &mut Conn, statement| client.exec_first::<(u32, u32), _, _>(statement, (0,)).await.unwrap().unwrap().1;
    let (one, two) = (ids(&mut a, &first).await, ids(&mut b, &second).await);
    assert_ne!(one, two);
    for _ in 0..3 {
        assert_eq!((ids(&mut a, &first).await, ids(&mut b, &second).await), (one, two));
    }
    a.disconnect().await.unwrap();
    b.disconnect().await.unwrap();
}

#[test]
fn many_clients_on_two_workers_share_two_connections() {
    let server = MariaDb::start(1, &[]);
    let mut setup = Setup { connections: 2, threads: 2, ..Setup::sharing(server.port) };
    setup.variables.connect_timeout_server_max = Duration::from_secs(60);
    let proxy = setup.start();
    block_on(async {
        let mut first = proxy.client().await;
        run(&mut first, &["CREATE DATABASE other"]).await;
        first.disconnect().await.unwrap();
        let mut tasks = Vec::new();
        for number in 0..8 {
            let client = proxy.client().await;
            tasks.push(tokio::spawn(one_of_many(client, number)));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// A client with a state of its own, which every statement checks.
async fn one_of_many(mut client: Conn, number: u32) {
    let (schema, autocommit) = (["demo", "other"][number as usize % 2], number % 3 % 2);
    let names = ["utf8mb4", "latin1"][number as usize / 2 % 2];
    run(&mut client, &[&format!("USE {schema}"), &format!("SET autocommit={autocommit}"), &format!("SET NAMES {names}")]).await;
    let sql = "SELECT CONCAT_WS(' ', DATABASE(), @@autocommit + 0, @@character_set_client, ?)";
    let prepared = client.prep(sql).await.unwrap();
    for round in 0..20 {
        let expected = format!("{schema} {autocommit} {names}");
        assert_eq!(text(&mut client, "SELECT CONCAT_WS(' ', DATABASE(), @@autocommit + 0, @@character_set_client)").await, expected);
        let row: String = client.exec_first(&prepared, (number * 100 + round,)).await.unwrap().unwrap();
        assert_eq!(row, format!("{expected} {}", number * 100 + round));
        if round % 7 == 3 {
            run(&mut client, &["BEGIN", "DO 1", "ROLLBACK"]).await;
        }
    }
    client.disconnect().await.unwrap();
}

async fn everything(proxy: &Proxy) {
    let mut setup = proxy.client().await;
    run(&mut setup, &["CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(50))", "CREATE DATABASE other"]).await;
    setup.disconnect().await.unwrap();
    tracked_state_follows_its_client(proxy).await;
    untracked_state_ends_with_its_client(proxy).await;
    a_reset_takes_state_off(proxy).await;
    procedures_do_not_leak(proxy).await;
    transactions_end_with_their_client(proxy).await;
    warnings_are_their_clients_own(proxy).await;
    insert_ids_are_their_clients_own(proxy).await;
    prepared_statements_are_their_clients_own(proxy).await;
    users_change(proxy).await;
    a_released_connection_is_nobody_elses(proxy).await;
}

/// `COMMIT RELEASE` ends the server connection, and with it the session that asked for that.
async fn a_released_connection_is_nobody_elses(proxy: &Proxy) {
    for end in ["COMMIT RELEASE", "ROLLBACK WORK AND NO CHAIN RELEASE"] {
        let (mut a, mut b) = (proxy.client().await, proxy.client().await);
        run(&mut a, &["BEGIN", "SELECT 1", end]).await;
        assert_eq!(text(&mut b, "SELECT 5").await, "5", "{end}");
        assert!(a.query_drop("SELECT 1").await.is_err(), "{end}");
        b.disconnect().await.unwrap();
    }
}

/// The server's id of the connection; the form is not answered by the proxy.
async fn server_connection(client: &mut Conn) -> String {
    text(client, "SELECT CONNECTION_ID() + 0").await
}

async fn tracked_state_follows_its_client(proxy: &Proxy) {
    let (mut a, mut b) = (proxy.client().await, proxy.client().await);
    run(&mut a, &["SET autocommit=0", "USE other", "SET NAMES latin1"]).await;
    for _ in 0..2 {
        assert_eq!(text(&mut a, "SELECT @@autocommit").await, "0");
        assert_eq!(text(&mut b, "SELECT @@autocommit").await, "1");
        assert_eq!(text(&mut a, "SELECT DATABASE()").await, "other");
        assert_eq!(text(&mut b, "SELECT DATABASE()").await, "demo");
        assert_eq!(text(&mut a, "SELECT @@character_set_client").await, "latin1");
        assert_eq!(text(&mut b, "SELECT @@character_set_client").await, "utf8mb4");
    }
    assert_eq!(server_connection(&mut a).await, server_connection(&mut b).await);
    let level = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
    run(&mut a, &["SET autocommit=1, sql_mode='NO_ZERO_DATE'", "SET time_zone='+03:00', foreign_key_checks=0, wait_timeout=9", level])
        .await;
    for _ in 0..2 {
        for (sql, mine, others) in [
            ("SELECT @@sql_mode = 'NO_ZERO_DATE'", "1", "0"),
            ("SELECT @@time_zone", "+03:00", "SYSTEM"),
            ("SELECT @@foreign_key_checks", "0", "1"),
        ] {
            assert_eq!(text(&mut a, sql).await, mine, "{sql}");
            assert_eq!(text(&mut b, sql).await, others, "{sql}");
        }
        assert_eq!(isolation(&mut a).await, "READ-COMMITTED");
        assert_eq!(isolation(&mut b).await, "REPEATABLE-READ");
    }
    assert_eq!(error(&mut b, "SET time_zone='Nowhere/Nothing'").await, 1298);
    assert_eq!(text(&mut b, "SELECT @@time_zone").await, "SYSTEM");
    assert_eq!(error(&mut a, "USE mysql; SELECT nonsense FROM nowhere").await, 1146);
    assert_eq!(text(&mut b, "SELECT DATABASE()").await, "demo");
    assert_eq!(text(&mut a, "SELECT DATABASE()").await, "mysql", "changed inside of several statements");
    // A schema that does not exist is refused, and the old one stays.
    for sql in ["USE missing", "USE `mis``sing`"] {
        assert_eq!(error(&mut a, sql).await, 1049);
        assert_eq!(text(&mut a, "SELECT DATABASE()").await, "mysql");
    }
    assert_eq!(text(&mut b, "SELECT DATABASE()").await, "demo");
    a_schema_that_is_missing_at_login_can_be_left(proxy).await;
    a_schema_that_is_dropped_can_be_made_again(proxy).await;
    a.disconnect().await.unwrap();
    b.disconnect().await.unwrap();
}

/// A login does not ask a server, so that a schema that does not exist shows later; USE must get out of it.
async fn a_schema_that_is_missing_at_login_can_be_left(proxy: &Proxy) {
    let options = proxy.login_options("demo", "demo").db_name(Some("missing")).max_allowed_packet(Some(1 << 24)).wait_timeout(Some(28_800));
    let mut client = Conn::new(options).await.unwrap();
    assert_eq!(error(&mut client, "SELECT 1").await, 1049);
    run(&mut client, &["USE other"]).await;
    assert_eq!(text(&mut client, "SELECT DATABASE()").await, "other");
    client.disconnect().await.unwrap();
}

/// A session without a schema goes on behind one that has one, and makes its own anew.
async fn a_schema_that_is_dropped_can_be_made_again(proxy: &Proxy) {
    let (mut a, mut b) = (proxy.client().await, proxy.client().await);
    run(&mut a, &["CREATE DATABASE doomed", "USE doomed", "DROP DATABASE doomed"]).await;
    assert_eq!(text(&mut a, "SELECT DATABASE()").await, "NULL");
    assert_eq!(text(&mut b, "SELECT DATABASE()").await, "demo");
    assert_eq!(text(&mut a, "SELECT 1 + 0").await, "1");
    assert!(a.query_drop("CREATE TABLE homeless (a INT)").await.is_err());
    run(&mut a, &["CREATE DATABASE doomed", "USE doomed"]).await;
    assert_eq!(text(&mut a, "SELECT DATABASE()").await, "doomed");
    run(&mut a, &["DROP DATABASE doomed"]).await;
    a.disconnect().await.unwrap();
    b.disconnect().await.unwrap();
}

async fn isolation(client: &mut Conn) -> String {
    let row: (String, String) = client.query_first("SHOW VARIABLES LIKE 't%_isolation'").await.unwrap().unwrap();
    row.1
}

async fn untracked_state_ends_with_its_client(proxy: &Proxy) {
    let states = [
        ("SET @a = 7", "SELECT @a", "7", "NULL"),
        ("SET sql_mode = 'ANSI'", "SELECT @@sql_mode LIKE '%ANSI%'", "1", "0"),
        ("SET SESSION min_examined_row_limit = 5", "SELECT @@min_examined_row_limit", "5", "0"),
        ("SELECT 5 INTO @b", "SELECT @b", "5", "NULL"),
        ("SELECT GET_LOCK('mine', 1)", "SELECT IS_USED_LOCK('mine') IS NULL", "0", "1"),
    ];
    for (set, read, mine, others) in states {
        let mut a = proxy.client().await;
        run(&mut a, &[set]).await;
        let connection = server_connection(&mut a).await;
        assert_eq!(text(&mut a, read).await, mine, "{set}");
        a.disconnect().await.unwrap();
        let mut b = proxy.client().await;
        assert_eq!(text(&mut b, read).await, others, "{set}");
        assert_eq!(server_connection(&mut b).await, connection, "reset, not replaced");
        b.disconnect().await.unwrap();
    }
    let mut a = proxy.client().await;
    run(&mut a, &["CREATE TEMPORARY TABLE tmp (a INT)", "INSERT INTO tmp VALUES (1)"]).await;
    assert_eq!(text(&mut a, "SELECT COUNT(*) FROM tmp").await, "1");
    a.disconnect().await.unwrap();
    let mut b = proxy.client().await;
    assert_eq!(error(&mut b, "SELECT * FROM tmp").await, 1146);
    b.disconnect().await.unwrap();
}

async fn a_reset_takes_state_off(proxy: &Proxy) {
    let mut a = proxy.client().await;
    run(&mut a, &["SET @a = 1", "SET autocommit = 0", "USE other"]).await;
    assert!(a.reset().await.unwrap(), "COM_RESET_CONNECTION");
    // mysql_async selects its schema anew after a reset.
    let mut b = proxy.client().await;
    assert_eq!(text(&mut b, "SELECT @a").await, "NULL");
    b.disconnect().await.unwrap();
    assert_eq!(text(&mut a, "SELECT @@autocommit").await, "1");
    a.disconnect().await.unwrap();
}

async fn procedures_do_not_leak(proxy: &Proxy) {
    let mut a = proxy.client().await;
    run(&mut a, &["CREATE PROCEDURE p() BEGIN SET @inside = 1; SET SESSION lock_wait_timeout = 77; SELECT 1; END"]).await;
    run(&mut a, &["CALL p()"]).await;
    assert_eq!(text(&mut a, "SELECT @@lock_wait_timeout").await, "77", "the connection is kept");
    a.disconnect().await.unwrap();
    let mut b = proxy.client().await;
    assert_eq!(text(&mut b, "SELECT @@lock_wait_timeout = 77").await, "0");
    assert_eq!(text(&mut b, "SELECT @inside").await, "NULL");
    b.disconnect().await.unwrap();
}

async fn transactions_end_with_their_client(proxy: &Proxy) {
    let mut a = proxy.client().await;
    run(&mut a, &["BEGIN", "INSERT INTO t (v) VALUES ('gone')"]).await;
    a.disconnect().await.unwrap();
    let mut b = proxy.client().await;
    assert_eq!(text(&mut b, "SELECT COUNT(*) FROM t").await, "0");
    run(&mut b, &["SET autocommit = 0", "INSERT INTO t (v) VALUES ('kept')", "COMMIT"]).await;
    run(&mut b, &["INSERT INTO t (v) VALUES ('rolled back')", "ROLLBACK"]).await;
    // A failed statement inside a transaction does not end it.
    run(&mut b, &["INSERT INTO t (v) VALUES ('two')"]).await;
    assert_eq!(error(&mut b, "SELECT nonsense").await, 1054);
    run(&mut b, &["COMMIT"]).await;
    b.disconnect().await.unwrap();
    let mut c = proxy.client().await;
    assert_eq!(text(&mut c, "SELECT GROUP_CONCAT(v ORDER BY id) FROM t").await, "kept,two");
    c.disconnect().await.unwrap();
}

async fn warnings_are_their_clients_own(proxy: &Proxy) {
    let mut a = proxy.client().await;
    run(&mut a, &["SELECT 1 / 0"]).await;
    assert_eq!(text(&mut a, "SHOW WARNINGS").await, "Warning");
    a.disconnect().await.unwrap();
    let mut b = proxy.client().await;
    let rows: Vec<mysql_async::Row> = b.query("SHOW WARNINGS").await.unwrap();
    assert!(rows.is_empty());
    assert_eq!(text(&mut b, "SHOW COUNT(*) WARNINGS").await, "0");
    b.disconnect().await.unwrap();
}

async fn insert_ids_are_their_clients_own(proxy: &Proxy) {
    let (mut a, mut b) = (proxy.client().await, proxy.client().await);
    run(&mut a, &["INSERT INTO t (id, v) VALUES (1000, 'x')", "INSERT INTO t (v) VALUES ('y')"]).await;
    assert_eq!(text(&mut b, "SELECT LAST_INSERT_ID()").await, "0");
    assert_eq!(text(&mut a, "SELECT LAST_INSERT_ID()").await, "1001");
    a.disconnect().await.unwrap();
    b.disconnect().await.unwrap();
}

async fn prepared_statements_are_their_clients_own(proxy: &Proxy) {
    let (mut a, mut b) = (proxy.client().await, proxy.client().await);
    let of_a = a.prep("SELECT ? + 1, DATABASE()").await.unwrap();
    let of_b = b.prep("SELECT CONCAT(?, '!')").await.unwrap();
    run(&mut b, &["USE other"]).await;
    let of_other = b.prep("SELECT ? + 1, DATABASE()").await.unwrap();
    for number in 0..3 {
        let (sum, schema): (i64, String) = a.exec_first(&of_a, (number,)).await.unwrap().unwrap();
        assert_eq!((sum, schema.as_str()), (number + 1, "demo"));
        let text: String = b.exec_first(&of_b, (format!("n{number}"),)).await.unwrap().unwrap();
        assert_eq!(text, format!("n{number}!"));
        let row: (i64, String) = b.exec_first(&of_other, (number,)).await.unwrap().unwrap();
        assert_eq!(row.1, "other");
    }
    // Another connection that has never seen the statement: the proxy prepares it there.
    let mut pin = proxy.client().await;
    run(&mut pin, &["SET @x = 1"]).await;
    pin.disconnect().await.unwrap();
    let row: Vec<Value> = a.exec_first::<mysql_async::Row, _, _>(&of_a, (41,)).await.unwrap().unwrap().unwrap();
    assert_eq!(row[0], Value::Int(42));
    a.close(of_a).await.unwrap();
    let nulls: (Option<i64>, String) = {
        let again = a.prep("SELECT ?, ?").await.unwrap();
        a.exec_first(&again, (None::<i64>, "z".repeat(300_000))).await.unwrap().unwrap()
    };
    assert_eq!((nulls.0, nulls.1.len()), (None, 300_000));
    a.disconnect().await.unwrap();
    b.disconnect().await.unwrap();
}

async fn users_change(proxy: &Proxy) {
    let mut a = proxy.client().await;
    run(&mut a, &["SET @a = 1"]).await;
    a.change_user(mysql_async::ChangeUserOpts::default().with_db_name(Some("other".to_owned()))).await.unwrap();
    assert_eq!(text(&mut a, "SELECT DATABASE()").await, "other");
    assert_eq!(text(&mut a, "SELECT @a").await, "NULL");
    a.disconnect().await.unwrap();
}
