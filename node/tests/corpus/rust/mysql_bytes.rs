//! A plain client of the MySQL protocol that shows every packet, byte by byte.
//!
//! What names the connection or a statement, and what a server tells of session state, is decoded, so that
//! `differences.rs` can name it; everything else is the packet as it came, with its sequence id.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::bail;
use quorumsql_wire::mysql::client_auth::{ClientAuth, ClientStep};
use quorumsql_wire::mysql::command::byte;
use quorumsql_wire::mysql::handshake::{Greeting, HandshakeResponse, Scramble};
use quorumsql_wire::mysql::reader::Reader;
use quorumsql_wire::mysql::response::PrepareOk;
use quorumsql_wire::mysql::server_auth::Proof;
use quorumsql_wire::mysql::writer::Put as _;
use quorumsql_wire::mysql::{Capabilities, EofPacket, OkPacket, PacketWriter, Status, decode_packet};
use serde_json::{Value, json};

use super::hex;
use super::mysql_values::{bytes_of, is_text, value};
use crate::cases::{Parameter, Step};
use crate::node::Target;

/// Kinds of step that it knows.
pub(crate) const KINDS: &[&str] =
    &["query", "prepare", "fetch", "long_data", "ping", "reset", "keep", "run", "forget", "init_db", "field_list", "set_option"];

/// Packets longer than any of the corpus are an error.
const LONGEST: usize = 64 << 20;
/// Rows of a result that are shown one by one; the others are shown as one.
const SHOWN: usize = 30;

const BASIC: Capabilities = Capabilities::PROTOCOL_41
    .with(Capabilities::LONG_PASSWORD)
    .with(Capabilities::LONG_FLAG)
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::MULTI_STATEMENTS)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::PS_MULTI_RESULTS);

/// A client that hears of session state, or not. With it, results end with OK packets instead of EOF packets.
pub(crate) struct Client<const HEARS_STATE: bool> {
    stream: TcpStream,
    buffer: Vec<u8>,
    capabilities: Capabilities,
    kept: HashMap<String, PrepareOk>,
}

/// A packet as it came.
struct Packet {
    sequence: u8,
    payload: Vec<u8>,
}

impl Packet {
    fn shown(&self) -> Value {
        json!([self.sequence, hex(&self.payload)])
    }

    fn is_error(&self) -> bool {
        self.payload.first() == Some(&0xff)
    }

    /// An EOF packet, or the OK packet in its place: no row starts so.
    fn ends_rows(&self) -> bool {
        self.payload.first() == Some(&0xfe) && self.payload.len() < 0xff_ffff
    }
}

impl<const HEARS_STATE: bool> super::Client for Client<HEARS_STATE> {
    fn connect(target: &Target) -> anyhow::Result<(Self, Value)> {
        let stream = TcpStream::connect((target.host.as_str(), target.port))?;
        stream.set_nodelay(true)?;
        let wanted = if HEARS_STATE { BASIC.with(Capabilities::DEPRECATE_EOF).with(Capabilities::SESSION_TRACK) } else { BASIC };
        let mut connection = Self { stream, buffer: Vec::new(), capabilities: wanted, kept: HashMap::new() };
        let greeting = Greeting::decode(&connection.packet()?.payload)?;
        let facts = json!({
            "server_version": greeting.server_version, "connection_id": greeting.connection_id, "server_charset": greeting.charset,
            "status": greeting.status.0, "server_capabilities": greeting.capabilities.0, "server_plugin": greeting.plugin,
        });
        let ok = connection.log_in(&greeting.plugin, greeting.scramble)?;
        Ok((connection, json!([facts, ok])))
    }

    fn step(&mut self, step: &Step, results: &mut Vec<Value>) -> anyhow::Result<()> {
        let text = step.sql.as_bytes();
        match step.kind.as_str() {
            "query" => self.command(byte::QUERY, text, results),
            "init_db" => self.command(byte::INIT_DB, text, results),
            "set_option" => self.command(byte::SET_OPTION, &[step.size as u8, 0], results),
            "field_list" => self.field_list(&[text, b"\0"].concat(), results),
            "ping" => self.command(byte::PING, &[], results),
            "reset" => self.command(byte::RESET_CONNECTION, &[], results),
            "keep" => {
                let prepared = self.prepare(text, results)?;
                self.kept.insert(step.name.clone(), prepared);
                Ok(())
            }
            "run" => match self.kept.get(&step.name) {
                Some(prepared) => self.execute(*prepared, step, results),
                None => bail!("it could not be prepared"),
            },
            "forget" => match self.kept.remove(&step.name) {
                Some(prepared) => self.forget(prepared),
                None => Ok(()),
            },
            _ => {
                let prepared = self.prepare(text, results)?;
                let done =
                    if step.kind == "fetch" { self.fetch(prepared, step.size, results) } else { self.execute(prepared, step, results) };
                self.forget(prepared)?;
                done
            }
        }
    }

    fn close(mut self) {
        let _goodbye = self.send(&[byte::QUIT], 0);
        let _end = self.stream.read(&mut [0]);
    }
}

impl<const HEARS_STATE: bool> Client<HEARS_STATE> {
    fn log_in(&mut self, plugin: &str, scramble: Scramble) -> anyhow::Result<Value> {
        let proof = Proof::Clear(b"demo".to_vec().into());
        let (mut auth, plugin, reply) = ClientAuth::begin(proof, plugin, scramble, false)?;
        let response = HandshakeResponse {
            capabilities: self.capabilities,
            max_packet: u32::try_from(LONGEST)?,
            charset: 45,
            user: b"demo",
            auth: &reply,
            schema: Some(b"demo"),
            plugin: Some(plugin.as_bytes()),
            attributes: &[],
        };
        let mut payload = Vec::new();
        response.encode(&mut payload);
        self.send(&payload, 1)?;
        loop {
            let packet = self.packet()?;
            match auth.on_packet(&packet.payload)? {
                ClientStep::Send(answer) => self.send(&answer, packet.sequence.wrapping_add(1))?,
                ClientStep::Wait => {}
                // Its sequence id depends on the plugin.
                ClientStep::Done => return Ok(json!({ "ok": self.ok(&packet)?.0[1] })),
            }
        }
    }

    /// A command and all its results.
    fn command(&mut self, command: u8, body: &[u8], results: &mut Vec<Value>) -> anyhow::Result<()> {
        self.send(&[&[command], body].concat(), 0)?;
        while self.result(results)?.contains(Status::MORE_RESULTS) {}
        Ok(())
    }

    /// One result; its status. A cursor's rows come later.
    fn result(&mut self, results: &mut Vec<Value>) -> anyhow::Result<Status> {
        let first = self.packet()?;
        match first.payload.first() {
            Some(0xff) => bail!("{}", first.shown()),
            Some(0) => {
                let (shown, status) = self.ok(&first)?;
                results.push(json!({ "ok": shown }));
                Ok(status)
            }
            Some(0xfe) => self.end(&first, results),
            _ => {
                let count = Reader::new(&first.payload).lenenc("column count")?;
                let mut packets = vec![first.shown()];
                for _ in 0..count {
                    packets.push(self.packet()?.shown());
                }
                results.push(json!({ "columns": packets }));
                if !HEARS_STATE {
                    let end = self.packet()?;
                    let status = self.end(&end, results)?;
                    if status.contains(Status::CURSOR_EXISTS) {
                        return Ok(status);
                    }
                }
                self.rows(results)
            }
        }
    }

    /// Rows up to their end.
    fn rows(&mut self, results: &mut Vec<Value>) -> anyhow::Result<Status> {
        let (mut shown, mut others, mut count) = (Vec::new(), Vec::new(), 0);
        let end = loop {
            let packet = self.packet()?;
            if packet.is_error() || packet.ends_rows() {
                break packet;
            }
            count += 1;
            if count <= SHOWN {
                shown.push(packet.shown());
            } else {
                others.push(packet.sequence);
                others.extend(packet.payload);
            }
        };
        results.push(json!({ "rows": shown, "count": count, "others": hex(&others) }));
        if end.is_error() {
            bail!("{}", end.shown());
        }
        self.end(&end, results)
    }

    /// What ends columns or rows.
    fn end(&self, packet: &Packet, results: &mut Vec<Value>) -> anyhow::Result<Status> {
        if HEARS_STATE {
            let (shown, status) = self.ok(packet)?;
            results.push(json!({ "end": shown }));
            return Ok(status);
        }
        let eof = EofPacket::decode(&packet.payload)?;
        let mut rest = Vec::new();
        EofPacket { status: eof.status.without(Status::SESSION_STATE_CHANGED), ..eof }.encode(&mut rest);
        let changed = eof.status.contains(Status::SESSION_STATE_CHANGED);
        results.push(json!({ "end": [packet.sequence, hex(&rest), { "session_state": changed }] }));
        Ok(eof.status)
    }

    /// An OK packet: as it came, but for the session state at its end, which is shown beside it.
    fn ok(&self, packet: &Packet) -> anyhow::Result<(Value, Status)> {
        let ok = OkPacket::decode(&packet.payload, self.capabilities)?;
        if !HEARS_STATE {
            return Ok((packet.shown(), ok.status));
        }
        let mut rest = packet.payload.clone();
        if ok.status.contains(Status::SESSION_STATE_CHANGED) {
            rest.clear();
            OkPacket { state: &[], ..ok }.encode(packet.payload[0], &mut rest);
        }
        Ok((json!([packet.sequence, hex(&rest), { "session_state": hex(ok.state) }]), ok.status))
    }

    fn prepare(&mut self, sql: &[u8], results: &mut Vec<Value>) -> anyhow::Result<PrepareOk> {
        self.send(&[&[byte::STMT_PREPARE], sql].concat(), 0)?;
        let first = self.packet()?;
        if first.is_error() {
            bail!("{}", first.shown());
        }
        let prepared = PrepareOk::decode(&first.payload)?;
        let mut packets = vec![json!([first.sequence, hex(&first.payload[5..]), { "statement_id": prepared.statement }])];
        for count in [prepared.parameters, prepared.columns] {
            let ends = u16::from(count > 0 && !HEARS_STATE);
            for _ in 0..count + ends {
                packets.push(self.packet()?.shown());
            }
        }
        results.push(json!({ "prepared": packets }));
        Ok(prepared)
    }

    /// Runs a statement with each set. Types are sent once and again when they change, as clients do.
    fn execute(&mut self, prepared: PrepareOk, step: &Step, results: &mut Vec<Value>) -> anyhow::Result<()> {
        let mut told = Vec::new();
        for set in &step.sets {
            if step.kind == "long_data" {
                self.long_data(prepared, set, step.size as usize)?;
            }
            let is_long = |parameter: &Parameter| step.kind == "long_data" && is_text(parameter);
            let (mut nulls, mut types, mut values) = (vec![0; set.len().div_ceil(8)], Vec::new(), Vec::new());
            for (at, parameter) in set.iter().enumerate() {
                if parameter.0 == "null" {
                    nulls[at / 8] |= 1 << (at % 8);
                }
                let type_byte = value(parameter, is_long(parameter), &mut values)?;
                types.extend([type_byte, 0]);
            }
            let mut body = head(prepared, 0);
            if !set.is_empty() {
                body.extend(nulls);
                body.push(u8::from(types != told));
                if types != told {
                    body.extend(&types);
                }
                body.extend(values);
            }
            told = types;
            self.command(byte::STMT_EXECUTE, &body, results)?;
        }
        Ok(())
    }

    /// Sends texts and bytes in pieces of `size`.
    fn long_data(&mut self, prepared: PrepareOk, set: &[Parameter], size: usize) -> anyhow::Result<()> {
        for (at, parameter) in set.iter().enumerate().filter(|(_, parameter)| is_text(parameter)) {
            for piece in bytes_of(parameter)?.chunks(size) {
                let mut body = vec![byte::STMT_SEND_LONG_DATA];
                body.u32(prepared.statement);
                body.u16(u16::try_from(at)?);
                body.extend_from_slice(piece);
                self.send(&body, 0)?;
            }
        }
        Ok(())
    }

    /// Rows through a cursor.
    fn fetch(&mut self, prepared: PrepareOk, size: u32, results: &mut Vec<Value>) -> anyhow::Result<()> {
        self.send(&[vec![byte::STMT_EXECUTE], head(prepared, 1)].concat(), 0)?;
        let mut status = self.result(results)?;
        while status.contains(Status::CURSOR_EXISTS) && !status.contains(Status::LAST_ROW_SENT) {
            let mut body = vec![byte::STMT_FETCH];
            body.u32(prepared.statement);
            body.u32(size);
            self.send(&body, 0)?;
            status = self.rows(results)?.with(Status::CURSOR_EXISTS);
        }
        Ok(())
    }

    fn field_list(&mut self, body: &[u8], results: &mut Vec<Value>) -> anyhow::Result<()> {
        self.send(&[&[byte::FIELD_LIST], body].concat(), 0)?;
        self.rows(results).map(drop)
    }

    fn forget(&mut self, prepared: PrepareOk) -> anyhow::Result<()> {
        let mut body = vec![byte::STMT_CLOSE];
        body.u32(prepared.statement);
        self.send(&body, 0)
    }

    fn send(&mut self, payload: &[u8], sequence: u8) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        PacketWriter::new(&mut bytes, sequence).payload(payload);
        Ok(self.stream.write_all(&bytes)?)
    }

    fn packet(&mut self) -> anyhow::Result<Packet> {
        loop {
            if let Some(packet) = decode_packet(&self.buffer, LONGEST)? {
                let (consumed, sequence, payload) = (packet.consumed, packet.sequence, packet.payload.into_owned());
                self.buffer.drain(..consumed);
                return Ok(Packet { sequence, payload });
            }
            let mut piece = vec![0; 256 << 10];
            match self.stream.read(&mut piece)? {
                0 => bail!("the connection was closed"),
                read => self.buffer.extend_from_slice(&piece[..read]),
            }
        }
    }
}

/// The start of a COM_STMT_EXECUTE, behind its command byte.
fn head(prepared: PrepareOk, cursor: u8) -> Vec<u8> {
    let mut body = Vec::new();
    body.u32(prepared.statement);
    body.u8(cursor);
    body.u32(1);
    body
}
