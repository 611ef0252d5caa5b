//! Binary parameters (COM_STMT_EXECUTE) and binary rows.

use super::column::{Column, flag, kind};
use super::reader::{Reader, WireError};
use super::writer::Put;

/// What follows the fixed part of COM_STMT_EXECUTE.
///
/// ```text
/// NULL bitmap, (n + 7) / 8 bytes | int<1> types follow | n × (int<1> type, int<1> 0x80 = unsigned), if they do | values
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExecuteBody<'a> {
    /// Bit i = parameter i is NULL.
    pub null_bitmap: &'a [u8],
    /// Two bytes a parameter; `None` = those of the last execution hold.
    pub types: Option<&'a [u8]>,
    /// Values of the parameters that are neither NULL nor sent as long data.
    pub values: &'a [u8],
}

impl<'a> ExecuteBody<'a> {
    /// Reads the body for a statement with this many parameters.
    pub fn decode(body: &'a [u8], parameters: u16) -> Result<Self, WireError> {
        if parameters == 0 {
            return Ok(Self { null_bitmap: &[], types: None, values: &[] });
        }
        let mut reader = Reader::new(body);
        let count = usize::from(parameters);
        let null_bitmap = reader.take(count.div_ceil(8), "NULL bitmap")?;
        let types = match reader.u8("types flag")? {
            0 => None,
            _ => Some(reader.take(2 * count, "parameter types")?),
        };
        Ok(Self { null_bitmap, types, values: reader.take_rest() })
    }

    /// `true` = parameter `index` is NULL.
    #[must_use]
    pub fn is_null(&self, index: usize) -> bool {
        self.null_bitmap.get(index / 8).is_some_and(|byte| byte & 1 << (index % 8) != 0)
    }

    /// All parameters. `types` are this body's or the remembered ones; `long_data(i)` gives what COM_STMT_SEND_LONG_DATA sent.
    pub fn decode_values(&self, types: &[u8], long_data: impl Fn(usize) -> Option<&'a [u8]>) -> Result<Vec<Value<'a>>, WireError> {
        let mut reader = Reader::new(self.values);
        let mut values = Vec::with_capacity(types.len() / 2);
        for (index, pair) in types.chunks_exact(2).enumerate() {
            let value = match long_data(index) {
                Some(data) => Value::Bytes(data),
                None if self.is_null(index) => Value::Null,
                None => Value::decode(pair[0], pair[1] & 0x80 != 0, &mut reader)?,
            };
            values.push(value);
        }
        Ok(values)
    }

    /// Checks that the values are there and have the form of their types, without keeping them, and says what a server takes
    /// each for. `long_data` as above. Cost: `kinds` is cleared and filled again.
    pub fn check_values(
        &self,
        types: &[u8],
        long_data: impl Fn(usize) -> Option<&'a [u8]>,
        kinds: &mut Vec<ParameterKind>,
    ) -> Result<(), WireError> {
        let mut reader = Reader::new(self.values);
        kinds.clear();
        for (index, pair) in types.chunks_exact(2).enumerate() {
            let unsigned = pair[1] & 0x80 != 0;
            let value = match long_data(index) {
                Some(data) => Value::Bytes(data),
                None if self.is_null(index) => Value::Null,
                None => Value::decode(pair[0], unsigned, &mut reader)?,
            };
            kinds.push(ParameterKind::of(pair[0], value));
        }
        Ok(())
    }
}

/// What MySQL takes the value of a parameter for when it compares it with the type that it has resolved the parameter to
/// (`Prepared_statement::check_parameter_types` of 8.0.22 and later): values of one kind never make it resolve anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParameterKind {
    /// NULL, which fits every type.
    Null,
    /// A signed integer of any width.
    Int,
    /// An unsigned integer of any width.
    UInt,
    /// FLOAT, DOUBLE.
    Double,
    /// DECIMAL.
    Decimal,
    /// DATE.
    Date,
    /// DATETIME, TIMESTAMP.
    DateTime,
    /// TIME.
    Time,
    /// Text.
    Text,
    /// Bytes without a character set.
    Binary,
    /// Text or bytes that may be a number beyond 64 bits, which an integer parameter takes as DECIMAL.
    BigNumber,
}

impl ParameterKind {
    fn of(type_byte: u8, value: Value<'_>) -> Self {
        match (value, type_byte) {
            (Value::Null, _) => Self::Null,
            (Value::Int(_), _) => Self::Int,
            (Value::UInt(_), _) => Self::UInt,
            (Value::Float(_) | Value::Double(_), _) => Self::Double,
            (Value::DateTime { .. }, kind::DATE) => Self::Date,
            (Value::DateTime { .. }, _) => Self::DateTime,
            (Value::Time { .. }, _) => Self::Time,
            (Value::Bytes(_), 0 | kind::NEWDECIMAL) => Self::Decimal,
            (Value::Bytes(bytes), _) if may_be_big_number(bytes) => Self::BigNumber,
            (Value::Bytes(_), kind::TINY_BLOB..=kind::BLOB) => Self::Binary,
            (Value::Bytes(_), _) => Self::Text,
        }
    }
}

/// Whether all of it can be a number, and one that 64 bits might not hold. Most texts are told by their first byte.
fn may_be_big_number(text: &[u8]) -> bool {
    let of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E' | b' ' | b'\t'..=b'\r');
    let big = text.len() > 18 || text.iter().take(18).any(|byte| matches!(byte, b'e' | b'E'));
    text.first().is_some_and(of_number) && big && text.iter().all(of_number)
}

/// A value in the binary protocol.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// A signed integer of any width.
    Int(i64),
    /// An unsigned integer of any width.
    UInt(u64),
    /// FLOAT.
    Float(f32),
    /// DOUBLE.
    Double(f64),
    /// Text, binary, decimal, JSON …
    Bytes(&'a [u8]),
    /// DATE, DATETIME, TIMESTAMP.
    DateTime {
        /// Year.
        year: u16,
        /// Month.
        month: u8,
        /// Day.
        day: u8,
        /// Hour.
        hour: u8,
        /// Minute.
        minute: u8,
        /// Second.
        second: u8,
        /// Microsecond.
        micros: u32,
    },
    /// TIME.
    Time {
        /// Before zero.
        negative: bool,
        /// Days.
        days: u32,
        /// Hour.
        hour: u8,
        /// Minute.
        minute: u8,
        /// Second.
        second: u8,
        /// Microsecond.
        micros: u32,
    },
}

impl<'a> Value<'a> {
    /// Reads a value of this type.
    pub fn decode(type_byte: u8, unsigned: bool, reader: &mut Reader<'a>) -> Result<Self, WireError> {
        const WHAT: &str = "parameter value";
        let value = match (type_byte, unsigned) {
            (kind::NULL, _) => Self::Null,
            (kind::TINY, true) => Self::UInt(u64::from(reader.u8(WHAT)?)),
            (kind::TINY, false) => Self::Int(i64::from(reader.u8(WHAT)? as i8)),
            (kind::SHORT | kind::YEAR, true) => Self::UInt(u64::from(reader.u16(WHAT)?)),
            (kind::SHORT | kind::YEAR, false) => Self::Int(i64::from(reader.u16(WHAT)? as i16)),
            (kind::LONG | kind::INT24, true) => Self::UInt(u64::from(reader.u32(WHAT)?)),
            (kind::LONG | kind::INT24, false) => Self::Int(i64::from(reader.u32(WHAT)? as i32)),
            (kind::LONGLONG, true) => Self::UInt(reader.u64(WHAT)?),
            (kind::LONGLONG, false) => Self::Int(reader.u64(WHAT)? as i64),
            (kind::FLOAT, _) => Self::Float(f32::from_bits(reader.u32(WHAT)?)),
            (kind::DOUBLE, _) => Self::Double(f64::from_bits(reader.u64(WHAT)?)),
            (kind::DATE | kind::DATETIME | kind::TIMESTAMP, _) => Self::decode_datetime(reader)?,
            (kind::TIME, _) => Self::decode_time(reader)?,
            (kind::VARCHAR | kind::BIT | kind::JSON..=kind::GEOMETRY | 0, _) => Self::Bytes(reader.lenenc_bytes(WHAT)?),
            _ => return Err(WireError::Malformed("unknown parameter type")),
        };
        Ok(value)
    }

    fn decode_datetime(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        const WHAT: &str = "date";
        let length = reader.u8(WHAT)?;
        if !matches!(length, 0 | 4 | 7 | 11) {
            return Err(WireError::Malformed("length of a date"));
        }
        let mut part = Reader::new(reader.take(usize::from(length), WHAT)?);
        let (year, month, day) = if length >= 4 { (part.u16(WHAT)?, part.u8(WHAT)?, part.u8(WHAT)?) } else { (0, 0, 0) };
        let (hour, minute, second) = if length >= 7 { (part.u8(WHAT)?, part.u8(WHAT)?, part.u8(WHAT)?) } else { (0, 0, 0) };
        let micros = if length == 11 { part.u32(WHAT)? } else { 0 };
        Ok(Self::DateTime { year, month, day, hour, minute, second, micros })
    }

    fn decode_time(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        const WHAT: &str = "time";
        let length = reader.u8(WHAT)?;
        if !matches!(length, 0 | 8 | 12) {
            return Err(WireError::Malformed("length of a time"));
        }
        let mut part = Reader::new(reader.take(usize::from(length), WHAT)?);
        if length == 0 {
            return Ok(Self::Time { negative: false, days: 0, hour: 0, minute: 0, second: 0, micros: 0 });
        }
        Ok(Self::Time {
            negative: part.u8(WHAT)? != 0,
            days: part.u32(WHAT)?,
            hour: part.u8(WHAT)?,
            minute: part.u8(WHAT)?,
            second: part.u8(WHAT)?,
            micros: if length == 12 { part.u32(WHAT)? } else { 0 },
        })
    }

    /// The value as text, as in a text row; `None` = NULL.
    #[must_use]
    pub fn to_text(&self) -> Option<Vec<u8>> {
        let text = match *self {
            Self::Null => return None,
            Self::Bytes(bytes) => return Some(bytes.to_vec()),
            Self::Int(number) => number.to_string(),
            Self::UInt(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Double(number) => number.to_string(),
            Self::DateTime { year, month, day, hour, minute, second, micros } => {
                let mut text = format!("{year:04}-{month:02}-{day:02}");
                if (hour, minute, second, micros) != (0, 0, 0, 0) {
                    text.push_str(&format!(" {hour:02}:{minute:02}:{second:02}{}", fraction(micros)));
                }
                text
            }
            Self::Time { negative, days, hour, minute, second, micros } => {
                let hours = u64::from(days) * 24 + u64::from(hour);
                format!("{}{hours:02}:{minute:02}:{second:02}{}", if negative { "-" } else { "" }, fraction(micros))
            }
        };
        Some(text.into_bytes())
    }

    fn put(&self, column: &Column, out: &mut Vec<u8>) {
        let integer = |out: &mut Vec<u8>, number: i64| match column.kind {
            kind::TINY => out.u8(number as u8),
            kind::SHORT | kind::YEAR => out.u16(number as u16),
            kind::LONG | kind::INT24 => out.u32(number as u32),
            kind::LONGLONG => out.u64(number as u64),
            kind::DOUBLE => out.u64((number as f64).to_bits()),
            kind::FLOAT => out.u32((number as f32).to_bits()),
            _ => out.lenenc_bytes(number.to_string().as_bytes()),
        };
        match (*self, column.kind) {
            (Self::Null, _) => {}
            (Self::Int(number), _) => integer(out, number),
            (Self::UInt(number), kind::TINY..=kind::LONG | kind::LONGLONG | kind::INT24 | kind::YEAR) => integer(out, number as i64),
            (Self::Double(number), kind::DOUBLE) => out.u64(number.to_bits()),
            (Self::Double(number), kind::FLOAT) => out.u32((number as f32).to_bits()),
            (Self::Float(number), kind::FLOAT) => out.u32(number.to_bits()),
            (Self::Float(number), kind::DOUBLE) => out.u64(f64::from(number).to_bits()),
            (Self::Double(number), kind::TINY..=kind::LONG | kind::LONGLONG | kind::INT24) => integer(out, number as i64),
            (_, kind::TINY..=kind::DOUBLE | kind::LONGLONG | kind::INT24 | kind::YEAR) => {
                let text = self.to_text().unwrap_or_default();
                let text = std::str::from_utf8(&text).unwrap_or_default();
                match column.kind {
                    kind::DOUBLE => out.u64(text.parse::<f64>().unwrap_or_default().to_bits()),
                    kind::FLOAT => out.u32(text.parse::<f32>().unwrap_or_default().to_bits()),
                    _ if column.flags & flag::UNSIGNED != 0 => integer(out, text.parse::<u64>().unwrap_or_default() as i64),
                    _ => integer(out, text.parse().unwrap_or_default()),
                }
            }
            _ => out.lenenc_bytes(&self.to_text().unwrap_or_default()),
        }
    }
}

fn fraction(micros: u32) -> String {
    if micros == 0 { String::new() } else { format!(".{micros:06}") }
}

/// A binary row: 0, NULL bitmap with two bits offset, values in the form of their columns' types. Date and time columns must be
/// declared as text columns by who answers with text.
pub fn put_binary_row(columns: &[Column], values: &[Value<'_>], out: &mut Vec<u8>) {
    out.u8(0);
    let bitmap = out.len();
    out.resize(bitmap + (columns.len() + 9) / 8, 0);
    for (index, (column, value)) in columns.iter().zip(values).enumerate() {
        if *value == Value::Null {
            out[bitmap + (index + 2) / 8] |= 1 << ((index + 2) % 8);
        } else {
            value.put(column, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execute_body_byte_by_byte() {
        let body = [0b010, 1, kind::LONG, 0, kind::VAR_STRING, 0, kind::LONGLONG, 0x80, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x80];
        let execute = ExecuteBody::decode(&body, 3).unwrap();
        assert!(execute.is_null(1) && !execute.is_null(0));
        let types = execute.types.unwrap();
        let values = execute.decode_values(types, |_| None).unwrap();
        assert_eq!(values, [Value::Int(7), Value::Null, Value::UInt(0x8000_0000_0000_0001)]);
        for end in 0..body.len() {
            let short = ExecuteBody::decode(&body[..end], 3).and_then(|body| body.decode_values(types, |_| None));
            assert!(short.is_err(), "{end}");
        }
    }

    #[test]
    fn remembered_types_and_long_data() {
        let execute = ExecuteBody::decode(&[0, 0, 2, b'h', b'i'], 2).unwrap();
        assert_eq!(execute.types, None);
        let types = [kind::BLOB, 0, kind::VAR_STRING, 0];
        let values = execute.decode_values(&types, |index| (index == 0).then_some(&b"long"[..])).unwrap();
        assert_eq!(values, [Value::Bytes(b"long"), Value::Bytes(b"hi")]);
    }

    #[test]
    fn what_a_server_takes_values_for() {
        use ParameterKind::{BigNumber, Binary, Date, DateTime, Decimal, Double, Int, Null, Text, Time, UInt};
        let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
        let cases: Vec<([u8; 2], Vec<u8>, ParameterKind)> = vec![
            ([kind::TINY, 0], vec![1], Int),
            ([kind::LONGLONG, 0], vec![0; 8], Int),
            ([kind::SHORT, 0x80], vec![0; 2], UInt),
            ([kind::FLOAT, 0], vec![0; 4], Double),
            ([kind::DOUBLE, 0x80], vec![0; 8], Double),
            ([kind::NULL, 0], vec![], Null),
            ([kind::DATE, 0], vec![0], Date),
            ([kind::TIMESTAMP, 0], vec![0], DateTime),
            ([kind::DATETIME, 0], vec![0], DateTime),
            ([kind::TIME, 0], vec![0], Time),
            ([kind::NEWDECIMAL, 0], text("1.5"), Decimal),
            ([kind::VAR_STRING, 0], text("12"), Text),
            ([kind::STRING, 0], text(""), Text),
            ([kind::BLOB, 0], text("x"), Binary),
            ([kind::STRING, 0], text("550e8400-e29b-41d4-a716-446655440000"), Text),
            ([kind::STRING, 0], text("123456789012345678"), Text),
            ([kind::STRING, 0], text("-9223372036854775809"), BigNumber),
            ([kind::BLOB, 0], text(" 1e30"), BigNumber),
        ];
        let mut kinds = Vec::new();
        for (types, value, expected) in cases {
            let body = [&[0, 1], &types[..], &value].concat();
            ExecuteBody::decode(&body, 1).unwrap().check_values(&types, |_| None, &mut kinds).unwrap();
            assert_eq!(kinds, [expected], "{types:?} {value:?}");
        }
        let null = ExecuteBody::decode(&[1, 1, kind::LONG, 0], 1).unwrap();
        null.check_values(&[kind::LONG, 0], |_| None, &mut kinds).unwrap();
        assert_eq!(kinds, [Null]);
        null.check_values(&[kind::BLOB, 0], |_| Some(b"99999999999999999999"), &mut kinds).unwrap();
        assert_eq!(kinds, [BigNumber], "long data");
    }

    #[test]
    fn dates_and_times() {
        let cases: [(u8, &[u8], &str); 6] = [
            (kind::DATETIME, &[4, 0xea, 7, 11, 30], "2026-11-30"),
            (kind::DATETIME, &[7, 0xea, 7, 11, 30, 17, 5, 9], "2026-11-30 17:05:09"),
            (kind::TIMESTAMP, &[11, 0xea, 7, 11, 30, 17, 5, 9, 64, 66, 15, 0], "2026-11-30 17:05:09.1000000"),
            (kind::DATE, &[0], "0000-00-00"),
            (kind::TIME, &[8, 1, 1, 0, 0, 0, 2, 3, 4], "-26:03:04"),
            (kind::TIME, &[0], "00:00:00"),
        ];
        for (type_byte, bytes, text) in cases {
            let value = Value::decode(type_byte, false, &mut Reader::new(bytes)).unwrap();
            assert_eq!(String::from_utf8(value.to_text().unwrap()).unwrap(), text);
        }
        for bad in [&[5, 0, 0, 0, 0, 0][..], &[12], &[4, 1]] {
            assert!(Value::decode(kind::DATETIME, false, &mut Reader::new(bad)).is_err());
        }
    }

    #[test]
    fn a_binary_row_byte_by_byte() {
        let columns = [Column::integer("a"), Column::text("b"), Column::text("c")];
        let mut out = Vec::new();
        put_binary_row(&columns, &[Value::Int(-2), Value::Null, Value::Bytes(b"x")], &mut out);
        assert_eq!(out, [0, 0b1000, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, b'x']);
        out.clear();
        put_binary_row(&columns[..1], &[Value::Bytes(b"42")], &mut out);
        assert_eq!(out, [0, 0, 42, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn parameters_never_panic() {
        bolero::check!().with_type::<(Vec<u8>, u16)>().for_each(|(bytes, count)| {
            if let Ok(body) = ExecuteBody::decode(bytes, *count) {
                let _ = body.decode_values(body.types.unwrap_or_default(), |_| None);
            }
        });
    }
}
