//! What differs between a direct run and one through the node, and the list of what must.

use serde_json::Value;

/// A place in the output that differs by design.
struct Allowed {
    /// Last key of the place.
    key: &'static str,
    #[allow(dead_code, reason = "the list is for readers: every entry says why")]
    reason: &'static str,
}

/// Everything that must differ. Nothing else may.
const ALLOWED: &[Allowed] = &[
    Allowed { key: "connection_id", reason: "the node numbers its clients itself (slot << 24 | counter)" },
    Allowed { key: "backend_pid", reason: "the node numbers its clients itself (slot << 24 | counter)" },
    Allowed { key: "server_charset", reason: "the greeting has the node's default character set; clients choose their own at login" },
    Allowed {
        key: "server_capabilities",
        reason: "the node offers its own set: no MariaDB extensions, no compression, no query attributes",
    },
    Allowed { key: "server_plugin", reason: "the node greets with its own default plugin; the client is switched to its account's" },
    Allowed { key: "statement_id", reason: "the node numbers a client's statements itself, each of its connections has its own numbers" },
    Allowed { key: "table_oid", reason: "each run creates its tables anew" },
    Allowed {
        key: "source",
        reason: "an error of the node itself names no line of the server's source; other drivers compare those of the server",
    },
    Allowed { key: "session_state", reason: "a SET or USE that the node answers carries no block of session state" },
];

/// Compares two outputs line by line.
pub(crate) fn between(direct: &[Value], through: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    for (a, b) in direct.iter().zip(through) {
        let name = a.get("case").or_else(|| a.get("login")).unwrap_or(a);
        let line = format!("{name} on {}", a.get("client").unwrap_or(name));
        walk(&line, String::new(), a, b, &mut found);
    }
    if direct.len() != through.len() {
        let count = |lines: &[Value]| format!("{} lines", lines.len());
        found.push(difference("the output", "", count(direct), count(through)));
    }
    found
}

fn walk(line: &str, path: String, a: &Value, b: &Value, found: &mut Vec<String>) {
    match (a, b) {
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            for (index, (a, b)) in x.iter().zip(y).enumerate() {
                walk(line, format!("{path}[{index}]"), a, b, found);
            }
        }
        (Value::Object(x), Value::Object(y)) if x.keys().eq(y.keys()) => {
            for (key, a) in x {
                if !ALLOWED.iter().any(|allowed| allowed.key == key) {
                    walk(line, format!("{path}.{key}"), a, &y[key], found);
                }
            }
        }
        _ if a == b => {}
        _ => found.push(difference(line, &path, short(a), short(b))),
    }
}

fn difference(line: &str, path: &str, direct: String, through: String) -> String {
    format!("{line} {path}\n    direct:  {direct}\n    through: {through}")
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 600 { text.chars().take(600).chain("…".chars()).collect() } else { text }
}
