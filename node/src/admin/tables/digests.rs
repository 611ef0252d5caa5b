//! `stats_mysql_query_digest`, `stats_pgsql_query_digest` and their `_reset` twins (admin-tables.md 7).

use std::time::{SystemTime, UNIX_EPOCH};

use quorumsql_dataplane::config::Protocol;
use quorumsql_dataplane::stats::DigestRow;
use rusqlite::types::Value;

use super::stats::{Rows, StatsTable};
use super::{integer, text};
use crate::admin::context::Context;
use crate::sql_server::engine::EngineError;

/// Percentiles are columns of our own; the key of the PostgreSQL table says `database`.
macro_rules! columns {
    ($schema:literal) => {
        concat!(
            "hostgroup INT , ",
            $schema,
            " VARCHAR NOT NULL , username VARCHAR NOT NULL , client_address VARCHAR NOT NULL , digest VARCHAR NOT NULL , \
             digest_text VARCHAR NOT NULL , count_star INTEGER NOT NULL , first_seen INTEGER NOT NULL , last_seen INTEGER NOT NULL , \
             sum_time INTEGER NOT NULL , min_time INTEGER NOT NULL , max_time INTEGER NOT NULL , sum_rows_affected INTEGER NOT NULL , \
             sum_rows_sent INTEGER NOT NULL , p50_time INTEGER NOT NULL , p95_time INTEGER NOT NULL , p99_time INTEGER NOT NULL , \
             PRIMARY KEY (hostgroup, ",
            $schema,
            ", username, client_address, digest)"
        )
    };
}

/// A twin stands behind its table: a statement that names both sees the counts before the reset in both.
pub(super) static TABLES: [StatsTable; 4] = [
    StatsTable {
        name: "stats_mysql_query_digest",
        columns: columns!("schemaname"),
        rows: |context, _| rows(context, Protocol::Mysql, false),
    },
    StatsTable {
        name: "stats_mysql_query_digest_reset",
        columns: columns!("schemaname"),
        rows: |context, _| rows(context, Protocol::Mysql, true),
    },
    StatsTable {
        name: "stats_pgsql_query_digest",
        columns: columns!("database"),
        rows: |context, _| rows(context, Protocol::Pgsql, false),
    },
    StatsTable {
        name: "stats_pgsql_query_digest_reset",
        columns: columns!("database"),
        rows: |context, _| rows(context, Protocol::Pgsql, true),
    },
];

/// Waits for the workers; tables are filled on a thread that may block.
fn rows(context: &Context, protocol: Protocol, take: bool) -> Rows {
    let runtime = tokio::runtime::Handle::try_current().map_err(|error| EngineError::Sql(error.to_string()))?;
    let digests = runtime.block_on(context.dataplane.digests(protocol, take));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(digests.into_iter().map(|digest| row(digest, now)).collect())
}

fn row(row: DigestRow, now: u64) -> Vec<Value> {
    let percentiles = [500, 950, 990].map(|per_mille| integer(percentile(&row, per_mille)));
    let mut values = vec![
        row.hostgroup.map_or(Value::Integer(-1), |hostgroup| integer(hostgroup.0.into())),
        text(row.schema),
        text(row.user),
        text(row.client),
        text(format!("0x{:016X}", row.digest)),
        text(String::from_utf8_lossy(&row.text).into_owned()),
        integer(row.count),
        integer(now.saturating_sub(row.first_seen_ago)),
        integer(now.saturating_sub(row.last_seen_ago)),
        integer(row.sum_time),
        integer(row.min_time),
        integer(row.max_time),
        integer(row.rows_affected),
        integer(row.rows_sent),
    ];
    values.extend(percentiles);
    values
}

/// A cell's middle may lie outside of what was measured.
fn percentile(row: &DigestRow, per_mille: u64) -> u64 {
    row.percentiles.get(per_mille).clamp(row.min_time, row.max_time)
}
