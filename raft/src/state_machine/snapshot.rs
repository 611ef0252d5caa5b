//! Snapshots: the whole state as one SQLite file (raft-and-storage.md 4.5).

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use sha2::{Digest, Sha256};

use super::schema::{Meta, check_versions};
use super::{SnapshotFile, StorageError, Tables, hash};

/// Writes `<term>-<index>.db` into `dir`: copy, fsync, rename, fsync of the directory. Metadata are read from the copy, so
/// that they agree with the rows although apply goes on.
pub(super) fn build(state: &Path, dir: &Path) -> Result<SnapshotFile, StorageError> {
    fs::create_dir_all(dir).map_err(StorageError::io("snapshot directory"))?;
    let temporary = temporary_name(dir)?;
    let built = write(state, dir, &temporary);
    if built.is_err() {
        // The error that matters is already there.
        let _ = fs::remove_file(&temporary);
    }
    built
}

fn temporary_name(dir: &Path) -> Result<PathBuf, StorageError> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|error| StorageError::Refused(format!("no randomness for a file name: {error}")))?;
    Ok(dir.join(format!("tmp-{:016x}", u64::from_be_bytes(random))))
}

fn write(state: &Path, dir: &Path, temporary: &Path) -> Result<SnapshotFile, StorageError> {
    copy(state, temporary)?;
    let copied = open(temporary)?;
    let meta = Meta::read(&copied)?;
    // Nobody gets rows that are not those that were applied.
    hash::verified(&copied, meta.last_index)?;
    let (size, sha256) = digest(temporary)?;
    let path = dir.join(format!("{}-{}.db", meta.last_term, meta.last_index));
    File::open(temporary).and_then(|file| file.sync_all()).map_err(StorageError::io("fsync of a snapshot"))?;
    fs::rename(temporary, &path).map_err(StorageError::io("rename of a snapshot"))?;
    File::open(dir).and_then(|directory| directory.sync_all()).map_err(StorageError::io("fsync of the snapshot directory"))?;
    Ok(SnapshotFile { path, term: meta.last_term, index: meta.last_index, membership: meta.membership, size, sha256 })
}

/// One whole transaction of `state` as a file of its own, which must not exist.
pub(super) fn copy(state: &Path, target: &Path) -> Result<(), StorageError> {
    let Some(name) = target.to_str() else {
        return Err(StorageError::Refused(format!("{} is not UTF-8", target.display())));
    };
    Connection::open_with_flags(state, OpenFlags::SQLITE_OPEN_READ_WRITE)?.execute("VACUUM INTO ?1", [name])?;
    Ok(())
}

fn open(file: &Path) -> Result<Connection, StorageError> {
    Ok(Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?)
}

fn digest(path: &Path) -> Result<(u64, [u8; 32]), StorageError> {
    let mut file = File::open(path).map_err(StorageError::io("reading a snapshot"))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; 64 << 10];
    let mut size = 0;
    loop {
        let read = file.read(&mut buffer).map_err(StorageError::io("reading a snapshot"))?;
        if read == 0 {
            return Ok((size, hasher.finalize().into()));
        }
        hasher.update(&buffer[..read]);
        size += read as u64;
    }
}

/// Checks that a received file is the snapshot that it is said to be, and that its hashes are those of its rows.
pub(super) fn verify(file: &Path, term: u64, index: u64) -> Result<Tables, StorageError> {
    let connection = open(file)?;
    check_versions(&connection)?;
    let meta = Meta::read(&connection)?;
    if (meta.last_term, meta.last_index) != (term, index) {
        let (found_term, found) = (meta.last_term, meta.last_index);
        return Err(StorageError::Refused(format!("snapshot holds entry {found} of term {found_term}, not {index} of term {term}")));
    }
    hash::verified(&connection, index).map_err(|error| match error {
        StorageError::Altered { differences, .. } => {
            StorageError::Refused(format!("the rows of snapshot {term}-{index} do not have the hashes stored in it: {differences}"))
        }
        error => error,
    })
}

/// Copies the file over the live state in one step: readers keep their view until it is complete.
pub(super) fn install(live: &mut Connection, file: &Path, membership: Vec<u8>) -> Result<Meta, StorageError> {
    let source = open(file)?;
    // The log is cut up to the snapshot afterwards, so this one transaction must survive a power loss by itself.
    live.pragma_update(None, "synchronous", "FULL")?;
    {
        let backup = Backup::new(&source, live)?;
        // All pages at once; rusqlite refuses the -1 of SQLite's manual.
        let step = backup.step(i32::MAX)?;
        if step != StepResult::Done {
            return Err(StorageError::Refused(format!("copying a snapshot ended with {step:?}")));
        }
    }
    live.flush_prepared_statement_cache();
    let mut meta = Meta::read(live)?;
    if meta.membership != membership {
        meta.membership = membership;
        meta.write(live)?;
    }
    live.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(meta)
}
