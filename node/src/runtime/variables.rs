//! Rows of `global_variables`, with this node's overrides, as typed values.

use std::collections::BTreeMap;
use std::time::Duration;

use quorumsql_dataplane::config::{GuardMode, Protocol, TlsMode, Variables};
use quorumsql_wire::sql::ScanOptions;

use crate::tls::ServerFiles;

/// Effective variables of one node: the cluster's rows under the node's own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct VariableMap(BTreeMap<String, String>);

impl VariableMap {
    /// Lays `overrides` over the `cluster`'s rows.
    pub(crate) fn new(cluster: impl IntoIterator<Item = (String, String)>, overrides: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut map: BTreeMap<String, String> = cluster.into_iter().collect();
        map.extend(overrides);
        Self(map)
    }

    /// Full name, e.g. `mysql-max_connections`.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The view of one protocol.
    pub(crate) fn of(&self, protocol: Protocol) -> Prefixed<'_> {
        Prefixed { map: self, prefix: prefix(protocol) }
    }
}

/// `mysql` or `pgsql`, as in names of variables and tables.
pub(crate) const fn prefix(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Mysql => "mysql",
        Protocol::Pgsql => "pgsql",
    }
}

/// Variables of one prefix. A value that is missing or unreadable is the default's: LOAD refuses bad values, so an
/// unreadable one can only come from another version.
pub(crate) struct Prefixed<'a> {
    map: &'a VariableMap,
    prefix: &'static str,
}

impl<'a> Prefixed<'a> {
    /// The text of a variable.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        self.map.get(&format!("{}-{name}", self.prefix))
    }

    /// A boolean.
    pub(crate) fn flag(&self, name: &str, default: bool) -> bool {
        match self.text(name) {
            Some("true" | "1") => true,
            Some("false" | "0") => false,
            _ => default,
        }
    }

    /// A number.
    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str, default: N) -> N {
        self.text(name).and_then(|text| text.parse().ok()).unwrap_or(default)
    }

    /// Milliseconds.
    pub(crate) fn millis(&self, name: &str, default: Duration) -> Duration {
        self.text(name).and_then(|text| text.parse().ok()).map_or(default, Duration::from_millis)
    }
}

/// The variables that the data plane knows.
pub(crate) fn dataplane(from: &Prefixed<'_>, protocol: Protocol) -> Variables {
    let d = Variables::default();
    let text = |name: &str, default: String| from.text(name).map_or(default, str::to_owned);
    let charset = match protocol {
        Protocol::Mysql => "default_charset",
        Protocol::Pgsql => "default_client_encoding",
    };
    Variables {
        connect_timeout_client: from.millis("connect_timeout_client", d.connect_timeout_client),
        connect_timeout_server: from.millis("connect_timeout_server", d.connect_timeout_server),
        connect_timeout_server_max: from.millis("connect_timeout_server_max", d.connect_timeout_server_max),
        connect_retries_on_failure: from.number("connect_retries_on_failure", d.connect_retries_on_failure),
        shun_on_failures: from.number("shun_on_failures", d.shun_on_failures),
        shun_recovery_time: Duration::from_secs(from.number("shun_recovery_time_sec", d.shun_recovery_time.as_secs())),
        default_query_timeout: from.millis("default_query_timeout", d.default_query_timeout),
        wait_timeout: from.millis("wait_timeout", d.wait_timeout),
        max_transaction_idle_time: from.millis("max_transaction_idle_time", d.max_transaction_idle_time),
        max_connections: from.number("max_connections", d.max_connections),
        free_connections_pct: from.number("free_connections_pct", d.free_connections_pct),
        connection_max_age: from.millis("connection_max_age_ms", d.connection_max_age),
        ping_interval_server: from.millis("ping_interval_server_msec", d.ping_interval_server),
        multiplexing: from.flag("multiplexing", d.multiplexing),
        max_allowed_packet: from.number("max_allowed_packet", d.max_allowed_packet),
        default_schema: text("default_schema", d.default_schema),
        server_version: text("server_version", d.server_version),
        default_authentication_plugin: text("default_authentication_plugin", d.default_authentication_plugin),
        default_charset: text(charset, d.default_charset),
        default_collation_connection: text("default_collation_connection", d.default_collation_connection),
        routing_guard: match from.text("routing_guard") {
            Some("reject") => GuardMode::Reject,
            Some("off") => GuardMode::Off,
            _ => GuardMode::Redirect,
        },
        query_digests: from.flag("query_digests", d.query_digests),
        query_digests_track_hostname: from.flag("query_digests_track_hostname", d.query_digests_track_hostname),
        digest_options: digest_options(from, protocol),
        regex_backtracking: from.text("query_processor_regex") != Some("2"),
        auto_increment_delay_multiplex: from.number("auto_increment_delay_multiplex", d.auto_increment_delay_multiplex),
    }
}

/// How digests are made (mysql-dataplane.md 7.1).
fn digest_options(from: &Prefixed<'_>, protocol: Protocol) -> ScanOptions {
    let d = match protocol {
        Protocol::Mysql => ScanOptions::MYSQL,
        Protocol::Pgsql => ScanOptions::PGSQL,
    };
    ScanOptions {
        lowercase: from.flag("query_digests_lowercase", d.lowercase),
        replace_null: from.flag("query_digests_replace_null", d.replace_null),
        no_digits: from.flag("query_digests_no_digits", d.no_digits),
        keep_comment: from.flag("query_digests_keep_comment", d.keep_comment),
        grouping_limit: from.number("query_digests_grouping_limit", d.grouping_limit),
        groups_grouping_limit: from.number("query_digests_groups_grouping_limit", d.groups_grouping_limit),
        max_query_length: from.number("query_digests_max_query_length", d.max_query_length),
        max_digest_length: from.number("query_digests_max_digest_length", d.max_digest_length),
        ..d
    }
}

/// Whether clients are offered TLS.
pub(crate) fn offers_tls(from: &Prefixed<'_>) -> bool {
    from.flag("have_ssl", true)
}

/// TLS towards servers with `use_ssl=1`: the variables `ssl_p2s_*`.
pub(crate) fn server_files(from: &Prefixed<'_>) -> ServerFiles {
    let path = |name: &str| from.text(name).unwrap_or_default().into();
    ServerFiles {
        mode: server_mode(from),
        ca: path("ssl_p2s_ca"),
        capath: path("ssl_p2s_capath"),
        cert: path("ssl_p2s_cert"),
        key: path("ssl_p2s_key"),
        crl: path("ssl_p2s_crl"),
        crlpath: path("ssl_p2s_crlpath"),
    }
}

/// Without a mode, an authority means `verify_ca` and none `require` (design.md section 12).
fn server_mode(from: &Prefixed<'_>) -> TlsMode {
    match from.text("ssl_p2s_mode") {
        Some("disable") => TlsMode::Disable,
        Some("prefer") => TlsMode::Prefer,
        Some("require") => TlsMode::Require,
        Some("verify_ca") => TlsMode::VerifyCa,
        Some("verify_full") => TlsMode::VerifyFull,
        _ if ["ssl_p2s_ca", "ssl_p2s_capath"].iter().any(|name| from.text(name).is_some_and(|path| !path.is_empty())) => TlsMode::VerifyCa,
        _ => TlsMode::Require,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)], overrides: &[(&str, &str)]) -> VariableMap {
        let owned = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Vec<_>>();
        VariableMap::new(owned(pairs), owned(overrides))
    }

    #[test]
    fn each_protocol_sees_its_prefix_and_the_node_wins() {
        let map = map(
            &[
                ("mysql-max_connections", "5"),
                ("pgsql-max_connections", "6"),
                ("mysql-multiplexing", "0"),
                ("mysql-connect_timeout_server", "250"),
                ("pgsql-default_client_encoding", "LATIN1"),
                ("mysql-routing_guard", "reject"),
                ("mysql-query_processor_regex", "2"),
                ("mysql-shun_on_failures", "not a number"),
            ],
            &[("mysql-max_connections", "7")],
        );
        let mysql = dataplane(&map.of(Protocol::Mysql), Protocol::Mysql);
        let pgsql = dataplane(&map.of(Protocol::Pgsql), Protocol::Pgsql);
        assert_eq!((mysql.max_connections, pgsql.max_connections), (7, 6));
        assert_eq!((mysql.multiplexing, pgsql.multiplexing), (false, true));
        assert_eq!(mysql.connect_timeout_server, Duration::from_millis(250));
        assert_eq!(pgsql.default_charset, "LATIN1");
        assert_eq!((mysql.routing_guard, mysql.regex_backtracking, mysql.shun_on_failures), (GuardMode::Reject, false, 5));
    }

    #[test]
    fn tls_towards_servers_follows_mode_then_ca() {
        for (pairs, expected) in [
            (&[][..], TlsMode::Require),
            (&[("mysql-ssl_p2s_ca", "/ca.pem")], TlsMode::VerifyCa),
            (&[("mysql-ssl_p2s_ca", "/ca.pem"), ("mysql-ssl_p2s_mode", "verify_full")], TlsMode::VerifyFull),
            (&[("mysql-ssl_p2s_mode", "prefer")], TlsMode::Prefer),
            (&[("mysql-ssl_p2s_mode", "disable")], TlsMode::Disable),
        ] {
            assert_eq!(server_mode(&map(pairs, &[]).of(Protocol::Mysql)), expected, "{pairs:?}");
        }
    }
}
