//! The demo's database: one small SQL database, seen through three servers that speak both protocols.
//!
//! All three show the same tables without lag, as a perfect replication would. Each has its own `read_only`, which
//! `SET GLOBAL read_only` on either face flips for both; server 1 starts as the writer. It is SQLite in a file that is
//! removed at the end, in WAL mode: there an open transaction of a reader does not block the writer, which SQLite's
//! purely in-memory databases cannot do.

mod chatter;
mod dialect;
mod errors;
mod session;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quorumsql_wire::pgsql::scram::{DEFAULT_ITERATIONS, Verifier};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use self::session::EmbeddedSession;
use crate::sql_server::{Account, Database, Face, Login, Parameters, SqlError, listener};

/// Number of servers.
const SERVERS: u8 = 3;

/// Version that MySQL clients see.
const MYSQL_VERSION: &str = "8.0.36-quorumsql-demo";

/// Version that PostgreSQL clients see.
const PGSQL_VERSION: &str = "15.0";

/// The running servers; dropping it stops them and removes the data.
pub(super) struct Embedded {
    /// MySQL faces, in the order of server ids.
    pub(super) mysql: Vec<SocketAddr>,
    /// PostgreSQL faces, in the same order.
    pub(super) pgsql: Vec<SocketAddr>,
    _tasks: JoinSet<()>,
    _directory: TempDir,
}

impl Embedded {
    /// Listens on free ports of 127.0.0.1. `accounts` are names and passwords besides `demo` and `monitor`.
    pub(super) async fn start(accounts: &[(String, String)]) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("quorumsql-demo-database-")?;
        let file = directory.path().join("demo.db");
        prepare(&file)?;
        let mut known = vec![("demo".to_owned(), "demo".to_owned()), ("monitor".to_owned(), "monitor".to_owned())];
        known.extend_from_slice(accounts);
        let known: Arc<Vec<Known>> =
            Arc::new(known.into_iter().map(|(name, password)| Known::new(name, password)).collect::<Result<_, _>>()?);
        let (mut mysql, mut pgsql, mut tasks) = (Vec::new(), Vec::new(), JoinSet::new());
        for id in 1..=SERVERS {
            let listeners = (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
            let (mysql_address, pgsql_address) = (listeners.0.local_addr()?, listeners.1.local_addr()?);
            mysql.push(mysql_address);
            pgsql.push(pgsql_address);
            let server = Arc::new(Server {
                id,
                mysql_port: mysql_address.port(),
                pgsql_port: pgsql_address.port(),
                read_only: AtomicBool::new(id != 1),
                file: file.clone(),
            });
            let database = Arc::new(EmbeddedDatabase { server, accounts: known.clone() });
            tasks.spawn(listener::serve(Face::Mysql, listeners.0, database.clone(), listener::ServeOptions::default()));
            tasks.spawn(listener::serve(Face::Pgsql, listeners.1, database, listener::ServeOptions::default()));
        }
        Ok(Self { mysql, pgsql, _tasks: tasks, _directory: directory })
    }
}

/// One of the three.
#[derive(Debug)]
struct Server {
    id: u8,
    mysql_port: u16,
    pgsql_port: u16,
    read_only: AtomicBool,
    file: PathBuf,
}

impl Server {
    fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Release);
    }

    fn host_name(&self) -> String {
        format!("demo-server-{}", self.id)
    }
}

/// One server as both faces see it.
struct EmbeddedDatabase {
    server: Arc<Server>,
    accounts: Arc<Vec<Known>>,
}

/// A user. SCRAM's costly derivation is done once, not at each of the many logins of nodes and monitors.
struct Known {
    name: String,
    password: String,
    verifier: String,
}

impl Known {
    fn new(name: String, password: String) -> anyhow::Result<Self> {
        let mut salt = [0_u8; 16];
        getrandom::fill(&mut salt)?;
        let verifier = Verifier::derive(password.as_bytes(), &salt, DEFAULT_ITERATIONS).to_stored();
        Ok(Self { name, password, verifier })
    }
}

impl Database for EmbeddedDatabase {
    type Session = EmbeddedSession;

    async fn parameters(&self, face: Face) -> Parameters {
        let on = |on: bool| if on { "on" } else { "off" };
        match face {
            Face::Mysql => {
                Parameters { server_version: MYSQL_VERSION.into(), default_plugin: "mysql_native_password".into(), ..Parameters::default() }
            }
            Face::Pgsql => Parameters {
                server_version: PGSQL_VERSION.into(),
                default_plugin: String::new(),
                pgsql: [
                    ("server_encoding", "UTF8"),
                    ("client_encoding", "UTF8"),
                    ("DateStyle", "ISO, MDY"),
                    ("IntervalStyle", "postgres"),
                    ("TimeZone", "UTC"),
                    ("integer_datetimes", "on"),
                    ("standard_conforming_strings", "on"),
                    ("is_superuser", "off"),
                    ("default_transaction_read_only", "off"),
                    ("in_hot_standby", on(self.server.is_read_only())),
                ]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
                ..Parameters::default()
            },
        }
    }

    async fn account(&self, login: &Login) -> Result<Option<Account>, SqlError> {
        let known = self.accounts.iter().find(|known| known.name == login.user);
        Ok(known.map(|known| {
            let secret = match login.face {
                Face::Mysql => known.password.clone(),
                Face::Pgsql => known.verifier.clone(),
            };
            Account { secret }
        }))
    }

    async fn open(&self, login: Login) -> Result<EmbeddedSession, SqlError> {
        let connection = connect(&self.server.file)
            .map_err(|error| SqlError::new(1105, "HY000", "58000", format!("the demo's database does not open: {error}")))?;
        EmbeddedSession::new(self.server.clone(), login, connection)
    }
}

fn prepare(file: &Path) -> anyhow::Result<()> {
    let connection = connect(file)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.execute_batch(
        "CREATE TABLE greetings (id INT PRIMARY KEY, text TEXT NOT NULL);
         INSERT INTO greetings VALUES (1, 'hello'), (2, 'from a database'), (3, 'that lives in this process');",
    )?;
    Ok(())
}

fn connect(file: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    // The file does not outlive the process.
    connection.pragma_update(None, "synchronous", "OFF")?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::session::EmbeddedSession;
    use super::*;
    use crate::sql_server::{Answer, Session as _, Value};

    fn servers(directory: &TempDir) -> [Arc<Server>; 2] {
        let file = directory.path().join("demo.db");
        prepare(&file).unwrap();
        [1, 2].map(|id| Arc::new(Server { id, mysql_port: 1, pgsql_port: 2, read_only: AtomicBool::new(id != 1), file: file.clone() }))
    }

    fn session(server: &Arc<Server>, face: Face) -> EmbeddedSession {
        let login = Login { face, user: "demo".into(), database: "demo".into(), peer: [127, 0, 0, 1].into(), connection_id: 7 };
        EmbeddedSession::new(server.clone(), login, connect(&server.file).unwrap()).unwrap()
    }

    /// Rows as text, cells by `|`, rows by ` / `; `ok` without a result set; the message of an error.
    async fn ask(session: &mut EmbeddedSession, sql: &str) -> String {
        let cell = |value: &Value| match value {
            Value::Null => "NULL".to_owned(),
            Value::Integer(number) => number.to_string(),
            Value::Real(number) => number.to_string(),
            Value::Text(text) => text.clone(),
            Value::Blob(_) => "BLOB".to_owned(),
        };
        match session.execute(sql, &[]).await {
            Ok(Answer::Rows(rows)) => {
                rows.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join("|")).collect::<Vec<_>>().join(" / ")
            }
            Ok(Answer::Done(_)) => "ok".into(),
            Err(error) => format!("{}/{} {}", error.mysql_code, error.pgsql_state, error.message),
        }
    }

    #[tokio::test]
    async fn ordinary_sql_of_both_dialects_is_answered() {
        let directory = TempDir::new().unwrap();
        let [writer, reader] = servers(&directory);
        for (server, face, sql, expected) in [
            (&writer, Face::Mysql, "CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, v TEXT) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4", "ok"),
            (&writer, Face::Mysql, "REPLACE INTO t VALUES (1, 'one')", "ok"),
            (&reader, Face::Pgsql, "SELECT * FROM t FOR UPDATE", "1|one"),
            (&reader, Face::Mysql, "SELECT v FROM `t` LOCK IN SHARE MODE", "one"),
            (&writer, Face::Mysql, "SELECT @@server_id, @@global.read_only, @@hostname", "1|0|demo-server-1"),
            (&reader, Face::Mysql, "SELECT @@global.read_only read_only", "1"),
            (&reader, Face::Pgsql, "SELECT pg_is_in_recovery()", "t"),
            (&writer, Face::Pgsql, "SELECT pg_catalog.pg_is_in_recovery()", "f"),
            (&writer, Face::Pgsql, "SELECT 40 + '2'::int4", "42"),
            (&writer, Face::Pgsql, "SELECT current_setting('server_version')", "15.0"),
            (&writer, Face::Pgsql, "SHOW transaction_read_only", "off"),
            (&reader, Face::Pgsql, "SHOW transaction_read_only", "on"),
            (&writer, Face::Mysql, "SHOW VARIABLES LIKE 'read_only'", "read_only|OFF"),
            (&writer, Face::Mysql, "SELECT DATABASE()", "demo"),
            (&writer, Face::Mysql, "CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(20))", "ok"),
            (&writer, Face::Pgsql, "CREATE TABLE s (id SERIAL PRIMARY KEY, v TEXT)", "ok"),
            (&writer, Face::Mysql, "SET NAMES utf8mb4", "ok"),
            (&writer, Face::Mysql, "SHOW TABLES", "a / greetings / s / t"),
            (&writer, Face::Mysql, "COMMIT", "ok"),
            (
                &reader,
                Face::Mysql,
                "DELETE FROM t",
                "1290/25006 The MySQL server is running with the --read-only option so it cannot execute this statement",
            ),
            (&reader, Face::Pgsql, "DELETE FROM t", "1290/25006 cannot execute DELETE in a read-only transaction"),
            (&writer, Face::Mysql, "SELECT x FROM t", "1054/42703 Unknown column 'x' in 'field list'"),
            (&writer, Face::Pgsql, "SELECT x FROM t", "1054/42703 column \"x\" does not exist"),
            (&writer, Face::Mysql, "SELECT * FROM nowhere", "1146/42P01 Table 'demo.nowhere' doesn't exist"),
            (&writer, Face::Mysql, "INSERT INTO t VALUES (1, 'again')", "1062/23505 Duplicate entry for key 't.id'"),
            (&writer, Face::Pgsql, "SELEKT 1", "1064/42601 syntax error at or near \"SELEKT\""),
        ] {
            assert_eq!(ask(&mut session(server, face), sql).await, expected, "{sql}");
        }
    }

    #[tokio::test]
    async fn read_only_is_one_flag_for_both_faces() {
        let directory = TempDir::new().unwrap();
        let [writer, _] = servers(&directory);
        let (mut mysql, mut pgsql) = (session(&writer, Face::Mysql), session(&writer, Face::Pgsql));
        assert_eq!(ask(&mut mysql, "SET GLOBAL read_only = 1").await, "ok");
        assert_eq!(ask(&mut pgsql, "SELECT pg_is_in_recovery()").await, "t");
        assert_eq!(ask(&mut pgsql, "SET GLOBAL read_only = OFF").await, "ok");
        assert_eq!(ask(&mut mysql, "SELECT @@read_only").await, "0");
        assert!(ask(&mut mysql, "SET GLOBAL read_only = maybe").await.starts_with("1231/22023"));
    }

    #[tokio::test]
    async fn transactions_are_seen_by_others_when_they_commit() {
        let directory = TempDir::new().unwrap();
        let [writer, reader] = servers(&directory);
        let (mut one, mut other) = (session(&writer, Face::Mysql), session(&reader, Face::Pgsql));
        assert_eq!(ask(&mut one, "START TRANSACTION").await, "ok");
        assert_eq!(ask(&mut one, "INSERT INTO greetings VALUES (4, 'soon')").await, "ok");
        assert!(one.status().in_transaction);
        assert_eq!(ask(&mut other, "SELECT count(*) FROM greetings").await, "3");
        assert_eq!(ask(&mut one, "COMMIT").await, "ok");
        assert_eq!(ask(&mut other, "SELECT count(*) FROM greetings").await, "4");
        assert_eq!(ask(&mut one, "SET autocommit = 0").await, "ok");
        assert_eq!(ask(&mut one, "DELETE FROM greetings").await, "ok");
        assert_eq!(ask(&mut one, "ROLLBACK").await, "ok");
        assert_eq!(ask(&mut other, "SELECT count(*) FROM greetings").await, "4");
    }

    #[tokio::test]
    async fn a_failed_pgsql_transaction_takes_nothing_but_its_end() {
        let directory = TempDir::new().unwrap();
        let [writer, _] = servers(&directory);
        let mut session = session(&writer, Face::Pgsql);
        assert_eq!(ask(&mut session, "BEGIN").await, "ok");
        assert!(ask(&mut session, "SELECT absent").await.contains("42703"));
        assert!(session.status().failed);
        assert!(ask(&mut session, "SELECT 1").await.contains("25P02"));
        assert_eq!(ask(&mut session, "COMMIT").await, "ok");
        assert_eq!(ask(&mut session, "SELECT 1").await, "1");
    }
}
