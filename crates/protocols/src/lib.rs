//! Codecs and message types: bytes in, values out. No input or output, no clock.
#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod load_result;
pub mod memcached;
pub mod queue;
pub mod snapshot;
pub mod topology;
pub mod version;
pub mod waiting;
