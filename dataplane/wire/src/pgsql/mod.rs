//! The PostgreSQL protocol, versions 3.0 and 3.2, as pure functions over bytes (PostgreSQL manual, "Frontend/Backend Protocol").
//!
//! Reading order: [`frame`] (message boundaries), [`startup`] (the untyped first packets), [`frontend`] (what clients send),
//! [`backend`] (what servers send), [`error_fields`] and [`sqlstate`] (errors and notices), [`password`], [`scram`],
//! [`channel_binding`] and [`auth`] (logging in, both sides), [`scanner`] (walking a stream of server messages without copying it).
//!
//! A server face needs, in this order: [`startup::decode_first_packet`]; one byte [`startup::REFUSE_ENCRYPTION`] for SSLRequest and
//! GSSENCRequest; [`auth::ServerAuth`]; [`backend::authentication_ok`], [`backend::parameter_status`], [`backend::backend_key_data`],
//! [`backend::ready_for_query`]; then [`frame::decode`] and [`frontend::FrontendMessage::decode`] in a loop, answered with the encoders of
//! [`backend`]. Everything is encoded into a `Vec<u8>` that the caller owns and reuses.
//!
//! Nothing here allocates what a peer merely announces: decoders borrow from bytes that have arrived, and caps are arguments.

pub mod auth;
pub mod backend;
pub mod channel_binding;
pub mod client_keys;
pub mod error_fields;
pub mod frame;
pub mod frontend;
pub mod password;
pub mod scanner;
pub mod scram;
pub mod sqlstate;
pub mod startup;

#[cfg(test)]
mod properties;
mod reader;

pub use reader::WireError;
