//! Makes the service between scheduler and workers from its published description.

use std::error::Error;
use std::path::PathBuf;

use protox::prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptions = protox::compile(["proto/kendall/worker/v1/worker.proto"], ["proto"])?;
    let encoded = PathBuf::from(std::env::var("OUT_DIR")?).join("worker-descriptors.bin");
    std::fs::write(encoded, descriptions.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptions)?;
    Ok(())
}
