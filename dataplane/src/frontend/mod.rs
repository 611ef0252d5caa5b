//! Our side of a client's connection: login and the loop over its commands.

pub(crate) mod mysql;
pub(crate) mod pgsql;
mod tls;
