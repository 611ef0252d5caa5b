//! The protobuf packages of quorumsql, generated at build time.
//!
//! - [`log`]: what a log entry is made of; stored, never sent to people.
//! - [`peer`]: what nodes say to each other on port 6035.
//! - [`admin`]: what operators and tools call on port 6034.
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::unwrap_used,
    reason = "generated code; the .proto files carry the documentation"
)]

/// Package `quorumsql.log.v1`.
pub mod log {
    tonic::include_proto!("quorumsql.log.v1");
}

/// Package `quorumsql.peer.v1`.
pub mod peer {
    tonic::include_proto!("quorumsql.peer.v1");
}

/// Package `quorumsql.admin.v1`.
pub mod admin {
    tonic::include_proto!("quorumsql.admin.v1");

    /// The encoded descriptor set of this package, for gRPC reflection.
    pub const DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/admin_descriptor.bin"));
}
