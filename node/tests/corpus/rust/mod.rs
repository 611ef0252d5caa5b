//! Drivers in Rust, which run in the test's own process: two libraries, and plain clients that show every byte.

pub(crate) mod mysql_bytes;
pub(crate) mod mysql_library;
mod mysql_values;
pub(crate) mod pgsql_bytes;
pub(crate) mod pgsql_library;

use std::hash::{DefaultHasher, Hasher as _};

use serde_json::{Value, json};

use crate::cases::{Case, Step};
use crate::node::Target;

/// One client of a driver, logged in.
pub(crate) trait Client: Sized {
    /// Connects; also what the driver tells of the server.
    fn connect(target: &Target) -> anyhow::Result<(Self, Value)>;

    /// Runs a step and appends its results. What fails is one more result.
    fn step(&mut self, step: &Step, results: &mut Vec<Value>) -> anyhow::Result<()>;

    /// Says goodbye.
    fn close(self);
}

/// Takes two clients through the cases, as the programs under `drivers/` do.
pub(crate) fn run<C: Client>(target: &Target, cases: &[Case]) -> anyhow::Result<Vec<Value>> {
    let mut lines = Vec::new();
    let mut clients = Vec::new();
    for name in ["A", "B"] {
        clients.push((name, Some(open::<C>(name, target, &mut lines)?)));
    }
    for case in cases {
        for (name, slot) in &mut clients {
            let Some(client) = slot else { continue };
            let steps: Vec<Vec<Value>> = case.steps.iter().map(|step| results(client, step)).collect();
            lines.push(json!({ "case": case.name, "client": name, "steps": steps }));
            if case.pins {
                slot.take().into_iter().for_each(C::close);
                *slot = Some(open(name, target, &mut lines)?);
            }
        }
    }
    clients.into_iter().filter_map(|(_, client)| client).for_each(C::close);
    Ok(lines)
}

fn open<C: Client>(name: &str, target: &Target, lines: &mut Vec<Value>) -> anyhow::Result<C> {
    let (client, facts) = C::connect(target)?;
    lines.push(json!({ "login": name, "facts": facts }));
    Ok(client)
}

fn results<C: Client>(client: &mut C, step: &Step) -> Vec<Value> {
    let mut results = Vec::new();
    if let Err(error) = client.step(step, &mut results) {
        results.push(json!({ "error": format!("{error:#}") }));
    }
    results
}

/// Bytes as text, where they are text; long ones by length and hash.
fn short(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.len() <= 1000 => text.to_owned(),
        _ => hex(bytes),
    }
}

/// Bytes in hex; long ones by length and hash.
fn hex(bytes: &[u8]) -> String {
    if bytes.len() > 500 {
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        return format!("{} bytes: {:016x}", bytes.len(), hasher.finish());
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a text in hex, as cases write them.
fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(text.get(at..at + 2).unwrap_or_default(), 16).expect("hex in a case");
    (0..text.len()).step_by(2).map(digit).collect()
}
