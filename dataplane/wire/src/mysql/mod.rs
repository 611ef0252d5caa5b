//! The MySQL client/server protocol, both sides, without I/O.
//!
//! ```text
//! bytes ─► packet::decode_packet ─► payload ─► Greeting / HandshakeResponse / Command / OkPacket …
//! PacketWriter ◄─ payload ◄─ encode of the same types
//! server's bytes ─► AnswerScanner ─► how many of them may go to the client, and what ended
//! ```
//! Reading order: [`packet`] (framing), [`handshake`] and [`auth`] (login), [`command`] (what a client asks),
//! [`response`] and [`mod@column`] (what a server answers), [`params`] (binary parameters and rows), [`scanner`] (relaying an
//! answer by packet header).
//!
//! What it deliberately does not do: sockets, clocks, configuration, TLS, compression. Every length that arrives is checked
//! against the bytes that are there; nothing is allocated for an announced length.
//!
//! Sources: MySQL 9 source documentation "Client/Server Protocol", MariaDB knowledge base "Clients & Utilities / Protocol",
//! and the behaviour of MariaDB 10.11 and MySQL 9.

pub mod auth;
pub mod capabilities;
pub mod charset;
pub mod client_auth;
pub mod column;
pub mod command;
pub mod error_code;
pub mod handshake;
pub mod packet;
pub mod params;
pub mod reader;
pub mod response;
pub mod scanner;
pub mod server_auth;
pub mod track;
pub mod writer;

pub use capabilities::{Capabilities, Status};
pub use command::Command;
pub use packet::{Packet, PacketWriter, decode_packet};
pub use reader::{Reader, WireError};
pub use response::{EofPacket, ErrPacket, OkPacket};
pub use scanner::AnswerScanner;
