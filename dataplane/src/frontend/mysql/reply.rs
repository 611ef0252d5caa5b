//! Answers of our own to a client.

use quorumsql_wire::mysql::column::{Column, End, write_columns, write_text_row};
use quorumsql_wire::mysql::error_code::ErrorCode;
use quorumsql_wire::mysql::{Capabilities, EofPacket, ErrPacket, OkPacket, PacketWriter, Status};

use super::{Client, Flow};
use crate::config::Protocol;
use crate::worker::link::Link;

/// Sends packets that `fill` writes, the first with `sequence`. A broken client shows at the next receive.
pub(super) async fn send_packets(link: &mut Link, sequence: u8, fill: impl FnOnce(&mut PacketWriter<'_>)) -> usize {
    let mut bytes = Vec::new();
    fill(&mut PacketWriter::new(&mut bytes, sequence));
    if let Err(error) = link.send_bytes(&bytes).await {
        tracing::debug!(%error, client = %link.peer_addr(), "answer not sent");
    }
    bytes.len()
}

impl Client {
    /// Status of answers that no server gave.
    pub(super) fn status(&self) -> Status {
        let mut status = if self.state.autocommit { Status::AUTOCOMMIT } else { Status::default() };
        for (holds, bit) in [
            (self.state.pins.transaction, Status::IN_TRANS),
            (self.state.no_backslash_escapes, Status::NO_BACKSLASH_ESCAPES),
            (self.state.tells_ansi_quotes, Status::ANSI_QUOTES),
        ] {
            if holds {
                status = status.with(bit);
            }
        }
        status
    }

    async fn send(&mut self, sequence: u8, fill: impl FnOnce(&mut PacketWriter<'_>)) {
        let sent = send_packets(&mut self.link, sequence, fill).await;
        self.ctx.stats(Protocol::Mysql).bytes_sent.add(sent as u64);
    }

    /// OK with an optional text; `sequence` is that of the request's last packet + 1.
    pub(super) async fn send_ok(&mut self, sequence: u8, info: &str) -> Flow {
        let ok = OkPacket { status: self.status(), info: info.as_bytes(), ..OkPacket::default() };
        self.send(sequence, |packets| packets.packet(|out| ok.encode(0, out))).await;
        Flow::Continue
    }

    /// EOF, or OK with 0xFE for a client with DEPRECATE_EOF.
    pub(super) async fn send_eof(&mut self, sequence: u8) -> Flow {
        let status = self.status();
        let modern = self.capabilities.contains(Capabilities::DEPRECATE_EOF);
        self.send(sequence, |packets| {
            packets.packet(|out| {
                if modern {
                    OkPacket { status, ..OkPacket::default() }.encode(0xfe, out);
                } else {
                    EofPacket { status, warnings: 0 }.encode(out);
                }
            });
        })
        .await;
        Flow::Continue
    }

    /// ERR.
    pub(super) async fn send_error(&mut self, sequence: u8, code: ErrorCode, message: impl Into<String>) -> Flow {
        let err = ErrPacket::new(code, message);
        self.send(sequence, |packets| packets.packet(|out| err.encode(out))).await;
        Flow::Continue
    }

    /// A payload as it is (a server's ERR).
    pub(super) async fn send_payload(&mut self, sequence: u8, payload: &[u8]) -> Flow {
        self.send(sequence, |packets| packets.payload(payload)).await;
        Flow::Continue
    }

    /// A result set of texts.
    pub(super) async fn send_rows(&mut self, sequence: u8, columns: &[Column], rows: &[&[&str]]) -> Flow {
        let capabilities = self.capabilities;
        let status = self.status();
        self.rows.sent = rows.len() as u64;
        self.send(sequence, |packets| {
            write_columns(columns, capabilities, status, packets);
            for row in rows {
                write_text_row(row.iter().map(|value| Some(value.as_bytes())), packets);
            }
            End { status, warnings: 0 }.write(capabilities, packets);
        })
        .await;
        Flow::Continue
    }
}
