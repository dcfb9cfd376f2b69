//! Compiles the .proto files without a `protoc` on the machine.
use std::{env, fs, path::PathBuf};

const FILES: [&str; 5] = [
    "idem/v1/idempotency.proto",
    "idem/v1/admin.proto",
    "idem/v1/error_reason.proto",
    "orders/v1/orders.proto",
    "orders/v1/error_reason.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(FILES, ["."])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
