//! Session variables that are remembered and set anew on every connection (mysql-dataplane 4.2): only those whose value is a
//! literal that replaces the old one, and that do not change how statements are read.

use std::collections::BTreeMap;

/// Variables that a session has set, by lower-case name, with the literal to set them by. What is not in it has the
/// server's default.
pub(crate) type Variables = BTreeMap<&'static str, String>;

/// Name under which `SET SESSION TRANSACTION ISOLATION LEVEL` is kept; its literal is the words after LEVEL.
pub(crate) const ISOLATION: &str = "transaction isolation level";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Digits, with or without decimals.
    Number,
    /// 0, 1, ON, OFF, TRUE, FALSE.
    Boolean,
    /// A name or short text.
    Text,
    /// Only modes that do not change how text is read.
    SqlMode,
}

const TRACKED: &[(&str, Kind)] = &[
    ("auto_increment_increment", Kind::Number),
    ("auto_increment_offset", Kind::Number),
    ("default_storage_engine", Kind::Text),
    ("foreign_key_checks", Kind::Boolean),
    ("group_concat_max_len", Kind::Number),
    ("innodb_lock_wait_timeout", Kind::Number),
    ("join_buffer_size", Kind::Number),
    ("lc_messages", Kind::Text),
    ("lc_time_names", Kind::Text),
    ("lock_wait_timeout", Kind::Number),
    ("long_query_time", Kind::Number),
    ("max_execution_time", Kind::Number),
    ("max_heap_table_size", Kind::Number),
    ("max_sort_length", Kind::Number),
    ("max_statement_time", Kind::Number),
    ("sort_buffer_size", Kind::Number),
    ("sql_auto_is_null", Kind::Boolean),
    ("sql_big_selects", Kind::Boolean),
    ("sql_mode", Kind::SqlMode),
    ("sql_quote_show_create", Kind::Boolean),
    ("sql_safe_updates", Kind::Boolean),
    ("sql_select_limit", Kind::Number),
    ("time_zone", Kind::Text),
    ("tmp_table_size", Kind::Number),
    ("unique_checks", Kind::Boolean),
    ("wsrep_sync_wait", Kind::Number),
];

/// Accepted and never sent (mysql-dataplane 4.3).
const IGNORED: &[&str] = &[
    "interactive_timeout",
    "net_buffer_length",
    "net_read_timeout",
    "net_write_timeout",
    "read_buffer_size",
    "read_rnd_buffer_size",
    "wait_timeout",
];

const MODES: &[&str] = &[
    "",
    "ALLOW_INVALID_DATES",
    "ERROR_FOR_DIVISION_BY_ZERO",
    "NO_AUTO_CREATE_USER",
    "NO_AUTO_VALUE_ON_ZERO",
    "NO_ENGINE_SUBSTITUTION",
    "NO_UNSIGNED_SUBTRACTION",
    "NO_ZERO_DATE",
    "NO_ZERO_IN_DATE",
    "ONLY_FULL_GROUP_BY",
    "PAD_CHAR_TO_FULL_LENGTH",
    "STRICT_ALL_TABLES",
    "STRICT_TRANS_TABLES",
    "TRADITIONAL",
];

/// What an assignment of a literal means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Assigned {
    /// The variable has this literal from now on; `None` = the default again.
    Tracked(&'static str, Option<String>),
    /// Nothing is to be done.
    Ignored,
}

/// Judges `name = value`; `quoted` = the value stood in quotes. `None` = not tracked.
pub(crate) fn assign(name: &str, value: &str, quoted: bool) -> Option<Assigned> {
    if IGNORED.iter().any(|ignored| ignored.eq_ignore_ascii_case(name)) {
        return is_number(value).then_some(Assigned::Ignored);
    }
    let (name, kind) = *TRACKED.iter().find(|(tracked, _)| tracked.eq_ignore_ascii_case(name))?;
    if !quoted && value.eq_ignore_ascii_case("default") {
        return Some(Assigned::Tracked(name, None));
    }
    let good = match kind {
        Kind::Number => !quoted && is_number(value),
        Kind::Boolean => ["0", "1", "ON", "OFF", "TRUE", "FALSE"].iter().any(|word| word.eq_ignore_ascii_case(value)),
        Kind::Text => !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '/' | ':')),
        Kind::SqlMode => value.split(',').all(|mode| MODES.iter().any(|known| known.eq_ignore_ascii_case(mode.trim()))),
    };
    let literal = if matches!(kind, Kind::Text | Kind::SqlMode) { format!("'{value}'") } else { value.to_owned() };
    good.then_some(Assigned::Tracked(name, Some(literal)))
}

fn is_number(value: &str) -> bool {
    value.starts_with(|c: char| c.is_ascii_digit()) && value.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// The statement that gives a variable its literal.
pub(crate) fn statement(name: &str, literal: &str) -> String {
    match name {
        ISOLATION => format!("SET SESSION TRANSACTION ISOLATION LEVEL {literal}"),
        name => format!("SET SESSION {name}={literal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_by_kind() {
        let tracked = |name, literal: &str| Some(Assigned::Tracked(name, Some(literal.to_owned())));
        let cases = [
            ("TIME_ZONE", "+03:00", true, tracked("time_zone", "'+03:00'")),
            ("time_zone", "a'b", true, None),
            ("sql_mode", "", true, tracked("sql_mode", "''")),
            ("sql_mode", "STRICT_ALL_TABLES,no_zero_date", true, tracked("sql_mode", "'STRICT_ALL_TABLES,no_zero_date'")),
            ("sql_mode", "ANSI_QUOTES", true, None),
            ("sql_mode", "NO_BACKSLASH_ESCAPES", true, None),
            ("sql_mode", "DEFAULT", false, Some(Assigned::Tracked("sql_mode", None))),
            ("foreign_key_checks", "off", false, tracked("foreign_key_checks", "off")),
            ("foreign_key_checks", "2", false, None),
            ("long_query_time", "0.5", false, tracked("long_query_time", "0.5")),
            ("group_concat_max_len", "-1", false, None),
            ("wait_timeout", "28800", false, Some(Assigned::Ignored)),
            ("sql_log_bin", "0", false, None),
            ("optimizer_switch", "mrr=on", true, None),
        ];
        for (name, value, quoted, expected) in cases {
            assert_eq!(assign(name, value, quoted), expected, "{name}={value}");
        }
    }
}
