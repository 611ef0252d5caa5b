//! PgBouncer with transaction pooling, as a peer to compare with.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use super::{directory, words};
use crate::process::{Process, connects, free_port, run};

/// A running PgBouncer.
#[derive(Debug)]
pub struct PgBouncer {
    /// Port on 127.0.0.1 where it listens.
    pub port: u16,
    /// The process.
    pub process: Process,
    _dir: TempDir,
}

impl PgBouncer {
    /// Pools connections of user demo to the PostgreSQL on this port of 127.0.0.1, never fewer than clients ask for.
    ///
    /// # Panics
    /// When it does not start: PgBouncer is not installed.
    #[must_use]
    pub fn start(server: u16) -> Self {
        let dir = directory("pgbouncer");
        let (base, port) = (dir.path().display().to_string(), free_port());
        let prepared = if Self::keeps_prepared_statements() { "max_prepared_statements = 1000\n" } else { "" };
        let config = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = scram-sha-256\nauth_file = {base}/users\npool_mode = transaction\nmax_client_conn = 12000\n\
             default_pool_size = 400\nlog_connections = 0\nlog_disconnections = 0\n{prepared}"
        );
        fs::write(dir.path().join("users"), "\"demo\" \"demo\"\n").expect("the directory is ours");
        let file = dir.path().join("pgbouncer.ini");
        fs::write(&file, config).expect("the directory is ours");
        let _chown = run(&["chown", "-R", "postgres:postgres", &base]);
        let argv = words(&["pgbouncer", "-q", &file.display().to_string()]);
        let mut process = Process::start("pgbouncer", Some("postgres"), &argv, &dir.path().join("log"));
        process.wait_ready(Duration::from_secs(20), || connects(&format!("127.0.0.1:{port}")));
        Self { port, process, _dir: dir }
    }

    /// Whether the one that is installed carries prepared statements in transaction pooling: from 1.21 on.
    ///
    /// # Panics
    /// When it is not installed.
    #[must_use]
    pub fn keeps_prepared_statements() -> bool {
        version(&run(&["pgbouncer", "--version"])).is_some_and(|version| version >= (1, 21))
    }
}

/// Major and minor number in `PgBouncer 1.18.0`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_ascii_whitespace().nth(1)?.split('.').map(|number| number.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (text, expected) in [("PgBouncer 1.18.0\nlibevent 2.1", Some((1, 18))), ("PgBouncer 1.9.0", Some((1, 9))), ("?", None)] {
            assert_eq!(version(text), expected, "{text}");
        }
        assert!(version("PgBouncer 1.9.0") < Some((1, 21)));
    }
}
