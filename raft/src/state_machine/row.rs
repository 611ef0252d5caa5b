//! Rows between SQLite, protobuf and their canonical bytes, and the statements that read and write them by key.

use std::collections::HashMap;
use std::sync::LazyLock;

use quorumsql_proto::log as pb;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, ToSql, params_from_iter};

use crate::command::{Layer, Value};
use crate::tables::{TABLES, TableDescription};

/// Values in the order of a table's columns.
pub(crate) type Row = Vec<Value>;

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(value) => ValueRef::Integer(*value),
            Self::Real(value) => ValueRef::Real(*value),
            Self::Text(value) => ValueRef::Text(value.as_bytes()),
            Self::Blob(value) => ValueRef::Blob(value),
        }))
    }
}

/// A value as SQLite holds it; text that is not UTF-8 is an error.
pub(crate) fn value_of(value: ValueRef<'_>) -> Result<Value, std::str::Utf8Error> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Integer(value),
        ValueRef::Real(value) => Value::Real(value),
        ValueRef::Text(bytes) => Value::Text(std::str::from_utf8(bytes)?.to_string()),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
    })
}

/// The columns `from..from + count` of a result row.
pub(crate) fn values_of(row: &rusqlite::Row<'_>, from: usize, count: usize) -> rusqlite::Result<Row> {
    (from..from + count)
        .map(|position| value_of(row.get_ref(position)?).map_err(|error| rusqlite::Error::Utf8Error(position, error)))
        .collect()
}

pub(crate) fn to_proto(row: &[Value]) -> Vec<pb::Value> {
    use pb::value::Kind;
    row.iter()
        .map(|value| pb::Value {
            kind: match value {
                Value::Null => None,
                Value::Integer(value) => Some(Kind::Integer(*value)),
                Value::Real(value) => Some(Kind::Real(*value)),
                Value::Text(value) => Some(Kind::Text(value.clone())),
                Value::Blob(value) => Some(Kind::Blob(value.clone().into())),
            },
        })
        .collect()
}

pub(crate) fn from_proto(row: &[pb::Value]) -> Row {
    use pb::value::Kind;
    row.iter()
        .map(|value| match &value.kind {
            None => Value::Null,
            Some(Kind::Integer(value)) => Value::Integer(*value),
            Some(Kind::Real(value)) => Value::Real(*value),
            Some(Kind::Text(value)) => Value::Text(value.clone()),
            Some(Kind::Blob(value)) => Value::Blob(value.to_vec()),
        })
        .collect()
}

/// Canonical bytes of a row or key: per value a tag (0 NULL, 1 INTEGER, 2 REAL, 3 TEXT, 4 BLOB), then 8 bytes big-endian
/// or a length (4 bytes big-endian) and the bytes. Hashed and stored, so it never changes.
pub(crate) fn encode(row: &[Value]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(row.len() * 12);
    for value in row {
        match value {
            Value::Null => bytes.push(0),
            Value::Integer(value) => {
                bytes.push(1);
                bytes.extend_from_slice(&value.to_be_bytes());
            }
            Value::Real(value) => {
                bytes.push(2);
                bytes.extend_from_slice(&value.to_bits().to_be_bytes());
            }
            Value::Text(value) => encode_bytes(&mut bytes, 3, value.as_bytes()),
            Value::Blob(value) => encode_bytes(&mut bytes, 4, value),
        }
    }
    bytes
}

fn encode_bytes(bytes: &mut Vec<u8>, tag: u8, value: &[u8]) {
    bytes.push(tag);
    // SQLite's values are below 2^30 bytes (its own limit), entries below 1 MiB.
    bytes.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(value);
}

/// Reads what [`encode`] wrote; `None` for anything else.
pub(crate) fn decode(mut bytes: &[u8]) -> Option<Row> {
    let mut row = Row::new();
    while let Some((tag, rest)) = bytes.split_first() {
        let (value, rest) = match tag {
            0 => (Value::Null, rest),
            1 => rest.split_first_chunk().map(|(raw, rest)| (Value::Integer(i64::from_be_bytes(*raw)), rest))?,
            2 => rest.split_first_chunk().map(|(raw, rest)| (Value::Real(f64::from_bits(u64::from_be_bytes(*raw))), rest))?,
            3 | 4 => {
                let (raw, rest) = rest.split_first_chunk()?;
                let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*raw) as usize)?;
                let value = if *tag == 3 { Value::Text(String::from_utf8(value.to_vec()).ok()?) } else { Value::Blob(value.to_vec()) };
                (value, rest)
            }
            _ => return None,
        };
        row.push(value);
        bytes = rest;
    }
    Some(row)
}

/// Equality as SQLite stores it: a real is its bits.
pub(crate) fn same(left: &[Value], right: &[Value]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|pair| match pair {
            (Value::Real(left), Value::Real(right)) => left.to_bits() == right.to_bits(),
            (left, right) => left == right,
        })
}

/// A key for people: `(10, 'db1', 3306)`.
pub(crate) fn key_text(key: &[Value]) -> String {
    let values: Vec<String> = key
        .iter()
        .map(|value| match value {
            Value::Null => "NULL".into(),
            Value::Integer(value) => value.to_string(),
            Value::Real(value) => value.to_string(),
            Value::Text(value) => format!("'{value}'"),
            Value::Blob(value) => format!("blob of {} bytes", value.len()),
        })
        .collect();
    format!("({})", values.join(", "))
}

/// The statements for one table in one layer.
#[derive(Debug)]
struct Statements {
    select: String,
    select_all: String,
    insert: String,
    update: String,
    delete: String,
    key: Vec<usize>,
}

static STATEMENTS: LazyLock<HashMap<(&'static str, Layer), Statements>> = LazyLock::new(|| {
    let layers = [Layer::Memory, Layer::Runtime, Layer::Disk];
    TABLES.iter().flat_map(|table| layers.map(|layer| ((table.name, layer), Statements::new(table, layer)))).collect()
});

impl Statements {
    fn new(table: &TableDescription, layer: Layer) -> Self {
        let (name, columns, count) = (table.physical(layer), table.column_list(), table.columns.len());
        let values: Vec<String> = (1..=count).map(|n| format!("?{n}")).collect();
        let assignments: Vec<String> =
            table.columns.iter().zip(&values).map(|(column, value)| format!("{} = {value}", column.name)).collect();
        let by_key = |first: usize| -> String {
            let terms: Vec<String> =
                table.primary_key.iter().enumerate().map(|(n, column)| format!("{column} IS ?{}", first + n)).collect();
            terms.join(" AND ")
        };
        Self {
            select: format!("SELECT {columns} FROM {name} WHERE {}", by_key(1)),
            select_all: format!("SELECT {columns} FROM {name} ORDER BY {}", table.primary_key.join(", ")),
            insert: format!("INSERT INTO {name} ({columns}) VALUES ({})", values.join(", ")),
            update: format!("UPDATE {name} SET {} WHERE {}", assignments.join(", "), by_key(count + 1)),
            delete: format!("DELETE FROM {name} WHERE {}", by_key(1)),
            key: table.key_positions(),
        }
    }

    fn of(table: &TableDescription, layer: Layer) -> &'static Self {
        &STATEMENTS[&(table.name, layer)]
    }
}

/// The key of a full row.
pub(crate) fn key_of(table: &TableDescription, row: &[Value]) -> Row {
    Statements::of(table, Layer::Memory).key.iter().map(|position| row[*position].clone()).collect()
}

pub(crate) fn fetch(connection: &Connection, table: &TableDescription, layer: Layer, key: &[Value]) -> rusqlite::Result<Option<Row>> {
    let mut statement = connection.prepare_cached(&Statements::of(table, layer).select)?;
    statement.query_row(params_from_iter(key), |row| values_of(row, 0, table.columns.len())).optional()
}

/// All rows in key order.
pub(crate) fn fetch_all(connection: &Connection, table: &TableDescription, layer: Layer) -> rusqlite::Result<Vec<Row>> {
    let mut statement = connection.prepare_cached(&Statements::of(table, layer).select_all)?;
    statement.query_map([], |row| values_of(row, 0, table.columns.len()))?.collect()
}

/// Calls `work` with every row, in key order; one row is in memory at a time.
pub(crate) fn for_each(
    connection: &Connection,
    table: &TableDescription,
    layer: Layer,
    mut work: impl FnMut(&[Value]),
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(&Statements::of(table, layer).select_all)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        work(&values_of(row, 0, table.columns.len())?);
    }
    Ok(())
}

pub(crate) fn insert(connection: &Connection, table: &TableDescription, layer: Layer, row: &[Value]) -> rusqlite::Result<usize> {
    connection.prepare_cached(&Statements::of(table, layer).insert)?.execute(params_from_iter(row))
}

pub(crate) fn update(
    connection: &Connection,
    table: &TableDescription,
    layer: Layer,
    key: &[Value],
    row: &[Value],
) -> rusqlite::Result<usize> {
    connection.prepare_cached(&Statements::of(table, layer).update)?.execute(params_from_iter(row.iter().chain(key)))
}

pub(crate) fn delete(connection: &Connection, table: &TableDescription, layer: Layer, key: &[Value]) -> rusqlite::Result<usize> {
    connection.prepare_cached(&Statements::of(table, layer).delete)?.execute(params_from_iter(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_bytes_and_protobuf_give_the_row_back() {
        let row = vec![Value::Null, Value::Integer(-1), Value::Real(0.5), Value::Text("ä".into()), Value::Blob(vec![0, 255])];
        let bytes = encode(&row);
        assert_eq!(bytes[..10], [0, 1, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(decode(&bytes), Some(row.clone()));
        assert_eq!(from_proto(&to_proto(&row)), row);
        for cut in 1..bytes.len() {
            assert_ne!(decode(&bytes[..cut]), Some(row.clone()));
        }
        assert_eq!(decode(&[9]), None);
        assert_eq!(key_text(&row), "(NULL, -1, 0.5, 'ä', blob of 2 bytes)");
    }
}
