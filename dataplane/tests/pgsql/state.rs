//! Every kind of state that a PostgreSQL session has, made by one of two clients that share one server connection, in both orders: the other never
//! sees it, neither while its maker is there nor when it has left, and the maker sees it as on a connection of its own.

use quorumsql_chaos::servers::Postgres;
use tokio_postgres::Client;

use crate::support::{Plane, Setup, in_front_of_server, one, told, until};

/// What becomes of the connection while the state lives.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Keeps {
    /// It is shared: the state follows its maker.
    Follows,
    /// It is the maker's until it leaves.
    Pinned,
    /// It is shared, and cleaned before the other uses it: nobody can know of the state.
    Cleaned,
}

use Keeps::{Cleaned, Follows, Pinned};

/// Runs in the maker: statements, of which the last may fail.
type Make = &'static [&'static str];

const OBJECTS: &str = "
    CREATE ROLE other SUPERUSER;
    CREATE SEQUENCE numbers;
    CREATE TABLE numbered (id serial, t text);
    CREATE FUNCTION hide_set() RETURNS text LANGUAGE sql AS $$SELECT set_config('work_mem', '8MB', false)$$;
    CREATE FUNCTION hide_zone() RETURNS text LANGUAGE sql AS $$SELECT set_config('TimeZone', 'Asia/Tokyo', false)$$;
    CREATE FUNCTION hide_strings() RETURNS text LANGUAGE sql AS $$SELECT set_config('standard_conforming_strings', 'off', false)$$;
    CREATE FUNCTION hide_lock() RETURNS void LANGUAGE sql AS $$SELECT pg_advisory_lock(7)$$;
    CREATE FUNCTION hide_table() RETURNS int LANGUAGE plpgsql AS $$BEGIN CREATE TEMP TABLE hidden (i int); RETURN 1; END$$;
    CREATE FUNCTION hide_listen() RETURNS int LANGUAGE plpgsql AS $$BEGIN LISTEN hidden; RETURN 1; END$$;
    CREATE PROCEDURE hide_role() LANGUAGE plpgsql AS $$BEGIN SET ROLE other; END$$;
";

/// Kind of state, how it is made, how it is seen, what its maker sees, what the other sees.
const KINDS: &[(Keeps, Make, &str, &str, &str)] = &[
    // The schema of temporary objects, by its name.
    (
        Pinned,
        &["CREATE FUNCTION pg_temp.mine() RETURNS text LANGUAGE sql AS $$SELECT 'secret'$$"],
        "SELECT count(*) FROM pg_proc WHERE proname = 'mine'",
        "1",
        "0",
    ),
    (
        Pinned,
        &["SET search_path = pg_temp, public", "CREATE TABLE own_path (a int)"],
        "SELECT count(*) FROM pg_class WHERE relname = 'own_path'",
        "1",
        "0",
    ),
    (
        Pinned,
        &["SELECT set_config('search_path', 'pg_temp, public', false)", "CREATE TABLE own_path (a int)"],
        "SELECT count(*) FROM pg_class WHERE relname = 'own_path'",
        "1",
        "0",
    ),
    // Settings, in every form.
    (Follows, &["SET work_mem = '8MB'"], "SHOW work_mem", "8MB", "4MB"),
    (Follows, &["SET standard_conforming_strings = on"], "SHOW standard_conforming_strings", "on", "on"),
    (Follows, &["SELECT 1; SET work_mem = '8MB'; SELECT 2"], "SHOW work_mem", "8MB", "4MB"),
    (Follows, &["BEGIN", "SET work_mem = '8MB'", "COMMIT"], "SHOW work_mem", "8MB", "4MB"),
    (Follows, &["BEGIN; SET work_mem = '8MB'; COMMIT; SET work_mem = '9MB'; SELECT 1/0"], "SHOW work_mem", "8MB", "4MB"),
    (Follows, &["BEGIN", "SET work_mem = '8MB'", "ROLLBACK"], "SHOW work_mem", "4MB", "4MB"),
    (Follows, &["SET work_mem = '7MB'", "SET work_mem = '8MB'; SELECT 1/0"], "SHOW work_mem", "7MB", "4MB"),
    (
        Follows,
        &["BEGIN", "SET work_mem = '8MB'", "SAVEPOINT s", "SET work_mem = '9MB'", "ROLLBACK TO s", "COMMIT"],
        "SHOW work_mem",
        "8MB",
        "4MB",
    ),
    (Follows, &["BEGIN", "SET LOCAL work_mem = '8MB'", "COMMIT"], "SHOW work_mem", "4MB", "4MB"),
    (Follows, &["SET LOCAL work_mem = '8MB'"], "SHOW work_mem", "4MB", "4MB"),
    (Follows, &["SET work_mem = '8MB'", "RESET work_mem"], "SHOW work_mem", "4MB", "4MB"),
    (Follows, &["SET work_mem = '8MB'", "SET work_mem TO DEFAULT"], "SHOW work_mem", "4MB", "4MB"),
    (Follows, &["SET work_mem = '8MB'", "RESET ALL"], "SHOW work_mem", "4MB", "4MB"),
    (Follows, &["SET work_mem = '8MB'", "DISCARD ALL"], "SHOW work_mem", "4MB", "4MB"),
    (Follows, &["SET work_mem = 'nonsense'"], "SHOW work_mem", "4MB", "4MB"),
    (Follows, &["SELECT set_config('work_mem', '8MB', false)"], "SHOW work_mem", "8MB", "4MB"),
    (Follows, &["SELECT set_config('work_mem', '8MB', true)"], "SHOW work_mem", "4MB", "4MB"),
    (Follows, &["SET TimeZone = 'Asia/Tokyo'"], "SHOW TimeZone", "Asia/Tokyo", "GMT"),
    (Follows, &["SET DateStyle = 'German'"], "SELECT '2026-01-02'::date", "02.01.2026", "2026-01-02"),
    (Follows, &["SET IntervalStyle = iso_8601"], "SELECT interval '1 day'", "P1D", "1 day"),
    (Follows, &["SET client_encoding = 'LATIN1'"], "SHOW client_encoding", "LATIN1", "UTF8"),
    (Follows, &["SET NAMES 'LATIN1'"], "SHOW client_encoding", "LATIN1", "UTF8"),
    (Follows, &["SET application_name = 'mine'"], "SHOW application_name", "mine", ""),
    (Follows, &["SET search_path = mine, \"My own\""], "SHOW search_path", "mine, \"My own\"", "\"$user\", public"),
    (Follows, &["SELECT pg_catalog.set_config('search_path', '', false)"], "SHOW search_path", "", "\"$user\", public"),
    (Follows, &["SET statement_timeout = '7s'"], "SHOW statement_timeout", "7s", "0"),
    (Follows, &["SET session_replication_role = replica"], "SHOW session_replication_role", "replica", "origin"),
    (Follows, &["SET extra_float_digits = 0"], "SELECT 0.1::float8 + 0.2::float8", "0.3", "0.30000000000000004"),
    (
        Follows,
        &["SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE"],
        "SHOW transaction_isolation",
        "serializable",
        "read committed",
    ),
    (Follows, &["SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"], "SHOW transaction_read_only", "on", "off"),
    (Follows, &["SET default_transaction_read_only = on"], "SHOW transaction_read_only", "on", "off"),
    (Follows, &["SET transaction_read_only = on"], "SHOW transaction_read_only", "off", "off"),
    // What a function sets and the server reports.
    (Follows, &["SELECT hide_zone()"], "SHOW TimeZone", "Asia/Tokyo", "GMT"),
    // Settings that are not followed.
    (Pinned, &["SET TIME ZONE -7"], "SELECT (current_setting('TimeZone') = '<-07>+07')::text", "true", "false"),
    (Pinned, &["SET standard_conforming_strings = off"], "SHOW standard_conforming_strings", "off", "on"),
    (Pinned, &["SELECT hide_strings()"], "SHOW standard_conforming_strings", "off", "on"),
    (Pinned, &["UPDATE pg_settings SET setting = 8192 WHERE name = 'work_mem'"], "SHOW work_mem", "8MB", "4MB"),
    (Pinned, &["DO $$BEGIN SET work_mem = '8MB'; END$$"], "SHOW work_mem", "8MB", "4MB"),
    (Pinned, &["SET ROLE other"], "SELECT current_user", "other", "demo"),
    (Pinned, &["SET SESSION AUTHORIZATION other"], "SELECT session_user", "other", "demo"),
    // What lives in the server process.
    (Pinned, &["CREATE TEMP TABLE hidden (i int)"], "SELECT coalesce(to_regclass('hidden')::text, '-')", "hidden", "-"),
    (Pinned, &["SELECT 1 AS i INTO TEMP hidden"], "SELECT coalesce(to_regclass('hidden')::text, '-')", "hidden", "-"),
    (
        Pinned,
        &["SELECT pg_advisory_lock(1)"],
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
        "1",
        "0",
    ),
    (
        Follows,
        &["BEGIN", "SELECT pg_advisory_xact_lock(1)", "COMMIT"],
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
        "0",
        "0",
    ),
    (Pinned, &["LISTEN news"], "SELECT count(*) FROM pg_listening_channels()", "1", "0"),
    (Pinned, &["PREPARE p AS SELECT 1"], "EXECUTE p", "1", "ERROR 26000"),
    (Pinned, &["DECLARE c CURSOR WITH HOLD FOR SELECT 1"], "SELECT count(*) FROM pg_cursors WHERE is_holdable", "1", "0"),
    (Pinned, &["SELECT nextval('numbers')"], "SELECT (currval('numbers') > 0)::text", "true", "ERROR 55000"),
    (Follows, &["INSERT INTO numbered (t) VALUES ('x')"], "SELECT (lastval() > 0)::text", "true", "ERROR 55000"),
    // Transactions.
    (Pinned, &["BEGIN", "CREATE TABLE uncommitted ()"], "SELECT coalesce(to_regclass('uncommitted')::text, '-')", "uncommitted", "-"),
    (Pinned, &["BEGIN", "SELECT 1/0"], "SELECT 1", "ERROR 25P02", "1"),
    (Pinned, &["BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY"], "SHOW transaction_isolation", "serializable", "read committed"),
    (Pinned, &["BEGIN", "DECLARE c CURSOR FOR SELECT 1"], "FETCH FROM c", "1", "ERROR 34000"),
    // What a function leaves behind unseen.
    (Cleaned, &["SELECT hide_set()"], "SHOW work_mem", "8MB", "4MB"),
    (Cleaned, &["SELECT hide_lock()"], "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()", "1", "0"),
    (Cleaned, &["SELECT hide_table()"], "SELECT coalesce(to_regclass('hidden')::text, '-')", "hidden", "-"),
    (Cleaned, &["SELECT hide_listen()"], "SELECT count(*) FROM pg_listening_channels()", "1", "0"),
    (Cleaned, &["CALL hide_role()"], "SELECT current_user", "other", "demo"),
];

/// The first value that `sql` yields, or the error's code.
async fn see(client: &Client, sql: &str) -> String {
    match client.simple_query(sql).await {
        Ok(messages) => {
            let row = messages.iter().find_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
                _ => None,
            });
            row.unwrap_or_else(|| "no row".into())
        }
        Err(error) => format!("ERROR {}", told(&error).0),
    }
}

async fn check(plane: &Plane, maker: Client, other: &Client, kind: &(Keeps, Make, &str, &str, &str)) {
    let (keeps, make, look, own, others) = *kind;
    for (index, sql) in make.iter().enumerate() {
        if let Err(error) = maker.simple_query(sql).await {
            let (code, text) = told(&error);
            assert!(index + 1 == make.len(), "{make:?}: {code} {text}");
        }
    }
    assert_eq!(see(&maker, look).await, own, "{make:?}: its maker");
    let used = || plane.plane.stats().pool.iter().map(|row| row.used).sum::<u64>();
    assert_eq!(used(), u64::from(keeps == Pinned), "{make:?}: whether the connection is kept");
    if keeps != Pinned {
        for _ in 0..2 {
            assert_eq!(see(other, look).await, others, "{make:?}: the other client");
            if keeps == Follows && !others.starts_with("ERROR") {
                assert_eq!(see(&maker, look).await, own, "{make:?}: its maker, after the other");
            }
        }
    }
    drop(maker);
    until("the connection is given back", || used() == 0).await;
    assert_eq!(see(other, look).await, others, "{make:?}: the other client when its maker has left");
    let newcomer = plane.client().await;
    assert_eq!(see(&newcomer, look).await, others, "{make:?}: a newcomer");
}

#[tokio::test]
async fn no_kind_of_state_is_seen_by_another_client() {
    let server = Postgres::start(&["timezone=GMT"]);
    let _made = server.root("demo", OBJECTS);
    let plane = Setup::writer(&server, 1).start();
    for kind in KINDS {
        // The maker comes first, then the other; and the other way round, on the same connection.
        let (maker, other) = (plane.client().await, plane.client().await);
        check(&plane, maker, &other, kind).await;
        let (other, maker) = (plane.client().await, plane.client().await);
        assert_eq!(see(&other, kind.2).await, kind.4, "{:?}: before it is made", kind.1);
        check(&plane, maker, &other, kind).await;
    }
    assert_eq!(plane.opened(), 3, "all of them shared one connection, but for DO, which may do what nothing undoes");
}

#[tokio::test]
async fn what_discard_leaves_behind_ends_with_its_connection() {
    let server = Postgres::start(&[]);
    let foreseen = server.root("demo", "SELECT setseed(0.5); SELECT random() FROM generate_series(1, 5)");
    let plane = Setup::writer(&server, 1).start();
    for end in ["", "DISCARD ALL"] {
        let (maker, other) = (plane.client().await, plane.client().await);
        maker.simple_query("SELECT setseed(0.5)").await.unwrap();
        let first = one(&maker, "SELECT random()").await;
        assert!(foreseen.contains(&first), "{first} is none of {foreseen}");
        maker.simple_query(end).await.unwrap();
        if end.is_empty() {
            drop(maker);
        }
        let next = one(&other, "SELECT random()").await;
        assert!(!foreseen.contains(&next), "the other client continues the sequence");
    }
}

#[tokio::test]
async fn statements_prepared_by_protocol_and_sets_by_protocol_follow() {
    let (_server, plane) = in_front_of_server(1);
    let (first, second) = (plane.client().await, plane.client().await);
    first.execute("SET work_mem = '8MB'", &[]).await.unwrap();
    first.execute("SELECT set_config('search_path', 'x', false)", &[]).await.unwrap();
    let (show, tenant) = ("SHOW work_mem", "SHOW search_path");
    for _ in 0..2 {
        assert_eq!((one(&first, show).await, one(&first, tenant).await), ("8MB".into(), "x".into()));
        assert_eq!((one(&second, show).await, one(&second, tenant).await), ("4MB".into(), "\"$user\", public".into()));
    }
    // As asyncpg reads types: the value comes with Bind.
    let both = "SELECT current_setting('jit') AS cur, set_config('jit', 'off', false) AS new";
    assert_eq!(first.query_one(both, &[]).await.unwrap().get::<_, String>(0), "on");
    assert_eq!((one(&second, "SHOW jit").await, one(&first, "SHOW jit").await), ("on".into(), "off".into()));
    first.query("SELECT set_config('jit', $1, false)", &[&"on"]).await.unwrap();
    assert_eq!((one(&second, "SHOW jit").await, one(&first, "SHOW jit").await), ("on".into(), "on".into()));
    // Sync ends the implicit transaction of the batch in which SET ran; an error undoes it.
    first.execute("RESET work_mem", &[]).await.unwrap();
    assert_eq!(one(&first, show).await, "4MB");
    first.simple_query("BEGIN").await.unwrap();
    first.execute("SET work_mem = '9MB'", &[]).await.unwrap();
    first.execute("SELECT 1/0", &[]).await.unwrap_err();
    first.simple_query("ROLLBACK").await.unwrap();
    assert_eq!((one(&first, show).await, one(&second, show).await), ("4MB".into(), "4MB".into()));
    assert_eq!(plane.opened(), 1);
}

#[tokio::test]
async fn a_reset_leads_back_to_what_was_asked_for_at_start_up() {
    let (_server, plane) = in_front_of_server(1);
    let mut config = plane.config();
    config.options("-c work_mem=5MB -c search_path=mine").application_name("keeper");
    let (first, second) = (crate::support::connect(&config).await.unwrap(), plane.client().await);
    for reset in ["RESET work_mem", "RESET ALL", "SET work_mem TO DEFAULT", "DISCARD ALL"] {
        first.simple_query("SET work_mem = '8MB'").await.unwrap();
        first.simple_query(reset).await.unwrap();
        assert_eq!(one(&first, "SHOW work_mem").await, "5MB", "{reset}");
        assert_eq!(one(&second, "SHOW work_mem").await, "4MB", "{reset}");
    }
    first.simple_query("BEGIN").await.unwrap();
    first.simple_query("SET work_mem = '8MB'").await.unwrap();
    first.simple_query("RESET ALL").await.unwrap();
    assert_eq!(one(&first, "SHOW work_mem").await, "5MB", "also inside the transaction");
    assert_eq!(one(&first, "SHOW application_name").await, "keeper");
    first.simple_query("COMMIT").await.unwrap();
    assert_eq!((one(&first, "SHOW work_mem").await, one(&second, "SHOW work_mem").await), ("5MB".into(), "4MB".into()));
    assert_eq!(plane.opened(), 1);
}

#[tokio::test]
async fn pins_end_with_what_made_them() {
    let server = Postgres::start(&[]);
    let _made = server.root("demo", OBJECTS);
    let plane = Setup::writer(&server, 1).start();
    let used = || plane.plane.stats().pool.iter().map(|row| row.used).sum::<u64>();
    let client = plane.client().await;
    // The last: whether a transaction that is rolled back undoes the end.
    for (make, keep, end, is_undone) in [
        ("SET ROLE other", "SET ROLE postgres", "RESET ROLE", true),
        ("SET SESSION AUTHORIZATION other", "SELECT 1", "SET SESSION AUTHORIZATION DEFAULT", true),
        ("LISTEN a", "UNLISTEN b", "UNLISTEN *", true),
        ("SELECT pg_advisory_lock(1)", "SELECT 1", "SELECT pg_advisory_unlock_all()", false),
        ("CREATE TEMP TABLE t (i int)", "SELECT 1", "DISCARD TEMP", true),
        ("PREPARE p AS SELECT 1", "EXECUTE p", "DEALLOCATE ALL", false),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "FETCH c", "CLOSE ALL", false),
        ("SET standard_conforming_strings = off", "SELECT 1", "DISCARD ALL", true),
    ] {
        client.simple_query(make).await.unwrap();
        client.simple_query(keep).await.unwrap();
        assert_eq!(used(), 1, "{make}");
        if !end.starts_with("DISCARD") {
            client.simple_query("BEGIN").await.unwrap();
            client.simple_query(end).await.unwrap();
            client.simple_query("ROLLBACK").await.unwrap();
            if is_undone {
                client.simple_query("SELECT 1").await.unwrap();
                assert_eq!(used(), 1, "{end} was rolled back");
            } else {
                until(end, || used() == 0).await;
            }
        }
        client.simple_query(end).await.unwrap();
        assert_eq!(used(), 0, "{end}");
    }
    client.simple_query("SELECT nextval('numbers')").await.unwrap();
    for left in (0..5).rev() {
        assert_eq!(used(), 1);
        client.simple_query("SELECT currval('numbers')").await.unwrap();
        assert_eq!(used(), u64::from(left > 0), "a sequence's state is kept for five statements");
    }
}

#[tokio::test]
async fn a_server_is_asked_whether_pins_are_over() {
    let (_server, plane) = in_front_of_server(1);
    let used = || plane.plane.stats().pool.iter().map(|row| row.used).sum::<u64>();
    let client = plane.client().await;
    for (make, keep, end) in [
        ("SELECT pg_advisory_lock(1), pg_advisory_lock(1)", "SELECT pg_advisory_unlock(1)", "SELECT pg_advisory_unlock(1)"),
        ("LISTEN a", "UNLISTEN b", "UNLISTEN a"),
        ("CREATE TABLE t (i int); CREATE TEMP TABLE t (i int)", "DROP TABLE public.t", "DROP TABLE t"),
        ("CREATE TEMP VIEW t AS SELECT 1", "DROP TABLE IF EXISTS nothing", "DROP VIEW t"),
        ("PREPARE p AS SELECT 1", "DEALLOCATE nothing", "DEALLOCATE p"),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "CLOSE nothing", "CLOSE c"),
        ("LISTEN a; CREATE TEMP TABLE t (i int)", "UNLISTEN a", "DROP TABLE t"),
        ("BEGIN; LISTEN a", "CREATE TEMP TABLE t (i int)", "ROLLBACK"),
        ("SELECT pg_advisory_lock(1)", "CREATE TEMP TABLE t (i int, i int)", "SELECT pg_advisory_unlock(1)"),
    ] {
        client.simple_query(make).await.unwrap();
        let _some_fail = client.simple_query(keep).await;
        client.simple_query("SELECT 1").await.unwrap();
        assert_eq!(used(), 1, "{make}: {keep} does not end it");
        client.simple_query(end).await.unwrap();
        until(end, || used() == 0).await;
    }
    assert_eq!(plane.opened(), 1);
}
