//! PostgreSQL 15 of Debian.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use super::{directory, words};
use crate::process::{Process, Signal, connects, free_port, run, signal_pid, wait_for};

const BIN: &str = "/usr/lib/postgresql/15/bin";
const ACCOUNTS: &str =
    "CREATE ROLE demo LOGIN SUPERUSER PASSWORD 'demo'; CREATE ROLE monitor LOGIN PASSWORD 'monitor'; GRANT pg_monitor TO monitor;";

/// A running PostgreSQL, SCRAM-SHA-256 for every TCP login.
#[derive(Debug)]
pub struct Postgres {
    /// Port on 127.0.0.1.
    pub port: u16,
    /// The server process.
    pub process: Process,
    argv: Vec<String>,
    dir: TempDir,
}

impl Postgres {
    /// Starts a server; `extra` are further `-c` settings such as `work_mem=8MB`.
    ///
    /// # Panics
    /// When it does not start: PostgreSQL is not installed.
    #[must_use]
    pub fn start(extra: &[&str]) -> Self {
        let dir = directory("postgres");
        let base = dir.path().display().to_string();
        let password = format!("{base}/password");
        fs::write(&password, "postgres\n").expect("the directory is ours");
        let _chown = run(&["chown", "-R", "postgres:postgres", &base]);
        let (data, initdb) = (format!("{base}/data"), format!("{BIN}/initdb"));
        let pwfile = format!("--pwfile={password}");
        let _init = run(&[
            "runuser",
            "-u",
            "postgres",
            "--",
            &initdb,
            "-D",
            &data,
            "--auth-host=scram-sha-256",
            "--auth-local=trust",
            &pwfile,
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        ]);
        let port = free_port();
        let mut argv = vec![format!("{BIN}/postgres")];
        argv.extend(words(&["-D", &data, "-p", &port.to_string()]));
        let sockets = format!("unix_socket_directories={base}");
        let settings = ["listen_addresses=127.0.0.1", &sockets, "max_connections=300", "fsync=off", "shared_buffers=64MB"];
        for setting in settings.iter().chain(extra) {
            argv.extend(words(&["-c", setting]));
        }
        let process = Process::start("postgres", Some("postgres"), &argv, &dir.path().join("log"));
        let mut server = Self { port, process, argv, dir };
        server.wait_ready();
        let _accounts = server.root("postgres", ACCOUNTS);
        let _demo = server.root("postgres", "CREATE DATABASE demo OWNER demo");
        let _sbtest = server.root("postgres", "CREATE DATABASE sbtest OWNER demo");
        server
    }

    /// Starts a streaming standby of this server (`pg_is_in_recovery()` is true there).
    ///
    /// # Panics
    /// When the base backup fails or it does not start.
    #[must_use]
    pub fn standby(&self) -> Self {
        let dir = directory("standby");
        let base = dir.path().display().to_string();
        let _chown = run(&["chown", "-R", "postgres:postgres", &base]);
        let (data, backup) = (format!("{base}/data"), format!("{BIN}/pg_basebackup"));
        let source = format!("host=127.0.0.1 port={} user=demo password=demo", self.port);
        let _copied = run(&[
            "runuser",
            "-u",
            "postgres",
            "--",
            &backup,
            "-d",
            &source,
            "-D",
            &data,
            "-R",
            "-X",
            "stream",
            "--checkpoint=fast",
            "--no-sync",
        ]);
        let port = free_port();
        let mut argv = self.argv.clone();
        for (old, new) in [
            (format!("{}/data", self.dir.path().display()), data),
            (self.port.to_string(), port.to_string()),
            (format!("unix_socket_directories={}", self.dir.path().display()), format!("unix_socket_directories={base}")),
        ] {
            argv.iter_mut().filter(|word| **word == old).for_each(|word| word.clone_from(&new));
        }
        let process = Process::start("postgres", Some("postgres"), &argv, &dir.path().join("log"));
        let mut server = Self { port, process, argv, dir };
        server.wait_ready();
        server
    }

    /// `127.0.0.1:port`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Runs statements as superuser through the Unix socket and returns what psql prints (tuples only, unaligned).
    #[must_use]
    pub fn root(&self, database: &str, sql: &str) -> String {
        let (dir, port) = (self.dir.path().display().to_string(), self.port.to_string());
        run(&["psql", "-X", "-h", &dir, "-p", &port, "-U", "postgres", "-d", database, "-At", "-v", "ON_ERROR_STOP=1", "-c", sql])
    }

    /// kill -9 of every process of the server at once, as when its machine fails. Returns when all are gone.
    pub fn kill_all(&mut self) {
        self.process.signal(Signal::STOP); // it begins no more of them
        self.backends().into_iter().for_each(|pid| signal_pid(pid, Signal::KILL));
        self.process.kill();
        self.wait_backends_gone();
    }

    /// Starts the same server again after it was killed or stopped.
    pub fn restart(&mut self) {
        self.process.kill();
        self.wait_backends_gone();
        self.process = Process::start("postgres", Some("postgres"), &self.argv, &self.dir.path().join("log"));
        self.wait_ready();
    }

    /// What is left of a server holds its shared memory, and it does not start while any of it is.
    fn wait_backends_gone(&self) {
        wait_for("the processes of a killed postgres to end", Duration::from_secs(60), || self.backends().is_empty().then_some(()));
    }

    /// Its processes but the first: all of them work in the data directory.
    fn backends(&self) -> Vec<u32> {
        let data = self.dir.path().join("data");
        let processes = fs::read_dir("/proc").expect("/proc is mounted").flatten();
        let works_there = |entry: &fs::DirEntry| fs::read_link(entry.path().join("cwd")).is_ok_and(|directory| directory == data);
        let pids = processes.filter(works_there).filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| *pid != self.process.pid()).collect()
    }

    fn wait_ready(&mut self) {
        let (address, socket, port) = (self.address(), self.dir.path().display().to_string(), self.port.to_string());
        let ready = format!("{BIN}/pg_isready");
        let answers = || std::process::Command::new(&ready).args(["-q", "-h", &socket, "-p", &port]).status().is_ok_and(|s| s.success());
        self.process.wait_ready(Duration::from_secs(60), || connects(&address) && answers());
    }
}
