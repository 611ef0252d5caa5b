//! What a port must survive: garbage, wrong lengths, wrong passwords, and clients in masses that never speak. Each gets its
//! error or a close, others log in meanwhile, memory stays.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use quorumsql_chaos::cluster::Demo;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::{ADMIN_MYSQL, ADMIN_PGSQL, MYSQL, PGSQL, admin, execute, mysql, one, pg_one, pgsql, run, try_mysql, try_pgsql};

const GRPC: u16 = 6034;
const PEER: u16 = 6035;
const HTTP: u16 = 6070;
const PORTS: [u16; 7] = [MYSQL, PGSQL, ADMIN_MYSQL, ADMIN_PGSQL, GRPC, PEER, HTTP];

/// Longest wait for a close: `connect_timeout_client` (10 s) and what a loaded machine adds. A limit against hanging.
const CLOSE_LIMIT: Duration = Duration::from_secs(60);

#[test]
fn garbage_on_every_port_ends_that_connection_only() {
    let demo = Demo::start(1, &[]);
    let host = demo.host(1);
    run(async {
        let beginnings = wrong_beginnings();
        let all = PORTS.iter().flat_map(|port| beginnings.iter().map(|bytes| throw(&host, *port, bytes)));
        futures::future::join_all(all).await;
        wrong_passwords(&host).await;
        works(&host).await;
        assert_eq!(demo.http(1, "/livez").map(|(code, _)| code), Some(200));
    });
}

#[test]
fn clients_in_masses_that_never_speak_keep_nobody_out() {
    raise_descriptor_limit();
    let demo = Demo::start(1, &[]);
    let (host, pid) = (demo.host(1), demo.pid(1));
    run(async {
        execute(&mut admin(&host).await, &["SET mysql-connect_timeout_client=5000", "SET pgsql-connect_timeout_client=5000"]).await;
        execute(&mut admin(&host).await, &["LOAD MYSQL VARIABLES TO RUNTIME", "LOAD PGSQL VARIABLES TO RUNTIME"]).await;
        // What every process allocates at its first clients does not count.
        silent(&host, 100).await;
        let start = resident(pid);
        silent(&host, 10_000).await;
        let first = settled(&host, pid, start + 64 * 1024).await;
        silent(&host, 10_000).await;
        let second = settled(&host, pid, first + 8 * 1024).await;
        println!("resident: {start} KiB, {first} KiB after the first round, {second} KiB after the second");
        works(&host).await;
    });
}

/// First packets that no client sends.
fn wrong_beginnings() -> Vec<Vec<u8>> {
    let noise: Vec<u8> = (0..70_000_u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let mut huge_mysql = vec![0xff, 0xff, 0xff, 1];
    huge_mysql.extend_from_slice(&noise);
    let mut huge_pgsql = 0x7fff_ffff_u32.to_be_bytes().to_vec();
    huge_pgsql.extend_from_slice(&196_608_u32.to_be_bytes());
    huge_pgsql.extend_from_slice(&noise);
    vec![
        Vec::new(),
        vec![0],
        vec![0; 4],
        vec![0xff; 64],
        noise[..33].to_vec(),
        noise,
        huge_mysql,
        huge_pgsql,
        // Truncated: a handshake response, a startup packet, a TLS hello, an HTTP/2 preface.
        vec![0x40, 0, 0, 1, 0x8d, 0xa6],
        vec![0, 0, 0, 64, 0, 3, 0, 0, b'u', b's'],
        vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
        b"PRI * HTTP/2.0\r\n".to_vec(),
        // Whole, and of the wrong protocol.
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec(),
        vec![0, 0, 0, 8, 4, 210, 22, 47, 0x15, 3, 3, 0, 2, 2, 40],
        vec![0, 0, 0, 8, 0, 0, 0, 0],
        vec![0, 0, 0, 0, 0, 0, 0, 0],
    ]
}

/// Sends bytes, says that there are no more, and reads whatever comes until the end of the connection.
async fn throw(host: &str, port: u16, bytes: &[u8]) {
    let mut socket = TcpStream::connect((host, port)).await.expect("the port takes connections");
    // It may be closed before all was sent.
    let _ = socket.write_all(bytes).await;
    let _ = socket.shutdown().await;
    ends(&mut socket, &format!("port {port}, {} bytes {:02x?}", bytes.len(), &bytes[..bytes.len().min(16)])).await;
}

/// Reads to the end, which must come.
async fn ends(socket: &mut TcpStream, what: &str) {
    let mut said = Vec::new();
    let end = tokio::time::timeout(CLOSE_LIMIT, socket.read_to_end(&mut said)).await;
    match end {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{what}: {error}"),
        Err(_) => panic!("{what}: still open, after {said:02x?}"),
    }
}

async fn wrong_passwords(host: &str) {
    for (port, user) in [(MYSQL, "demo"), (MYSQL, "nobody"), (ADMIN_MYSQL, "admin"), (ADMIN_MYSQL, "")] {
        match try_mysql(host, port, user, "wrong", None).await {
            Err(mysql_async::Error::Server(error)) => {
                assert_eq!((error.code, error.state.as_str()), (1045, "28000"), "port {port}, {user}")
            }
            other => panic!("port {port}, {user}: {:?}", other.map(|_| ())),
        }
    }
    for (port, user) in [(PGSQL, "demo"), (PGSQL, "nobody"), (ADMIN_PGSQL, "admin")] {
        let settings = format!("host={host} port={port} user={user} password=wrong dbname=demo connect_timeout=30");
        let error = tokio_postgres::connect(&settings, tokio_postgres::NoTls).await.map(|_| ()).expect_err("a wrong password");
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("28P01"), "port {port}, {user}: {error}");
    }
}

/// Connects `many` times to each traffic port and 500 times to each other one and says nothing; meanwhile others work; in
/// the end all are closed.
async fn silent(host: &str, many: usize) {
    let held = async |port: u16, count: usize| {
        let mut sockets = Vec::with_capacity(count);
        for _ in 0..count {
            sockets.push(TcpStream::connect((host, port)).await.expect("the port takes connections"));
        }
        works(host).await;
        for socket in &mut sockets {
            ends(socket, &format!("silent on port {port}")).await;
        }
    };
    for port in [MYSQL, PGSQL] {
        held(port, many).await;
    }
    let others = [ADMIN_MYSQL, ADMIN_PGSQL, GRPC, PEER, HTTP];
    futures::future::join_all(others.map(|port| held(port, many.min(500)))).await;
}

/// Ordinary logins and queries on all ports.
async fn works(host: &str) {
    assert_eq!(one(&mut mysql(host).await, "SELECT 41 + 1").await, "42");
    assert_eq!(pg_one(&pgsql(host).await, "SELECT 41 + 1").await, "42");
    assert_eq!(one(&mut admin(host).await, "SELECT 41 + 1").await, "42");
    let admin = try_pgsql(host, ADMIN_PGSQL, "admin", "admin").await.expect("a login on the admin port");
    assert_eq!(pg_one(&admin, "SELECT 41 + 1").await, "42");
    let live = livez(host).await;
    assert!(live.contains("200 OK"), "{live}");
}

async fn livez(host: &str) -> String {
    let mut socket = TcpStream::connect((host, HTTP)).await.expect("the port takes connections");
    socket.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.expect("a request");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.expect("an answer");
    answer
}

/// Ten thousand sockets on either side: the node inherits what this process may have.
fn raise_descriptor_limit() {
    const WANTED: u64 = 12_000;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < WANTED) {
        let maximum = maximum.map(|maximum| maximum.max(WANTED));
        setrlimit(Resource::Nofile, Rlimit { current: Some(WANTED), maximum }).expect("root may raise the limit of descriptors");
    }
}

/// Resident memory in KiB once it is below `limit`. The allocator gives pages back some seconds after they were freed, and only
/// while it is in use.
async fn settled(host: &str, pid: u32, limit: u64) -> u64 {
    let hang = Instant::now() + CLOSE_LIMIT;
    loop {
        let now = resident(pid);
        if now < limit {
            return now;
        }
        assert!(Instant::now() < hang, "{now} KiB do not become less than {limit} KiB");
        works(host).await;
        tokio::time::sleep(Duration::from_millis(200)).await; // the pause between two looks
    }
}

/// Resident memory in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the node lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number of kB")
}
