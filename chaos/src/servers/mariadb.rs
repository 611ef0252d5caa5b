//! MariaDB 10.11 of Debian.

use std::time::Duration;

use tempfile::TempDir;

use super::{MYSQL_ACCOUNTS, directory, words};
use crate::process::{Process, connects, free_port, run};

/// A running MariaDB.
#[derive(Debug)]
pub struct MariaDb {
    /// Port on 127.0.0.1.
    pub port: u16,
    /// The server process; kill it to see what happens.
    pub process: Process,
    argv: Vec<String>,
    dir: TempDir,
}

impl MariaDb {
    /// Starts a server with `server_id`; `extra` are further options such as `--read-only=1`.
    ///
    /// # Panics
    /// When it does not start: MariaDB is not installed.
    #[must_use]
    pub fn start(server_id: u32, extra: &[&str]) -> Self {
        let dir = directory("mariadb");
        let base = dir.path().display().to_string();
        let _chown = run(&["chown", "mysql:mysql", &base]);
        let data = format!("--datadir={base}/data");
        // Servers that start clean their temporary directory, and would delete each other's files in a common one.
        let tmpdir = format!("--tmpdir={base}");
        let _init = run(&[
            "mariadb-install-db",
            "--no-defaults",
            "--user=mysql",
            &data,
            &tmpdir,
            "--skip-test-db",
            "--auth-root-authentication-method=normal",
        ]);
        let port = free_port();
        let mut argv = words(&["mariadbd", "--no-defaults", "--user=mysql", &data, &tmpdir, "--bind-address=127.0.0.1"]);
        argv.extend([
            format!("--port={port}"),
            format!("--socket={base}/s"),
            format!("--pid-file={base}/pid"),
            format!("--server-id={server_id}"),
        ]);
        argv.extend(words(&[
            "--max-connections=2000",
            "--innodb-buffer-pool-size=64M",
            "--innodb-flush-log-at-trx-commit=0",
            "--performance-schema=OFF",
        ]));
        argv.extend(words(extra));
        let process = Process::start("mariadbd", None, &argv, &dir.path().join("log"));
        let mut server = Self { port, process, argv, dir };
        server.wait_ready();
        let _accounts = server.root(MYSQL_ACCOUNTS);
        server
    }

    /// `127.0.0.1:port`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Runs statements as root through the Unix socket and returns what the client prints (no column names, tab-separated).
    #[must_use]
    pub fn root(&self, sql: &str) -> String {
        run(&["mariadb", "--no-defaults", "-uroot", "-S", &self.dir.path().join("s").display().to_string(), "-N", "-e", sql])
    }

    /// Starts the same server again after it was killed or stopped.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = Process::start("mariadbd", None, &self.argv, &self.dir.path().join("log"));
        self.wait_ready();
    }

    fn wait_ready(&mut self) {
        let address = self.address();
        self.process.wait_ready(Duration::from_secs(60), || connects(&address));
    }
}
