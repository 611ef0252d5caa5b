//! Every kind of session state, in both orders: what a client sets it reads back as from a direct connection, and another
//! client of the same server connection reads what a fresh direct connection reads.
#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod counts;
#[path = "../mysql_support/mod.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod mysql_support;
mod prepared;
mod remains;
mod states;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Row};
use mysql_support::{Proxy, Setup, block_on, run};
use quorumsql_chaos::servers::{MariaDb, Mysql9};
use states::Kept::{self, Pinned, Shared};
use states::STATES;

#[test]
fn no_client_of_mariadb_sees_the_state_of_another() {
    let server = MariaDb::start(1, &["--lock-wait-timeout=50"]);
    let mut setup = Setup { users: vec![("other".into(), "other".into())], ..Setup::sharing(server.port) };
    // A wait for the connection is a failure here.
    setup.variables.connect_timeout_server_max = std::time::Duration::from_millis(700);
    let proxy = setup.start();
    block_on(async {
        all(&proxy, server.port).await;
        remains::all(&proxy, server.port).await;
        remains::a_reset_has_ended_what_was_open(&proxy, server.port).await;
        remains::sequences_are_ones_own(&proxy, server.port).await;
        counts::all(&proxy, server.port).await;
        prepared::definitions_are_fresh(&proxy, server.port).await;
        prepared::types_are_ones_own(&proxy, server.port).await;
        prepared::a_past_moves_with_its_statement(&proxy, server.port).await;
        prepared::settings_are_ones_own(&proxy, server.port).await;
    });
}

#[test]
fn no_client_of_mysql_9_sees_the_state_of_another() {
    let server = Mysql9::start(1, &[]);
    let mut setup = Setup { users: vec![("other".into(), "other".into())], ..Setup::sharing(server.port) };
    // A wait for the connection is a failure here.
    setup.variables.connect_timeout_server_max = std::time::Duration::from_millis(700);
    let proxy = setup.start();
    block_on(async {
        all(&proxy, server.port).await;
        remains::all(&proxy, server.port).await;
        remains::a_reset_has_ended_what_was_open(&proxy, server.port).await;
        counts::all(&proxy, server.port).await;
        prepared::definitions_are_fresh(&proxy, server.port).await;
        prepared::types_are_ones_own(&proxy, server.port).await;
        prepared::a_past_moves_with_its_statement(&proxy, server.port).await;
        prepared::settings_are_ones_own(&proxy, server.port).await;
    });
}

async fn all(proxy: &Proxy, server: u16) {
    let mut admin = direct(server).await;
    run(
        &mut admin,
        &[
            "CREATE USER other@'%' IDENTIFIED BY 'other'",
            "GRANT SELECT ON demo.* TO other@'%'",
            "CREATE TABLE ids (id INT PRIMARY KEY AUTO_INCREMENT)",
            "CREATE TABLE children (id INT)",
            "CREATE DATABASE other CHARACTER SET latin1",
            "CREATE PROCEDURE counts() BEGIN DECLARE n INT; GET DIAGNOSTICS n = NUMBER; SELECT n; END",
            "CREATE PROCEDURE modes() SET SESSION sql_mode = 'ANSI'",
            "CREATE FUNCTION sets() RETURNS INT NO SQL BEGIN SET @inside = 2; RETURN 1; END",
            "CREATE PROCEDURE changes() BEGIN SET @inside = 1; SET SESSION lock_wait_timeout = 77; END",
        ],
    )
    .await;
    let mut wrong = Vec::new();
    for (kept, set, read) in STATES {
        for how in [Read::InText, Read::Prepared] {
            if how == Read::Prepared && NOT_PREPARED.contains(&(set[0], read)) {
                continue;
            }
            let case = format!("{}: {read} {how:?}", set.join("; "));
            if let Err(error) = one(proxy, server, *kept, set, (read, how)).await {
                wrong.push(format!("{case}\n    {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} kinds of state:\n{}", wrong.len(), 2 * STATES.len(), wrong.join("\n"));
}

/// How a statement comes that shows a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Read {
    InText,
    Prepared,
}

/// What a preparation loses.
const NOT_PREPARED: &[(&str, &str)] = &[
    // Learning the insert id took the count: 1235, never another number.
    ("INSERT INTO ids VALUES (NULL), (NULL)", "SELECT ROW_COUNT()"),
    // MariaDB keeps the error behind the preparation of what has no table.
    ("SELECT nonsense", "CALL counts()"),
];

async fn read_state(client: &mut Conn, (sql, how): (&str, Read)) -> String {
    let rows = match how {
        Read::InText => client.query::<Row, _>(sql).await,
        Read::Prepared => client.exec::<Row, _, _>(sql, ()).await,
    };
    shown(client, sql, rows)
}

/// One kind of state: `mine` is what a direct connection sees that has it, `others` what one sees that does not.
async fn one(proxy: &Proxy, server: u16, kept: Kept, set: &[&str], read: (&str, Read)) -> Result<(), String> {
    let (mut with, mut without) = (direct(server).await, direct(server).await);
    let others = read_state(&mut without, read).await;
    let said = outcomes(&mut with, set).await;
    let mine = read_state(&mut with, read).await;
    with.reset().await.map_err(|error| error.to_string())?;
    let anew = read_state(&mut with, read).await;
    close(with).await;
    close(without).await;
    let expect = |who: &str, got: String, want: &str| (got == want).then_some(()).ok_or(format!("{who}: {got}\n    direct: {want}"));

    // First the one with the state, then the other.
    let (mut a, mut b) = (proxy.client().await, proxy.client().await);
    expect("said", outcomes(&mut a, set).await, &said)?;
    expect("own", read_state(&mut a, read).await, &mine)?;
    if kept == Pinned {
        close(a).await;
        expect("other, after the end", read_state(&mut b, read).await, &others)?;
    } else {
        expect("other", read_state(&mut b, read).await, &others)?;
        close(a).await;
        expect("other, after the end", read_state(&mut b, read).await, &others)?;
    }
    close(b).await;

    // First the other, then the one with the state, then both again.
    let (mut a, mut b) = (proxy.client().await, proxy.client().await);
    expect("other, before", read_state(&mut b, read).await, &others)?;
    // The question itself may have pinned the other.
    b.reset().await.map_err(|error| error.to_string())?;
    expect("said, second", outcomes(&mut a, set).await, &said)?;
    if kept == Shared {
        // What the last statement left is the last statement's: read by its own client it may change.
        expect("own, second", read_state(&mut a, read).await, &mine)?;
        expect("other, second", read_state(&mut b, read).await, &others)?;
        close(a).await;
    } else {
        expect("own, second", read_state(&mut a, read).await, &mine)?;
        a.reset().await.map_err(|error| error.to_string())?;
        expect("own, after a reset", read_state(&mut a, read).await, &anew)?;
        close(a).await;
        expect("other, second", read_state(&mut b, read).await, &others)?;
    }
    close(b).await;
    Ok(())
}

pub(crate) async fn direct(port: u16) -> Conn {
    Conn::new(direct_options(port)).await.unwrap()
}

fn direct_options(port: u16) -> OptsBuilder {
    OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(port)
        .user(Some("demo"))
        .pass(Some("demo"))
        .db_name(Some("demo"))
        .prefer_socket(false)
}

pub(crate) async fn close(client: Conn) {
    client.disconnect().await.unwrap();
}

/// All rows, or the error, with the counters that came with them.
pub(crate) async fn outcome(client: &mut Conn, sql: &str) -> String {
    read_state(client, (sql, Read::InText)).await
}

fn shown(client: &Conn, sql: &str, rows: Result<Vec<Row>, mysql_async::Error>) -> String {
    match rows {
        Ok(rows) => {
            let rows: Vec<_> = rows.into_iter().map(Row::unwrap).collect();
            // Answered here where nothing holds the connection, and so without MySQL 9's warning that the function is old.
            let warnings = if sql.contains("FOUND_ROWS()") { 0 } else { client.get_warnings() };
            format!("{rows:?} affected {} warnings {warnings}", client.affected_rows())
        }
        Err(mysql_async::Error::Server(error)) => format!("{} {} {}", error.code, error.state, error.message),
        Err(error) => format!("broken: {error}"),
    }
}

pub(crate) async fn outcomes(client: &mut Conn, statements: &[&str]) -> String {
    let mut all = Vec::new();
    for sql in statements {
        all.push(outcome(client, sql).await);
    }
    all.join("; ")
}
