//! `mysql_users`, `pgsql_users`: who may log in, and with what on the servers.

use super::description::{ColumnDescription, TableDescription, column};

const fn flag(name: &'static str, clause: &'static str) -> ColumnDescription {
    column(name, "INT", clause)
}

const USERNAME: ColumnDescription = column("username", "VARCHAR", "NOT NULL");
const PASSWORD: ColumnDescription = column("password", "VARCHAR", "");
const ACTIVE: ColumnDescription = flag("active", "CHECK (active IN (0,1)) NOT NULL DEFAULT 1");
const USE_SSL: ColumnDescription = flag("use_ssl", "CHECK (use_ssl IN (0,1)) NOT NULL DEFAULT 0");
const DEFAULT_HOSTGROUP: ColumnDescription = column("default_hostgroup", "INT", "NOT NULL DEFAULT 0");
const TRANSACTION_PERSISTENT: ColumnDescription =
    flag("transaction_persistent", "CHECK (transaction_persistent IN (0,1)) NOT NULL DEFAULT 1");
const FAST_FORWARD: ColumnDescription = flag("fast_forward", "CHECK (fast_forward IN (0,1)) NOT NULL DEFAULT 0");
const BACKEND: ColumnDescription = flag("backend", "CHECK (backend IN (0,1)) NOT NULL DEFAULT 1");
const FRONTEND: ColumnDescription = flag("frontend", "CHECK (frontend IN (0,1)) NOT NULL DEFAULT 1");
const MAX_CONNECTIONS: ColumnDescription = column("max_connections", "INT", "CHECK (max_connections >=0) NOT NULL DEFAULT 10000");
const ATTRIBUTES: ColumnDescription =
    column("attributes", "VARCHAR", "CHECK (JSON_VALID(attributes) OR attributes = '') NOT NULL DEFAULT ''");
const COMMENT: ColumnDescription = column("comment", "VARCHAR", "NOT NULL DEFAULT ''");
// `attributes` may hold an additional password.
const SECRETS: &[&str] = &["password", "attributes"];

pub(super) static MYSQL_USERS: TableDescription = TableDescription {
    name: "mysql_users",
    columns: &[
        USERNAME,
        PASSWORD,
        ACTIVE,
        USE_SSL,
        DEFAULT_HOSTGROUP,
        column("default_schema", "VARCHAR", ""),
        flag("schema_locked", "CHECK (schema_locked IN (0,1)) NOT NULL DEFAULT 0"),
        TRANSACTION_PERSISTENT,
        FAST_FORWARD,
        BACKEND,
        FRONTEND,
        MAX_CONNECTIONS,
        ATTRIBUTES,
        COMMENT,
    ],
    primary_key: &["username", "backend"],
    unique: &[&["username", "frontend"]],
    autoincrement: false,
    secrets: SECRETS,
};

pub(super) static PGSQL_USERS: TableDescription = TableDescription {
    name: "pgsql_users",
    columns: &[
        USERNAME,
        PASSWORD,
        ACTIVE,
        USE_SSL,
        DEFAULT_HOSTGROUP,
        TRANSACTION_PERSISTENT,
        FAST_FORWARD,
        BACKEND,
        FRONTEND,
        MAX_CONNECTIONS,
        ATTRIBUTES,
        COMMENT,
    ],
    primary_key: &["username", "backend"],
    unique: &[&["username", "frontend"]],
    autoincrement: false,
    secrets: SECRETS,
};
