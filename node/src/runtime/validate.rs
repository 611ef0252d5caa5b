//! What LOAD asks before it publishes: every row must become a value of `RuntimeConfig`.

use quorumsql_dataplane::config::Protocol;
use quorumsql_raft::command::{TableRows, Validator};

use super::rows;

/// Parses MEMORY rows as `runtime` will parse them. Pure; called on the leader.
pub(crate) struct RowValidator;

impl Validator for RowValidator {
    fn validate(&self, module: &str, tables: &[TableRows]) -> Result<Vec<String>, String> {
        let mut warnings = Vec::new();
        for table in tables {
            let protocol = if table.table.starts_with("pgsql_") { Protocol::Pgsql } else { Protocol::Mysql };
            match table.table.strip_prefix("mysql_").or_else(|| table.table.strip_prefix("pgsql_")) {
                Some("servers") => drop(rows::servers(table)?),
                Some("replication_hostgroups") => drop(rows::pairs(table)?),
                Some("users") => drop(rows::users(table)?),
                Some("query_rules") => {
                    let (rules, without_effect) = rows::rules(table, protocol)?;
                    warnings.extend(without_effect);
                    let (_, notes) = super::compile_rules(rules, true).map_err(|error| format!("{} {error}", table.table))?;
                    warnings.extend(notes);
                }
                None if table.table == "global_variables" => {
                    crate::admin::validate::global_variables(table)?;
                    warnings.extend(crate::admin::validate::without_effect(table));
                }
                _ => tracing::debug!(module, table = table.table, "rows are checked by the state machine alone"),
            }
        }
        Ok(warnings)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::{server, table};
    use super::*;

    #[test]
    fn an_invalid_row_refuses_the_load_and_is_named() {
        let good = table("mysql_servers", &[&server(10, "a", "ONLINE")]);
        assert_eq!(RowValidator.validate("MYSQL SERVERS", &[good]), Ok(Vec::new()));
        let bad = table("pgsql_servers", &[&server(10, "a", "UP")]);
        assert_eq!(RowValidator.validate("PGSQL SERVERS", &[bad]), Err("pgsql_servers (10, a, 3306): status `UP` is no status".into()));
    }
}
