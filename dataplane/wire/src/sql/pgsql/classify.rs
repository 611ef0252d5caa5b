//! Class and effects of PostgreSQL text (pgsql-dataplane.md 5.3, 3.8, 3.9).

use super::body::Body;
use super::functions;
use super::lexer::Lexer;
use crate::sql::keyword::Keyword;
use crate::sql::token::Token;
use crate::sql::{Class, Effects, Scan, Transaction};

/// Deeper parentheses are not followed: such a statement is never a plain read.
const MAX_DEPTH: u32 = 1000;

/// Stands for a name that is none of the server's own.
const FOREIGN_NAME: &[u8] = b"\"";

/// Reads all of `sql` and fills class, effects and count of `scan`.
pub(super) fn classify(sql: &[u8], backslash: bool, scan: &mut Scan) {
    let mut lexer = Lexer::new(sql, backslash);
    let mut statement = Statement::default();
    loop {
        match lexer.next() {
            Token::End => break,
            // Semicolons in parentheses separate the actions of CREATE RULE.
            Token::Symbol(b';') if statement.depth == 0 && (statement.lead != Lead::Body || statement.body.is_over()) => {
                statement.finish(scan);
                statement = Statement::default();
            }
            token => statement.on_token(token),
        }
    }
    statement.finish(scan);
    if lexer.has_escaped_names() {
        // Of a function, or of the schema of temporary objects.
        scan.effects |= Effects::AMBIGUOUS | Effects::CALLS_UNKNOWN | Effects::TEMP_TABLE;
    }
    if scan.effects.contains(Effects::AMBIGUOUS) {
        scan.class = Class::Other;
    }
}

/// Which words matter next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Lead {
    /// Nothing read yet.
    #[default]
    Start,
    /// Class is decided; only effects can be added.
    Rest,
    /// In a query: locking clauses, INTO, data-modifying WITH.
    Query,
    /// Behind EXPLAIN; `true`: ANALYZE was said.
    Explain(bool),
    /// Behind CREATE, before the kind of object.
    Create,
    /// Behind `CREATE TEMP`: `ON COMMIT DROP` may follow.
    CreateTemp,
    /// Behind CREATE FUNCTION or PROCEDURE: `BEGIN ATOMIC` may follow.
    CreateRoutine,
    /// In a body of SQL statements: semicolons belong to it.
    Body,
    Begin,
    Start2,
    Commit,
    Rollback,
    Prepare,
    Declare,
    Copy,
    Set,
    Discard,
    /// DO, whose text may hide anything.
    Do,
}

/// One statement of the text.
#[derive(Debug, Default)]
struct Statement<'a> {
    class: Class,
    effects: Effects,
    lead: Lead,
    /// Keyword of the token before, `Unknown` for all but words.
    previous: Option<Keyword>,
    /// The name before, if the token before was one: a function if `(` follows.
    name: Option<&'a [u8]>,
    /// What stands before the dot of a qualified name: of `name`, or of the name that comes next.
    qualifier: Option<&'a [u8]>,
    /// The name is that of a table, of an alias or of a type: a list in parentheses behind it is no call.
    is_relation: bool,
    depth: u32,
    /// Makes a temporary object that outlives the transaction.
    temporary: bool,
    /// The body of a routine.
    body: Body,
    /// How much of `SELECT pg_is_in_recovery()` it is so far.
    recovery: Recovery,
}

/// `SELECT [pg_catalog.]pg_is_in_recovery()`, by which drivers tell servers apart: about the connection, not the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Recovery {
    #[default]
    Nothing,
    Select,
    Schema,
    Dot,
    Name,
    Open,
    All,
    Other,
}

impl Recovery {
    fn next(self, token: Token<'_>) -> Self {
        match (self, token) {
            (Self::Nothing, Token::Word(Keyword::Select, _)) => Self::Select,
            (Self::Select, Token::Word(_, name)) if name.eq_ignore_ascii_case(b"pg_catalog") => Self::Schema,
            (Self::Schema, Token::Symbol(b'.')) => Self::Dot,
            (Self::Select | Self::Dot, Token::Word(_, name)) if name.eq_ignore_ascii_case(b"pg_is_in_recovery") => Self::Name,
            (Self::Name, Token::Symbol(b'(')) => Self::Open,
            (Self::Open, Token::Symbol(b')')) => Self::All,
            _ => Self::Other,
        }
    }
}

impl<'a> Statement<'a> {
    fn on_token(&mut self, token: Token<'a>) {
        let mut keyword = Keyword::Unknown;
        let mut name = None;
        self.recovery = self.recovery.next(token);
        self.note_temporary_schema(token);
        match token {
            Token::Word(word, text) => {
                keyword = word;
                name = Some(text);
                self.on_name();
                self.on_word(word, text);
            }
            Token::Quoted(text) => {
                // An option, which may be ANALYZE.
                if matches!(self.lead, Lead::Explain(_)) {
                    self.lead = Lead::Explain(true);
                }
                // No function or schema of the server's own is spelled with capitals.
                name = Some(if text.iter().any(u8::is_ascii_uppercase) { FOREIGN_NAME } else { text });
                self.on_name();
                self.on_word(Keyword::Unknown, text);
            }
            Token::Symbol(b'(') => self.open(),
            Token::Symbol(b')') => self.depth = self.depth.saturating_sub(1),
            Token::String(body) if self.lead == Lead::Do => self.hidden(body),
            _ => {}
        }
        if self.lead == Lead::Start && !matches!(token, Token::Symbol(b'(')) {
            self.decide(Class::Other, Lead::Rest);
        }
        match token {
            Token::Symbol(b'.') => self.qualifier = self.name,
            Token::Word(..) | Token::Quoted(_) => {}
            _ => (self.qualifier, self.is_relation) = (None, false),
        }
        self.previous = Some(keyword);
        self.name = name;
    }

    /// `pg_temp` is the connection's own schema: what is made in it, and a search path that leads there, stays on the connection.
    fn note_temporary_schema(&mut self, token: Token<'a>) {
        const SCHEMA: &[u8] = b"pg_temp";
        let names_it = match token {
            Token::Word(_, text) | Token::Quoted(text) => text.eq_ignore_ascii_case(SCHEMA),
            Token::String(body) if self.lead == Lead::Set => body.windows(SCHEMA.len()).any(|part| part.eq_ignore_ascii_case(SCHEMA)),
            _ => false,
        };
        if names_it {
            self.effects |= Effects::TEMP_TABLE;
        }
    }

    /// A name comes, which may be one that takes a list in parentheses without being called.
    fn on_name(&mut self) {
        let is_qualified = self.qualifier.is_some() && self.name.is_none();
        if !is_qualified {
            self.qualifier = None;
            self.is_relation =
                matches!(self.previous, Some(Keyword::Into | Keyword::As | Keyword::With | Keyword::Prepare | Keyword::Execute))
                    || self.name.is_some_and(|name| name.eq_ignore_ascii_case(b"recursive"));
        }
    }

    /// Parentheses open behind a name that is none of those whose effects are known.
    fn on_unknown_call(&mut self, name: &[u8]) {
        let is_call = !self.is_relation
            && !matches!(self.lead, Lead::Create | Lead::CreateTemp | Lead::CreateRoutine | Lead::Body)
            && (self.lead != Lead::Copy || self.depth > 1);
        let is_own = self.qualifier.is_none_or(|schema| schema.eq_ignore_ascii_case(b"pg_catalog"));
        if is_call && !(is_own && functions::is_harmless(name)) {
            self.effects |= Effects::CALLS_UNKNOWN;
        }
    }

    fn open(&mut self) {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.effects |= Effects::AMBIGUOUS;
            self.depth = MAX_DEPTH;
        }
        let Some(name) = self.name else { return };
        let Some(call) = functions::lookup(name) else { return self.on_unknown_call(name) };
        self.effects |= call.effects;
        if call.writes {
            self.raise(Class::Write);
            if self.lead == Lead::Copy {
                self.lead = Lead::Rest;
            }
        }
    }

    /// The body of a DO block, which runs at once. Not parsed: a word that may leave session state behind is enough.
    fn hidden(&mut self, body: &[u8]) {
        const WORDS: [&[u8]; 7] = [b"set", b"execute", b"listen", b"load", b"prepare", b"temp", b"advisory"];
        let names = |word: &[u8]| body.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word));
        if WORDS.iter().any(|word| names(word)) {
            self.effects |= Effects::HIDDEN;
        }
    }

    fn decide(&mut self, class: Class, lead: Lead) {
        self.class = class;
        self.lead = lead;
    }

    fn decide_with(&mut self, class: Class, effects: Effects) {
        self.decide(class, Lead::Rest);
        self.effects |= effects;
    }

    /// A read turns out to be more; what writes already stays so.
    fn raise(&mut self, class: Class) {
        if self.class == Class::Read || (self.class == Class::LockingRead && class == Class::Write) {
            self.class = class;
        }
    }

    fn on_word(&mut self, word: Keyword, text: &[u8]) {
        let previous = self.previous;
        match self.lead {
            Lead::Start => self.begin(word),
            Lead::Rest if word == Keyword::Execute && previous == Some(Keyword::As) => self.effects |= Effects::EXECUTE_TEXT,
            // `UPDATE pg_settings` is SET in another form.
            Lead::Rest if self.class == Class::Write && text.eq_ignore_ascii_case(b"pg_settings") => {
                self.effects |= Effects::SET_CONFIG;
            }
            // `ALTER ROLE x SET app.y = z`: the server looks whether it can be set, and so knows the name.
            Lead::Rest | Lead::CreateRoutine if self.class == Class::Ddl && word == Keyword::Set => self.effects |= Effects::CALLS_UNKNOWN,
            Lead::Rest => {}
            Lead::Body => self.body.on_word(previous, word, text),
            Lead::Query => self.query(word, text),
            Lead::Explain(analyze) => match word {
                Keyword::Analyze | Keyword::Analyse => self.lead = Lead::Explain(true),
                Keyword::Off | Keyword::False if matches!(previous, Some(Keyword::Analyze | Keyword::Analyse)) => {
                    self.lead = Lead::Explain(false);
                }
                _ if !starts_explainable(word, self.depth > 0) => {}
                _ if analyze || word == Keyword::Execute => self.begin(word),
                _ => self.lead = Lead::Rest,
            },
            Lead::Create => self.create(word, text),
            Lead::CreateTemp if word == Keyword::Drop && previous == Some(Keyword::Commit) => {
                self.temporary = false;
                self.lead = Lead::Rest;
            }
            Lead::CreateTemp if word == Keyword::As && self.depth == 0 => self.lead = Lead::Rest,
            Lead::CreateTemp => {}
            Lead::CreateRoutine if word == Keyword::Atomic && previous == Some(Keyword::Begin) => self.lead = Lead::Body,
            Lead::CreateRoutine => {}
            Lead::Begin => self.transaction_mode(word),
            Lead::Start2 if word == Keyword::Transaction => self.lead = Lead::Begin,
            Lead::Start2 => self.decide(Class::Other, Lead::Rest),
            Lead::Commit if word == Keyword::Prepared => self.decide(Class::Transaction(Transaction::TwoPhase), Lead::Rest),
            Lead::Commit => {}
            Lead::Rollback => match word {
                Keyword::Prepared => self.decide(Class::Transaction(Transaction::TwoPhase), Lead::Rest),
                Keyword::To => self.decide(Class::Transaction(Transaction::Savepoint), Lead::Rest),
                _ => {}
            },
            Lead::Prepare if previous == Some(Keyword::Prepare) && word == Keyword::Transaction => {
                self.decide(Class::Transaction(Transaction::TwoPhase), Lead::Rest);
                self.effects = Effects::NONE;
            }
            Lead::Prepare if previous == Some(Keyword::As) => self.begin(word),
            Lead::Prepare => {}
            Lead::Declare => match (previous, word) {
                (Some(Keyword::With), Keyword::Hold) => self.effects |= Effects::HOLD_CURSOR,
                (Some(Keyword::For), _) if self.depth == 0 => self.begin(word),
                _ => {}
            },
            Lead::Copy => self.copy(word),
            Lead::Set => self.set(word),
            Lead::Discard => match word {
                Keyword::All => self.effects |= Effects::DISCARD_ALL,
                Keyword::Temp | Keyword::Temporary => self.effects |= Effects::DISCARD_TEMP,
                _ => {}
            },
            Lead::Do => {}
        }
    }

    /// First word of a statement, or of the statement in PREPARE, DECLARE and EXPLAIN ANALYZE.
    fn begin(&mut self, word: Keyword) {
        let begin = Class::Transaction(Transaction::Begin { read_only: false });
        match word {
            Keyword::Select | Keyword::Values | Keyword::Table | Keyword::With => self.decide(Class::Read, Lead::Query),
            Keyword::Explain => self.decide(Class::Read, Lead::Explain(false)),
            // `INSERT … SELECT nextval()` and `RETURNING`: the class is decided, function calls still count.
            Keyword::Insert | Keyword::Update | Keyword::Delete | Keyword::Merge => self.decide(Class::Write, Lead::Rest),
            Keyword::Create => self.decide(Class::Ddl, Lead::Create),
            Keyword::Copy => self.decide(Class::Write, Lead::Copy),
            Keyword::Show => self.decide(Class::Neutral, Lead::Rest),
            Keyword::Begin => self.decide(begin, Lead::Begin),
            Keyword::Start => self.decide(begin, Lead::Start2),
            Keyword::Commit | Keyword::End => self.decide(Class::Transaction(Transaction::Commit), Lead::Commit),
            Keyword::Rollback | Keyword::Abort => self.decide(Class::Transaction(Transaction::Rollback), Lead::Rollback),
            Keyword::Savepoint | Keyword::Release => self.decide(Class::Transaction(Transaction::Savepoint), Lead::Rest),
            Keyword::Prepare => {
                self.decide_with(Class::Other, Effects::PREPARE_TEXT);
                self.lead = Lead::Prepare;
            }
            Keyword::Execute => self.decide_with(Class::Other, Effects::EXECUTE_TEXT),
            Keyword::Deallocate | Keyword::Close => self.decide_with(Class::Neutral, Effects::MAY_UNPIN),
            Keyword::Fetch | Keyword::Move => self.decide(Class::Neutral, Lead::Rest),
            Keyword::Declare => self.decide(Class::Other, Lead::Declare),
            Keyword::Set | Keyword::Reset => self.decide(Class::Set, Lead::Set),
            Keyword::Discard => self.decide(Class::Neutral, Lead::Discard),
            Keyword::Listen => self.decide_with(Class::Ddl, Effects::LISTEN),
            Keyword::Unlisten => self.decide_with(Class::Neutral, Effects::UNLISTEN),
            Keyword::Do => {
                self.decide_with(Class::Other, Effects::CALLS_UNKNOWN);
                self.lead = Lead::Do;
            }
            Keyword::Call => self.decide_with(Class::Call, Effects::CALLS_UNKNOWN),
            Keyword::Load => self.decide_with(Class::Other, Effects::LOAD_LIBRARY),
            Keyword::Drop => self.decide_with(Class::Ddl, Effects::MAY_UNPIN),
            Keyword::Alter
            | Keyword::Truncate
            | Keyword::Grant
            | Keyword::Revoke
            | Keyword::Comment
            | Keyword::Lock
            | Keyword::Refresh
            | Keyword::Cluster
            | Keyword::Reindex
            | Keyword::Vacuum
            | Keyword::Analyze
            | Keyword::Analyse
            | Keyword::Checkpoint
            | Keyword::Import
            | Keyword::Security
            | Keyword::Reassign
            | Keyword::Notify => self.decide(Class::Ddl, Lead::Rest),
            _ => self.decide(Class::Other, Lead::Rest),
        }
    }

    fn query(&mut self, word: Keyword, text: &[u8]) {
        match (self.previous, word) {
            // FOR UPDATE, FOR SHARE, FOR NO KEY UPDATE, FOR KEY SHARE.
            (Some(Keyword::For | Keyword::Key), Keyword::Update | Keyword::Share) => self.raise(Class::LockingRead),
            // A data-modifying WITH, wherever it stands: `AS (INSERT …` or, with the verb first in parentheses, the main one.
            (_, Keyword::Insert | Keyword::Update | Keyword::Delete | Keyword::Merge) => self.raise(Class::Write),
            (_, Keyword::Into) => self.raise(Class::Write),
            (Some(Keyword::Into | Keyword::Local | Keyword::Global), Keyword::Temp | Keyword::Temporary) => {
                self.effects |= Effects::TEMP_TABLE;
            }
            (Some(Keyword::Into | Keyword::Table), _) if text.eq_ignore_ascii_case(b"pg_temp") => self.effects |= Effects::TEMP_TABLE,
            _ => {}
        }
    }

    fn create(&mut self, word: Keyword, text: &[u8]) {
        let previous = self.previous;
        match word {
            Keyword::Temp | Keyword::Temporary
                if matches!(previous, Some(Keyword::Create | Keyword::Replace | Keyword::Local | Keyword::Global)) =>
            {
                self.temporary = true;
                self.lead = Lead::CreateTemp;
            }
            Keyword::Function | Keyword::Procedure => self.lead = Lead::CreateRoutine,
            Keyword::As => self.lead = Lead::Rest,
            // The schema of temporary objects can be named.
            Keyword::Unknown if text.eq_ignore_ascii_case(b"pg_temp") => {
                self.temporary = true;
                self.lead = Lead::CreateTemp;
            }
            _ => {}
        }
    }

    fn transaction_mode(&mut self, word: Keyword) {
        match (self.previous, word) {
            (Some(Keyword::Read), Keyword::Only) if self.effects.is_empty() => {
                self.class = Class::Transaction(Transaction::Begin { read_only: true });
            }
            (Some(Keyword::Read), Keyword::Write) => self.class = Class::Transaction(Transaction::Begin { read_only: false }),
            (Some(Keyword::Level), Keyword::Serializable) => {
                // A standby refuses it, read-only or not; the mark keeps a later READ ONLY from undoing this.
                self.class = Class::Transaction(Transaction::Begin { read_only: false });
                self.effects |= Effects::TRANSACTION_SETTING;
            }
            _ => {}
        }
    }

    fn copy(&mut self, word: Keyword) {
        if self.depth > 0 {
            // `COPY (query) TO`: what makes a query more than a read does so here.
            if matches!(word, Keyword::Insert | Keyword::Update | Keyword::Delete | Keyword::Merge | Keyword::Share) {
                self.decide(Class::Write, Lead::Rest);
            }
        } else if word == Keyword::Stdout && self.previous == Some(Keyword::To) {
            self.decide(Class::Read, Lead::Rest);
        }
    }

    fn set(&mut self, word: Keyword) {
        if !matches!(self.previous, Some(Keyword::Set | Keyword::Reset | Keyword::Session | Keyword::Local)) {
            return;
        }
        match word {
            Keyword::Local | Keyword::Transaction => self.effects |= Effects::TRANSACTION_SETTING,
            Keyword::Role | Keyword::Authorization => self.effects |= Effects::ROLE,
            Keyword::Seed => self.effects |= Effects::SEED,
            _ => {}
        }
    }

    /// Adds the statement to what is known of the text.
    fn finish(mut self, scan: &mut Scan) {
        if self.lead == Lead::Start {
            if self.previous.is_none() {
                return;
            }
            self.class = Class::Other;
        }
        if self.recovery == Recovery::All {
            self.class = Class::Neutral;
        }
        if self.temporary {
            self.effects |= Effects::TEMP_TABLE;
        }
        if self.class == Class::Set && !self.effects.contains(Effects::TRANSACTION_SETTING) {
            self.effects |= Effects::SESSION_SETTING;
        }
        scan.add(self.class, self.effects);
    }
}

/// Statements that EXPLAIN takes; in parentheses only queries, and options, whose values may be any word.
fn starts_explainable(word: Keyword, in_parentheses: bool) -> bool {
    if matches!(word, Keyword::Select | Keyword::Values | Keyword::Table | Keyword::With) {
        return true;
    }
    !in_parentheses
        && matches!(
            word,
            Keyword::Insert
                | Keyword::Update
                | Keyword::Delete
                | Keyword::Merge
                | Keyword::Execute
                | Keyword::Declare
                | Keyword::Create
                | Keyword::Refresh
        )
}

#[cfg(test)]
#[path = "classify_test.rs"]
mod tests;
