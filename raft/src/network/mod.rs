//! Nodes talk to each other over gRPC with mutual TLS on port 6035.

pub(crate) mod client;
pub(crate) mod convert;
pub(crate) mod gate;
pub(crate) mod request;
pub(crate) mod server;
pub(crate) mod tls;

/// Larger messages are refused on the peer port.
pub(crate) const MAX_MESSAGE_BYTES: usize = 8 << 20;
/// Largest text of a statement with its parameters; each node refuses more itself, so that all refuse alike.
pub(crate) const MAX_STATEMENT_BYTES: usize = 16 << 20;
/// Larger messages of `Internal` are refused: a forwarded statement and what goes with it.
pub(crate) const MAX_INTERNAL_BYTES: usize = MAX_STATEMENT_BYTES + (2 << 20);
/// A join request is never larger.
pub(crate) const MAX_JOIN_BYTES: usize = 16 << 10;
/// Pieces of a snapshot.
pub(crate) const CHUNK_BYTES: usize = 512 << 10;

/// Metadata of every call between members.
pub(crate) mod metadata {
    pub(crate) const CLUSTER: &str = "quorumsql-cluster";
    pub(crate) const FROM: &str = "quorumsql-from";
    pub(crate) const TO: &str = "quorumsql-to";
}
