//! `mysql_servers`, `pgsql_servers`: which database processes there are.

use super::description::{ColumnDescription, TableDescription, column};

const STATUS: ColumnDescription =
    column("status", "VARCHAR", "CHECK (UPPER(status) IN ('ONLINE','SHUNNED','OFFLINE_SOFT', 'OFFLINE_HARD')) NOT NULL DEFAULT 'ONLINE'");
const HOSTGROUP_ID: ColumnDescription = column("hostgroup_id", "INT", "CHECK (hostgroup_id>=0) NOT NULL DEFAULT 0");
const HOSTNAME: ColumnDescription = column("hostname", "VARCHAR", "NOT NULL");
const WEIGHT: ColumnDescription = column("weight", "INT", "CHECK (weight >= 0 AND weight <=10000000) NOT NULL DEFAULT 1");
const COMPRESSION: ColumnDescription = column("compression", "INT", "CHECK (compression IN(0,1)) NOT NULL DEFAULT 0");
const MAX_CONNECTIONS: ColumnDescription = column("max_connections", "INT", "CHECK (max_connections >=0) NOT NULL DEFAULT 1000");
const MAX_REPLICATION_LAG: ColumnDescription =
    column("max_replication_lag", "INT", "CHECK (max_replication_lag >= 0 AND max_replication_lag <= 126144000) NOT NULL DEFAULT 0");
const USE_SSL: ColumnDescription = column("use_ssl", "INT", "CHECK (use_ssl IN(0,1)) NOT NULL DEFAULT 0");
const MAX_LATENCY_MS: ColumnDescription = column("max_latency_ms", "INT UNSIGNED", "CHECK (max_latency_ms>=0) NOT NULL DEFAULT 0");
const COMMENT: ColumnDescription = column("comment", "VARCHAR", "NOT NULL DEFAULT ''");
const KEY: &[&str] = &["hostgroup_id", "hostname", "port"];

pub(super) static MYSQL_SERVERS: TableDescription = TableDescription {
    name: "mysql_servers",
    columns: &[
        HOSTGROUP_ID,
        HOSTNAME,
        column("port", "INT", "CHECK (port >= 0 AND port <= 65535) NOT NULL DEFAULT 3306"),
        column(
            "gtid_port",
            "INT",
            "CHECK ((gtid_port <> port OR gtid_port=0) AND gtid_port >= 0 AND gtid_port <= 65535) NOT NULL DEFAULT 0",
        ),
        STATUS,
        WEIGHT,
        COMPRESSION,
        MAX_CONNECTIONS,
        MAX_REPLICATION_LAG,
        USE_SSL,
        MAX_LATENCY_MS,
        COMMENT,
    ],
    primary_key: KEY,
    unique: &[],
    autoincrement: false,
    secrets: &[],
};

pub(super) static PGSQL_SERVERS: TableDescription = TableDescription {
    name: "pgsql_servers",
    columns: &[
        HOSTGROUP_ID,
        HOSTNAME,
        column("port", "INT", "CHECK (port >= 0 AND port <= 65535) NOT NULL DEFAULT 5432"),
        STATUS,
        WEIGHT,
        COMPRESSION,
        MAX_CONNECTIONS,
        MAX_REPLICATION_LAG,
        USE_SSL,
        MAX_LATENCY_MS,
        COMMENT,
    ],
    primary_key: KEY,
    unique: &[],
    autoincrement: false,
    secrets: &[],
};
