//! Statements that were prepared by protocol, used as text, and the reverse: as on a direct connection, or refused; never another session's.

use quorumsql_chaos::servers::Postgres;
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frontend::{self, Target};

use crate::bytes::Raw;
use crate::phases::ask;
use crate::support::{Plane, in_front_of_server};

/// Everything up to ReadyForQuery: tags, errors, rows and the status.
async fn answer(raw: &mut Raw) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some((tag, body)) = raw.next().await {
        match tag {
            b'S' | b'N' => {}
            b'E' => {
                let fields = ErrorFields::decode(&body).expect("a well-formed error");
                seen.push(format!("E {} {}", fields.code, fields.message));
            }
            b'D' | b'C' | b'Z' => seen.push(format!("{} {}", tag as char, String::from_utf8_lossy(&body))),
            _ => seen.push((tag as char).to_string()),
        }
        if tag == b'Z' {
            break;
        }
    }
    seen
}

/// A step of a dialogue.
enum Step {
    Query(&'static str),
    Parse(&'static str, &'static str),
    /// Bind without parameters, Describe and Execute of a statement.
    Run(&'static str),
    Close(&'static str),
}

fn encode(step: &Step, out: &mut Vec<u8>) {
    match step {
        Step::Query(sql) => return frontend::query(out, sql.as_bytes()),
        Step::Parse(name, sql) => frontend::parse(out, name.as_bytes(), sql.as_bytes(), b""),
        Step::Run(name) => {
            frontend::bind(out, b"", name.as_bytes(), b"\0\0\0\0\0\0");
            frontend::describe(out, Target::Statement, name.as_bytes());
            frontend::execute(out, b"", 0);
        }
        Step::Close(name) => frontend::close(out, Target::Statement, name.as_bytes()),
    }
    frontend::sync(out);
}

/// Sends the same steps to a server directly and through a plane: the answers are equal. Returns both clients.
async fn compare(server: &Postgres, plane: &Plane, steps: &[Step]) -> (Raw, Raw) {
    let (mut direct, mut through) = (Raw::login_at(server.port).await, Raw::login(plane).await);
    for step in steps {
        let mut bytes = Vec::new();
        encode(step, &mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut answers = Vec::new();
        for raw in [&mut direct, &mut through] {
            raw.send(|out| out.extend_from_slice(&bytes)).await;
            answers.push(answer(raw).await);
        }
        assert_eq!(answers[1], answers[0], "through the proxy, and directly: {text:?}");
    }
    (direct, through)
}

#[tokio::test]
async fn a_statement_fills_a_temporary_table() {
    use Step::{Parse, Query, Run};
    let (server, plane) = in_front_of_server(1);
    let steps = [
        Parse("a", "SELECT 'a'::text AS x"),
        Query("CREATE TEMP TABLE one AS EXECUTE a; SELECT * FROM one; DROP TABLE one"),
        Query("CREATE TEMP TABLE one ON COMMIT DROP AS EXECUTE a"),
        Query("CREATE TABLE pg_temp.one AS EXECUTE a; TABLE one"),
        Parse("", "CREATE LOCAL TEMPORARY TABLE two AS EXECUTE a WITH NO DATA"),
        Run(""),
        Query("TABLE two"),
    ];
    compare(&server, &plane, &steps).await;
}

/// What stands before a PREPARE of a name that is taken runs.
#[tokio::test]
async fn a_name_is_taken_when_its_prepare_runs() {
    use Step::{Close, Parse, Query, Run};
    let (server, plane) = in_front_of_server(1);
    let steps = [
        Parse("a", "SELECT 'a'::text"),
        Query("SELECT 1; PREPARE a AS SELECT 2; SELECT 3"),
        Query("SELECT 1; PREPARE free AS SELECT 2; EXECUTE a; PREPARE a AS SELECT 2"),
        Query("EXECUTE free; DEALLOCATE free"),
        Query("BEGIN; SELECT 1; PREPARE a AS SELECT 2"),
        Query("ROLLBACK; SELECT 1"),
        Parse("", "PREPARE a AS SELECT 4"),
        Run(""),
        Run("a"),
        Query("DEALLOCATE a; PREPARE a AS SELECT 5; EXECUTE a"),
        Run("a"),
        Query("DEALLOCATE a; SELECT 6"),
        Parse("a", "SELECT 'again'::text"),
        Query("DEALLOCATE ALL; PREPARE a AS SELECT 7; EXECUTE a"),
        Query("EXECUTE a"),
        Parse("b", "SELECT 'b'::text"),
        Query("SELECT 1; PREPARE b AS SELECT 8"),
        Run("b"),
        Query("SELECT count(*) FROM pg_prepared_statements WHERE name = 'b' AND statement = ''"),
    ];
    let (mut direct, mut through) = compare(&server, &plane, &steps).await;
    // Without a text: it is only executed.
    let batches: [&[(&str, &str)]; 10] = [
        &[("gone", "SELECT nothing"), ("", "SELECT pg_sleep(0.1)"), ("gone", "")],
        &[("k", "SELECT nothing"), ("k", "SELECT 1"), ("k", "SELECT nothing")],
        &[("m", "SELECT 1; EXECUTE m")],
        &[("", "DEALLOCATE ALL"), ("k", "SELECT 2"), ("", "EXECUTE k")],
        &[("", "DISCARD ALL"), ("k", "SELECT 3"), ("", "EXECUTE k")],
        &[("e", "SELECT 1"), ("", "DEALLOCATE e"), ("e", "SELECT 2"), ("", "EXECUTE e"), ("", "DEALLOCATE e")],
        &[("", "PREPARE t AS SELECT 1"), ("t", "SELECT 2")],
        &[("", "DEALLOCATE t"), ("t", "SELECT 3")],
        &[("", "PREPARE u AS SELECT nothing"), ("u", "SELECT 4")],
        &[("", "PREPARE u AS SELECT 5"), ("u", "SELECT 6")],
    ];
    for (batch, synced) in batches.iter().flat_map(|batch| [(batch, false), (batch, true)]) {
        let mut answers = Vec::new();
        for raw in [&mut direct, &mut through] {
            raw.send(|out| {
                for (name, sql) in *batch {
                    if !sql.is_empty() {
                        frontend::parse(out, name.as_bytes(), sql.as_bytes(), b"");
                    }
                    frontend::bind(out, b"", name.as_bytes(), b"\0\0\0\0\0\0");
                    frontend::execute(out, b"", 0);
                    if synced {
                        frontend::sync(out);
                    }
                }
                frontend::sync(out);
            })
            .await;
            let mut all = answer(raw).await;
            for _ in 0..if synced { batch.len() } else { 0 } {
                all.append(&mut answer(raw).await);
            }
            answers.push(all);
        }
        assert_eq!(answers[1], answers[0], "{batch:?} {synced}");
    }
    // Another client finds what was parsed behind DISCARD ALL, under our name.
    drop(through);
    let mut another = Raw::login(&plane).await;
    for sql in ["SELECT 2", "SELECT 3"] {
        another.send(|out| encode(&Parse("k", sql), out)).await;
        another.send(|out| encode(&Run("k"), out)).await;
        another.send(|out| encode(&Close("k"), out)).await;
        let mut all = Vec::new();
        for _ in 0..3 {
            all.append(&mut answer(&mut another).await);
        }
        assert!(all.iter().all(|line| !line.starts_with('E')), "{sql}: {all:?}");
    }
}

#[tokio::test]
async fn text_and_protocol_share_one_name_space() {
    use Step::{Close, Parse, Query, Run};
    let (server, plane) = in_front_of_server(1);
    let steps = [
        Parse("a", "SELECT $1::int + 1 AS sum"),
        Parse("B c", "SELECT 'two'::text"),
        Query("EXECUTE a(1)"),
        Query("/* c */ execute A (2); SELECT 1; EXECUTE \"B c\" -- end"),
        Query("EXPLAIN (COSTS off) EXECUTE a(1)"),
        Query("EXECUTE a(1, 2)"),
        Query("EXECUTE missing"),
        Query("PREPARE a AS SELECT 1"),
        Query("BEGIN"),
        Query("EXECUTE a(3)"),
        Query("PREPARE a AS SELECT 1"),
        Query("EXECUTE a(4)"),
        Query("ROLLBACK"),
        Run("B c"),
        Query("DEALLOCATE /* by text */ \"B c\""),
        Query("EXECUTE \"B c\""),
        Run("B c"),
        Close("a"),
        Query("EXECUTE a(1)"),
        Parse("bad", "SELECT nothing"),
        Query("EXECUTE bad"),
        // The same by protocol.
        Parse("e", "SELECT 'e'::text"),
        Parse("", "EXECUTE e"),
        Run(""),
        Run(""),
        Parse("named", "/* a comment */ EXPLAIN (COSTS off) EXECUTE e"),
        Run("named"),
        Parse("", "EXECUTE e(1)"),
        Run(""),
        Query("BEGIN"),
        Query("SELECT 1; DEALLOCATE e; SELECT 2; EXECUTE e"),
        Run("e"),
        Query("ROLLBACK"),
        Run("e"),
        Parse("e", "SELECT 'once more'::text"),
        Query("SELECT 1; EXECUTE e; DEALLOCATE e"),
        Query("EXECUTE e"),
        Parse("e", "SELECT 'and again'::text"),
        Parse("", "DEALLOCATE e"),
        Run("e"),
        Run(""),
        Run("e"),
        // A Query ends the unnamed statement, wherever it runs.
        Parse("", "SELECT 'unnamed'::text"),
        Run(""),
        Query("SELECT 1"),
        Run(""),
        Parse("", "SELECT 'unnamed'::text"),
        Query(""),
        Run(""),
        // As text first: from here on the session keeps its connection.
        Query("PREPARE t AS SELECT 'text'::text"),
        Run("t"),
        Query("EXECUTE t"),
        Close("t"),
        Query("EXECUTE t"),
        Query("PREPARE t AS SELECT 'again'::text"),
        Parse("t", "SELECT 'taken'::text"),
        Parse("p", "SELECT 'protocol'::text"),
        Query("EXECUTE t; EXECUTE p"),
        Query("DEALLOCATE t"),
        Query("DEALLOCATE p"),
        Run("t"),
        Run("p"),
        Query("DEALLOCATE ALL"),
        Query("EXECUTE t"),
        Parse("t", "SELECT 'free'::text"),
        Run("t"),
        Query("PREPARE u AS SELECT 1; DEALLOCATE u"),
        Parse("u", "SELECT 'free, too'::text"),
        Run("u"),
        Query("BEGIN; PREPARE v AS SELECT 1; ROLLBACK"),
        Parse("v", "SELECT 'taken for good'::text"),
        Query("PREPARE w AS SELECT nothing"),
        Parse("w", "SELECT 'failed before'::text"),
        Run("w"),
    ];
    let (mut direct, mut through) = compare(&server, &plane, &steps).await;
    // In one go the answers keep their order.
    let mut bytes = Vec::new();
    let pipeline = [Parse("x", "SELECT 'x'::text"), Query("EXECUTE x"), Query("BEGIN"), Query("PREPARE x AS SELECT 1"), Query("ROLLBACK")];
    pipeline.iter().for_each(|step| encode(step, &mut bytes));
    let mut answers = Vec::new();
    for raw in [&mut direct, &mut through] {
        raw.send(|out| out.extend_from_slice(&bytes)).await;
        let mut all = Vec::new();
        for _ in &pipeline {
            all.push(answer(raw).await);
        }
        answers.push(all);
    }
    assert_eq!(answers[1], answers[0]);
}

#[tokio::test]
async fn nobody_reaches_the_statement_of_another_session() {
    let (_server, plane) = in_front_of_server(1);
    let (mut owner, mut other) = (Raw::login(&plane).await, Raw::login(&plane).await);
    owner.send(|out| encode(&Step::Parse("mine", "SELECT 'secret'::text"), out)).await;
    assert_eq!(answer(&mut owner).await, ["1", "Z I"]);
    ask(&mut other, "SELECT name FROM pg_prepared_statements").await;
    let listed = answer(&mut other).await;
    let name = listed[1].split_once("__qsql_").map(|(_, id)| format!("__qsql_{id}")).expect("it is on the shared connection");
    let unknown = format!("E 26000 prepared statement \"{name}\" does not exist");
    for sql in [
        format!("EXECUTE {name}"),
        format!("SELECT 1; EXECUTE {name}"),
        format!("DEALLOCATE {name}"),
        format!("EXPLAIN EXECUTE \"{name}\""),
    ] {
        ask(&mut other, &sql).await;
        assert_eq!(answer(&mut other).await, [unknown.clone(), "Z I".into()], "{sql}");
    }
    ask(&mut other, &format!("PREPARE {name} AS SELECT 1")).await;
    assert_eq!(answer(&mut other).await, [format!("E 0A000 prepared statement name \"{name}\" is reserved"), "Z I".into()]);
    // The session has statements as text, so that names that the proxy does not know are the server's.
    ask(&mut other, "PREPARE t AS SELECT 1").await;
    assert_eq!(answer(&mut other).await, ["C PREPARE\0", "Z I"]);
    other
        .send(|out| {
            frontend::bind(out, b"", name.as_bytes(), b"\0\0\0\0\0\0");
            frontend::sync(out);
        })
        .await;
    assert_eq!(answer(&mut other).await, [unknown, "Z I".into()]);
    other
        .send(|out| {
            frontend::close(out, Target::Statement, name.as_bytes());
            frontend::sync(out);
        })
        .await;
    assert_eq!(answer(&mut other).await, ["3", "Z I"]);
    ask(&mut other, "DEALLOCATE ALL").await;
    assert_eq!(answer(&mut other).await, ["C DEALLOCATE ALL\0", "Z I"]);
    owner.send(|out| encode(&Step::Run("mine"), out)).await;
    let ran = answer(&mut owner).await;
    assert!(ran.iter().any(|line| line.ends_with("secret")), "{ran:?}");
}
