//! The server's messages, each taken by what is due at the head of the queue.

use quorumsql_wire::pgsql::backend::tag;
use quorumsql_wire::pgsql::{backend, error_fields::Severity};

use super::{Audience, CopyIn, Expected, Outcome, Reply, Responses, Slot, Unexpected};

impl Responses {
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
                Some(Expected::OwnClose(_)) => backend::close_complete(own),
                Some(Expected::CopyEnd | Expected::Unnamed(..)) => {}
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
            (tag::EMPTY_QUERY, Expected::Answer { text, forgets }) => {
                note.extend(forgets.take().map(Outcome::Forgotten));
                return Ok(Reply::Replace(std::mem::take(text)));
            }
            (tag::READY, Expected::Query { .. } | Expected::Answer { .. } | Expected::FunctionCall | Expected::Sync) => {
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
            Some(Expected::Query { .. } | Expected::Answer { .. } | Expected::FunctionCall) => return Reply::Forward,
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

    /// The batch has failed: nothing up to its Sync is answered. What was to be done last is undone first.
    fn skip(&mut self, note: &mut Vec<Outcome>) {
        let start = note.len();
        self.skip_to_sync(note);
        note[start..].reverse();
    }

    fn skip_to_sync(&mut self, note: &mut Vec<Outcome>) {
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
                Some(Expected::OwnClose(named)) => note.extend(named.map(Outcome::NotClosedByClient)),
                Some(Expected::Unnamed(stamp, statement)) => note.push(Outcome::UnnamedLeft(stamp, statement)),
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
