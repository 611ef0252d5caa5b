//! The log in sled 0.34.7, under the rules S1–S7 of raft-and-storage.md 3.3.
//!
//! sled's own flush does not survive power loss on Linux (it calls `sync_file_range`, never fsync), and values above its page
//! limit go to `blobs/` without any sync. So: own `fdatasync` after each flush, and no stored value above 4 KiB.

use std::{
    fs::{self, File},
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::backend::{Backend, BackendReader, MetaKey, Scanned, damaged, seal, unseal};

/// No stored value is larger (S5).
const PART_BYTES: usize = 4096;
/// Total length u32, number of parts u16, CRC32 of the whole u32: before the data of the first part. The term stands in the
/// entry itself, under the same checksum.
const HEADER_BYTES: usize = 10;
/// How long the previous owner of the store may take to let go of it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);
const LOCK_RETRY: Duration = Duration::from_millis(20);
/// An entry that announces more is damaged; the largest that is written is far below.
const MAX_ENTRY_BYTES: usize = 16 << 20;

pub(crate) struct SledBackend {
    db: sled::Db,
    log: sled::Tree,
    meta: sled::Tree,
    /// Own descriptor of sled's file, for the durable point (S3).
    file: File,
    blobs: PathBuf,
}

impl SledBackend {
    /// Opens or creates the store in `directory`.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let blobs = directory.join("blobs");
        refuse_blobs(&blobs)?;
        let db = open_db(directory)?;
        let log = db.open_tree("log").map_err(from_sled)?;
        let meta = db.open_tree("meta").map_err(from_sled)?;
        let file = File::options().read(true).write(true).open(directory.join("db"))?;
        let mut backend = Self { db, log, meta, file, blobs };
        backend.sync()?;
        sync_names(directory)?;
        Ok(backend)
    }
}

impl Backend for SledBackend {
    fn append(&mut self, entries: &[(u64, Bytes)]) -> io::Result<()> {
        for (index, bytes) in entries {
            for (part, value) in split(bytes)?.into_iter().enumerate() {
                let part = u16::try_from(part).map_err(|_| damaged("entry too large"))?;
                self.log.insert(key(*index, part), value).map_err(from_sled)?;
            }
        }
        Ok(())
    }

    fn truncate_after(&mut self, index: Option<u64>) -> io::Result<()> {
        let from = match index {
            Some(u64::MAX) => return Ok(()),
            Some(index) => index + 1,
            None => 0,
        };
        for row in self.log.range(key(from, 0)..).keys().rev() {
            self.log.remove(row.map_err(from_sled)?).map_err(from_sled)?;
        }
        Ok(())
    }

    fn purge(&mut self, index: u64) -> io::Result<()> {
        for row in self.log.range(..=key(index, u16::MAX)).keys() {
            self.log.remove(row.map_err(from_sled)?).map_err(from_sled)?;
        }
        Ok(())
    }

    fn put_meta(&mut self, key: MetaKey, value: &[u8]) -> io::Result<()> {
        self.meta.insert(key.name(), seal(value)).map_err(from_sled)?;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.db.flush().map_err(from_sled)?;
        self.file.sync_data()
    }

    fn meta(&mut self, key: MetaKey) -> io::Result<Option<Vec<u8>>> {
        let Some(sealed) = self.meta.get(key.name()).map_err(from_sled)? else { return Ok(None) };
        unseal(&sealed).map(|value| Some(value.to_vec())).ok_or_else(|| damaged(format!("{} fails its checksum", key.name())))
    }

    fn scan(&mut self, from: u64, visit: &mut dyn FnMut(Scanned)) -> io::Result<()> {
        gather(self.log.range(key(from, 0)..), visit)
    }

    /// A blob is not made durable by the durable point; none is expected, since no value exceeds 4 KiB (S6).
    fn sync_strays(&mut self) -> io::Result<usize> {
        let mut found = 0;
        for blob in fs::read_dir(&self.blobs)? {
            File::open(blob?.path())?.sync_all()?;
            found += 1;
        }
        if found > 0 {
            File::open(&self.blobs)?.sync_all()?;
            tracing::error!(blobs = found, "raft log: sled wrote blobs although no value exceeds 4 KiB");
        }
        Ok(found)
    }

    fn reader(&self) -> Arc<dyn BackendReader> {
        Arc::new(SledReader { log: self.log.clone() })
    }
}

struct SledReader {
    log: sled::Tree,
}

impl BackendReader for SledReader {
    fn read(&self, range: Range<u64>) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let mut rows = Vec::new();
        gather(self.log.range(key(range.start, 0)..key(range.end, 0)), &mut |row| rows.push(row))?;
        rows.into_iter()
            .map(|row| row.bytes.map(|bytes| (row.index, bytes)).map_err(|reason| damaged(format!("entry {}: {reason}", row.index))))
            .collect()
    }
}

fn key(index: u64, part: u16) -> [u8; 10] {
    let mut key = [0; 10];
    key[..8].copy_from_slice(&index.to_be_bytes());
    key[8..].copy_from_slice(&part.to_be_bytes());
    key
}

/// The rows of one entry: the first begins with its header.
fn split(bytes: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    if bytes.len() > MAX_ENTRY_BYTES {
        return Err(damaged(format!("entry of {} bytes exceeds {MAX_ENTRY_BYTES}", bytes.len())));
    }
    let first = bytes.len().min(PART_BYTES - HEADER_BYTES);
    let rest = bytes[first..].chunks(PART_BYTES);
    let parts = u16::try_from(1 + rest.len()).map_err(|_| damaged("entry too large"))?;
    let total = u32::try_from(bytes.len()).map_err(|_| damaged("entry too large"))?;
    let mut head = Vec::with_capacity(HEADER_BYTES + first);
    head.extend_from_slice(&total.to_be_bytes());
    head.extend_from_slice(&parts.to_be_bytes());
    head.extend_from_slice(&crc32fast::hash(bytes).to_be_bytes());
    head.extend_from_slice(&bytes[..first]);
    Ok(std::iter::once(head).chain(rest.map(<[u8]>::to_vec)).collect())
}

/// Puts the rows of each entry together again.
fn gather(rows: sled::Iter, visit: &mut dyn FnMut(Scanned)) -> io::Result<()> {
    let mut parts: Vec<sled::IVec> = Vec::new();
    let mut current = None;
    for row in rows {
        let (row_key, value) = row.map_err(from_sled)?;
        let (index, part) = parse_key(&row_key).ok_or_else(|| damaged("a row's key has the wrong length"))?;
        if current != Some(index) {
            if let Some(index) = current.replace(index) {
                visit(Scanned { index, bytes: join(&parts) });
            }
            parts.clear();
        }
        // A part that is out of order makes the checksum fail.
        if usize::from(part) == parts.len() || parts.is_empty() {
            parts.push(value);
        }
    }
    if let Some(index) = current {
        visit(Scanned { index, bytes: join(&parts) });
    }
    Ok(())
}

fn parse_key(row_key: &[u8]) -> Option<(u64, u16)> {
    let (index, part) = row_key.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*index), u16::from_be_bytes(part.try_into().ok()?)))
}

fn join(parts: &[sled::IVec]) -> Result<Vec<u8>, String> {
    let (total, count, crc, first) = parts.first().and_then(|head| parse_header(head)).ok_or("no header")?;
    if parts.len() != usize::from(count) {
        return Err(format!("{} of {count} parts", parts.len()));
    }
    let mut bytes = first.to_vec();
    for part in &parts[1..] {
        bytes.extend_from_slice(part);
    }
    if bytes.len() != total as usize {
        return Err(format!("{} of {total} bytes", bytes.len()));
    }
    if crc32fast::hash(&bytes) != crc {
        return Err("checksum".to_owned());
    }
    Ok(bytes)
}

fn parse_header(head: &[u8]) -> Option<(u32, u16, u32, &[u8])> {
    let (total, head) = head.split_first_chunk::<4>()?;
    let (count, head) = head.split_first_chunk::<2>()?;
    let (crc, first) = head.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*total), u16::from_be_bytes(*count), u32::from_be_bytes(*crc), first))
}

/// Opens the store. sled gives up its lock when its last thread ends, a little after the owner has let go: wait for it.
fn open_db(directory: &Path) -> io::Result<sled::Db> {
    let config = sled::Config::new().path(directory).flush_every_ms(None).cache_capacity(32 << 20).use_compression(false);
    let begin = Instant::now();
    loop {
        match config.open() {
            Err(sled::Error::Io(e)) if e.to_string().contains("lock") && begin.elapsed() < LOCK_TIMEOUT => thread::sleep(LOCK_RETRY),
            opened => return opened.map_err(from_sled),
        }
    }
}

fn refuse_blobs(blobs: &Path) -> io::Result<()> {
    let found = match fs::read_dir(blobs) {
        Ok(entries) => entries.count(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
        Err(e) => return Err(e),
    };
    if found == 0 { Ok(()) } else { Err(damaged(format!("{} is not empty", blobs.display()))) }
}

/// Makes the store's files and their names durable: sled never does (S2).
fn sync_names(directory: &Path) -> io::Result<()> {
    for name in ["conf", "db", "blobs"] {
        File::open(directory.join(name))?.sync_all()?;
    }
    File::open(directory)?.sync_all()?;
    directory.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

fn from_sled(e: sled::Error) -> io::Error {
    match e {
        sled::Error::Io(e) => e,
        sled::Error::Corruption { .. } => damaged(e.to_string()),
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(store: &mut SledBackend) -> Vec<Scanned> {
        let mut found = Vec::new();
        store.scan(0, &mut |row| found.push(row)).unwrap();
        found
    }

    #[test]
    fn a_blob_is_counted_and_refused_at_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut store = SledBackend::open(&path).unwrap();
        assert_eq!(store.sync_strays().unwrap(), 0);
        fs::write(store.blobs.join("1"), "x").unwrap();
        assert_eq!(store.sync_strays().unwrap(), 1);
        drop(store);
        assert!(SledBackend::open(&path).err().unwrap().to_string().contains("blobs is not empty"));
    }

    #[test]
    fn entries_of_every_size_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = SledBackend::open(&directory.path().join("log")).unwrap();
        let sizes = [0, 1, PART_BYTES - HEADER_BYTES, PART_BYTES - HEADER_BYTES + 1, PART_BYTES * 3, 70_000];
        let entries: Vec<(u64, Bytes)> = sizes.iter().zip(5_u64..).map(|(size, index)| (index, vec![index as u8; *size].into())).collect();
        store.append(&entries).unwrap();
        store.sync().unwrap();
        let found = scan(&mut store);
        assert_eq!(found.len(), entries.len());
        for (scanned, (index, bytes)) in found.iter().zip(&entries) {
            assert_eq!((scanned.index, scanned.bytes.as_deref().unwrap()), (*index, &bytes[..]));
        }
        assert_eq!(fs::read_dir(&store.blobs).unwrap().count(), 0);
    }

    #[test]
    fn a_missing_part_and_a_flipped_bit_are_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = SledBackend::open(&directory.path().join("log")).unwrap();
        store.append(&[(1, vec![7; 9000].into()), (2, vec![8; 10].into()), (3, Bytes::from_static(b"ok"))]).unwrap();
        store.log.remove(key(1, 1)).unwrap();
        store.log.update_and_fetch(key(2, 0), |old| old.map(|old| [&old[..old.len() - 1], &[0]].concat())).unwrap();
        let found = scan(&mut store);
        assert!(found[0].bytes.is_err() && found[1].bytes.is_err());
        assert_eq!(found[2].bytes.as_deref().unwrap(), b"ok");
    }
}
