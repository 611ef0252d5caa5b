//! A client's prepared statements.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::mysql::params::ParameterKind;

use super::long_data::LongData;
use super::names::Names;
use super::past::{self, Past};
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
    /// Of all variables, those that show.
    pub(crate) fn new(schema: &str, names: &Names, variables: &Variables) -> Self {
        let shown = variables.iter().filter(|(name, _)| tracked::shows_in_preparation(name));
        let variables = shown.map(|(name, literal)| (*name, literal.clone())).collect();
        Self { schema: schema.to_owned(), names: names.clone(), variables }
    }
}

/// What makes two prepared statements the same on a server. The sessions of a worker share those that are equal.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct StatementText {
    /// Of the rest: what differs here differs.
    hash: u64,
    /// Text.
    pub(crate) sql: Box<[u8]>,
    /// What it was prepared under.
    pub(crate) setting: Setting,
}

impl StatementText {
    /// Hashes once.
    pub(crate) fn new(sql: &[u8], setting: Setting) -> Self {
        let mut hasher = DefaultHasher::new();
        (sql, &setting).hash(&mut hasher);
        Self { hash: hasher.finish(), sql: sql.into(), setting }
    }

    /// A text that is prepared in schema `s`.
    #[cfg(test)]
    pub(crate) fn of(sql: &[u8]) -> Arc<Self> {
        Arc::new(Self::new(sql, Setting::new("s", &Names::UNKNOWN, &Variables::new())))
    }
}

impl Hash for StatementText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// Names one statement of one client, as no other statement of the node is ever named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StatementName(pub(crate) u64);

/// One of them.
#[derive(Debug)]
pub(crate) struct ClientStatement {
    /// Which one.
    pub(crate) name: StatementName,
    /// What it is to servers.
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
    /// Those that are to be repeated on another connection.
    pub(crate) past: Past,
    /// What COM_STMT_SEND_LONG_DATA sent, by parameter.
    pub(crate) long_data: LongData,
}

impl ClientStatement {
    /// A statement that was just prepared.
    pub(crate) fn new(name: StatementName, text: Arc<StatementText>, scan: Rc<Scanned>, parameters: u16) -> Self {
        let (types, kinds, ran, past, long_data) = Default::default();
        Self { name, text, scan, parameters, types, kinds, ran, past, long_data }
    }

    /// Whether its past executions can be repeated where it is prepared anew.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.past.is_known() && past::is_repeatable(&self.scan, &self.text.sql)
    }
}

/// By the id that the client knows.
#[derive(Debug, Default)]
pub(crate) struct Statements {
    /// In the order of their ids; without the statement while it is executed.
    by_id: Vec<(u32, Option<Box<ClientStatement>>)>,
    last_id: u32,
    text_bytes: usize,
}

impl Statements {
    /// None any more. Ids go on: one that a client still has names no new statement.
    pub(crate) fn forgotten(&self) -> Self {
        Self { last_id: self.last_id, ..Self::default() }
    }

    /// An id for a new statement; `None` = there are too many.
    pub(crate) fn next_id(&mut self, text: usize) -> Option<u32> {
        if self.by_id.len() >= MAX_STATEMENTS || self.text_bytes.saturating_add(text) > MAX_TEXT {
            return None;
        }
        loop {
            self.last_id = self.last_id.wrapping_add(1).max(1);
            if self.find(self.last_id).is_err() {
                return Some(self.last_id);
            }
        }
    }

    fn find(&self, id: u32) -> Result<usize, usize> {
        self.by_id.binary_search_by_key(&id, |(id, _)| *id)
    }

    fn place(&mut self, id: u32) -> Option<&mut Option<Box<ClientStatement>>> {
        let at = self.find(id).ok()?;
        Some(&mut self.by_id[at].1)
    }

    /// Keeps a statement under an id of [`Self::next_id`].
    pub(crate) fn insert(&mut self, id: u32, statement: ClientStatement) {
        self.text_bytes += statement.text.sql.len();
        if let Err(at) = self.find(id) {
            self.by_id.insert(at, (id, Some(Box::new(statement))));
        }
    }

    /// The statement with this id.
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut ClientStatement> {
        self.place(id)?.as_deref_mut()
    }

    /// Takes a statement out for its execution, so that its texts are not copied; give it back with [`Self::put_back`].
    pub(crate) fn take(&mut self, id: u32) -> Option<Box<ClientStatement>> {
        self.place(id)?.take()
    }

    /// Undoes [`Self::take`].
    pub(crate) fn put_back(&mut self, id: u32, statement: Box<ClientStatement>) {
        if let Some(place) = self.place(id) {
            *place = Some(statement);
        }
    }

    /// COM_STMT_CLOSE.
    pub(crate) fn close(&mut self, id: u32) -> Option<StatementName> {
        let at = self.find(id).ok()?;
        let (_, statement) = self.by_id.remove(at);
        let statement = statement?;
        self.text_bytes = self.text_bytes.saturating_sub(statement.text.sql.len());
        Some(statement.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(sql: &[u8], parameters: u16) -> ClientStatement {
        ClientStatement::new(StatementName(1), StatementText::of(sql), Rc::default(), parameters)
    }

    #[test]
    fn a_text_under_another_setting_is_another_statement() {
        let variables = |pairs: &[(&'static str, &str)]| pairs.iter().map(|(name, literal)| (*name, (*literal).to_owned())).collect();
        let (plain, ansi): (Variables, Variables) = (variables(&[]), variables(&[("sql_mode", "'ANSI'")]));
        let clock = variables(&[("timestamp", "1"), (tracked::ISOLATION, "SERIALIZABLE")]);
        let text = |sql: &str, schema, names, variables| StatementText::new(sql.as_bytes(), Setting::new(schema, &names, variables));
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
        let mut statements = statements.forgotten();
        assert!(statements.get_mut(4).is_none());
        assert_eq!(statements.next_id(1), Some(5));
    }
}
