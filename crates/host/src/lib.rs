//! Processes on this machine and on others: started, waited for, sampled, ended.
//!
//! A study plans; this crate runs. Start with [`Machines`](machines::Machines), which starts a process on any host
//! ([`Runner`](runner::Runner)). Each host has an [`agent`], which takes the messages of [`protocol`]: this machine's in
//! this process, another's at the other end of a pipe. Nothing that was started outlives the study ([`keeper`]).

pub mod agent;
pub mod bootstrap;
pub mod clock;
pub mod clocks;
pub mod connection;
pub mod disk;
mod error;
mod exchanges;
#[cfg(feature = "fuzzing")]
#[path = "../../../fuzz/inside/host.rs"]
pub mod fuzzing;
pub mod hosts;
pub mod http;
pub mod instance;
pub mod keeper;
mod kubernetes;
pub mod launch;
pub mod lease;
pub mod machine;
pub mod machines;
pub mod probe;
pub mod program;
pub mod programs;
pub mod protocol;
pub mod quota;
pub mod runner;
pub mod sample;
pub mod signals;
pub mod waits;

pub use error::HostError;
