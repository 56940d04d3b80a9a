//! Makes the service's server and client from its published description; the message types are
//! those of `kendall_protocols::queue`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=../../protocols/proto");
    let descriptions = protox::compile(
        ["../../protocols/proto/kendall/queue/v1/queue.proto"],
        ["../../protocols/proto"],
    )?;
    tonic_prost_build::configure()
        .extern_path(".kendall.queue.v1", "::kendall_protocols::queue")
        .compile_fds(descriptions)?;
    Ok(())
}
