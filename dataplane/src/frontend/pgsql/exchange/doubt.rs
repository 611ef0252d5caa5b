//! Pins that may be over: the server is asked, for only it knows (pgsql-dataplane.md 3.9, "Unpin probe").
//!
//! A session that is pinned by temporary objects, advisory locks, LISTEN, cursors or prepared statements may have ended the last of them, in ways
//! that no text tells: a lock is given back as often as it was taken, a dropped table was not the temporary one, a transaction with all that it
//! made was rolled back. Behind each statement that could have done so the connection is asked, at most every [`ASK_PAUSE_US`].

use quorumsql_wire::pgsql::frontend;
use quorumsql_wire::sql::Effects;

use super::{Attached, Exchange};
use crate::session::pgsql::responses::Expected;
use crate::worker::ticker::micros;

/// Least time between two questions, in microseconds (pgsql-dataplane.md 3.9): to list locks costs a server more than a statement.
pub(super) const ASK_PAUSE_US: u64 = 100_000;

/// Whether pins may be over, and when the server was asked last.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    is_open: bool,
    /// Of [`micros`]; 0 = never.
    asked: u64,
}

impl Doubt {
    /// Whether the server is to be asked.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }
}

impl Exchange<'_> {
    /// Asks the server, unless the session goes on at once or it was asked a moment ago; nothing is due.
    pub(super) fn ask(&mut self) {
        let is_busy = self.input.is_some();
        let Some(server) = &mut self.server else { return };
        let now = micros();
        if is_busy || (server.doubt.asked != 0 && now < server.doubt.asked + ASK_PAUSE_US) {
            return;
        }
        let Some(question) = server.question() else {
            server.doubt.is_open = false;
            return;
        };
        server.doubt = Doubt { is_open: false, asked: now };
        server.conn.prepared.unnamed = 0;
        let mut bytes = Vec::with_capacity(question.len() + 8);
        frontend::query(&mut bytes, question.as_bytes());
        self.append(&bytes);
        self.push(Expected::Question);
    }
}

impl Attached {
    /// A unit is over, or a transaction was rolled back: pins that it was about may be over with it. DISCARD and its kin say themselves what they end.
    pub(super) fn doubt_pins(&mut self, failed: bool) {
        self.doubt.is_open |= !self.pins.is_empty() && (failed || self.unit.effects.intersects(Effects::MAY_UNPIN | Effects::UNLISTEN));
    }

    /// What to ask. A search path with pg_temp in it pins by itself.
    fn question(&self) -> Option<String> {
        let path = self.parameters.want().get("search_path").unwrap_or_default();
        if path.to_ascii_lowercase().contains("pg_temp") { None } else { self.pins.question() }
    }

    /// A query of our own has succeeded; `tag` is its command tag with its end. What was sent behind a question may have pinned anew.
    pub(super) fn on_own_complete(&mut self, tag: &[u8]) {
        if self.due.is_last_question() && tag == b"SELECT 0\0" {
            self.pins.remove_asked();
        }
    }
}
