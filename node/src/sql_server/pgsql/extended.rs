//! Parse, Bind, Describe, Execute, Close of one connection.
//!
//! A portal whose columns are asked for is run at Describe: SQLite knows the types of an expression only from its value.

use std::collections::HashMap;

use quorumsql_wire::pgsql::backend::{self, oid};
use quorumsql_wire::pgsql::frontend::{Bind, Format, Formats, FrontendMessage, Parse, Target};

use super::message::{tag, write_columns, write_notices, write_row};
use crate::sql_server::database::{Answer, Column, Description, Session, SqlError, Value};
use crate::sql_server::lexer::statements;
use crate::sql_server::value::from_bytes;

/// Prepared statements, and portals, per connection.
const MAX_NAMED: usize = 1024;

#[derive(Clone, Debug)]
struct Statement {
    sql: String,
    /// Types of the parameters; unspecified ones are text.
    types: Vec<u32>,
    columns: Option<Vec<Column>>,
    /// The client has been told these columns: results must have their types.
    told: bool,
}

#[derive(Debug)]
struct Portal {
    sql: String,
    params: Vec<Value>,
    formats: Vec<Format>,
    has_rows: bool,
    told: Option<Vec<Column>>,
    answer: Option<Answer>,
    sent: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Extended {
    statements: HashMap<Vec<u8>, Statement>,
    portals: HashMap<Vec<u8>, Portal>,
    skipping: bool,
}

impl Extended {
    /// After an error, until Sync.
    pub(super) const fn is_skipping(&self) -> bool {
        self.skipping
    }

    pub(super) fn skip_to_sync(&mut self) {
        self.skipping = true;
    }

    /// Sync: portals live as long as their transaction.
    pub(super) fn end_of_batch(&mut self, in_transaction: bool) {
        self.skipping = false;
        if !in_transaction {
            self.portals.clear();
        }
    }

    /// A simple query destroys what is unnamed.
    pub(super) fn forget_unnamed(&mut self) {
        self.statements.remove(&b""[..]);
        self.portals.remove(&b""[..]);
    }

    /// Carries out one message; `false` = the connection ends.
    pub(super) async fn on_message<S: Session>(
        &mut self,
        message: FrontendMessage<'_>,
        session: &mut S,
        out: &mut Vec<u8>,
    ) -> Result<bool, SqlError> {
        match message {
            FrontendMessage::Parse(parse) => self.parse(parse, session, out).await?,
            FrontendMessage::Bind(bind) => self.bind(bind, out)?,
            FrontendMessage::Describe(Target::Statement, name) => self.describe_statement(name, out)?,
            FrontendMessage::Describe(Target::Portal, name) => self.describe_portal(name, session, out).await?,
            FrontendMessage::Execute { portal, max_rows } => return self.execute(portal, max_rows as usize, session, out).await,
            FrontendMessage::Close(target, name) => {
                match target {
                    Target::Statement => drop(self.statements.remove(name)),
                    Target::Portal => drop(self.portals.remove(name)),
                }
                backend::close_complete(out);
            }
            _ => return Err(SqlError::new(1835, "HY000", "08P01", "unexpected message")),
        }
        Ok(true)
    }

    async fn parse<S: Session>(&mut self, parse: Parse<'_>, session: &mut S, out: &mut Vec<u8>) -> Result<(), SqlError> {
        let sql = std::str::from_utf8(parse.sql).map_err(|_| super::message::not_utf8())?;
        let pieces = statements(sql);
        if pieces.len() > 1 {
            return Err(SqlError::new(1064, "42000", "42601", "cannot insert multiple commands into a prepared statement"));
        }
        if !parse.name.is_empty() && self.statements.contains_key(parse.name) {
            let text = format!("prepared statement \"{}\" already exists", String::from_utf8_lossy(parse.name));
            return Err(SqlError::new(1461, "42000", "42P05", text));
        }
        full(self.statements.len())?;
        let sql = pieces.first().copied().unwrap_or("");
        let described = if sql.is_empty() { Description::default() } else { session.describe(sql).await? };
        let mut types: Vec<u32> = parse.oids().take(described.parameters).collect();
        types.resize(described.parameters, 0);
        for (number, oid) in super::casts::parameter_types(sql) {
            if let Some(unspecified @ 0) = types.get_mut(number - 1) {
                *unspecified = oid;
            }
        }
        types.iter_mut().filter(|oid| **oid == 0).for_each(|oid| *oid = oid::TEXT);
        self.statements.insert(parse.name.to_vec(), Statement { sql: sql.into(), types, columns: described.columns, told: false });
        backend::parse_complete(out);
        Ok(())
    }

    fn statement(&mut self, name: &[u8]) -> Result<&mut Statement, SqlError> {
        let unknown = || {
            let text = if name.is_empty() {
                "unnamed prepared statement does not exist".to_owned()
            } else {
                format!("prepared statement \"{}\" does not exist", String::from_utf8_lossy(name))
            };
            SqlError::new(1243, "HY000", "26000", text)
        };
        self.statements.get_mut(name).ok_or_else(unknown)
    }

    fn bind(&mut self, bind: Bind<'_>, out: &mut Vec<u8>) -> Result<(), SqlError> {
        full(self.portals.len())?;
        let statement = self.statement(bind.statement)?.clone();
        let arguments = bind.arguments().map_err(|_| SqlError::new(1835, "HY000", "08P01", "invalid Bind message"))?;
        if arguments.values.len() != statement.types.len() {
            let text = format!(
                "bind message supplies {} parameters, but the prepared statement requires {}",
                arguments.values.len(),
                statement.types.len()
            );
            return Err(SqlError::new(1210, "HY000", "08P01", text));
        }
        let mut params = Vec::with_capacity(arguments.values.len());
        for (at, (value, type_oid)) in arguments.values.iter().zip(&statement.types).enumerate() {
            params.push(match value {
                None => Value::Null,
                Some(bytes) => parameter(bytes, *type_oid, arguments.formats.of(at))?,
            });
        }
        let portal = Portal {
            sql: statement.sql,
            params,
            formats: formats(&arguments.result_formats)?,
            has_rows: statement.columns.is_some(),
            told: statement.columns.filter(|_| statement.told),
            answer: None,
            sent: 0,
        };
        self.portals.insert(bind.portal.to_vec(), portal);
        backend::bind_complete(out);
        Ok(())
    }

    fn describe_statement(&mut self, name: &[u8], out: &mut Vec<u8>) -> Result<(), SqlError> {
        let statement = self.statement(name)?;
        backend::parameter_description(out, &statement.types);
        statement.told = true;
        match &statement.columns {
            Some(columns) => write_columns(out, columns, |_| Some(Format::Text)),
            None => backend::no_data(out),
        }
        Ok(())
    }

    fn portal(&mut self, name: &[u8]) -> Result<&mut Portal, SqlError> {
        let unknown = || SqlError::new(1243, "HY000", "34000", format!("portal \"{}\" does not exist", String::from_utf8_lossy(name)));
        self.portals.get_mut(name).ok_or_else(unknown)
    }

    async fn describe_portal<S: Session>(&mut self, name: &[u8], session: &mut S, out: &mut Vec<u8>) -> Result<(), SqlError> {
        let portal = self.portal(name)?;
        if !portal.has_rows {
            backend::no_data(out);
            return Ok(());
        }
        portal.run(session).await?;
        match portal.columns() {
            Some(columns) => write_columns(out, columns, |at| portal.format(at)),
            None => backend::no_data(out),
        }
        Ok(())
    }

    async fn execute<S: Session>(&mut self, name: &[u8], max_rows: usize, session: &mut S, out: &mut Vec<u8>) -> Result<bool, SqlError> {
        let portal = self.portal(name)?;
        if portal.sql.is_empty() {
            backend::empty_query(out);
            return Ok(true);
        }
        portal.run(session).await?;
        portal.send(max_rows, out);
        Ok(!matches!(&portal.answer, Some(Answer::Done(done)) if done.close))
    }
}

impl Portal {
    async fn run<S: Session>(&mut self, session: &mut S) -> Result<(), SqlError> {
        if self.answer.is_none() {
            self.answer = Some(session.execute(&self.sql, &self.params).await?);
        }
        Ok(())
    }

    /// The columns that the client knows, else those of the result.
    fn columns(&self) -> Option<&[Column]> {
        match &self.answer {
            Some(Answer::Rows(rows)) => Some(self.told.as_deref().filter(|told| told.len() == rows.columns.len()).unwrap_or(&rows.columns)),
            _ => None,
        }
    }

    fn format(&self, at: usize) -> Option<Format> {
        match self.formats.as_slice() {
            [] => Some(Format::Text),
            [only] => Some(*only),
            several => several.get(at).copied(),
        }
    }

    fn send(&mut self, max_rows: usize, out: &mut Vec<u8>) {
        match &self.answer {
            Some(Answer::Rows(rows)) => {
                if self.sent == 0 {
                    write_notices(out, &rows.notices);
                }
                let columns = self.columns().unwrap_or_default();
                let rest = rows.rows.get(self.sent..).unwrap_or_default();
                let count = if max_rows == 0 { rest.len() } else { rest.len().min(max_rows) };
                for row in &rest[..count] {
                    write_row(out, columns, row, |at| self.format(at));
                }
                if count < rest.len() {
                    backend::portal_suspended(out);
                } else {
                    backend::command_complete(out, &format!("SELECT {count}"));
                }
                self.sent += count;
            }
            Some(Answer::Done(done)) => {
                write_notices(out, &done.notices);
                backend::command_complete(out, &tag(done, &self.sql));
            }
            None => {}
        }
    }
}

fn full(count: usize) -> Result<(), SqlError> {
    if count >= MAX_NAMED {
        return Err(SqlError::new(
            1461,
            "42000",
            "53400",
            format!("more than {MAX_NAMED} prepared statements or portals on one connection"),
        ));
    }
    Ok(())
}

fn formats(given: &Formats<'_>) -> Result<Vec<Format>, SqlError> {
    let unknown = || SqlError::new(1835, "HY000", "08P01", "unsupported format code");
    (0..given.count()).map(|at| given.of(at).ok_or_else(unknown)).collect()
}

/// Types whose binary form is text.
const TEXT_TYPES: [u32; 7] = [oid::TEXT, oid::VARCHAR, 18, 19, 114, 705, 1042];
const INT2: u32 = 21;
const OID: u32 = 26;
const FLOAT4: u32 = 700;

/// A parameter as SQLite stores it.
fn parameter(bytes: &[u8], type_oid: u32, format: Option<Format>) -> Result<Value, SqlError> {
    let invalid = || SqlError::new(1210, "HY000", "22P02", format!("invalid value for a parameter of type {type_oid}"));
    match format {
        Some(Format::Text) => {
            let text = std::str::from_utf8(bytes).map_err(|_| super::message::not_utf8())?;
            text_parameter(text, type_oid).ok_or_else(invalid)
        }
        Some(Format::Binary) if TEXT_TYPES.contains(&type_oid) => Ok(from_bytes(bytes)),
        Some(Format::Binary) => binary_parameter(bytes, type_oid).ok_or_else(invalid),
        None => Err(SqlError::new(1835, "HY000", "08P01", "unsupported format code")),
    }
}

fn text_parameter(text: &str, type_oid: u32) -> Option<Value> {
    match type_oid {
        INT2 | oid::INT4 | oid::INT8 | OID => text.trim().parse().ok().map(Value::Integer),
        FLOAT4 | oid::FLOAT8 | oid::NUMERIC => {
            text.trim().parse().ok().map(Value::Integer).or_else(|| text.trim().parse().ok().map(Value::Real))
        }
        oid::BOOL => match text.trim().to_ascii_lowercase().as_str() {
            "t" | "true" | "on" | "yes" | "y" | "1" => Some(Value::Integer(1)),
            "f" | "false" | "off" | "no" | "n" | "0" => Some(Value::Integer(0)),
            _ => None,
        },
        oid::BYTEA => {
            let digits = text.strip_prefix("\\x")?;
            let pairs =
                digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()));
            pairs.collect::<Option<Vec<u8>>>().map(Value::Blob)
        }
        _ => Some(Value::Text(text.into())),
    }
}

fn binary_parameter(bytes: &[u8], type_oid: u32) -> Option<Value> {
    match type_oid {
        INT2 => bytes.try_into().ok().map(|bytes| Value::Integer(i16::from_be_bytes(bytes).into())),
        oid::INT4 => bytes.try_into().ok().map(|bytes| Value::Integer(i32::from_be_bytes(bytes).into())),
        OID => bytes.try_into().ok().map(|bytes| Value::Integer(u32::from_be_bytes(bytes).into())),
        oid::INT8 => bytes.try_into().ok().map(|bytes| Value::Integer(i64::from_be_bytes(bytes))),
        FLOAT4 => bytes.try_into().ok().map(|bytes| Value::Real(f32::from_be_bytes(bytes).into())),
        oid::FLOAT8 => bytes.try_into().ok().map(|bytes| Value::Real(f64::from_be_bytes(bytes))),
        oid::BOOL => bytes.first().map(|byte| Value::Integer((*byte).into())),
        oid::BYTEA => Some(Value::Blob(bytes.to_vec())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_become_values_of_their_type() {
        for (bytes, type_oid, format, expected) in [
            (&b"42"[..], oid::INT4, Format::Text, Some(Value::Integer(42))),
            (b"\0\x2a", INT2, Format::Binary, Some(Value::Integer(42))),
            (b"\0\0\0\0\0\0\0\x2a", oid::INT8, Format::Binary, Some(Value::Integer(42))),
            (b"1.5", oid::NUMERIC, Format::Text, Some(Value::Real(1.5))),
            (b"t", oid::BOOL, Format::Text, Some(Value::Integer(1))),
            (b"\\x00ff", oid::BYTEA, Format::Text, Some(Value::Blob(vec![0, 255]))),
            (b"x", oid::TEXT, Format::Binary, Some(Value::Text("x".into()))),
            (b"x", oid::INT4, Format::Text, None),
            (b"\0", oid::INT8, Format::Binary, None),
            (b"\0\x01", oid::NUMERIC, Format::Binary, None),
        ] {
            assert_eq!(parameter(bytes, type_oid, Some(format)).ok(), expected, "{bytes:?} {type_oid}");
        }
    }
}
