//! `admin-ssl_keylog_file`: secrets of TLS sessions with clients and servers, for tools that decrypt captures.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// The file of this process, in the NSS key log format; written by handshakes only.
#[derive(Debug)]
pub(crate) struct KeyLogFile {
    /// Under which relative paths are.
    directory: PathBuf,
    on: AtomicBool,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// The variable's value that was last acted upon.
    value: String,
    /// What is written to.
    file: Option<(PathBuf, File)>,
}

impl KeyLogFile {
    /// Nothing is written yet.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, on: AtomicBool::new(false), open: Mutex::default() }
    }

    /// Follows the variable; empty = off. A file that cannot be opened leaves things as they were, and the log says so.
    pub(crate) fn follow(&self, value: &str) {
        let mut open = self.open.lock();
        if open.value == value {
            return;
        }
        value.clone_into(&mut open.value);
        if value.is_empty() {
            open.file = None;
            tracing::info!("TLS session secrets are no longer written");
        } else {
            let path = self.directory.join(value);
            match append(&path) {
                Ok(file) => {
                    tracing::warn!(path = %path.display(), "TLS session secrets are written: whoever reads the file can decrypt captures");
                    open.file = Some((path, file));
                }
                Err(error) => tracing::error!(path = %path.display(), %error, "admin-ssl_keylog_file cannot be opened and changes nothing"),
            }
        }
        self.on.store(open.file.is_some(), Ordering::Relaxed);
    }

    /// Opens the path anew, for rotation.
    pub(crate) fn reopen(&self) {
        let Some((path, file)) = &mut self.open.lock().file else { return };
        match append(path) {
            Ok(fresh) => *file = fresh,
            Err(error) => tracing::error!(path = %path.display(), %error, "cannot reopen the TLS key log; the old file stays in use"),
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

impl rustls::KeyLog for KeyLogFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut line = String::from(label);
        for part in [client_random, secret] {
            line.push(' ');
            for byte in part {
                let _infallible = write!(line, "{byte:02x}");
            }
        }
        line.push('\n');
        if let Some((path, file)) = &mut self.open.lock().file
            && let Err(error) = file.write_all(line.as_bytes())
        {
            tracing::warn!(path = %path.display(), %error, "cannot write the TLS key log");
        }
    }

    fn will_log(&self, _label: &str) -> bool {
        self.on.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustls::KeyLog as _;

    use super::*;

    #[test]
    fn lines_go_where_the_variable_says() {
        let directory = tempfile::tempdir().unwrap();
        let log = KeyLogFile::new(directory.path().to_owned());
        log.log("CLIENT_RANDOM", &[1], &[2]);
        assert!(!log.will_log(""));
        log.follow("keys");
        assert!(log.will_log(""));
        log.log("CLIENT_RANDOM", &[1, 255], &[2]);
        log.follow("/nonexistent/keys");
        log.log("SERVER_TRAFFIC_SECRET_0", &[3], &[4]);
        fs::rename(directory.path().join("keys"), directory.path().join("keys.1")).unwrap();
        log.reopen();
        log.log("EXPORTER_SECRET", &[5], &[6]);
        log.follow("");
        log.log("CLIENT_RANDOM", &[7], &[8]);
        assert!(!log.will_log(""));
        let read = |name| fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!(read("keys.1"), "CLIENT_RANDOM 01ff 02\nSERVER_TRAFFIC_SECRET_0 03 04\n");
        assert_eq!(read("keys"), "EXPORTER_SECRET 05 06\n");
    }
}
