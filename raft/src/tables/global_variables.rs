//! `global_variables`: one table, shared by the modules of variables by prefix.

use super::description::{TableDescription, column};

pub(super) static GLOBAL_VARIABLES: TableDescription = TableDescription {
    name: "global_variables",
    columns: &[column("variable_name", "VARCHAR", "NOT NULL PRIMARY KEY"), column("variable_value", "VARCHAR", "NOT NULL")],
    primary_key: &["variable_name"],
    unique: &[],
    autoincrement: false,
    secrets: &[],
};
