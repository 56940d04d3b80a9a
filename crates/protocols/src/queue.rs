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
