//! The executions that have brought a client's prepared statement where it is (see [`super::ran`]), to be repeated where it is
//! prepared anew.
//!
//! What is repeated must do nothing but resolve types: it is a plain read that calls no function of somebody's own, without its
//! rows (`sql_select_limit = 0`), and for a millisecond where it has a LIMIT of its own (`max_execution_time`); MySQL resolves
//! parameters before it begins. Values matter little, but they do: `ADDDATE(?, 1)` is a DATE or a DATETIME by them.

use quorumsql_wire::mysql::params::ParameterKind;
use quorumsql_wire::sql::{Class, Scan};

use super::calls;
use super::ran::fit;

/// Most executions that are kept; a statement that has been brought to more places begins anew on another connection.
const MAX_STEPS: usize = 4;
/// Most bytes of one of them.
const MAX_BODY: usize = 1024;

/// What is kept of one client's statement.
#[derive(Debug, Default)]
pub(crate) struct Past {
    steps: Vec<Step>,
    /// There was something that is not kept.
    is_lost: bool,
}

/// An execution.
#[derive(Debug)]
struct Step {
    kinds: Box<[ParameterKind]>,
    /// What follows the statement's id in COM_STMT_EXECUTE, with types and without a cursor.
    body: Box<[u8]>,
}

impl Past {
    /// One more execution, with values of these kinds; `body` is asked for what follows the statement's id if it is to be kept,
    /// and has none if it cannot be sent again.
    pub(crate) fn run(&mut self, kinds: &[ParameterKind], body: impl FnOnce() -> Option<Vec<u8>>) {
        if kinds.is_empty() || self.is_lost || self.steps.last().is_some_and(|last| fit(&last.kinds, kinds)) {
            return;
        }
        match body().filter(|body| body.len() <= MAX_BODY && self.steps.len() < MAX_STEPS) {
            Some(body) => self.steps.push(Step { kinds: kinds.into(), body: body.into() }),
            None => *self = Self { steps: Vec::new(), is_lost: true },
        }
    }

    /// Whether it can be repeated.
    pub(crate) fn is_known(&self) -> bool {
        !self.steps.is_empty()
    }

    /// What follows the statement's id in each execution, in order.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &[u8]> {
        self.steps.iter().map(|step| &*step.body)
    }
}

/// Whether a statement may be executed once more, without its rows, and nothing comes of it.
pub(super) fn is_repeatable(scan: &Scan, sql: &[u8]) -> bool {
    scan.class == Class::Read && scan.effects.is_empty() && !calls::may_call_stored(sql) && !calls::sets_for_itself(sql)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ParameterKind::{Date, Decimal, Double, Int, Null, Text};
    use quorumsql_wire::sql::{ScanOptions, scan_mysql};

    #[test]
    fn only_a_plain_read_is_repeated() {
        let cases = [
            ("SELECT GREATEST(?, 2)", true),
            ("SELECT a FROM t WHERE b IN (SELECT c FROM u WHERE d = ?) LIMIT 5", true),
            ("SELECT f(?)", false),
            ("SELECT /*+ SET_VAR(sql_select_limit = 5) */ ?", false),
            ("SELECT a FROM t WHERE b = ? FOR UPDATE", false),
            ("SELECT @a := ?", false),
            ("SELECT LAST_INSERT_ID(?)", false),
            ("SELECT GET_LOCK(?, 1)", false),
            ("UPDATE t SET a = ?", false),
            ("CALL p(?)", false),
        ];
        for (sql, expected) in cases {
            let mut scan = Scan::default();
            scan_mysql(sql.as_bytes(), &ScanOptions::MYSQL, &mut scan);
            assert_eq!(is_repeatable(&scan, sql.as_bytes()), expected, "{sql}");
        }
    }

    #[test]
    fn executions_that_bring_a_statement_elsewhere_are_kept() {
        /// Executions, and the bodies of those that are kept.
        type Case<'a> = (&'a [(ParameterKind, &'a [u8])], &'a [&'a [u8]]);
        let long = [0; MAX_BODY + 1];
        let cases: [Case<'_>; 7] = [
            (&[], &[]),
            (&[(Int, b"a"), (Int, b"b"), (Null, b"c")], &[b"a"]),
            (&[(Decimal, b"a"), (Text, b"b"), (Double, b"c"), (Int, b"d")], &[b"a", b"c"]),
            (&[(Int, b"a"), (Date, b"b"), (Int, b"c"), (Date, b"d")], &[b"a", b"b", b"c", b"d"]),
            (&[(Int, b"a"), (Date, b"b"), (Int, b"c"), (Date, b"d"), (Int, b"e")], &[]),
            (&[(Int, &long), (Date, b"b")], &[]),
            (&[(Int, b""), (Date, b"b")], &[]),
        ];
        for (executions, kept) in cases {
            let mut past = Past::default();
            for (kind, body) in executions {
                past.run(&[*kind], || (!body.is_empty()).then(|| body.to_vec()));
            }
            assert_eq!(past.bodies().collect::<Vec<_>>(), kept, "{executions:?}");
            assert_eq!(past.is_known(), !kept.is_empty());
        }
    }
}
