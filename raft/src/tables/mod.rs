//! What the replicated admin tables are: descriptions only, no behaviour of their own.
//!
//! Everything else (DML, LOAD and SAVE, hashes, history, snapshots) is one generic path over [`TABLES`] and [`MODULES`]:
//! a new module is a new description here (admin-tables.md sections 2 to 5).

mod description;
mod global_variables;
mod query_rules;
mod replication_hostgroups;
mod servers;
mod users;
mod variables;

use crate::command::Value;

pub use description::{ColumnDescription, TableDescription};
pub use variables::{VariableDescription, VariableKind, check_variable, is_secret_variable, variable, variables};

/// A group of tables, or of variables with one prefix, that moves between layers as a whole.
#[derive(Debug, PartialEq, Eq)]
pub struct ModuleDescription {
    /// Name in commands, e.g. `MYSQL SERVERS`.
    pub name: &'static str,
    /// Its tables.
    pub tables: &'static [&'static str],
    /// For modules of variables: the prefix of `variable_name` of their rows of `global_variables`.
    pub variable_prefix: Option<&'static str>,
}

impl ModuleDescription {
    /// The name in tables and texts, e.g. `mysql_servers`.
    #[must_use]
    pub fn key(&self) -> String {
        self.name.to_ascii_lowercase().replace(' ', "_")
    }
}

const fn module(name: &'static str, tables: &'static [&'static str]) -> ModuleDescription {
    ModuleDescription { name, tables, variable_prefix: None }
}

const fn variables_module(name: &'static str, prefix: &'static str) -> ModuleDescription {
    ModuleDescription { name, tables: &["global_variables"], variable_prefix: Some(prefix) }
}

/// All modules, in the order in which `LOAD ALL` takes them.
pub static MODULES: [ModuleDescription; 9] = [
    module("MYSQL SERVERS", &["mysql_servers", "mysql_replication_hostgroups"]),
    module("MYSQL USERS", &["mysql_users"]),
    module("MYSQL QUERY RULES", &["mysql_query_rules"]),
    variables_module("MYSQL VARIABLES", "mysql-"),
    module("PGSQL SERVERS", &["pgsql_servers", "pgsql_replication_hostgroups"]),
    module("PGSQL USERS", &["pgsql_users"]),
    module("PGSQL QUERY RULES", &["pgsql_query_rules"]),
    variables_module("PGSQL VARIABLES", "pgsql-"),
    variables_module("ADMIN VARIABLES", "admin-"),
];

/// All replicated tables, by name.
pub static TABLES: [&TableDescription; 9] = [
    &global_variables::GLOBAL_VARIABLES,
    &query_rules::MYSQL_QUERY_RULES,
    &replication_hostgroups::MYSQL_REPLICATION_HOSTGROUPS,
    &servers::MYSQL_SERVERS,
    &users::MYSQL_USERS,
    &query_rules::PGSQL_QUERY_RULES,
    &replication_hostgroups::PGSQL_REPLICATION_HOSTGROUPS,
    &servers::PGSQL_SERVERS,
    &users::PGSQL_USERS,
];

/// The table with this visible name (as SQLite: without regard to case).
#[must_use]
pub fn table(name: &str) -> Option<&'static TableDescription> {
    TABLES.iter().copied().find(|table| table.name.eq_ignore_ascii_case(name))
}

/// The module with this name (`MYSQL SERVERS`, any case).
#[must_use]
pub fn module_named(name: &str) -> Option<&'static ModuleDescription> {
    MODULES.iter().find(|module| module.name.eq_ignore_ascii_case(name))
}

/// The module to which a row belongs: by its table, in `global_variables` by the prefix of its key.
/// `None` for variables whose prefix no module has.
#[must_use]
pub fn module_of(table: &TableDescription, first_key: &Value) -> Option<&'static ModuleDescription> {
    MODULES.iter().filter(|module| module.tables.contains(&table.name)).find(|module| match (module.variable_prefix, first_key) {
        (None, _) => true,
        (Some(prefix), Value::Text(name)) => name.starts_with(prefix),
        (Some(_), _) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_of_a_module_exists_and_every_table_has_a_module() {
        for module in &MODULES {
            for name in module.tables {
                assert!(table(name).is_some(), "{name}");
            }
        }
        for description in TABLES {
            assert!(MODULES.iter().any(|module| module.tables.contains(&description.name)), "{}", description.name);
        }
    }

    #[test]
    fn a_variable_belongs_to_the_module_of_its_prefix() {
        let variables = table("GLOBAL_VARIABLES").expect("exists");
        let cases = [("mysql-threads", Some("MYSQL VARIABLES")), ("pgsql-threads", Some("PGSQL VARIABLES")), ("clickhouse-port", None)];
        for (name, expected) in cases {
            assert_eq!(module_of(variables, &Value::Text(name.into())).map(|module| module.name), expected);
        }
        assert_eq!(module_named("mysql query rules").map(ModuleDescription::key), Some("mysql_query_rules".into()));
    }
}
