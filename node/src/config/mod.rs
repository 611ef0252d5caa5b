//! Bootstrap facts of one node: file and environment (design.md section 12). Read by `wiring`, changed by a restart.
//!
//! Everything that may differ between nodes and must be known before there is a log is here; everything else is a
//! replicated variable. Unknown keys are errors, in the file and in the environment.

mod environment;
mod span;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use self::span::Span;

/// Where the file is when `--config` does not say.
pub(crate) const DEFAULT_FILE: &str = "/etc/quorumsql/quorumsql.toml";

/// The bootstrap file, section by section.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NodeConfig {
    /// What this node is.
    pub(crate) node: NodeSection,
    /// Where it listens.
    pub(crate) listen: ListenSection,
    /// How others reach it.
    pub(crate) cluster: ClusterSection,
    /// Log store and timings.
    pub(crate) raft: RaftSection,
    /// Own certificates instead of the cluster's.
    pub(crate) tls: TlsSection,
    /// The log of the process.
    pub(crate) log: LogSection,
    /// Export of spans.
    pub(crate) otel: OtelSection,
    /// How long a stopping node waits for its clients.
    pub(crate) drain: DrainSection,
}

/// `[node]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NodeSection {
    /// Name in the cluster, unique; empty = the host's name.
    pub(crate) name: String,
    /// Everything that this node stores.
    pub(crate) data_dir: PathBuf,
    /// Workers of the data plane; 0 = one per core.
    pub(crate) threads: usize,
    /// Free text for operators: rack, availability zone.
    pub(crate) zone: String,
}

/// `[listen]`: `host:port`, several separated by `;` for the two traffic listeners; empty = not offered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListenSection {
    /// MySQL clients; seeds this node's `mysql-interfaces`.
    pub(crate) mysql: String,
    /// PostgreSQL clients; seeds this node's `pgsql-interfaces`.
    pub(crate) pgsql: String,
    /// Admin, MySQL protocol.
    pub(crate) admin_mysql: String,
    /// Admin, PostgreSQL protocol.
    pub(crate) admin_pgsql: String,
    /// Admin gRPC.
    pub(crate) grpc: String,
    /// Other nodes, mutual TLS.
    pub(crate) peer: String,
    /// Health and metrics.
    pub(crate) http: String,
    /// Allows the admin listeners off loopback without TLS.
    pub(crate) allow_insecure: bool,
}

/// `[cluster]`
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ClusterSection {
    /// Address under which other nodes reach the peer listener; empty = `listen.peer`.
    pub(crate) advertise: String,
}

/// Which store holds the Raft log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogStore {
    /// sled under the twelve rules of raft-and-storage.md 3.3.
    #[default]
    Sled,
    /// SQLite.
    Sqlite,
}

/// `[raft]`: must be equal on all nodes (raft-and-storage.md 1.5).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RaftSection {
    /// `sled` or `sqlite`.
    pub(crate) log_store: LogStore,
    /// Interval of the leader's heartbeats.
    pub(crate) heartbeat: Span,
    /// Shortest silence after which a follower stands for election.
    pub(crate) election_min: Span,
    /// Longest one; also the leader's lease.
    pub(crate) election_max: Span,
    /// A disk that takes longer to make the log or a commit durable ends this node's part in consensus.
    pub(crate) storage_timeout: Span,
}

/// `[tls]`: paths of own certificates; empty = the file of that name under `data_dir/tls`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TlsSection {
    /// Certificate shown to clients of the admin listeners.
    pub(crate) server_cert: PathBuf,
    /// Its key.
    pub(crate) server_key: PathBuf,
}

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// `[log]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogSection {
    /// A level, or tracing directives such as `info,quorumsql_raft=debug`.
    pub(crate) level: String,
    /// `text` or `json`.
    pub(crate) format: LogFormat,
    /// File to append to, reopened on SIGUSR1; empty = standard error.
    pub(crate) file: PathBuf,
}

/// `[otel]`
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OtelSection {
    /// OTLP/gRPC endpoint such as `http://127.0.0.1:4317`; empty = spans are not exported.
    pub(crate) endpoint: String,
}

/// `[drain]` (observability-and-operations.md 11.2)
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DrainSection {
    /// Time for load balancers to see `/readyz` fail, still serving.
    pub(crate) initial_wait: Span,
    /// Time over which idle clients are closed.
    pub(crate) idle_spread: Span,
    /// Time for open transactions to end.
    pub(crate) transactions: Span,
}

impl Default for NodeSection {
    fn default() -> Self {
        Self { name: String::new(), data_dir: "/var/lib/quorumsql".into(), threads: 0, zone: String::new() }
    }
}

impl Default for ListenSection {
    fn default() -> Self {
        Self {
            mysql: "0.0.0.0:6033".into(),
            pgsql: "0.0.0.0:6133".into(),
            admin_mysql: "127.0.0.1:6032".into(),
            admin_pgsql: "127.0.0.1:6132".into(),
            grpc: "127.0.0.1:6034".into(),
            peer: "127.0.0.1:6035".into(),
            http: "127.0.0.1:6070".into(),
            allow_insecure: false,
        }
    }
}

impl Default for RaftSection {
    fn default() -> Self {
        Self {
            log_store: LogStore::Sled,
            heartbeat: Span::from_millis(100),
            election_min: Span::from_millis(500),
            election_max: Span::from_millis(1000),
            storage_timeout: Span::from_millis(5000),
        }
    }
}

impl Default for LogSection {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text, file: PathBuf::new() }
    }
}

impl Default for DrainSection {
    fn default() -> Self {
        Self { initial_wait: Span::from_millis(5_000), idle_spread: Span::from_millis(10_000), transactions: Span::from_millis(30_000) }
    }
}

/// Why a configuration cannot be used.
#[derive(thiserror::Error, Debug)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Syntax, unknown key or wrong type, with its place.
    #[error("{path}: {message}")]
    Parse {
        /// Which file.
        path: PathBuf,
        /// What is wrong, where.
        message: String,
    },
    /// A `QUORUMSQL_…` variable that names no key or has a value of the wrong type.
    #[error("environment variable {name}: {message}")]
    Environment {
        /// Its name.
        name: String,
        /// What is wrong.
        message: String,
    },
    /// A value that contradicts another or is out of range.
    #[error("{key}: {message}")]
    Value {
        /// `section.key`.
        key: &'static str,
        /// What is wrong.
        message: String,
    },
}

impl NodeConfig {
    /// Reads `file` (the default place may be absent), lays the process environment over it, and checks the result.
    pub(crate) fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let path = file.unwrap_or_else(|| Path::new(DEFAULT_FILE));
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if file.is_none() && error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(ConfigError::Read { path: path.into(), source }),
        };
        Self::parse(path, &text, std::env::vars())
    }

    /// The pure part of [`Self::load`].
    fn parse(path: &Path, text: &str, environment: impl Iterator<Item = (String, String)>) -> Result<Self, ConfigError> {
        let parse_error =
            |error: &toml::de::Error| ConfigError::Parse { path: path.into(), message: error.to_string().trim_end().to_owned() };
        // Parsed once by itself, so that a mistake in the file is reported with its line.
        toml::from_str::<Self>(text).map_err(|error| parse_error(&error))?;
        let mut table: toml::Table = toml::from_str(text).map_err(|error| parse_error(&error))?;
        environment::overlay(&mut table, environment)?;
        let mut config: Self = table.try_into().map_err(|error| parse_error(&error))?;
        if config.node.name.is_empty() {
            config.node.name =
                fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "quorumsql".into(), |name| name.trim().to_owned());
        }
        if config.node.threads == 0 {
            config.node.threads = std::thread::available_parallelism().map_or(1, usize::from);
        }
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key: &'static str, message: &str| Err(ConfigError::Value { key, message: message.into() });
        let name = &self.node.name;
        if name.len() > 63 || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            return wrong("node.name", "must be at most 63 letters, digits, `-`, `_` or `.`");
        }
        if self.node.data_dir.as_os_str().is_empty() {
            return wrong("node.data_dir", "must not be empty");
        }
        if self.node.threads > 255 {
            return wrong("node.threads", "must be between 0 and 255");
        }
        let raft = &self.raft;
        if raft.heartbeat.is_zero() || raft.election_min < raft.heartbeat * 3 {
            return wrong("raft.election_min", "must be at least three heartbeats");
        }
        if raft.election_max <= raft.election_min {
            return wrong("raft.election_max", "must be more than raft.election_min");
        }
        if *raft.storage_timeout < *raft.election_max {
            return wrong("raft.storage_timeout", "must not be less than raft.election_max");
        }
        for (key, value) in [
            ("listen.admin_mysql", &self.listen.admin_mysql),
            ("listen.admin_pgsql", &self.listen.admin_pgsql),
            ("listen.grpc", &self.listen.grpc),
            ("listen.peer", &self.listen.peer),
            ("listen.http", &self.listen.http),
        ] {
            let optional = key != "listen.peer";
            if !(optional && value.is_empty()) && value.parse::<std::net::SocketAddr>().is_err() {
                return wrong(key, "must be ADDRESS:PORT");
            }
        }
        if self.advertise().parse::<std::net::SocketAddr>().is_ok_and(|address| address.ip().is_unspecified()) {
            return wrong("cluster.advertise", "must name an address that the other nodes reach: listen.peer is on all addresses");
        }
        Ok(())
    }

    /// Address under which others reach the peer listener.
    pub(crate) fn advertise(&self) -> &str {
        if self.cluster.advertise.is_empty() { &self.listen.peer } else { &self.cluster.advertise }
    }

    /// Certificate and key for the admin listeners.
    pub(crate) fn server_certificate(&self) -> (PathBuf, PathBuf) {
        (self.tls_file(&self.tls.server_cert, "server-cert.pem"), self.tls_file(&self.tls.server_key, "server-key.pem"))
    }

    fn tls_file(&self, configured: &Path, name: &str) -> PathBuf {
        if configured.as_os_str().is_empty() { self.node.data_dir.join("tls").join(name) } else { configured.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, environment: &[(&str, &str)]) -> Result<NodeConfig, String> {
        let environment = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        NodeConfig::parse(Path::new("f.toml"), text, environment).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_file_gives_the_documented_defaults() {
        let config = parse("", &[]).unwrap();
        assert_eq!(config.listen.mysql, "0.0.0.0:6033");
        assert_eq!(config.listen.admin_mysql, "127.0.0.1:6032");
        assert_eq!(config.advertise(), "127.0.0.1:6035");
        assert!(!config.node.name.is_empty());
        assert!(config.node.threads >= 1);
        assert_eq!(config.server_certificate().0, Path::new("/var/lib/quorumsql/tls/server-cert.pem"));
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let text = "[node]\nname = 'a'\nthreads = 3\n[raft]\nlog_store = 'sled'\nheartbeat = '50ms'\n";
        let config = parse(
            text,
            &[
                ("QUORUMSQL_RAFT__LOG_STORE", "sqlite"),
                ("QUORUMSQL_NODE__NAME", "5"),
                ("QUORUMSQL_LISTEN__ALLOW_INSECURE", "true"),
                ("QUORUMSQL_DRAIN__INITIAL_WAIT", "0s"),
                ("QUORUMSQL_NODE__THREADS", "7"),
                ("QUORUMSQL_BIN", "no key of the file: has no section"),
                ("HOME", "/root"),
            ],
        )
        .unwrap();
        assert_eq!((config.raft.log_store, config.raft.heartbeat), (LogStore::Sqlite, Span::from_millis(50)));
        assert_eq!((config.node.name.as_str(), config.node.threads), ("5", 7));
        assert!(config.listen.allow_insecure && config.drain.initial_wait.is_zero());
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_its_place() {
        for (text, environment, expected) in [
            ("[node]\nnmae = 'a'\n", &[][..], "unknown field `nmae`"),
            ("[nodes]\nname = 'a'\n", &[], "unknown field `nodes`"),
            ("[node]\nthreads = 'many'\n", &[], "line 2"),
            ("[node]\nthreads = 300\n", &[], "node.threads: must be between 0 and 255"),
            ("[node]\nname = 'a b'\n", &[], "node.name: must be"),
            ("[raft]\nlog_store = 'rocksdb'\n", &[], "unknown variant `rocksdb`"),
            ("[raft]\nheartbeat = '300ms'\n", &[], "raft.election_min: must be at least three heartbeats"),
            ("[raft]\nelection_max = '500ms'\n", &[], "raft.election_max: must be more"),
            ("[raft]\nstorage_timeout = '900ms'\n", &[], "raft.storage_timeout: must not be less"),
            ("[raft]\nheartbeat = '5 parsecs'\n", &[], "a number and one of ms, s, m, h, d"),
            ("[listen]\ngrpc = 'localhost'\n", &[], "listen.grpc: must be ADDRESS:PORT"),
            ("[listen]\npeer = ''\n", &[], "listen.peer: must be ADDRESS:PORT"),
            ("[listen]\npeer = '0.0.0.0:6035'\n", &[], "cluster.advertise: must name an address"),
            ("", &[("QUORUMSQL_NODE__NMAE", "a")], "environment variable QUORUMSQL_NODE__NMAE: no such key"),
            ("", &[("QUORUMSQL_NODES__NAME", "a")], "environment variable QUORUMSQL_NODES__NAME: no such key"),
            ("", &[("QUORUMSQL_NODE__THREADS", "many")], "environment variable QUORUMSQL_NODE__THREADS: not a number"),
            ("", &[("QUORUMSQL_LISTEN__ALLOW_INSECURE", "maybe")], "must be true or false"),
        ] {
            let error = parse(text, environment).unwrap_err();
            assert!(error.contains(expected), "{text:?} {environment:?}: {error}");
        }
    }
}
