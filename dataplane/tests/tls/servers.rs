//! The five modes towards servers of each kind, and both sides encrypted.

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder, SslOpts};
use quorumsql_chaos::certificates::{Authority, Files, Validity};
use quorumsql_chaos::servers::{MariaDb, Mysql9, Postgres};
use quorumsql_dataplane::config::{Protocol, TlsMode};
use quorumsql_dataplane::tls::ServerTls;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio_postgres::{NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::support::{Plane, block_on, shown, start, towards};

/// How a server is reached: encrypted, in plain text, or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reached {
    Encrypted,
    Plain,
    Never,
}
use Reached::{Encrypted, Never, Plain};
use TlsMode::{Disable, Prefer, Require, VerifyCa, VerifyFull};

/// Against a server whose certificate is for `localhost`: mode, whether its authority is the trusted one, host.
const WITH_TLS: [(TlsMode, bool, &str, Reached); 10] = [
    (Disable, true, "127.0.0.1", Plain),
    (Prefer, true, "127.0.0.1", Encrypted),
    (Prefer, false, "127.0.0.1", Encrypted),
    (Require, false, "127.0.0.1", Encrypted),
    (VerifyCa, true, "127.0.0.1", Encrypted),
    (VerifyCa, false, "127.0.0.1", Never),
    (VerifyCa, false, "localhost", Never),
    (VerifyFull, true, "localhost", Encrypted),
    (VerifyFull, true, "127.0.0.1", Never),
    (VerifyFull, false, "localhost", Never),
];
const WITHOUT_TLS: [(TlsMode, Reached); 5] = [(Disable, Plain), (Prefer, Plain), (Require, Never), (VerifyCa, Never), (VerifyFull, Never)];

fn mysql_options(plane: &Plane) -> OptsBuilder {
    OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(plane.port)
        .user(Some("demo"))
        .pass(Some("demo"))
        .prefer_socket(false)
        .max_allowed_packet(Some(64 << 20))
        .wait_timeout(Some(1000))
}

async fn reached_mysql(plane: &Plane) -> Reached {
    let mut client = Conn::new(mysql_options(plane)).await.unwrap();
    let row: Result<Option<(String, String)>, _> = client.query_first("SHOW STATUS LIKE 'Ssl_cipher'").await;
    match row {
        Ok(Some((_, cipher))) if cipher.is_empty() => Plain,
        Ok(Some(_)) => Encrypted,
        Ok(None) => panic!("no such status"),
        Err(mysql_async::Error::Server(error)) if error.code == 9001 || error.code == 9002 => Never,
        Err(error) => panic!("{error}"),
    }
}

async fn reached_pgsql(plane: &Plane) -> Reached {
    let settings = format!("host=127.0.0.1 port={} user=demo password=demo dbname=demo", plane.port);
    let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.unwrap();
    tokio::spawn(connection);
    match client.simple_query("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").await {
        Ok(messages) => match messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        }) {
            Some("t") => Encrypted,
            Some("f") => Plain,
            other => panic!("{other:?}"),
        },
        Err(error) => {
            let code = error.code().unwrap_or_else(|| panic!("{error}")).code();
            assert!(code.starts_with("08"), "{error:?}");
            Never
        }
    }
}

async fn check(protocol: Protocol, port: u16, authority: &Authority, crl: &str) {
    let reached = async |host: &str, tls: ServerTls| {
        let plane = start(protocol, None, (host, port), tls);
        match protocol {
            Protocol::Mysql => reached_mysql(&plane).await,
            Protocol::Pgsql => reached_pgsql(&plane).await,
        }
    };
    let stranger = Authority::new("stranger");
    for (mode, trusted, host, expected) in WITH_TLS {
        let ca = if trusted { &authority.pem } else { &stranger.pem };
        assert_eq!(reached(host, towards(mode, ca, None)).await, expected, "{protocol:?} {mode:?} {host} trusted: {trusted}");
    }
    assert_eq!(reached("localhost", towards(VerifyFull, &authority.pem, Some(crl))).await, Never, "{protocol:?}: revoked");
}

async fn check_without(protocol: Protocol, port: u16) {
    let authority = Authority::new("unused");
    for (mode, expected) in WITHOUT_TLS {
        let plane = start(protocol, None, ("localhost", port), towards(mode, &authority.pem, None));
        let found = match protocol {
            Protocol::Mysql => reached_mysql(&plane).await,
            Protocol::Pgsql => reached_pgsql(&plane).await,
        };
        assert_eq!(found, expected, "{protocol:?} {mode:?} without TLS");
    }
}

/// MariaDB with a certificate for `localhost`.
fn mariadb(authority: &Authority, files: &Files) -> (MariaDb, String) {
    let certified = authority.issue(&["localhost"], Validity::Long);
    let cert = files.write("cert.pem", &certified.certificate).display().to_string();
    let key = files.write("key.pem", &certified.key).display().to_string();
    let server = MariaDb::start(1, &[&format!("--ssl-cert={cert}"), &format!("--ssl-key={key}"), "--max-allowed-packet=64M"]);
    (server, authority.revoke(&certified))
}

/// PostgreSQL with a certificate for `localhost`.
fn postgres(authority: &Authority, files: &Files) -> (Postgres, String) {
    let certified = authority.issue(&["localhost"], Validity::Long);
    let cert = files.write("cert.pem", &certified.certificate).display().to_string();
    let key = files.write("key.pem", &certified.key).display().to_string();
    files.give("key.pem", "postgres");
    let server = Postgres::start(&["ssl=on", &format!("ssl_cert_file={cert}"), &format!("ssl_key_file={key}")]);
    (server, authority.revoke(&certified))
}

#[test]
fn the_five_modes_towards_mariadb() {
    let (authority, files) = (Authority::new("ca"), Files::default());
    let (server, crl) = mariadb(&authority, &files);
    let plain = MariaDb::start(2, &["--skip-ssl"]);
    block_on(async {
        check(Protocol::Mysql, server.port, &authority, &crl).await;
        check_without(Protocol::Mysql, plain.port).await;
    });
}

#[test]
fn the_five_modes_towards_mysql_9() {
    let (authority, files) = (Authority::new("ca"), Files::in_chroot(&Mysql9::chroot()));
    let certified = authority.issue(&["localhost"], Validity::Long);
    files.write("cert.pem", &certified.certificate);
    files.write("key.pem", &certified.key);
    let (cert, key) = (format!("--ssl-cert={}", files.inside("cert.pem")), format!("--ssl-key={}", files.inside("key.pem")));
    let server = Mysql9::start(1, &[&cert, &key]);
    block_on(check(Protocol::Mysql, server.port, &authority, &authority.revoke(&certified)));
}

#[test]
fn the_five_modes_towards_postgresql() {
    let (authority, files) = (Authority::new("ca"), Files::default());
    let (server, crl) = postgres(&authority, &files);
    let plain = Postgres::start(&[]);
    block_on(async {
        check(Protocol::Pgsql, server.port, &authority, &crl).await;
        check_without(Protocol::Pgsql, plain.port).await;
    });
}

/// A pattern that no shift maps onto itself.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index ^ (index >> 8) ^ (index >> 16)) as u8).collect()
}

#[test]
fn ten_megabytes_there_and_back_with_tls_on_both_sides() {
    let bytes = pattern(10 << 20);
    let (authority, files, pg_files) = (Authority::new("ca"), Files::default(), Files::default());
    let (mariadb, _) = mariadb(&authority, &files);
    let (postgres, _) = postgres(&authority, &pg_files);
    let ours = authority.issue(&["localhost", "127.0.0.1"], Validity::Long);
    let tls = || towards(VerifyFull, &authority.pem, None);
    block_on(async {
        let plane = start(Protocol::Mysql, shown(Protocol::Mysql, &ours), ("localhost", mariadb.port), tls());
        let trust = SslOpts::default().with_disable_built_in_roots(true).with_root_certs(vec![authority.pem.clone().into_bytes().into()]);
        let mut client = Conn::new(mysql_options(&plane).ssl_opts(trust)).await.unwrap();
        let back: Option<Vec<u8>> = client.exec_first("SELECT ?", (&bytes,)).await.unwrap();
        assert!(back.as_ref() == Some(&bytes), "MySQL");
        let cipher: Option<(String, String)> = client.query_first("SHOW STATUS LIKE 'Ssl_cipher'").await.unwrap();
        assert!(cipher.is_some_and(|(_, cipher)| !cipher.is_empty()));

        let plane = start(Protocol::Pgsql, shown(Protocol::Pgsql, &ours), ("localhost", postgres.port), tls());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let settings = format!(
            "host=localhost hostaddr=127.0.0.1 port={} user=demo password=demo dbname=demo sslmode=require channel_binding=require",
            plane.port
        );
        let (client, connection) = tokio_postgres::connect(&settings, MakeRustlsConnect::new(config)).await.unwrap();
        tokio::spawn(connection);
        let row =
            client.query_one("SELECT $1::bytea, (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid())", &[&bytes]).await.unwrap();
        assert!(row.get::<_, Vec<u8>>(0) == bytes && row.get::<_, bool>(1), "PostgreSQL");
        assert_eq!(plane.plane.stats().sessions(Protocol::Pgsql).tls_handshakes, 1);
    });
}
