//! Who is let in, and how it reads when one is not.

use quorumsql_chaos::servers::Postgres;
use quorumsql_wire::pgsql::scram::Verifier;

use crate::support::{Setup, connect, in_front_of_server, one, told};

#[tokio::test]
async fn clear_scram_and_md5_passwords_log_in() {
    let server = Postgres::start(&[]);
    let verifier = Verifier::derive(b"secret", b"0123456789abcdef", 4096).to_stored();
    let plane = Setup::writer(&server, 5).user("scram", &verifier).user("hashed", "md504d4a9616f5b4c7cdb75992b7c5a43e9").start();
    assert_eq!(one(&plane.client().await, "SELECT current_user || '@' || current_database()").await, "demo@demo");

    // A verifier or hash lets clients in; for a server that wants SCRAM, neither can make a proof, and that is said at login.
    for (name, stored) in [("scram", "a SCRAM verifier"), ("hashed", "an md5 hash")] {
        let mut config = plane.config();
        config.user(name).password("secret");
        let client = connect(&config).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let (code, text) = told(&client.simple_query("SELECT 1").await.unwrap_err());
        assert_eq!((code.as_str(), text.as_str()), ("08001", "Max connect failure while reaching hostgroup 10"), "{stored}");
    }
}

#[tokio::test]
async fn failures_read_as_a_postgresql_servers() {
    let server = Postgres::start(&[]);
    let plane = Setup::writer(&server, 5).user("nobody", "").start();
    for (user, password, database, expected) in [
        ("demo", "wrong", "demo", ("28P01", "password authentication failed for user \"demo\"")),
        ("unknown", "x", "demo", ("28P01", "password authentication failed for user \"unknown\"")),
        ("nobody", "x", "demo", ("28P01", "password authentication failed for user \"nobody\"")),
        ("demo", "demo", "missing", ("3D000", "database \"missing\" does not exist")),
    ] {
        let mut config = plane.config();
        config.user(user).password(password).dbname(database);
        let error = connect(&config).await.err().unwrap_or_else(|| panic!("{user} was let in"));
        let (code, text) = told(&error);
        assert_eq!((code.as_str(), text.as_str()), expected);
    }
    let mut config = plane.config();
    config.options("-c work_mem=nonsense");
    assert_eq!(told(&connect(&config).await.err().unwrap()).0, "22023");
}

#[tokio::test]
async fn what_no_connection_can_be_given_is_refused_at_start_up() {
    let (_server, plane) = in_front_of_server(1);
    for options in ["-c search_path=pg_temp", "-c standard_conforming_strings=off"] {
        let mut config = plane.config();
        config.options(options);
        assert_eq!(told(&connect(&config).await.err().unwrap()).0, "0A000", "{options}");
    }
}

#[tokio::test]
async fn parameters_of_start_up_hold_on_shared_connections() {
    let (_server, plane) = in_front_of_server(1);
    let mut config = plane.config();
    config.application_name("first").options("-c search_path=a,b -c TimeZone=Asia/Tokyo");
    let first = connect(&config).await.unwrap();
    let second = plane.client().await;
    let all = "SELECT current_setting('application_name') || ' ' || current_setting('search_path') || ' ' || current_setting('TimeZone')";
    let mine = one(&second, all).await;
    for _ in 0..3 {
        assert_eq!(one(&first, all).await, "first a,b Asia/Tokyo");
        assert_eq!(one(&second, all).await, mine);
    }
    assert_eq!(plane.opened(), 1);
}

#[tokio::test]
async fn clients_are_let_in_while_no_server_answers() {
    let mut server = Postgres::start(&[]);
    server.process.kill();
    let plane = Setup::writer(&server, 5).start();
    let client = plane.client().await;
    server.restart();
    assert_eq!(one(&client, "SELECT 7").await, "7");
}
