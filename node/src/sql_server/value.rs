//! Values between SQLite and the wire.

use std::borrow::Cow;

use super::database::{ColumnKind, Value};

/// The value as text, in SQLite's form; `None` = NULL.
pub(crate) fn text(value: &Value) -> Option<Cow<'_, [u8]>> {
    match value {
        Value::Null => None,
        Value::Integer(number) => Some(Cow::Owned(number.to_string().into_bytes())),
        Value::Real(number) => Some(Cow::Owned(real_text(*number).into_bytes())),
        Value::Text(text) => Some(Cow::Borrowed(text.as_bytes())),
        Value::Blob(bytes) => Some(Cow::Borrowed(bytes)),
    }
}

/// The shortest digits that are read back as the same number, always with a point or an exponent, as SQLite prints REAL.
pub(crate) fn real_text(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "NaN".into()
        } else if number > 0.0 {
            "Inf".into()
        } else {
            "-Inf".into()
        };
    }
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e17).contains(&size) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let point = if digits.contains('.') { "" } else { ".0" };
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        return format!("{digits}{point}e{sign}{exponent:0>2}");
    }
    let text = number.to_string();
    if text.contains('.') { text } else { format!("{text}.0") }
}

/// What a column of this kind can carry in a binary form: SQLite lets any value into any column.
pub(crate) fn as_kind(value: &Value, kind: ColumnKind) -> Cow<'_, Value> {
    let kind = if kind == ColumnKind::Int4 { ColumnKind::Integer } else { kind };
    let parsed = |text: &str| text.trim().parse::<f64>().unwrap_or(0.0);
    match (kind, value) {
        (_, Value::Null)
        | (ColumnKind::Integer, Value::Integer(_))
        | (ColumnKind::Real, Value::Real(_))
        | (ColumnKind::Text, Value::Text(_))
        | (ColumnKind::Blob, Value::Blob(_)) => Cow::Borrowed(value),
        (ColumnKind::Integer, Value::Real(number)) => Cow::Owned(Value::Integer(*number as i64)),
        (ColumnKind::Integer, Value::Text(digits)) => {
            Cow::Owned(Value::Integer(digits.trim().parse().unwrap_or_else(|_| parsed(digits) as i64)))
        }
        (ColumnKind::Integer, Value::Blob(_)) => Cow::Owned(Value::Integer(0)),
        (ColumnKind::Real, Value::Integer(number)) => Cow::Owned(Value::Real(*number as f64)),
        (ColumnKind::Real, Value::Text(digits)) => Cow::Owned(Value::Real(parsed(digits))),
        (ColumnKind::Real, Value::Blob(_)) => Cow::Owned(Value::Real(0.0)),
        (ColumnKind::Text | ColumnKind::Blob | ColumnKind::Int4, other) => {
            Cow::Owned(Value::Blob(text(other).unwrap_or_default().into_owned()))
        }
    }
}

/// Bytes of a client: text where they are UTF-8.
pub(crate) fn from_bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::Text(text.into()),
        Err(_) => Value::Blob(bytes.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reals_print_as_in_sqlite() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        for number in [0.0, 1.0, -1.5, 0.1 + 0.2, 1e14, 1e15, 1e16, 1e17, 1e18, 123_456_789.123_456_78, 1e-5, 0.0001, 2.5e300, -7e-12] {
            let expected: String = connection.query_row("SELECT CAST(?1 AS TEXT)", [number], |row| row.get(0)).unwrap();
            assert_eq!(real_text(number), expected, "{number}");
        }
    }
}
