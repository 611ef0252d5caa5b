//! Class and effects of MySQL text.

use super::lexer::Lexer;
use crate::sql::keyword::Keyword;
use crate::sql::token::Token;
use crate::sql::{Class, Effects, Scan, ScanOptions, Transaction};

/// Deeper parentheses are not followed: such a statement is never a plain read.
const MAX_DEPTH: u32 = 1000;

/// Reads all of `sql` and fills class, effects and count of `scan`.
pub(super) fn classify(sql: &[u8], options: &ScanOptions, scan: &mut Scan) {
    let mut lexer = Lexer::new(sql, options.backslash_escapes, options.ansi_quotes);
    let mut statement = Statement::default();
    loop {
        let executable_before = lexer.in_executable_comment();
        let token = lexer.next();
        statement.executable = lexer.in_executable_comment();
        match token {
            Token::End => break,
            Token::Symbol(b';') if statement.lead != Lead::Body => {
                statement.finish(scan);
                statement = Statement::default();
            }
            token => {
                let executable = executable_before || statement.executable;
                statement.doubtful |= executable && !matches!(statement.lead, Lead::Query | Lead::Rest);
                statement.on_token(token);
            }
        }
    }
    statement.finish(scan);
    if lexer.is_ambiguous() {
        scan.effects |= Effects::AMBIGUOUS;
    }
    if scan.effects.contains(Effects::AMBIGUOUS) && scan.class != Class::Set {
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
    /// In a query expression: locking clauses, INTO OUTFILE, sequences.
    Query,
    /// Behind WITH: the main verb decides.
    With,
    /// Behind EXPLAIN, DESCRIBE; `true`: ANALYZE was said.
    Explain(bool),
    /// Behind ANALYZE: a table, or in MariaDB a statement that is run.
    Analyze,
    /// Behind CREATE, before the kind of object.
    Create,
    /// In a stored program: semicolons belong to it.
    Body,
    Begin,
    Start2,
    StartTransaction,
    Rollback,
    Set,
    /// MariaDB's `SET STATEMENT … FOR statement`.
    SetStatement,
    Show,
    Handler,
    Lock,
    Load,
}

/// One statement of the text.
#[derive(Debug, Default)]
struct Statement {
    class: Class,
    effects: Effects,
    lead: Lead,
    /// Keyword of the token before, `Unknown` for all but words.
    previous: Option<Keyword>,
    /// The same of the last token outside executable comments: what a server sees that skips them.
    outside: Option<Keyword>,
    /// What was the token before, in quotes: before a parenthesis it is a function's name as well.
    quoted: Option<Keyword>,
    /// The token is in an executable comment.
    executable: bool,
    depth: u32,
    /// Depth at which the statement began.
    base: u32,
    /// A word that decides came from an executable comment, which some servers skip.
    doubtful: bool,
    /// It names accounts, whose `@` begins no user variable.
    accounts: bool,
    /// How much of `SELECT RELEASE_ALL_LOCKS()` it is so far.
    release: Release,
    /// The token before was the parenthesis of a call of LAST_INSERT_ID.
    calls_last_insert_id: bool,
}

/// `SELECT RELEASE_ALL_LOCKS()` or `DO RELEASE_ALL_LOCKS()`: as a part of more it may stand there without being called.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Release {
    #[default]
    Nothing,
    Verb,
    Name,
    Open,
    All,
    Other,
}

impl Release {
    fn next(self, token: Token<'_>) -> Self {
        match (self, token) {
            (Self::Nothing, Token::Word(Keyword::Select | Keyword::Do, _)) => Self::Verb,
            (Self::Verb, Token::Word(Keyword::ReleaseAllLocks, _)) => Self::Name,
            (Self::Name, Token::Symbol(b'(')) => Self::Open,
            (Self::Open, Token::Symbol(b')')) => Self::All,
            _ => Self::Other,
        }
    }
}

impl Statement {
    fn on_token(&mut self, token: Token<'_>) {
        self.release = if self.executable { Release::Other } else { self.release.next(token) };
        let mut keyword = Keyword::Unknown;
        let starting = self.lead == Lead::Start;
        let quoted = self.quoted.take();
        match token {
            Token::Quoted(name) => self.quoted = Some(Keyword::find(name)),
            Token::Symbol(b'(') if quoted.is_some() => {
                self.previous = quoted;
                quoted.into_iter().for_each(|function| self.effect(function));
                self.open();
            }
            Token::Word(word, text) => {
                keyword = word;
                self.accounts |= match self.previous {
                    None => matches!(word, Keyword::Grant | Keyword::Revoke),
                    Some(Keyword::Show) => text.eq_ignore_ascii_case(b"grants"),
                    Some(Keyword::Set) => text.eq_ignore_ascii_case(b"password"),
                    // Before a view, or a body that is not run now.
                    Some(_) if self.class == Class::Ddl && word == Keyword::Unknown && text.eq_ignore_ascii_case(b"definer") => true,
                    Some(Keyword::Create | Keyword::Alter | Keyword::Drop | Keyword::Rename) => text.eq_ignore_ascii_case(b"user"),
                    Some(_) => false,
                };
                self.effect(word);
                if word == Keyword::Value && (self.is_after(Keyword::Next) || self.is_after(Keyword::Previous)) {
                    self.effects |= Effects::NEXTVAL;
                }
                self.on_word(word);
                // FLUSH TABLES t FOR EXPORT.
                if self.lead == Lead::Lock && self.is_after(Keyword::For) && text.eq_ignore_ascii_case(b"export") {
                    self.effects |= Effects::LOCK_TABLES;
                }
                // GET DIAGNOSTICS, which begins like anything unknown.
                if word == Keyword::Unknown && self.class == Class::Other && text.eq_ignore_ascii_case(b"diagnostics") {
                    self.effects |= Effects::SHOW_WARNINGS;
                }
            }
            Token::Symbol(b'(') => self.open(),
            Token::Symbol(b')') => {
                self.depth = self.depth.saturating_sub(1);
                self.calls_last_insert_id = false;
            }
            Token::UserVariable if self.accounts => {}
            Token::UserVariable => self.effects |= Effects::USER_VARIABLE,
            Token::SystemVariable(_, name) => self.system_variable(name),
            _ => {}
        }
        if self.calls_last_insert_id && token != Token::Symbol(b'(') {
            // With an argument it sets the value, which only an answer without rows tells.
            self.calls_last_insert_id = false;
            if self.class != Class::Write {
                self.effects |= Effects::HIDDEN;
            }
        }
        if starting && self.lead == Lead::Start && !matches!(token, Token::Symbol(b'(')) {
            self.decide(Class::Other, Lead::Rest);
        }
        self.previous = Some(keyword);
        if !self.executable {
            self.outside = Some(keyword);
        }
    }

    /// Whether the token before was this word, for a server that reads executable comments or for one that skips them.
    fn is_after(&self, word: Keyword) -> bool {
        self.previous == Some(word) || self.outside == Some(word)
    }

    fn open(&mut self) {
        self.depth += 1;
        self.calls_last_insert_id |= self.is_after(Keyword::LastInsertId);
        if self.depth > MAX_DEPTH {
            self.effects |= Effects::AMBIGUOUS;
            self.depth = MAX_DEPTH;
        }
        // MariaDB's Oracle-compatible sequence functions.
        if [Keyword::Nextval, Keyword::Setval, Keyword::Lastval].into_iter().any(|function| self.is_after(function)) {
            self.raise(Class::Write);
            self.effects |= Effects::NEXTVAL;
        }
    }

    fn system_variable(&mut self, name: &[u8]) {
        match Keyword::find(name) {
            Keyword::Identity | Keyword::LastInsertId => self.effects |= Effects::LAST_INSERT_ID,
            Keyword::WarningCount => self.effects |= Effects::SHOW_WARNINGS,
            _ if name.eq_ignore_ascii_case(b"error_count") => self.effects |= Effects::SHOW_WARNINGS,
            _ => {}
        }
    }

    /// Effects that a word has wherever it stands.
    fn effect(&mut self, word: Keyword) {
        match word {
            Keyword::GetLock => self.effects |= Effects::LOCK,
            Keyword::ReleaseLock => self.effects |= Effects::MAY_UNPIN,
            Keyword::ReleaseAllLocks => self.effects |= Effects::RELEASE_LOCKS,
            Keyword::LastInsertId => self.effects |= Effects::LAST_INSERT_ID,
            Keyword::FoundRows | Keyword::RowCount => self.effects |= Effects::FOUND_ROWS,
            Keyword::SqlCalcFoundRows => self.effects |= Effects::CALC_FOUND_ROWS,
            _ => {}
        }
    }

    fn decide(&mut self, class: Class, lead: Lead) {
        self.class = class;
        self.lead = lead;
    }

    /// A read turns out to be more; a write stays one.
    fn raise(&mut self, class: Class) {
        if self.class == Class::Read || (self.class == Class::LockingRead && class == Class::Write) {
            self.class = class;
        }
    }

    fn on_word(&mut self, word: Keyword) {
        let previous = self.previous;
        match self.lead {
            Lead::Start => self.begin(word),
            // `COMMIT RELEASE`, but not `NO RELEASE`: the server closes the connection behind its answer.
            Lead::Rest | Lead::Rollback if word == Keyword::Release && self.ends_transaction() && previous != Some(Keyword::No) => {
                self.effects |= Effects::HIDDEN;
            }
            Lead::Rest | Lead::Body => {}
            Lead::Query => match word {
                Keyword::Update | Keyword::Share if self.is_after(Keyword::For) => self.raise(Class::LockingRead),
                Keyword::Share if self.is_after(Keyword::In) => self.raise(Class::LockingRead),
                Keyword::Outfile | Keyword::Dumpfile if self.is_after(Keyword::Into) => self.raise(Class::Write),
                Keyword::Value if self.is_after(Keyword::Next) => self.raise(Class::Write),
                _ => {}
            },
            Lead::With => match word {
                Keyword::Select | Keyword::Values | Keyword::Table if self.depth == self.base => {
                    let locks = self.class == Class::LockingRead;
                    self.decide(if locks { Class::LockingRead } else { Class::Read }, Lead::Query);
                }
                Keyword::Insert | Keyword::Update | Keyword::Delete | Keyword::Replace if self.depth == self.base => {
                    self.decide(Class::Write, Lead::Rest);
                }
                // A locking clause in a common table expression locks as well.
                Keyword::Update | Keyword::Share if self.is_after(Keyword::For) => self.class = Class::LockingRead,
                _ => {}
            },
            Lead::Explain(analyze) => self.explain(word, analyze),
            Lead::Analyze => match word {
                Keyword::Select | Keyword::With | Keyword::Insert | Keyword::Update | Keyword::Delete | Keyword::Replace => {
                    self.begin(word)
                }
                Keyword::Table => self.lead = Lead::Rest,
                _ => {}
            },
            Lead::Create => self.create(word),
            Lead::Begin if word == Keyword::Work => {}
            Lead::Begin => self.decide(Class::Other, if word == Keyword::Not { Lead::Body } else { Lead::Rest }),
            Lead::Start2 if word == Keyword::Transaction => self.lead = Lead::StartTransaction,
            Lead::Start2 => self.decide(Class::Other, Lead::Rest),
            Lead::StartTransaction => match (previous, word) {
                (Some(Keyword::Read), Keyword::Only) => self.class = Class::Transaction(Transaction::Begin { read_only: true }),
                (Some(Keyword::Read), Keyword::Write) => self.class = Class::Transaction(Transaction::Begin { read_only: false }),
                _ => {}
            },
            Lead::Rollback if word == Keyword::To => self.decide(Class::Transaction(Transaction::Savepoint), Lead::Rest),
            Lead::Rollback => {}
            Lead::Set => self.set(word),
            Lead::SetStatement if word == Keyword::For && self.depth == self.base => self.lead = Lead::Start,
            Lead::SetStatement => {}
            Lead::Show if matches!(word, Keyword::Warnings | Keyword::Errors) => self.effects |= Effects::SHOW_WARNINGS,
            Lead::Show => {}
            Lead::Handler if word == Keyword::Open => self.effects |= Effects::HANDLER,
            Lead::Handler => {}
            Lead::Lock if matches!(word, Keyword::Lock | Keyword::Table | Keyword::Tables | Keyword::Instance) => {
                self.lock(word);
            }
            Lead::Lock => {}
            Lead::Load if word == Keyword::Infile && self.is_after(Keyword::Local) => {
                self.effects |= Effects::LOCAL_INFILE;
                self.lead = Lead::Rest;
            }
            Lead::Load => {}
        }
    }

    /// First word of a statement.
    fn begin(&mut self, word: Keyword) {
        let transaction = Class::Transaction;
        match word {
            Keyword::Select | Keyword::Values | Keyword::Table => {
                self.decide(Class::Read, Lead::Query);
            }
            Keyword::With => {
                self.base = self.depth;
                self.decide(Class::Other, Lead::With);
            }
            Keyword::Explain | Keyword::Describe | Keyword::Desc => self.decide(Class::Read, Lead::Explain(false)),
            Keyword::Insert | Keyword::Replace | Keyword::Update | Keyword::Delete | Keyword::Merge => {
                self.decide(Class::Write, Lead::Rest)
            }
            Keyword::Load => self.decide(Class::Write, Lead::Load),
            Keyword::Create => self.decide(Class::Ddl, Lead::Create),
            Keyword::Analyze => self.decide(Class::Ddl, Lead::Analyze),
            Keyword::Flush | Keyword::Lock => self.decide(Class::Ddl, Lead::Lock),
            Keyword::Alter
            | Keyword::Drop
            | Keyword::Rename
            | Keyword::Truncate
            | Keyword::Grant
            | Keyword::Revoke
            | Keyword::Optimize
            | Keyword::Repair
            | Keyword::Import
            | Keyword::Install
            | Keyword::Uninstall
            | Keyword::Purge
            | Keyword::Reset
            | Keyword::Change => self.decide(Class::Ddl, Lead::Rest),
            Keyword::Begin => self.decide(transaction(Transaction::Begin { read_only: false }), Lead::Begin),
            Keyword::Start => self.decide(transaction(Transaction::Begin { read_only: false }), Lead::Start2),
            Keyword::Commit => self.decide(transaction(Transaction::Commit), Lead::Rest),
            Keyword::Rollback => self.decide(transaction(Transaction::Rollback), Lead::Rollback),
            Keyword::Savepoint | Keyword::Release => self.decide(transaction(Transaction::Savepoint), Lead::Rest),
            Keyword::Xa => self.decide_with(transaction(Transaction::TwoPhase), Effects::XA),
            Keyword::Set => self.decide(Class::Set, Lead::Set),
            Keyword::Show => self.decide(Class::Neutral, Lead::Show),
            Keyword::Help => self.decide(Class::Neutral, Lead::Rest),
            Keyword::Unlock => self.decide_with(Class::Neutral, Effects::UNLOCK_TABLES),
            Keyword::Use => self.decide(Class::Use, Lead::Rest),
            Keyword::Call => self.decide(Class::Call, Lead::Rest),
            Keyword::Kill => self.decide(Class::Kill, Lead::Rest),
            Keyword::Handler => self.decide(Class::Other, Lead::Handler),
            Keyword::Backup => self.decide_with(Class::Other, Effects::LOCK_TABLES),
            Keyword::Prepare => self.decide_with(Class::Other, Effects::PREPARE_TEXT),
            Keyword::Execute => self.decide_with(Class::Other, Effects::EXECUTE_TEXT),
            Keyword::Deallocate => self.decide_with(Class::Other, Effects::MAY_UNPIN),
            _ => self.decide(Class::Other, Lead::Rest),
        }
    }

    fn decide_with(&mut self, class: Class, effects: Effects) {
        self.decide(class, Lead::Rest);
        self.effects |= effects;
    }

    fn explain(&mut self, word: Keyword, analyze: bool) {
        match word {
            Keyword::Analyze => self.lead = Lead::Explain(true),
            // EXPLAIN FOR CONNECTION needs the server of that connection.
            Keyword::For => self.decide(Class::Other, Lead::Rest),
            Keyword::Select | Keyword::With | Keyword::Table | Keyword::Values if analyze => self.begin(word),
            Keyword::Insert | Keyword::Update | Keyword::Delete | Keyword::Replace if analyze => self.begin(word),
            Keyword::Select | Keyword::With | Keyword::Insert | Keyword::Update | Keyword::Delete | Keyword::Replace => {
                self.lead = Lead::Rest
            }
            _ => {}
        }
    }

    fn create(&mut self, word: Keyword) {
        match word {
            Keyword::Temporary if matches!(self.previous, Some(Keyword::Create | Keyword::Replace)) => self.effects |= Effects::TEMP_TABLE,
            Keyword::Procedure | Keyword::Function | Keyword::Trigger | Keyword::Event | Keyword::Package => self.lead = Lead::Body,
            Keyword::Table | Keyword::View | Keyword::Sequence => self.lead = Lead::Rest,
            _ => {}
        }
    }

    fn set(&mut self, word: Keyword) {
        if self.previous != Some(Keyword::Set) {
            return;
        }
        match word {
            Keyword::Statement => self.decide(Class::Other, Lead::SetStatement),
            Keyword::Role | Keyword::Resource => self.effects |= Effects::ROLE,
            Keyword::Transaction => self.effects |= Effects::TRANSACTION_SETTING,
            _ => {}
        }
    }

    fn ends_transaction(&self) -> bool {
        matches!(self.class, Class::Transaction(Transaction::Commit | Transaction::Rollback))
    }

    /// LOCK TABLES, LOCK INSTANCE; FLUSH … WITH READ LOCK.
    fn lock(&mut self, word: Keyword) {
        let takes = match word {
            Keyword::Lock => self.is_after(Keyword::Read),
            _ => self.is_after(Keyword::Lock),
        };
        if takes {
            self.effects |= Effects::LOCK_TABLES;
        }
    }

    /// Adds the statement to what is known of the text.
    fn finish(mut self, scan: &mut Scan) {
        if self.lead == Lead::Start && self.previous.is_none() {
            return;
        }
        if self.lead == Lead::Start {
            self.class = Class::Other;
        }
        if self.doubtful && (self.class.is_plain_read() || self.class.is_neutral()) {
            self.class = Class::Other;
        }
        if self.release != Release::All {
            self.effects = self.effects.without(Effects::RELEASE_LOCKS);
        }
        if self.doubtful {
            // What some servers skip ends nothing.
            self.effects = self.effects.without(Effects::UNLOCK_TABLES);
        }
        scan.add(self.class, self.effects);
    }
}

#[cfg(test)]
#[path = "classify_test.rs"]
mod tests;
