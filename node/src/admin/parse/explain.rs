//! `EXPLAIN [MYSQL | PGSQL] RULES '<statement>' [USER 'u'] [SCHEMA 's'] [CLIENT 'ip'] [PROXY 'ip[:port]']`.

use quorumsql_dataplane::config::Protocol;

use super::{Command, Cursor, refused};
use crate::sql_server::lexer::Kind;

/// What is to be explained; what is left out is for the session to fill in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ExplainCommand {
    /// Which rules; `None` = those of the protocol that the admin connection speaks.
    pub(crate) protocol: Option<Protocol>,
    /// The statement.
    pub(crate) sql: String,
    /// USER.
    pub(crate) user: Option<String>,
    /// SCHEMA.
    pub(crate) schema: Option<String>,
    /// CLIENT.
    pub(crate) client: Option<String>,
    /// PROXY: address and port.
    pub(crate) proxy: Option<(String, Option<u16>)>,
}

const SYNTAX: &str = "EXPLAIN [MYSQL | PGSQL] RULES '<statement>' [USER 'u'] [SCHEMA 's'] [CLIENT 'ip'] [PROXY 'ip[:port]']";

/// `cursor` stands on EXPLAIN. `None` = it is SQLite's.
pub(super) fn parse(cursor: &mut Cursor<'_>) -> Option<Command> {
    cursor.next();
    let mut command = ExplainCommand::default();
    if cursor.accept_all(&["MYSQL", "RULES"]) {
        command.protocol = Some(Protocol::Mysql);
    } else if cursor.accept_all(&["PGSQL", "RULES"]) {
        command.protocol = Some(Protocol::Pgsql);
    } else if !cursor.accept("RULES") {
        return None;
    }
    Some(match options(cursor, command) {
        Some(command) => Command::ExplainRules(Box::new(command)),
        None => refused(&format!("say {SYNTAX}")),
    })
}

fn options(cursor: &mut Cursor<'_>, mut command: ExplainCommand) -> Option<ExplainCommand> {
    command.sql = text(cursor)?;
    while let Some(word) = cursor.next() {
        let word = word.text.to_ascii_uppercase();
        match word.as_str() {
            ";" => {}
            "USER" => command.user = Some(text(cursor)?),
            "SCHEMA" | "DATABASE" => command.schema = Some(text(cursor)?),
            "CLIENT" => command.client = Some(text(cursor)?),
            "PROXY" => command.proxy = Some(address(&text(cursor)?)?),
            _ => return None,
        }
    }
    Some(command)
}

/// A text in quotes, or a plain name.
fn text(cursor: &mut Cursor<'_>) -> Option<String> {
    let token = cursor.next()?;
    matches!(token.kind, Kind::String | Kind::DoubleQuoted | Kind::Name | Kind::Word).then(|| token.unquoted())
}

/// `ip`, `ip:port`; the port is behind the last colon, unless there are several and no brackets (IPv6).
fn address(text: &str) -> Option<(String, Option<u16>)> {
    let plain = |text: &str| text.trim_start_matches('[').trim_end_matches(']').to_owned();
    match text.rsplit_once(':') {
        Some((address, port)) if !address.contains(':') || address.ends_with(']') => Some((plain(address), Some(port.parse().ok()?))),
        _ => Some((plain(text), None)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn all_forms_are_read() {
        let explained = |command| Command::ExplainRules(Box::new(command));
        let plain = ExplainCommand { sql: "SELECT 'x'".into(), ..ExplainCommand::default() };
        assert_eq!(parse("EXPLAIN RULES 'SELECT ''x'''"), explained(plain.clone()));
        assert_eq!(
            parse("explain pgsql rules \"SELECT 'x'\";"),
            explained(ExplainCommand { protocol: Some(Protocol::Pgsql), ..plain.clone() })
        );
        let full = ExplainCommand {
            protocol: Some(Protocol::Mysql),
            user: Some("app".into()),
            schema: Some("shop".into()),
            client: Some("10.0.0.1".into()),
            proxy: Some(("::1".into(), Some(6033))),
            ..plain
        };
        let sql = "EXPLAIN MYSQL RULES 'SELECT ''x''' USER app SCHEMA 'shop' CLIENT '10.0.0.1' PROXY '[::1]:6033'";
        assert_eq!(parse(sql), explained(full));
        assert_eq!(address("127.0.0.1"), Some(("127.0.0.1".into(), None)));
        assert_eq!(address("fe80::1"), Some(("fe80::1".into(), None)));
        assert_eq!(address("1.2.3.4:x"), None);
        assert_eq!(parse("EXPLAIN SELECT 1"), Command::Read);
        for wrong in ["EXPLAIN RULES", "EXPLAIN RULES 5", "EXPLAIN RULES 'x' USER", "EXPLAIN RULES 'x' LAYER MEMORY"] {
            assert!(matches!(parse(wrong), Command::Refused(_)), "{wrong}");
        }
    }
}
