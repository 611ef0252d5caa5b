//! Servers that die or fall silent in every phase of an exchange: the error that section 9 of mysql-dataplane names, the
//! session kept if it lost no state, and nothing run twice.
#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "mysql_support/fake.rs"]
mod fake;
#[allow(dead_code, reason = "each test file uses a part of it")]
mod mysql_support;

use std::time::Duration;

use fake::{Act, At, Fake, Then};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error};
use mysql_support::{Proxy, Setup, block_on, run, text};
use quorumsql_chaos::process::Signal;
use quorumsql_chaos::servers::MariaDb;
use quorumsql_wire::mysql::error_code;

/// What the client of a phase does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    /// `SELECT 1`, on a connection of its own or of the pool.
    Select,
    /// The same, in a transaction.
    InTransaction,
    /// `SELECT 1`, after a SET that the connection has not.
    Aligning,
    /// Prepares `SELECT 1`.
    Preparing,
    /// Executes what is prepared.
    Executing,
    /// Executes on a connection on which nothing is prepared.
    Repreparing,
}
use Doing::{Aligning, Executing, InTransaction, Preparing, Repreparing, Select};

/// What it gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gets {
    /// An answer.
    Rows,
    /// This error, and the session goes on.
    Error(u16),
    /// This error, and the session is closed.
    LastError(u16),
    /// The end of the connection.
    Closed,
}
use Gets::{Closed, LastError, Rows};

/// Phase, what the server does, what the client gets, and how often the server was asked to run the statement.
const PHASES: &[(Doing, At, Act, u32, Gets, usize)] = &[
    // Login: nothing has run, so that another attempt is made.
    (Select, At::Accept, Act::Close, 1, Rows, 1),
    (Select, At::Accept, Act::Stall, 1, Rows, 1),
    (Select, At::Login, Act::Close, 2, Rows, 1),
    (Select, At::Login, Act::Stall, 1, Rows, 1),
    (Select, At::Login, Act::Error(error_code::ACCESS_DENIED, "Access denied"), 1, Gets::Error(1045), 0),
    (Select, At::Login, Act::Error(error_code::CON_COUNT, "Too many connections"), 1, Rows, 1),
    (Select, At::Accept, Act::Close, 99, Gets::Error(9002), 0),
    (Select, At::Login, Act::Stall, 99, Gets::Error(9001), 0),
    // Waiting for the answer, and in it.
    (Select, At::Command("Q:SELECT 1"), Act::Close, 1, Gets::Error(2013), 1),
    (Select, At::Command("Q:SELECT 1"), Act::Stall, 1, Gets::Error(1907), 1),
    (Select, At::Command("Q:SELECT 1"), Act::Head(Then::Close), 1, Gets::Error(2013), 1),
    (Select, At::Command("Q:SELECT 1"), Act::Head(Then::Stall), 1, Gets::Error(1907), 1),
    (Select, At::Command("Q:SELECT 1"), Act::HalfRow(Then::Close), 1, Closed, 1),
    (Select, At::Command("Q:SELECT 1"), Act::HalfRow(Then::Stall), 1, Closed, 1),
    (Select, At::Command("Q:SELECT 1"), Act::FirstOfTwo(Then::Close), 1, Gets::Error(2013), 1),
    (Select, At::Command("Q:SELECT 1"), Act::FirstOfTwo(Then::Stall), 1, Gets::Error(1907), 1),
    (Select, At::Command("Q:SELECT 1"), Act::Error(error_code::SERVER_SHUTDOWN, "Server shutdown in progress"), 1, Gets::Error(1053), 1),
    // In a transaction: it is lost, and with it the session.
    (InTransaction, At::Command("Q:SELECT 1"), Act::Close, 1, LastError(2013), 1),
    (InTransaction, At::Command("Q:SELECT 1"), Act::Stall, 1, LastError(1907), 1),
    (InTransaction, At::After("Q:BEGIN"), Act::Close, 1, LastError(2013), 0),
    (InTransaction, At::Command("Q:SELECT 1"), Act::HalfRow(Then::Close), 1, Closed, 1),
    // Between the steps before a statement.
    (Aligning, At::Command("Q:SET SESSION unique_checks"), Act::Close, 1, Rows, 1),
    (Aligning, At::Command("Q:SET SESSION unique_checks"), Act::Stall, 1, Gets::Error(1907), 0),
    // Prepared statements.
    (Preparing, At::Command("P:"), Act::Close, 1, Gets::Error(2013), 1),
    (Preparing, At::Command("P:"), Act::Stall, 1, Gets::Error(1907), 1),
    (Executing, At::Command("E:"), Act::Close, 1, Gets::Error(2013), 1),
    (Executing, At::Command("E:"), Act::Stall, 1, Gets::Error(1907), 1),
    (Executing, At::Command("E:"), Act::HalfRow(Then::Close), 1, Closed, 1),
    (Repreparing, At::Command("P:"), Act::Close, 1, Rows, 1),
    (Repreparing, At::Command("P:"), Act::Stall, 1, Gets::Error(1907), 0),
    (Repreparing, At::Command("P:"), Act::Error(error_code::NO_SUCH_TABLE, "gone"), 1, Gets::Error(1146), 0),
];

fn setup(port: u16) -> Setup {
    let mut setup = Setup { connections: 1, ..Setup::sharing(port) };
    setup.variables.default_query_timeout = Duration::from_millis(400);
    setup.variables.connect_timeout_server = Duration::from_millis(200);
    setup.variables.connect_timeout_server_max = Duration::from_millis(900);
    setup.variables.connect_retries_on_failure = 3;
    setup.variables.shun_on_failures = 0;
    setup
}

#[test]
fn every_phase_of_an_exchange() {
    let fake = Fake::start();
    let proxy = setup(fake.port).start();
    block_on(async {
        let mut wrong = Vec::new();
        for &(doing, at, act, times, gets, runs) in PHASES {
            let outcome = phase(&fake, &proxy, doing, (at, act, times)).await;
            if outcome != (gets, runs) {
                wrong.push(format!("{doing:?} {at:?} {act:?}: {outcome:?} instead of {:?}; log {:?}", (gets, runs), fake.log()));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

/// Plays one phase; what the client got, and how often the statement was asked for.
async fn phase(fake: &Fake, proxy: &Proxy, doing: Doing, (at, act, times): (At, Act, u32)) -> (Gets, usize) {
    fake.forget();
    let mut client = client_of(proxy).await;
    let mut prepared = None;
    match doing {
        Select if matches!(at, At::Accept | At::Login) => drop_the_connection(fake, &mut client).await,
        Select | Preparing | InTransaction => {}
        Aligning => {
            drop_the_connection(fake, &mut client).await;
            run(&mut client, &["SET unique_checks=0"]).await;
        }
        Executing => prepared = Some(client.prep("SELECT 1").await.unwrap()),
        Repreparing => {
            prepared = Some(client.prep("SELECT 1").await.unwrap());
            drop_the_connection(fake, &mut client).await;
        }
    }
    fake.forget();
    fake.script(at, act, times);
    let outcome = match (doing, &prepared) {
        (Preparing, _) => client.prep("SELECT 1").await.map(|_| ()),
        (_, Some(prepared)) => client.exec_drop(prepared, ()).await,
        (InTransaction, _) => {
            let closed = fake.closed();
            client.query_drop("BEGIN").await.unwrap();
            if at == At::After("Q:BEGIN") {
                until(|| fake.closed() > closed).await;
            }
            client.query_drop("SELECT 1").await
        }
        _ => client.query_drop("SELECT 1").await,
    };
    let runs = match doing {
        Preparing => fake.count("P:"),
        Executing | Repreparing => fake.count("E:"),
        _ => fake.count("Q:SELECT 1"),
    };
    let gets = match outcome {
        Ok(()) => Rows,
        Err(Error::Server(error)) => {
            fake.script(At::Accept, Act::Close, 0);
            if goes_on(fake, &mut client).await { Gets::Error(error.code) } else { LastError(error.code) }
        }
        Err(_) => Closed,
    };
    if gets == Rows || matches!(gets, Gets::Error(_)) {
        client.disconnect().await.unwrap();
    }
    (gets, runs)
}

/// A client that asks nothing when it logs in.
async fn client_of(proxy: &Proxy) -> Conn {
    let options = proxy.login_options("demo", "demo").max_allowed_packet(Some(1 << 24)).wait_timeout(Some(28_800));
    Conn::new(options).await.unwrap()
}

/// The pool's one connection dies while it is idle: the next statement opens another.
async fn drop_the_connection(fake: &Fake, client: &mut Conn) {
    let closed = fake.closed();
    fake.script(At::After("Q:SELECT 0"), Act::Close, 1);
    client.query_drop("SELECT 0").await.unwrap();
    until(|| fake.closed() > closed).await;
}

/// Whether the session can run a statement.
async fn goes_on(fake: &Fake, client: &mut Conn) -> bool {
    fake.forget();
    client.query_drop("SELECT 2").await.is_ok()
}

#[test]
fn a_connection_that_dies_idle_costs_nothing() {
    let fake = Fake::start();
    let proxy = setup(fake.port).start();
    block_on(async {
        let mut client = client_of(&proxy).await;
        for round in 1..=5 {
            drop_the_connection(&fake, &mut client).await;
            assert_eq!(text(&mut client, "SELECT 1").await, "1");
            assert_eq!(fake.count("Q:SELECT 1"), round, "run once each time");
        }
        client.disconnect().await.unwrap();
    });
}

#[test]
fn a_silent_server_does_not_keep_what_is_limited() {
    let fake = Fake::start();
    let proxy = setup(fake.port).start();
    block_on(async {
        // A reset that is never answered, when a session ends: the connection is closed instead.
        let mut pinned = client_of(&proxy).await;
        run(&mut pinned, &["SET @a = 1"]).await;
        fake.script(At::Command("R:"), Act::Stall, 1);
        pinned.disconnect().await.unwrap();
        let mut next = client_of(&proxy).await;
        while next.query_drop("SELECT 1").await.is_err() {}
        assert_eq!(fake.count("R:"), 1);
        assert_eq!(fake.connections(), 2);
        next.disconnect().await.unwrap();
    });
}

#[test]
fn kill_query_ends_what_was_not_sent_yet() {
    let fake = Fake::start();
    let mut setup = setup(fake.port);
    setup.variables.default_query_timeout = Duration::from_secs(60);
    let proxy = Setup { connections: 2, users: vec![("other".into(), "other".into())], ..setup }.start();
    block_on(async {
        let mut victim = client_of(&proxy).await;
        let id = text(&mut victim, "SELECT CONNECTION_ID()").await;
        run(&mut victim, &["SET unique_checks=0"]).await;
        fake.script(At::Command("Q:SET SESSION unique_checks"), Act::Stall, 1);
        let running = tokio::spawn(async move {
            let code = mysql_support::error(&mut victim, "SELECT 1").await;
            (text(&mut victim, "SELECT 1").await, code)
        });
        until(|| fake.count("Q:SET SESSION unique_checks") == 1).await;
        let mut killer = client_of(&proxy).await;
        run(&mut killer, &[&format!("KILL QUERY {id}")]).await;
        assert_eq!(running.await.unwrap(), ("1".to_owned(), 1317));
        let foreign = (2_u32 << 24) + 5;
        proxy.plane.set_nodes([(1, "node1".to_owned()), (2, "node2".to_owned())]);
        let Err(Error::Server(error)) = killer.query_drop(format!("KILL {foreign}")).await else { panic!("no error") };
        assert_eq!(error.code, 1094);
        assert!(error.message.contains("node node2"), "{}", error.message);
        for unknown in [u32::MAX, 0, (1 << 24) + 0xff_ffff] {
            let Err(Error::Server(error)) = killer.query_drop(format!("KILL {unknown}")).await else { panic!("no error") };
            assert_eq!((error.code, error.message), (1094, format!("Unknown thread id: {unknown}")));
        }
        let options = proxy.login_options("other", "other").max_allowed_packet(Some(1 << 24)).wait_timeout(Some(28_800));
        let mut stranger = Conn::new(options).await.unwrap();
        let id = text(&mut stranger, "SELECT CONNECTION_ID()").await;
        for sql in [format!("KILL {id}"), format!("KILL QUERY {id}")] {
            assert_eq!(mysql_support::error(&mut killer, &sql).await, 1095);
        }
        assert_eq!(text(&mut stranger, "SELECT CONNECTION_ID()").await, id, "it lives");
        stranger.disconnect().await.unwrap();
        killer.disconnect().await.unwrap();
    });
}

/// At a limit: first come, first served, and who waits too long is told why.
#[test]
fn a_queue_at_the_limit_is_fair_and_has_a_deadline() {
    let fake = Fake::start();
    let mut setup = setup(fake.port);
    setup.variables.default_query_timeout = Duration::from_secs(60);
    setup.variables.connect_timeout_server_max = Duration::from_secs(30);
    let proxy = setup.start();
    block_on(async {
        let mut holder = client_of(&proxy).await;
        run(&mut holder, &["BEGIN"]).await;
        let mut waiting = Vec::new();
        for number in 0..6 {
            let mut client = client_of(&proxy).await;
            let id: u32 = text(&mut client, "SELECT CONNECTION_ID()").await.parse().unwrap();
            waiting.push(tokio::spawn(async move { client.query_drop(format!("DO {number}")).await.map_err(|error| error.to_string()) }));
            loop {
                let rows = proxy.plane.process_list().await;
                if rows.iter().any(|row| row.id == id && row.facts.command == "Query") {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        run(&mut holder, &["COMMIT"]).await;
        for client in waiting {
            client.await.unwrap().unwrap();
        }
        let order: Vec<_> = fake.log().into_iter().filter(|text| text.starts_with("Q:DO ")).collect();
        assert_eq!(order, (0..6).map(|number| format!("Q:DO {number}")).collect::<Vec<_>>());
        holder.disconnect().await.unwrap();
    });
    let fake = Fake::start();
    let proxy = self::setup(fake.port).start();
    block_on(async {
        let (mut holder, mut other) = (client_of(&proxy).await, client_of(&proxy).await);
        run(&mut holder, &["BEGIN"]).await;
        let Err(Error::Server(error)) = other.query_drop("SELECT 1").await else { panic!("no error") };
        assert_eq!((error.code, error.state.as_str()), (9001, "HY000"));
        assert!(error.message.starts_with("Max connect timeout reached while reaching hostgroup 10 after "), "{}", error.message);
        assert!(error.message.ends_with(&format!("ms (1 connections of 127.0.0.1:{} are in use)", fake.port)), "{}", error.message);
        assert_eq!(fake.count("Q:SELECT 1"), 0);
        run(&mut holder, &["COMMIT"]).await;
        run(&mut other, &["SELECT 1"]).await;
    });
}

/// A real server that is stopped and goes on, and one that is killed in a transaction.
#[test]
fn a_real_server_that_is_paused_or_killed() {
    let mut server = MariaDb::start(1, &[]);
    let mut setup = setup(server.port);
    setup.variables.default_query_timeout = Duration::from_secs(2);
    setup.variables.connect_timeout_server_max = Duration::from_secs(2);
    setup.variables.connect_retries_on_failure = 1000;
    let proxy = setup.start();
    block_on(async {
        let mut client = client_of(&proxy).await;
        run(&mut client, &["CREATE TABLE t (a INT)"]).await;
        server.process.signal(Signal::STOP);
        assert_eq!(mysql_support::error(&mut client, "INSERT INTO t VALUES (1)").await, 1907);
        assert_eq!(mysql_support::error(&mut client, "SELECT 1").await, 9001, "no connection can be opened");
        server.process.signal(Signal::CONT);
        let mut retry = client.query_first::<u32, _>("SELECT COUNT(*) FROM t").await;
        while retry.is_err() {
            retry = client.query_first("SELECT COUNT(*) FROM t").await;
        }
        assert!(retry.unwrap().unwrap() <= 1, "never run twice");
        run(&mut client, &["BEGIN", "INSERT INTO t VALUES (2)"]).await;
        server.process.kill();
        assert_eq!(mysql_support::error(&mut client, "SELECT 1").await, 2013);
        assert!(client.query_drop("SELECT 1").await.is_err(), "the transaction is lost, and the session with it");
    });
}

async fn until(test: impl Fn() -> bool) {
    while !test() {
        tokio::task::yield_now().await;
    }
}
