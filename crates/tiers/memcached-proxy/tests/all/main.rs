//! The proxy before real memcached servers, as one binary. `hostile` is another: it watches the memory of its process.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "helpers of tests fail by panicking, and wait with a deadline of their own"
)]

mod common;
mod differential;
mod faults;
mod features;
mod pools;
mod servers;
mod tls;
