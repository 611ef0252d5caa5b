//! TLS as operators meet it: clients verify the certificate of every port, it is exchanged while the node runs, switched off
//! and on by variable, and a server that cannot do it is an error with its cause.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use quorumsql_chaos::certificates::{Authority, Files, Validity};
use quorumsql_chaos::cluster::Demo;
use quorumsql_chaos::process::free_port;
use quorumsql_chaos::servers::Mysql9;
use rustix::process::Signal;

use super::support::{ADMIN_MYSQL, ADMIN_PGSQL, MYSQL, PGSQL, admin, eventually, execute, mysql, pgsql, run, text};

const PYMYSQL: &str = "
import pymysql, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[5])
context.verify_flags |= ssl.VERIFY_X509_STRICT
context.check_hostname = sys.argv[6] == 'full'
c = pymysql.connect(host=sys.argv[1], port=int(sys.argv[2]), user=sys.argv[3], password=sys.argv[4], ssl=context)
with c.cursor() as k:
    k.execute('SELECT 42')
    print(k.fetchone()[0])
";

const PSYCOPG: &str = "
import psycopg, sys
print(psycopg.connect(sys.argv[1]).execute('SELECT 42').fetchone()[0])
";

/// What a client that asks for 42 prints, or its error.
fn ask(argv: &[&str]) -> Result<String, String> {
    let output = Command::new(argv[0]).args(&argv[1..]).env("PGPASSWORD", "").output();
    let output = output.unwrap_or_else(|error| panic!("cannot start {}: {error}; deploy/test installs it", argv[0]));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// A port with an account for it.
struct Port<'a> {
    host: &'a str,
    port: u16,
    user: &'static str,
}

/// How closely a client looks.
#[derive(Clone, Copy, PartialEq)]
enum Look {
    Chain,
    Name,
}

/// All MySQL clients; `ca` is named as this machine and as the chroot of MySQL 9 see it.
fn mysql_clients(at: &Port<'_>, ca: (&str, &str), look: Look) -> Vec<(&'static str, Result<String, String>)> {
    let Port { host, port, user } = *at;
    let (port, password) = (port.to_string(), format!("-p{user}"));
    let account = format!("-u{user}");
    let common = ["--no-defaults", "-h", host, "-P", &port, &account, &password, "-N"];
    let (file, inside) = (format!("--ssl-ca={}", ca.0), format!("--ssl-ca={}", ca.1));
    let root = Mysql9::chroot().display().to_string();
    let mode = if look == Look::Name { "--ssl-mode=VERIFY_IDENTITY" } else { "--ssl-mode=VERIFY_CA" };
    let python = python();
    let how = if look == Look::Name { "full" } else { "ca" };
    let mut told = vec![
        ("mysql", ask(&[&["chroot", &root, "mysql"], &common[..], &[&inside, mode, "-e", "SELECT 42"]].concat())),
        ("PyMySQL", ask(&[&python, "-c", PYMYSQL, host, &port, user, user, ca.0, how])),
    ];
    if look == Look::Name {
        // MariaDB's client knows only all or nothing.
        told.push(("mariadb", ask(&[&["mariadb"], &common[..], &[&file, "--ssl-verify-server-cert", "-e", "SELECT 42"]].concat())));
    }
    told
}

fn pgsql_clients(at: &Port<'_>, ca: &str, look: Look) -> Vec<(&'static str, Result<String, String>)> {
    let Port { host, port, user } = *at;
    let mode = if look == Look::Name { "verify-full" } else { "verify-ca" };
    let where_to = format!("host={host} port={port} user={user} password={user} dbname=demo sslmode={mode} sslrootcert={ca}");
    vec![("psql", ask(&["psql", "-XAt", &where_to, "-c", "SELECT 42"])), ("psycopg", ask(&[&python(), "-c", PSYCOPG, &where_to]))]
}

fn python() -> String {
    std::env::var("QUORUMSQL_PYTHON").expect("QUORUMSQL_PYTHON names a Python with the client libraries; deploy/test sets it")
}

/// Files where both this machine and the chroot can read them.
struct Authorities {
    here: Files,
    inside: Files,
}

impl Authorities {
    fn new() -> Self {
        Self { here: Files::default(), inside: Files::in_chroot(&Mysql9::chroot()) }
    }

    fn write(&self, name: &str, pem: &str) {
        self.here.write(name, pem);
        self.inside.write(name, pem);
    }

    fn path(&self, name: &str) -> (String, String) {
        (self.here.path().join(name).display().to_string(), self.inside.inside(name))
    }
}

/// Every client on every SQL port of node 1 trusts the authority in `ca`, or none does.
fn clients_agree(demo: &Demo, authorities: &Authorities, ca: &str, look: Look, trusted: bool) {
    let host = demo.host(1);
    let (here, inside) = authorities.path(ca);
    for (mysql_port, pgsql_port, user) in [(MYSQL, PGSQL, "demo"), (ADMIN_MYSQL, ADMIN_PGSQL, "admin")] {
        let mut told = mysql_clients(&Port { host: &host, port: mysql_port, user }, (&here, &inside), look);
        told.extend(pgsql_clients(&Port { host: &host, port: pgsql_port, user }, &here, look));
        for (client, told) in told {
            match told {
                Ok(answer) => assert!(trusted && answer == "42", "{client} as {user} with {ca}: {answer}"),
                Err(error) => assert!(!trusted, "{client} as {user} with {ca}: {error}"),
            }
        }
    }
}

#[test]
fn clients_verify_the_certificate_of_a_new_cluster() {
    let demo = Demo::start(1, &[]);
    let authorities = Authorities::new();
    authorities.write("stranger.pem", &Authority::new("stranger").pem);
    authorities.write("ca.pem", &std::fs::read_to_string(demo.node_dir(1).join("data/tls/ca.pem")).expect("the cluster's authority"));
    for look in [Look::Chain, Look::Name] {
        clients_agree(&demo, &authorities, "ca.pem", look, true);
        clients_agree(&demo, &authorities, "stranger.pem", look, false);
    }
}

/// Certificate and key files that a node was started with.
struct Shown {
    files: Files,
}

impl Shown {
    fn put(&self, authority: &Authority, names: &[&str]) {
        let certified = authority.issue(names, Validity::Long);
        self.files.write("cert.pem", &certified.certificate);
        self.files.write("key.pem", &certified.key);
    }

    fn path(&self, name: &str) -> String {
        self.files.path().join(name).display().to_string()
    }
}

#[test]
fn a_certificate_is_exchanged_while_the_node_runs() {
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let (authorities, shown) = (Authorities::new(), Shown { files: Files::default() });
    authorities.write("first.pem", &first.pem);
    authorities.write("second.pem", &second.pem);
    // The name is another's: only those who look at names mind.
    shown.put(&first, &["elsewhere"]);
    let grpc = format!("0.0.0.0:{}", free_port());
    let (cert, key) = (shown.path("cert.pem"), shown.path("key.pem"));
    let environment = [("QUORUMSQL_TLS__SERVER_CERT", &*cert), ("QUORUMSQL_TLS__SERVER_KEY", &key), ("QUORUMSQL_LISTEN__GRPC", &grpc)];
    // The demo itself looks for gRPC on loopback.
    let mut demo = Demo::start(1, &[]);
    demo.kill(1);
    demo.restart_with(1, &environment);
    let host = demo.host(1);
    run(eventually("the node to serve", Duration::from_secs(30), async || demo.http(1, "/readyz").is_some_and(|(code, _)| code == 200)));
    clients_agree(&demo, &authorities, "first.pem", Look::Chain, true);
    clients_agree(&demo, &authorities, "first.pem", Look::Name, false);
    run(async {
        let mut admin = admin(&host).await;
        let tls = mysql_async::SslOpts::default().with_danger_accept_invalid_certs(true).with_danger_skip_domain_validation(true);
        let opts = mysql_async::OptsBuilder::default().ip_or_hostname(&*host).tcp_port(MYSQL).prefer_socket(false).ssl_opts(Some(tls));
        let mut before = mysql_async::Conn::new(opts.user(Some("demo")).pass(Some("demo"))).await.expect("a login over TLS");
        shown.put(&second, &["elsewhere", &host, "localhost"]);
        clients_agree(&demo, &authorities, "first.pem", Look::Chain, true);
        execute(&mut admin, &["PROXYSQL RELOAD TLS"]).await;
        grpc_trusts(&grpc, &authorities, "second.pem", true);
        for look in [Look::Chain, Look::Name] {
            clients_agree(&demo, &authorities, "first.pem", look, false);
            clients_agree(&demo, &authorities, "second.pem", look, true);
        }
        assert_eq!(before.query_first::<i64, _>("SELECT 42").await.expect("the session of before goes on"), Some(42));
        // Files that cannot be used change nothing.
        shown.files.write("key.pem", "no key");
        let error = admin.query_drop("PROXYSQL RELOAD TLS").await.expect_err("refused").to_string();
        assert!(error.contains("RELOAD TLS failed") && error.contains("key.pem"), "{error}");
        clients_agree(&demo, &authorities, "second.pem", Look::Name, true);
    });
    shown.put(&first, &[&host, "localhost"]);
    demo.signal(1, Signal::HUP);
    let at = Port { host: &host, port: PGSQL, user: "demo" };
    run(eventually("SIGHUP to bring the first authority back", Duration::from_secs(10), async || {
        pgsql_clients(&at, &authorities.path("first.pem").0, Look::Name)[0].1.is_ok()
    }));
    clients_agree(&demo, &authorities, "second.pem", Look::Chain, false);
    clients_agree(&demo, &authorities, "first.pem", Look::Name, true);
    grpc_trusts(&grpc, &authorities, "first.pem", true);
    grpc_trusts(&grpc, &authorities, "second.pem", false);
}

/// Off loopback gRPC is behind TLS too.
fn grpc_trusts(listen: &str, authorities: &Authorities, ca: &str, trusted: bool) {
    let grpcurl = std::env::var("QUORUMSQL_GRPCURL").expect("QUORUMSQL_GRPCURL names grpcurl; deploy/test sets it");
    let address = listen.replace("0.0.0.0", "127.0.0.1");
    let here = authorities.path(ca).0;
    let told = ask(&[&grpcurl, "-cacert", &here, "-authority", "localhost", &address, "grpc.health.v1.Health/Check"]);
    assert_eq!(told.is_ok(), trusted, "{ca}: {told:?}");
    let plain = ask(&[&grpcurl, "-plaintext", "-max-time", "5", &address, "grpc.health.v1.Health/Check"]);
    assert!(plain.is_err(), "{plain:?}");
}

#[test]
fn variables_switch_tls_off_and_write_its_secrets() {
    let demo = Demo::start(1, &[]);
    let host = demo.host(1);
    let root = Mysql9::chroot().display().to_string();
    // Through MySQL 9's client in this mode, and psql in that.
    let told = |mysql_mode: &str, psql_mode: &str| {
        let ports = [(MYSQL, PGSQL, "demo"), (ADMIN_MYSQL, ADMIN_PGSQL, "admin")];
        let ask_both = |(mysql_port, pgsql_port, user): (u16, u16, &str)| {
            let (port, account, password) = (mysql_port.to_string(), format!("-u{user}"), format!("-p{user}"));
            let mysql = ["chroot", &root, "mysql", "--no-defaults", "-h", &host, "-P", &port, &account, &password, "-N", "-e", "SELECT 42"];
            let where_to = format!("host={host} port={pgsql_port} user={user} password={user} dbname=demo sslmode={psql_mode}");
            [ask(&[&mysql[..], &[mysql_mode]].concat()), ask(&["psql", "-XAt", &where_to, "-c", "SELECT 42"])]
        };
        ports.map(ask_both)
    };
    run(async {
        let mut admin = admin(&host).await;
        let mut switch = async |value: &str| {
            let (mysql, pgsql) = (format!("SET mysql-have_ssl='{value}'"), format!("SET pgsql-have_ssl='{value}'"));
            execute(&mut admin, &[&mysql, &pgsql, "LOAD MYSQL VARIABLES TO RUNTIME", "LOAD PGSQL VARIABLES TO RUNTIME"]).await;
        };
        switch("false").await;
        for told in told("--ssl-mode=REQUIRED", "require").into_iter().flatten() {
            let error = told.expect_err("TLS is not offered");
            assert!(error.contains("2026") || error.contains("server does not support SSL"), "{error}");
        }
        assert_eq!(told("--ssl-mode=PREFERRED", "prefer").concat(), vec![Ok("42".to_owned()); 4]);
        switch("true").await;
        assert_eq!(told("--ssl-mode=REQUIRED", "require").concat(), vec![Ok("42".to_owned()); 4]);

        let keys = demo.node_dir(1).join("data/keys");
        assert!(!keys.exists());
        execute(&mut admin, &["SET admin-ssl_keylog_file='keys'", "LOAD ADMIN VARIABLES TO RUNTIME"]).await;
        assert_eq!(told("--ssl-mode=REQUIRED", "require").concat(), vec![Ok("42".to_owned()); 4]);
        let sessions = |path: &Path| std::fs::read_to_string(path).expect("the key log").matches("SERVER_TRAFFIC_SECRET_0 ").count();
        assert_eq!(sessions(&keys), 4);
        let moved = keys.with_extension("1");
        std::fs::rename(&keys, &moved).expect("rotated");
        execute(&mut admin, &["PROXYSQL FLUSH LOGS"]).await;
        let _told = told("--ssl-mode=REQUIRED", "require");
        assert_eq!((sessions(&moved), sessions(&keys)), (4, 4));
        execute(&mut admin, &["SET admin-ssl_keylog_file=''", "LOAD ADMIN VARIABLES TO RUNTIME"]).await;
        let _told = told("--ssl-mode=REQUIRED", "require");
        assert_eq!(sessions(&keys), 4);
    });
}

/// The servers of the demo speak no TLS: with `use_ssl=1` nothing goes on in plain text, and everybody is told why.
#[test]
fn a_server_without_tls_is_an_error_with_its_cause() {
    let demo = Demo::start(1, &[]);
    let host = demo.host(1);
    run(async {
        let mut admin = admin(&host).await;
        for protocol in ["mysql", "pgsql"] {
            let (limit, row) =
                (format!("SET {protocol}-connect_timeout_server_max=2000"), format!("UPDATE {protocol}_servers SET use_ssl=1"));
            let (variables, servers) = (format!("LOAD {protocol} VARIABLES TO RUNTIME"), format!("LOAD {protocol} SERVERS TO RUNTIME"));
            execute(&mut admin, &[&limit, &variables, &row, &servers]).await;
        }
        let cause = "the server does not offer it";
        let spoken = |error: &str| error.contains(cause) || error.to_lowercase().contains("tls");
        // With these two given, the client library asks nothing at login.
        let opts = mysql_async::OptsBuilder::default().ip_or_hostname(&*host).tcp_port(MYSQL).prefer_socket(false);
        let opts = opts.max_allowed_packet(Some(1 << 20)).wait_timeout(Some(600)).user(Some("demo")).pass(Some("demo"));
        let mut client = mysql_async::Conn::new(opts).await.expect("a login needs no server");
        eventually("a statement to fail over TLS", Duration::from_secs(30), async || {
            client.query_drop("SELECT 42").await.is_err_and(|error| spoken(&error.to_string()))
        })
        .await;
        for (port, sql) in [
            ("mysql", "SELECT ping_error FROM monitor.mysql_server_ping_log"),
            ("pgsql", "SELECT ping_error FROM monitor.pgsql_server_ping_log"),
        ] {
            eventually("the monitor to say it", Duration::from_secs(30), async || {
                text(&mut admin, sql).await.iter().flatten().any(|error| spoken(error))
            })
            .await;
            assert!(demo.logs(1).to_lowercase().contains("tls"), "{port}: the log names TLS");
        }
        // When the monitor has given the servers up, a waiting statement still tells the cause.
        eventually("all servers to be given up", Duration::from_secs(60), async || {
            text(&mut admin, "SELECT status FROM runtime_mysql_servers").await.iter().flatten().all(|status| status == "SHUNNED")
        })
        .await;
        let error = client.query_drop("SELECT 42").await.expect_err("no server").to_string();
        assert!(error.contains("9001") && error.contains("no server of the hostgroup is ONLINE") && spoken(&error), "{error}");
        // Without TLS all is as before.
        execute(&mut admin, &["UPDATE mysql_servers SET use_ssl=0", "UPDATE pgsql_servers SET use_ssl=0"]).await;
        execute(&mut admin, &["LOAD MYSQL SERVERS TO RUNTIME", "LOAD PGSQL SERVERS TO RUNTIME"]).await;
        eventually("the servers to be back", Duration::from_secs(60), async || client.query_drop("SELECT 42").await.is_ok()).await;
        drop(mysql(&host).await);
        drop(pgsql(&host).await);
    });
}
