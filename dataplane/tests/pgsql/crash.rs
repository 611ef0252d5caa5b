//! A real PostgreSQL is killed with -9 (one backend, or the whole server at once) or paused, in every phase of an exchange. The script knows the
//! phase from the server itself (`pg_stat_activity`), and from the server's log how often a statement was begun.

use std::time::Duration;

use quorumsql_chaos::process::signal_pid;
use quorumsql_chaos::servers::Postgres;
use quorumsql_dataplane::config::Variables;
use quorumsql_wire::pgsql::frame;
use quorumsql_wire::pgsql::frontend;
use rustix::process::Signal;

use crate::bytes::Raw;
use crate::phases::{ABORTED, LOST, UNKNOWN, ask, batch, read};
use crate::support::{Plane, Setup, quick, until};

const SETUP: &str = "CREATE TABLE crash (i int); CREATE TABLE slow (i int); \
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600); RETURN NULL; END'; \
    CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow(); \
    ALTER TABLE crash OWNER TO demo; ALTER TABLE slow OWNER TO demo";
const TIMEOUT: &str = "57014 Query execution was interrupted, query_timeout exceeded";

/// How a phase is reached and recognised, and what the client reads afterwards.
struct Phase {
    name: &'static str,
    before: &'static [&'static str],
    reach: fn(&mut Vec<u8>),
    /// The start of what the server runs in this phase, and what it waits for.
    at: &'static str,
    wait: &'static str,
    /// ReadyForQuery that are due.
    ready: usize,
    /// Tags, repeated ones once.
    tags: &'static str,
    errors: &'static [&'static str],
    then: Then,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Idle,
    Failed,
    Closed,
}

const WAITING: Phase = Phase {
    name: "waiting for the first answer",
    before: &[],
    reach: |out| frontend::query(out, b"SELECT 1 FROM pg_sleep(600)"),
    at: "SELECT 1 FROM pg_sleep",
    wait: "PgSleep",
    ready: 1,
    tags: "EZI",
    errors: &[LOST],
    then: Then::Idle,
};

const PHASES: &[Phase] = &[
    WAITING,
    Phase {
        name: "a write is running",
        reach: |out| frontend::query(out, b"INSERT INTO crash SELECT 1 FROM pg_sleep(600)"),
        at: "INSERT INTO crash SELECT",
        ..WAITING
    },
    Phase {
        name: "half a result",
        reach: |out| frontend::query(out, b"SELECT i, repeat('x', 1000) FROM generate_series(1, 1000000) i"),
        at: "SELECT i, repeat",
        wait: "ClientWrite",
        tags: "TDEZI",
        ..WAITING
    },
    Phase {
        name: "half a long row",
        reach: |out| frontend::query(out, b"SELECT repeat('x', 100000000)"),
        at: "SELECT repeat",
        wait: "ClientWrite",
        tags: "T.",
        errors: &[],
        then: Then::Closed,
        ..WAITING
    },
    Phase {
        name: "a statement of a transaction",
        before: &["BEGIN", "INSERT INTO crash VALUES (2)"],
        reach: |out| frontend::query(out, b"INSERT INTO crash SELECT 3 FROM pg_sleep(600)"),
        at: "INSERT INTO crash SELECT",
        tags: "NEZE",
        errors: &[ABORTED],
        then: Then::Failed,
        ..WAITING
    },
    Phase {
        name: "COMMIT",
        before: &["BEGIN", "INSERT INTO slow VALUES (1)"],
        reach: |out| frontend::query(out, b"COMMIT"),
        at: "COMMIT",
        errors: &[UNKNOWN],
        ..WAITING
    },
    Phase {
        name: "a pipeline half answered",
        reach: |out| {
            batch(out, "INSERT INTO crash VALUES (4)");
            frame::encode(out, b'H', |_| {});
            batch(out, "INSERT INTO crash SELECT 5 FROM pg_sleep(600)");
            batch(out, "INSERT INTO crash VALUES (6)");
            frontend::sync(out);
        },
        at: "INSERT INTO crash SELECT",
        tags: "12CEZI",
        ..WAITING
    },
    Phase {
        name: "a pipeline of several batches",
        before: &["BEGIN"],
        reach: |out| {
            batch(out, "INSERT INTO crash SELECT 7 FROM pg_sleep(600)");
            frontend::sync(out);
            batch(out, "INSERT INTO crash VALUES (8)");
            frontend::sync(out);
            frontend::query(out, b"INSERT INTO crash VALUES (9)");
        },
        at: "INSERT INTO crash SELECT",
        ready: 3,
        tags: "NEZEEZEEZE",
        errors: &[ABORTED, ABORTED, ABORTED],
        then: Then::Failed,
        ..WAITING
    },
    Phase {
        name: "COPY OUT",
        reach: |out| frontend::query(out, b"COPY (SELECT repeat('x', 1000) FROM generate_series(1, 1000000)) TO STDOUT"),
        at: "COPY (SELECT",
        wait: "ClientWrite",
        tags: "HdEZI",
        ..WAITING
    },
    Phase {
        name: "COPY IN",
        reach: |out| {
            frontend::query(out, b"COPY crash FROM STDIN");
            frame::encode(out, b'd', |out| out.extend_from_slice(b"10\n"));
        },
        at: "COPY crash FROM STDIN",
        wait: "ClientRead",
        tags: "GEZI",
        ..WAITING
    },
    Phase {
        name: "a pinned session",
        before: &["LISTEN x"],
        tags: "E.",
        errors: &["08006 connection to server lost together with connection state (LISTEN)"],
        then: Then::Closed,
        ..WAITING
    },
];

/// A server that logs what it runs, and a data plane that waits for it while it recovers.
fn start(variables: Variables) -> (Postgres, Plane) {
    let server = Postgres::start(&["log_statement=all"]);
    let _made = server.root("demo", SETUP);
    let variables = Variables { connect_timeout_server_max: Duration::from_secs(30), ..variables };
    let plane = Setup { variables: Some(variables), ..Setup::writer(&server, 20) }.start();
    (server, plane)
}

/// Process ids of the backends of demo that run `phase`.
fn backends(server: &Postgres, phase: &Phase) -> Vec<u32> {
    let sql = format!(
        "SELECT pid FROM pg_stat_activity WHERE usename = 'demo' AND state = 'active' AND query LIKE '{}%' AND wait_event = '{}'",
        phase.at, phase.wait
    );
    server.root("demo", &sql).lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Brings a client into the phase; returns it with the backend that serves it.
async fn reach(server: &Postgres, plane: &Plane, phase: &Phase, known: &[u32]) -> (Raw, u32) {
    let mut raw = Raw::login(plane).await;
    for sql in phase.before {
        ask(&mut raw, sql).await;
        assert!(read(&mut raw, 1).await.0.starts_with("CZ"), "{}: {sql}", phase.name);
    }
    raw.send(phase.reach).await;
    let mut found = Vec::new();
    let limit = tokio::time::Instant::now() + Duration::from_secs(20);
    while found.is_empty() {
        assert!(tokio::time::Instant::now() < limit, "{} is not reached", phase.name);
        tokio::time::sleep(Duration::from_millis(20)).await; // the pause between two looks at the condition
        found = backends(server, phase);
        found.retain(|pid| !known.contains(pid));
    }
    assert_eq!(found.len(), 1, "{}", phase.name);
    (raw, found[0])
}

/// How often the server has begun the statement of `phase`.
fn begun(server: &Postgres, phase: &Phase) -> usize {
    let log = server.process.output();
    let is_begin = |line: &&str| {
        let text = line.split_once("statement: ").or_else(|| line.split_once("execute <unnamed>: "));
        text.is_some_and(|(_, sql)| sql.starts_with(phase.at))
    };
    log.lines().filter(is_begin).count()
}

/// Tags without repetitions that depend on how much a socket held.
fn collapse(tags: &str) -> String {
    let mut collapsed = String::new();
    for tag in tags.chars() {
        if !(matches!(tag, 'D' | 'd') && collapsed.ends_with(tag)) {
            collapsed.push(tag);
        }
    }
    collapsed
}

/// What the client reads after the loss, and how its session goes on.
async fn afterwards(plane: &Plane, raw: &mut Raw, phase: &Phase, errors: &[&str]) {
    let (tags, told) = read(raw, phase.ready).await;
    assert_eq!(
        (collapse(&tags).as_str(), &told.iter().map(String::as_str).collect::<Vec<_>>()[..]),
        (phase.tags, errors),
        "{}",
        phase.name
    );
    match phase.then {
        Then::Closed => {
            assert!(raw.next().await.is_none(), "{}: the session has ended", phase.name);
            *raw = Raw::login(plane).await;
        }
        Then::Failed => {
            ask(raw, "SELECT 1").await;
            assert_eq!(read(raw, 1).await, ("EZE".into(), vec![ABORTED.into()]), "{}", phase.name);
            ask(raw, "ROLLBACK").await;
            assert_eq!(read(raw, 1).await.0, "CZI", "{}", phase.name);
        }
        Then::Idle => {}
    }
    if phase.name == "COPY IN" {
        // Data that was on its way is ignored.
        raw.send(|out| {
            frame::encode(out, b'd', |out| out.extend_from_slice(b"11\n"));
            frame::encode(out, b'c', |_| {});
        })
        .await;
    }
    // A server that has lost a backend ends the others, too, and the pool's connections with them: one that was about to end says so.
    let mut again = (String::new(), vec![LOST.to_owned()]);
    while again.1 == [LOST] {
        ask(raw, "SELECT count(*) FROM crash").await;
        again = read(raw, 1).await;
    }
    assert_eq!(again, ("TDCZI".into(), vec![]), "{}: another connection", phase.name);
}

#[tokio::test]
async fn a_backend_killed_in_every_phase() {
    let (server, plane) = start(quick());
    for phase in PHASES {
        let before = begun(&server, phase);
        let (mut raw, backend) = reach(&server, &plane, phase, &[]).await;
        signal_pid(backend, Signal::KILL);
        afterwards(&plane, &mut raw, phase, phase.errors).await;
        assert_eq!(begun(&server, phase) - before, 1, "{}: nothing is run again", phase.name);
    }
    assert_eq!(server.root("demo", "SELECT count(*) FROM crash").trim(), "0", "nothing was left half done");
}

#[tokio::test]
async fn a_whole_server_killed_in_every_phase() {
    let (mut server, plane) = start(quick());
    for phase in PHASES {
        let before = begun(&server, phase);
        let (mut raw, _) = reach(&server, &plane, phase, &[]).await;
        server.kill_all();
        let (restarted, ()) = tokio::join!(
            tokio::task::spawn_blocking(move || {
                server.restart();
                server
            }),
            afterwards(&plane, &mut raw, phase, phase.errors)
        );
        server = restarted.expect("it starts again");
        assert_eq!(begun(&server, phase) - before, 1, "{}: nothing is run again", phase.name);
    }
    assert_eq!(server.root("demo", "SELECT count(*) FROM crash").trim(), "0", "nothing was left half done");
}

#[tokio::test]
async fn a_server_killed_between_statements() {
    let (mut server, plane) = start(quick());
    let (mut idle, mut busy) = (Raw::login(&plane).await, Raw::login(&plane).await);
    ask(&mut idle, "SELECT count(*) FROM crash").await;
    assert_eq!(read(&mut idle, 1).await.0, "TDCZI");
    for sql in ["BEGIN", "INSERT INTO crash VALUES (1)"] {
        ask(&mut busy, sql).await;
        assert_eq!(read(&mut busy, 1).await.0, "CZT");
    }
    server.kill_all();
    until("the loss is noticed", || plane.plane.stats().pool.iter().map(|row| row.used).sum::<u64>() == 0).await;
    // The one waits for the server; the other has lost a transaction, which needs no server.
    ask(&mut idle, "SELECT count(*) FROM crash").await;
    ask(&mut busy, "INSERT INTO crash VALUES (2)").await;
    assert_eq!(read(&mut busy, 1).await, ("NEZE".into(), vec![ABORTED.into()]));
    ask(&mut busy, "COMMIT").await;
    assert_eq!(read(&mut busy, 1).await.0, "CZI");
    server.restart();
    assert_eq!(read(&mut idle, 1).await.0, "TDCZI", "served when the server is back");
    assert_eq!(server.root("demo", "SELECT count(*) FROM crash").trim(), "0");
}

/// The phases in which a paused backend keeps a client waiting, on one server, side by side. The cancel request is served by the postmaster, which
/// runs; the backend cannot obey.
#[tokio::test]
async fn a_backend_paused_in_every_phase() {
    let (server, plane) = start(Variables { default_query_timeout: Duration::from_secs(3), ..quick() });
    let (server, plane) = (&server, &plane);
    let (mut paused, mut known) = (Vec::new(), Vec::new());
    for phase in PHASES.iter().filter(|phase| phase.name != "half a long row") {
        let (raw, backend) = reach(server, plane, phase, &known).await;
        signal_pid(backend, Signal::STOP);
        known.push(backend);
        paused.push((phase, raw, backend));
    }
    for (phase, raw, _) in &mut paused {
        let errors: Vec<&str> = phase.errors.iter().map(|error| if *error == LOST { TIMEOUT } else { *error }).collect();
        afterwards(plane, raw, phase, &errors).await;
    }
    for (_, _, backend) in &paused {
        signal_pid(*backend, Signal::CONT);
    }
    until("they have ended", || server.root("demo", "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'").trim() == "0")
        .await;
    for (phase, ..) in &paused {
        let same = PHASES.iter().filter(|other| other.at == phase.at && other.name != "half a long row").count();
        assert_eq!(begun(server, phase), same, "{}: nothing is run again", phase.name);
    }
    assert_eq!(server.root("demo", "SELECT count(*) FROM crash").trim(), "0", "nothing was left half done");
}

#[tokio::test]
async fn a_server_that_is_paused_at_login() {
    let server = Postgres::start(&[]);
    let variables =
        Variables { connect_timeout_server: Duration::from_millis(300), connect_timeout_server_max: Duration::from_secs(1), ..quick() };
    let plane = Setup { variables: Some(variables), ..Setup::writer(&server, 2) }.start();
    let mut raw = Raw::login(&plane).await;
    server.process.signal(Signal::STOP);
    // The connection of the login's probe serves the first; the second needs a new one.
    let mut pinned = Raw::login(&plane).await;
    ask(&mut pinned, "LISTEN x").await;
    assert_eq!(read(&mut pinned, 1).await.0, "CZI");
    ask(&mut raw, "SELECT 1").await;
    let (tags, errors) = read(&mut raw, 1).await;
    assert_eq!(tags, "EZI");
    assert!(errors[0].starts_with("08001 Max connect timeout reached while reaching hostgroup 10 after "), "{errors:?}");
    server.process.signal(Signal::CONT);
    ask(&mut raw, "SELECT 1").await;
    assert_eq!(read(&mut raw, 1).await.0, "TDCZI", "the session goes on");
}
