//! Compiles the .proto files with a pure Rust compiler: the build needs no `protoc`.

use std::{env, fs, path::PathBuf};

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let all = protox::compile(["log.proto", "peer.proto", "admin.proto"], ["proto"])?;
    tonic_prost_build::configure().bytes(".quorumsql.log.v1").bytes(".quorumsql.peer.v1").compile_fds(all)?;
    // Reflection shows people the admin package only; log and peers are internal.
    let admin = protox::compile(["admin.proto"], ["proto"])?;
    fs::write(out.join("admin_descriptor.bin"), admin.encode_to_vec())?;
    Ok(())
}
