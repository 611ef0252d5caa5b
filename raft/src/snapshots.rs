//! Snapshot files under `snapshots/`: the current one, those on their way in, and what is beside them.
//!
//! A snapshot is `<name>.db` with `<name>.head` (a `SnapshotHeader`) beside it; it exists once its head does. A received file is
//! named anew for each transfer, so that a leader that was paused never writes into the file of its successor.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use prost::Message;
use quorumsql_proto::peer as pb;
use sha2::{Digest, Sha256};

use crate::{
    identity::new_uuid,
    network::convert,
    state_machine::SnapshotFile,
    type_config::{Snapshot, SnapshotData, SnapshotMeta, log_id, or_zero, term_of},
};

/// Snapshots that are kept.
const KEPT: usize = 2;
/// A received snapshot may be this large.
const MAX_BYTES: u64 = 16 << 30;

pub(crate) struct Snapshots {
    directory: PathBuf,
    current: Mutex<Option<Snapshot>>,
}

impl Snapshots {
    /// Finds the newest whole snapshot and removes what earlier transfers left behind.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let mut newest: Option<Snapshot> = None;
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(INCOMING)) {
                fs::remove_file(&path)?;
            } else if path.extension().is_some_and(|extension| extension == "head") {
                match load(&path) {
                    Ok(found) if newest.as_ref().is_none_or(|newest| newest.meta.last_log_id < found.meta.last_log_id) => {
                        newest = Some(found)
                    }
                    Ok(_) => {}
                    Err(e) => tracing::warn!(file = %path.display(), error = %e, "snapshot ignored"),
                }
            }
        }
        Ok(Self { directory: directory.to_owned(), current: Mutex::new(newest) })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn current(&self) -> Option<Snapshot> {
        self.current.lock().clone()
    }

    /// Makes a file that the state machine has built the current snapshot.
    pub(crate) fn adopt_built(&self, built: &SnapshotFile) -> io::Result<Snapshot> {
        let last_log_id = (built.term != 0 || built.index != 0 || !built.membership.is_empty()).then(|| log_id(built.term, built.index));
        let meta = SnapshotMeta { last_log_id, last_membership: convert::decode_membership(&built.membership)? };
        let file = Arc::new(File::open(&built.path)?);
        let data = SnapshotData { file, path: built.path.clone(), size: built.size, sha256: built.sha256 };
        self.publish(Snapshot { meta, snapshot: data })
    }

    /// Makes a file that was installed the current snapshot.
    pub(crate) fn adopt_installed(&self, meta: &SnapshotMeta, data: SnapshotData) -> io::Result<()> {
        let id = or_zero(meta.last_log_id);
        let target = self.directory.join(format!("{}-{}.db", term_of(&id), id.index));
        if data.path != target {
            if data.path.parent() == Some(self.directory.as_path()) {
                fs::rename(&data.path, &target)?;
            } else {
                fs::copy(&data.path, &target)?;
            }
        }
        let file = Arc::new(File::open(&target)?);
        file.sync_all()?;
        self.publish(Snapshot { meta: meta.clone(), snapshot: SnapshotData { file, path: target, ..data } }).map(drop)
    }

    fn publish(&self, snapshot: Snapshot) -> io::Result<Snapshot> {
        let head = snapshot.snapshot.path.with_extension("head");
        let beside = snapshot.snapshot.path.with_extension("head-new");
        let mut file = File::create(&beside)?;
        file.write_all(&header(&snapshot).encode_to_vec())?;
        file.sync_all()?;
        fs::rename(&beside, &head)?;
        File::open(&self.directory)?.sync_all()?;
        *self.current.lock() = Some(snapshot.clone());
        self.remove_old()?;
        Ok(snapshot)
    }

    /// Keeps the newest; a file that is open somewhere stays readable there.
    fn remove_old(&self) -> io::Result<()> {
        let mut heads = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "head") {
                heads.push((fs::metadata(&path)?.modified()?, path));
            }
        }
        heads.sort();
        for (_, head) in heads.iter().rev().skip(KEPT) {
            fs::remove_file(head)?;
            let file = head.with_extension("db");
            if file.exists() {
                fs::remove_file(file)?;
            }
        }
        Ok(())
    }

    /// Begins to receive a snapshot.
    pub(crate) fn receive(&self, header: &pb::SnapshotHeader) -> io::Result<Incoming> {
        if header.size > MAX_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("snapshot of {} bytes exceeds {MAX_BYTES}", header.size)));
        }
        let path = self.directory.join(format!("{INCOMING}{}", new_uuid()?));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok(Incoming { path, file: Some(file), hash: Sha256::new(), size: 0, announced: header.size, sha256: hash_of(header)? })
    }
}

const INCOMING: &str = "incoming-";

/// A snapshot on its way in; dropped before it is whole, its file goes.
pub(crate) struct Incoming {
    path: PathBuf,
    file: Option<File>,
    hash: Sha256,
    size: u64,
    announced: u64,
    sha256: [u8; 32],
}

impl Incoming {
    pub(crate) fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.size += chunk.len() as u64;
        if self.size > self.announced {
            return Err(mismatch("longer than announced"));
        }
        self.hash.update(chunk);
        self.file.as_ref().ok_or_else(|| mismatch("already complete"))?.write_all(chunk)
    }

    /// Verifies size and hash.
    pub(crate) fn finish(mut self) -> io::Result<SnapshotData> {
        if self.size != self.announced {
            return Err(mismatch("shorter than announced"));
        }
        if <[u8; 32]>::from(std::mem::take(&mut self.hash).finalize()) != self.sha256 {
            return Err(mismatch("wrong hash"));
        }
        let file = self.file.take().ok_or_else(|| mismatch("already complete"))?;
        file.sync_all()?;
        Ok(SnapshotData { file: Arc::new(file), path: self.path.clone(), size: self.size, sha256: self.sha256 })
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if self.file.is_some() {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// What is sent before the bytes, and stored beside them.
pub(crate) fn header(snapshot: &Snapshot) -> pb::SnapshotHeader {
    pb::SnapshotHeader {
        vote: None,
        last_log_id: snapshot.meta.last_log_id.as_ref().map(convert::log_id_to),
        membership: Some(convert::stored_membership_to(&snapshot.meta.last_membership)),
        size: snapshot.snapshot.size,
        sha256: snapshot.snapshot.sha256.to_vec().into(),
    }
}

pub(crate) fn meta_of(header: &pb::SnapshotHeader) -> io::Result<SnapshotMeta> {
    let membership = header.membership.clone().unwrap_or_default();
    Ok(SnapshotMeta {
        last_log_id: header.last_log_id.as_ref().map(convert::log_id_from),
        last_membership: convert::stored_membership_from(membership)?,
    })
}

fn hash_of(header: &pb::SnapshotHeader) -> io::Result<[u8; 32]> {
    header.sha256[..].try_into().map_err(|_| mismatch("no hash"))
}

fn load(head: &Path) -> io::Result<Snapshot> {
    let header = pb::SnapshotHeader::decode(&fs::read(head)?[..]).map_err(io::Error::other)?;
    let path = head.with_extension("db");
    let file = File::open(&path)?;
    if file.metadata()?.len() != header.size || digest(&file)? != hash_of(&header)? {
        return Err(mismatch("file differs from its head"));
    }
    let data = SnapshotData { file: Arc::new(file), path, size: header.size, sha256: hash_of(&header)? };
    Ok(Snapshot { meta: meta_of(&header)?, snapshot: data })
}

fn digest(file: &File) -> io::Result<[u8; 32]> {
    let (mut hash, mut buffer, mut at) = (Sha256::new(), vec![0; 1 << 18], 0);
    loop {
        match file.read_at(&mut buffer, at)? {
            0 => return Ok(hash.finalize().into()),
            read => {
                hash.update(&buffer[..read]);
                at += read as u64;
            }
        }
    }
}

fn mismatch(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("snapshot: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(content: &[u8]) -> pb::SnapshotHeader {
        let sha256 = <[u8; 32]>::from(Sha256::digest(content)).to_vec().into();
        pb::SnapshotHeader { size: content.len() as u64, sha256, last_log_id: Some(pb::LogId { term: 2, index: 9 }), ..Default::default() }
    }

    #[test]
    fn a_received_snapshot_is_current_after_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let store = Snapshots::open(directory.path()).unwrap();
        let header = announced(b"all rows");
        let mut incoming = store.receive(&header).unwrap();
        incoming.write(b"all ").unwrap();
        incoming.write(b"rows").unwrap();
        store.adopt_installed(&meta_of(&header).unwrap(), incoming.finish().unwrap()).unwrap();
        let current = Snapshots::open(directory.path()).unwrap().current().unwrap();
        assert_eq!((current.meta, current.snapshot.size), (meta_of(&header).unwrap(), 8));
    }

    #[test]
    fn lies_about_size_and_hash_are_refused_and_leave_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let store = Snapshots::open(directory.path()).unwrap();
        let mut short = store.receive(&announced(b"1234")).unwrap();
        short.write(b"123").unwrap();
        assert!(short.finish().is_err());
        let mut long = store.receive(&announced(b"1234")).unwrap();
        assert!(long.write(b"12345").is_err());
        drop(long);
        let mut other = store.receive(&announced(b"1234")).unwrap();
        other.write(b"4321").unwrap();
        assert!(other.finish().is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
