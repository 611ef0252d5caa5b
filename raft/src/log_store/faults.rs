//! A disk that fails when a test says so, in debug builds only.
//!
//! The file `fault` beside the log is looked at before each durable point: `errno 5` makes it fail with EIO, `delay 10000` makes
//! it last ten seconds, or until the file says something else.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::backend::{Backend, BackendReader, MetaKey, Scanned};

/// Processes under test have it; a node of an operator never looks for the file.
const ENABLED: &str = "QUORUMSQL_STORAGE_FAULTS";

/// The backend, with faults if this process is under test.
pub(super) fn wrap(backend: Box<dyn Backend>, directory: &Path) -> Box<dyn Backend> {
    if cfg!(test) || std::env::var_os(ENABLED).is_some() {
        return Box::new(Faulty { backend, control: directory.join("fault") });
    }
    backend
}

struct Faulty {
    backend: Box<dyn Backend>,
    control: PathBuf,
}

impl Faulty {
    fn fail(&self) -> io::Result<()> {
        let begin = Instant::now();
        loop {
            let Ok(text) = fs::read_to_string(&self.control) else { return Ok(()) };
            match text.trim().split_once(' ').map(|(fault, value)| (fault, value.parse())) {
                Some(("errno", Ok(code))) => return Err(io::Error::from_raw_os_error(code)),
                Some(("delay", Ok(ms))) if begin.elapsed() < Duration::from_millis(ms.unsigned_abs().into()) => {
                    thread::sleep(Duration::from_millis(10)); // a part of the delay
                }
                _ => return Ok(()),
            }
        }
    }
}

impl Backend for Faulty {
    fn append(&mut self, entries: &[(u64, bytes::Bytes)]) -> io::Result<()> {
        self.backend.append(entries)
    }

    fn truncate_after(&mut self, index: Option<u64>) -> io::Result<()> {
        self.backend.truncate_after(index)
    }

    fn purge(&mut self, index: u64) -> io::Result<()> {
        self.backend.purge(index)
    }

    fn put_meta(&mut self, key: MetaKey, value: &[u8]) -> io::Result<()> {
        self.backend.put_meta(key, value)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.fail()?;
        self.backend.sync()
    }

    fn meta(&mut self, key: MetaKey) -> io::Result<Option<Vec<u8>>> {
        self.backend.meta(key)
    }

    fn scan(&mut self, from: u64, visit: &mut dyn FnMut(Scanned)) -> io::Result<()> {
        self.backend.scan(from, visit)
    }

    fn sync_strays(&mut self) -> io::Result<usize> {
        self.backend.sync_strays()
    }

    fn reader(&self) -> Arc<dyn BackendReader> {
        self.backend.reader()
    }
}
