//! Runs a reading statement over stored and per-statement tables (design.md section 12, "Admin engine").
//!
//! ```text
//! text ─► rewrite ─► make the named tables, empty ─► prepare under the authoriser: which are read? ─► fill those ─► run
//! ```
//! All of it sees one state: filling and running share one read transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use quorumsql_raft::tables as stored;
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::types::Value;

use super::catalog;
use super::context::Context;
use super::rewrite::{self, Rewritten};
use super::tables::{Place, VirtualTable, memory_indexes, variables_of_stats_users, virtual_tables};
use super::variables::{Layered, client_variable, effective, plain_name};
use crate::sql_server::engine::{ColumnTypes, EngineError, describe, run};
use crate::sql_server::functions::{ClientFacts, register};
use crate::sql_server::lexer::{Kind, tokens};
use crate::sql_server::{Answer, Description, Face, Rows};

/// `@@quorumsql_applied_index`: the index of the state that a statement reads (raft-and-storage.md 6.2).
const APPLIED_INDEX: &str = "quorumsql_applied_index";

/// What a connection may read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Audience {
    /// Everything that is visible.
    Admin,
    /// `stats` and `monitor`; configuration tables do not exist.
    Stats,
}

/// A statement to read with.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    /// Its text.
    pub(crate) sql: String,
    /// Its parameters.
    pub(crate) params: Vec<Value>,
    /// Who reads.
    pub(crate) audience: Audience,
    /// In which dialect names are written.
    pub(crate) face: Face,
    /// For functions.
    pub(crate) client: ClientFacts,
}

/// A result, and which state of MEMORY it has shown.
#[derive(Debug)]
pub(crate) struct Shown {
    /// Result set.
    pub(crate) rows: Rows,
    /// `(module, memory_index)` of the modules whose MEMORY tables were read.
    pub(crate) seen: Vec<(String, u64)>,
}

/// Names that a statement touched, noted while it was prepared.
#[derive(Debug, Default)]
struct Noted {
    tables: Vec<String>,
    denied: Option<String>,
}

/// Runs `query`.
///
/// # Errors
/// SQLite's; names that are not visible do not exist.
pub(crate) fn execute(context: &Context, connection: &mut Connection, query: &Query) -> Result<Shown, EngineError> {
    let prepared = Prepared::new(context, connection, query)?;
    let touched = prepared.check(connection)?;
    for table in prepared.made.iter().filter(|table| touched.contains(&table.name)) {
        table.fill(context, connection)?;
    }
    let seen = if query.audience == Audience::Admin { seen(connection, &touched)? } else { Vec::new() };
    let answer = prepared.guarded(connection, |connection| run(connection, &prepared.sql, &query.params, ColumnTypes::Text))?;
    match answer {
        Answer::Rows(mut rows) => {
            if prepared.nothing {
                rows.rows.clear();
            }
            Ok(Shown { rows, seen })
        }
        Answer::Done(_) => Err(EngineError::Sql("not an error".into())),
    }
}

/// Columns and parameters of `query`.
///
/// # Errors
/// As [`execute`].
pub(crate) fn describe_query(context: &Context, connection: &mut Connection, query: &Query) -> Result<Description, EngineError> {
    let prepared = Prepared::new(context, connection, query)?;
    prepared.guarded(connection, |connection| describe(connection, &prepared.sql, ColumnTypes::Text))
}

struct Prepared {
    sql: String,
    made: Vec<VirtualTable>,
    hidden: Arc<Vec<String>>,
    /// A single unknown `@@name`: columns, but no row.
    nothing: bool,
}

impl Prepared {
    fn new(context: &Context, connection: &mut Connection, query: &Query) -> Result<Self, EngineError> {
        register(connection, &query.client)?;
        let named = names(&query.sql);
        let made = made_tables(query.audience, &named);
        let hidden = Arc::new(hidden_tables(connection, query.audience, &made)?);
        let catalog = query.face == Face::Pgsql && catalog::is_named(&query.sql);
        let needed = |schema: &&str| made.iter().any(|table| table.place.schema() == *schema) || named.iter().any(|name| name == schema);
        for schema in ["disk", "stats", "monitor"].into_iter().filter(needed).chain(catalog.then_some("pg_catalog")) {
            connection.execute_batch(&format!("ATTACH 'file:{schema}?mode=memory' AS {schema}"))?;
        }
        connection.execute_batch("BEGIN")?;
        if catalog {
            catalog::create(connection, &table_names(query.audience))?;
        }
        for table in &made {
            table.create(connection)?;
        }
        let mut values = BTreeMap::new();
        if query.sql.contains("@@") {
            values = effective(context, connection, Layered::Memory)?;
            // Of the state that this transaction sees, which is not the newest: it dates the answer.
            let index: i64 = connection.query_row("SELECT last_index FROM main.raft_meta", [], |row| row.get(0))?;
            values.insert(APPLIED_INDEX.into(), index.to_string());
        }
        let Rewritten { sql, nothing } =
            rewrite::statement(&query.sql, query.face, |name| variable(context, &values, query.audience, name));
        Ok(Self { sql, made, hidden, nothing })
    }

    /// Which tables the statement reads.
    fn check(&self, connection: &mut Connection) -> Result<Vec<String>, EngineError> {
        let noted = Arc::new(Mutex::new(Noted::default()));
        self.authorise(connection, &noted)?;
        let prepared = connection.prepare(&self.sql).map(|statement| statement.readonly());
        connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
        let noted = std::mem::take(&mut *noted.lock());
        match (prepared, noted.denied) {
            (Ok(true), _) => Ok(noted.tables),
            (Ok(false), _) => Err(EngineError::Sql("attempt to write a readonly database".into())),
            (Err(_), Some(denied)) => Err(EngineError::Sql(denied)),
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Runs `work` under the authoriser.
    fn guarded<T>(&self, connection: &mut Connection, work: impl FnOnce(&Connection) -> Result<T, EngineError>) -> Result<T, EngineError> {
        let noted = Arc::new(Mutex::new(Noted::default()));
        self.authorise(connection, &noted)?;
        let result = work(connection);
        connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
        let denied = noted.lock().denied.take();
        match (result, denied) {
            (Err(_), Some(denied)) => Err(EngineError::Sql(denied)),
            (result, _) => result,
        }
    }

    fn authorise(&self, connection: &mut Connection, noted: &Arc<Mutex<Noted>>) -> Result<(), EngineError> {
        let (hidden, noted) = (Arc::clone(&self.hidden), Arc::clone(noted));
        connection.authorizer(Some(move |context: AuthContext<'_>| judge(&context, &hidden, &mut noted.lock())))?;
        Ok(())
    }
}

fn judge(context: &AuthContext<'_>, hidden: &[String], noted: &mut Noted) -> Authorization {
    match context.action {
        AuthAction::Select | AuthAction::Function { .. } | AuthAction::Recursive => Authorization::Allow,
        AuthAction::Read { table_name, .. } => {
            let name = table_name.to_ascii_lowercase();
            let in_main = context.database_name.is_none_or(|schema| schema == "main");
            let internal = name.starts_with("sqlite_")
                || (name.starts_with("pragma_") && !matches!(name.as_str(), "pragma_table_info" | "pragma_table_xinfo"));
            if internal || (in_main && hidden.contains(&name)) {
                noted.denied.get_or_insert_with(|| format!("no such table: {table_name}"));
                return Authorization::Deny;
            }
            if !noted.tables.contains(&name) {
                noted.tables.push(name);
            }
            Authorization::Allow
        }
        AuthAction::Pragma { pragma_name: "table_info" | "table_xinfo", .. } => Authorization::Allow,
        _ => {
            noted.denied.get_or_insert_with(|| "attempt to write a readonly database".into());
            Authorization::Deny
        }
    }
}

/// Everything in the text that can be the name of a table, in lower case.
fn names(sql: &str) -> Vec<String> {
    let found = tokens(sql);
    let can_name = |kind: Kind| matches!(kind, Kind::Word | Kind::DoubleQuoted | Kind::Name | Kind::String);
    found.iter().filter(|token| can_name(token.kind)).map(|token| token.unquoted().to_ascii_lowercase()).collect()
}

fn made_tables(audience: Audience, named: &[String]) -> Vec<VirtualTable> {
    let visible = |table: &VirtualTable| named.contains(&table.name) && (audience == Audience::Admin || table.place.is_for_stats());
    let mut made: Vec<VirtualTable> = virtual_tables().into_iter().filter(visible).collect();
    if audience == Audience::Stats {
        made.extend(Some(variables_of_stats_users()).filter(|table| named.contains(&table.name)));
    }
    made
}

/// Tables that are visible without a schema.
fn table_names(audience: Audience) -> Vec<String> {
    let made = virtual_tables()
        .into_iter()
        .filter(|table| table.place != Place::Disk && (audience == Audience::Admin || table.place.is_for_stats()));
    let mut names: Vec<String> = made.map(|table| table.name).filter(|name| stored::table(name).is_none()).collect();
    if audience == Audience::Admin {
        names.extend(stored::TABLES.iter().map(|table| table.name.to_owned()));
    }
    names.sort();
    names
}

/// Stored tables under whose name nothing is visible in `main`.
fn hidden_tables(connection: &Connection, audience: Audience, made: &[VirtualTable]) -> Result<Vec<String>, EngineError> {
    let mut statement = connection.prepare("SELECT lower(name) FROM main.sqlite_master")?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    let visible =
        |name: &String| audience == Audience::Admin && (stored::table(name).is_some() || made.iter().any(|table| table.name == *name));
    Ok(names.into_iter().filter(|name| !visible(name)).collect())
}

fn seen(connection: &Connection, touched: &[String]) -> Result<Vec<(String, u64)>, EngineError> {
    let modules: Vec<_> =
        stored::MODULES.iter().filter(|module| module.tables.iter().any(|table| touched.iter().any(|name| name == table))).collect();
    if modules.is_empty() {
        return Ok(Vec::new());
    }
    let indexes = memory_indexes(connection)?;
    Ok(indexes.into_iter().filter(|(name, _)| modules.iter().any(|module| module.name == name || module.key() == *name)).collect())
}

/// The value of `@@name`.
fn variable(context: &Context, values: &BTreeMap<String, String>, audience: Audience, name: &str) -> Option<String> {
    let name = plain_name(name);
    match name.as_str() {
        APPLIED_INDEX => values.get(&name).cloned(),
        "quorumsql_leader_contact_ms" => context.consensus.status().leader_contact_ms.map(|age| age.to_string()),
        _ if audience == Audience::Admin => values.get(&name).cloned().or_else(|| client_variable(values, &name)),
        _ => client_variable(values, &name),
    }
}
