//! What a statement of a user may touch on the proposer's connection.

use rusqlite::hooks::{AuthAction, AuthContext};

use super::speculation::CAPTURE;
use crate::command::Layer;
use crate::tables::{TABLES, table};

/// The answer, with the reason that the client sees.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Access {
    Allowed,
    Denied(String),
}

pub(super) fn check(context: &AuthContext<'_>) -> Access {
    match context.action {
        AuthAction::Select | AuthAction::Recursive => Access::Allowed,
        AuthAction::Function { function_name } if function_name.eq_ignore_ascii_case("load_extension") => {
            Access::Denied("extensions cannot be loaded".into())
        }
        AuthAction::Function { .. } => Access::Allowed,
        AuthAction::Insert { table_name } | AuthAction::Delete { table_name } | AuthAction::Update { table_name, .. } => {
            write(table_name, context.accessor)
        }
        AuthAction::Read { table_name, .. } => read(table_name, context.accessor),
        AuthAction::Pragma { pragma_name, .. } => Access::Denied(format!("PRAGMA {pragma_name} is not available here")),
        AuthAction::Attach { .. } | AuthAction::Detach { .. } => Access::Denied("ATTACH and DETACH are not available here".into()),
        AuthAction::Transaction { .. } | AuthAction::Savepoint { .. } => {
            Access::Denied("transaction control does not belong into a change".into())
        }
        _ => Access::Denied("tables of the configuration cannot be created, changed or dropped".into()),
    }
}

/// Memory and disk layers may be written; the capturing table only by our triggers.
fn write(name: &str, accessor: Option<&str>) -> Access {
    if writable(name) || (name == CAPTURE && accessor.is_some_and(|accessor| accessor.starts_with("qs_"))) {
        return Access::Allowed;
    }
    if TABLES.iter().any(|table| table.runtime_name().eq_ignore_ascii_case(name)) {
        return Access::Denied(mirror_is_read_only(name));
    }
    if name.starts_with("sqlite_") {
        return Access::Denied("tables of the configuration cannot be created, changed or dropped".into());
    }
    Access::Denied(format!("table {name} cannot be changed"))
}

pub(super) fn mirror_is_read_only(name: &str) -> String {
    let source = name.get("runtime_".len()..).unwrap_or(name);
    format!("{name} is read-only: change {source} and LOAD it TO RUNTIME")
}

fn writable(name: &str) -> bool {
    table(name).is_some() || TABLES.iter().any(|table| table.physical(Layer::Disk).eq_ignore_ascii_case(name))
}

/// All layers may be read (RUNTIME through its mirror), nothing internal.
fn read(name: &str, accessor: Option<&str>) -> Access {
    let mirror = TABLES.iter().any(|table| table.runtime_name().eq_ignore_ascii_case(name));
    let through_mirror = accessor.is_some_and(|accessor| accessor.starts_with("runtime_") || accessor.starts_with("qs_"));
    let function = matches!(name, "json_each" | "json_tree");
    if writable(name) || mirror || function || through_mirror {
        return Access::Allowed;
    }
    Access::Denied(format!("no such table: {name}"))
}
