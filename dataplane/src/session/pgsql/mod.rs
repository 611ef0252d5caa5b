//! The pure part of a PostgreSQL session: which answers are due, prepared statements, settings, pins. No I/O.

pub(crate) mod changes;
pub(crate) mod custom;
pub(crate) mod parameters;
pub(crate) mod pins;
pub(crate) mod prepared;
pub(crate) mod responses;
pub(crate) mod settings;
