//! A scripted server: it speaks enough of the protocol to be believed, writes down what it was asked to run, and does what
//! its script says at one exact point of an exchange.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use parking_lot::Mutex;
use quorumsql_wire::mysql::column::{Column, End, write_binary_row, write_columns, write_definitions, write_text_row};
use quorumsql_wire::mysql::command::byte;
use quorumsql_wire::mysql::error_code::ErrorCode;
use quorumsql_wire::mysql::handshake::{Greeting, HandshakeResponse, NATIVE, new_scramble};
use quorumsql_wire::mysql::params::Value;
use quorumsql_wire::mysql::response::PrepareOk;
use quorumsql_wire::mysql::{Capabilities, ErrPacket, OkPacket, PacketWriter, Status, decode_packet};

/// Where in an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum At {
    /// A connection has come, nothing is said yet.
    Accept,
    /// The client's answer to the greeting has come.
    Login,
    /// A command whose text begins so has come: `Q:` + query, `P:` + prepare, `E:` execute, `I:` + schema, `R:` reset.
    Command(&'static str),
    /// The answer to it has gone out whole.
    After(&'static str),
}

/// What the server does there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// Closes.
    Close,
    /// Says nothing more, for ever.
    Stall,
    /// Sends the head of a result, then the rest of `then`.
    Head(Then),
    /// Sends the head and half of a row.
    HalfRow(Then),
    /// Sends one whole result and announces another.
    FirstOfTwo(Then),
    /// Sends an error.
    Error(ErrorCode, &'static str),
}

/// How a part of an answer goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    Close,
    Stall,
}

/// A line of the script: done `times` times.
#[derive(Clone, Copy, Debug)]
struct Line {
    at: At,
    act: Act,
    times: u32,
}

#[derive(Default)]
struct Play {
    script: Mutex<Vec<Line>>,
    log: Mutex<Vec<String>>,
    connections: AtomicU32,
    closed: AtomicU32,
}

/// The server; it serves until the test ends.
pub(crate) struct Fake {
    pub(crate) port: u16,
    play: Arc<Play>,
}

impl Fake {
    /// Starts one.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let play = Arc::new(Play::default());
        let shared = Arc::clone(&play);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let play = Arc::clone(&shared);
                thread::spawn(move || Connection::new(socket, play).serve());
            }
        });
        Self { port, play }
    }

    /// Adds a line to the script.
    pub(crate) fn script(&self, at: At, act: Act, times: u32) {
        self.play.script.lock().push(Line { at, act, times });
    }

    /// Forgets what is left of the script, and the log.
    pub(crate) fn forget(&self) {
        self.play.script.lock().clear();
        self.play.log.lock().clear();
    }

    /// What was asked, in order.
    pub(crate) fn log(&self) -> Vec<String> {
        self.play.log.lock().clone()
    }

    /// How often something that begins so was asked.
    pub(crate) fn count(&self, start: &str) -> usize {
        self.play.log.lock().iter().filter(|text| text.starts_with(start)).count()
    }

    /// Connections that the server has closed.
    pub(crate) fn closed(&self) -> u32 {
        self.play.closed.load(Ordering::Acquire)
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> u32 {
        self.play.connections.load(Ordering::Relaxed)
    }
}

struct Connection {
    socket: TcpStream,
    play: Arc<Play>,
    bytes: Vec<u8>,
    sequence: u8,
    capabilities: Capabilities,
    status: Status,
}

/// The connection is over.
struct Over;

impl Connection {
    fn new(socket: TcpStream, play: Arc<Play>) -> Self {
        Self { socket, play, bytes: Vec::new(), sequence: 0, capabilities: Capabilities::NONE, status: Status::AUTOCOMMIT }
    }

    fn serve(mut self) {
        let _over: Result<(), Over> = self.log_in().and_then(|()| {
            loop {
                self.command()?;
            }
        });
        let Self { socket, play, .. } = self;
        drop(socket);
        play.closed.fetch_add(1, Ordering::Release);
    }

    /// Does what the script says here; `false` = nothing.
    fn act(&mut self, is_here: impl Fn(At) -> bool) -> Result<bool, Over> {
        let act = {
            let mut script = self.play.script.lock();
            let line = script.iter_mut().find(|line| line.times > 0 && is_here(line.at));
            line.map(|line| {
                line.times -= 1;
                line.act
            })
        };
        let Some(act) = act else { return Ok(false) };
        let then = match act {
            Act::Close => Then::Close,
            Act::Stall => Then::Stall,
            Act::Error(code, text) => {
                self.send(|packets, _, _| packets.packet(|out| ErrPacket::new(code, text).encode(out)))?;
                return Ok(true);
            }
            Act::Head(then) => {
                self.send(|packets, capabilities, status| write_columns(&[column()], capabilities, status, packets))?;
                then
            }
            Act::HalfRow(then) => {
                self.send(|packets, capabilities, status| write_columns(&[column()], capabilities, status, packets))?;
                let header = [200, 0, 0, self.sequence, b'x', b'x'];
                self.socket.write_all(&header).map_err(|_| Over)?;
                then
            }
            Act::FirstOfTwo(then) => {
                self.status = self.status.with(Status::MORE_RESULTS);
                self.result()?;
                then
            }
        };
        if then == Then::Stall {
            // Until the other side gives up.
            let _end = self.socket.read_to_end(&mut Vec::new());
        }
        Err(Over)
    }

    fn log_in(&mut self) -> Result<(), Over> {
        let id = self.play.connections.fetch_add(1, Ordering::Relaxed) + 1;
        self.act(|at| at == At::Accept)?;
        let greeting = Greeting {
            server_version: "9.9.9-fake".into(),
            connection_id: id,
            scramble: new_scramble().unwrap(),
            capabilities: Capabilities::SERVER_DEFAULT,
            charset: 45,
            status: Status::AUTOCOMMIT,
            plugin: NATIVE.into(),
        };
        self.send(|packets, _, _| packets.packet(|out| greeting.encode(out)))?;
        let payload = self.packet()?;
        self.capabilities = HandshakeResponse::decode(&payload).map_err(|_| Over)?.capabilities & Capabilities::SERVER_DEFAULT;
        if self.act(|at| at == At::Login)? { Err(Over) } else { self.ok() }
    }

    fn command(&mut self) -> Result<(), Over> {
        let payload = self.packet()?;
        let (&command, body) = payload.split_first().ok_or(Over)?;
        let text = String::from_utf8_lossy(body);
        let name = match command {
            byte::QUERY => format!("Q:{text}"),
            byte::STMT_PREPARE => format!("P:{text}"),
            byte::STMT_EXECUTE => "E:".to_owned(),
            byte::INIT_DB => format!("I:{text}"),
            byte::RESET_CONNECTION => "R:".to_owned(),
            byte::QUIT => return Err(Over),
            byte::STMT_CLOSE => return Ok(()),
            other => format!("{other}:"),
        };
        self.play.log.lock().push(name.clone());
        if self.act(|at| matches!(at, At::Command(start) if name.starts_with(start)))? {
            return Ok(());
        }
        self.answer(command, &text)?;
        self.act(|at| matches!(at, At::After(start) if name.starts_with(start)))?;
        Ok(())
    }

    fn answer(&mut self, command: u8, text: &str) -> Result<(), Over> {
        match command {
            byte::STMT_PREPARE => {
                let prepared = PrepareOk { statement: 7, columns: 1, ..PrepareOk::default() };
                self.send(|packets, capabilities, status| {
                    packets.packet(|out| prepared.encode(out));
                    write_definitions(&[column()], capabilities, status, packets);
                })
            }
            byte::STMT_EXECUTE => self.send(|packets, capabilities, status| {
                write_columns(&[column()], capabilities, status, packets);
                write_binary_row(&[column()], &[Value::Int(1)], packets);
                End { status, warnings: 0 }.write(capabilities, packets);
            }),
            byte::QUERY if text.starts_with("SELECT") => self.result(),
            _ => {
                match text {
                    "BEGIN" => self.status = self.status.with(Status::IN_TRANS),
                    "COMMIT" | "ROLLBACK" => self.status = Status::AUTOCOMMIT,
                    _ => {}
                }
                self.ok()
            }
        }
    }

    fn result(&mut self) -> Result<(), Over> {
        self.send(|packets, capabilities, status| {
            write_columns(&[column()], capabilities, status, packets);
            write_text_row([Some(&b"1"[..])], packets);
            End { status, warnings: 0 }.write(capabilities, packets);
        })
    }

    fn ok(&mut self) -> Result<(), Over> {
        self.send(|packets, _, status| packets.packet(|out| OkPacket { status, ..OkPacket::default() }.encode(0, out)))
    }

    fn send(&mut self, fill: impl FnOnce(&mut PacketWriter<'_>, Capabilities, Status)) -> Result<(), Over> {
        let mut out = Vec::new();
        let mut packets = PacketWriter::new(&mut out, self.sequence);
        fill(&mut packets, self.capabilities, self.status);
        self.sequence = packets.sequence();
        self.socket.write_all(&out).map_err(|_| Over)
    }

    fn packet(&mut self) -> Result<Vec<u8>, Over> {
        loop {
            if let Some(packet) = decode_packet(&self.bytes, 1 << 24).map_err(|_| Over)? {
                let (payload, consumed) = (packet.payload.to_vec(), packet.consumed);
                self.sequence = packet.sequence.wrapping_add(1);
                self.bytes.drain(..consumed);
                return Ok(payload);
            }
            let mut buffer = [0; 4096];
            match self.socket.read(&mut buffer) {
                Ok(0) | Err(_) => return Err(Over),
                Ok(count) => self.bytes.extend_from_slice(&buffer[..count]),
            }
        }
    }
}

fn column() -> Column {
    Column::integer("1")
}
