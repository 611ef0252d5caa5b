//! Addresses and files of the demo: names that scripts rely on.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use serde::Serialize;

use crate::config::{ClusterSection, DrainSection, ListenSection, LogSection, NodeConfig, NodeSection, Span};

/// Standard ports (design.md section 9).
pub(super) const MYSQL: u16 = 6033;
pub(super) const PGSQL: u16 = 6133;
pub(super) const ADMIN_MYSQL: u16 = 6032;
pub(super) const ADMIN_PGSQL: u16 = 6132;
pub(super) const GRPC: u16 = 6034;
pub(super) const PEER: u16 = 6035;
pub(super) const HTTP: u16 = 6070;

/// Where the nodes are.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// DIR.
    pub(super) root: PathBuf,
    net: [u8; 3],
    count: u8,
}

/// DIR/backends.json: `HOST:PORT` lists by protocol, the first is the writer at the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Backends {
    pub(super) mysql: Vec<(String, u16)>,
    pub(super) pgsql: Vec<(String, u16)>,
}

#[derive(Serialize)]
struct BackendsFile {
    mysql: Vec<String>,
    pgsql: Vec<String>,
}

impl Layout {
    pub(super) fn new(root: PathBuf, net: [u8; 3], count: u8) -> Self {
        Self { root, net, count }
    }

    /// 1…n.
    pub(super) fn nodes(&self) -> std::ops::RangeInclusive<u8> {
        1..=self.count
    }

    /// IP address of a node.
    pub(super) fn host(&self, node: u8) -> String {
        let [a, b, c] = self.net;
        format!("{a}.{b}.{c}.{node}")
    }

    /// `host:port` of a node.
    pub(super) fn address(&self, node: u8, port: u16) -> String {
        format!("{}:{port}", self.host(node))
    }

    /// DIR/nodeN.
    pub(super) fn directory(&self, node: u8) -> PathBuf {
        self.root.join(format!("node{node}"))
    }

    pub(super) fn config_file(&self, node: u8) -> PathBuf {
        self.directory(node).join("quorumsql.toml")
    }

    pub(super) fn pid_file(&self, node: u8) -> PathBuf {
        self.directory(node).join("quorumsql.pid")
    }

    pub(super) fn log_file(&self, node: u8) -> PathBuf {
        self.directory(node).join("log")
    }

    /// Writes every file that has to be there before the first node starts.
    pub(super) fn write(&self, backends: &Backends) -> anyhow::Result<()> {
        for node in self.nodes() {
            let directory = self.directory(node);
            fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
            fs::write(self.config_file(node), toml::to_string(&self.config(node))?)?;
        }
        let list = |servers: &[(String, u16)]| servers.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let file = BackendsFile { mysql: list(&backends.mysql), pgsql: list(&backends.pgsql) };
        fs::write(self.root.join("backends.json"), serde_json::to_string_pretty(&file)?)?;
        Ok(())
    }

    fn config(&self, node: u8) -> NodeConfig {
        let at = |port| self.address(node, port);
        NodeConfig {
            node: NodeSection { name: format!("node{node}"), data_dir: self.directory(node).join("data"), threads: 0, zone: "demo".into() },
            listen: ListenSection {
                mysql: at(MYSQL),
                pgsql: at(PGSQL),
                admin_mysql: at(ADMIN_MYSQL),
                admin_pgsql: at(ADMIN_PGSQL),
                grpc: at(GRPC),
                peer: at(PEER),
                http: at(HTTP),
                allow_insecure: false,
            },
            cluster: ClusterSection { advertise: at(PEER) },
            log: LogSection { file: self.log_file(node), ..LogSection::default() },
            // Nobody balances onto a demo: Ctrl-C is answered at once, open transactions get a second.
            drain: DrainSection {
                initial_wait: Span::from_millis(0),
                idle_spread: Span::from_millis(500),
                transactions: Span::from_millis(1_000),
            },
            ..NodeConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_scripts_rely_on_are_written_and_readable() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path().to_owned(), [127, 9, 8], 3);
        let backends = Backends { mysql: vec![("127.0.0.1".into(), 1), ("b".into(), 2)], pgsql: Vec::new() };
        layout.write(&backends).unwrap();
        let config: NodeConfig = toml::from_str(&fs::read_to_string(layout.config_file(3)).unwrap()).unwrap();
        assert_eq!(config, layout.config(3));
        assert_eq!((config.node.name.as_str(), config.listen.mysql.as_str()), ("node3", "127.9.8.3:6033"));
        let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(directory.path().join("backends.json")).unwrap()).unwrap();
        assert_eq!(json, serde_json::json!({"mysql": ["127.0.0.1:1", "b:2"], "pgsql": []}));
    }
}
