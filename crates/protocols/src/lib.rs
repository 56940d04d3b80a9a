//! Codecs and message types: bytes in, values out. No input or output, no clock.

pub mod memcached;
pub mod queue;
pub mod snapshot;
