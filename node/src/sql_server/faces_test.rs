//! Both faces over loopback in front of one plain in-memory database, asked by real drivers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use mysql_async::prelude::Queryable as _;
use quorumsql_chaos::certificates::{Authority, Files, Validity};
use rusqlite::Connection;
use rustls::pki_types::pem::PemObject as _;
use tokio::net::TcpListener;

use super::engine::{ColumnTypes, EngineError, describe_by_running, run};
use super::{Account, Answer, Database, Description, Face, Login, Parameters, ServeOptions, Session, SqlError, Status, Value, serve};
use crate::tls::Certificates;

/// One in-memory database; users `demo:demo` and `hashed` with a native hash of `secret`.
struct Plain(Arc<Mutex<Connection>>);

struct PlainSession(Arc<Mutex<Connection>>);

impl Database for Plain {
    type Session = PlainSession;

    async fn parameters(&self, face: Face) -> Parameters {
        let server_version = if face == Face::Mysql { "8.0.11" } else { "16.1" };
        Parameters { server_version: server_version.into(), default_plugin: "caching_sha2_password".into(), ..Parameters::default() }
    }

    async fn account(&self, login: &Login) -> Result<Option<Account>, SqlError> {
        let secret = |secret: &str| Some(Account { secret: secret.into() });
        Ok(match login.user.as_str() {
            "demo" => secret("demo"),
            "hashed" => secret("*14E65567ABDB5135D0CFD9A70B3032C179A49EE7"),
            _ => None,
        })
    }

    async fn open(&self, _: Login) -> Result<PlainSession, SqlError> {
        Ok(PlainSession(Arc::clone(&self.0)))
    }
}

fn failed(error: EngineError) -> SqlError {
    SqlError::new(1064, "42000", "42601", error.to_string())
}

impl Session for PlainSession {
    async fn execute(&mut self, sql: &str, params: &[Value]) -> Result<Answer, SqlError> {
        if sql.starts_with("SET ") {
            return Ok(Answer::Done(super::Done::default()));
        }
        run(&self.0.lock().unwrap(), sql, params, ColumnTypes::Declared).map_err(failed)
    }

    async fn describe(&mut self, sql: &str) -> Result<Description, SqlError> {
        describe_by_running(&self.0.lock().unwrap(), sql, |_| super::database::Value::Null).map_err(failed)
    }

    fn use_database(&mut self, _: &str) -> Result<(), SqlError> {
        Ok(())
    }

    fn reset(&mut self) -> Result<(), SqlError> {
        Ok(())
    }

    fn status(&self) -> Status {
        Status { autocommit: true, ..Status::default() }
    }
}

async fn served(face: Face) -> SocketAddr {
    served_with(face, ServeOptions::default()).await
}

async fn served_with(face: Face, options: ServeOptions) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connection = Connection::open_in_memory().unwrap();
    connection
        .execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT, r REAL, b BLOB); INSERT INTO t VALUES (1, 'one', 1.5, x'00ff'), (2, NULL, NULL, NULL)")
        .unwrap();
    // Answers to what drivers ask at login.
    super::functions::register(&connection, &super::functions::ClientFacts::default()).unwrap();
    tokio::spawn(serve(face, listener, Arc::new(Plain(Arc::new(Mutex::new(connection)))), options));
    address
}

async fn mysql(user: &str, password: &str) -> Result<mysql_async::Conn, mysql_async::Error> {
    let address = served(Face::Mysql).await;
    let options = mysql_async::OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .user(Some(user))
        .pass(Some(password))
        .prefer_socket(false)
        .max_allowed_packet(Some(64_000_000))
        .wait_timeout(Some(100));
    mysql_async::Conn::new(options).await
}

#[tokio::test]
async fn mysql_text_results_and_writes() {
    let mut client = mysql("demo", "demo").await.unwrap();
    let rows: Vec<(i64, Option<String>, Option<f64>)> = client.query("SELECT id, v, r FROM t ORDER BY id").await.unwrap();
    assert_eq!(rows, [(1, Some("one".into()), Some(1.5)), (2, None, None)]);
    client.query_drop("INSERT INTO t (v) VALUES ('a'), ('b')").await.unwrap();
    assert_eq!((client.affected_rows(), client.last_insert_id()), (2, Some(4)));
    let error = client.query_drop("SELEC 1").await.unwrap_err().to_string();
    assert!(error.contains("syntax error"), "{error}");
    let big: String = client.query_first("SELECT replace(hex(zeroblob(9000000)), '0', 'x')").await.unwrap().unwrap();
    assert_eq!(big.len(), 18_000_000);
}

#[tokio::test]
async fn mysql_prepared_statements() {
    let mut client = mysql("hashed", "secret").await.unwrap();
    let row: Option<(i64, String, f64, Vec<u8>)> = client.exec_first("SELECT id, v, r, b FROM t WHERE id = ?", (1,)).await.unwrap();
    assert_eq!(row, Some((1, "one".into(), 1.5, vec![0, 0xff])));
    client.exec_drop("INSERT INTO t (id, v, r) VALUES (?, ?, ?)", (7, None::<String>, 2.25)).await.unwrap();
    let count: Option<i64> = client.exec_first("SELECT count(*) FROM t WHERE id = ? AND v IS NULL AND r = ?", (7, 2.25)).await.unwrap();
    assert_eq!(count, Some(1));
    assert!(client.exec_drop("SELECT nothing FROM t", ()).await.is_err());
}

#[tokio::test]
async fn mysql_packets_with_several_statements_stop_at_an_error() {
    let mut client = mysql("demo", "demo").await.unwrap();
    let mut results = client.query_iter("INSERT INTO t (id) VALUES (10); SELECT 'x;y'; SELECT id FROM t WHERE id = 10").await.unwrap();
    assert_eq!(results.affected_rows(), 1);
    results.collect::<mysql_async::Row>().await.unwrap();
    assert_eq!(results.collect::<String>().await.unwrap(), ["x;y"]);
    assert_eq!(results.collect::<i64>().await.unwrap(), [10]);
    drop(results);
    let mut client = mysql("demo", "demo").await.unwrap();
    let stopped = async {
        let mut results = client.query_iter("INSERT INTO t (id) VALUES (11); SELECT bad; INSERT INTO t (id) VALUES (12)").await?;
        results.collect::<mysql_async::Row>().await?;
        results.collect::<mysql_async::Row>().await
    };
    assert!(stopped.await.is_err());
    let ids: Vec<i64> = client.query("SELECT id FROM t WHERE id > 10").await.unwrap();
    assert_eq!(ids, [11]);
}

#[tokio::test]
async fn mysql_logins_are_refused_alike_for_a_wrong_password_and_an_unknown_user() {
    for (user, password) in [("demo", "wrong"), ("hashed", "wrong"), ("nobody", "demo"), ("demo", "")] {
        let error = mysql(user, password).await.expect_err("refused").to_string();
        assert!(error.contains("1045") && error.contains("Access denied for user"), "{user}: {error}");
    }
}

async fn pgsql(user: &str, password: &str) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let address = served(Face::Pgsql).await;
    let mut config = tokio_postgres::Config::new();
    config.host(address.ip().to_string()).port(address.port()).user(user).password(password).dbname("demo");
    let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

#[tokio::test]
async fn pgsql_extended_protocol() {
    let client = pgsql("demo", "demo").await.unwrap();
    let row = client.query_one("SELECT id, v, r, b FROM t WHERE v = $1", &[&"one"]).await.unwrap();
    let found: (i32, String, f64, Vec<u8>) = (row.get(0), row.get(1), row.get(2), row.get(3));
    assert_eq!(found, (1, "one".into(), 1.5, vec![0, 0xff]));
    let count = client.query_one("SELECT count(*) FROM t WHERE v = $1", &[&"one"]).await.unwrap();
    assert_eq!(count.get::<_, i64>(0), 1);
    assert_eq!(client.execute("UPDATE t SET v = $2 WHERE id = $1", &[&"2", &None::<String>]).await.unwrap(), 1);
    let typed = client.prepare_typed("SELECT v FROM t WHERE id = $1", &[tokio_postgres::types::Type::INT8]).await.unwrap();
    assert_eq!(client.query_one(&typed, &[&1_i64]).await.unwrap().get::<_, Option<String>>(0), Some("one".into()));
    let error = client.query("SELECT bad FROM t", &[]).await.unwrap_err();
    assert_eq!(error.as_db_error().unwrap().code().code(), "42601");
    // The connection goes on after an error.
    assert_eq!(client.query("SELECT id FROM t", &[]).await.unwrap().len(), 2);
}

#[tokio::test]
async fn pgsql_simple_protocol_with_several_statements() {
    let client = pgsql("demo", "demo").await.unwrap();
    let messages = client.simple_query("INSERT INTO t (id) VALUES (10), (11); SELECT id, 'a;b' FROM t WHERE id = 10;").await.unwrap();
    let told: Vec<String> = messages
        .iter()
        .map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => format!("{:?} {:?}", row.get(0), row.get(1)),
            tokio_postgres::SimpleQueryMessage::CommandComplete(count) => count.to_string(),
            _ => "columns".into(),
        })
        .collect();
    assert_eq!(told, ["2", "columns", "Some(\"10\") Some(\"a;b\")", "1"]);
    assert!(client.simple_query("INSERT INTO t (id) VALUES (12); SELECT bad; INSERT INTO t (id) VALUES (13)").await.is_err());
    assert_eq!(client.query("SELECT id FROM t WHERE id > 11", &[]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn pgsql_logins_fail_as_at_a_postgresql_server() {
    for (user, password) in [("demo", "wrong"), ("nobody", "demo")] {
        let error = pgsql(user, password).await.expect_err("refused");
        let error = error.as_db_error().expect("told");
        assert_eq!((error.code().code(), error.message()), ("28P01", &*format!("password authentication failed for user \"{user}\"")));
    }
}

/// Options that demand TLS, and the authority that clients must trust.
fn demanding_tls() -> (ServeOptions, rustls::pki_types::CertificateDer<'static>) {
    let (authority, files) = (Authority::new("test"), Files::default());
    let server = authority.issue(&["localhost", "127.0.0.1"], Validity::Long);
    let (chain, key) = (files.write("cert.pem", &server.certificate), files.write("key.pem", &server.key));
    let certificates = Certificates::load(chain, key, std::env::temp_dir()).unwrap();
    let root = rustls::pki_types::CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap();
    (ServeOptions { tls: Some(certificates), require_tls: true }, root)
}

#[tokio::test]
async fn mysql_over_tls_and_only_over_tls() {
    let address = served_with(Face::Mysql, demanding_tls().0).await;
    let options = |tls: bool| {
        let tls =
            tls.then(|| mysql_async::SslOpts::default().with_danger_accept_invalid_certs(true).with_danger_skip_domain_validation(true));
        let builder =
            mysql_async::OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(address.port()).prefer_socket(false).ssl_opts(tls);
        builder.user(Some("hashed")).pass(Some("secret")).max_allowed_packet(Some(1_000_000)).wait_timeout(Some(100))
    };
    let mut client = mysql_async::Conn::new(options(true)).await.unwrap();
    assert_eq!(client.query_first::<i64, _>("SELECT count(*) FROM t").await.unwrap(), Some(2));
    let error = mysql_async::Conn::new(options(false)).await.unwrap_err().to_string();
    assert!(error.contains("insecure transport"), "{error}");
}

#[tokio::test]
async fn pgsql_over_tls_and_only_over_tls() {
    let (options, certificate) = demanding_tls();
    let address = served_with(Face::Pgsql, options).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let trusting = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let mut config = tokio_postgres::Config::new();
    config.host("localhost").hostaddr(address.ip()).port(address.port()).user("demo").password("demo").dbname("demo");
    config.ssl_mode(tokio_postgres::config::SslMode::Require);
    let (client, connection) = config.connect(tokio_postgres_rustls::MakeRustlsConnect::new(trusting)).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(client.query_one("SELECT count(*) FROM t", &[]).await.unwrap().get::<_, i64>(0), 2);
    config.ssl_mode(tokio_postgres::config::SslMode::Disable);
    let error = config.connect(tokio_postgres::NoTls).await.err().unwrap();
    assert_eq!(error.as_db_error().unwrap().code().code(), "28000");
}
