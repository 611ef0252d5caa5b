//! A node that differs from the others when a test says so, in debug builds only.
//!
//! A process with `QUORUMSQL_TEST_OMIT=mysql_servers` applies no changes of rows of that table: what divergence looks like from
//! outside, made on purpose.

use quorumsql_proto::log as pb;

/// The table that is left out, if any.
#[derive(Debug, Default)]
pub(super) struct Omission {
    #[cfg(debug_assertions)]
    table: parking_lot::Mutex<Option<String>>,
}

#[cfg(debug_assertions)]
impl Omission {
    pub(super) fn from_environment() -> Self {
        Self { table: parking_lot::Mutex::new(std::env::var("QUORUMSQL_TEST_OMIT").ok()) }
    }

    /// From now on.
    #[cfg(test)]
    pub(super) fn set(&self, table: &str) {
        *self.table.lock() = Some(table.to_owned());
    }

    /// The entry without what is to be left out.
    pub(super) fn spare(&self, mut entry: pb::LogEntry) -> pb::LogEntry {
        if let (Some(table), Some(pb::log_entry::Op::Change(change))) = (&*self.table.lock(), &mut entry.op) {
            change.tables.retain(|changed| changed.table != *table);
        }
        entry
    }
}

#[cfg(not(debug_assertions))]
impl Omission {
    pub(super) fn from_environment() -> Self {
        Self::default()
    }

    pub(super) fn spare(&self, entry: pb::LogEntry) -> pb::LogEntry {
        entry
    }
}
