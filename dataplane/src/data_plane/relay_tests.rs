//! Workers, pool and links together under load: a protocol whose messages are lines, in front of a server that echoes them.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::thread;

use super::*;
use crate::config::{HostgroupId, Server};
use crate::pool::{ConnectError, Dialect, KeyParts, Pool, PoolKey, Request};
use crate::worker::WorkerContext;
use crate::worker::chunk::Chunk;
use crate::worker::driver;
use crate::worker::link::{Link, LinkParcel, Watched};
use crate::worker::session::SessionGuard;
use crate::worker::testing::{config, server};
use crate::worker::wait::Wake;

struct Lines;

impl Dialect for Lines {
    const PROTOCOL: Protocol = Protocol::Mysql;
    type Backend = Link;
    type Login = ();
    type Parcel = LinkParcel;

    async fn connect(ctx: Rc<WorkerContext>, server: Arc<Server>, _key: PoolKey, (): &()) -> Result<Link, ConnectError> {
        Ok(ctx.connect(&server.address).await?)
    }

    fn link(backend: &mut Link) -> &mut Link {
        backend
    }

    fn goodbye() -> &'static [u8] {
        b""
    }

    fn pack(backend: Link) -> io::Result<LinkParcel> {
        backend.into_parcel()
    }

    fn unpack(parcel: LinkParcel, ctx: &WorkerContext) -> io::Result<Link> {
        Link::from_parcel(parcel, ctx.chunks().clone())
    }
}

struct Session {
    link: Link,
    session: SessionGuard,
    ctx: Rc<WorkerContext>,
    pool: Rc<Pool<Lines>>,
    key: PoolKey,
}

fn spawn(link: Link, session: SessionGuard, ctx: Rc<WorkerContext>) {
    // Sessions of odd and even ids are of two users that cannot share connections.
    let user = (session.id() % 2).to_string();
    let (pool, key) = (Pool::of(&ctx), PoolKey::new(KeyParts { user, ..KeyParts::default() }));
    driver::spawn(serve(Box::new(Session { link, session, ctx, pool, key })));
}

async fn serve(mut session: Box<Session>) {
    while let Wake::Bytes(line) = session.session.wait(&mut session.link).await {
        if line.is_empty() || Box::pin(session.relay(line)).await.is_err() {
            return;
        }
    }
}

impl Session {
    async fn relay(&mut self, line: Chunk) -> io::Result<()> {
        let Self { link, session, ctx, pool, key } = self;
        let config = ctx.config();
        let request = Request { session, client: link, key, login: &(), hostgroup: HostgroupId(1) };
        let mut server = pool.acquire(&config, request).await.map_err(io::Error::other)?;
        server.send(line).await?;
        let Watched::Bytes(answer) = server.recv_watching(link).await? else { return Ok(()) };
        server.cells().queries.add(1);
        server.release();
        self.link.send(answer).await
    }
}

/// A server that answers each line by it; ends with the test process.
fn echo_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut answers = socket.try_clone().unwrap();
                for line in BufReader::new(socket).lines().map_while(Result::ok) {
                    // One write: the relay of this test takes one chunk for an answer.
                    if answers.write_all(format!("{line}\n").as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

fn client(address: &str, number: usize, lines: usize) {
    let socket = TcpStream::connect(address).unwrap();
    let mut answers = BufReader::new(socket.try_clone().unwrap()).lines();
    for line in 0..lines {
        let question = format!("client {number} line {line}");
        // One write, as a client of a real protocol does.
        (&socket).write_all(format!("{question}\n").as_bytes()).unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), question);
    }
}

#[test]
fn many_clients_share_few_connections_without_losing_an_answer() {
    const CLIENTS: usize = 12;
    const LINES: usize = 60;
    const MAX: u32 = 3;
    let mut target = server(1, "127.0.0.1", MAX);
    target.address.port = echo_server();
    let options = DataPlaneOptions { threads: 3, slot: 1 };
    let plane = DataPlane::start_with(options, config(1, &[target]), Handlers { mysql: spawn, pgsql: spawn }).unwrap();
    let address = plane.listen(Protocol::Mysql, "127.0.0.1:0").unwrap();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let address = address.clone();
            thread::spawn(move || client(&address, number, LINES))
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    let stats = plane.stats();
    let row = &stats.pool[0];
    assert_eq!((row.queries, row.err), ((CLIENTS * LINES) as u64, 0));
    assert!(row.used + row.free <= u64::from(MAX), "{row:?}");
    plane.shutdown();
}
