//! Column definitions and result sets, for who answers queries itself.

use super::capabilities::{Capabilities, Status};
use super::packet::PacketWriter;
use super::params::{Value, put_binary_row};
use super::reader::{Reader, WireError};
use super::response::{EofPacket, OkPacket};
use super::writer::Put;

/// Column types (`enum_field_types`).
pub mod kind {
    /// TINYINT.
    pub const TINY: u8 = 1;
    /// SMALLINT.
    pub const SHORT: u8 = 2;
    /// INT.
    pub const LONG: u8 = 3;
    /// FLOAT.
    pub const FLOAT: u8 = 4;
    /// DOUBLE.
    pub const DOUBLE: u8 = 5;
    /// NULL.
    pub const NULL: u8 = 6;
    /// TIMESTAMP.
    pub const TIMESTAMP: u8 = 7;
    /// BIGINT.
    pub const LONGLONG: u8 = 8;
    /// MEDIUMINT.
    pub const INT24: u8 = 9;
    /// DATE.
    pub const DATE: u8 = 10;
    /// TIME.
    pub const TIME: u8 = 11;
    /// DATETIME.
    pub const DATETIME: u8 = 12;
    /// YEAR.
    pub const YEAR: u8 = 13;
    /// VARCHAR.
    pub const VARCHAR: u8 = 15;
    /// BIT.
    pub const BIT: u8 = 16;
    /// JSON.
    pub const JSON: u8 = 245;
    /// DECIMAL.
    pub const NEWDECIMAL: u8 = 246;
    /// ENUM.
    pub const ENUM: u8 = 247;
    /// SET.
    pub const SET: u8 = 248;
    /// TINYBLOB.
    pub const TINY_BLOB: u8 = 249;
    /// MEDIUMBLOB.
    pub const MEDIUM_BLOB: u8 = 250;
    /// LONGBLOB.
    pub const LONG_BLOB: u8 = 251;
    /// BLOB and TEXT.
    pub const BLOB: u8 = 252;
    /// VARCHAR and VARBINARY in results.
    pub const VAR_STRING: u8 = 253;
    /// CHAR.
    pub const STRING: u8 = 254;
    /// GEOMETRY.
    pub const GEOMETRY: u8 = 255;
}

/// Column flags.
pub mod flag {
    /// NOT NULL.
    pub const NOT_NULL: u16 = 1;
    /// Part of the primary key.
    pub const PRIMARY_KEY: u16 = 2;
    /// UNSIGNED.
    pub const UNSIGNED: u16 = 0x20;
    /// Binary collation.
    pub const BINARY: u16 = 0x80;
}

/// `Protocol::ColumnDefinition41`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Column {
    /// Schema.
    pub schema: String,
    /// Table as named in the statement.
    pub table: String,
    /// Table.
    pub org_table: String,
    /// Column as named in the statement.
    pub name: String,
    /// Column.
    pub org_name: String,
    /// Collation id of the values; 63 = binary and numbers.
    pub charset: u16,
    /// Longest value in bytes.
    pub length: u32,
    /// Type, see [`kind`].
    pub kind: u8,
    /// Flags, see [`flag`].
    pub flags: u16,
    /// Decimals; 31 = not fixed.
    pub decimals: u8,
}

impl Column {
    /// A text column in utf8mb3 (collation 33), as servers name results that belong to no table.
    #[must_use]
    pub fn text(name: impl Into<String>) -> Self {
        Self { name: name.into(), charset: 33, length: 1024, kind: kind::VAR_STRING, decimals: 31, ..Self::default() }
    }

    /// A signed 64-bit number.
    #[must_use]
    pub fn integer(name: impl Into<String>) -> Self {
        Self { name: name.into(), charset: 63, length: 21, kind: kind::LONGLONG, flags: flag::BINARY, ..Self::default() }
    }

    /// A double.
    #[must_use]
    pub fn double(name: impl Into<String>) -> Self {
        Self { name: name.into(), charset: 63, length: 23, kind: kind::DOUBLE, flags: flag::BINARY, decimals: 31, ..Self::default() }
    }

    /// Appends the payload. `field_list` adds the default value (NULL) that COM_FIELD_LIST has.
    pub fn encode(&self, field_list: bool, out: &mut Vec<u8>) {
        out.lenenc_bytes(b"def");
        for text in [&self.schema, &self.table, &self.org_table, &self.name, &self.org_name] {
            out.lenenc_bytes(text.as_bytes());
        }
        out.u8(0x0c);
        out.u16(self.charset);
        out.u32(self.length);
        out.u8(self.kind);
        out.u16(self.flags);
        out.u8(self.decimals);
        out.u16(0);
        if field_list {
            out.u8(0xfb);
        }
    }

    /// Reads a payload.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(payload);
        reader.lenenc_bytes("catalog")?;
        let mut text = |what| reader.lenenc_bytes(what).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let (schema, table, org_table) = (text("schema")?, text("table")?, text("org table")?);
        let (name, org_name) = (text("name")?, text("org name")?);
        reader.lenenc("length of fixed fields")?;
        Ok(Self {
            schema,
            table,
            org_table,
            name,
            org_name,
            charset: reader.u16("character set")?,
            length: reader.u32("column length")?,
            kind: reader.u8("type")?,
            flags: reader.u16("flags")?,
            decimals: reader.u8("decimals")?,
        })
    }
}

/// How a result set ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// Status; MORE_RESULTS if another result follows.
    pub status: Status,
    /// Number of warnings.
    pub warnings: u16,
}

impl End {
    /// Appends the packet that ends rows: EOF, or OK with 0xFE for a client with DEPRECATE_EOF.
    pub fn write(self, capabilities: Capabilities, packets: &mut PacketWriter<'_>) {
        packets.packet(|out| {
            if capabilities.contains(Capabilities::DEPRECATE_EOF) {
                OkPacket { status: self.status, warnings: self.warnings, ..OkPacket::default() }.encode(0xfe, out);
            } else {
                EofPacket { warnings: self.warnings, status: self.status }.encode(out);
            }
        });
    }
}

/// The head of a result set: column count, definitions, and EOF for a client without DEPRECATE_EOF.
pub fn write_columns(columns: &[Column], capabilities: Capabilities, status: Status, packets: &mut PacketWriter<'_>) {
    packets.packet(|out| out.lenenc(columns.len() as u64));
    write_definitions(columns, capabilities, status, packets);
}

/// Column definitions without their count, as after [`super::response::PrepareOk`]; nothing for no columns.
pub fn write_definitions(columns: &[Column], capabilities: Capabilities, status: Status, packets: &mut PacketWriter<'_>) {
    for column in columns {
        packets.packet(|out| column.encode(false, out));
    }
    if !columns.is_empty() && !capabilities.contains(Capabilities::DEPRECATE_EOF) {
        packets.packet(|out| EofPacket { warnings: 0, status }.encode(out));
    }
}

/// A row of COM_QUERY.
pub fn write_text_row<'v>(values: impl IntoIterator<Item = Option<&'v [u8]>>, packets: &mut PacketWriter<'_>) {
    packets.packet(|out| {
        for value in values {
            match value {
                None => out.u8(0xfb),
                Some(bytes) => out.lenenc_bytes(bytes),
            }
        }
    });
}

/// A row of COM_STMT_EXECUTE; each value is written in the form of its column's type.
pub fn write_binary_row(columns: &[Column], values: &[Value<'_>], packets: &mut PacketWriter<'_>) {
    packets.packet(|out| put_binary_row(columns, values, out));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mysql::packet::decode_packet;

    #[test]
    fn a_definition_byte_by_byte() {
        let column = Column { schema: "s".into(), table: "t".into(), org_table: "t".into(), ..Column::integer("id") };
        let mut out = Vec::new();
        column.encode(false, &mut out);
        let expected = b"\x03def\x01s\x01t\x01t\x02id\x00\x0c\x3f\x00\x15\x00\x00\x00\x08\x80\x00\x00\x00\x00";
        assert_eq!(out, expected);
        assert_eq!(Column::decode(&out), Ok(column));
        for end in 0..out.len() - 2 {
            assert!(Column::decode(&out[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn a_result_set_in_both_forms() {
        for (capabilities, packets_expected) in [(Capabilities::NONE, 5), (Capabilities::DEPRECATE_EOF, 4)] {
            let mut out = Vec::new();
            let mut packets = PacketWriter::new(&mut out, 1);
            let columns = [Column::text("a")];
            write_columns(&columns, capabilities, Status::AUTOCOMMIT, &mut packets);
            write_text_row([Some(&b"x"[..])], &mut packets);
            End { status: Status::AUTOCOMMIT, warnings: 0 }.write(capabilities, &mut packets);
            let mut rest = &out[..];
            let mut count = 0;
            while let Some(packet) = decode_packet(rest, 1 << 20).unwrap() {
                rest = &rest[packet.consumed..];
                count += 1;
                assert_eq!(packet.sequence, count);
            }
            assert_eq!(count, packets_expected);
        }
    }

    #[test]
    fn definitions_never_panic() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let _ = Column::decode(bytes);
        });
    }
}
