//! HAProxy in TCP mode, as a load balancer in front of nodes or as a peer to compare with.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use super::{directory, words};
use crate::process::{Process, connects, free_port};

/// A running HAProxy.
#[derive(Debug)]
pub struct HaProxy {
    /// Port on 127.0.0.1 where it listens.
    pub port: u16,
    /// The process.
    pub process: Process,
    _dir: TempDir,
}

impl HaProxy {
    /// Balances connections over `servers`, each with the address of its HTTP health check (`/readyz`); an empty check
    /// address means none.
    ///
    /// # Panics
    /// When it does not start: HAProxy is not installed.
    #[must_use]
    pub fn start(servers: &[(String, String)]) -> Self {
        let dir = directory("haproxy");
        let port = free_port();
        let mut config = format!(
            "global\n nbthread 2\n maxconn 9000\ndefaults\n mode tcp\n retries 3\n option redispatch\n timeout connect 5s\n timeout client 600s\n \
             timeout server 600s\nlisten sql\n bind 127.0.0.1:{port}\n balance roundrobin\n option httpchk GET /readyz\n"
        );
        for (number, (server, check)) in servers.iter().enumerate() {
            let check = check.rsplit_once(':').map_or_else(String::new, |(host, port)| {
                format!(" check addr {host} port {port} inter 200ms fall 1 rise 1 on-marked-down shutdown-sessions")
            });
            config.push_str(&format!(" server s{number} {server}{check}\n"));
        }
        let file = dir.path().join("haproxy.cfg");
        fs::write(&file, config).expect("the directory is ours");
        let argv = words(&["haproxy", "-db", "-f", &file.display().to_string()]);
        let mut process = Process::start("haproxy", None, &argv, &dir.path().join("log"));
        process.wait_ready(Duration::from_secs(20), || connects(&format!("127.0.0.1:{port}")));
        Self { port, process, _dir: dir }
    }
}
