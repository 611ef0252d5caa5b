//! Types that a statement itself gives to its parameters: `$1::int4`, as a PostgreSQL server would infer them.

use quorumsql_wire::pgsql::backend::oid;

use crate::sql_server::lexer::{Kind, tokens};

/// For each parameter with a cast directly behind it: its number from 1, and the type's OID.
pub(super) fn parameter_types(sql: &str) -> Vec<(usize, u32)> {
    let tokens = tokens(sql);
    let cast = |window: &[crate::sql_server::lexer::Token<'_>]| {
        let [parameter, first, second, name] = window else { return None };
        if parameter.kind != Kind::Parameter || !first.is_sign(':') || !second.is_sign(':') {
            return None;
        }
        let number = parameter.text.strip_prefix('$')?.parse().ok().filter(|number| *number > 0)?;
        Some((number, type_oid(&name.unquoted())?))
    };
    tokens.windows(4).filter_map(cast).collect()
}

fn type_oid(name: &str) -> Option<u32> {
    Some(match name.to_ascii_lowercase().as_str() {
        "int2" | "smallint" => 21,
        "int" | "int4" | "integer" => oid::INT4,
        "int8" | "bigint" => oid::INT8,
        "float8" | "double" => oid::FLOAT8,
        "numeric" => oid::NUMERIC,
        "bool" | "boolean" => oid::BOOL,
        "bytea" => oid::BYTEA,
        "text" | "varchar" => oid::TEXT,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_name_the_types_of_parameters() {
        for (sql, expected) in [
            ("SELECT 40 + $1::int4", vec![(1, oid::INT4)]),
            ("SELECT $2::bigint, $1 :: text, '$3::int4', $4::point", vec![(2, oid::INT8), (1, oid::TEXT)]),
            ("SELECT 1::int4, $1", vec![]),
            ("SELECT $0::int4", vec![]),
        ] {
            assert_eq!(parameter_types(sql), expected, "{sql}");
        }
    }
}
