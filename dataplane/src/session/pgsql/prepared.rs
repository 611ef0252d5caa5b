//! Prepared statements: one registry per worker, one map per client, one bounded set per server connection (pgsql-dataplane.md 4.6).

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use quorumsql_wire::sql::{Class, Effects};
use xxhash_rust::xxh3::Xxh3;

use super::changes::Change;
use super::responses::Named;
use crate::identity::Identity;
use crate::worker::scans::Scanned;

/// Statements that a worker keeps though no client refers to them.
const REGISTRY_LIMIT: usize = 10_000;
/// Statements that we keep prepared on one server connection; more close the longest unused.
pub(crate) const PER_CONNECTION_LIMIT: usize = 200;
/// Statements that one client may have prepared.
pub(crate) const PER_CLIENT_LIMIT: usize = 10_000;

/// Ids are unique in the process, because a connection may go to another worker with its statements.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// An id that no statement has.
pub(crate) fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// A statement text with its parameter types, and what the lexer said of it.
#[derive(Debug, Default)]
pub(crate) struct Statement {
    pub(crate) id: u64,
    pub(crate) sql: Box<[u8]>,
    /// Oids as in Parse.
    pub(crate) types: Box<[u8]>,
    /// `client_encoding` of its text, if the client has named one and that matters.
    pub(crate) encoding: Option<Box<str>>,
    /// What its text scanned to, and what came of its last execution.
    pub(crate) scanned: Rc<Scanned>,
    pub(crate) class: Class,
    pub(crate) effects: Effects,
    /// What it does to parameters and names.
    pub(crate) change: Option<Change>,
    /// The client's statement that its text executes or forgets, with the client's name for it.
    pub(crate) inner: Option<Named>,
    /// A server has parsed it once.
    pub(crate) is_proven: Cell<bool>,
    /// Counts how often a server turned out not to hold it any more.
    pub(crate) generation: Cell<u64>,
    /// Changes of tables that the worker had seen when it was made.
    pub(crate) schema: u64,
    /// Its rows do not look any more as a client was told: who prepares its text again gets another statement.
    pub(crate) is_outdated: Cell<bool>,
}

impl Statement {
    /// Whether no server needs to be asked if it can be parsed: it names nothing that can go away.
    pub(crate) fn surely_parses(&self) -> bool {
        self.is_proven.get() && matches!(self.class, Class::Transaction(_))
    }

    /// Whether who prepares the text now may share it.
    fn is_current(&self, schema: u64) -> bool {
        self.surely_parses() || (self.schema == schema && !self.is_outdated.get())
    }

    /// Its name on servers: no client's name ever gets there, so nothing clashes.
    pub(crate) fn server_name(&self) -> ServerName {
        ServerName::of(self.id)
    }
}

/// The name of a statement on servers: [`PREFIX`] and its id in hexadecimal digits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerName {
    text: [u8; PREFIX.len() + 16],
    length: usize,
}

impl ServerName {
    /// The name of the statement with this id.
    pub(crate) fn of(id: u64) -> Self {
        let mut name = Self { length: PREFIX.len(), ..Self::default() };
        name.text[..PREFIX.len()].copy_from_slice(PREFIX);
        let digits = (u64::BITS - (id | 1).leading_zeros()).div_ceil(4);
        for digit in (0..digits).rev() {
            name.text[name.length] = b"0123456789abcdef"[(id >> (4 * digit) & 15) as usize];
            name.length += 1;
        }
        name
    }
}

impl Deref for ServerName {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.text[..self.length]
    }
}

/// [`shape`] of the rows of its statements as one client was told, by their ids. Others may know the same statement with other rows: of
/// another database, or another search path.
pub(crate) type Told = HashMap<u64, u64, BuildHasherDefault<Identity>>;

/// A client's prepared statements by its names for them.
pub(crate) type Names = HashMap<Box<[u8]>, Rc<Statement>>;

/// What the names of all statements on servers begin with.
const PREFIX: &[u8] = b"__qsql_";

/// Whether a name could be one of ours: a client never reaches a statement by it, for it may be another's.
pub(crate) fn is_ours(name: &[u8]) -> bool {
    name.starts_with(PREFIX)
}

/// An ErrorResponse that names a statement as the server knows it, with the client's name, which `name_of` knows by the statement's id; `None` = it
/// names none.
pub(crate) fn renamed<'n>(message: &[u8], name_of: impl Fn(u64) -> Option<&'n [u8]>) -> Option<Vec<u8>> {
    let start = message.windows(PREFIX.len()).position(|window| window == PREFIX)?;
    let rest = &message[start + PREFIX.len()..];
    let length = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let id = u64::from_str_radix(std::str::from_utf8(&rest[..length]).ok()?, 16).ok()?;
    let mut out = [&message[..start], name_of(id)?, &rest[length..]].concat();
    let body = u32::try_from(out.len() - 1).ok()?;
    out[1..5].copy_from_slice(&body.to_be_bytes());
    Some(out)
}

/// Bytes of a description of rows that are looked at.
const SHAPE_LOOK: usize = 16 * 1024;

/// What a RowDescription (or the empty NoData) says that a plan may not change, in one number: names, types and type modifiers of the columns.
pub(crate) fn shape(description: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    let mut rest = description.get(2..description.len().min(SHAPE_LOOK)).unwrap_or_default();
    // Behind the name: table (4), column (2), type (4), its length (2), modifier (4), format (2).
    while let Some(end) = rest.iter().position(|byte| *byte == 0)
        && let Some(field) = rest.get(end + 1..end + 19)
    {
        hash.update(&rest[..=end]);
        hash.update(&field[6..10]);
        hash.update(&field[12..16]);
        rest = &rest[end + 19..];
    }
    hash.digest()
}

/// The statements of one worker, so that clients who prepare the same text share it on the servers.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    by_hash: HashMap<u64, Vec<Rc<Statement>>, BuildHasherDefault<Identity>>,
    count: usize,
}

impl Registry {
    /// The statement with this text, in this encoding, and these types, of tables that have changed `schema` times; `make` describes it if it is
    /// new.
    pub(crate) fn statement(
        &mut self,
        (sql, encoding): (&[u8], Option<&str>),
        types: &[u8],
        schema: u64,
        make: impl FnOnce() -> Statement,
    ) -> Rc<Statement> {
        let hash = hash(sql, types);
        let is_meant = |known: &&mut Rc<Statement>| *known.sql == *sql && *known.types == *types && known.encoding.as_deref() == encoding;
        if let Some(known) = self.by_hash.get_mut(&hash).and_then(|bucket| bucket.iter_mut().find(is_meant)) {
            if !known.is_current(schema) {
                *known = Rc::new(make());
            }
            return Rc::clone(known);
        }
        if self.count >= REGISTRY_LIMIT {
            self.forget_unused();
        }
        let made = Rc::new(make());
        if self.count < REGISTRY_LIMIT {
            self.by_hash.entry(hash).or_default().push(Rc::clone(&made));
            self.count += 1;
        }
        made
    }

    fn forget_unused(&mut self) {
        self.by_hash.retain(|_, bucket| {
            bucket.retain(|statement| Rc::strong_count(statement) > 1);
            !bucket.is_empty()
        });
        self.count = self.by_hash.values().map(Vec::len).sum();
    }
}

fn hash(sql: &[u8], types: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(types);
    hash.update(sql);
    hash.digest()
}

/// Whether a server connection has a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// Yes.
    Yes,
    /// An older generation, which must be closed first.
    Stale,
    /// No.
    No,
}

#[derive(Clone, Copy, Debug)]
struct Use {
    last: u64,
    generation: u64,
}

/// What one server connection has prepared.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    last_use: HashMap<u64, Use, BuildHasherDefault<Identity>>,
    clock: u64,
    /// Stamp of the unnamed statement; 0 = none that we know.
    pub(crate) unnamed: u64,
}

impl Prepared {
    /// Whether it holds the statement in this generation; counts as a use.
    pub(crate) fn touch(&mut self, id: u64, generation: u64) -> Held {
        self.clock += 1;
        match self.last_use.get_mut(&id) {
            Some(known) if known.generation == generation => {
                known.last = self.clock;
                Held::Yes
            }
            Some(_) => Held::Stale,
            None => Held::No,
        }
    }

    /// It holds the statement now.
    pub(crate) fn add(&mut self, id: u64, generation: u64) {
        self.clock += 1;
        self.last_use.insert(id, Use { last: self.clock, generation });
    }

    /// Nobody knows whether it holds the statement, or an older one by its name: it is closed before it is prepared again.
    pub(crate) fn doubt(&mut self, id: u64) {
        self.add(id, u64::MAX);
    }

    /// Everything is gone (DISCARD ALL, DEALLOCATE ALL).
    pub(crate) fn clear(&mut self) {
        self.last_use.clear();
        self.unnamed = 0;
    }

    /// The clock, to mark where a batch begins.
    pub(crate) fn clock(&self) -> u64 {
        self.clock
    }

    /// A statement to close before another is prepared: the longest unused, if the limit is reached and it was not used since `mark`.
    pub(crate) fn evict(&mut self, mark: u64) -> Option<u64> {
        if self.last_use.len() < PER_CONNECTION_LIMIT {
            return None;
        }
        let (&id, used) = self.last_use.iter().min_by_key(|(_, used)| used.last)?;
        (used.last <= mark).then(|| {
            self.last_use.remove(&id);
            id
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(sql: &[u8]) -> Statement {
        Statement { id: next_id(), sql: sql.into(), ..Statement::default() }
    }

    #[test]
    fn names_on_servers_are_hexadecimal() {
        for (id, name) in
            [(0, "__qsql_0"), (9, "__qsql_9"), (0x10, "__qsql_10"), (0xabc, "__qsql_abc"), (u64::MAX, "__qsql_ffffffffffffffff")]
        {
            assert_eq!(&*ServerName::of(id), name.as_bytes());
        }
    }

    #[test]
    fn errors_name_a_statement_as_its_client_does() {
        let statement = Rc::new(Statement { id: 0xab, ..Statement::default() });
        let names = Names::from([(Box::from(&b"mine"[..]), statement)]);
        let message = |text: &str| [&b"E"[..], &u32::try_from(text.len() + 4).unwrap().to_be_bytes(), text.as_bytes()].concat();
        let name_of = |id| names.iter().find(|(_, statement)| statement.id == id).map(|(name, _)| &**name);
        assert_eq!(renamed(&message("Mstatement \"__qsql_ab\" x\0\0"), name_of), Some(message("Mstatement \"mine\" x\0\0")));
        for other in ["M\"__qsql_ac\"\0\0", "M__qsql_\0\0", "Mx\0\0", "M__qsql_ffffffffffffffffff\0\0"] {
            assert_eq!(renamed(&message(other), name_of), None);
        }
    }

    #[test]
    fn equal_texts_share_one_statement() {
        let mut registry = Registry::default();
        let first = registry.statement((b"SELECT 1", None), b"", 0, || make(b"SELECT 1"));
        let again = registry.statement((b"SELECT 1", None), b"", 0, || make(b"SELECT 1"));
        let typed = registry
            .statement((b"SELECT 1", None), b"\0\0\0\x17", 0, || Statement { types: Box::from(&b"\0\0\0\x17"[..]), ..make(b"SELECT 1") });
        assert_eq!((first.id == again.id, first.id == typed.id), (true, false));
        let mut id_in = |encoding: Option<&str>| {
            let make = || Statement { encoding: encoding.map(Into::into), ..make(b"SELECT '\xe9'") };
            registry.statement((b"SELECT '\xe9'", encoding), b"", 0, make).id
        };
        let (own, latin) = (id_in(None), id_in(Some("LATIN1")));
        assert_eq!((own == latin, id_in(None) == own, id_in(Some("LATIN1")) == latin), (false, true, true));
    }

    #[test]
    fn a_text_is_another_statement_once_tables_have_changed() {
        let mut registry = Registry::default();
        let mut id_at = |schema| registry.statement((b"TABLE t", None), b"", schema, || Statement { schema, ..make(b"TABLE t") });
        let old = id_at(0);
        let new = id_at(1);
        assert_ne!(old.id, new.id);
        assert_eq!(id_at(1).id, new.id);
        new.is_outdated.set(true);
        assert_ne!(id_at(1).id, new.id);
    }

    #[test]
    fn the_shape_of_rows_is_names_and_types() {
        let row = |name: &str, table: u8, kind: u8, format: u8| {
            let field = [0, 0, 0, table, 0, 1, 0, 0, 0, kind, 0, 4, 0xff, 0xff, 0xff, 0xff, 0, format];
            [&b"\0\x01"[..], name.as_bytes(), b"\0", &field].concat()
        };
        let a = shape(&row("a", 1, 23, 0));
        assert_eq!(a, shape(&row("a", 2, 23, 1)));
        for other in [row("b", 1, 23, 0), row("a", 1, 25, 0), [&row("a", 1, 23, 0)[..], &row("b", 1, 23, 0)[2..]].concat(), Vec::new()] {
            assert_ne!(a, shape(&other));
        }
    }

    #[test]
    fn the_registry_is_bounded_and_keeps_what_is_used() {
        let mut registry = Registry::default();
        let kept = registry.statement((b"kept", None), b"", 0, || make(b"kept"));
        for number in 0..REGISTRY_LIMIT + 5 {
            let text = number.to_string();
            registry.statement((text.as_bytes(), None), b"", 0, || make(text.as_bytes()));
        }
        assert!(registry.count <= REGISTRY_LIMIT);
        assert_eq!(registry.statement((b"kept", None), b"", 0, || make(b"kept")).id, kept.id);
    }

    #[test]
    fn a_connection_closes_the_longest_unused_but_none_of_the_present_batch() {
        let mut prepared = Prepared::default();
        for id in 1..=PER_CONNECTION_LIMIT as u64 {
            assert_eq!(prepared.evict(u64::MAX), None);
            prepared.add(id, 0);
        }
        assert_eq!((prepared.touch(1, 0), prepared.touch(1, 1)), (Held::Yes, Held::Stale));
        assert_eq!(prepared.evict(prepared.clock()), Some(2));
        prepared.add(1000, 0);
        assert_eq!(prepared.evict(0), None, "all were used in the present batch");
        prepared.clear();
        assert_eq!(prepared.touch(1, 0), Held::No);
    }
}
