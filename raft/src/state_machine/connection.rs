//! How `state.db` is opened (raft-and-storage.md 4.1).

use std::path::Path;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

/// A connection that may write.
pub(crate) fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "page_size", 4096)?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    // The log is the durable copy: after power loss `last_index` falls back together with the rows (4.1).
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "foreign_keys", false)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.query_row("PRAGMA wal_autocheckpoint = 1000", [], |_| Ok(()))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_prepared_statement_cache_capacity(256);
    Ok(connection)
}

/// Runs `work` in a savepoint of an open transaction: kept when it returns `Ok(true, _)`, undone otherwise.
pub(crate) fn savepoint<T, E: From<rusqlite::Error>>(connection: &Connection, work: impl FnOnce() -> Result<(bool, T), E>) -> Result<T, E> {
    connection.execute_batch("SAVEPOINT entry")?;
    let result = work();
    match &result {
        Ok((true, _)) => connection.execute_batch("RELEASE entry")?,
        // SQLite itself has ended the transaction (interrupt, OR ROLLBACK, full disk): nothing is left to be undone.
        Ok((false, _)) | Err(_) if connection.is_autocommit() => {}
        Ok((false, _)) | Err(_) => connection.execute_batch("ROLLBACK TO entry; RELEASE entry")?,
    }
    result.map(|(_, value)| value)
}
