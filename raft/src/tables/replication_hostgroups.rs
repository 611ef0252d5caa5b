//! `mysql_replication_hostgroups`, `pgsql_replication_hostgroups`: pairs of writer and reader hostgroups.

use super::description::{ColumnDescription, TableDescription, column};

// The column that is the key carries PRIMARY KEY itself, as in the reference's text.
const WRITER: ColumnDescription = column("writer_hostgroup", "INT", "CHECK (writer_hostgroup>=0) NOT NULL PRIMARY KEY");
const READER: ColumnDescription =
    column("reader_hostgroup", "INT", "NOT NULL CHECK (reader_hostgroup<>writer_hostgroup AND reader_hostgroup>=0)");
const COMMENT: ColumnDescription = column("comment", "VARCHAR", "NOT NULL DEFAULT ''");

pub(super) static MYSQL_REPLICATION_HOSTGROUPS: TableDescription = TableDescription {
    name: "mysql_replication_hostgroups",
    columns: &[
        WRITER,
        READER,
        column(
            "check_type",
            "VARCHAR",
            "CHECK (LOWER(check_type) IN ('read_only','innodb_read_only','super_read_only','read_only|innodb_read_only','read_only&innodb_read_only')) NOT NULL DEFAULT 'read_only'",
        ),
        COMMENT,
    ],
    primary_key: &["writer_hostgroup"],
    unique: &[&["reader_hostgroup"]],
    autoincrement: false,
    secrets: &[],
};

pub(super) static PGSQL_REPLICATION_HOSTGROUPS: TableDescription = TableDescription {
    name: "pgsql_replication_hostgroups",
    columns: &[
        WRITER,
        READER,
        column("check_type", "VARCHAR", "CHECK (LOWER(check_type) IN ('read_only')) NOT NULL DEFAULT 'read_only'"),
        COMMENT,
    ],
    primary_key: &["writer_hostgroup"],
    unique: &[&["reader_hostgroup"]],
    autoincrement: false,
    secrets: &[],
};
