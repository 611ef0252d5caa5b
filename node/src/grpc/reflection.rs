//! Server reflection, v1 and v1alpha: grpcurl needs the latter. People see the admin and health packages only.

use quorumsql_proto::admin::DESCRIPTOR_SET;
use tonic_reflection::server::{Builder, Error, v1, v1alpha};

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// `grpc.reflection.v1`
pub(super) fn v1() -> Result<v1::ServerReflectionServer<impl v1::ServerReflection>, Error> {
    builder().build_v1()
}

/// `grpc.reflection.v1alpha`
pub(super) fn v1alpha() -> Result<v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection>, Error> {
    builder().build_v1alpha()
}
