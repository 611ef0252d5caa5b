//! Nodes talk to each other over gRPC with mutual TLS on port 6035.

mod accept;
pub(crate) mod client;
pub(crate) mod convert;
pub(crate) mod gate;
pub(crate) mod newcomers;
pub(crate) mod refusals;
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
    /// Of the sender's data directory.
    pub(crate) const INCARNATION: &str = "quorumsql-incarnation";
    /// In a refusal: the sender is no member any more, and why.
    const EXPELLED: &str = "quorumsql-expelled";
    /// It was removed.
    pub(crate) const REMOVED: &str = "removed";
    /// Its id belongs to another data directory.
    pub(crate) const OTHER_INCARNATION: &str = "incarnation";

    /// The refusal from which a node learns that it must stop.
    pub(crate) fn expelled(text: String, why: &'static str) -> tonic::Status {
        let mut status = tonic::Status::permission_denied(text);
        status.metadata_mut().insert(EXPELLED, tonic::metadata::MetadataValue::from_static(why));
        status
    }

    pub(crate) fn is_expelled(status: &tonic::Status) -> bool {
        status.code() == tonic::Code::PermissionDenied && status.metadata().contains_key(EXPELLED)
    }
}
