//! What clients verify, and what we refuse them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use quorumsql_chaos::certificates::{Authority, Certified, Files, Validity};
use quorumsql_chaos::servers::{MariaDb, Mysql9, Postgres};
use quorumsql_dataplane::config::Protocol;
use quorumsql_dataplane::tls::ServerTls;

use super::support::{Plane, program, python, shown, start};

/// Certificates that we show: a good one, one for another name, one that has expired.
struct Shown {
    files: Files,
    chroot: Files,
    good: Certified,
    elsewhere: Certified,
    expired: Certified,
}

impl Shown {
    fn new() -> Self {
        let (authority, stranger) = (Authority::new("ca"), Authority::new("stranger"));
        let (files, chroot) = (Files::default(), Files::in_chroot(&Mysql9::chroot()));
        for directory in [&files, &chroot] {
            directory.write("ca.pem", &authority.pem);
            directory.write("stranger.pem", &stranger.pem);
        }
        let names = ["localhost", "127.0.0.1"];
        Self {
            good: authority.issue(&names, Validity::Long),
            elsewhere: authority.issue(&["elsewhere"], Validity::Long),
            expired: authority.issue(&names, Validity::Expired),
            files,
            chroot,
        }
    }

    /// The certificate, the authority that the client trusts, and whether a client that looks at all may go on.
    fn cases(&self) -> [(&Certified, &'static str, bool); 4] {
        [
            (&self.good, "ca.pem", true),
            (&self.good, "stranger.pem", false),
            (&self.elsewhere, "ca.pem", false),
            (&self.expired, "ca.pem", false),
        ]
    }

    fn file(&self, name: &str) -> String {
        self.files.path().join(name).display().to_string()
    }
}

const PYMYSQL: &str = "
import pymysql, sys
port, ca = int(sys.argv[1]), sys.argv[2]
c = pymysql.connect(host='localhost', port=port, user='secure', password='demo', ssl={'ca': ca})
with c.cursor() as k:
    k.execute('SELECT 41 + 1')
    print(k.fetchone()[0], c._sock.version())
";

#[test]
fn mysql_clients_verify_our_certificate() {
    let server = MariaDb::start(1, &[]);
    let _account = server.root("CREATE USER secure@'%' IDENTIFIED BY 'demo'");
    let made = Shown::new();
    for (certified, ca, good) in made.cases() {
        let plane = start(Protocol::Mysql, shown(Protocol::Mysql, certified), ("127.0.0.1", server.port), ServerTls::Disable);
        let port = plane.port.to_string();
        let (file, inside) = (format!("--ssl-ca={}", made.file(ca)), format!("--ssl-ca={}", made.chroot.inside(ca)));
        let common = ["--no-defaults", "-h127.0.0.1", "-P", &port, "-usecure", "-pdemo", "-N"];
        let ask = ["-e", "SELECT 41 + 1"];
        let root = Mysql9::chroot().display().to_string();
        let mariadb = program(&[&["mariadb"], &common[..], &[&file, "--ssl-verify-server-cert"], &ask].concat());
        let mysql = program(&[&["chroot", &*root, "mysql"], &common[..], &[&inside, "--ssl-mode=VERIFY_IDENTITY"], &ask].concat());
        let pymysql = python(PYMYSQL, &[&port, &made.file(ca)]);
        for (client, told, expected) in [("mariadb", &mariadb, "42"), ("mysql", &mysql, "42"), ("PyMySQL", &pymysql, "42 TLSv1.3")] {
            match told {
                Ok(told) => assert!(good && told == expected, "{client} with {ca}: {told}"),
                Err(error) => assert!(!good, "{client} with {ca}: {error}"),
            }
        }
        let sessions = *plane.plane.stats().sessions(Protocol::Mysql);
        assert_eq!(sessions.tls_handshakes >= 3, good, "{sessions:?}");
        let encrypted = program(&[&["mariadb"], &common[..], &["--ssl", "-e", "\\s"]].concat()).unwrap();
        assert!(encrypted.contains("Cipher in use"), "{encrypted}");
        let refused = program(&[&["chroot", &*root, "mysql"], &common[..], &["--ssl-mode=DISABLED"], &ask].concat()).unwrap_err();
        assert!(refused.contains("1045") && refused.contains("SSL is required"), "{refused}");
    }
}

#[test]
fn without_a_certificate_clients_are_not_offered_tls() {
    let server = MariaDb::start(1, &[]);
    let plane = start(Protocol::Mysql, None, ("127.0.0.1", server.port), ServerTls::Disable);
    let (port, root) = (plane.port.to_string(), Mysql9::chroot().display().to_string());
    let common = ["chroot", &*root, "mysql", "--no-defaults", "-h127.0.0.1", "-P", &port, "-udemo", "-pdemo", "-N", "-e", "SELECT 42"];
    let refused = program(&[&common[..], &["--ssl-mode=REQUIRED"]].concat()).unwrap_err();
    assert!(refused.contains("2026"), "{refused}");
    assert_eq!(program(&[&common[..], &["--ssl-mode=PREFERRED"]].concat()), Ok("42".into()));
}

const PSYCOPG: &str = "
import psycopg, sys
print(psycopg.connect(sys.argv[1]).execute('SELECT 41 + 1').fetchone()[0])
";

const CANCEL: &str = "
import psycopg, sys, threading
c = psycopg.connect(sys.argv[1])
def cancel():
    watcher = psycopg.connect(sys.argv[1], autocommit=True)
    while not watcher.execute(\"SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(60)%' AND state = 'active'\").fetchone()[0]:
        pass
    c.cancel_safe()
t = threading.Thread(target=cancel)
t.start()
try:
    c.execute('SELECT pg_sleep(60)')
except psycopg.errors.QueryCanceled as e:
    print(e.sqlstate)
t.join()
";

fn conninfo(plane: &Plane, user: &str, more: &str) -> String {
    format!("host=localhost hostaddr=127.0.0.1 port={} user={user} password=demo dbname=demo {more}", plane.port)
}

#[test]
fn pgsql_clients_verify_our_certificate() {
    let server = Postgres::start(&[]);
    let _account = server.root("postgres", "CREATE ROLE secure LOGIN SUPERUSER PASSWORD 'demo'");
    let made = Shown::new();
    for (certified, ca, good) in made.cases() {
        let plane = start(Protocol::Pgsql, shown(Protocol::Pgsql, certified), ("127.0.0.1", server.port), ServerTls::Disable);
        let verify = conninfo(&plane, "secure", &format!("sslmode=verify-full sslrootcert={} channel_binding=require", made.file(ca)));
        let psql = program(&["psql", "-XAt", &verify, "-c", "SELECT 41 + 1"]);
        let psycopg = python(PSYCOPG, &[&verify]);
        let direct = python(PSYCOPG, &[&format!("{verify} sslnegotiation=direct")]);
        for (client, told) in [("psql", &psql), ("psycopg", &psycopg), ("direct", &direct)] {
            match told {
                Ok(told) => assert!(good && told == "42", "{client} with {ca}: {told}"),
                Err(error) => assert!(!good, "{client} with {ca}: {error}"),
            }
        }
        let plain = python(PSYCOPG, &[&conninfo(&plane, "secure", "sslmode=disable")]).unwrap_err();
        assert!(plain.contains("Access denied for user 'secure' (using password: YES). SSL is required"), "{plain}");
        if good {
            assert_eq!(python(CANCEL, &[&verify]), Ok("57014".into()));
            assert!(plane.plane.stats().sessions(Protocol::Pgsql).tls_failed == 0);
        }
    }
}

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f];

/// Sends bytes and reads until the other side closes.
fn talk(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.write_all(bytes).unwrap();
    let mut told = Vec::new();
    // A reset is as good an end as any.
    let _ = socket.read_to_end(&mut told);
    told
}

#[test]
fn what_pgsql_clients_may_not_send_around_tls() {
    let made = Shown::new();
    let plane = start(Protocol::Pgsql, shown(Protocol::Pgsql, &made.good), ("127.0.0.1", 1), ServerTls::Disable);
    let startup = b"\0\0\0\x13\0\x03\0\0user\0demo\0\0";
    let told = talk(plane.port, &[&SSL_REQUEST[..], startup].concat());
    let text = String::from_utf8_lossy(&told);
    assert!(
        told.first() == Some(&b'E') && text.contains("08P01") && text.contains("received unencrypted data after SSL request"),
        "{text}"
    );
    // Plain text where the handshake should be: an alert, no answer.
    let mut socket = TcpStream::connect(("127.0.0.1", plane.port)).unwrap();
    socket.write_all(&SSL_REQUEST).unwrap();
    let mut answer = [0];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [b'S']);
    socket.write_all(startup).unwrap();
    let mut told = Vec::new();
    let _ = socket.read_to_end(&mut told);
    assert!(told.first().is_none_or(|first| *first == 0x15), "{told:x?}");
    assert_eq!(plane.plane.stats().sessions(Protocol::Pgsql).tls_failed, 1);
    // Direct TLS is a hello, and nothing else.
    assert!(talk(plane.port, b"\x16\x03\x01\x00\x05hello").first().is_none_or(|first| *first == 0x15));
}
