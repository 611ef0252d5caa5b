//! `mysql_query_rules`, `pgsql_query_rules`: the same columns, but `database` for `schemaname` and no GTID column.

use super::description::{ColumnDescription, TableDescription, column};

const RULE_ID: ColumnDescription = column("rule_id", "INTEGER", "NOT NULL");
const ACTIVE: ColumnDescription = column("active", "INT", "CHECK (active IN (0,1)) NOT NULL DEFAULT 0");
const USERNAME: ColumnDescription = column("username", "VARCHAR", "");
const FLAGIN: ColumnDescription = column("flagIN", "INT", "CHECK (flagIN >= 0) NOT NULL DEFAULT 0");
const CLIENT_ADDR: ColumnDescription = column("client_addr", "VARCHAR", "");
const PROXY_ADDR: ColumnDescription = column("proxy_addr", "VARCHAR", "");
const PROXY_PORT: ColumnDescription = column("proxy_port", "INT", "CHECK (proxy_port >= 0 AND proxy_port <= 65535)");
const DIGEST: ColumnDescription = column("digest", "VARCHAR", "");
const MATCH_DIGEST: ColumnDescription = column("match_digest", "VARCHAR", "");
const MATCH_PATTERN: ColumnDescription = column("match_pattern", "VARCHAR", "");
const NEGATE_MATCH_PATTERN: ColumnDescription =
    column("negate_match_pattern", "INT", "CHECK (negate_match_pattern IN (0,1)) NOT NULL DEFAULT 0");
const RE_MODIFIERS: ColumnDescription = column("re_modifiers", "VARCHAR", "DEFAULT 'CASELESS'");
const FLAGOUT: ColumnDescription = column("flagOUT", "INT", "CHECK (flagOUT >= 0)");
const REPLACE_PATTERN: ColumnDescription = column(
    "replace_pattern",
    "VARCHAR",
    "CHECK(CASE WHEN replace_pattern IS NULL THEN 1 WHEN replace_pattern IS NOT NULL AND match_pattern IS NOT NULL THEN 1 ELSE 0 END)",
);
const DESTINATION_HOSTGROUP: ColumnDescription = column("destination_hostgroup", "INT", "DEFAULT NULL");
const CACHE_TTL: ColumnDescription = column("cache_ttl", "INT", "CHECK(cache_ttl > 0)");
const CACHE_EMPTY_RESULT: ColumnDescription = column("cache_empty_result", "INT", "CHECK (cache_empty_result IN (0,1)) DEFAULT NULL");
const CACHE_TIMEOUT: ColumnDescription = column("cache_timeout", "INT", "CHECK(cache_timeout >= 0)");
const RECONNECT: ColumnDescription = column("reconnect", "INT", "CHECK (reconnect IN (0,1)) DEFAULT NULL");
const TIMEOUT: ColumnDescription = column("timeout", "INT UNSIGNED", "CHECK (timeout >= 0)");
const RETRIES: ColumnDescription = column("retries", "INT", "CHECK (retries>=0 AND retries <=1000)");
const DELAY: ColumnDescription = column("delay", "INT UNSIGNED", "CHECK (delay >=0)");
const NEXT_QUERY_FLAGIN: ColumnDescription = column("next_query_flagIN", "INT UNSIGNED", "");
const MIRROR_FLAGOUT: ColumnDescription = column("mirror_flagOUT", "INT UNSIGNED", "");
const MIRROR_HOSTGROUP: ColumnDescription = column("mirror_hostgroup", "INT UNSIGNED", "");
const ERROR_MSG: ColumnDescription = column("error_msg", "VARCHAR", "");
const OK_MSG: ColumnDescription = column("OK_msg", "VARCHAR", "");
const STICKY_CONN: ColumnDescription = column("sticky_conn", "INT", "CHECK (sticky_conn IN (0,1))");
const MULTIPLEX: ColumnDescription = column("multiplex", "INT", "CHECK (multiplex IN (0,1,2))");
const LOG: ColumnDescription = column("log", "INT", "CHECK (log IN (0,1))");
const APPLY: ColumnDescription = column("apply", "INT", "CHECK(apply IN (0,1)) NOT NULL DEFAULT 0");
const ATTRIBUTES: ColumnDescription =
    column("attributes", "VARCHAR", "CHECK (JSON_VALID(attributes) OR attributes = '') NOT NULL DEFAULT ''");
const COMMENT: ColumnDescription = column("comment", "VARCHAR", "");

pub(super) static MYSQL_QUERY_RULES: TableDescription = TableDescription {
    name: "mysql_query_rules",
    columns: &[
        RULE_ID,
        ACTIVE,
        USERNAME,
        column("schemaname", "VARCHAR", ""),
        FLAGIN,
        CLIENT_ADDR,
        PROXY_ADDR,
        PROXY_PORT,
        DIGEST,
        MATCH_DIGEST,
        MATCH_PATTERN,
        NEGATE_MATCH_PATTERN,
        RE_MODIFIERS,
        FLAGOUT,
        REPLACE_PATTERN,
        DESTINATION_HOSTGROUP,
        CACHE_TTL,
        CACHE_EMPTY_RESULT,
        CACHE_TIMEOUT,
        RECONNECT,
        TIMEOUT,
        RETRIES,
        DELAY,
        NEXT_QUERY_FLAGIN,
        MIRROR_FLAGOUT,
        MIRROR_HOSTGROUP,
        ERROR_MSG,
        OK_MSG,
        STICKY_CONN,
        MULTIPLEX,
        column("gtid_from_hostgroup", "INT UNSIGNED", ""),
        LOG,
        APPLY,
        ATTRIBUTES,
        COMMENT,
    ],
    primary_key: &["rule_id"],
    unique: &[],
    autoincrement: true,
    secrets: &[],
};

pub(super) static PGSQL_QUERY_RULES: TableDescription = TableDescription {
    name: "pgsql_query_rules",
    columns: &[
        RULE_ID,
        ACTIVE,
        USERNAME,
        column("database", "VARCHAR", ""),
        FLAGIN,
        CLIENT_ADDR,
        PROXY_ADDR,
        PROXY_PORT,
        DIGEST,
        MATCH_DIGEST,
        MATCH_PATTERN,
        NEGATE_MATCH_PATTERN,
        RE_MODIFIERS,
        FLAGOUT,
        REPLACE_PATTERN,
        DESTINATION_HOSTGROUP,
        CACHE_TTL,
        CACHE_EMPTY_RESULT,
        CACHE_TIMEOUT,
        RECONNECT,
        TIMEOUT,
        RETRIES,
        DELAY,
        NEXT_QUERY_FLAGIN,
        MIRROR_FLAGOUT,
        MIRROR_HOSTGROUP,
        ERROR_MSG,
        OK_MSG,
        STICKY_CONN,
        MULTIPLEX,
        LOG,
        APPLY,
        ATTRIBUTES,
        COMMENT,
    ],
    primary_key: &["rule_id"],
    unique: &[],
    autoincrement: true,
    secrets: &[],
};
