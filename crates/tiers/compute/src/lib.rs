//! The compute tier: powers of matrices and prime factors over HTTP/1.1 and HTTP/2.
//!
//! One network thread reads requests and writes answers; worker threads, as many as an experiment
//! says, take requests from one queue, first come first served; a cache of whole results, off at
//! first, answers before the queue. Workers, queue bound and cache change while it runs, see
//! [`Control`].
//!
//! It leaves out authentication: it is what a study loads, on loopback or in a lab.

mod cache;
mod factor;
mod matrix;
mod openapi;
mod recording;
mod reply;
mod request;
mod server;
mod service;

pub use cache::CacheLimits;
pub use factor::{is_prime, prime_factors};
pub use matrix::{Interrupted, MODULUS, Matrix};
pub use recording::{InterfaceBytes, Recorded};
pub use request::{Problem, RequestLimits};
pub use server::{Compute, ComputeError, ComputeOptions, Limits};
pub use service::{
    Change, ChangeError, Control, MOST_WORKERS, QUEUE_HARD_CAP, QueueBound, State, Unbounded,
};
