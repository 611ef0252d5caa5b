//! Sans-IO codecs of both protocols, lexers and digests: bytes in, typed messages out, and back. No sockets, no clock, no configuration.
#![forbid(unsafe_code)]

pub mod mysql;
pub mod pgsql;
pub mod sql;
