//! Message types of the message queue, made from `proto/kendall/queue/v1/queue.proto`.
//!
//! The service is made where it is served and where it is called; here are only the messages,
//! so that a load can speak the protocol without the server.

#![expect(missing_docs, reason = "documented in the .proto, from which they are made")]

include!(concat!(env!("OUT_DIR"), "/kendall.queue.v1.rs"));

/// The encoded description of the service, for reflection and for making its stubs.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/queue-descriptors.bin"));

/// Full name of the service: requests go to `/NAME/METHOD`.
pub const SERVICE: &str = "kendall.queue.v1.MessageQueue";

/// Calls that a stream carries at a time: what a client may have open before it waits.
pub const OPEN_CALLS: usize = 1024;

/// Streams that so many clients need to have a call each at a time, when a load's threads share
/// clients and streams as evenly as may be.
#[must_use]
pub fn streams_needed(clients: u64, threads: u64) -> u64 {
    // A load has at most one thread for each client, and at least one.
    let threads = threads.clamp(1, clients.max(1));
    let of_a_thread = clients.div_ceil(threads).div_ceil(OPEN_CALLS as u64);
    // Where one is enough, a thread has it anyway.
    if of_a_thread > 1 { of_a_thread * threads } else { 1 }
}
