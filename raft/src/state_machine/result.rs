//! How one entry ended, equal on every node.

use bytes::Bytes;
use prost::Message;
use quorumsql_proto::log as pb;
use serde::{Deserialize, Serialize};

use crate::command::{Committed, Rejection};

/// Largest encoded result: it is kept in `request_ids` and travels back to the client.
pub(crate) const MAX_RESULT_BYTES: usize = 1024;

/// The logical outcome of an entry (raft-and-storage.md 4.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) enum ApplyOutcome {
    /// It has its effect.
    #[default]
    Ok,
    /// Computed on rows that have changed since: no effect, to be computed again.
    Retry,
    /// MEMORY was changed by another connection.
    Conflict,
    /// `IF REVISION` does not hold.
    RevisionConflict,
    /// Refused for the reason in `message`.
    Refused,
}

/// What applying an entry returned.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ApplyResult {
    /// Index of the entry (of its first application, when a retry is answered).
    pub(crate) index: u64,
    /// How it ended.
    pub(crate) outcome: ApplyOutcome,
    /// Revision of RUNTIME, where it made one.
    pub(crate) revision: Option<u64>,
    /// Rows, for the client.
    pub(crate) affected: u64,
    /// Key of the last inserted row; 0 = none.
    pub(crate) last_insert_id: i64,
    /// Info text, or the reason of a refusal.
    pub(crate) message: String,
    /// For SHOW WARNINGS.
    pub(crate) warnings: Vec<String>,
    /// Modules whose MEMORY was changed.
    pub(crate) memory_modules: Vec<String>,
    /// `NodeAlloc`: the id given.
    pub(crate) node_id: u64,
    /// `NodeAlloc`: the slot given.
    pub(crate) slot: u8,
}

impl ApplyResult {
    pub(crate) fn ok(index: u64) -> Self {
        Self { index, ..Self::default() }
    }

    pub(crate) fn refused(index: u64, outcome: ApplyOutcome, message: impl Into<String>) -> Self {
        Self { index, outcome, message: message.into(), ..Self::default() }
    }

    /// Protobuf `ApplyResult`, at most [`MAX_RESULT_BYTES`]: texts are cut, warnings from the last.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut message = pb::ApplyResult {
            index: self.index,
            outcome: match self.outcome {
                ApplyOutcome::Ok => pb::ApplyOutcome::Ok,
                ApplyOutcome::Retry => pb::ApplyOutcome::Retry,
                ApplyOutcome::Conflict => pb::ApplyOutcome::Conflict,
                ApplyOutcome::RevisionConflict => pb::ApplyOutcome::RevisionConflict,
                ApplyOutcome::Refused => pb::ApplyOutcome::Refused,
            }
            .into(),
            revision: self.revision,
            affected: self.affected,
            last_insert_id: self.last_insert_id,
            message: cut(&self.message, 512).to_string(),
            warnings: self.warnings.iter().map(|warning| cut(warning, 256).to_string()).collect(),
            memory_modules: self.memory_modules.clone(),
            node_id: self.node_id,
            slot: self.slot.into(),
        };
        while message.encoded_len() > MAX_RESULT_BYTES && message.warnings.pop().is_some() {}
        message.encode_to_vec()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, prost::DecodeError> {
        let message = pb::ApplyResult::decode(Bytes::copy_from_slice(bytes))?;
        Ok(Self {
            index: message.index,
            outcome: match message.outcome() {
                pb::ApplyOutcome::Ok => ApplyOutcome::Ok,
                pb::ApplyOutcome::Retry => ApplyOutcome::Retry,
                pb::ApplyOutcome::Conflict => ApplyOutcome::Conflict,
                pb::ApplyOutcome::RevisionConflict => ApplyOutcome::RevisionConflict,
                pb::ApplyOutcome::Refused => ApplyOutcome::Refused,
            },
            revision: message.revision,
            affected: message.affected,
            last_insert_id: message.last_insert_id,
            message: message.message,
            warnings: message.warnings,
            memory_modules: message.memory_modules,
            node_id: message.node_id,
            slot: u8::try_from(message.slot).unwrap_or_default(),
        })
    }

    /// The client's view: what was committed, or why it was refused.
    ///
    /// # Errors
    /// The refusal with the codes of raft-and-storage.md 4.7.
    pub(crate) fn into_committed(self) -> Result<Committed, Rejection> {
        match self.outcome {
            ApplyOutcome::Ok => Ok(Committed {
                index: self.index,
                revision: self.revision,
                affected: self.affected,
                last_insert_id: self.last_insert_id,
                info: self.message,
                warnings: self.warnings,
                live: false,
                memory: self.memory_modules.into_iter().map(|module| (module, self.index)).collect(),
            }),
            ApplyOutcome::Retry => Err(Rejection::conflict("the configuration changed while this statement was computed; try again")),
            ApplyOutcome::Conflict | ApplyOutcome::RevisionConflict => Err(Rejection::conflict(self.message)),
            ApplyOutcome::Refused => Err(Rejection::admin(self.message)),
        }
    }
}

/// The first `limit` bytes, at a character boundary.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl Rejection {
    pub(crate) fn new(mysql: (u16, &str), pgsql_state: &str, message: impl Into<String>) -> Self {
        Self { mysql_code: mysql.0, mysql_state: mysql.1.into(), pgsql_state: pgsql_state.into(), message: message.into() }
    }

    /// An error of SQL or of a command: 1045 / 28000 with the reference's prefix.
    pub(crate) fn admin(message: impl AsRef<str>) -> Self {
        Self::new((1045, "28000"), "28000", format!("ProxySQL Admin Error: {}", message.as_ref()))
    }

    /// The loser of a race between editors: 1213 / 40001.
    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new((1213, "40001"), "40001", message)
    }

    /// 1153 / 54000.
    pub(crate) fn too_large(bytes: usize, limit: usize) -> Self {
        Self::new((1153, "08S01"), "54000", format!("change of {bytes} bytes exceeds {limit}"))
    }

    /// 1153 / 54000: refused before it is read.
    pub(crate) fn long_statement(bytes: usize, limit: usize) -> Self {
        Self::new((1153, "08S01"), "54000", format!("statement of {bytes} bytes exceeds {limit}"))
    }

    /// 1205 / 53000.
    pub(crate) fn queue_full() -> Self {
        Self::new((1205, "HY000"), "53000", "too many configuration changes in progress, try again")
    }

    /// Nobody knows whether it will be applied.
    pub(crate) fn no_answer(waited_ms: u128, client: &[u8; 16], seq: u64) -> Self {
        let client: String = client.iter().map(|byte| format!("{byte:02x}")).collect();
        Self::unknown(format!("no answer within {waited_ms} ms; the change may still be applied (request {client}:{seq})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_round_trip_and_never_exceed_their_limit() {
        let mut result = ApplyResult {
            revision: Some(7),
            affected: 3,
            last_insert_id: -1,
            memory_modules: vec!["MYSQL USERS".into()],
            ..ApplyResult::ok(9)
        };
        result.message = "fine".into();
        assert_eq!(ApplyResult::decode(&result.encode()), Ok(result.clone()));
        result.message = "ä".repeat(2000);
        result.warnings = vec!["ü".repeat(500); 40];
        let bytes = result.encode();
        assert!(bytes.len() <= MAX_RESULT_BYTES);
        let kept = ApplyResult::decode(&bytes).expect("decodes");
        assert!(kept.message.chars().all(|c| c == 'ä') && !kept.warnings.is_empty());
    }
}
