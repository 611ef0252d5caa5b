//! Session variables that are remembered and set anew on every connection (mysql-dataplane 4.2): name → literal.
//!
//! Where every server would answer a plain OK, the SET is answered here. Any other value is sent to a server first, which may
//! refuse it or warn of it, and is remembered when the server took it.

use std::collections::BTreeMap;

use quorumsql_wire::sql::SetValue;

/// Variables that a session has set, by lower-case name, with the literal to set them by. What is not in it has the
/// server's default.
pub(crate) type Variables = BTreeMap<&'static str, String>;

/// Name under which the session's isolation level is kept; its literal is the words after LEVEL.
pub(crate) const ISOLATION: &str = "transaction isolation level";
/// Name under which the session's access mode is kept: `READ ONLY`, `READ WRITE`.
pub(crate) const ACCESS_MODE: &str = "transaction access mode";
/// The one variable whose value the server tells: it may be computed from the old one, and changes how statements are read.
pub(crate) const SQL_MODE: &str = "sql_mode";
/// A number for this one switches `sql_big_selects`, too.
const MAX_JOIN_SIZE: &str = "max_join_size";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Digits, with or without decimals.
    Number,
    /// 0, 1, ON, OFF, TRUE, FALSE.
    Boolean,
    /// The same, on every server of both products, without a warning.
    Switch,
    /// A name, a number or a short text.
    Text,
    /// `SYSTEM`, an offset, a name.
    TimeZone,
    /// An isolation level, as a variable.
    Isolation,
    /// A boolean that is kept as [`ACCESS_MODE`].
    ReadOnly,
    /// [`SQL_MODE`].
    SqlMode,
}

const TRACKED: &[(&str, Kind)] = &[
    ("aurora_read_replica_read_committed", Kind::Boolean),
    ("auto_increment_increment", Kind::Number),
    ("auto_increment_offset", Kind::Number),
    ("default_storage_engine", Kind::Text),
    ("default_tmp_storage_engine", Kind::Text),
    ("foreign_key_checks", Kind::Switch),
    ("group_concat_max_len", Kind::Number),
    ("group_replication_consistency", Kind::Text),
    ("information_schema_stats_expiry", Kind::Number),
    ("innodb_lock_wait_timeout", Kind::Number),
    ("innodb_strict_mode", Kind::Boolean),
    ("innodb_table_locks", Kind::Boolean),
    ("join_buffer_size", Kind::Number),
    ("lc_messages", Kind::Text),
    ("lc_time_names", Kind::Text),
    ("lock_wait_timeout", Kind::Number),
    ("log_slow_filter", Kind::Text),
    ("long_query_time", Kind::Number),
    ("max_execution_time", Kind::Number),
    ("max_heap_table_size", Kind::Number),
    (MAX_JOIN_SIZE, Kind::Number),
    ("max_sort_length", Kind::Number),
    ("max_statement_time", Kind::Number),
    ("optimizer_prune_level", Kind::Number),
    ("optimizer_search_depth", Kind::Number),
    ("optimizer_switch", Kind::Text),
    ("optimizer_use_condition_selectivity", Kind::Number),
    ("query_cache_type", Kind::Text),
    ("session_track_gtids", Kind::Text),
    ("sort_buffer_size", Kind::Number),
    ("sql_auto_is_null", Kind::Boolean),
    ("sql_big_selects", Kind::Boolean),
    ("sql_generate_invisible_primary_key", Kind::Boolean),
    (SQL_MODE, Kind::SqlMode),
    ("sql_quote_show_create", Kind::Boolean),
    ("sql_require_primary_key", Kind::Boolean),
    ("sql_safe_updates", Kind::Boolean),
    ("sql_select_limit", Kind::Number),
    ("time_zone", Kind::TimeZone),
    ("timestamp", Kind::Number),
    ("tmp_table_size", Kind::Number),
    ("transaction_isolation", Kind::Isolation),
    ("transaction_read_only", Kind::ReadOnly),
    ("tx_isolation", Kind::Isolation),
    ("tx_read_only", Kind::ReadOnly),
    ("unique_checks", Kind::Switch),
    ("wsrep_osu_method", Kind::Text),
    ("wsrep_sync_wait", Kind::Number),
];

/// Accepted and never sent (mysql-dataplane 4.3); session tracking is this side's own business on a server connection.
const IGNORED: &[&str] = &[
    "interactive_timeout",
    "net_buffer_length",
    "net_read_timeout",
    "net_write_timeout",
    "read_buffer_size",
    "read_rnd_buffer_size",
    "session_track_schema",
    "session_track_state_change",
    "session_track_system_variables",
    "wait_timeout",
];

/// What an assignment means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Assigned {
    /// The variable has this literal from now on (`None` = the default again); no server would say anything else.
    Certain(&'static str, Option<String>),
    /// The same, if a server takes it.
    IfTaken(&'static str, Option<String>),
    /// The value is what the server tells.
    Told(&'static str),
    /// Nothing is to be done.
    Ignored,
}

/// Judges `name = value`; the name in lower case. `None` = not tracked.
pub(crate) fn assign(name: &str, value: &SetValue) -> Option<Assigned> {
    if IGNORED.contains(&name) {
        return Some(Assigned::Ignored);
    }
    let (name, kind) = *TRACKED.iter().find(|(tracked, _)| *tracked == name)?;
    if *value == SetValue::Default && !matches!(kind, Kind::SqlMode | Kind::Isolation | Kind::ReadOnly) {
        return Some(if kind == Kind::Switch { Assigned::Certain(name, None) } else { Assigned::IfTaken(name, None) });
    }
    Some(match kind {
        Kind::Number => Assigned::IfTaken(name, Some(number(value)?)),
        Kind::Boolean => Assigned::IfTaken(name, Some(boolean(value)?.to_owned())),
        Kind::Switch => Assigned::Certain(name, Some(boolean(value)?.to_owned())),
        Kind::Text => Assigned::IfTaken(name, Some(text(value)?)),
        Kind::TimeZone => match value {
            SetValue::String(zone) if is_offset(zone) => Assigned::Certain(name, Some(format!("'{zone}'"))),
            _ => Assigned::IfTaken(name, Some(text(value)?)),
        },
        Kind::Isolation => Assigned::IfTaken(ISOLATION, Some(isolation(value)?)),
        Kind::ReadOnly => {
            let mode = if boolean(value)? == "ON" { "READ ONLY" } else { "READ WRITE" };
            Assigned::IfTaken(ACCESS_MODE, Some(mode.to_owned()))
        }
        Kind::SqlMode => match value {
            SetValue::String(mode) if mode.is_empty() => Assigned::Certain(name, Some("''".to_owned())),
            // A user variable is state of one connection; what is computed from it is not known to be a literal.
            SetValue::Expression(text) if text.replace("@@", "").contains('@') => return None,
            _ => Assigned::Told(name),
        },
    })
}

/// The literal of `sql_mode` as a server told it. `None` = a mode in which statements are read by another grammar.
pub(crate) fn sql_mode(told: &[u8]) -> Option<String> {
    let mode = std::str::from_utf8(told).ok()?;
    let plain = mode.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b','));
    (plain && !has_mode(mode, "ORACLE")).then(|| format!("'{mode}'"))
}

/// Whether a list of modes, in quotes or without, names one.
pub(crate) fn has_mode(modes: &str, wanted: &str) -> bool {
    modes.trim_matches('\'').split(',').any(|mode| mode == wanted)
}

/// Takes over assignments; `None` = the default, which is what is not in the map.
pub(crate) fn apply(variables: &mut Variables, assignments: &[(&'static str, Option<String>)]) {
    for (name, literal) in assignments {
        if *name == MAX_JOIN_SIZE {
            variables.remove("sql_big_selects");
        }
        match literal {
            Some(literal) => variables.insert(name, literal.clone()),
            None => variables.remove(name),
        };
    }
}

fn number(value: &SetValue) -> Option<String> {
    let SetValue::Number(number) = value else { return None };
    let plain = number.starts_with(|c: char| c.is_ascii_digit()) && number.chars().all(|c| c.is_ascii_digit() || c == '.');
    plain.then(|| number.clone())
}

fn boolean(value: &SetValue) -> Option<&'static str> {
    let (SetValue::Word(word) | SetValue::String(word) | SetValue::Number(word)) = value else { return None };
    let is = |words: [&str; 3]| words.iter().any(|known| known.eq_ignore_ascii_case(word));
    match () {
        () if is(["1", "ON", "TRUE"]) => Some("ON"),
        () if is(["0", "OFF", "FALSE"]) => Some("OFF"),
        () => None,
    }
}

/// In quotes, unless it is a number, which chooses a value by its place.
fn text(value: &SetValue) -> Option<String> {
    let (SetValue::Word(text) | SetValue::String(text)) = value else { return number(value) };
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '/' | ':' | ',' | '=' | '.'));
    (plain && !text.is_empty() && !text.eq_ignore_ascii_case("NULL")).then(|| format!("'{text}'"))
}

/// `±H:MM`, `±HH:MM`, as far as all servers go.
fn is_offset(zone: &str) -> bool {
    let Some((hours, minutes)) = zone.strip_prefix(['+', '-']).and_then(|rest| rest.split_once(':')) else { return false };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let below = |text: &str, limit: u8| digits(text) && text.parse().is_ok_and(|number: u8| number < limit);
    matches!(hours.len(), 1 | 2) && minutes.len() == 2 && below(hours, 12) && below(minutes, 60)
}

fn isolation(value: &SetValue) -> Option<String> {
    const LEVELS: [&str; 4] = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
    let (SetValue::Word(text) | SetValue::String(text)) = value else { return None };
    let level = text.replace('-', " ");
    LEVELS.iter().find(|known| known.eq_ignore_ascii_case(&level)).map(|known| (*known).to_owned())
}

/// The statement that gives a variable its literal.
pub(crate) fn statement(name: &str, literal: &str) -> String {
    match name {
        ISOLATION => format!("SET SESSION TRANSACTION ISOLATION LEVEL {literal}"),
        ACCESS_MODE => format!("SET SESSION TRANSACTION {literal}"),
        name => format!("SET SESSION {name}={literal}"),
    }
}

/// The statement that takes a variable back to its default; `None` = it may stay as it is where a statement is prepared, which
/// neither transactions nor the clock are for. Not `= DEFAULT`, which MySQL 9 takes for OFF with `foreign_key_checks`.
pub(crate) fn default_statement(name: &str) -> Option<String> {
    shows_in_preparation(name).then(|| format!("SET SESSION {name}=@@GLOBAL.{name}"))
}

/// Whether a statement that is prepared under a variable may be another than one that is prepared without.
pub(crate) fn shows_in_preparation(name: &str) -> bool {
    !matches!(name, ISOLATION | ACCESS_MODE | "timestamp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_by_kind() {
        let (word, string, digits) = (
            |text: &str| SetValue::Word(text.into()),
            |text: &str| SetValue::String(text.into()),
            |text: &str| SetValue::Number(text.into()),
        );
        let certain = |name, literal: &str| Some(Assigned::Certain(name, Some(literal.to_owned())));
        let taken = |name, literal: &str| Some(Assigned::IfTaken(name, Some(literal.to_owned())));
        let cases = [
            ("time_zone", string("+03:00"), certain("time_zone", "'+03:00'")),
            ("time_zone", string("-1:30"), certain("time_zone", "'-1:30'")),
            ("time_zone", string("+13:00"), taken("time_zone", "'+13:00'")),
            ("time_zone", string("America/Port-au-Prince"), taken("time_zone", "'America/Port-au-Prince'")),
            ("time_zone", string("a'b"), None),
            ("sql_mode", string(""), certain("sql_mode", "''")),
            ("sql_mode", string("ANSI_QUOTES"), Some(Assigned::Told("sql_mode"))),
            ("sql_mode", SetValue::Expression("CONCAT(@@sql_mode, ',ANSI')".into()), Some(Assigned::Told("sql_mode"))),
            ("sql_mode", SetValue::Expression("@old".into()), None),
            ("sql_mode", SetValue::Default, Some(Assigned::Told("sql_mode"))),
            ("foreign_key_checks", word("off"), certain("foreign_key_checks", "OFF")),
            ("foreign_key_checks", SetValue::Default, Some(Assigned::Certain("foreign_key_checks", None))),
            ("foreign_key_checks", digits("2"), None),
            ("long_query_time", digits("0.5"), taken("long_query_time", "0.5")),
            ("long_query_time", SetValue::Default, Some(Assigned::IfTaken("long_query_time", None))),
            ("group_concat_max_len", digits("-1"), None),
            ("optimizer_switch", string("mrr=on,mrr_cost_based=off"), taken("optimizer_switch", "'mrr=on,mrr_cost_based=off'")),
            ("query_cache_type", digits("2"), taken("query_cache_type", "2")),
            ("tx_isolation", string("read-committed"), taken(ISOLATION, "READ COMMITTED")),
            ("transaction_isolation", string("REPEATABLE READ"), taken(ISOLATION, "REPEATABLE READ")),
            ("transaction_isolation", string("chaos"), None),
            ("tx_read_only", digits("1"), taken(ACCESS_MODE, "READ ONLY")),
            ("wait_timeout", digits("28800"), Some(Assigned::Ignored)),
            ("sql_log_bin", digits("0"), None),
        ];
        for (name, value, expected) in cases {
            assert_eq!(assign(name, &value), expected, "{name}={value:?}");
        }
    }

    #[test]
    fn modes_that_a_server_tells() {
        assert_eq!(sql_mode(b"STRICT_TRANS_TABLES,ANSI_QUOTES").as_deref(), Some("'STRICT_TRANS_TABLES,ANSI_QUOTES'"));
        assert_eq!(sql_mode(b"").as_deref(), Some("''"));
        assert_eq!(sql_mode(b"PIPES_AS_CONCAT,ORACLE"), None);
        assert_eq!(sql_mode(b"A'B"), None);
        assert!(has_mode("'A,ANSI_QUOTES'", "ANSI_QUOTES") && !has_mode("'ANSI'", "ANSI_QUOTES"));
    }

    #[test]
    fn a_join_limit_takes_big_selects_with_it() {
        let mut variables = Variables::from([("sql_big_selects", "ON".to_owned())]);
        apply(&mut variables, &[("max_join_size", Some("5".into()))]);
        assert_eq!(variables, Variables::from([("max_join_size", "5".to_owned())]));
        apply(&mut variables, &[("max_join_size", None)]);
        assert_eq!(variables, Variables::new());
    }
}
