//! The queue of responses that a server owes (pgsql-dataplane.md 4.1).
//!
//! One entry per message that was sent, in order, and per answer that we give ourselves so that it keeps its place in a pipeline. Whatever does
//! not fit the head of the queue is a protocol error: nothing is ever "resynchronised".

use std::collections::VecDeque;
use std::rc::Rc;

use quorumsql_wire::pgsql::backend::tag;
use quorumsql_wire::pgsql::{backend, error_fields::Severity};

use super::changes::Change;
use super::pins::PinSet;
use super::prepared::Statement;

/// Whether the client sees the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Audience {
    /// It asked for it.
    Client,
    /// We asked for it.
    Proxy,
}

/// Where a Parse puts its statement on the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    /// Under our name for the statement with this id.
    Named(u64),
    /// It is the unnamed one.
    Unnamed,
}

/// A statement that the client has named in Parse; undone if the Parse turns out to have failed.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: Box<[u8]>,
    pub(crate) statement: Rc<Statement>,
}

/// One response, or group of responses, that is due.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    /// Everything up to one ReadyForQuery; what its statements do to parameters, in order, if any does, and the pins that they make.
    Query { changes: Option<VecDeque<Change>>, pins: PinSet },
    /// The same for a query of our own: the client sees nothing of it but parameters.
    OwnQuery,
    /// An empty query of ours, which ends the batch before it as any Query does: in place of its EmptyQueryResponse the client gets this
    /// answer of our own to its Query.
    Answer(Vec<u8>),
    /// The same for a query that asks whether pins are over; its failure is none of the client's.
    Question,
    /// A batch of our own that prepares the statement with this id; the client sees nothing of it.
    Prepare(u64),
    /// FunctionCallResponse and ReadyForQuery.
    FunctionCall,
    /// ParseComplete.
    Parse { audience: Audience, slot: Slot, named: Option<Named> },
    /// BindComplete, for this statement of ours.
    Bind(Option<Rc<Statement>>),
    /// ParameterDescription, then RowDescription or NoData.
    DescribeStatement(Option<Rc<Statement>>),
    /// The same, for us: whether the statement has the rows that its client was told of.
    OwnDescribe(Rc<Statement>),
    /// RowDescription or NoData; the portal's statement if the client was not told yet what rows that has.
    DescribePortal(Option<Rc<Statement>>),
    /// Rows and an end, or COPY; the portal's statement, if that does anything to parameters, and the pins that it makes.
    Execute { statement: Option<Rc<Statement>>, pins: PinSet },
    /// CloseComplete.
    Close(Audience),
    /// ReadyForQuery.
    Sync,
    /// The client has ended a COPY that the server may not have begun yet; consumes nothing.
    CopyEnd,
    /// ParseComplete of our own.
    OwnParse(Named),
    /// CloseComplete of our own.
    OwnClose,
    /// An error by design: the server's text is replaced by this message.
    Poison(Vec<u8>),
}

impl Expected {
    /// Something of our own, with its own ReadyForQuery.
    fn is_own(&self) -> bool {
        matches!(self, Self::OwnQuery | Self::Question | Self::Prepare(_))
    }

    fn ends_with_ready(&self) -> bool {
        matches!(self, Self::Query { .. } | Self::Answer(_) | Self::FunctionCall | Self::Sync) || self.is_own()
    }
}

/// What to do with a message of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    /// The client gets it.
    Forward,
    /// The client does not see it.
    Swallow,
    /// The client gets this instead.
    Replace(Vec<u8>),
}

/// Something that the session must note.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// The client's statement of this name does not exist after all.
    Undefined(Named),
    /// The server does not hold what a Parse for this audience should have put there.
    NotParsed(Audience, Slot),
    /// The server still holds a statement that we meant to close.
    NotClosed,
    /// A Sync is not answered: it came during COPY.
    Ignored,
    /// The rows of the statement have this [`super::prepared::shape`].
    Described(Audience, Rc<Statement>, u64),
}

/// A unit of which not everything has been answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unfinished {
    /// A simple query.
    Query,
    /// A batch whose Sync was sent, or a function call.
    Batch,
    /// A batch whose Sync was not sent yet.
    OpenBatch,
}

/// The server said something that was not due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unexpected message \"{}\" from server", self.0 as char)]
pub(crate) struct Unexpected(pub(crate) u8);

/// Whether a COPY from the client is going on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum CopyIn {
    #[default]
    No,
    Active,
}

/// The queue of one server connection.
#[derive(Debug, Default)]
pub(crate) struct Responses {
    due: VecDeque<Expected>,
    copy_in: CopyIn,
    skipping: bool,
    /// The server is in a batch: something was sent to it behind the last Sync. With Flush all of it may be answered already, and
    /// still it is one transaction until Sync.
    open: bool,
}

impl Responses {
    /// With an empty queue that was used before.
    pub(crate) fn reusing(due: VecDeque<Expected>) -> Self {
        Self { due, ..Self::default() }
    }

    /// The queue, to be used again.
    pub(crate) fn into_queue(self) -> VecDeque<Expected> {
        self.due
    }

    /// Nothing is due.
    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// A message was sent, or an answer of our own falls due behind all others.
    pub(crate) fn push(&mut self, expected: Expected) {
        self.skipping &= !matches!(expected, Expected::Sync);
        match &expected {
            Expected::OwnParse(_) | Expected::OwnClose | Expected::CopyEnd => {}
            sent => self.open = !sent.ends_with_ready(),
        }
        self.due.push_back(expected);
    }

    /// Nothing is due, and the server waits for no Sync.
    pub(crate) fn is_idle(&self) -> bool {
        self.due.is_empty() && !self.is_in_batch()
    }

    /// What something is due for.
    fn sent(&self) -> impl DoubleEndedIterator<Item = &Expected> {
        self.due.iter().filter(|due| !matches!(due, Expected::CopyEnd))
    }

    /// Whether the server throws away what comes before the next Sync.
    pub(crate) fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// Whether a COPY from the client is going on: only its data may be sent.
    pub(crate) fn is_copy_in(&self) -> bool {
        self.copy_in == CopyIn::Active
    }

    /// Whether the client waits for a Sync of its own to be sent before it can get ReadyForQuery.
    pub(crate) fn is_in_batch(&self) -> bool {
        self.skipping || self.open || self.sent().next_back().is_some_and(|last| !last.ends_with_ready())
    }

    /// The kinds of units that are not finished, in order: whether a ReadyForQuery is due at the end of each (the last may be a batch
    /// whose Sync was not sent yet), and whether it is a simple query.
    pub(crate) fn unfinished(&self) -> Vec<Unfinished> {
        let mut units = Vec::new();
        let mut open = false;
        for due in self.sent().filter(|due| !due.is_own()) {
            open = true;
            if due.ends_with_ready() {
                units.push(if matches!(due, Expected::Query { .. } | Expected::Answer(_)) { Unfinished::Query } else { Unfinished::Batch });
                open = false;
            }
        }
        if open || self.skipping || self.open {
            units.push(Unfinished::OpenBatch);
        }
        units
    }

    /// The prepared statement that the response at the head is about.
    pub(crate) fn statement(&self) -> Option<&Rc<Statement>> {
        match self.due.front() {
            Some(Expected::Bind(statement) | Expected::DescribeStatement(statement)) => statement.as_ref(),
            _ => None,
        }
    }

    /// The statement whose rows the message at the head describes.
    pub(crate) fn described(&self) -> Option<(&Rc<Statement>, Audience)> {
        match self.due.front() {
            Some(Expected::DescribeStatement(statement) | Expected::DescribePortal(statement)) => {
                statement.as_ref().map(|statement| (statement, Audience::Client))
            }
            Some(Expected::OwnDescribe(statement)) => Some((statement, Audience::Proxy)),
            _ => None,
        }
    }

    /// Whether the message at the front of the client waits for an [`Expected::OwnDescribe`].
    pub(crate) fn is_comparing(&self) -> bool {
        matches!(self.due.back(), Some(Expected::OwnDescribe(_)))
    }

    /// Whether the response at the head is to something of our own.
    pub(crate) fn is_own(&self) -> bool {
        self.due.front().is_some_and(Expected::is_own)
    }

    /// Whether the response at the head is that to a query of our own, which must succeed.
    pub(crate) fn is_own_query(&self) -> bool {
        matches!(self.due.front(), Some(Expected::OwnQuery))
    }

    /// Whether nothing was sent behind what the response at the head is to.
    pub(crate) fn is_last(&self) -> bool {
        self.due.len() == 1
    }

    /// Whether the response at the head answers a question, behind which nothing was sent.
    pub(crate) fn is_last_question(&self) -> bool {
        self.is_last() && matches!(self.due.front(), Some(Expected::Question))
    }

    /// The statement at the head has been completed: what it does to parameters.
    pub(crate) fn complete(&mut self) -> Option<Change> {
        match self.due.front_mut()? {
            Expected::Query { changes, .. } => changes.as_mut()?.pop_front(),
            Expected::Execute { statement, .. } => statement.as_ref()?.change.clone(),
            _ => None,
        }
    }

    /// The statement at the head runs, or has: the pins that it makes, once.
    pub(crate) fn take_pins(&mut self) -> PinSet {
        match self.due.front_mut() {
            Some(Expected::Query { pins, .. } | Expected::Execute { pins, .. }) => std::mem::take(pins),
            _ => PinSet::default(),
        }
    }

    /// What the statement at the head, which has failed, would have done to parameters.
    pub(crate) fn failing(&self) -> Option<Change> {
        match self.due.front()? {
            Expected::Query { changes, .. } => changes.as_ref()?.front().cloned(),
            Expected::Execute { statement, .. } => statement.as_ref()?.change.clone(),
            _ => None,
        }
    }

    /// Whether the client has given this name to a statement since.
    pub(crate) fn defines(&self, name: &[u8]) -> bool {
        self.due.iter().any(|due| match due {
            Expected::Parse { named: Some(named), .. } | Expected::OwnParse(named) => *named.name == *name,
            _ => false,
        })
    }

    /// What is due changes which statements there are as text.
    pub(crate) fn is_naming(&self) -> bool {
        let names = |change: &Change| matches!(change, Change::Prepare(_) | Change::Deallocate(_));
        self.due.iter().any(|due| match due {
            Expected::Query { changes, .. } => changes.iter().flatten().any(names),
            Expected::Execute { statement: Some(statement), .. } => statement.change.as_ref().is_some_and(names),
            _ => false,
        })
    }

    /// Whether the last of what is due of a batch, if it succeeds, leaves a statement of this name that was prepared as text. `None` = nothing
    /// is about it.
    pub(crate) fn prepares(&self, name: &[u8]) -> Option<bool> {
        self.due.iter().rev().find_map(|due| match due {
            Expected::Execute { statement: Some(statement), .. } => match &statement.change {
                Some(Change::Prepare(known)) if known.as_bytes() == name => Some(true),
                Some(Change::Deallocate(known)) if known.as_bytes() == name => Some(false),
                _ => None,
            },
            _ => None,
        })
    }

    /// The client sent CopyDone or CopyFail.
    pub(crate) fn on_copy_end(&mut self) {
        if self.copy_in == CopyIn::Active {
            self.copy_in = CopyIn::No;
        } else if self.due.iter().any(|due| matches!(due, Expected::Query { .. } | Expected::Execute { .. })) {
            self.due.push_back(Expected::CopyEnd);
        }
    }

    /// Takes the next message of the server. Answers of our own that have become due are appended to `own`, to be sent behind it.
    ///
    /// # Errors
    /// It was not due.
    pub(crate) fn on_message(&mut self, message: u8, own: &mut Vec<u8>, note: &mut Vec<Outcome>) -> Result<Reply, Unexpected> {
        if matches!(message, tag::NOTICE | tag::NOTIFICATION | tag::PARAMETER_STATUS) {
            return Ok(Reply::Forward);
        }
        let reply = self.consume(message, note)?;
        self.pop_own(own);
        Ok(reply)
    }

    /// Appends answers of our own that are due now; to be called after pushing them.
    pub(crate) fn pop_own(&mut self, own: &mut Vec<u8>) {
        loop {
            match self.due.front() {
                Some(Expected::OwnParse(_)) => backend::parse_complete(own),
                Some(Expected::OwnClose) => backend::close_complete(own),
                Some(Expected::CopyEnd) => {}
                _ => return,
            }
            self.due.pop_front();
        }
    }

    fn consume(&mut self, message: u8, note: &mut Vec<Outcome>) -> Result<Reply, Unexpected> {
        let Some(head) = self.due.front_mut() else { return Err(Unexpected(message)) };
        match (message, head) {
            (tag::ERROR, _) => return Ok(self.on_error(note)),
            (tag::READY, Expected::OwnQuery | Expected::Question | Expected::Prepare(_)) => {
                self.due.pop_front();
                return Ok(Reply::Swallow);
            }
            (tag::PARSE_COMPLETE | tag::CLOSE_COMPLETE, Expected::Prepare(_)) => return Ok(Reply::Swallow),
            (_, Expected::OwnQuery | Expected::Question) if is_of_query(message) => return Ok(Reply::Swallow),
            (tag::PARAMETER_DESCRIPTION, Expected::OwnDescribe(_)) => return Ok(Reply::Swallow),
            (tag::ROW_DESCRIPTION | tag::NO_DATA, Expected::OwnDescribe(_)) => {
                self.due.pop_front();
                return Ok(Reply::Swallow);
            }
            (tag::EMPTY_QUERY, Expected::Answer(text)) => return Ok(Reply::Replace(std::mem::take(text))),
            (tag::READY, Expected::Query { .. } | Expected::Answer(_) | Expected::FunctionCall | Expected::Sync) => {
                self.copy_in = CopyIn::No;
                self.due.pop_front();
            }
            (tag::COPY_IN, Expected::Query { .. } | Expected::Execute { .. }) => self.on_copy_in(note),
            (_, Expected::Query { .. }) if is_of_query(message) => {
                if message == tag::COMMAND_COMPLETE {
                    self.copy_in = CopyIn::No;
                }
            }
            (tag::FUNCTION_CALL, Expected::FunctionCall)
            | (tag::PARAMETER_DESCRIPTION, Expected::DescribeStatement(_))
            | (tag::DATA_ROW | tag::COPY_OUT | tag::COPY_DATA | tag::COPY_DONE, Expected::Execute { .. }) => {}
            (tag::PARSE_COMPLETE, Expected::Parse { .. }) => {
                if let Some(Expected::Parse { audience, named, .. }) = self.due.pop_front() {
                    named.iter().for_each(|named| named.statement.is_proven.set(true));
                    return Ok(if audience == Audience::Proxy { Reply::Swallow } else { Reply::Forward });
                }
            }
            (tag::CLOSE_COMPLETE, Expected::Close(audience)) => {
                let reply = if *audience == Audience::Proxy { Reply::Swallow } else { Reply::Forward };
                self.due.pop_front();
                return Ok(reply);
            }
            (tag::BIND_COMPLETE, Expected::Bind(_))
            | (tag::ROW_DESCRIPTION | tag::NO_DATA, Expected::DescribeStatement(_) | Expected::DescribePortal(_)) => {
                self.due.pop_front();
            }
            (tag::COMMAND_COMPLETE | tag::EMPTY_QUERY | tag::PORTAL_SUSPENDED, Expected::Execute { .. }) => {
                self.copy_in = CopyIn::No;
                self.due.pop_front();
            }
            _ => return Err(Unexpected(message)),
        }
        Ok(Reply::Forward)
    }

    /// A Sync that was sent ahead of the COPY data is ignored by the server and yields nothing; the first one behind the data counts.
    fn on_copy_in(&mut self, note: &mut Vec<Outcome>) {
        self.copy_in = CopyIn::Active;
        let mut index = 1;
        while let Some(due) = self.due.get(index) {
            match due {
                Expected::CopyEnd => {
                    self.due.remove(index);
                    self.copy_in = CopyIn::No;
                    return;
                }
                Expected::Sync => {
                    self.due.remove(index);
                    note.push(Outcome::Ignored);
                }
                _ => index += 1,
            }
        }
    }

    fn on_error(&mut self, note: &mut Vec<Outcome>) -> Reply {
        self.copy_in = CopyIn::No;
        let reply = match self.due.front_mut() {
            Some(Expected::Query { .. } | Expected::Answer(_) | Expected::FunctionCall) => return Reply::Forward,
            Some(Expected::OwnQuery | Expected::Question) => return Reply::Swallow,
            Some(Expected::Prepare(id)) => {
                note.push(Outcome::NotParsed(Audience::Proxy, Slot::Named(*id)));
                return Reply::Swallow;
            }
            Some(Expected::Poison(text)) => Reply::Replace(std::mem::take(text)),
            _ => Reply::Forward,
        };
        self.skip(note);
        reply
    }

    /// The batch has failed: nothing up to its Sync is answered.
    fn skip(&mut self, note: &mut Vec<Outcome>) {
        while let Some(due) = self.due.front() {
            if matches!(due, Expected::Sync) {
                return;
            }
            match self.due.pop_front() {
                Some(Expected::Parse { audience, slot, named }) => {
                    note.push(Outcome::NotParsed(audience, slot));
                    note.extend(named.map(Outcome::Undefined));
                }
                Some(Expected::Close(Audience::Proxy)) => note.push(Outcome::NotClosed),
                Some(Expected::OwnParse(named)) => note.push(Outcome::Undefined(named)),
                _ => {}
            }
        }
        self.skipping = true;
    }
}

fn is_of_query(message: u8) -> bool {
    matches!(
        message,
        tag::ROW_DESCRIPTION
            | tag::DATA_ROW
            | tag::COMMAND_COMPLETE
            | tag::EMPTY_QUERY
            | tag::COPY_OUT
            | tag::COPY_BOTH
            | tag::COPY_DATA
            | tag::COPY_DONE
    )
}

/// Whether an error of this severity ends the connection it came on.
pub(crate) fn ends_connection(severity: Severity) -> bool {
    matches!(severity, Severity::Fatal | Severity::Panic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Expected::{CopyEnd, FunctionCall, OwnClose, OwnQuery, Sync};

    #[allow(non_upper_case_globals, reason = "reads like the variant that it is")]
    const Bind: Expected = Expected::Bind(None);
    #[allow(non_upper_case_globals, reason = "reads like the variant that it is")]
    const Execute: Expected = Expected::Execute { statement: None, pins: PinSet::NONE };
    #[allow(non_upper_case_globals, reason = "reads like the variant that it is")]
    const Query: Expected = Expected::Query { changes: None, pins: PinSet::NONE };
    #[allow(non_upper_case_globals, reason = "reads like the variant that it is")]
    const DescribeStatement: Expected = Expected::DescribeStatement(None);

    fn statement(id: u64) -> Rc<Statement> {
        Rc::new(Statement { id, ..Statement::default() })
    }

    fn parse(audience: Audience) -> Expected {
        Expected::Parse { audience, slot: Slot::Unnamed, named: None }
    }

    /// Feeds tags; `.` = forwarded, `-` = swallowed, `=` = replaced, `!` = unexpected; answers of our own follow as their tags.
    fn run(due: Vec<Expected>, tags: &[u8]) -> (String, Responses) {
        let mut responses = Responses::default();
        due.into_iter().for_each(|expected| responses.push(expected));
        let mut seen = String::new();
        // An answer of our own at the head is due before the first message.
        responses.pop_own(&mut Vec::new());
        for &message in tags {
            let mut own = Vec::new();
            seen.push(match responses.on_message(message, &mut own, &mut Vec::new()) {
                Ok(Reply::Forward) => '.',
                Ok(Reply::Swallow) => '-',
                Ok(Reply::Replace(_)) => '=',
                Err(Unexpected(_)) => '!',
            });
            seen.extend(own.chunks(5).map(|message| message[0] as char));
        }
        (seen, responses)
    }

    #[test]
    fn what_is_due_is_forwarded() {
        let named = Named { name: Box::default(), statement: statement(1) };
        let cases: Vec<(Vec<Expected>, &[u8], &str)> = vec![
            (vec![Query], b"TDDCZ", "....."),
            (vec![Query], b"TDCTDCINSAZ", "..........."),
            (vec![Query, Query], b"EZCZ", "...."),
            (vec![OwnQuery, Query], b"CTDCSZCZ", "----.-.."),
            (vec![Expected::Prepare(1), Query], b"31ZCZ", "---.."),
            (vec![Expected::Prepare(1), Query], b"EZEZ", "--.."),
            (vec![Expected::Question, Query], b"TDCZCZ", "----.."),
            (vec![Expected::Question, Query], b"EZCZ", "--.."),
            (vec![Expected::Answer(vec![1])], b"SIZ", ".=."),
            (vec![Expected::Answer(vec![1])], b"EZ", ".."),
            (vec![FunctionCall], b"VZ", ".."),
            (vec![parse(Audience::Client), Bind, DescribeStatement, Execute, Sync], b"12tTDCZ", "......."),
            (vec![parse(Audience::Proxy), Bind, Execute, Sync], b"12sZ", "-..."),
            (vec![Bind, OwnClose, Execute, OwnClose, Sync], b"2DCZ", ".3..3."),
            (vec![Expected::OwnParse(named), Bind, Sync], b"2Z", ".."),
            (vec![Bind, Execute, Sync, Bind, Execute, Sync], b"EZ2CZ", "....."),
            (vec![DescribeStatement, Sync], b"tEZ", "..."),
            (vec![Expected::Poison(vec![1]), Bind, Sync], b"EZ", "=."),
            (vec![Query], b"HddcCZ", "......"),
            (vec![Query], b"GCZ", "..."),
            (vec![Query], b"2", "!"),
            (vec![], b"Z", "!"),
            (vec![], b"NSA", "..."),
            (vec![Bind, Sync], b"Z", "!"),
        ];
        for (due, tags, expected) in cases {
            let text = format!("{due:?}");
            assert_eq!(run(due, tags).0, expected, "{text}");
        }
    }

    #[test]
    fn after_an_error_without_sync_everything_is_skipped_until_one_is_sent() {
        let (_, mut responses) = run(vec![Bind, Execute], b"E");
        assert!(responses.is_skipping() && responses.is_empty() && responses.is_in_batch());
        responses.push(Sync);
        assert!(!responses.is_skipping() && !responses.is_in_batch());
    }

    #[test]
    fn a_batch_of_which_all_is_answered_stays_open_until_its_sync() {
        let (_, mut responses) = run(vec![parse(Audience::Client), Bind, Execute], b"12C");
        assert!(responses.is_empty() && responses.is_in_batch() && !responses.is_idle());
        assert_eq!(responses.unfinished(), [Unfinished::OpenBatch]);
        responses.push(Expected::OwnClose);
        assert!(!responses.is_idle());
        let (_, mut responses) = run(vec![parse(Audience::Client), Bind, Execute, Sync], b"12CZ");
        assert!(responses.is_idle() && responses.unfinished().is_empty());
        responses.push(Expected::OwnClose);
        responses.pop_own(&mut Vec::new());
        assert!(responses.is_idle(), "nothing was sent");
    }

    #[test]
    fn a_failed_parse_is_undone() {
        let named = Named { name: Box::from(&b"s"[..]), statement: statement(7) };
        let mut responses = Responses::default();
        responses.push(Expected::Parse { audience: Audience::Client, slot: Slot::Named(7), named: Some(named) });
        responses.push(parse(Audience::Client));
        responses.push(Sync);
        let mut note = Vec::new();
        responses.on_message(tag::ERROR, &mut Vec::new(), &mut note).unwrap();
        let [Outcome::NotParsed(_, Slot::Named(7)), Outcome::Undefined(named), Outcome::NotParsed(Audience::Client, Slot::Unnamed)] =
            &note[..]
        else {
            panic!("{note:?}");
        };
        assert_eq!(&*named.name, b"s");
    }

    #[test]
    fn each_statement_of_a_query_is_completed_on_its_own() {
        let mut responses = Responses::default();
        responses.push(Expected::Query { changes: Some(VecDeque::from([Change::Nothing, Change::ResetAll])), pins: PinSet::NONE });
        let statement = Rc::new(Statement { change: Some(Change::UnlistenAll), ..Statement::default() });
        responses.push(Expected::Execute { statement: Some(statement), pins: PinSet::NONE });
        assert_eq!(
            (responses.complete(), responses.complete(), responses.complete()),
            (Some(Change::Nothing), Some(Change::ResetAll), None)
        );
        responses.on_message(tag::READY, &mut Vec::new(), &mut Vec::new()).unwrap();
        assert_eq!(responses.complete(), Some(Change::UnlistenAll));
    }

    #[test]
    fn a_sync_ahead_of_copy_data_is_not_answered() {
        let (_, mut responses) = run(vec![Bind, Execute, Sync], b"2G");
        assert!(responses.is_copy_in());
        responses.on_copy_end();
        responses.push(Sync);
        let mut note = Vec::new();
        for message in *b"CZ" {
            assert_eq!(responses.on_message(message, &mut Vec::new(), &mut note), Ok(Reply::Forward));
        }
        assert!(responses.is_empty());
    }

    #[test]
    fn copy_data_that_was_sent_blindly() {
        let (seen, responses) = run(vec![Bind, Execute, CopyEnd, Sync], b"2GCZ");
        assert_eq!(seen, "....");
        assert!(responses.is_empty() && !responses.is_copy_in());
        for (due, tags) in [
            (vec![Query, CopyEnd], &b"GCZ"[..]),
            (vec![Query, Sync, CopyEnd], b"GCZ"),
            (vec![Query, Sync, CopyEnd, Sync], b"GCZZ"),
            (vec![Query, Sync, CopyEnd, Sync], b"EZZZ"),
            (vec![Query, CopyEnd, CopyEnd], b"GCGCZ"),
        ] {
            let mut responses = Responses::default();
            due.iter().for_each(|expected| responses.push(expected.clone()));
            assert!(!responses.is_in_batch(), "{due:?}");
            let (seen, responses) = run(due, tags);
            assert_eq!(seen, ".".repeat(tags.len()));
            assert!(responses.is_idle() && !responses.is_copy_in());
        }
        let (seen, responses) = run(vec![Bind, Execute, CopyEnd, Sync], b"2CZ");
        assert_eq!(seen, "...", "no COPY after all");
        assert!(responses.is_empty());
    }
}

#[cfg(test)]
mod properties {
    use super::*;

    /// Whatever is sent and whatever comes, in any order: no panic, and a queue that is empty owes nothing.
    #[test]
    fn any_order_of_messages_is_survived() {
        const TAGS: &[u8] = b"TDCINEZ123ntsGHWdcVSA?";
        bolero::check!().with_type::<Vec<(bool, u8)>>().for_each(|steps| {
            let mut responses = Responses::default();
            let (mut own, mut note) = (Vec::new(), Vec::new());
            for (is_push, number) in steps {
                if *is_push {
                    responses.push(match number % 10 {
                        0 if *number > 200 => Expected::Question,
                        0 if *number > 100 => Expected::OwnQuery,
                        0 => Expected::Query { changes: None, pins: PinSet::NONE },
                        1 => Expected::Parse { audience: Audience::Proxy, slot: Slot::Unnamed, named: None },
                        2 => Expected::Bind(None),
                        3 => Expected::DescribeStatement(None),
                        4 => Expected::Execute { statement: None, pins: PinSet::NONE },
                        5 => Expected::Close(Audience::Client),
                        6 => Expected::OwnClose,
                        7 => Expected::Poison(Vec::new()),
                        8 if *number > 100 => Expected::Answer(Vec::new()),
                        8 => Expected::FunctionCall,
                        _ => Expected::Sync,
                    });
                    if *number > 200 {
                        responses.on_copy_end();
                    }
                } else {
                    let message = TAGS[usize::from(*number) % TAGS.len()];
                    let was_empty = responses.is_empty();
                    let reply = responses.on_message(message, &mut own, &mut note);
                    assert!(!was_empty || reply.is_err() || matches!(message, b'N' | b'S' | b'A'), "{} was not due", message as char);
                }
                assert!(!responses.unfinished().is_empty() || responses.is_own() || responses.is_idle());
            }
        });
    }
}
