//! Variables that are set for one statement: MariaDB's `SET STATEMENT variable = value FOR statement`, MySQL's hint
//! `/*+ SET_VAR(variable = value) */`. They have their old values again behind the statement, but the server reports that session
//! state has changed, as it does where the statement itself has changed some.

use quorumsql_wire::sql::Class;

use super::calls;

/// Whether the text is one after which the session is as before: `class` is that of the inner statement. A write may run a
/// trigger, and what is not understood may do anything.
pub(crate) fn leaves_nothing(class: Class, sql: &[u8]) -> bool {
    if class != Class::Read || calls::may_call_stored(sql) {
        return false;
    }
    if calls::sets_for_itself(sql) {
        return true;
    }
    let Ok(text) = std::str::from_utf8(sql) else { return false };
    let mut words = text.split_ascii_whitespace();
    let mut next_is = |word: &str| words.next().is_some_and(|next| next.eq_ignore_ascii_case(word));
    next_is("set") && next_is("statement")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_without_stored_functions_leave_nothing() {
        for sql in [
            "SET STATEMENT max_statement_time = 5 FOR SELECT 4",
            "set  statement max_statement_time=5, sort_buffer_size=(1+2) for select count(*) from t where a IN (1, 2) and (b)",
            "SET STATEMENT lock_wait_timeout=1 FOR SELECT MAX (a) FROM (SELECT 1 AS a) AS t",
            "SELECT /*+ SET_VAR(sort_buffer_size = 262144) MAX_EXECUTION_TIME(9) */ MAX(a) FROM t",
        ] {
            assert!(leaves_nothing(Class::Read, sql.as_bytes()), "{sql}");
            assert!(!leaves_nothing(Class::Write, sql.as_bytes()), "{sql}");
        }
        for sql in [
            "SELECT 4",
            "SELECT /*+ SET_VAR(sort_buffer_size = 262144) */ mine()",
            "SET STATEMENT max_statement_time=5 FOR SELECT mine()",
            "SET STATEMENT max_statement_time=5 FOR SELECT `mine`()",
            "SET STATEMENT max_statement_time=5 FOR SELECT demo.count(1)",
            "SET STATEMENT max_statement_time=5 FOR SELECT über(1)",
            "SET /* x */ STATEMENT max_statement_time=5 FOR SELECT 4",
        ] {
            assert!(!leaves_nothing(Class::Read, sql.as_bytes()), "{sql}");
        }
    }
}
