//! Makes the service between scheduler and workers from its published description.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptions = protox::compile(["proto/kendall/worker/v1/worker.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(descriptions)?;
    Ok(())
}
