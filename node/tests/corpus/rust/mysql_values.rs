//! Parameters of cases in MySQL's binary protocol.

use anyhow::Context as _;
use quorumsql_wire::mysql::column::kind;
use quorumsql_wire::mysql::writer::Put as _;

use super::unhex;
use crate::cases::Parameter;

/// Whether it may go as long data.
pub(super) fn is_text(parameter: &Parameter) -> bool {
    matches!(parameter.0.as_str(), "text" | "bytes")
}

/// The bytes of a text, or of bytes in hex.
pub(super) fn bytes_of(Parameter(kind, value): &Parameter) -> anyhow::Result<Vec<u8>> {
    let text = value.as_str().context("a text")?;
    Ok(if kind == "bytes" { unhex(text) } else { text.as_bytes().to_vec() })
}

/// Appends a value unless it is NULL or was sent as long data; its type.
pub(super) fn value(parameter: &Parameter, is_long: bool, out: &mut Vec<u8>) -> anyhow::Result<u8> {
    let Parameter(name, value) = parameter;
    Ok(match name.as_str() {
        "null" => kind::NULL,
        "bool" => {
            out.u8(u8::from(value.as_bool().context("a truth value")?));
            kind::TINY
        }
        "int" => {
            out.u64(value.as_i64().context("a number")? as u64);
            kind::LONGLONG
        }
        "bigint" => {
            out.u64(value.as_str().context("a text")?.parse::<i64>()? as u64);
            kind::LONGLONG
        }
        "float" => {
            out.u64(value.as_f64().context("a number")?.to_bits());
            kind::DOUBLE
        }
        "date" | "timestamp" => {
            let [year, month, day, hour, minute, second, micros] = parameter.date_time()?;
            let whole = name == "timestamp";
            out.u8(if whole { 11 } else { 4 });
            out.u16(u16::try_from(year)?);
            out.extend([month as u8, day as u8]);
            if whole {
                out.extend([hour as u8, minute as u8, second as u8]);
                out.u32(micros);
            }
            if whole { kind::DATETIME } else { kind::DATE }
        }
        "time" => {
            let [hour, minute, second, micros] = parameter.time()?;
            out.extend([12, 0, 0, 0, 0, 0, hour as u8, minute as u8, second as u8]);
            out.u32(micros);
            kind::TIME
        }
        _ => {
            if !is_long {
                out.lenenc_bytes(&bytes_of(parameter)?);
            }
            match name.as_str() {
                "decimal" => kind::NEWDECIMAL,
                "bytes" => kind::BLOB,
                _ => kind::VAR_STRING,
            }
        }
    })
}
