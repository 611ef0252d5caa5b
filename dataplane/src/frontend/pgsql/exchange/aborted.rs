//! A transaction whose server is gone: it reads as failed until the client ends it (pgsql-dataplane.md 8.2).

use std::rc::Rc;

use quorumsql_wire::pgsql::backend;
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frame::Header;
use quorumsql_wire::pgsql::frontend::{FrontendMessage, Target};
use quorumsql_wire::pgsql::sqlstate;
use quorumsql_wire::sql::{Class, Transaction};

use super::lost::failed_transaction;
use super::request::{Done, drop_message};
use super::{End, Exchange, SMALL_MESSAGE};
use crate::session::pgsql::prepared::Statement;

impl Exchange<'_> {
    /// A message of a session whose transaction is gone.
    pub(super) fn on_aborted(&mut self, header: Header, input: &[u8]) -> Result<Done, End> {
        let cap = if matches!(header.tag, b'Q' | b'P') { self.longest_statement() } else { SMALL_MESSAGE };
        match header.tag {
            b'X' => return self.on_leave(),
            b'd' | b'c' | b'f' | b'H' => return Ok(drop_message(header, input)),
            b'B' | b'F' if header.body > cap => {
                self.refuse(header.tag == b'F');
                return Ok(drop_message(header, input));
            }
            b'Q' | b'P' if header.body > cap => return Ok(self.too_big(header, input)),
            _ => {}
        }
        let Some(message) = self.whole(header, input, cap)? else { return Ok(Done::More(header.size())) };
        match message {
            FrontendMessage::Query(sql) => {
                let scan = self.scan(sql);
                let exits = scan.statements == 1 && is_exit(scan.class, &scan.digest_text);
                let is_empty = scan.statements == 0;
                if exits {
                    self.client.aborted = None;
                    return Ok(self.answer_query(|out| backend::command_complete(out, "ROLLBACK")));
                }
                if is_empty {
                    return Ok(self.answer_query(backend::empty_query));
                }
                self.refuse(true);
            }
            FrontendMessage::Parse(parse) => {
                let statement = self.statement(parse.sql, parse.parameter_types);
                if self.expect_exit(&statement) {
                    self.define(parse.name, statement);
                    self.say_with(backend::parse_complete);
                }
            }
            FrontendMessage::Bind(bind) => match self.known(bind.statement).map(Rc::clone) {
                Some(statement) if self.expect_exit(&statement) => self.say_with(backend::bind_complete),
                Some(_) => {}
                None => self.refuse(false),
            },
            FrontendMessage::Describe(target, _) if self.is_exit_parsed() => self.say_with(|out| {
                if target == Target::Statement {
                    backend::parameter_description(out, &[]);
                }
                backend::no_data(out);
            }),
            FrontendMessage::Execute { .. } if self.is_exit_parsed() => {
                self.client.aborted = None;
                self.say_with(|out| backend::command_complete(out, "ROLLBACK"));
            }
            FrontendMessage::Close(target, name) => {
                if target == Target::Statement {
                    self.client.statements.remove(name);
                }
                self.say_with(backend::close_complete);
            }
            FrontendMessage::Sync => {
                self.client.skip_to_sync = false;
                if let Some(aborted) = &mut self.client.aborted {
                    aborted.exit_parsed = false;
                }
                let status = self.status();
                self.say_with(|out| backend::ready_for_query(out, status));
            }
            FrontendMessage::Describe(..) | FrontendMessage::Execute { .. } => self.refuse(false),
            FrontendMessage::FunctionCall(_) => self.refuse(true),
            _ => return Err(End::Malformed),
        }
        Ok(Done::Consumed)
    }

    fn is_exit_parsed(&self) -> bool {
        self.client.aborted.as_ref().is_some_and(|aborted| aborted.exit_parsed)
    }

    /// Notes whether the batch ends the transaction; otherwise it is refused.
    fn expect_exit(&mut self, statement: &Statement) -> bool {
        let exits = is_exit(statement.class, &statement.scanned.digest_text);
        if let Some(aborted) = &mut self.client.aborted {
            aborted.exit_parsed = exits;
        }
        if !exits {
            self.refuse(false);
        }
        exits
    }

    fn refuse(&mut self, ready: bool) {
        let cause = self.client.aborted.as_mut().and_then(|aborted| aborted.cause.take());
        let mut fields = failed_transaction();
        if let Some(cause) = cause {
            self.say_with(|out| ErrorFields::warning(sqlstate::WARNING, cause.as_str()).encode(out));
            fields = fields.detail(format!("the connection to the server was lost: {cause}"));
        }
        self.say_error(&fields, ready);
        self.client.skip_to_sync |= !ready;
    }
}

/// Whether a statement ends the transaction and starts no other.
fn is_exit(class: Class, digest_text: &[u8]) -> bool {
    let chains = digest_text.windows(5).any(|window| window.eq_ignore_ascii_case(b"chain"));
    matches!(class, Class::Transaction(Transaction::Commit | Transaction::Rollback)) && !chains
}
