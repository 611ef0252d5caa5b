//! The effective configuration of the data plane: immutable, published behind one `Arc`, swapped whole.
//!
//! `node::runtime` parses committed rows into these types ("parse, don't validate"); sessions, rules, routing and
//! pools only read them. A statement sees one `RuntimeConfig` from its first byte to its end.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quorumsql_wire::sql::ScanOptions;

use crate::rules::RuleSet;
use crate::tls::{ClientTls, ServerTls};

/// ProxySQL's number of a server group; MySQL and PostgreSQL have separate number spaces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct HostgroupId(pub u32);

/// `rule_id` of a `*_query_rules` row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RuleId(pub i64);

/// Which of the two data planes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Protocol {
    /// MySQL and MariaDB.
    Mysql,
    /// PostgreSQL.
    Pgsql,
}

/// Everything that a worker needs to serve, of one log index.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// Log index of the last entry that is part of this configuration.
    pub index: u64,
    /// Number of the last change of RUNTIME (design.md section 2.2).
    pub revision: u64,
    /// The MySQL side.
    pub mysql: Arc<ProtocolConfig>,
    /// The PostgreSQL side.
    pub pgsql: Arc<ProtocolConfig>,
}

impl RuntimeConfig {
    /// The side that `protocol` names.
    #[must_use]
    pub fn side(&self, protocol: Protocol) -> &Arc<ProtocolConfig> {
        match protocol {
            Protocol::Mysql => &self.mysql,
            Protocol::Pgsql => &self.pgsql,
        }
    }
}

/// One protocol's part of the configuration.
#[derive(Clone, Debug, Default)]
pub struct ProtocolConfig {
    /// Active frontend users by name.
    pub users: HashMap<String, Arc<User>>,
    /// Hostgroups as they are now: configured servers moved by this node's observations.
    pub hostgroups: HashMap<HostgroupId, Arc<Hostgroup>>,
    /// Active rules, compiled.
    pub rules: Arc<RuleSet>,
    /// Writer/reader pairs, for the routing guard.
    pub domains: Vec<Domain>,
    /// Variables with an effect.
    pub variables: Arc<Variables>,
    /// What clients that ask for TLS get; `None` = it is not offered.
    pub client_tls: Option<Arc<ClientTls>>,
}

/// A pair of hostgroups whose reader side the routing guard protects (design.md section 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Domain {
    /// `writer_hostgroup`.
    pub writer: HostgroupId,
    /// `reader_hostgroup`.
    pub reader: HostgroupId,
}

/// One row of `*_users`.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// `username`.
    pub name: String,
    /// `password` as stored: clear text, `*HEX`, `$A$005$…`, `SCRAM-SHA-256$…`, `md5…`; empty = no password.
    pub password: String,
    /// `attributes.additional_password`, in the same forms.
    pub additional_password: Option<String>,
    /// `use_ssl`: the client must use TLS.
    pub require_tls: bool,
    /// `default_hostgroup`.
    pub default_hostgroup: HostgroupId,
    /// `default_schema`; `None` = the variable `default_schema`. Not used by PostgreSQL.
    pub default_schema: Option<String>,
    /// `transaction_persistent`.
    pub transaction_persistent: bool,
    /// `max_connections` of clients.
    pub max_connections: u32,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).field("default_hostgroup", &self.default_hostgroup).finish_non_exhaustive()
    }
}

/// The servers of one hostgroup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hostgroup {
    /// Its number.
    pub id: HostgroupId,
    /// Its servers in the order (hostname, port).
    pub servers: Vec<Arc<Server>>,
}

/// A database process; connections belong to it, limits and counters to its row in a hostgroup.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServerAddress {
    /// Host name, address, or path of a Unix socket where `port` is 0.
    pub host: Arc<str>,
    /// TCP port; 0 = Unix socket.
    pub port: u16,
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Server statuses, spelled as in the tables. What the data plane itself shuns is not here but in its statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerStatus {
    /// In service.
    Online,
    /// Temporarily excluded (too slow, or configured so); running work goes on.
    Shunned,
    /// Its pings are not answered: shown as SHUNNED, and its connections are cut, as nobody knows when they would answer.
    Unreachable,
    /// No new work; running transactions finish.
    OfflineSoft,
    /// Connections are cut.
    OfflineHard,
}

impl ServerStatus {
    /// The word in the tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Online => "ONLINE",
            Self::Shunned | Self::Unreachable => "SHUNNED",
            Self::OfflineSoft => "OFFLINE_SOFT",
            Self::OfflineHard => "OFFLINE_HARD",
        }
    }
}

/// The five ways in which connections to servers can be protected (design.md section 8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TlsMode {
    /// Plain text.
    Disable,
    /// TLS if the server offers it.
    Prefer,
    /// TLS or an error; the certificate is not checked.
    Require,
    /// TLS with a certificate of the configured CA.
    VerifyCa,
    /// As `VerifyCa`, and the name must match.
    VerifyFull,
}

/// One row of `*_servers` as it is in force on this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Hostgroup in which it is now.
    pub hostgroup: HostgroupId,
    /// Address.
    pub address: ServerAddress,
    /// Status of the row combined with this node's observations.
    pub status: ServerStatus,
    /// Share of traffic; 0 = never chosen.
    pub weight: u32,
    /// Most connections of this node to it in this hostgroup, used and free together.
    pub max_connections: u32,
    /// `use_ssl` and `*-ssl_p2s_*` resolved.
    pub tls: ServerTls,
    /// Last monitor ping in microseconds; 0 = unknown.
    pub latency_us: u64,
    /// Why the monitor finds it unreachable, for the texts of statements that wait for it in vain.
    pub trouble: Option<Arc<str>>,
}

/// Variables with an effect on the data plane. One struct for both protocols: the prefix (`mysql-`, `pgsql-`) decides
/// which instance a variable fills; a field that a protocol does not have keeps its default.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variables {
    /// `connect_timeout_client`: time that a client has to log in.
    pub connect_timeout_client: Duration,
    /// `connect_timeout_server`: time for one attempt to open a server connection.
    pub connect_timeout_server: Duration,
    /// `connect_timeout_server_max`: longest wait for a connection before the statement fails (9001).
    pub connect_timeout_server_max: Duration,
    /// `connect_retries_on_failure`.
    pub connect_retries_on_failure: u32,
    /// `shun_on_failures`: connect errors within a second that shun a server; 0 = never.
    pub shun_on_failures: u32,
    /// `shun_recovery_time_sec`.
    pub shun_recovery_time: Duration,
    /// `default_query_timeout`; zero = none.
    pub default_query_timeout: Duration,
    /// `wait_timeout`: idle clients are closed after it; zero = never.
    pub wait_timeout: Duration,
    /// `max_transaction_idle_time`; zero = never.
    pub max_transaction_idle_time: Duration,
    /// `max_connections` of clients, all listeners of the protocol together.
    pub max_connections: u32,
    /// `free_connections_pct`: share of `max_connections` of a server that may stay idle.
    pub free_connections_pct: u32,
    /// `connection_max_age_ms`; zero = no limit.
    pub connection_max_age: Duration,
    /// `ping_interval_server_msec`: idle server connections are pinged this often.
    pub ping_interval_server: Duration,
    /// `multiplexing`.
    pub multiplexing: bool,
    /// `max_allowed_packet`, bytes.
    pub max_allowed_packet: u32,
    /// `default_schema` (MySQL).
    pub default_schema: String,
    /// `server_version` in greetings (MySQL: the text; PostgreSQL: `server_version` parameter).
    pub server_version: String,
    /// `default_authentication_plugin` (MySQL): `mysql_native_password` or `caching_sha2_password`.
    pub default_authentication_plugin: String,
    /// `default_charset` (MySQL), `default_client_encoding` (PostgreSQL).
    pub default_charset: String,
    /// `default_collation_connection` (MySQL).
    pub default_collation_connection: String,
    /// `routing_guard`.
    pub routing_guard: GuardMode,
    /// `query_digests`: statements are counted by digest.
    pub query_digests: bool,
    /// `query_digests_track_hostname`: one row per client address.
    pub query_digests_track_hostname: bool,
    /// The other `query_digests_*`: how a statement becomes its digest. Sessions set `backslash_escapes` as theirs are.
    pub digest_options: ScanOptions,
    /// `query_processor_regex`: `false` = linear-time engine only (value 2).
    pub regex_backtracking: bool,
    /// `auto_increment_delay_multiplex`: statements for which a connection is kept after one that made an insert id.
    pub auto_increment_delay_multiplex: u32,
}

/// `mysql-routing_guard`, `pgsql-routing_guard`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuardMode {
    /// A statement that is no plain read goes from the reader hostgroup to the writer.
    Redirect,
    /// It gets an error instead.
    Reject,
    /// The reference's behaviour: it goes where the rules say.
    Off,
}

impl Default for Variables {
    /// The defaults of variables.tsv (MySQL's where the two differ).
    fn default() -> Self {
        Self {
            connect_timeout_client: Duration::from_millis(10_000),
            connect_timeout_server: Duration::from_millis(3_000),
            connect_timeout_server_max: Duration::from_millis(10_000),
            connect_retries_on_failure: 10,
            shun_on_failures: 5,
            shun_recovery_time: Duration::from_secs(10),
            default_query_timeout: Duration::from_millis(86_400_000),
            wait_timeout: Duration::from_millis(28_800_000),
            max_transaction_idle_time: Duration::from_millis(14_400_000),
            max_connections: 2048,
            free_connections_pct: 10,
            connection_max_age: Duration::ZERO,
            ping_interval_server: Duration::from_millis(120_000),
            multiplexing: true,
            max_allowed_packet: 67_108_864,
            default_schema: "information_schema".into(),
            server_version: "8.0.11".into(),
            default_authentication_plugin: "mysql_native_password".into(),
            default_charset: "utf8mb4".into(),
            default_collation_connection: String::new(),
            routing_guard: GuardMode::Redirect,
            query_digests: true,
            query_digests_track_hostname: false,
            digest_options: ScanOptions::MYSQL,
            regex_backtracking: true,
            auto_increment_delay_multiplex: 5,
        }
    }
}
