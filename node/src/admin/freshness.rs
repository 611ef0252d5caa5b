//! How fresh the tables must be that a statement reads (raft-and-storage.md 6.2).

use quorumsql_raft::command::ReadLevel;

use crate::sql_server::lexer::{Kind, Token, tokens};

/// Prefix that makes one statement linearizable.
const LINEARIZABLE: &str = "/* linearizable */";

/// The level for a statement on a connection with the level `own`; `None` = it reads no table.
///
/// What this node observes (`stats_*`, `monitor.*`) is local whatever the level.
pub(super) fn demanded(sql: &str, own: ReadLevel) -> Option<ReadLevel> {
    let found = tokens(sql);
    let reads = |token: &Token<'_>| {
        token.is("FROM") || token.is("JOIN") || token.is("TABLE") || token.kind == Kind::SystemVariable || token.is("PRAGMA")
    };
    if !found.iter().any(reads) {
        return None;
    }
    if sql.trim_start().starts_with(LINEARIZABLE) {
        return Some(ReadLevel::Linearizable);
    }
    Some(if only_observations(&found) { ReadLevel::Local } else { own })
}

/// Whether every name after FROM, JOIN or a comma is that of a table of observations. A column after a comma makes it `false`, which
/// is only slower.
fn only_observations(found: &[Token<'_>]) -> bool {
    let mut from = false;
    let mut names = found.windows(2).filter_map(|pair| {
        from |= pair[0].is("FROM");
        let named = from && (pair[0].is("FROM") || pair[0].is("JOIN") || pair[0].is_sign(','));
        (named && !pair[1].is_sign('(')).then_some(&pair[1])
    });
    let known = |token: &Token<'_>| {
        let name = token.unquoted().to_ascii_lowercase();
        token.is_name() && (name.starts_with("stats_") || name == "stats" || name == "monitor")
    };
    let Some(first) = names.next() else { return false };
    known(first) && names.all(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_are_local_and_everything_else_is_as_the_connection_says() {
        use ReadLevel::{Auto, Linearizable, Local};
        for (sql, own, expected) in [
            ("SELECT 1", Auto, None),
            ("SELECT * FROM mysql_servers", Auto, Some(Auto)),
            ("SELECT * FROM mysql_servers", Local, Some(Local)),
            (" /* linearizable */ SELECT * FROM mysql_servers", Local, Some(Linearizable)),
            ("SELECT @@version", Auto, Some(Auto)),
            ("SELECT slot, role FROM stats_cluster_nodes ORDER BY slot", Linearizable, Some(Local)),
            ("select * from stats.stats_mysql_global", Linearizable, Some(Local)),
            ("SELECT * FROM monitor.mysql_server_ping_log", Auto, Some(Local)),
            ("SELECT * FROM (SELECT * FROM stats_mysql_global)", Auto, Some(Local)),
            ("SELECT * FROM stats_mysql_global JOIN mysql_servers", Auto, Some(Auto)),
            ("SELECT * FROM stats_mysql_global, mysql_servers", Auto, Some(Auto)),
            ("SELECT * FROM runtime_mysql_servers", Auto, Some(Auto)),
        ] {
            assert_eq!(demanded(sql, own), expected, "{sql}");
        }
    }
}
