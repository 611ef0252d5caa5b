//! `request_ids`: forwarded writes take effect exactly once (raft-and-storage.md 6.3).

use quorumsql_proto::log as pb;
use rusqlite::{Connection, OptionalExtension};

use super::result::ApplyResult;
use super::schema::{signed, unsigned};
use super::{ApplyOutcome, StorageError};

/// Writers that are remembered at most: those that wrote last. Their age does not count, since it would be measured by the clocks
/// of proposers, and one that is wrong would have a retry executed twice.
const KEPT_WRITERS: u32 = 10_000;
/// The number of writers is looked at every so many entries.
const COUNT_EVERY: u64 = 256;

/// The answer to an entry whose request was applied before, or comes after a later one of the same writer.
pub(crate) fn answered(connection: &Connection, index: u64, entry: &pb::LogEntry) -> Result<Option<ApplyResult>, StorageError> {
    if entry.client_id.is_empty() {
        return Ok(None);
    }
    lookup(connection, index, &entry.client_id, entry.seq)
}

/// What is known about request `seq` of `client`: its result, a refusal if a later one was applied, or nothing.
pub(crate) fn lookup(connection: &Connection, index: u64, client: &[u8], seq: u64) -> Result<Option<ApplyResult>, StorageError> {
    let sql = "SELECT last_seq, result FROM request_ids WHERE client_id = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let found: Option<(i64, Vec<u8>)> = statement.query_row([client], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((last, result)) = found.map(|(last, result)| (unsigned(last), result)) else {
        return Ok(None);
    };
    if seq > last {
        return Ok(None);
    }
    if seq < last {
        let message = format!("request {seq} is older than request {last} of the same connection");
        return Ok(Some(ApplyResult::refused(index, ApplyOutcome::Refused, message)));
    }
    let result = ApplyResult::decode(&result).map_err(|error| StorageError::Refused(format!("request_ids: unreadable result: {error}")))?;
    Ok(Some(result))
}

/// Keeps the result for retries. `Retry` is none: the same request will be computed again.
pub(crate) fn remember(connection: &Connection, entry: &pb::LogEntry, result: &ApplyResult) -> Result<(), StorageError> {
    if entry.client_id.is_empty() || result.outcome == ApplyOutcome::Retry {
        return Ok(());
    }
    let sql = "INSERT OR REPLACE INTO request_ids VALUES (?1, ?2, ?3, ?4, ?5)";
    let used = signed(entry.proposed_at_ms);
    connection.prepare_cached(sql)?.execute((&entry.client_id[..], signed(entry.seq), signed(result.index), result.encode(), used))?;
    if result.index.is_multiple_of(COUNT_EVERY) {
        let sql =
            "DELETE FROM request_ids WHERE client_id IN (SELECT client_id FROM request_ids ORDER BY \"index\" DESC LIMIT -1 OFFSET ?1)";
        connection.prepare_cached(sql)?.execute([KEPT_WRITERS])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_machine::schema;

    fn table() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        schema::prepare(&connection).unwrap();
        connection
    }

    fn used(connection: &Connection, writer: u32, index: u64, at_ms: u64) {
        let entry = pb::LogEntry { client_id: writer.to_be_bytes().to_vec().into(), seq: 1, proposed_at_ms: at_ms, ..Default::default() };
        remember(connection, &entry, &ApplyResult::ok(index)).unwrap();
    }

    fn known(connection: &Connection, writer: u32) -> bool {
        lookup(connection, 0, &writer.to_be_bytes(), 1).unwrap().is_some()
    }

    #[test]
    fn no_clock_of_a_proposer_makes_a_writer_forgotten() {
        let connection = table();
        for (writer, at_ms) in [(1, 1_000), (2, 1 << 50), (3, 0)] {
            used(&connection, writer, writer.into(), at_ms);
        }
        assert!([1, 2, 3].iter().all(|writer| known(&connection, *writer)));
    }

    #[test]
    fn the_writers_that_were_silent_longest_are_forgotten_first() {
        let connection = table();
        connection.execute_batch("BEGIN").unwrap();
        let last = u64::from(KEPT_WRITERS).next_multiple_of(COUNT_EVERY);
        for index in 1..=last {
            used(&connection, u32::try_from(index).unwrap(), index, 1_000);
        }
        let excess = u32::try_from(last).unwrap() - KEPT_WRITERS;
        assert!(excess > 0 && !known(&connection, excess) && known(&connection, excess + 1));
    }
}
