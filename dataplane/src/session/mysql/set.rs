//! Which SET statements are absorbed: those of which the session knows what they mean (mysql-dataplane 4).
//!
//! Absorbed are `autocommit`, the names of character sets, and the variables of [`super::tracked`], in one list or alone.
//! Everything else is sent to a server and pins its connection.

use quorumsql_wire::mysql::charset;
use quorumsql_wire::sql::{MysqlSet, SetItem, SetScope, SetValue, parse_mysql_set};

use super::names::NamesChange;
use super::tracked::{self, Assigned};

/// What an absorbed SET does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Absorbed {
    /// New value of `autocommit`.
    pub(crate) autocommit: Option<bool>,
    /// Changes of the names, in order.
    pub(crate) names: Vec<NamesChange>,
    /// Other variables; `None` = the default.
    pub(crate) variables: Vec<(&'static str, Option<String>)>,
    /// `sql_mode` gets a value that only the server knows.
    pub(crate) told_sql_mode: bool,
    /// A server must be asked: it may refuse a value, or warn of it.
    pub(crate) ask: bool,
}

/// What becomes of a SET.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SetStatement {
    /// The session remembers it; connections are aligned before the next statement.
    Absorbed(Absorbed),
    /// A character set that no server has: 1115 at once.
    UnknownCharset(String),
    /// It sets only global or persisted variables: sent, pins nothing.
    Global,
    /// Sent, and pins the connection.
    Untracked {
        /// One assignment: if it fails, nothing has changed.
        single: bool,
    },
}

/// Character sets of every server that no server warns of. `utf8` is not among them, nor are those that a client cannot have.
const CERTAIN: &[&str] = &[
    "armscii8", "ascii", "big5", "binary", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "dec8", "euckr", "gb2312",
    "gbk", "greek", "hebrew", "koi8r", "koi8u", "latin1", "latin2", "latin5", "latin7", "sjis", "swe7", "tis620", "ujis", "utf8mb4",
];

/// Reads one SET statement. `backslash` = backslash escapes are on.
pub(crate) fn parse(sql: &[u8], backslash: bool, default_names: &DefaultNames<'_>) -> SetStatement {
    let parsed = if is_conditional(sql) { None } else { parse_mysql_set(sql, backslash) };
    match parsed {
        // It is the account's, not the session's.
        None if is_password(sql) => SetStatement::Global,
        None => SetStatement::Untracked { single: false },
        Some(MysqlSet::Transaction { scope, isolation, read_only }) => transaction(scope, isolation, read_only),
        Some(MysqlSet::Items(items)) => list(items, default_names),
    }
}

/// What `SET NAMES DEFAULT` means.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DefaultNames<'a> {
    /// `default_charset`.
    pub(crate) charset: &'a str,
    /// `default_collation_connection`, may be empty.
    pub(crate) collation: &'a str,
}

/// Whether some servers may skip a part of it: an executable comment, unless it is the whole statement and for every server.
fn is_conditional(sql: &[u8]) -> bool {
    /// MariaDB skips comments for versions from 5.7 on; nobody runs what is older than this.
    const FOR_ALL: u32 = 50_600;
    let Some(at) = sql.windows(3).position(|bytes| bytes == b"/*!" || bytes == b"/*M") else { return false };
    let digits: String = sql[at + 3..].iter().take(6).take_while(|byte| byte.is_ascii_digit()).map(|byte| char::from(*byte)).collect();
    let for_all = digits.parse().is_ok_and(|version: u32| version <= FOR_ALL);
    !(for_all && sql[at + 2] == b'!' && sql[..at].iter().all(u8::is_ascii_whitespace))
}

fn is_password(sql: &[u8]) -> bool {
    let mut words = sql.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    ["set", "password"].iter().all(|wanted| words.next().is_some_and(|word| word.eq_ignore_ascii_case(wanted.as_bytes())))
        && !sql.contains(&b',')
}

fn transaction(scope: Option<SetScope>, isolation: Option<&str>, read_only: Option<bool>) -> SetStatement {
    match scope {
        Some(SetScope::Session) => {}
        Some(SetScope::Global | SetScope::Persist) => return SetStatement::Global,
        None => return SetStatement::Untracked { single: true },
    }
    let mut absorbed = Absorbed::default();
    if let Some(level) = isolation {
        let words = if level == "SERIALIZABLE" { level.to_owned() } else { level.replace('-', " ") };
        absorbed.variables.push((tracked::ISOLATION, Some(words)));
    }
    if let Some(read_only) = read_only {
        let mode = if read_only { "READ ONLY" } else { "READ WRITE" };
        absorbed.variables.push((tracked::ACCESS_MODE, Some(mode.to_owned())));
    }
    SetStatement::Absorbed(absorbed)
}

fn list(items: Vec<SetItem>, defaults: &DefaultNames<'_>) -> SetStatement {
    let single = items.len() == 1;
    let mut absorbed = Absorbed::default();
    let mut globals = 0;
    for item in items {
        match assignment(item, defaults, &mut absorbed) {
            Some(Assignment::Done) => {}
            Some(Assignment::Global) => globals += 1,
            Some(Assignment::UnknownCharset(name)) => return SetStatement::UnknownCharset(name),
            None => return SetStatement::Untracked { single },
        }
    }
    match globals {
        0 => SetStatement::Absorbed(absorbed),
        _ if absorbed == Absorbed::default() => SetStatement::Global,
        _ => SetStatement::Untracked { single },
    }
}

enum Assignment {
    Done,
    Global,
    UnknownCharset(String),
}

/// One assignment; `None` = not one that is absorbed.
fn assignment(item: SetItem, defaults: &DefaultNames<'_>, absorbed: &mut Absorbed) -> Option<Assignment> {
    match item {
        SetItem::UserVariable => None,
        SetItem::Names { charset: Some(charset), collation } => Some(absorbed.names(charset, collation)),
        SetItem::Names { charset: None, collation: Some(_) } => None,
        SetItem::Names { charset: None, collation: None } => {
            let collation = (!defaults.collation.is_empty()).then(|| defaults.collation.to_ascii_lowercase());
            let charset = defaults.charset.to_ascii_lowercase();
            absorbed.names.push(NamesChange::Names { collation: collation.filter(|name| belongs(name, &charset)), charset });
            Some(Assignment::Done)
        }
        SetItem::CharacterSet(charset) => Some(absorbed.charset(charset?, NamesChange::CharacterSet)),
        SetItem::Variable { scope: SetScope::Global | SetScope::Persist, value, .. } => {
            (!matches!(&value, SetValue::Expression(text) if text.contains('@'))).then_some(Assignment::Global)
        }
        SetItem::Variable { scope: SetScope::Session, name, value } => variable(&name, &value, absorbed),
    }
}

fn variable(name: &str, value: &SetValue, absorbed: &mut Absorbed) -> Option<Assignment> {
    match name {
        "autocommit" => absorbed.autocommit = Some(boolean(value)?),
        "character_set_client" => return Some(absorbed.charset(word(value)?, NamesChange::Client)),
        "character_set_connection" => return Some(absorbed.charset(word(value)?, NamesChange::Connection)),
        "character_set_results" if word(value)? == "null" => absorbed.names.push(NamesChange::Results(None)),
        "character_set_results" => return Some(absorbed.charset(word(value)?, |name| NamesChange::Results(Some(name)))),
        "collation_connection" => {
            let collation = word(value)?;
            if !collation.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                return None;
            }
            // Which collations there are differs between servers.
            absorbed.ask = true;
            absorbed.names.push(NamesChange::Collation(collation));
        }
        _ => match tracked::assign(name, value)? {
            Assigned::Certain(name, literal) => absorbed.variables.push((name, literal)),
            Assigned::IfTaken(name, literal) => {
                absorbed.ask = true;
                absorbed.variables.push((name, literal));
            }
            Assigned::Told(_) => {
                absorbed.ask = true;
                absorbed.told_sql_mode = true;
            }
            Assigned::Ignored => {}
        },
    }
    Some(Assignment::Done)
}

impl Absorbed {
    fn charset(&mut self, name: String, change: impl FnOnce(String) -> NamesChange) -> Assignment {
        if !charset::is_charset(&name) {
            return Assignment::UnknownCharset(name);
        }
        self.ask |= !CERTAIN.contains(&&*name);
        self.names.push(change(name));
        Assignment::Done
    }

    fn names(&mut self, charset: String, collation: Option<String>) -> Assignment {
        if let Some(collation) = &collation {
            let everywhere = collation.ends_with("_general_ci") || collation.ends_with("_bin") || collation.ends_with("_unicode_ci");
            self.ask |= !(everywhere && belongs(collation, &charset));
        }
        self.charset(charset, |charset| NamesChange::Names { charset, collation })
    }
}

fn belongs(collation: &str, charset: &str) -> bool {
    charset::collation_id(collation).and_then(charset::collation).is_some_and(|(of, _)| of == charset)
}

fn word(value: &SetValue) -> Option<String> {
    match value {
        SetValue::Word(word) | SetValue::String(word) => Some(word.to_ascii_lowercase()),
        _ => None,
    }
}

fn boolean(value: &SetValue) -> Option<bool> {
    let (SetValue::Word(word) | SetValue::String(word) | SetValue::Number(word)) = value else { return None };
    match &*word.to_ascii_lowercase() {
        "1" | "on" | "true" => Some(true),
        "0" | "off" | "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
#[path = "set_test.rs"]
mod tests;
