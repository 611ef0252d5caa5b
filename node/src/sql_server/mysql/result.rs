//! Result sets as packets.

use std::io;

use quorumsql_wire::mysql::column::{Column as WireColumn, End, kind, write_binary_row, write_columns, write_definitions, write_text_row};
use quorumsql_wire::mysql::params::Value as WireValue;
use quorumsql_wire::mysql::response::PrepareOk;
use quorumsql_wire::mysql::{Capabilities, PacketWriter, Status as Flags};

use super::prepared::Prepared;
use crate::sql_server::database::{Column, ColumnKind, Rows, Value};
use crate::sql_server::socket::Socket;
use crate::sql_server::value::{as_kind, text};

/// Bytes that are collected before they are sent.
const SEND_BYTES: usize = 64 * 1024;

/// Sends a result set but for its last bytes, which stay in `out`; gives the next sequence id.
pub(super) async fn send_rows(
    rows: &Rows,
    end: End,
    capabilities: Capabilities,
    binary: bool,
    sequence: u8,
    socket: &mut Socket,
    out: &mut Vec<u8>,
) -> io::Result<u8> {
    let columns: Vec<WireColumn> = rows.columns.iter().map(column).collect();
    let mut packets = PacketWriter::new(out, sequence);
    write_columns(&columns, capabilities, end.status, &mut packets);
    for row in &rows.rows {
        if binary {
            binary_row(&rows.columns, &columns, row, &mut packets);
        } else {
            let texts: Vec<_> = row.iter().map(text).collect();
            write_text_row(texts.iter().map(Option::as_deref), &mut packets);
        }
        if packets.buffered() >= SEND_BYTES {
            socket.send(packets.buffer()).await?;
        }
    }
    end.write(capabilities, &mut packets);
    Ok(packets.sequence())
}

fn binary_row(kinds: &[Column], columns: &[WireColumn], row: &[Value], packets: &mut PacketWriter<'_>) {
    let fitting: Vec<_> = row.iter().zip(kinds).map(|(value, column)| as_kind(value, column.kind)).collect();
    let values: Vec<WireValue<'_>> = fitting
        .iter()
        .map(|value| match value.as_ref() {
            Value::Null => WireValue::Null,
            Value::Integer(number) => WireValue::Int(*number),
            Value::Real(number) => WireValue::Double(*number),
            Value::Text(text) => WireValue::Bytes(text.as_bytes()),
            Value::Blob(bytes) => WireValue::Bytes(bytes),
        })
        .collect();
    write_binary_row(columns, &values, packets);
}

/// The answer to COM_STMT_PREPARE.
pub(super) fn write_prepare_ok(prepared: &Prepared, capabilities: Capabilities, status: Flags, packets: &mut PacketWriter<'_>) {
    let columns: Vec<WireColumn> = prepared.columns.iter().map(column).collect();
    let count = u16::try_from(columns.len()).unwrap_or(u16::MAX);
    let ok = PrepareOk { statement: prepared.id, columns: count, parameters: prepared.parameters, warnings: 0 };
    packets.packet(|out| ok.encode(out));
    let parameters = vec![WireColumn::text("?"); usize::from(prepared.parameters)];
    write_definitions(&parameters, capabilities, status, packets);
    write_definitions(&columns, capabilities, status, packets);
}

fn column(column: &Column) -> WireColumn {
    match column.kind {
        ColumnKind::Text => WireColumn::text(&column.name),
        ColumnKind::Integer | ColumnKind::Int4 => WireColumn::integer(&column.name),
        ColumnKind::Real => WireColumn::double(&column.name),
        ColumnKind::Blob => WireColumn {
            charset: 63,
            kind: kind::BLOB,
            flags: quorumsql_wire::mysql::column::flag::BINARY,
            ..WireColumn::text(&column.name)
        },
    }
}
