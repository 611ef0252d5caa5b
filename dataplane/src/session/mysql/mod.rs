//! What a MySQL client's session is, apart from any connection: pure state and decisions, no sockets.

pub(crate) mod calls;
pub(crate) mod local;
pub(crate) mod long_data;
pub(crate) mod names;
pub(crate) mod past;
pub(crate) mod pins;
pub(crate) mod ran;
pub(crate) mod set;
pub(crate) mod set_for;
pub(crate) mod state;
pub(crate) mod statements;
pub(crate) mod tracked;
