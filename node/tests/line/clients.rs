//! Each client library logs in, runs a select, an insert, a transaction, a prepared statement and a failing statement
//! through a node, on each server that it can meet.

use std::io::Write;
use std::process::{Command, Stdio};

use mysql_async::prelude::Queryable;
use quorumsql_chaos::cluster::Demo;
use quorumsql_chaos::servers::{MariaDb, Mysql9, Postgres};

use super::support::{MYSQL, PGSQL, mysql, pgsql, run};

#[test]
fn mysql_clients_on_mariadb() {
    let server = MariaDb::start(1, &["--max-prepared-stmt-count=1000000"]);
    mysql_clients(&server.address());
}

#[test]
fn mysql_clients_on_mysql_9() {
    let server = Mysql9::start(1, &[]);
    mysql_clients(&server.address());
}

fn mysql_clients(server: &str) {
    let demo = Demo::start(1, &["--mysql", server]);
    let host = demo.host(1);
    run(mysql_async_works(&host));
    for client in [vec!["mariadb"], vec!["chroot", &Mysql9::chroot().display().to_string(), "mysql"]] {
        command_line_works(&client, &host);
    }
    let script = include_str!("clients_pymysql.py");
    let printed = python(script, &[&host, &MYSQL.to_string()]);
    assert_eq!(printed.trim(), "PyMySQL works");
    for mode in ["disable", "auto"] {
        sysbench_works(&host, mode);
    }
}

async fn mysql_async_works(host: &str) {
    let mut conn = mysql(host).await;
    conn.query_drop("CREATE TABLE by_mysql_async (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(20))").await.expect("create");
    conn.query_drop("INSERT INTO by_mysql_async (v) VALUES ('one'), ('two')").await.expect("insert");
    assert_eq!((conn.affected_rows(), conn.last_insert_id()), (2, Some(1)));
    let mut transaction = conn.start_transaction(mysql_async::TxOpts::default()).await.expect("begin");
    transaction.exec_drop("INSERT INTO by_mysql_async (v) VALUES (?)", ("three",)).await.expect("a prepared insert");
    let inside: Option<i64> = transaction.query_first("SELECT COUNT(*) FROM by_mysql_async").await.expect("count");
    assert_eq!(inside, Some(3));
    transaction.rollback().await.expect("rollback");
    let rows: Vec<(i64, String)> =
        conn.exec("SELECT id, v FROM by_mysql_async WHERE id > ? ORDER BY id", (0,)).await.expect("a prepared select");
    assert_eq!(rows, [(1, "one".into()), (2, "two".into())]);
    let error = conn.query_drop("SELECT nothing FROM nowhere").await.expect_err("a failing statement");
    assert!(matches!(&error, mysql_async::Error::Server(e) if e.code == 1146 && e.state == "42S02"), "{error}");
    assert_eq!(conn.query_first::<i64, _>("SELECT 6 * 7").await.expect("the connection goes on"), Some(42));
}

/// The interactive client: text protocol, and PREPARE in SQL.
fn command_line_works(client: &[&str], host: &str) {
    let table = format!("by_{}", client.last().expect("a client"));
    let sql = format!(
        "CREATE TABLE {table} (id INT PRIMARY KEY, v TEXT); INSERT INTO {table} VALUES (1, 'x');\nBEGIN; UPDATE {table} SET v = 'y'; ROLLBACK;\n\
         PREPARE p FROM 'SELECT v FROM {table} WHERE id = ?'; SET @id = 1; EXECUTE p USING @id;\nSELECT nothing FROM nowhere;\nSELECT 'after';\n"
    );
    let port = MYSQL.to_string();
    let arguments = ["--no-defaults", "-h", host, "-P", &port, "-udemo", "-pdemo", "demo", "-N", "--force"];
    let (stdout, stderr) = feed(&[client, &arguments].concat(), &sql);
    assert_eq!(stdout, "x\nafter\n", "{client:?}: {stderr}");
    assert!(stderr.contains("ERROR 1146 (42S02)"), "{client:?}: {stderr}");
}

/// Runs an interactive client on a script and returns what it prints; statements after a failing one go on.
fn feed(argv: &[&str], sql: &str) -> (String, String) {
    let mut command = Command::new(argv[0]);
    command.args(&argv[1..]).env("PGPASSWORD", "demo").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}; deploy/test installs it", argv[0]));
    child.stdin.take().expect("a piped stdin").write_all(sql.as_bytes()).expect("the client reads");
    let output = child.wait_with_output().expect("the client runs");
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn python(script: &str, arguments: &[&str]) -> String {
    let python = std::env::var("QUORUMSQL_PYTHON").expect("QUORUMSQL_PYTHON names a Python with the client libraries; deploy/test sets it");
    let output = Command::new(python).arg("-c").arg(script).args(arguments).output().expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn sysbench_works(host: &str, mode: &str) {
    let settings = [
        "--db-driver=mysql".to_owned(),
        format!("--mysql-host={host}"),
        format!("--mysql-port={MYSQL}"),
        "--mysql-user=demo".to_owned(),
        "--mysql-password=demo".to_owned(),
        "--mysql-db=sbtest".to_owned(),
        "--tables=2".to_owned(),
        "--table-size=200".to_owned(),
        format!("--db-ps-mode={mode}"),
        "--threads=4".to_owned(),
        "--events=200".to_owned(),
        "--time=0".to_owned(),
    ];
    for step in ["cleanup", "prepare", "run"] {
        let output = Command::new("sysbench").arg("oltp_read_write").args(&settings).arg(step).output().expect("sysbench runs");
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "sysbench {step}, prepared statements {mode}: {stdout}{stderr}");
        assert!(!stdout.contains("FATAL"), "sysbench {step}: {stdout}");
    }
}

#[test]
fn pgsql_clients_on_postgresql_15() {
    let server = Postgres::start(&[]);
    let demo = Demo::start(1, &["--pgsql", &server.address()]);
    let host = demo.host(1);
    run(tokio_postgres_works(&host));
    psql_works(&host);
    assert_eq!(python(include_str!("clients_psycopg.py"), &[&host, &PGSQL.to_string()]).trim(), "psycopg works");
    pgbench_works(&host);
}

async fn tokio_postgres_works(host: &str) {
    let mut client = pgsql(host).await;
    client
        .batch_execute("CREATE TABLE by_tokio_postgres (id SERIAL PRIMARY KEY, v TEXT); INSERT INTO by_tokio_postgres (v) VALUES ('one')")
        .await
        .expect("two statements");
    let transaction = client.transaction().await.expect("begin");
    let inserted = transaction.execute("INSERT INTO by_tokio_postgres (v) VALUES ($1)", &[&"two"]).await.expect("a prepared insert");
    assert_eq!(inserted, 1);
    transaction.rollback().await.expect("rollback");
    let statement = client.prepare("SELECT id, v FROM by_tokio_postgres WHERE id >= $1").await.expect("prepare");
    for _ in 0..3 {
        let rows = client.query(&statement, &[&1_i32]).await.expect("a prepared select");
        assert_eq!(rows.iter().map(|row| row.get::<_, String>(1)).collect::<Vec<_>>(), ["one"]);
    }
    let error = client.query("SELECT nothing FROM nowhere", &[]).await.expect_err("a failing statement");
    assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("42P01"));
    assert_eq!(client.query_one("SELECT 6 * 7", &[]).await.expect("the connection goes on").get::<_, i32>(0), 42);
}

fn psql_works(host: &str) {
    let sql = "CREATE TABLE by_psql (id INT PRIMARY KEY, v TEXT);\nINSERT INTO by_psql VALUES (1, 'x');\nBEGIN;\nUPDATE by_psql SET v = 'y';\nROLLBACK;\n\
               PREPARE p AS SELECT v FROM by_psql WHERE id = $1;\nEXECUTE p(1);\nSELECT nothing FROM nowhere;\nSELECT 'after';\n";
    let port = PGSQL.to_string();
    let (stdout, stderr) = feed(&["psql", "-X", "-h", host, "-p", &port, "-U", "demo", "-d", "demo", "-At", "-q"], sql);
    assert_eq!(stdout, "x\nafter\n", "{stderr}");
    assert!(stderr.contains("relation \"nowhere\" does not exist"), "{stderr}");
}

fn pgbench_works(host: &str) {
    let pgbench = |arguments: &[&str]| {
        let base = ["-h", host, "-p", &PGSQL.to_string(), "-U", "demo"];
        let output =
            Command::new("/usr/lib/postgresql/15/bin/pgbench").env("PGPASSWORD", "demo").args(base).args(arguments).arg("demo").output();
        let output = output.expect("pgbench runs");
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && !stderr.contains("aborted"), "pgbench {arguments:?}: {stdout}{stderr}");
    };
    pgbench(&["-i", "-s", "1", "-q"]);
    for mode in ["simple", "extended", "prepared"] {
        pgbench(&["-M", mode, "-c", "4", "-t", "50", "-n"]);
    }
}
