//! What becomes of the session's pins and parameters when a statement has succeeded, a unit has ended, or the server reports a parameter.

use quorumsql_wire::pgsql::backend::{self, TransactionStatus};

use super::Attached;
use super::answer::Told;
use crate::session::pgsql::changes::Change;
use crate::session::pgsql::parameters::{NotFollowed, Telling};
use crate::session::pgsql::pins::Pin;

/// Names of statements prepared as text that are remembered; a Parse of another is not refused.
const TEXT_NAMES: usize = 1000;

impl Attached {
    /// The server reports a parameter: what the client gets in place of the message; `None` = the message.
    pub(super) fn on_parameter(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        self.reported |= !self.due.is_own();
        let (name, value) = backend::decode_parameter_status(body).ok()?;
        let telling = match (std::str::from_utf8(name), std::str::from_utf8(value)) {
            (Ok(name), Ok(value)) => self.parameters.tell(name, self.conn.reported(name), value),
            _ => Telling::AsItIs,
        };
        self.conn.note_parameter(name, value);
        match telling {
            Telling::AsItIs => None,
            Telling::Nothing => Some(Vec::new()),
            Telling::Value(value) => {
                let mut message = Vec::with_capacity(name.len() + value.len() + 7);
                backend::parameter_status(&mut message, name, value.as_bytes());
                Some(message)
            }
        }
    }

    /// A statement has succeeded; `tag` is its command tag with its end.
    pub(super) fn on_complete(&mut self, tag: &[u8], told: &mut Told) {
        self.pins.run(self.due.take_pins());
        let change = self.due.complete().unwrap_or_default();
        for name in change.custom_names() {
            self.note_name(name);
            told.named.push(name.to_owned());
        }
        match tag {
            b"DISCARD ALL\0" => {
                self.conn.tainted |= self.pins.outlives_discard();
                self.pins.clear();
                self.text_names.clear();
                self.conn.forget_state();
                self.parameters.discard();
                told.discarded = true;
                self.keep_parsed(told);
            }
            b"DEALLOCATE ALL\0" => {
                self.conn.prepared.clear();
                self.pins.end(Pin::Prepare);
                self.text_names.clear();
                told.deallocated = true;
                self.keep_parsed(told);
            }
            b"CLOSE CURSOR ALL\0" => self.pins.end(Pin::Cursor),
            b"DISCARD TEMP\0" => self.pins.end(Pin::Temporary),
            b"COMMIT\0" | b"PREPARE TRANSACTION\0" => self.parameters.commit(),
            b"ROLLBACK\0" => {
                self.pins.on_rollback();
                self.doubt_pins(true);
                if !matches!(change, Change::RollbackTo(_)) {
                    self.parameters.roll_back();
                }
            }
            _ => {}
        }
        match change {
            Change::Role(true) => {
                self.pins.end(Pin::Role);
                self.doubt_pins(true);
            }
            Change::Role(false) => self.pins.add(Pin::Role),
            Change::Authorization(true) => self.pins.end(Pin::Authorization),
            Change::Authorization(false) => self.pins.add(Pin::Authorization),
            Change::UnlistenAll => self.pins.end(Pin::Listen),
            _ => {}
        }
        match &change {
            Change::Prepare(name) if self.text_names.len() < TEXT_NAMES => self.text_names.push(name.clone()),
            Change::Deallocate(name) => {
                self.text_names.retain(|known| known != name);
                if !self.due.defines(name.as_bytes()) {
                    told.forgotten.push(name.clone());
                }
            }
            _ => {}
        }
        if change.leads_to_temporary_objects() {
            self.pins.add(Pin::Temporary);
        }
        if matches!(change, Change::Unnamed | Change::Bound(_)) {
            self.pins.add(Pin::Unnamed);
        } else if self.parameters.apply(&change) == Err(NotFollowed) {
            self.pins.add(Pin::Set);
        }
    }

    /// All statements are gone but those that are parsed behind this one in its batch.
    fn keep_parsed(&mut self, told: &mut Told) {
        self.conn.tainted |= self.due.is_long();
        told.kept.extend(self.due.defined().map(|named| named.name.clone()));
        self.due.parsed().for_each(|id| self.conn.prepared.doubt(id));
    }

    /// A statement has failed. Its names may be known to the server all the same, if it failed late: at the end of its transaction.
    pub(super) fn on_failed(&mut self) {
        self.failed = true;
        self.pins.run(self.due.take_pins());
        if self.conn.status != TransactionStatus::Failed
            && let Some(change) = self.due.failing()
        {
            change.custom_names().for_each(|name| self.note_name(name));
        }
    }

    /// The server knows a parameter of an application's own by this name.
    fn note_name(&mut self, name: &str) {
        if self.conn.names.add(name).is_err() {
            self.pins.add(Pin::Unnamed);
        }
    }

    /// The server is ready for the next unit.
    pub(super) fn on_ready(&mut self) {
        (self.expired, self.cancelled, self.reshaped) = (false, false, 0);
        let failed = std::mem::take(&mut self.failed);
        self.doubt_pins(failed);
        if self.conn.status != TransactionStatus::Idle {
            return;
        }
        if failed {
            self.parameters.roll_back();
            self.pins.on_rollback();
        } else {
            self.parameters.commit();
        }
        self.pins.on_commit();
        // Those of a batch that was sent since stay.
        if self.due.is_last() {
            self.portals.clear();
        }
        if std::mem::take(&mut self.reported) {
            self.observe();
        }
    }

    /// Takes over what the server has reported of parameters.
    fn observe(&mut self) {
        for (name, value) in &self.conn.report {
            let default = self.conn.default_of(name);
            let texts = (std::str::from_utf8(name), std::str::from_utf8(value), default.map(std::str::from_utf8).transpose());
            let observed = match texts {
                (Ok(name), Ok(value), Ok(default)) => self.parameters.observe(name, value, default),
                _ => Err(NotFollowed),
            };
            if observed == Err(NotFollowed) {
                self.pins.add(Pin::Set);
            }
        }
    }
}
