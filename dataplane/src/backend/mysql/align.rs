//! Bringing a connection to a session's state before a statement (mysql-dataplane 5.7). On the usual path nothing differs and
//! nothing is sent; what differs goes in one piece, and the answers are read behind it.

use quorumsql_wire::mysql::ErrPacket;
use quorumsql_wire::mysql::command::byte;

use super::Backend;
use super::call::BrokenBackend;
use super::diagnostics::{self, Diagnostics};
use crate::session::mysql::names::Collate;
use crate::session::mysql::state::{Goal, SessionState};
use crate::session::mysql::tracked;

/// Why a statement cannot run on the connection.
#[derive(Debug)]
pub(crate) enum AlignError {
    /// The server refused; the payload of its ERR goes to the client, the connection stays good.
    Refused(Vec<u8>),
    /// The connection is of no use any more.
    Broken(BrokenBackend),
}

impl From<BrokenBackend> for AlignError {
    fn from(error: BrokenBackend) -> Self {
        Self::Broken(error)
    }
}

/// What a statement reads of the state that other sessions leave on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reads {
    /// `LAST_INSERT_ID()`, to be set to this.
    pub(crate) insert_id: Option<u64>,
    /// Warnings and errors, to be the session's.
    pub(crate) diagnostics: bool,
    /// `FOUND_ROWS()` and `ROW_COUNT()`, to be the session's.
    pub(crate) counts: bool,
    /// Not the schema: the statement is a USE. The one before may not exist.
    pub(crate) no_schema: bool,
}

impl Reads {
    const NOTHING: Self = Self { insert_id: None, diagnostics: false, counts: false, no_schema: false };
}

/// One command and what it means for the connection.
enum Step<'a> {
    Schema(&'a str),
    Autocommit,
    MultiStatements(bool),
    Names,
    Variable(&'static str, &'a str),
    Default(&'static str),
    InsertId,
    Diagnostics,
}

/// The schema in place of none: every server has it, and no tables of anybody's.
const NO_SCHEMA: &str = "information_schema";

impl Backend {
    /// `true` if [`Self::align`] has nothing to do. No wait, no allocation.
    pub(crate) fn is_aligned(&self, session: &SessionState, reads: Reads) -> bool {
        self.state.schema.as_deref() == Some(&*session.origin.schema) && self.fits(session) && reads == Reads::NOTHING
    }

    /// `true` if no more than the schema differs.
    pub(crate) fn fits(&self, session: &SessionState) -> bool {
        let state = &self.state;
        state.names == session.names
            && state.variables == session.variables
            && state.autocommit() == session.autocommit
            && state.multi_statements == session.multi_statements
    }

    /// Sends what differs. Safe on a connection that has no transaction open, or whose session is the one it serves already.
    pub(crate) async fn align(&mut self, session: &SessionState, reads: Reads) -> Result<(), AlignError> {
        // Not by `= DEFAULT`: MySQL 9 takes it for OFF with foreign_key_checks. Never with a transaction open: a session's own
        // connection has nothing that the session has not set.
        let foreign = self.state.variables.keys().any(|name| !session.variables.contains_key(name));
        if foreign && !self.reset().await? {
            return Err(BrokenBackend::Closed.into());
        }
        self.take_steps(session.goal(), reads).await?;
        // Last, as every other step counts, too.
        if reads.counts { self.make_counts(&session.last).await } else { Ok(()) }
    }

    /// Sends what differs, on a connection that may have a transaction open: it is not reset, but variables of the session that
    /// the goal does not have get their defaults.
    pub(crate) async fn change_to(&mut self, goal: Goal<'_>) -> Result<(), AlignError> {
        self.take_steps(goal, Reads::NOTHING).await
    }

    async fn take_steps(&mut self, goal: Goal<'_>, reads: Reads) -> Result<(), AlignError> {
        let (steps, commands): (Vec<_>, Vec<_>) = self.steps(goal, reads).into_iter().unzip();
        let mut refused = None;
        for (step, outcome) in steps.into_iter().zip(self.pipeline(&commands).await?) {
            match outcome {
                Ok(_) => self.took(step, goal),
                Err(_) if matches!(step, Step::Names) && self.fall_back(goal).await? => self.took(step, goal),
                // A variable that the server does not have is left out quietly: names of the other product are harmless.
                Err(payload) if matches!(step, Step::Variable(..) | Step::Default(_)) && is_unknown_variable(&payload) => {
                    self.took(step, goal);
                }
                // The error is what was asked for. Where a branch of XA allows no statement, its own error is the last.
                Err(_) if matches!(step, Step::Diagnostics) => self.took(step, goal),
                Err(payload) => refused = refused.or(Some(payload)),
            }
        }
        refused.map_or(Ok(()), |payload| Err(AlignError::Refused(payload)))
    }

    /// What must be sent, in order.
    fn steps<'a>(&self, goal: Goal<'a>, reads: Reads) -> Vec<(Step<'a>, Vec<u8>)> {
        let state = &self.state;
        let mut steps = Vec::new();
        let mut schema = state.schema.as_deref();
        let query = |sql: &str| [&[byte::QUERY], sql.as_bytes()].concat();
        let init_db = |name: &str| [&[byte::INIT_DB], name.as_bytes()].concat();
        if state.autocommit() != goal.autocommit {
            let sql = if goal.autocommit { "SET autocommit=1" } else { "SET autocommit=0" };
            steps.push((Step::Autocommit, query(sql)));
        }
        if state.multi_statements != goal.multi_statements {
            let option = vec![byte::SET_OPTION, u8::from(!goal.multi_statements), 0];
            steps.push((Step::MultiStatements(goal.multi_statements), option));
        }
        if state.names != *goal.names
            && let Some(sql) = goal.names.statement(Collate::Exact, self.state.product)
        {
            if let Some(wanted) = goal.names.schema().filter(|wanted| schema != Some(wanted)) {
                steps.push((Step::Schema(wanted), init_db(wanted)));
                schema = Some(wanted);
            }
            steps.push((Step::Names, query(&sql)));
        }
        for name in state.variables.keys().filter(|name| !goal.variables.contains_key(*name)) {
            if let Some(sql) = tracked::default_statement(name) {
                steps.push((Step::Default(name), query(&sql)));
            }
        }
        for (name, literal) in goal.variables {
            if state.variables.get(name) != Some(literal) {
                steps.push((Step::Variable(name, literal), query(&tracked::statement(name, literal))));
            }
        }
        // A connection that has a schema cannot have none again, as a session has whose schema was dropped.
        let wanted = if goal.schema.is_empty() { NO_SCHEMA } else { goal.schema };
        if !reads.no_schema && schema != Some(goal.schema) && schema != Some(wanted) {
            steps.push((Step::Schema(wanted), init_db(wanted)));
        }
        if let Some(id) = reads.insert_id {
            steps.push((Step::InsertId, query(&format!("DO LAST_INSERT_ID({id})"))));
        }
        if reads.diagnostics {
            steps.push((Step::Diagnostics, query(&diagnostics::statement(goal.last.error.as_ref(), state.product))));
        }
        steps
    }

    fn took(&mut self, step: Step<'_>, goal: Goal<'_>) {
        let state = &mut self.state;
        match step {
            Step::Schema(name) => state.schema = Some(name.to_owned()),
            Step::MultiStatements(on) => state.multi_statements = on,
            Step::Names => state.names.clone_from(goal.names),
            Step::Variable(name, literal) => {
                state.variables.insert(name, literal.to_owned());
            }
            Step::Default(name) => {
                state.variables.remove(name);
            }
            Step::InsertId => state.has_insert_id = true,
            // The status of the answer tells.
            Step::Autocommit => {}
            Step::Diagnostics => state.diagnostics = Diagnostics::Own,
        }
    }

    /// A collation of the other product in a handshake: the server falls back to the character set's default, and so does
    /// this. `false` = that is not it.
    async fn fall_back(&mut self, goal: Goal<'_>) -> Result<bool, BrokenBackend> {
        let exact = goal.names.statement(Collate::Exact, self.state.product);
        match goal.names.statement(Collate::Default, self.state.product) {
            Some(sql) if Some(&sql) != exact.as_ref() => Ok(self.run(&sql).await?.is_ok()),
            _ => Ok(false),
        }
    }
}

/// 1064, 1193, 1651, and 1210 of `sql_generate_invisible_primary_key` (mysql-dataplane 5.7).
fn is_unknown_variable(payload: &[u8]) -> bool {
    ErrPacket::decode(payload).is_ok_and(|err| matches!(err.code, 1064 | 1193 | 1210 | 1651))
}
