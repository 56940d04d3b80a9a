//! Makes the message types of the message queue from its published description.

use std::error::Error;
use std::path::PathBuf;

const QUEUE: &str = "proto/kendall/queue/v1/queue.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptions = protox::compile([QUEUE], ["proto"])?;
    let encoded = PathBuf::from(std::env::var("OUT_DIR")?).join("queue-descriptors.bin");
    std::fs::write(&encoded, encode(&descriptions))?;
    // Headers in order: the same message has the same bytes.
    prost_build::Config::new().btree_map(["."]).compile_fds(descriptions)?;
    Ok(())
}

fn encode(descriptions: &impl protox::prost::Message) -> Vec<u8> {
    descriptions.encode_to_vec()
}
