//! Load generation: arrival schedules, closed and open loops, one driver a protocol.
//!
//! Start reading at [`load::run`]; the loop itself is in the private module `engine`.

pub mod arrivals;
pub mod bazel;
pub mod calls;
mod checks;
mod clock;
mod cost;
pub mod driver;
mod due_times;
mod engine;
#[cfg(feature = "fuzzing")]
#[path = "../../../fuzz/inside/loads.rs"]
pub mod fuzzing;
mod grpc;
pub mod http;
pub mod keyspace;
pub mod load;
pub mod memcached;
pub mod postgres;
pub mod queue;
pub mod random;
pub mod reapi;
mod recorder;
pub mod redis;
mod refusals;
pub mod replay;
mod resending;
pub mod sequence;
pub mod stages;
mod tasks;
pub mod tls;
pub mod web;
mod weighted;
