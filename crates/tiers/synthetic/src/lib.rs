//! The synthetic tier: a station of m servers behind one queue, first come first served, whose
//! service times are drawn from a stated distribution and waited, not burnt.
//!
//! What it does is known exactly, so a study of it checks the whole chain of Kendall against
//! M/M/1 and M/M/m: load generator, stages, windows, intervals and models. It costs microseconds
//! of CPU time a request, so one machine carries station and load without disturbing either.
//!
//! It leaves out all of HTTP that this does not need: no TLS, no HTTP/2, no chunked bodies.

mod connection;
mod server;
mod service_time;
mod station;

#[cfg(feature = "fuzzing")]
pub use connection::fuzzing;
pub use server::{Limits, Synthetic, SyntheticError, SyntheticOptions};
pub use station::{Station, Visit};
