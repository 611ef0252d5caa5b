//! A client that sends and reads single messages.
#![allow(clippy::unwrap_used, reason = "a step that fails is the test's failure")]

use quorumsql_wire::pgsql::auth::{CleartextPolicy, ClientAuth, ClientStep};
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::{frame, startup};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::Plane;

/// A client made of bytes.
pub(crate) struct Raw {
    pub(crate) socket: TcpStream,
    buffer: Vec<u8>,
    /// Of its BackendKeyData.
    pub(crate) key: Vec<u8>,
}

impl Raw {
    pub(crate) async fn open(plane: &Plane) -> Self {
        Self { socket: TcpStream::connect(("127.0.0.1", plane.port)).await.unwrap(), buffer: Vec::new(), key: Vec::new() }
    }

    pub(crate) async fn login(plane: &Plane) -> Self {
        let raw = Self::login_at(plane.port).await;
        assert_eq!(raw.key[0], 3, "process ids carry the slot");
        raw
    }

    pub(crate) async fn login_at(port: u16) -> Self {
        let mut raw = Self { socket: TcpStream::connect(("127.0.0.1", port)).await.unwrap(), buffer: Vec::new(), key: Vec::new() };
        raw.send(|out| startup::startup_message(out, [("user", "demo"), ("database", "demo")])).await;
        let mut auth = ClientAuth::new("demo", "demo", CleartextPolicy::Refuse);
        loop {
            let (tag, body) = raw.next().await.unwrap();
            assert_eq!(tag, b'R', "{}", String::from_utf8_lossy(&body));
            let mut out = Vec::new();
            let step = auth.on_request(&body, &[7; 18], &mut out).unwrap();
            raw.socket.write_all(&out).await.unwrap();
            if step == ClientStep::Done {
                break;
            }
        }
        loop {
            match raw.next().await.unwrap() {
                (b'K', body) => raw.key = body,
                (b'Z', _) => break,
                (tag, _) => assert_eq!(tag, b'S'),
            }
        }
        raw
    }

    /// Sends a cancel request for what this client runs, and waits for its end.
    pub(crate) async fn cancel(&self, plane: &Plane) {
        let mut other = Self::open(plane).await;
        let (pid, secret) = self.key.split_at(4);
        other.send(|out| startup::cancel_request(out, u32::from_be_bytes(pid.try_into().unwrap()), secret)).await;
        assert!(other.next().await.is_none(), "a cancel request is not answered");
    }

    pub(crate) async fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        encode(&mut out);
        self.socket.write_all(&out).await.unwrap();
    }

    /// The next message; `None` = closed.
    pub(crate) async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some(frame) = frame::decode(&self.buffer, usize::MAX).unwrap() {
                let message = (frame.tag, frame.body.to_vec());
                let size = frame.size();
                self.buffer.drain(..size);
                return Some(message);
            }
            if self.socket.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Tags up to ReadyForQuery, whose status follows its tag; parameters and notices are left out.
    pub(crate) async fn tags(&mut self) -> String {
        self.tags_until(b'Z').await
    }

    pub(crate) async fn tags_until(&mut self, last: u8) -> String {
        let mut tags = String::new();
        while let Some((tag, body)) = self.next().await {
            if !matches!(tag, b'S' | b'N') {
                tags.push(tag as char);
            }
            if tag == b'Z' {
                tags.push(body[0] as char);
            }
            if tag == last {
                break;
            }
        }
        tags
    }

    /// The error that comes last, and that the connection ends with it.
    pub(crate) async fn last_words(&mut self) -> (String, String) {
        let mut last = None;
        while let Some((tag, body)) = self.next().await {
            last = (tag == b'E').then(|| ErrorFields::decode(&body).unwrap());
        }
        let fields = last.expect("an error before the end");
        (fields.code, fields.message)
    }
}
