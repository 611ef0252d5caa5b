//! Answers as messages.

use quorumsql_wire::pgsql::backend::{self, Column as WireColumn, oid};
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frontend::Format;

use crate::sql_server::database::{Column, ColumnKind, Done, SqlError, Value};
use crate::sql_server::lexer::{Kind, tokens};
use crate::sql_server::value::{as_kind, text};

pub(super) fn not_utf8() -> SqlError {
    SqlError::new(1300, "HY000", "22021", "invalid byte sequence for encoding \"UTF8\"")
}

pub(super) fn error_fields(error: &SqlError, fatal: bool) -> ErrorFields {
    if fatal { ErrorFields::fatal(&error.pgsql_state, &*error.message) } else { ErrorFields::error(&error.pgsql_state, &*error.message) }
}

pub(super) fn write_error(out: &mut Vec<u8>, error: &SqlError) {
    error_fields(error, false).encode(out);
}

pub(super) fn write_notices(out: &mut Vec<u8>, notices: &[String]) {
    for notice in notices {
        ErrorFields::warning("01000", &**notice).encode(out);
    }
}

pub(super) fn write_columns(out: &mut Vec<u8>, columns: &[Column], format: impl Fn(usize) -> Option<Format>) {
    let columns: Vec<WireColumn> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| WireColumn {
            format: i16::from(format(at) == Some(Format::Binary)),
            ..WireColumn::new(&column.name, type_oid(column.kind))
        })
        .collect();
    backend::row_description(out, &columns);
}

const fn type_oid(kind: ColumnKind) -> u32 {
    match kind {
        ColumnKind::Text => oid::TEXT,
        ColumnKind::Integer => oid::INT8,
        ColumnKind::Int4 => oid::INT4,
        ColumnKind::Real => oid::FLOAT8,
        ColumnKind::Blob => oid::BYTEA,
    }
}

pub(super) fn write_row(out: &mut Vec<u8>, columns: &[Column], row: &[Value], format: impl Fn(usize) -> Option<Format>) {
    let values: Vec<Option<Vec<u8>>> = row
        .iter()
        .zip(columns)
        .enumerate()
        .map(|(at, (value, column))| match format(at) {
            Some(Format::Binary) => binary(value, column.kind),
            _ => plain(value, column.kind),
        })
        .collect();
    backend::data_row(out, values.iter().map(Option::as_deref));
}

fn plain(value: &Value, kind: ColumnKind) -> Option<Vec<u8>> {
    if kind != ColumnKind::Blob {
        return text(value).map(std::borrow::Cow::into_owned);
    }
    let bytes = text(value)?;
    let mut hex = Vec::with_capacity(2 + 2 * bytes.len());
    hex.extend_from_slice(b"\\x");
    for byte in bytes.iter() {
        hex.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
    Some(hex)
}

fn binary(value: &Value, kind: ColumnKind) -> Option<Vec<u8>> {
    match as_kind(value, kind).as_ref() {
        Value::Null => None,
        Value::Integer(number) if kind == ColumnKind::Int4 => {
            let nearest = i32::try_from(*number).unwrap_or(if *number < 0 { i32::MIN } else { i32::MAX });
            Some(nearest.to_be_bytes().to_vec())
        }
        Value::Integer(number) => Some(number.to_be_bytes().to_vec()),
        Value::Real(number) => Some(number.to_be_bytes().to_vec()),
        Value::Text(text) => Some(text.as_bytes().to_vec()),
        Value::Blob(bytes) => Some(bytes.clone()),
    }
}

/// The command tag: the statement's own words, and rows where PostgreSQL counts them.
pub(super) fn tag(done: &Done, sql: &str) -> String {
    if !done.tag.is_empty() {
        return done.tag.clone();
    }
    let first = tokens(sql).iter().find(|token| token.kind == Kind::Word).map_or(String::new(), |token| token.text.to_ascii_uppercase());
    match first.as_str() {
        "INSERT" | "REPLACE" => format!("INSERT 0 {}", done.affected),
        "UPDATE" | "DELETE" => format!("{first} {}", done.affected),
        // A CTE in front of a write: the kind of write is not worth a parse.
        "WITH" => format!("UPDATE {}", done.affected),
        "CREATE" | "DROP" | "ALTER" => {
            let words: Vec<String> =
                tokens(sql).iter().filter(|token| token.kind == Kind::Word).take(2).map(|token| token.text.to_ascii_uppercase()).collect();
            words.join(" ")
        }
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_the_words_of_the_statement() {
        let done = Done { affected: 3, ..Done::default() };
        for (sql, expected) in [
            ("insert into t values (1)", "INSERT 0 3"),
            ("REPLACE INTO t VALUES (1)", "INSERT 0 3"),
            ("/* x */ DELETE FROM t", "DELETE 3"),
            ("LOAD MYSQL USERS TO RUNTIME", "LOAD"),
            ("CREATE TABLE t (a)", "CREATE TABLE"),
        ] {
            assert_eq!(tag(&done, sql), expected);
        }
    }

    #[test]
    fn values_have_a_text_and_a_binary_form() {
        let blob = Value::Blob(vec![0, 255]);
        assert_eq!(plain(&blob, ColumnKind::Blob), Some(b"\\x00ff".to_vec()));
        assert_eq!(binary(&Value::Text("7".into()), ColumnKind::Integer), Some(7_i64.to_be_bytes().to_vec()));
        assert_eq!(plain(&Value::Integer(7), ColumnKind::Text), Some(b"7".to_vec()));
        assert_eq!(binary(&Value::Integer(7), ColumnKind::Int4), Some(7_i32.to_be_bytes().to_vec()));
        assert_eq!(binary(&Value::Null, ColumnKind::Text), None);
    }
}
