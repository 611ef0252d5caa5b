//! `PROXYSQL INTERNAL SESSION`: the session as JSON, with the keys that tools read (mysql-dataplane 3.6). No passwords.

use std::fmt::Write;

use super::Client;

/// A JSON object in the making.
struct Object(String);

impl Object {
    fn new() -> Self {
        Self("{".to_owned())
    }

    /// A value that is JSON already.
    fn raw(mut self, key: &str, value: &str) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0 += &quoted(key);
        self.0.push(':');
        self.0 += value;
        self
    }

    fn text(self, key: &str, value: &str) -> Self {
        let value = quoted(value);
        self.raw(key, &value)
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if u32::from(c) < 0x20 => {
                let _infallible = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl Client {
    /// The session as JSON.
    pub(super) fn internal_session(&self) -> String {
        let state = &self.state;
        let locked = self.held.as_ref().filter(|_| state.pins.state).map_or(-1, |held| i64::from(held.hostgroup().0));
        let client = &self.state.origin.client_addr;
        let address = Object::new().text("address", client).raw("port", &self.link.peer_addr().port().unwrap_or_default().to_string());
        let user = Object::new().text("username", &self.identity.user.name).text("schemaname", &state.origin.schema).end();
        Object::new()
            .text("address", client)
            .raw("thread", &self.ctx.index().to_string())
            .raw("thread_session_id", &self.session.id().to_string())
            .raw("autocommit", bool_text(state.autocommit))
            .raw("default_hostgroup", &self.identity.user.default_hostgroup.0.to_string())
            .raw("locked_on_hostgroup", &locked.to_string())
            .raw("last_insert_id", &state.last_insert_id.value.to_string())
            .raw("active_transactions", if state.pins.transaction { "1" } else { "0" })
            .text("default_schema", self.identity.user.default_schema.as_deref().unwrap_or_default())
            .raw("transaction_persistent", bool_text(self.identity.user.transaction_persistent))
            .raw("client", &Object::new().raw("userinfo", &user).raw("client_addr", &address.end()).end())
            .raw("conn", &self.tracked_json())
            .raw("backends", &format!("[{}]", self.backend_json()))
            .end()
    }

    fn tracked_json(&self) -> String {
        let variables = self.state.variables.iter();
        variables.fold(Object::new(), |object, (name, literal)| object.text(name, literal.trim_matches('\''))).end()
    }

    /// The connection in hand, if there is one.
    fn backend_json(&self) -> String {
        let Some(held) = &self.held else { return String::new() };
        let pins = &self.state.pins;
        let status = [
            ("found_rows", pins.found_rows),
            ("get_lock", pins.locks),
            ("has_warnings", pins.warnings),
            ("lock_tables", pins.tables),
            ("no_multiplex", pins.state),
        ];
        let status = status.into_iter().fold(Object::new(), |object, (name, on)| object.raw(name, bool_text(on)));
        let conn = Object::new()
            .raw("MultiplexDisabled", bool_text(pins.beyond_transaction()))
            .raw("auto_increment_delay_token", &pins.insert_id.to_string())
            .raw("status", &status.end())
            .end();
        Object::new().raw("hostgroup_id", &held.hostgroup().0.to_string()).raw("conn", &conn).end()
    }
}

const fn bool_text(on: bool) -> &'static str {
    if on { "true" } else { "false" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let object = Object::new().text("a\"b", "c\\\n").raw("n", "1").end();
        assert_eq!(object, r#"{"a\"b":"c\\\u000a","n":1}"#);
        assert_eq!(Object::new().end(), "{}");
    }
}
