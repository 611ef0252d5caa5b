//! One client's logical state: variables, transaction, prepared statements, pins. No sockets here.

pub(crate) mod mysql;
pub(crate) mod pgsql;
