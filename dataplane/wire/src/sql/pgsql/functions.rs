//! Functions that make a SELECT more than a read (pgsql-dataplane.md 5.3, "Write-function list").

use std::sync::LazyLock;

use crate::sql::Effects;

/// How calling a function changes the statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Call {
    /// It cannot run on a standby, or must not.
    pub(super) writes: bool,
    /// What it does to the session.
    pub(super) effects: Effects,
}

const fn writes(effects: Effects) -> Call {
    Call { writes: true, effects }
}

/// Names that are exact.
const EXACT: &[(&str, Call)] = &[
    ("nextval", writes(Effects::NEXTVAL)),
    ("setval", writes(Effects::NEXTVAL)),
    ("currval", writes(Effects::LAST_INSERT_ID)),
    ("lastval", writes(Effects::LAST_INSERT_ID)),
    ("set_config", writes(Effects::SET_CONFIG)),
    ("setseed", writes(Effects::SEED)),
    ("pg_notify", writes(Effects::NONE)),
    ("loread", writes(Effects::NONE)),
    ("lowrite", writes(Effects::NONE)),
    ("txid_current", writes(Effects::NONE)),
    ("pg_current_xact_id", writes(Effects::NONE)),
    ("pg_export_snapshot", writes(Effects::NONE)),
    ("pg_drop_replication_slot", writes(Effects::NONE)),
    ("pg_switch_wal", writes(Effects::NONE)),
    ("pg_promote", writes(Effects::NONE)),
    ("pg_reload_conf", writes(Effects::NONE)),
    ("pg_rotate_logfile", writes(Effects::NONE)),
    ("pg_terminate_backend", writes(Effects::NONE)),
    ("pg_cancel_backend", writes(Effects::NONE)),
];

/// Beginnings of names; the first that fits counts.
const PREFIXES: &[(&str, Call)] = &[
    ("pg_advisory_xact_", writes(Effects::NONE)),
    ("pg_try_advisory_xact_", writes(Effects::NONE)),
    ("pg_advisory_unlock", writes(Effects::MAY_UNPIN)),
    ("pg_advisory_", writes(Effects::LOCK)),
    ("pg_try_advisory_", writes(Effects::LOCK)),
    ("pg_logical_", writes(Effects::NONE)),
    ("pg_create_", writes(Effects::NONE)),
    ("pg_replication_origin_", writes(Effects::HIDDEN)),
    ("pg_replication_", writes(Effects::NONE)),
    ("pg_wal_replay_", writes(Effects::NONE)),
    ("pg_stat_reset", writes(Effects::NONE)),
    ("lo_", writes(Effects::NONE)),
    ("dblink", writes(Effects::CALLS_UNKNOWN)),
    ("query_to_xml", writes(Effects::CALLS_UNKNOWN)),
    ("cursor_to_xml", writes(Effects::NONE)),
    ("pg_backup_", writes(Effects::HIDDEN)),
];

/// Names before `(` that leave nothing in the session: functions of PostgreSQL 15 (`pg_proc` of its `postgres.bki`) and what 16 to 18 added, some of
/// its extensions, and words of the grammar. A name that is missing here costs a round trip when the connection goes to another client.
static HARMLESS: LazyLock<Vec<&str>> = LazyLock::new(|| include_str!("harmless.txt").lines().collect());
/// Longest name that PostgreSQL tells apart.
const LONGEST: usize = 63;

/// Whether a call of `name` surely leaves nothing in the session.
pub(super) fn is_harmless(name: &[u8]) -> bool {
    let mut folded = [0; LONGEST];
    let Some(folded) = folded.get_mut(..name.len()) else { return false };
    folded.copy_from_slice(name);
    folded.make_ascii_lowercase();
    HARMLESS.binary_search_by(|known| known.as_bytes().cmp(folded)).is_ok()
}

/// What calling `name` does; `None` for all the harmless ones.
pub(super) fn lookup(name: &[u8]) -> Option<Call> {
    if !matches!(name.first().map(u8::to_ascii_lowercase), Some(b'c' | b'd' | b'l' | b'n' | b'p' | b'q' | b's' | b't')) {
        return None;
    }
    let exact = EXACT.iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name));
    let prefix =
        || PREFIXES.iter().find(|(known, _)| name.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known.as_bytes())));
    exact.or_else(prefix).map(|(_, call)| *call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_names_are_found_in_any_case() {
        assert!(HARMLESS.is_sorted());
        for name in ["count", "LOWER", "jsonb_agg", "in", "values", "varchar", "row_number", "coalesce"] {
            assert!(is_harmless(name.as_bytes()), "{name}");
        }
        for name in ["", "mine", "set_config", "ts_stat", "query_to_xml", "nextval", &"x".repeat(100)] {
            assert!(!is_harmless(name.as_bytes()), "{name}");
        }
    }
}
