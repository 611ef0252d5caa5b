//! A plain client of the PostgreSQL protocol that shows every message, byte by byte.
//!
//! Object ids that a run creates and what names a server process are decoded, so that `differences.rs` can name them;
//! everything else is the message as it came.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::bail;
use quorumsql_wire::pgsql::auth::{CleartextPolicy, ClientAuth, ClientStep};
use quorumsql_wire::pgsql::backend::{decode_backend_key_data, decode_parameter_status, tag};
use quorumsql_wire::pgsql::frontend::{self, Target as Object};
use quorumsql_wire::pgsql::{frame, startup};
use serde_json::{Value, json};

use super::{hex, short};
use crate::cases::{Parameter, Step};
use crate::node::Target;

/// Kinds of step that it knows.
pub(crate) const KINDS: &[&str] =
    &["query", "prepare", "fetch", "copy_in", "copy_out", "pipeline", "keep", "run", "forget", "flush", "partial"];

/// Messages longer than any of the corpus are an error.
const LONGEST: usize = 64 << 20;
/// Rows and pieces of COPY of an answer that are shown one by one; the others are shown as one.
const SHOWN: usize = 30;
/// First object id that a server gives to what users create.
const FIRST_OWN_OID: u32 = 16_384;

/// A client that takes values as text (format 0) or in binary form (format 1).
pub(crate) struct Client<const FORMAT: u16> {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl<const FORMAT: u16> super::Client for Client<FORMAT> {
    fn connect(target: &Target) -> anyhow::Result<(Self, Value)> {
        let stream = TcpStream::connect((target.host.as_str(), target.port))?;
        stream.set_nodelay(true)?;
        let mut connection = Self { stream, buffer: Vec::new() };
        let mut bytes = Vec::new();
        startup::startup_message(&mut bytes, [("user", "demo"), ("database", "demo"), ("application_name", "bytes")]);
        connection.send(&bytes)?;
        let mut auth = ClientAuth::new("demo", "demo", CleartextPolicy::Allow);
        loop {
            let (kind, body) = connection.message()?;
            if kind == tag::ERROR {
                bail!("{}", shown(kind, &body)?);
            }
            let mut answer = Vec::new();
            if auth.on_request(&body, b"fixed nonce 123456", &mut answer)? == ClientStep::Done {
                break;
            }
            connection.send(&answer)?;
        }
        let mut facts = Vec::new();
        loop {
            let (kind, body) = connection.message()?;
            facts.push(match kind {
                tag::BACKEND_KEY_DATA => json!({ "backend_pid": decode_backend_key_data(&body)?.0 }),
                tag::PARAMETER_STATUS => {
                    let (name, value) = decode_parameter_status(&body)?;
                    json!([short(name), short(value)])
                }
                _ => shown(kind, &body)?,
            });
            if kind == tag::READY {
                // The order of parameters is free.
                facts.sort_by_key(ToString::to_string);
                return Ok((connection, Value::Array(facts)));
            }
        }
    }

    fn step(&mut self, step: &Step, results: &mut Vec<Value>) -> anyhow::Result<()> {
        let (mut out, text) = (Vec::new(), step.sql.as_bytes());
        let mut batches = 1;
        match step.kind.as_str() {
            "query" | "copy_in" | "copy_out" => frontend::query(&mut out, text),
            "keep" => {
                frontend::parse(&mut out, step.name.as_bytes(), text, &[]);
                frontend::describe(&mut out, Object::Statement, step.name.as_bytes());
                frontend::sync(&mut out);
            }
            "run" => {
                batches = step.sets.len();
                for set in &step.sets {
                    Self::put_run(&mut out, step.name.as_bytes(), set, 0)?;
                    frontend::sync(&mut out);
                }
            }
            "forget" => {
                frontend::close(&mut out, Object::Statement, step.name.as_bytes());
                frontend::sync(&mut out);
            }
            "prepare" => {
                frontend::parse(&mut out, b"", text, &[]);
                frontend::describe(&mut out, Object::Statement, b"");
                for set in &step.sets {
                    Self::put_run(&mut out, b"", set, 0)?;
                }
                frontend::sync(&mut out);
            }
            "fetch" => return self.fetch(step, results),
            "flush" => return self.flush(step, results),
            "partial" => return self.partial(step, results),
            _ => {
                for (sql, parameters) in &step.pipeline {
                    frontend::parse(&mut out, b"", sql.as_bytes(), &[]);
                    Self::put_run(&mut out, b"", parameters, 0)?;
                }
                frontend::sync(&mut out);
            }
        }
        self.send(&out)?;
        let mut failed = false;
        for _ in 0..batches {
            failed |= self.answer(step, results)?;
        }
        failure(failed)
    }

    fn close(mut self) {
        let mut out = Vec::new();
        frontend::terminate(&mut out);
        let _goodbye = self.send(&out);
        let _end = self.stream.read(&mut [0]);
    }
}

impl<const FORMAT: u16> Client<FORMAT> {
    /// Bind with describe and execute, in the client's format.
    fn put_run(out: &mut Vec<u8>, statement: &[u8], set: &[Parameter], rows: u32) -> anyhow::Result<()> {
        Self::put_bind(out, statement, set)?;
        frontend::describe(out, Object::Portal, b"");
        frontend::execute(out, b"", rows);
        Ok(())
    }

    fn put_bind(out: &mut Vec<u8>, statement: &[u8], set: &[Parameter]) -> anyhow::Result<()> {
        // Parameters are text: their types are the server's guess, which a client would have to ask for.
        let mut rest = vec![0, 0];
        rest.extend(u16::try_from(set.len())?.to_be_bytes());
        for parameter in set {
            match text(parameter) {
                Some(value) => {
                    rest.extend(u32::try_from(value.len())?.to_be_bytes());
                    rest.extend(value);
                }
                None => rest.extend([0xff; 4]),
            }
        }
        rest.extend([0, 1]);
        rest.extend(FORMAT.to_be_bytes());
        frontend::bind(out, b"", statement, &rest);
        Ok(())
    }

    /// A portal with a limit of rows, until it is at its end, in one batch.
    fn fetch(&mut self, step: &Step, results: &mut Vec<Value>) -> anyhow::Result<()> {
        let mut out = Vec::new();
        frontend::parse(&mut out, b"", step.sql.as_bytes(), &[]);
        Self::put_run(&mut out, b"", &[], step.size)?;
        loop {
            out.extend([b'H', 0, 0, 0, 4]);
            self.send(&out)?;
            let end = self.until(results, |kind| matches!(kind, tag::PORTAL_SUSPENDED | tag::COMMAND_COMPLETE | tag::ERROR))?;
            out.clear();
            if end != tag::PORTAL_SUSPENDED {
                frontend::sync(&mut out);
                self.send(&out)?;
                let _failed = self.answer(step, results)?;
                return failure(end == tag::ERROR);
            }
            frontend::execute(&mut out, b"", step.size);
        }
    }

    /// Each statement of the pipeline with a Flush behind it, whose answer is awaited before the next; one Sync at the end.
    fn flush(&mut self, step: &Step, results: &mut Vec<Value>) -> anyhow::Result<()> {
        let mut failed = false;
        for (sql, parameters) in &step.pipeline {
            let mut out = Vec::new();
            frontend::parse(&mut out, b"", sql.as_bytes(), &[]);
            Self::put_run(&mut out, b"", parameters, 0)?;
            out.extend([b'H', 0, 0, 0, 4]);
            self.send(&out)?;
            failed = self.until(results, |kind| matches!(kind, tag::COMMAND_COMPLETE | tag::EMPTY_QUERY | tag::ERROR))? == tag::ERROR;
            if failed {
                break;
            }
        }
        let mut out = Vec::new();
        frontend::sync(&mut out);
        self.send(&out)?;
        let _failed = self.answer(step, results)?;
        failure(failed)
    }

    /// The pipeline, sent byte by byte up to its middle, then the rest.
    fn partial(&mut self, step: &Step, results: &mut Vec<Value>) -> anyhow::Result<()> {
        let mut out = Vec::new();
        for (sql, parameters) in &step.pipeline {
            frontend::parse(&mut out, b"", sql.as_bytes(), &[]);
            Self::put_run(&mut out, b"", parameters, 0)?;
        }
        frontend::sync(&mut out);
        let (first, rest) = out.split_at(out.len() / 2);
        for byte in first.chunks(1) {
            self.send(byte)?;
        }
        self.send(rest)?;
        let failed = self.answer(step, results)?;
        failure(failed)
    }

    /// All messages up to ReadyForQuery; `true` = one was an error. COPY is fed.
    fn answer(&mut self, step: &Step, results: &mut Vec<Value>) -> anyhow::Result<bool> {
        let mut failed = false;
        loop {
            let end = self.until(results, |kind| matches!(kind, tag::READY | tag::ERROR | tag::COPY_IN))?;
            match end {
                tag::READY => return Ok(failed),
                tag::ERROR => failed = true,
                _ => {
                    let mut out = Vec::new();
                    for piece in step.data.as_bytes().chunks(7) {
                        frame::encode(&mut out, tag::COPY_DATA, |out| out.extend_from_slice(piece));
                    }
                    frame::encode(&mut out, tag::COPY_DONE, |_| {});
                    self.send(&out)?;
                }
            }
        }
    }

    /// Messages up to one that `last` knows; its type.
    fn until(&mut self, results: &mut Vec<Value>, last: impl Fn(u8) -> bool) -> anyhow::Result<u8> {
        let (mut others, mut count) = (Vec::new(), 0);
        loop {
            let (kind, body) = self.message()?;
            let many = matches!(kind, tag::DATA_ROW | tag::COPY_DATA);
            count += usize::from(many);
            if many && count > SHOWN {
                others.extend(body);
                continue;
            }
            if !others.is_empty() {
                results.push(json!({ "count": count, "others": hex(&others) }));
                others.clear();
            }
            results.push(shown(kind, &body)?);
            if last(kind) {
                return Ok(kind);
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    fn message(&mut self) -> anyhow::Result<(u8, Vec<u8>)> {
        loop {
            if let Some(frame) = frame::decode(&self.buffer, LONGEST)? {
                let (size, message) = (frame.size(), (frame.tag, frame.body.to_vec()));
                self.buffer.drain(..size);
                return Ok(message);
            }
            let mut piece = vec![0; 256 << 10];
            match self.stream.read(&mut piece)? {
                0 => bail!("the connection was closed"),
                read => self.buffer.extend_from_slice(&piece[..read]),
            }
        }
    }
}

fn failure(failed: bool) -> anyhow::Result<()> {
    if failed {
        bail!("the error above");
    }
    Ok(())
}

/// A message as it came, but for what every run has anew.
fn shown(kind: u8, body: &[u8]) -> anyhow::Result<Value> {
    let name = char::from(kind).to_string();
    Ok(match kind {
        tag::ROW_DESCRIPTION => json!([name, columns(body)]),
        tag::PARAMETER_DESCRIPTION => json!([name, body[2..].chunks(4).map(oid).collect::<Vec<_>>()]),
        tag::NOTIFICATION => json!([name, { "backend_pid": hex(&body[..4]) }, short(&body[4..])]),
        tag::ERROR | tag::NOTICE => json!([name, fields(body)]),
        _ => json!([name, hex(body)]),
    })
}

/// The fields of an error or a notice; those that name a place in a program's source apart.
fn fields(body: &[u8]) -> Value {
    let (source, told): (Vec<_>, Vec<_>) =
        body.split(|byte| *byte == 0).partition(|field| matches!(field.first(), Some(b'F' | b'L' | b'R')));
    let texts = |list: Vec<&[u8]>| list.into_iter().map(short).collect::<Vec<_>>();
    json!([texts(told), { "source": texts(source) }])
}

/// The columns of a RowDescription: name, table, number, type, size, modifier, format.
fn columns(mut body: &[u8]) -> Vec<Value> {
    body = &body[2..];
    let mut columns = Vec::new();
    while let Some(end) = body.iter().position(|byte| *byte == 0) {
        let (name, rest) = body.split_at(end);
        let (fields, rest) = rest[1..].split_at(18);
        columns.push(json!([short(name), { "table_oid": hex(&fields[..4]) }, hex(&fields[4..6]), oid(&fields[6..10]), hex(&fields[10..])]));
        body = rest;
    }
    columns
}

/// A type's object id, if it is the same in every run.
fn oid(bytes: &[u8]) -> u32 {
    let oid = bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    if oid < FIRST_OWN_OID { oid } else { FIRST_OWN_OID }
}

/// A parameter as text; `None` = NULL.
fn text(Parameter(kind, value): &Parameter) -> Option<Vec<u8>> {
    match kind.as_str() {
        "null" => None,
        "bytes" => Some(format!(r"\x{}", value.as_str().unwrap_or_default()).into_bytes()),
        "ints" | "texts" => {
            let list = value.to_string();
            Some(format!("{{{}}}", &list[1..list.len() - 1]).into_bytes())
        }
        _ => Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned).into_bytes()),
    }
}
