//! Parameters of an application's own (`app.user`), which a server remembers to its end: each client sees those that it has named itself, as on a
//! connection of its own, whichever connection serves it.
#![allow(clippy::unwrap_used, reason = "a step that fails is the test's failure")]

use quorumsql_chaos::servers::Postgres;
use quorumsql_wire::pgsql::frontend;
use tokio_postgres::Client;

use crate::bytes::Raw;
use crate::support::{Plane, Setup, config_at, connect, in_front_of_server, one, until};

const LOOK: &str = "SELECT coalesce(current_setting('app.x', true), 'NULL')";

const OBJECTS: &str = "
    CREATE TABLE deferred (i int UNIQUE DEFERRABLE INITIALLY DEFERRED);
    INSERT INTO deferred VALUES (1);
    CREATE FUNCTION names_it() RETURNS text LANGUAGE sql AS $$SELECT set_config('App.X', 'y', false)$$;
    CREATE FUNCTION has_it() RETURNS text LANGUAGE sql SET app.x = 'y' AS $$SELECT 'z'$$;
    CREATE PROCEDURE sets_it() LANGUAGE plpgsql AS $$BEGIN SET LOCAL app.x = 'y'; END$$;
    CREATE FUNCTION names_nothing() RETURNS int LANGUAGE sql AS $$SELECT 1$$;
";

/// Statements, of which any may fail, and whether they name `app.x` in sight: otherwise what its maker sees of it may be lost.
const WAYS: &[(&[&str], bool)] = &[
    (&["SET app.x = 'v'"], true),
    (&["SET app.x = 'v'", "RESET app.x"], true),
    (&["SET app.x = 'v'", "RESET ALL"], true),
    (&["SET app.x = 'v'", "DISCARD ALL"], true),
    (&["SET SESSION \"app\".X TO DEFAULT"], true),
    (&["RESET app.x"], true),
    (&["SET LOCAL app.x = 'v'"], true),
    (&["BEGIN", "SET LOCAL app.x = E'a\\tb'", "COMMIT"], true),
    (&["BEGIN; SET LOCAL app.x = 'v'; COMMIT"], true),
    (&["BEGIN", "SET app.x = 'v'", "ROLLBACK"], true),
    (&["BEGIN", "SAVEPOINT s", "SET app.x = 'v'", "ROLLBACK TO s", "COMMIT"], true),
    (&["SET app.x = 'v'; SELECT 1/0"], true),
    (&["SELECT 1/0; SET app.x = 'v'"], true),
    (&["BEGIN", "SELECT 1/0", "SET app.x = 'v'", "ROLLBACK"], true),
    (&["SET app.x = 'v', 'w'"], true),
    (&["SELECT set_config('app.x', 'v', true)"], true),
    (&["SELECT set_config('App.X', 'v', false), current_setting('app.x')"], true),
    (&["SELECT set_config('app.x', NULL, false)"], true),
    (&["SELECT set_config('app' || '.x', 'v', true)"], true),
    (&["SELECT set_config('app.x', 'v', false) FROM pg_class LIMIT 1"], true),
    (&["PREPARE p AS SELECT set_config('app.x', 'v', false)", "EXECUTE p", "DEALLOCATE p"], true),
    (&["SET app.x = E'a\\tb'"], true),
    (&["DO $$BEGIN SET app.x = 'v'; END$$"], true),
    (&["SET app.x = E'a\\tb'", "DISCARD ALL"], false),
    (&["DO $$BEGIN SET app.x = 'v'; END$$", "DISCARD ALL"], false),
    (&["INSERT INTO deferred VALUES (1); SET app.x = 'v'"], false),
    (&["SELECT names_it()"], false),
    (&["SELECT names_it()", "DISCARD ALL"], false),
    (&["SELECT has_it()"], false),
    (&["CALL sets_it()"], false),
    (&["CREATE FUNCTION another() RETURNS text LANGUAGE sql SET app.x = 'y' AS $$SELECT 'z'$$", "DROP FUNCTION another"], false),
];

async fn run(client: &Client, statements: &[&str]) {
    for sql in statements {
        let _some_fail = client.simple_query(sql).await;
    }
}

#[tokio::test]
async fn a_name_is_known_to_those_who_have_named_it() {
    let server = Postgres::start(&[]);
    let _made = server.root("demo", OBJECTS);
    let plane = Setup::writer(&server, 1).start();
    let other = plane.client().await;
    for (statements, in_sight) in WAYS {
        let alone = connect(&config_at(server.port)).await.unwrap();
        run(&alone, statements).await;
        let expected = one(&alone, LOOK).await;
        drop(alone);
        let maker = plane.client().await;
        assert_eq!(one(&other, LOOK).await, "NULL", "{statements:?}: before");
        run(&maker, statements).await;
        if *in_sight {
            assert_eq!(one(&maker, LOOK).await, expected, "{statements:?}: its maker");
        }
        // A session that has to keep its connection leaves it first.
        let is_shared = plane.plane.stats().pool.iter().all(|row| row.used == 0);
        if is_shared {
            for _ in 0..2 {
                assert_eq!(one(&other, LOOK).await, "NULL", "{statements:?}: another");
                if *in_sight {
                    assert_eq!(one(&maker, LOOK).await, expected, "{statements:?}: its maker, after another");
                }
            }
        }
        drop(maker);
        assert_eq!(one(&other, LOOK).await, "NULL", "{statements:?}: another, when its maker has left");
    }
}

#[tokio::test]
async fn names_and_values_come_by_protocol_and_at_start_up() {
    let (_server, plane) = in_front_of_server(1);
    let other = plane.client().await;
    for (sql, values) in [
        ("SET app.x = 'v'", &[][..]),
        ("SET LOCAL app.x = 'v'", &[]),
        ("SELECT set_config('app.x', $1, true)", &["v"]),
        ("SELECT set_config($1, $2, true)", &["App.x", "v"]),
        ("SELECT set_config($1, $2, false), set_config('role', 'none', true)", &["app.x", ""]),
    ] {
        let maker = plane.client().await;
        let values: Vec<_> = values.iter().map(|value| value as &(dyn tokio_postgres::types::ToSql + Sync)).collect();
        maker.query(sql, &values).await.unwrap();
        let expected = if sql.starts_with("SET app") { "v" } else { "" };
        for _ in 0..2 {
            assert_eq!(one(&other, LOOK).await, "NULL", "{sql}");
            assert_eq!(one(&maker, LOOK).await, expected, "{sql}");
        }
    }
    let mut config = plane.config();
    config.options("-c app.x=mine");
    let starter = connect(&config).await.unwrap();
    for _ in 0..2 {
        assert_eq!((one(&starter, LOOK).await, one(&other, LOOK).await), ("mine".into(), "NULL".into()));
    }
    // What is not run leaves nothing.
    let mut raw = Raw::login(&plane).await;
    raw.send(|out| {
        for sql in [&b"SELECT 1/0"[..], b"SET app.x = 'v'"] {
            frontend::parse(out, b"", sql, b"");
            frontend::bind(out, b"", b"", b"\0\0\0\0\0\0");
            frontend::execute(out, b"", 0);
        }
        frontend::sync(out);
    })
    .await;
    assert_eq!(raw.tags().await, "1EZI");
    let before = plane.opened();
    assert_eq!(one(&other, LOOK).await, "NULL");
    assert_eq!(plane.opened(), before);
}

/// Sessions that name the same share their connections, and so do those that call functions which name nothing.
#[tokio::test]
async fn connections_are_shared_all_the_same() {
    let server = Postgres::start(&[]);
    let _made = server.root("demo", OBJECTS);
    let plane = Setup::writer(&server, 2).start();
    let claims = "SELECT set_config('request.jwt.claims', $1, true), set_config($2, 'x', true)";
    let (first, second, plain, caller) = (plane.client().await, plane.client().await, plane.client().await, plane.client().await);
    for round in 0..10 {
        for client in [&first, &second] {
            client.simple_query("BEGIN").await.unwrap();
            client.query(claims, &[&"{}", &"request.path"]).await.unwrap();
            client.simple_query("COMMIT").await.unwrap();
            assert_eq!(one(client, LOOK).await, "NULL", "round {round}");
        }
        assert_eq!(one(&plain, "SELECT coalesce(current_setting('request.path', true), 'NULL')").await, "NULL");
        assert_eq!(one(&caller, "SELECT names_nothing()").await, "1");
    }
    assert!(plane.opened() <= 3, "{} connections were opened", plane.opened());
}

/// A session that begins by naming its parameters needs no connection on which nobody has.
#[tokio::test]
async fn newcomers_that_name_the_same_share_their_connections() {
    let (_server, plane) = in_front_of_server(1);
    for round in 0..3 {
        for (sql, value) in [("SET app.x = 'it''s'", "it's"), ("SET LOCAL app.x = 1", ""), ("SELECT set_config('app.x', 'v', false)", "v")]
        {
            let newcomer = plane.client().await;
            newcomer.simple_query(sql).await.unwrap();
            assert_eq!(one(&newcomer, LOOK).await, value, "{sql} {round}");
            let newcomer = plane.client().await;
            newcomer.execute(sql, &[]).await.unwrap();
            assert_eq!(one(&newcomer, LOOK).await, value, "{sql} {round}");
        }
        let newcomer = plane.client().await;
        newcomer.query_typed("SELECT set_config('app.x', $1, true)", &[(&"v", tokio_postgres::types::Type::TEXT)]).await.unwrap();
        assert_eq!(one(&newcomer, LOOK).await, "", "{round}");
    }
    assert_eq!(plane.opened(), 1);
}

async fn named(plane: &Plane, count: usize) -> Client {
    let client = plane.client().await;
    for number in 0..count {
        client.simple_query(&format!("SET LOCAL app.n{number} = 1")).await.unwrap();
    }
    client
}

#[tokio::test]
async fn names_are_bounded() {
    let (_server, plane) = in_front_of_server(1);
    let client = named(&plane, 256).await;
    let used = || plane.plane.stats().pool.iter().map(|row| row.used).sum::<u64>();
    assert_eq!((used(), one(&plane.client().await, LOOK).await), (0, "NULL".into()));
    client.simple_query("SET LOCAL app.x = 1").await.unwrap();
    assert_eq!((used(), one(&client, LOOK).await), (1, String::new()), "the session keeps its connection");
    client.simple_query("DISCARD ALL").await.unwrap();
    assert_eq!((used(), one(&plane.client().await, LOOK).await), (0, "NULL".into()));
}

/// A loaded module's parameters have a default.
#[tokio::test]
async fn parameters_of_modules_go_back_to_their_defaults() {
    let server = Postgres::start(&["shared_preload_libraries=plpgsql"]);
    let plane = Setup::writer(&server, 1).start();
    let (maker, other) = (plane.client().await, plane.client().await);
    let look = "SHOW plpgsql.print_strict_params";
    maker.simple_query("SET plpgsql.print_strict_params = on").await.unwrap();
    assert_eq!((one(&other, look).await, one(&maker, look).await), ("off".into(), "on".into()));
    maker.simple_query("RESET plpgsql.print_strict_params").await.unwrap();
    assert_eq!((one(&other, look).await, one(&maker, look).await), ("off".into(), "off".into()));
    maker.simple_query("SET plpgsql.variable_conflict = 'nonsense'").await.unwrap_err();
    for _ in 0..2 {
        assert_eq!((one(&maker, look).await, one(&other, look).await), ("off".into(), "off".into()));
    }
}

/// Sessions that have named it and sessions that have not wait for the same connections, which are handed from one to the other.
#[tokio::test]
async fn who_waits_for_a_connection_gets_one_that_suits() {
    let (_server, plane) = in_front_of_server(2);
    let mut tasks = Vec::new();
    for names_it in [true, false, true, false, false] {
        let client = plane.client().await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..20 {
                if names_it {
                    client.batch_execute("BEGIN").await.unwrap();
                    client.batch_execute("SET LOCAL app.x = 'v'").await.unwrap();
                    assert_eq!(one(&client, LOOK).await, "v");
                    client.batch_execute("COMMIT").await.unwrap();
                }
                assert_eq!(one(&client, LOOK).await, if names_it { "" } else { "NULL" });
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let used = || plane.plane.stats().pool.iter().map(|row| row.used).sum::<u64>();
    until("all connections are given back", || used() == 0).await;
}
