//! The log in one SQLite file: WAL, synchronous=FULL; a durable point is a COMMIT.

use std::{fs, io, ops::Range, path::Path, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};

use super::backend::{Backend, BackendReader, MetaKey, Scanned, damaged, seal, unseal};

pub(crate) struct SqliteBackend {
    connection: Connection,
    reader: Arc<SqliteReader>,
    in_transaction: bool,
}

impl SqliteBackend {
    /// Opens or creates the file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let connection = Connection::open(path).map_err(io::Error::other)?;
        connection
            .execute_batch(
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
                 CREATE TABLE IF NOT EXISTS log(idx INTEGER PRIMARY KEY, d BLOB NOT NULL);
                 CREATE TABLE IF NOT EXISTS meta(k TEXT PRIMARY KEY, v BLOB NOT NULL);",
            )
            .map_err(io::Error::other)?;
        let reading = Connection::open(path).map_err(io::Error::other)?;
        fs::File::open(path)?.sync_all()?;
        if let Some(parent) = path.parent() {
            fs::File::open(parent)?.sync_all()?;
        }
        Ok(Self { connection, reader: Arc::new(SqliteReader { connection: Mutex::new(reading) }), in_transaction: false })
    }

    fn begin(&mut self) -> io::Result<()> {
        if !self.in_transaction {
            self.connection.execute_batch("BEGIN IMMEDIATE").map_err(io::Error::other)?;
            self.in_transaction = true;
        }
        Ok(())
    }
}

impl Backend for SqliteBackend {
    fn append(&mut self, entries: &[(u64, Bytes)]) -> io::Result<()> {
        self.begin()?;
        let mut insert = self.connection.prepare_cached("INSERT INTO log(idx, d) VALUES (?1, ?2)").map_err(io::Error::other)?;
        for (index, bytes) in entries {
            insert.execute(params![signed(*index)?, seal(bytes)]).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn truncate_after(&mut self, index: Option<u64>) -> io::Result<()> {
        self.begin()?;
        let after = index.map_or(Ok(-1), signed)?;
        self.connection.execute("DELETE FROM log WHERE idx > ?1", [after]).map_err(io::Error::other)?;
        Ok(())
    }

    fn purge(&mut self, index: u64) -> io::Result<()> {
        self.begin()?;
        self.connection.execute("DELETE FROM log WHERE idx <= ?1", [signed(index)?]).map_err(io::Error::other)?;
        Ok(())
    }

    fn put_meta(&mut self, key: MetaKey, value: &[u8]) -> io::Result<()> {
        self.begin()?;
        self.connection
            .execute("INSERT INTO meta(k, v) VALUES (?1, ?2) ON CONFLICT(k) DO UPDATE SET v = ?2", params![key.name(), seal(value)])
            .map_err(io::Error::other)?;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.in_transaction {
            self.connection.execute_batch("COMMIT").map_err(io::Error::other)?;
            self.in_transaction = false;
        }
        Ok(())
    }

    fn meta(&mut self, key: MetaKey) -> io::Result<Option<Vec<u8>>> {
        let sealed: Option<Vec<u8>> = self
            .connection
            .query_row("SELECT v FROM meta WHERE k = ?1", [key.name()], |row| row.get(0))
            .optional()
            .map_err(io::Error::other)?;
        let Some(sealed) = sealed else { return Ok(None) };
        unseal(&sealed).map(|value| Some(value.to_vec())).ok_or_else(|| damaged(format!("{} fails its checksum", key.name())))
    }

    fn scan(&mut self, from: u64, visit: &mut dyn FnMut(Scanned)) -> io::Result<()> {
        select(&self.connection, signed(from)?, i64::MAX, visit)
    }

    fn reader(&self) -> Arc<dyn BackendReader> {
        self.reader.clone()
    }
}

struct SqliteReader {
    connection: Mutex<Connection>,
}

impl BackendReader for SqliteReader {
    fn read(&self, range: Range<u64>) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let mut rows = Vec::new();
        select(&self.connection.lock(), signed(range.start)?, signed(range.end)?, &mut |row| rows.push(row))?;
        rows.into_iter()
            .map(|row| row.bytes.map(|bytes| (row.index, bytes)).map_err(|reason| damaged(format!("entry {}: {reason}", row.index))))
            .collect()
    }
}

fn select(connection: &Connection, from: i64, before: i64, visit: &mut dyn FnMut(Scanned)) -> io::Result<()> {
    let mut statement =
        connection.prepare_cached("SELECT idx, d FROM log WHERE idx >= ?1 AND idx < ?2 ORDER BY idx").map_err(io::Error::other)?;
    let mut rows = statement.query([from, before]).map_err(io::Error::other)?;
    while let Some(row) = rows.next().map_err(io::Error::other)? {
        let index: i64 = row.get(0).map_err(io::Error::other)?;
        let sealed: Vec<u8> = row.get(1).map_err(io::Error::other)?;
        let index = u64::try_from(index).map_err(|_| damaged("negative index"))?;
        visit(Scanned { index, bytes: unseal(&sealed).map(<[u8]>::to_vec).ok_or_else(|| "checksum".to_owned()) });
    }
    Ok(())
}

fn signed(index: u64) -> io::Result<i64> {
    i64::try_from(index).map_err(|_| damaged("index out of range"))
}
