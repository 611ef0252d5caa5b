//! Which statements may call a stored function, as far as their text tells: those change session state in ways that do not show in it.

/// What may stand before a parenthesis without being the name of a stored function, sorted: words of the grammar, and the servers'
/// own functions in common use. None of these changes the session in a way that is not known otherwise.
const HARMLESS: [&str; 222] = [
    "abs",
    "adddate",
    "aes_decrypt",
    "aes_encrypt",
    "all",
    "and",
    "any",
    "as",
    "ascii",
    "avg",
    "between",
    "bin",
    "bit_and",
    "bit_count",
    "bit_length",
    "bit_or",
    "bit_xor",
    "by",
    "case",
    "cast",
    "ceil",
    "ceiling",
    "char",
    "char_length",
    "character_length",
    "charset",
    "coalesce",
    "collation",
    "compress",
    "concat",
    "concat_ws",
    "conv",
    "convert",
    "convert_tz",
    "cos",
    "count",
    "crc32",
    "curdate",
    "current_date",
    "current_time",
    "current_timestamp",
    "current_user",
    "curtime",
    "database",
    "date",
    "date_add",
    "date_format",
    "date_sub",
    "datediff",
    "day",
    "dayname",
    "dayofmonth",
    "dayofweek",
    "dayofyear",
    "decimal",
    "degrees",
    "distinct",
    "div",
    "else",
    "elt",
    "exists",
    "exp",
    "extract",
    "field",
    "find_in_set",
    "floor",
    "format",
    "from",
    "from_base64",
    "from_days",
    "from_unixtime",
    "greatest",
    "group_concat",
    "having",
    "hex",
    "hour",
    "if",
    "ifnull",
    "in",
    "insert",
    "instr",
    "interval",
    "is",
    "isnull",
    "join",
    "json_array",
    "json_arrayagg",
    "json_contains",
    "json_extract",
    "json_keys",
    "json_length",
    "json_object",
    "json_objectagg",
    "json_quote",
    "json_search",
    "json_set",
    "json_type",
    "json_unquote",
    "json_valid",
    "key",
    "last_day",
    "last_insert_id",
    "lcase",
    "least",
    "left",
    "length",
    "like",
    "limit",
    "ln",
    "localtime",
    "localtimestamp",
    "locate",
    "log",
    "log10",
    "log2",
    "lower",
    "lpad",
    "ltrim",
    "makedate",
    "match",
    "max",
    "md5",
    "microsecond",
    "mid",
    "min",
    "minute",
    "mod",
    "month",
    "monthname",
    "not",
    "now",
    "nullif",
    "oct",
    "octet_length",
    "on",
    "or",
    "ord",
    "over",
    "partition",
    "period_add",
    "pi",
    "position",
    "pow",
    "power",
    "quarter",
    "quote",
    "radians",
    "rand",
    "regexp",
    "repeat",
    "replace",
    "reverse",
    "right",
    "round",
    "row",
    "row_number",
    "rpad",
    "rtrim",
    "schema",
    "second",
    "select",
    "sha",
    "sha1",
    "sha2",
    "sign",
    "signed",
    "sin",
    "sleep",
    "soundex",
    "space",
    "sqrt",
    "std",
    "stddev",
    "str_to_date",
    "strcmp",
    "subdate",
    "substr",
    "substring",
    "substring_index",
    "sum",
    "sysdate",
    "tan",
    "then",
    "time",
    "time_format",
    "time_to_sec",
    "timediff",
    "timestamp",
    "timestampadd",
    "timestampdiff",
    "to_base64",
    "to_days",
    "trim",
    "truncate",
    "ucase",
    "uncompress",
    "unhex",
    "union",
    "unix_timestamp",
    "unsigned",
    "upper",
    "user",
    "using",
    "utc_date",
    "utc_time",
    "utc_timestamp",
    "uuid",
    "values",
    "var_pop",
    "varbinary",
    "varchar",
    "variance",
    "version",
    "week",
    "weekday",
    "weekofyear",
    "when",
    "where",
    "with",
    "xor",
    "year",
    "yearweek",
];

/// Longest of them.
const LONGEST: usize = 17;

/// Whether another name stands before a parenthesis somewhere: that of a function of somebody's own, or of one that is not listed.
/// Quotes are not looked for: too much is suspected, never too little. Cost: a search for parentheses.
pub(crate) fn may_call_stored(sql: &[u8]) -> bool {
    let (_, sql) = split_hint(sql);
    let mut rest = sql;
    let mut before = 0;
    while let Some(at) = rest.iter().position(|byte| *byte == b'(') {
        before += at;
        if !is_harmless(&sql[..before]) {
            return true;
        }
        before += 1;
        rest = &sql[before..];
    }
    false
}

/// Whether a hint sets variables for the statement alone, which MySQL reports as changed state.
pub(crate) fn sets_for_itself(sql: &[u8]) -> bool {
    const SET_VAR: &[u8] = b"set_var";
    let (hint, _) = split_hint(sql);
    hint.windows(SET_VAR.len()).any(|word| word.eq_ignore_ascii_case(SET_VAR))
}

/// The hint behind a SELECT that begins the text, and what follows it. Names in a hint are no functions.
fn split_hint(sql: &[u8]) -> (&[u8], &[u8]) {
    let hint = || {
        let (select, behind) = sql.trim_ascii_start().split_at_checked(6)?;
        let hint = behind.trim_ascii_start().strip_prefix(b"/*+").filter(|_| select.eq_ignore_ascii_case(b"select"))?;
        let end = hint.windows(2).position(|bytes| bytes == b"*/")?;
        Some(hint.split_at(end))
    };
    hint().unwrap_or((&[], sql))
}

/// Judges what stands before a parenthesis.
fn is_harmless(before: &[u8]) -> bool {
    let before = before.trim_ascii_end();
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..);
    let start = before.iter().rposition(|byte| !is_name(byte)).map_or(0, |at| at + 1);
    let word = &before[start..];
    if word.is_empty() {
        // Behind a quoted name, or an operator.
        return !matches!(before.last(), Some(b'`' | b'"'));
    }
    if word.len() > LONGEST || start > 0 && matches!(before[start - 1], b'.' | b'`') {
        return false;
    }
    let mut lower = [0; LONGEST];
    let lower = &mut lower[..word.len()];
    lower.copy_from_slice(word);
    lower.make_ascii_lowercase();
    HARMLESS.binary_search_by(|known| known.as_bytes().cmp(lower)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_measured() {
        assert!(HARMLESS.is_sorted());
        assert_eq!(HARMLESS.iter().map(|name| name.len()).max(), Some(LONGEST));
    }

    #[test]
    fn names_before_parentheses() {
        let hint = "select/*+ SET_VAR(sort_buffer_size = 262144) INDEX(t i) */ 1";
        for sql in
            [hint, "SELECT 1", "SELECT COUNT (*), (a) FROM t WHERE b IN (1, -(2)) AND (c)", "SELECT Max(a) FROM (SELECT 1 AS a) AS t"]
        {
            assert!(!may_call_stored(sql.as_bytes()), "{sql}");
        }
        for sql in [
            "SELECT mine()",
            "SELECT `mine` ()",
            "SELECT demo.count(1)",
            "SELECT \"mine\"()",
            "SELECT \u{fc}ber(1)",
            "SELECT xcount(1)",
            "SELECT /*+ SET_VAR(a = '*/') */ mine()",
            "SELECT '/*+', mine(), '*/'",
            "SELECT /*+ never closed mine()",
            "SELECT a_name_that_is_longer_than_any_function_of_the_server_itself(1)",
        ] {
            assert!(may_call_stored(sql.as_bytes()), "{sql}");
        }
    }

    #[test]
    fn hints_that_set_variables() {
        for (sql, sets) in [
            ("SELECT /*+ SET_VAR(a = 1) */ 1", true),
            (" select/*+ MAX_EXECUTION_TIME(5) set_var (a=1)*/1", true),
            ("SELECT /*+ MAX_EXECUTION_TIME(5) */ 1", false),
            ("SELECT 1 /*+ SET_VAR(a = 1) */", false),
            ("SELECT set_var(1)", false),
            ("SELECT", false),
        ] {
            assert_eq!(sets_for_itself(sql.as_bytes()), sets, "{sql}");
        }
    }
}
