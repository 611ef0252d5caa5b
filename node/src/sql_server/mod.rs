//! One SQL-over-SQLite server with a MySQL and a PostgreSQL face (design.md section 12).
//!
//! A [`Database`] says who may log in and opens a [`Session`] per connection; a session executes one statement at a
//! time. The faces (`mysql`, `pgsql`) do the dialogues, split packets with several statements, keep prepared
//! statements, and encode [`Answer`]s. They know nothing of what is stored. [`engine`] runs statements on a rusqlite
//! connection for the sessions. The admin ports and the demo's embedded backend are two `Database`s.
//!
//! Not here: transactions across statements (a session's own business), cursors, COPY, LOAD DATA.

pub(crate) mod database;
pub(crate) mod engine;
#[cfg(test)]
mod faces_test;
pub(crate) mod functions;
pub(crate) mod lexer;
pub(crate) mod listener;
pub(crate) mod mysql;
pub(crate) mod pgsql;
pub(crate) mod socket;
pub(crate) mod value;

#[allow(unused_imports, reason = "the demo's database uses what the admin's does not")]
pub(crate) use database::{
    Account, Answer, Column, ColumnKind, Database, Description, Done, Face, Login, Parameters, Rows, Session, SqlError, Status, Value,
};
pub(crate) use listener::{ServeOptions, serve};
