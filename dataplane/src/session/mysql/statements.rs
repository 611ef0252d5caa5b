//! A client's prepared statements.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::mysql::params::ParameterKind;

use super::long_data::LongData;
use super::names::Names;
use super::ran::Ran;
use super::tracked::{self, Variables};
use crate::worker::scans::Scanned;

/// Most prepared statements of one session; the server's own default limit for all is 16382.
pub(crate) const MAX_STATEMENTS: usize = 16_382;
/// Most bytes of their texts.
const MAX_TEXT: usize = 64 << 20;

/// What servers read a statement's text under: its names, literals and functions are resolved when it is prepared.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Setting {
    /// Schema.
    pub(crate) schema: String,
    /// Character set and collation.
    pub(crate) names: Names,
    /// Tracked variables, as far as they show.
    pub(crate) variables: Variables,
}

impl Setting {
    fn new(schema: &str, names: &Names, variables: &Variables) -> Self {
        let shown = variables.iter().filter(|(name, _)| tracked::shows_in_preparation(name));
        let variables = shown.map(|(name, literal)| (*name, literal.clone())).collect();
        Self { schema: schema.to_owned(), names: names.clone(), variables }
    }

    /// Whether the session has it now.
    pub(crate) fn is(&self, schema: &str, names: &Names, variables: &Variables) -> bool {
        let shown = variables.iter().filter(|(name, _)| tracked::shows_in_preparation(name));
        self.schema == schema && self.names == *names && self.variables.iter().eq(shown)
    }
}

/// What makes two prepared statements the same on a server.
#[derive(Debug)]
pub(crate) struct StatementText {
    /// Of the rest: what differs here differs.
    pub(crate) hash: u64,
    /// Text.
    pub(crate) sql: Box<[u8]>,
    /// What it was prepared under.
    pub(crate) setting: Arc<Setting>,
}

impl StatementText {
    /// Hashes once.
    fn new(sql: &[u8], setting: Arc<Setting>) -> Arc<Self> {
        let mut hasher = DefaultHasher::new();
        (sql, &setting).hash(&mut hasher);
        Arc::new(Self { hash: hasher.finish(), sql: sql.into(), setting })
    }

    /// A text that is prepared in schema `s`.
    #[cfg(test)]
    pub(crate) fn of(sql: &[u8]) -> Arc<Self> {
        Self::new(sql, Arc::new(Setting::new("s", &Names::UNKNOWN, &Variables::new())))
    }
}

impl PartialEq for StatementText {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || (self.hash == other.hash && self.sql == other.sql && self.setting == other.setting)
    }
}

impl Eq for StatementText {}

/// One of them.
#[derive(Debug)]
pub(crate) struct ClientStatement {
    /// Text and schema.
    pub(crate) text: Arc<StatementText>,
    /// Digest, class and effects, found when it was prepared.
    pub(crate) scan: Rc<Scanned>,
    /// Number of parameters.
    pub(crate) parameters: u16,
    /// Types of the last execution, two bytes a parameter; empty = none yet.
    pub(crate) types: Vec<u8>,
    /// Kinds of the values of the last execution.
    pub(crate) kinds: Vec<ParameterKind>,
    /// Its executions on servers that remember them.
    pub(crate) ran: Ran,
    /// What COM_STMT_SEND_LONG_DATA sent, by parameter.
    pub(crate) long_data: LongData,
}

impl ClientStatement {
    /// A statement that was just prepared.
    pub(crate) fn new(text: Arc<StatementText>, scan: Rc<Scanned>, parameters: u16) -> Self {
        Self { text, scan, parameters, types: Vec::new(), kinds: Vec::new(), ran: Ran::Never, long_data: LongData::default() }
    }
}

/// By the id that the client knows.
#[derive(Debug, Default)]
pub(crate) struct Statements {
    by_id: HashMap<u32, Box<ClientStatement>>,
    last_id: u32,
    text_bytes: usize,
    /// What the last one was prepared under.
    setting: Option<Arc<Setting>>,
}

impl Statements {
    /// An id for a new statement; `None` = there are too many.
    pub(crate) fn next_id(&mut self, text: usize) -> Option<u32> {
        if self.by_id.len() >= MAX_STATEMENTS || self.text_bytes.saturating_add(text) > MAX_TEXT {
            return None;
        }
        loop {
            self.last_id = self.last_id.wrapping_add(1).max(1);
            if !self.by_id.contains_key(&self.last_id) {
                return Some(self.last_id);
            }
        }
    }

    /// A text to be prepared in a session that has this setting, which the session's statements share while it stays.
    pub(crate) fn text(&mut self, sql: &[u8], schema: &str, names: &Names, variables: &Variables) -> Arc<StatementText> {
        let same = self.setting.take().filter(|setting| setting.is(schema, names, variables));
        let setting = same.unwrap_or_else(|| Arc::new(Setting::new(schema, names, variables)));
        self.setting = Some(Arc::clone(&setting));
        StatementText::new(sql, setting)
    }

    /// Keeps a statement under an id of [`Self::next_id`].
    pub(crate) fn insert(&mut self, id: u32, statement: ClientStatement) {
        self.text_bytes += statement.text.sql.len();
        self.by_id.insert(id, Box::new(statement));
    }

    /// The statement with this id.
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut ClientStatement> {
        self.by_id.get_mut(&id).map(Box::as_mut)
    }

    /// Takes a statement out for its execution, so that its texts are not copied; give it back with [`Self::put_back`].
    pub(crate) fn take(&mut self, id: u32) -> Option<Box<ClientStatement>> {
        self.by_id.remove(&id)
    }

    /// Undoes [`Self::take`].
    pub(crate) fn put_back(&mut self, id: u32, statement: Box<ClientStatement>) {
        self.by_id.insert(id, statement);
    }

    /// COM_STMT_CLOSE.
    pub(crate) fn close(&mut self, id: u32) -> Option<Arc<StatementText>> {
        let statement = self.by_id.remove(&id)?;
        self.text_bytes = self.text_bytes.saturating_sub(statement.text.sql.len());
        Some(statement.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(sql: &[u8], parameters: u16) -> ClientStatement {
        ClientStatement::new(StatementText::of(sql), Rc::default(), parameters)
    }

    #[test]
    fn a_text_under_another_setting_is_another_statement() {
        let variables = |pairs: &[(&'static str, &str)]| pairs.iter().map(|(name, literal)| (*name, (*literal).to_owned())).collect();
        let (plain, ansi): (Variables, Variables) = (variables(&[]), variables(&[("sql_mode", "'ANSI'")]));
        let clock = variables(&[("timestamp", "1"), (tracked::ISOLATION, "SERIALIZABLE")]);
        let text = |sql: &str, schema, names, variables| Statements::default().text(sql.as_bytes(), schema, &names, variables);
        let first = text("q", "a", Names::login(45), &plain);
        assert_eq!(first, text("q", "a", Names::login(45), &plain));
        assert_eq!(first, text("q", "a", Names::login(45), &clock));
        assert_ne!(first, text("r", "a", Names::login(45), &plain));
        assert_ne!(first, text("q", "b", Names::login(45), &plain));
        assert_ne!(first, text("q", "a", Names::login(8), &plain));
        assert_ne!(first, text("q", "a", Names::login(45), &ansi));
    }

    #[test]
    fn ids_start_at_one_and_skip_live_ones() {
        let mut statements = Statements::default();
        for expected in 1..=3 {
            let id = statements.next_id(1).unwrap();
            assert_eq!(id, expected);
            statements.insert(id, statement(b"x", 0));
        }
        statements.last_id = u32::MAX;
        assert_eq!(statements.next_id(1), Some(4));
        assert!(statements.close(2).is_some() && statements.close(2).is_none());
        assert_eq!(statements.next_id(MAX_TEXT), None, "texts are bounded together");
    }
}
