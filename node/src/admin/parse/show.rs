//! SHOW and DESCRIBE (admin-commands.md 6 and 11).

use super::{Command, Cursor, refused};

/// A condition on the rows of a SHOW.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ShowFilter {
    /// All.
    None,
    /// `LIKE 'p'`.
    Like(String),
    /// `WHERE …`, as written.
    Where(String),
}

/// What is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ShowCommand {
    /// `SHOW TABLES [FROM db] [LIKE 'p']`.
    Tables {
        /// Schema; `main` when not given.
        schema: String,
        /// Condition.
        filter: ShowFilter,
    },
    /// `SHOW CREATE TABLE [db.]t`.
    CreateTable {
        /// Schema.
        schema: Option<String>,
        /// Table.
        table: String,
    },
    /// `SHOW DATABASES`.
    Databases,
    /// `SHOW [GLOBAL|ADMIN|MYSQL|PGSQL] VARIABLES …`.
    Variables {
        /// `mysql-` and so on; empty = all.
        prefix: &'static str,
        /// Condition.
        filter: ShowFilter,
    },
    /// `SHOW WARNINGS`.
    Warnings,
    /// `SHOW COUNT(*) WARNINGS`.
    WarningCount,
    /// `SHOW ERRORS`: none are kept.
    Errors,
    /// `SHOW MYSQL SERVERS` and its like: all rows of a table in order.
    Rows {
        /// Table.
        table: &'static str,
        /// ORDER BY.
        order: &'static str,
    },
    /// `SHOW MYSQL STATUS`, `SHOW STATUS`.
    Status {
        /// `stats_mysql_global` or its twin.
        table: &'static str,
        /// Condition.
        filter: ShowFilter,
    },
    /// `SHOW CHARSET`.
    Charset,
    /// `SHOW COLLATION`.
    Collation,
    /// `SHOW FIELDS FROM t`, `DESCRIBE t`.
    Fields(String),
    /// `SHOW TABLE STATUS [LIKE 't']`.
    TableStatus(ShowFilter),
    /// Lists that are always empty here (`SHOW ENGINES`, `SHOW TRIGGERS` …).
    Nothing,
    /// PostgreSQL's `SHOW name`.
    Parameter(String),
}

/// `cursor` stands on SHOW, DESCRIBE or DESC.
pub(super) fn parse(cursor: &mut Cursor<'_>) -> Command {
    let verb = cursor.next();
    if verb.is_some_and(|token| !token.is("SHOW")) {
        return cursor.qualified().map_or(Command::Syntax { near: "DESCRIBE".into() }, |(_, table)| show(ShowCommand::Fields(table)));
    }
    let full = cursor.accept("FULL");
    let words = cursor.words();
    let list: Vec<&str> = words.iter().map(String::as_str).collect();
    match list.as_slice() {
        ["TABLES", ..] => tables(cursor),
        ["CREATE", "TABLE", ..] => {
            cursor.at += 2;
            cursor
                .qualified()
                .filter(|_| cursor.at_end())
                .map_or_else(syntax, |(schema, table)| show(ShowCommand::CreateTable { schema, table }))
        }
        ["DATABASES" | "SCHEMAS", ..] => show(ShowCommand::Databases),
        ["WARNINGS", ..] => show(ShowCommand::Warnings),
        ["ERRORS", ..] => show(ShowCommand::Errors),
        ["COUNT", "(", "*", ")", "WARNINGS"] => show(ShowCommand::WarningCount),
        ["VARIABLES", ..] => variables(cursor, 1, ""),
        ["GLOBAL" | "SESSION" | "ALL" | "LOCAL", "VARIABLES", ..] => variables(cursor, 2, ""),
        ["MYSQL", "VARIABLES", ..] => variables(cursor, 2, "mysql-"),
        ["PGSQL", "VARIABLES", ..] => variables(cursor, 2, "pgsql-"),
        ["ADMIN", "VARIABLES", ..] => variables(cursor, 2, "admin-"),
        ["STATUS", ..] => status(cursor, 1, "stats_mysql_global"),
        ["GLOBAL" | "SESSION" | "MYSQL", "STATUS", ..] => status(cursor, 2, "stats_mysql_global"),
        ["PGSQL", "STATUS", ..] => status(cursor, 2, "stats_pgsql_global"),
        ["MYSQL", "SERVERS"] => rows("mysql_servers", "hostgroup_id, hostname, port"),
        ["PGSQL", "SERVERS"] => rows("pgsql_servers", "hostgroup_id, hostname, port"),
        ["MYSQL", "USERS"] => rows("mysql_users", "username, active DESC"),
        ["PGSQL", "USERS"] => rows("pgsql_users", "username, active DESC"),
        ["MYSQL", "QUERY", "RULES"] => rows("mysql_query_rules", "rule_id"),
        ["PGSQL", "QUERY", "RULES"] => rows("pgsql_query_rules", "rule_id"),
        ["CHARSET", ..] | ["CHARACTER", "SET", ..] => show(ShowCommand::Charset),
        ["COLLATION", ..] => show(ShowCommand::Collation),
        ["FIELDS" | "COLUMNS", "FROM" | "IN", ..] => {
            cursor.at += 2;
            cursor.qualified().map_or_else(syntax, |(_, table)| show(ShowCommand::Fields(table)))
        }
        ["TABLE", "STATUS", ..] => {
            cursor.at += 2;
            if cursor.accept("FROM") || cursor.accept("IN") {
                cursor.next();
            }
            filter(cursor).map_or_else(syntax, |filter| show(ShowCommand::TableStatus(filter)))
        }
        ["ENGINES" | "PLUGINS" | "TRIGGERS" | "EVENTS" | "INDEX" | "INDEXES" | "KEYS", ..] | ["PROCEDURE" | "FUNCTION", "STATUS", ..] => {
            show(ShowCommand::Nothing)
        }
        ["PROCESSLIST", ..] | ["PGSQL", "PROCESSLIST", ..] | ["PROMETHEUS", "METRICS"] | ["CONFIG", ..] | ["TSDB", ..] => {
            refused(&format!("SHOW {}{} is not available in this version", if full { "FULL " } else { "" }, words.join(" ")))
        }
        [name] if name.chars().all(|c| c.is_alphanumeric() || c == '_') => show(ShowCommand::Parameter(name.to_ascii_lowercase())),
        ["TRANSACTION", "ISOLATION", "LEVEL"] => show(ShowCommand::Parameter("transaction_isolation".into())),
        ["TIME", "ZONE"] => show(ShowCommand::Parameter("timezone".into())),
        _ => syntax(),
    }
}

fn show(command: ShowCommand) -> Command {
    Command::Show(command)
}

fn syntax() -> Command {
    Command::Syntax { near: "SHOW".into() }
}

fn rows(table: &'static str, order: &'static str) -> Command {
    show(ShowCommand::Rows { table, order })
}

fn tables(cursor: &mut Cursor<'_>) -> Command {
    cursor.next();
    let mut schema = "main".to_owned();
    if cursor.accept("FROM") || cursor.accept("IN") {
        match cursor.next() {
            Some(token) if token.is_name() => schema = token.unquoted().to_ascii_lowercase(),
            _ => return syntax(),
        }
    }
    filter(cursor).map_or_else(syntax, |filter| show(ShowCommand::Tables { schema, filter }))
}

fn variables(cursor: &mut Cursor<'_>, skip: usize, prefix: &'static str) -> Command {
    cursor.at += skip;
    filter(cursor).map_or_else(syntax, |filter| show(ShowCommand::Variables { prefix, filter }))
}

fn status(cursor: &mut Cursor<'_>, skip: usize, table: &'static str) -> Command {
    cursor.at += skip;
    filter(cursor).map_or_else(syntax, |filter| show(ShowCommand::Status { table, filter }))
}

fn filter(cursor: &mut Cursor<'_>) -> Option<ShowFilter> {
    if cursor.at_end() {
        return Some(ShowFilter::None);
    }
    if cursor.accept("LIKE") {
        let pattern = cursor.next()?.unquoted();
        return cursor.at_end().then_some(ShowFilter::Like(pattern));
    }
    cursor.accept("WHERE").then(|| ShowFilter::Where(cursor.rest().to_owned())).filter(|filter| *filter != ShowFilter::Where(String::new()))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn forms_of_show() {
        let variables = |prefix, filter| ShowCommand::Variables { prefix, filter };
        for (sql, expected) in [
            ("SHOW TABLES", ShowCommand::Tables { schema: "main".into(), filter: ShowFilter::None }),
            (
                "show tables from `stats` like 'stats%'",
                ShowCommand::Tables { schema: "stats".into(), filter: ShowFilter::Like("stats%".into()) },
            ),
            ("SHOW CREATE TABLE disk.`mysql_users`", ShowCommand::CreateTable { schema: Some("disk".into()), table: "mysql_users".into() }),
            ("SHOW DATABASES", ShowCommand::Databases),
            ("SHOW VARIABLES", variables("", ShowFilter::None)),
            ("SHOW GLOBAL VARIABLES LIKE 'mysql-m%'", variables("", ShowFilter::Like("mysql-m%".into()))),
            ("SHOW ADMIN VARIABLES", variables("admin-", ShowFilter::None)),
            ("SHOW VARIABLES WHERE Variable_name in ('a', 'b')", variables("", ShowFilter::Where("Variable_name in ('a', 'b')".into()))),
            ("SHOW MYSQL SERVERS", ShowCommand::Rows { table: "mysql_servers", order: "hostgroup_id, hostname, port" }),
            ("SHOW FULL COLUMNS FROM `mysql_users`", ShowCommand::Fields("mysql_users".into())),
            ("DESC mysql_users", ShowCommand::Fields("mysql_users".into())),
            ("SHOW COUNT(*) WARNINGS", ShowCommand::WarningCount),
            ("SHOW server_version", ShowCommand::Parameter("server_version".into())),
            ("SHOW WARNINGS LIMIT 5", ShowCommand::Warnings),
        ] {
            assert_eq!(parse(sql), Command::Show(expected), "{sql}");
        }
        assert!(matches!(parse("SHOW FULL PROCESSLIST"), Command::Refused(_)));
        assert_eq!(parse("SHOW ME THE MONEY"), Command::Syntax { near: "SHOW".into() });
    }
}
