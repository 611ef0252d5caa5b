//! The admin interface: SQL over the replicated tables, commands, this node's statistics (admin-commands.md).

pub(crate) mod local;
pub(crate) mod parse;
