//! The server is killed, or stands still, in every phase of an exchange. The script knows the phase: its server reports it. What the client reads,
//! whether its session goes on, and that nothing that may have run is run again.

use std::time::Duration;

use quorumsql_dataplane::config::Variables;
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frame;
use quorumsql_wire::pgsql::frontend;

use crate::bytes::Raw;
use crate::fake::Fake;
use crate::support::{Plane, Setup, WRITER, quick, until};

pub(crate) const LOST: &str = "08006 Lost connection to PostgreSQL server during query";
pub(crate) const ABORTED: &str = "25P02 current transaction is aborted, commands ignored until end of transaction block";
pub(crate) const UNKNOWN: &str = "08007 connection to server lost while committing, transaction outcome unknown";

fn in_front_of(fake: &Fake, variables: Variables) -> Plane {
    Setup { servers: vec![(WRITER, fake.port, 2)], variables: Some(variables), ..Setup::default() }.start()
}

/// Tags and errors up to the `ready`-th ReadyForQuery, whose status follows its tag, or the end (`.`).
pub(crate) async fn read(raw: &mut Raw, mut ready: usize) -> (String, Vec<String>) {
    let (mut tags, mut errors) = (String::new(), Vec::new());
    while ready > 0 {
        let Some((tag, body)) = raw.next().await else {
            tags.push('.');
            break;
        };
        tags.push(tag as char);
        match tag {
            b'Z' => {
                tags.push(body[0] as char);
                ready -= 1;
            }
            b'E' => {
                let fields = ErrorFields::decode(&body).expect("a well-formed error");
                errors.push(format!("{} {}", fields.code, fields.message));
            }
            _ => {}
        }
    }
    (tags, errors)
}

pub(crate) async fn ask(raw: &mut Raw, sql: &str) {
    raw.send(|out| frontend::query(out, sql.as_bytes())).await;
}

pub(crate) fn batch(out: &mut Vec<u8>, sql: &str) {
    frontend::parse(out, b"", sql.as_bytes(), b"");
    frontend::bind(out, b"", b"", b"\0\0\0\0\0\0");
    frontend::execute(out, b"", 0);
}

/// How a phase is reached, how many ReadyForQuery are due, and what the client reads: tags and errors.
struct Phase {
    name: &'static str,
    before: &'static [&'static str],
    reach: fn(&mut Vec<u8>),
    /// The statement in whose middle the server dies.
    at: &'static str,
    ready: usize,
    tags: &'static str,
    errors: &'static [&'static str],
    /// The session goes on, in this state.
    then: Option<Then>,
}

#[derive(PartialEq)]
enum Then {
    Idle,
    Failed,
}

const PHASES: &[Phase] = &[
    Phase {
        name: "waiting for the first answer",
        before: &[],
        reach: |out| frontend::query(out, b"select hang"),
        at: "select hang",
        ready: 1,
        tags: "EZI",
        errors: &[LOST],
        then: Some(Then::Idle),
    },
    Phase {
        name: "a write is running",
        before: &[],
        reach: |out| frontend::query(out, b"insert hang"),
        at: "insert hang",
        ready: 1,
        tags: "EZI",
        errors: &[LOST],
        then: Some(Then::Idle),
    },
    Phase {
        name: "half a result",
        before: &[],
        reach: |out| frontend::query(out, b"half"),
        at: "half",
        ready: 1,
        tags: "TDEZI",
        errors: &[LOST],
        then: Some(Then::Idle),
    },
    Phase {
        name: "half a row",
        before: &[],
        reach: |out| frontend::query(out, b"torn"),
        at: "torn",
        ready: 1,
        tags: "",
        errors: &[],
        then: None,
    },
    Phase {
        name: "a statement of a transaction",
        before: &["begin"],
        reach: |out| frontend::query(out, b"insert hang"),
        at: "insert hang",
        ready: 1,
        tags: "NEZE",
        errors: &[ABORTED],
        then: Some(Then::Failed),
    },
    Phase {
        name: "COMMIT",
        before: &["begin"],
        reach: |out| frontend::query(out, b"commit /* */ hang"),
        at: "commit /* */ hang",
        ready: 1,
        tags: "EZI",
        errors: &[UNKNOWN],
        then: Some(Then::Idle),
    },
    Phase {
        name: "COMMIT by protocol",
        before: &["begin"],
        reach: |out| {
            batch(out, "commit and no chain hang");
            frontend::sync(out);
        },
        at: "commit and no chain hang",
        ready: 1,
        tags: "12EZI",
        errors: &[UNKNOWN],
        then: Some(Then::Idle),
    },
    Phase {
        name: "ROLLBACK",
        before: &["begin"],
        reach: |out| frontend::query(out, b"rollback /* */ hang"),
        at: "rollback /* */ hang",
        ready: 1,
        tags: "CZI",
        errors: &[],
        then: Some(Then::Idle),
    },
    Phase {
        name: "a pipeline half answered",
        before: &[],
        reach: |out| {
            batch(out, "insert one");
            batch(out, "insert hang");
            batch(out, "insert never");
            frontend::sync(out);
        },
        at: "insert hang",
        ready: 1,
        tags: "12C12EZI",
        errors: &[LOST],
        then: Some(Then::Idle),
    },
    Phase {
        name: "a pipeline of several batches",
        before: &["begin"],
        reach: |out| {
            batch(out, "insert hang");
            frontend::sync(out);
            batch(out, "insert two");
            frontend::sync(out);
            frontend::query(out, b"insert three");
        },
        at: "insert hang",
        ready: 3,
        tags: "12NEZEEZEEZE",
        errors: &[ABORTED, ABORTED, ABORTED],
        then: Some(Then::Failed),
    },
    Phase {
        name: "COPY OUT",
        before: &[],
        reach: |out| frontend::query(out, b"copy out"),
        at: "copy out",
        ready: 1,
        tags: "HdEZI",
        errors: &[LOST],
        then: Some(Then::Idle),
    },
    Phase {
        name: "a protocol error of the server",
        before: &[],
        reach: |out| frontend::query(out, b"alien"),
        at: "alien",
        ready: 1,
        tags: "E.",
        errors: &["08P01 unexpected message \"2\" from server"],
        then: None,
    },
    Phase {
        name: "a pinned session",
        before: &["listen x"],
        reach: |out| frontend::query(out, b"select hang"),
        at: "select hang",
        ready: 1,
        tags: "E.",
        errors: &["08006 connection to server lost together with connection state (LISTEN)"],
        then: None,
    },
];

#[tokio::test]
async fn a_server_killed_in_every_phase() {
    for phase in PHASES {
        let fake = Fake::start().await;
        let plane = in_front_of(&fake, quick());
        let mut raw = Raw::login(&plane).await;
        for sql in phase.before {
            ask(&mut raw, sql).await;
            assert!(read(&mut raw, 1).await.0.starts_with("CZ"), "{}: {sql}", phase.name);
        }
        raw.send(phase.reach).await;
        fake.reached(phase.at).await;
        fake.kill().await;
        let (tags, errors) = read(&mut raw, phase.ready).await;
        if phase.name == "half a row" {
            assert!(tags.ends_with('.') && !tags.contains('E'), "{}: {tags}", phase.name);
        } else {
            assert_eq!(
                (tags.as_str(), &errors[..]),
                (phase.tags, &phase.errors.iter().map(ToString::to_string).collect::<Vec<_>>()[..]),
                "{}",
                phase.name
            );
        }
        match &phase.then {
            Some(then) => {
                if *then == Then::Failed {
                    ask(&mut raw, "select 1").await;
                    assert_eq!(read(&mut raw, 1).await, ("EZE".into(), vec![ABORTED.into()]), "{}", phase.name);
                    ask(&mut raw, "rollback").await;
                    assert_eq!(read(&mut raw, 1).await.0, "CZI", "{}", phase.name);
                }
                ask(&mut raw, "select after").await;
                assert_eq!(read(&mut raw, 1).await.0, "CZI", "{}: a new connection", phase.name);
            }
            None => assert!(raw.next().await.is_none(), "{}: the session has ended", phase.name),
        }
        for never in ["insert never", "insert two", "insert three"] {
            assert_eq!(fake.runs(never), 0, "{}: {never}", phase.name);
        }
        for once in [phase.at, "insert one"] {
            assert!(fake.runs(once) <= 1, "{}: {once} was run again", phase.name);
        }
    }
}

#[tokio::test]
async fn a_server_killed_during_copy_in() {
    let fake = Fake::start().await;
    let plane = in_front_of(&fake, quick());
    let data = |out: &mut Vec<u8>| frame::encode(out, b'd', |out| out.extend_from_slice(b"1\n"));
    let mut raw = Raw::login(&plane).await;
    ask(&mut raw, "copy in").await;
    raw.send(data).await;
    fake.copied().await;
    fake.kill().await;
    assert_eq!(read(&mut raw, 1).await, ("GEZI".into(), vec![LOST.into()]));
    // Data that was on its way is ignored.
    raw.send(|out| {
        data(out);
        frame::encode(out, b'c', |_| {});
        frontend::query(out, b"select after");
    })
    .await;
    assert_eq!(read(&mut raw, 1).await.0, "CZI");
    assert_eq!(fake.runs("copy in"), 1);
}

#[tokio::test]
async fn a_server_killed_between_statements() {
    let fake = Fake::start().await;
    let plane = in_front_of(&fake, quick());
    let mut raw = Raw::login(&plane).await;
    ask(&mut raw, "select before").await;
    assert_eq!(read(&mut raw, 1).await.0, "CZI");
    // Idle in the pool: nobody notices.
    fake.kill().await;
    ask(&mut raw, "select after").await;
    assert_eq!(read(&mut raw, 1).await.0, "CZI");
    // Idle in a transaction: the next statement tells.
    ask(&mut raw, "begin").await;
    assert_eq!(read(&mut raw, 1).await.0, "CZT");
    fake.kill().await;
    until("the loss is noticed", || plane.plane.stats().pool.iter().map(|row| row.used).sum::<u64>() == 0).await;
    ask(&mut raw, "insert lost").await;
    assert_eq!(read(&mut raw, 1).await, ("NEZE".into(), vec![ABORTED.into()]));
    ask(&mut raw, "commit").await;
    assert_eq!(read(&mut raw, 1).await.0, "CZI");
    assert_eq!(fake.runs("insert lost"), 0);
    // With its last words.
    ask(&mut raw, "bye").await;
    assert_eq!(read(&mut raw, 1).await, ("EZI".into(), vec![LOST.into()]), "never the server's FATAL");
    assert_eq!(fake.runs("bye"), 1);
}

#[tokio::test]
async fn a_server_that_stands_still() {
    let fake = Fake::start().await;
    let variables = Variables { default_query_timeout: Duration::from_millis(300), ..quick() };
    let plane = in_front_of(&fake, variables);
    let mut raw = Raw::login(&plane).await;
    let timeout = || vec!["57014 Query execution was interrupted, query_timeout exceeded".to_owned()];
    ask(&mut raw, "insert hang").await;
    assert_eq!(read(&mut raw, 1).await, ("EZI".into(), timeout()), "it obeys a cancel request");
    fake.obey(false);
    for sql in ["update hang", "half", "copy out"] {
        ask(&mut raw, sql).await;
        let (tags, errors) = read(&mut raw, 1).await;
        assert!(tags.ends_with("EZI"), "{sql}: {tags}");
        assert_eq!(errors, timeout(), "{sql}: it does not");
    }
    ask(&mut raw, "begin").await;
    assert_eq!(read(&mut raw, 1).await.0, "CZT");
    ask(&mut raw, "delete hang").await;
    assert_eq!(read(&mut raw, 1).await, ("NEZE".into(), vec![ABORTED.into()]));
    ask(&mut raw, "rollback").await;
    assert_eq!(read(&mut raw, 1).await.0, "CZI");
    for sql in ["insert hang", "update hang", "delete hang", "half", "copy out"] {
        assert_eq!(fake.runs(sql), 1, "{sql}");
    }
}

#[tokio::test]
async fn a_cancel_request_in_flight() {
    let fake = Fake::start().await;
    let plane = in_front_of(&fake, quick());
    let mut raw = Raw::login(&plane).await;
    let cancelled = || ("EZI".to_owned(), vec!["57014 canceling statement due to user request".to_owned()]);
    ask(&mut raw, "insert hang").await;
    fake.reached("insert hang").await;
    raw.cancel(&plane).await;
    assert_eq!(read(&mut raw, 1).await, cancelled());
    // The server dies before it obeys.
    fake.obey(false);
    ask(&mut raw, "update hang").await;
    fake.reached("update hang").await;
    raw.cancel(&plane).await;
    fake.cancelled(2).await;
    fake.kill().await;
    assert_eq!(read(&mut raw, 1).await, cancelled());
    ask(&mut raw, "select after").await;
    assert_eq!(read(&mut raw, 1).await.0, "CZI");
    assert_eq!((fake.runs("insert hang"), fake.runs("update hang")), (1, 1));
}

#[tokio::test]
async fn a_server_that_dies_or_stands_still_at_login() {
    for (login, expected, code, text) in [
        (1, "timeout", "08001", "Max connect "),
        (2, "closed", "08001", "Max connect failure while reaching hostgroup 10"),
        (3, "too many", "53300", "server login failed: sorry, too many clients already"),
    ] {
        let fake = Fake::start().await;
        let variables = Variables {
            connect_timeout_server: Duration::from_millis(200),
            connect_timeout_server_max: Duration::from_secs(2),
            connect_retries_on_failure: 2,
            ..quick()
        };
        let plane = in_front_of(&fake, variables);
        let mut raw = Raw::login(&plane).await;
        // The connection of the login's probe goes.
        fake.logins(login);
        fake.kill().await;
        ask(&mut raw, "insert one").await;
        let (mut tags, mut told) = (String::new(), None);
        while let Some((tag, body)) = raw.next().await {
            tags.push(tag as char);
            if tag == b'E' {
                told = Some(ErrorFields::decode(&body).unwrap());
            }
            if tag == b'Z' {
                break;
            }
        }
        let told = told.expect("an error");
        assert_eq!((tags.as_str(), told.code.as_str()), ("EZ", code), "{expected}: {}", told.message);
        assert!(told.message.starts_with(text), "{expected}: {}", told.message);
        assert!(code == "53300" || told.detail.is_some_and(|cause| !cause.is_empty()), "{expected}: the cause");
        fake.logins(0);
        // A login may still take longer than its limit on a busy machine, and then nothing has run.
        let limit = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            ask(&mut raw, "insert one").await;
            if read(&mut raw, 1).await.0 == "CZI" {
                break;
            }
            assert!(tokio::time::Instant::now() < limit, "{expected}: the session goes on");
        }
        assert_eq!(fake.runs("insert one"), 1);
    }
}
