//! Queueing models: single stations, networks, bounds, approximations, simulation, scalability law.
//!
//! Pure mathematics: no input or output, no clock. Times are seconds, rates are per second.
//! Start at [`model::Model`], the one description that every solver takes.
#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod distribution;
pub mod lqn;
pub mod model;
pub mod network;
mod numeric;
pub mod scalability;
pub mod simulation;
pub mod solver;
pub mod station;

pub use distribution::{Distribution, DistributionError};
pub use model::{Model, ModelError};
