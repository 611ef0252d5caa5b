//! A PostgreSQL server made of a script: what a statement's text asks for, it does, so that a test knows in which phase it is; it counts what it is
//! told to run.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use quorumsql_wire::pgsql::backend::{self, TransactionStatus};
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frontend::FrontendMessage;
use quorumsql_wire::pgsql::{frame, startup};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::until;

/// The server. Texts of statements: `begin`, `commit`, `rollback` do as they say; `… hang` is never answered; `half` answers with one of two rows,
/// `torn` with half a row; `copy in` and `copy out` begin their COPY; `alien` answers with a message that was not due; `bye` with FATAL;
/// all else is completed.
pub(crate) struct Fake {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    /// Statements that were to be run, in order.
    run: Mutex<Vec<String>>,
    copied: AtomicUsize,
    cancels: AtomicUsize,
    /// Connections that are open.
    open: AtomicUsize,
    /// Cancel requests have their effect.
    obeys: AtomicBool,
    /// Counts kills: connections of an older life are closed.
    life: watch::Sender<u32>,
    cancelled: watch::Sender<usize>,
    /// What becomes of logins: 0 = let in, 1 = no answer, 2 = closed, 3 = too many.
    login: AtomicUsize,
}

impl Fake {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            run: Mutex::default(),
            copied: AtomicUsize::new(0),
            cancels: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            obeys: AtomicBool::new(true),
            life: watch::channel(0).0,
            cancelled: watch::channel(0).0,
            login: AtomicUsize::new(0),
        });
        let server = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let shared = Arc::clone(&server);
                let mut life = shared.life.subscribe();
                shared.open.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut session = Session { socket, buffer: Vec::new(), status: TransactionStatus::Idle, shared, sql: String::new() };
                    tokio::select! {
                        _ = session.serve() => {}
                        // The socket closes as that of a killed process does.
                        _ = life.changed() => {}
                    }
                    let shared = Arc::clone(&session.shared);
                    drop(session);
                    shared.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { port, shared }
    }

    /// Kills all connections, as the end of the process does.
    pub(crate) async fn kill(&self) {
        self.shared.life.send_modify(|life| *life += 1);
        until("the connections are closed", || self.shared.open.load(Ordering::SeqCst) == 0).await;
    }

    /// Whether cancel requests have their effect.
    pub(crate) fn obey(&self, obeys: bool) {
        self.shared.obeys.store(obeys, Ordering::SeqCst);
    }

    /// What becomes of logins from now on.
    pub(crate) fn logins(&self, what: usize) {
        self.shared.login.store(what, Ordering::SeqCst);
    }

    /// How often `sql` was to be run.
    pub(crate) fn runs(&self, sql: &str) -> usize {
        self.shared.run.lock().expect("nobody panics while holding it").iter().filter(|run| *run == sql).count()
    }

    /// Waits until `sql` is being run.
    pub(crate) async fn reached(&self, sql: &str) {
        until(sql, || self.runs(sql) > 0).await;
    }

    /// Waits for COPY data.
    pub(crate) async fn copied(&self) {
        until("COPY data", || self.shared.copied.load(Ordering::SeqCst) > 0).await;
    }

    /// Waits until so many cancel requests have come.
    pub(crate) async fn cancelled(&self, count: usize) {
        until("a cancel request", || self.shared.cancels.load(Ordering::SeqCst) >= count).await;
    }
}

struct Session {
    socket: TcpStream,
    buffer: Vec<u8>,
    status: TransactionStatus,
    shared: Arc<Shared>,
    /// The statement that was parsed last.
    sql: String,
}

/// The connection is gone.
struct Gone;

impl Session {
    async fn serve(&mut self) -> Result<(), Gone> {
        loop {
            if let Ok(Some((packet, size))) = startup::decode_first_packet(&self.buffer) {
                self.buffer.drain(..size);
                if matches!(packet, startup::FirstPacket::Cancel { .. }) {
                    self.shared.cancels.fetch_add(1, Ordering::SeqCst);
                    if self.shared.obeys.load(Ordering::SeqCst) {
                        self.shared.cancelled.send_modify(|count| *count += 1);
                    }
                    return Ok(());
                }
                break;
            }
            self.read().await?;
        }
        let mut out = Vec::new();
        match self.shared.login.load(Ordering::SeqCst) {
            0 => {}
            1 => std::future::pending().await,
            2 => return Ok(()),
            _ => {
                ErrorFields::fatal("53300", "sorry, too many clients already").encode(&mut out);
                return self.write(&out).await;
            }
        }
        backend::authentication_ok(&mut out);
        backend::parameter_status(&mut out, b"server_version", b"15.0");
        backend::backend_key_data(&mut out, 1, &[1, 2, 3, 4]);
        backend::ready_for_query(&mut out, self.status);
        self.write(&out).await?;
        loop {
            let (tag, body) = self.next().await?;
            let message = FrontendMessage::decode(frame::Frame { tag, body: &body }).map_err(|_| Gone)?;
            let mut out = Vec::new();
            match message {
                FrontendMessage::Query(sql) => {
                    let sql = String::from_utf8_lossy(sql).into_owned();
                    self.run(&sql).await?;
                    backend::ready_for_query(&mut out, self.status);
                }
                FrontendMessage::Parse(parse) => {
                    self.sql = String::from_utf8_lossy(parse.sql).into_owned();
                    backend::parse_complete(&mut out);
                }
                FrontendMessage::Bind(_) => backend::bind_complete(&mut out),
                FrontendMessage::Describe(..) => backend::no_data(&mut out),
                FrontendMessage::Execute { .. } => {
                    let sql = self.sql.clone();
                    self.run(&sql).await?;
                }
                FrontendMessage::Close(..) => backend::close_complete(&mut out),
                FrontendMessage::Sync => backend::ready_for_query(&mut out, self.status),
                FrontendMessage::Terminate => return Ok(()),
                _ => {}
            }
            self.write(&out).await?;
        }
    }

    async fn run(&mut self, sql: &str) -> Result<(), Gone> {
        self.shared.run.lock().expect("nobody panics while holding it").push(sql.to_owned());
        let mut cancelled = self.shared.cancelled.subscribe();
        cancelled.mark_unchanged();
        let mut out = Vec::new();
        let row = |out: &mut Vec<u8>| backend::data_row(out, [Some(&b"1"[..])].into_iter());
        match sql {
            "half" | "torn" => {
                backend::row_description(&mut out, &[backend::Column::new("a", 25)]);
                row(&mut out);
                if sql == "torn" {
                    out.extend_from_slice(b"D\0\x10\0\0\0\x01\0\x0f\xff\xf0half a row");
                    out.resize(out.len() + 100_000, b'x');
                }
            }
            "copy in" => out.extend_from_slice(b"G\0\0\0\x07\0\0\0"),
            "copy out" => {
                out.extend_from_slice(b"H\0\0\0\x07\0\0\0");
                frame::encode(&mut out, b'd', |out| out.extend_from_slice(b"1\n"));
            }
            "alien" => backend::bind_complete(&mut out),
            "bye" => ErrorFields::fatal("57P01", "terminating connection due to administrator command").encode(&mut out),
            _ => {}
        }
        if sql == "bye" {
            self.write(&out).await?;
            return Err(Gone);
        }
        if out.is_empty() && !sql.ends_with("hang") {
            self.status = match sql {
                "begin" => TransactionStatus::InTransaction,
                "commit" | "rollback" => TransactionStatus::Idle,
                _ => self.status,
            };
            if sql.is_empty() {
                backend::empty_query(&mut out)
            } else {
                backend::command_complete(&mut out, &sql.to_uppercase())
            }
            return self.write(&out).await;
        }
        self.write(&out).await?;
        loop {
            tokio::select! {
                message = self.next() => {
                    if message?.0 == b'd' {
                        self.shared.copied.fetch_add(1, Ordering::SeqCst);
                    }
                }
                _ = cancelled.changed() => {
                    let mut out = Vec::new();
                    ErrorFields::error("57014", "canceling statement due to user request").encode(&mut out);
                    return self.write(&out).await;
                }
            }
        }
    }

    async fn next(&mut self) -> Result<(u8, Vec<u8>), Gone> {
        loop {
            if let Some(frame) = frame::decode(&self.buffer, usize::MAX).map_err(|_| Gone)? {
                let message = (frame.tag, frame.body.to_vec());
                let size = frame.size();
                self.buffer.drain(..size);
                return Ok(message);
            }
            self.read().await?;
        }
    }

    async fn read(&mut self) -> Result<(), Gone> {
        match self.socket.read_buf(&mut self.buffer).await {
            Ok(count) if count > 0 => Ok(()),
            _ => Err(Gone),
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        self.socket.write_all(bytes).await.map_err(|_| Gone)
    }
}
