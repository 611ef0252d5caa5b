//! Statements that are prepared on one server connection.

use std::sync::Arc;

use super::Product;
use crate::session::mysql::ran::Ran;
use crate::session::mysql::statements::{ClientStatement, StatementName, StatementText};

/// Most statements that a connection keeps prepared; the least recently used one is closed for a new one.
const MAX_PREPARED: usize = 64;

#[derive(Debug)]
struct Prepared {
    text: Arc<StatementText>,
    id: u32,
    ran: Ran,
    /// The one statement of a client that it serves; `None` = all that are like it.
    owner: Option<StatementName>,
    /// A cursor is open: it may not be closed.
    cursor: bool,
}

impl Prepared {
    fn is_owned_by(&self, name: StatementName) -> bool {
        self.owner == Some(name)
    }

    /// It has not seen what has brought a client's statement where that is, and the next execution does not make up for it.
    fn is_behind(&self, statement: &ClientStatement) -> bool {
        self.owner.is_none() && self.ran == Ran::Never && !statement.ran.begins_with(&statement.kinds)
    }

    fn own(&mut self, name: StatementName) {
        self.owner = Some(name);
        self.ran = Ran::Mixed;
    }
}

/// By what a client's statement is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Execution {
    /// The statement with this id of the server.
    By(u32),
    /// The same, once the client's past executions have been repeated on it.
    Behind(u32),
    /// None: it must be prepared.
    Missing,
}

/// The statements, most recently used last.
#[derive(Debug)]
pub(crate) struct Registry {
    prepared: Vec<Prepared>,
    /// Statements remember the kinds of their parameters, see [`Ran`].
    remembers: bool,
}

impl Registry {
    /// Whether what is executed here leaves something behind in its statement.
    pub(crate) fn remembers(&self) -> bool {
        self.remembers
    }

    /// Of a new connection. MariaDB resolves types at each execution.
    pub(crate) fn new(product: Product) -> Self {
        Self { prepared: Vec::new(), remembers: product == Product::Mysql }
    }

    /// Where a statement is that a client's may be executed by, as it was bound: its own before one that is where its executions
    /// have brought it, before any other.
    fn position(&self, statement: &ClientStatement) -> Option<usize> {
        let (mut alike, mut fresh) = (None, None);
        for (at, prepared) in self.prepared.iter().enumerate().rev() {
            if prepared.owner.is_some() {
                if prepared.is_owned_by(statement.name) {
                    return Some(at);
                }
            } else if prepared.text == statement.text {
                if prepared.ran == Ran::Never {
                    fresh = fresh.or(Some(at));
                } else if alike.is_none() && prepared.ran.serves(&statement.ran, &statement.kinds) {
                    alike = Some(at);
                }
            }
        }
        if statement.ran == Ran::Never { fresh.or(alike) } else { alike.or(fresh) }
    }

    /// Whether a client's statement can be executed as if this connection alone had ever executed it.
    pub(crate) fn has(&self, statement: &ClientStatement) -> bool {
        self.position(statement).is_some_and(|at| !self.prepared[at].is_behind(statement))
    }

    /// Which of the server's statements a client's is to be executed by. It becomes the most recently used, and if all is well,
    /// both remember the execution.
    pub(crate) fn execute(&mut self, statement: &mut ClientStatement) -> Execution {
        let Some(at) = self.position(statement) else { return Execution::Missing };
        if at + 1 != self.prepared.len() {
            let prepared = self.prepared.remove(at);
            self.prepared.push(prepared);
        }
        let Some(prepared) = self.prepared.last_mut() else { return Execution::Missing };
        if prepared.is_behind(statement) && statement.is_repeatable() {
            return Execution::Behind(prepared.id);
        }
        if self.remembers && !statement.kinds.is_empty() {
            prepared.ran.run(&statement.kinds);
            match &prepared.ran {
                // Both have begun alike.
                Ran::Alike(kinds) if statement.ran == Ran::Never => statement.ran = Ran::Alike(Arc::clone(kinds)),
                _ => statement.ran.run(&statement.kinds),
            }
            if prepared.ran == Ran::Mixed || statement.ran == Ran::Mixed {
                prepared.own(statement.name);
            }
        }
        Execution::By(prepared.id)
    }

    /// The past of a client's statement has been repeated on the one that it was behind.
    pub(crate) fn caught_up(&mut self, statement: &ClientStatement) {
        let Some(prepared) = self.prepared.last_mut() else { return };
        prepared.ran = statement.ran.clone();
        if prepared.ran == Ran::Mixed {
            prepared.own(statement.name);
        }
    }

    /// Adds a statement. Returns the server's id of one that must be closed for it: one that it takes the place of, or the
    /// least recently used.
    pub(crate) fn add(&mut self, text: Arc<StatementText>, id: u32) -> Option<u32> {
        let place = self.superseded(&text).or_else(|| {
            let full = self.prepared.len() >= MAX_PREPARED;
            full.then(|| self.prepared.iter().position(|prepared| !prepared.cursor)).flatten()
        });
        let closed = place.map(|at| self.prepared.remove(at).id);
        self.prepared.push(Prepared { text, id, ran: Ran::Never, owner: None, cursor: false });
        closed
    }

    /// Where a statement is that one more of the text makes superfluous: it was never executed, or another is where it is.
    fn superseded(&self, text: &Arc<StatementText>) -> Option<usize> {
        let shared = |prepared: &&Prepared| prepared.owner.is_none() && prepared.text == *text;
        self.prepared.iter().enumerate().find_map(|(at, prepared)| {
            let superfluous =
                || prepared.ran == Ran::Never || self.prepared[at + 1..].iter().filter(shared).any(|other| other.ran == prepared.ran);
            (shared(&prepared) && superfluous()).then_some(at)
        })
    }

    /// The execution of a client's statement, which was the last one here, has opened a cursor or has not.
    pub(crate) fn executed(&mut self, name: StatementName, cursor: bool) {
        let Some(prepared) = self.prepared.last_mut() else { return };
        if cursor {
            prepared.own(name);
        }
        prepared.cursor = cursor;
    }

    /// The server's id of the statement with a client's open cursor.
    pub(crate) fn cursor(&self, name: StatementName) -> Option<u32> {
        self.prepared.iter().find(|prepared| prepared.cursor && prepared.is_owned_by(name)).map(|prepared| prepared.id)
    }

    /// A client's cursor is closed.
    pub(crate) fn close_cursor(&mut self, name: StatementName) {
        self.prepared.iter_mut().filter(|prepared| prepared.is_owned_by(name)).for_each(|prepared| prepared.cursor = false);
    }

    /// The statement that was executed last serves nobody any more. Returns the server's id.
    pub(crate) fn forget_last(&mut self) -> Option<u32> {
        self.prepared.pop().map(|prepared| prepared.id)
    }

    /// The server has too many: all that can be closed. Returns its ids.
    pub(crate) fn shed(&mut self) -> Vec<u32> {
        self.prepared.extract_if(.., |prepared| !prepared.cursor).map(|prepared| prepared.id).collect()
    }

    /// The server has forgotten all (COM_RESET_CONNECTION).
    pub(crate) fn clear(&mut self) {
        self.prepared = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use quorumsql_wire::mysql::params::ParameterKind::{self, Decimal, Double, Int, Text};
    use quorumsql_wire::sql::{Scan, ScanOptions, scan_mysql};

    use super::*;
    use crate::worker::scans::Scanned;

    fn client(sql: &str) -> ClientStatement {
        thread_local! {
            static LAST: Cell<u64> = const { Cell::new(0) };
        }
        LAST.set(LAST.get() + 1);
        let mut scan = Scan::default();
        scan_mysql(sql.as_bytes(), &ScanOptions::MYSQL, &mut scan);
        ClientStatement::new(StatementName(LAST.get()), StatementText::of(sql.as_bytes()), Scanned::new(scan), 1)
    }

    /// Executes a client's statement, which is prepared as `id` if need be.
    fn execute(registry: &mut Registry, client: &mut ClientStatement, kinds: &[ParameterKind], id: u32) -> u32 {
        client.kinds = kinds.to_vec();
        loop {
            match registry.execute(client) {
                Execution::By(id) => return id,
                Execution::Behind(_) => registry.caught_up(client),
                Execution::Missing => {
                    registry.add(Arc::clone(&client.text), id);
                }
            }
        }
    }

    #[test]
    fn the_least_recently_used_is_closed_for_a_new_one() {
        let mut registry = Registry::new(Product::Mariadb);
        let mut clients: Vec<_> = (0..=MAX_PREPARED).map(|number| client(&number.to_string())).collect();
        for (number, client) in clients[..MAX_PREPARED].iter().enumerate() {
            assert_eq!(registry.add(Arc::clone(&client.text), number as u32), None);
        }
        assert!(registry.has(&clients[0]));
        assert_eq!(registry.execute(&mut clients[0]), Execution::By(0));
        let more = Arc::clone(&clients[MAX_PREPARED].text);
        assert_eq!(registry.add(Arc::clone(&more), 1000), Some(1));
        assert!(!registry.has(&clients[1]));
        assert_eq!(registry.execute(&mut clients[1]), Execution::Missing);
        assert_eq!(registry.add(more, 1001), Some(1000), "the same text again");
        assert_eq!(registry.execute(&mut clients[MAX_PREPARED]), Execution::By(1001));
        assert_eq!(registry.forget_last(), Some(1001));
        assert_eq!(registry.execute(&mut clients[MAX_PREPARED]), Execution::Missing);
        registry.clear();
        assert_eq!(registry.execute(&mut clients[0]), Execution::Missing);
    }

    #[test]
    fn a_statement_is_shared_while_its_executions_are_alike() {
        let mut registry = Registry::new(Product::Mysql);
        let (mut a, mut b, mut c) = (client("q"), client("q"), client("q"));
        assert_eq!(execute(&mut registry, &mut a, &[Int], 1), 1);
        assert_eq!(execute(&mut registry, &mut b, &[Int], 2), 1, "shared");
        assert_eq!(execute(&mut registry, &mut c, &[Double], 3), 3, "not with other kinds");
        assert_eq!(execute(&mut registry, &mut b, &[Double], 4), 1, "b takes it");
        assert_eq!(execute(&mut registry, &mut a, &[Int], 5), 5, "and a has it no more");
        assert_eq!(execute(&mut registry, &mut b, &[Int], 6), 1);
        assert_eq!(execute(&mut registry, &mut c, &[Double], 7), 3);
        assert_eq!(execute(&mut registry, &mut a, &[Int], 8), 5);
        b.kinds = vec![Double];
        let mut other = Registry::new(Product::Mysql);
        other.add(Arc::clone(&c.text), 9);
        assert!(!other.has(&b) && other.has(&c), "its executions are not there");
        assert_eq!(execute(&mut other, &mut b, &[Double], 10), 9);
        assert!(other.has(&b) && !other.has(&c));
    }

    #[test]
    fn a_past_that_can_be_repeated_comes_first() {
        /// Kinds of the executions, whether they are kept, kinds of the next one elsewhere, whether it must wait for the past.
        type Case<'a> = (&'a [&'a [ParameterKind]], bool, &'a [ParameterKind], bool);
        let cases: [Case<'_>; 7] = [
            (&[], true, &[Int], false),
            (&[&[Decimal]], true, &[Decimal], false),
            (&[&[Decimal]], true, &[Text], true),
            (&[&[Decimal]], true, &[Double], true),
            (&[&[Decimal]], false, &[Text], false),
            (&[&[Decimal], &[Double]], true, &[Double], true),
            (&[&[Decimal], &[Double]], false, &[Double], false),
        ];
        for (executions, kept, kinds, waits) in cases {
            let mut client = client("SELECT GREATEST(?, 2)");
            let mut here = Registry::new(Product::Mysql);
            for kinds in executions {
                execute(&mut here, &mut client, kinds, 1);
                client.past.run(kinds, || kept.then(Vec::new));
            }
            let mut other = Registry::new(Product::Mysql);
            other.add(Arc::clone(&client.text), 2);
            client.kinds = kinds.to_vec();
            let is_behind = waits || !kept;
            assert_eq!(other.has(&client), !is_behind, "{executions:?} {kinds:?}");
            assert_eq!(other.execute(&mut client), if waits { Execution::Behind(2) } else { Execution::By(2) }, "{executions:?} {kinds:?}");
            if waits {
                other.caught_up(&client);
                assert_eq!(other.execute(&mut client), Execution::By(2), "{executions:?} {kinds:?}");
            }
        }
    }

    #[test]
    fn mariadb_remembers_nothing() {
        let mut registry = Registry::new(Product::Mariadb);
        let (mut a, mut b) = (client("q"), client("q"));
        assert_eq!(execute(&mut registry, &mut a, &[Double], 1), 1);
        assert_eq!(execute(&mut registry, &mut a, &[Int], 2), 1);
        assert_eq!(execute(&mut registry, &mut b, &[Int], 3), 1);
        assert_eq!((a.ran, b.ran), (Ran::Never, Ran::Never));
    }

    #[test]
    fn a_new_one_takes_the_place_of_those_that_are_superfluous() {
        let mut registry = Registry::new(Product::Mysql);
        let mut clients = [client("q"), client("q"), client("q")];
        assert_eq!(registry.add(Arc::clone(&clients[0].text), 1), None);
        assert_eq!(registry.add(Arc::clone(&clients[1].text), 2), Some(1), "never executed");
        assert_eq!(execute(&mut registry, &mut clients[1], &[Double], 0), 2);
        assert_eq!(registry.add(Arc::clone(&clients[2].text), 3), None, "the second's history is its own");
        clients[2].kinds = vec![Int];
        assert_eq!(execute(&mut registry, &mut clients[2], &[Int], 0), 3);
        assert_eq!(execute(&mut registry, &mut clients[2], &[Double], 0), 3);
        assert_eq!(registry.add(Arc::clone(&clients[0].text), 4), None);
        assert_eq!(execute(&mut registry, &mut clients[0], &[Double], 0), 4);
        assert_eq!(registry.add(Arc::clone(&clients[0].text), 5), Some(2), "two are alike");
    }

    #[test]
    fn a_cursor_belongs_to_one_statement_and_stays_open() {
        for product in [Product::Mysql, Product::Mariadb] {
            let mut registry = Registry::new(product);
            let (mut a, mut b) = (client("q"), client("q"));
            assert_eq!(execute(&mut registry, &mut a, &[Int], 1), 1);
            registry.executed(a.name, true);
            assert_eq!(execute(&mut registry, &mut b, &[Int], 2), 2);
            assert_eq!((registry.cursor(a.name), registry.cursor(b.name)), (Some(1), None));
            for number in 10..200 {
                assert_ne!(registry.add(client(&number.to_string()).text, number), Some(1));
            }
            assert_eq!((registry.shed().len(), registry.shed().len()), (MAX_PREPARED - 1, 0));
            assert_eq!(execute(&mut registry, &mut a, &[Int], 3), 1);
            registry.executed(a.name, false);
            assert_eq!(registry.cursor(a.name), None);
        }
    }
}
