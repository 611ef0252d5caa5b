//! The whole shell with a protocol that echoes, over real sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use super::*;
use crate::worker::WorkerContext;
use crate::worker::chunk::Chunk;
use crate::worker::driver;
use crate::worker::link::Link;
use crate::worker::session::SessionGuard;
use crate::worker::testing::{client, config, server};
use crate::worker::wait::Wake;

/// What a session is. In a box, so that the future of its task stays small.
struct Echo {
    link: Link,
    session: SessionGuard,
    ctx: Rc<WorkerContext>,
}

/// Echoes; `config` and `id` are answered, `panic` panics, and a drain says good-bye.
async fn echo(mut echo: Box<Echo>) {
    loop {
        echo.session.timer.arm(Duration::ZERO);
        let chunk = match echo.session.wait(&mut echo.link).await {
            Wake::Bytes(chunk) if !chunk.is_empty() => chunk,
            Wake::Signal(Signal::Drain) => return echo.link.send_at_once(b"bye"),
            _ => return,
        };
        Box::pin(echo.answer(chunk)).await;
    }
}

impl Echo {
    async fn answer(&mut self, chunk: Chunk) {
        let Self { link, session, ctx } = self;
        ctx.stats(Protocol::Mysql).queries.add(1);
        let reply = match &chunk[..] {
            b"panic" => panic!("as asked"),
            b"config" => ctx.chunks().copy_of(ctx.config().index.to_string().as_bytes()),
            b"id" => ctx.chunks().copy_of(session.id().to_string().as_bytes()),
            _ => chunk,
        };
        session.note("Query", ctx.ticker().now());
        // A client that closed is noticed by the next wait.
        let _ = link.send(reply).await;
    }
}

fn spawn_echo(link: Link, session: SessionGuard, ctx: Rc<WorkerContext>) {
    driver::spawn(echo(Box::new(Echo { link, session, ctx })));
}

fn start(threads: usize) -> (DataPlane, String) {
    let options = DataPlaneOptions { threads, slot: 3 };
    let handlers = Handlers { mysql: spawn_echo, pgsql: spawn_echo };
    let plane = DataPlane::start_with(options, config(1, &[server(1, "a", 5)]), handlers).unwrap();
    let address = plane.listen(Protocol::Mysql, "127.0.0.1:0").unwrap();
    (plane, address)
}

fn ask(socket: &mut (impl Read + Write), question: &str) -> String {
    socket.write_all(question.as_bytes()).unwrap();
    let mut answer = [0; 64];
    let count = socket.read(&mut answer).unwrap();
    String::from_utf8(answer[..count].to_vec()).unwrap()
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Until a condition of another thread holds.
fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
    }
}

#[test]
fn clients_are_spread_evenly_and_answered() {
    let (plane, address) = start(2);
    let mut clients: Vec<TcpStream> = (0..6).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let question = format!("hello {number}");
        assert_eq!(ask(client, &question), question);
    }
    let stats = plane.stats();
    assert_eq!(stats.workers, [3, 3]);
    let sessions = stats.sessions(Protocol::Mysql);
    assert_eq!((sessions.connected, sessions.created, sessions.queries), (6, 6, 6));
    assert_eq!(stats.pool.len(), 1);
    clients.truncate(2);
    until(|| plane.stats().workers.iter().sum::<usize>() == 2);
    assert_eq!(plane.stats().sessions(Protocol::Mysql).connected, 2);
    plane.shutdown();
}

#[test]
fn a_swapped_configuration_is_seen_by_the_next_statement() {
    let (plane, address) = start(2);
    let mut clients: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for index in 2..50 {
        plane.swap(config(index, &[]));
        for client in &mut clients {
            assert_eq!(ask(client, "config"), index.to_string());
        }
    }
    assert!(plane.stats().pool.is_empty());
    plane.shutdown();
}

#[test]
fn ids_carry_the_slot_and_find_their_session() {
    let (plane, address) = start(2);
    let mut clients: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let mut ids: Vec<u32> = clients.iter_mut().map(|client| ask(client, "id").parse().unwrap()).collect();
    assert!(ids.iter().all(|id| id >> 24 == 3));
    let victim = ids[2];
    let rows = wait(plane.process_list());
    ids.sort_unstable();
    let mut listed: Vec<u32> = rows.iter().map(|row| row.id).collect();
    listed.sort_unstable();
    assert_eq!(listed, ids);
    assert!(rows.iter().all(|row| row.facts.command == "Query"));
    assert!(wait(plane.signal(victim, Signal::Kill)));
    assert_eq!(clients[2].read(&mut [0; 8]).unwrap(), 0);
    until(|| !wait(plane.signal(victim, Signal::Kill)));
    assert_eq!(ask(&mut clients[1], "still here"), "still here");
    plane.shutdown();
}

#[test]
fn draining_closes_listeners_and_tells_idle_sessions() {
    let (plane, address) = start(1);
    let mut client = TcpStream::connect(&address).unwrap();
    ask(&mut client, "x");
    plane.begin_drain();
    assert!(TcpStream::connect(&address).is_err());
    assert!(plane.listen(Protocol::Mysql, "127.0.0.1:0").is_err());
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "bye");
    assert_eq!(wait(plane.drained(Duration::from_secs(60))), 0);
    plane.shutdown();
}

#[test]
fn sessions_that_do_not_drain_in_time_are_killed() {
    let (plane, address) = start(2);
    let mut clients: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(&address).unwrap()).collect();
    clients.iter_mut().for_each(|client| drop(ask(client, "x")));
    plane.begin_drain_over(Duration::from_secs(3600));
    wait(plane.kill_sessions());
    assert_eq!(wait(plane.drained(Duration::from_secs(60))), 0);
    plane.shutdown();
}

#[test]
fn a_panic_ends_one_session_and_is_counted() {
    let (plane, address) = start(1);
    let (mut bad, mut good) = (TcpStream::connect(&address).unwrap(), TcpStream::connect(&address).unwrap());
    bad.write_all(b"panic").unwrap();
    assert_eq!(bad.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(ask(&mut good, "fine"), "fine");
    until(|| plane.stats().panics == 1);
    assert_eq!(plane.stats().sessions(Protocol::Mysql).connected, 1);
    plane.shutdown();
}

#[test]
fn unix_sockets_replace_stale_ones_and_disappear() {
    let (plane, _) = start(1);
    let path = std::env::temp_dir().join(format!("quorumsql-test-{}.sock", std::process::id()));
    let name = path.to_str().unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert_eq!(plane.listen(Protocol::Pgsql, name).unwrap(), name);
    assert!(plane.listen(Protocol::Pgsql, name).is_err(), "somebody listens");
    let mut client = UnixStream::connect(&path).unwrap();
    assert_eq!(ask(&mut client, "hi"), "hi");
    assert_eq!(plane.stats().sessions(Protocol::Pgsql).connected, 1);
    plane.shutdown();
    assert!(!path.exists());
}

#[test]
fn the_future_of_a_waiting_session_is_small() {
    let workers = crate::worker::testing::Workers::new(1, config(1, &[]));
    let ctx = &workers.contexts[0];
    let (_far, front, session) = client(ctx, Protocol::Mysql);
    let future = echo(Box::new(Echo { link: front, session, ctx: Rc::clone(ctx) }));
    assert!(size_of_val(&future) <= 128, "{}", size_of_val(&future));
}
