//! Prepared statements of one connection.

use std::collections::HashMap;

use quorumsql_wire::mysql::params::{ExecuteBody, Value as WireValue};

use crate::sql_server::database::{Column, Description, SqlError, Value};
use crate::sql_server::value::from_bytes;

/// Statements per connection.
const MAX_STATEMENTS: usize = 1024;

/// Bytes of long data per connection.
const MAX_LONG_DATA: usize = 16 * 1024 * 1024;

/// A prepared statement as its answer tells it.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) id: u32,
    pub(super) parameters: u16,
    pub(super) columns: Vec<Column>,
}

#[derive(Debug)]
struct Statement {
    sql: String,
    parameters: u16,
    /// Two bytes a parameter, of the last execution that sent them.
    types: Vec<u8>,
    long: HashMap<usize, Vec<u8>>,
    /// Long data of this statement exceeded the limit: its next execution fails.
    too_long: bool,
}

/// All of a connection.
#[derive(Debug, Default)]
pub(super) struct PreparedStatements {
    statements: HashMap<u32, Statement>,
    last_id: u32,
    long_bytes: usize,
}

impl PreparedStatements {
    pub(super) fn add(&mut self, sql: &str, description: Description) -> Result<Prepared, SqlError> {
        if self.statements.len() >= MAX_STATEMENTS {
            return Err(SqlError::new(1461, "42000", "53000", format!("Can't create more than {MAX_STATEMENTS} prepared statements")));
        }
        let parameters = u16::try_from(description.parameters).map_err(|_| SqlError::new(1390, "HY000", "54000", "too many parameters"))?;
        self.last_id = self.last_id.wrapping_add(1);
        let statement = Statement { sql: sql.into(), parameters, types: Vec::new(), long: HashMap::new(), too_long: false };
        self.statements.insert(self.last_id, statement);
        Ok(Prepared { id: self.last_id, parameters, columns: description.columns.unwrap_or_default() })
    }

    pub(super) fn close(&mut self, id: u32) {
        if let Some(statement) = self.statements.remove(&id) {
            self.long_bytes -= statement.long.values().map(Vec::len).sum::<usize>();
        }
    }

    pub(super) fn reset(&mut self, id: u32) -> Result<(), SqlError> {
        let statement = self.statements.get_mut(&id).ok_or_else(|| unknown(id))?;
        statement.too_long = false;
        self.long_bytes -= statement.long.drain().map(|(_, data)| data.len()).sum::<usize>();
        Ok(())
    }

    /// Never answered: what is wrong shows at the execution.
    pub(super) fn long_data(&mut self, id: u32, parameter: u16, data: &[u8]) {
        let Some(statement) = self.statements.get_mut(&id).filter(|statement| parameter < statement.parameters) else { return };
        if self.long_bytes + data.len() > MAX_LONG_DATA {
            statement.too_long = true;
            return;
        }
        self.long_bytes += data.len();
        statement.long.entry(usize::from(parameter)).or_default().extend_from_slice(data);
    }

    /// Text and parameters of an execution.
    pub(super) fn bind(&mut self, id: u32, body: &[u8]) -> Result<(String, Vec<Value>), SqlError> {
        let statement = self.statements.get_mut(&id).ok_or_else(|| unknown(id))?;
        let malformed = || SqlError::new(1835, "HY000", "08P01", "Malformed communication packet");
        let body = ExecuteBody::decode(body, statement.parameters).map_err(|_| malformed())?;
        if let Some(types) = body.types {
            statement.types = types.to_vec();
        }
        if statement.types.len() != usize::from(statement.parameters) * 2 {
            return Err(malformed());
        }
        let bound = {
            let long = &statement.long;
            let values = body.decode_values(&statement.types, |at| long.get(&at).map(Vec::as_slice)).map_err(|_| malformed())?;
            (statement.sql.clone(), values.iter().map(value).collect())
        };
        let too_long = statement.too_long;
        self.reset(id)?;
        if too_long {
            return Err(SqlError::new(1153, "08S01", "54000", format!("parameters of more than {MAX_LONG_DATA} bytes are not taken")));
        }
        Ok(bound)
    }
}

fn unknown(id: u32) -> SqlError {
    SqlError::new(1243, "HY000", "26000", format!("Unknown prepared statement handler ({id}) given to mysqld_stmt_execute"))
}

fn value(value: &WireValue<'_>) -> Value {
    match *value {
        WireValue::Null => Value::Null,
        WireValue::Int(number) => Value::Integer(number),
        WireValue::UInt(number) => i64::try_from(number).map_or_else(|_| Value::Text(number.to_string()), Value::Integer),
        WireValue::Float(number) => Value::Real(f64::from(number)),
        WireValue::Double(number) => Value::Real(number),
        WireValue::Bytes(bytes) => from_bytes(bytes),
        WireValue::DateTime { .. } | WireValue::Time { .. } => value.to_text().map_or(Value::Null, |text| from_bytes(&text)),
    }
}
