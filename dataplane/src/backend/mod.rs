//! Our side of a connection to a database: login, alignment, what is prepared on it.

pub(crate) mod mysql;
pub(crate) mod pgsql;
