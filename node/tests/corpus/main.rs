//! A corpus of statements, run by real drivers directly on a server and through a node, must give the same answers.
//!
//! `cases/*.json` are the statements, `drivers/` and `rust/` the programs that run them; two of those in Rust are plain clients that
//! show every byte. Two clients of one driver take turns: A runs a
//! case, then B runs it, on a node that has one connection to the server. So a case that leaves state behind would show
//! it to the other client, and a case that keeps the connection would stop the other one; such a case says `pins` and ends
//! with a disconnect. Each driver prints one line per case and client; the two outputs are compared line by line.
//!
//! What may differ is in [`differences`], by name and with its reason; there is no other exception.

mod cases;
mod differences;
mod driver;
mod mysql;
mod node;
mod pgsql;
mod programs;
mod rust;
