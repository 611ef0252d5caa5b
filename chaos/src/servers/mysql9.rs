//! MySQL 9 of Debian sid, in the chroot that `deploy/test` makes.

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use super::{MYSQL_ACCOUNTS, words};
use crate::process::{Process, connects, free_port, run};

/// A running MySQL 9; its accounts use caching_sha2_password.
#[derive(Debug)]
pub struct Mysql9 {
    /// Port on 127.0.0.1.
    pub port: u16,
    /// The server process.
    pub process: Process,
    root: String,
    dir: TempDir,
}

impl Mysql9 {
    /// Where the chroot is: `QUORUMSQL_SID`, default `sid` in the temporary directory.
    #[must_use]
    pub fn chroot() -> PathBuf {
        std::env::var_os("QUORUMSQL_SID").map_or_else(|| std::env::temp_dir().join("sid"), PathBuf::from)
    }

    /// Starts a server; `extra` are further options.
    ///
    /// # Panics
    /// When it does not start: the chroot is missing.
    #[must_use]
    pub fn start(server_id: u32, extra: &[&str]) -> Self {
        let root = Self::chroot();
        assert!(root.join("usr/sbin/mysqld").exists(), "no MySQL 9 in {}; deploy/test installs it", root.display());
        let dir = TempDir::with_prefix_in("quorumsql-mysql-", root.join("tmp")).expect("a directory in the chroot");
        let root = root.display().to_string();
        let inside = format!("/tmp/{}", dir.path().file_name().expect("a temporary directory has a name").to_string_lossy());
        let (data, log) = (format!("--datadir={inside}/data"), format!("--log-error={inside}/error.log"));
        let base = ["chroot", &root, "mysqld", "--no-defaults", "--user=root", &data, &log];
        let _init = run(&[&base[..], &["--initialize-insecure"]].concat());
        let port = free_port();
        let mut argv = words(&base);
        argv.extend([
            format!("--port={port}"),
            format!("--socket={inside}/s"),
            format!("--pid-file={inside}/pid"),
            format!("--server-id={server_id}"),
        ]);
        argv.extend(words(&[
            "--bind-address=127.0.0.1",
            "--mysqlx=OFF",
            "--secure-file-priv=NULL",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
        ]));
        argv.extend(words(&["--performance-schema=OFF", "--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0"]));
        argv.extend(words(extra));
        let mut process = Process::start("mysqld", None, &argv, &dir.path().join("log"));
        let address = format!("127.0.0.1:{port}");
        process.wait_ready(Duration::from_secs(90), || connects(&address));
        let server = Self { port, process, root, dir };
        let _accounts = server.root(MYSQL_ACCOUNTS);
        server
    }

    /// `127.0.0.1:port`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Runs statements as root through the Unix socket and returns what the client prints.
    #[must_use]
    pub fn root(&self, sql: &str) -> String {
        let socket = format!("/tmp/{}/s", self.dir.path().file_name().expect("a temporary directory has a name").to_string_lossy());
        run(&["chroot", &self.root, "mysql", "--no-defaults", "-uroot", "-S", &socket, "-N", "-e", sql])
    }
}
