//! From measurement to a fitted model: parameters with their errors and where each is from, what-if,
//! and scores on what was held out.
//!
//! Pure: no input or output, no clock. Takes what was measured as plain numbers
//! ([`measured::OperatingPoint`], [`study::RunFacts`]) and returns numbers with what they rest on.

pub mod bottleneck;
pub mod change;
pub mod curve;
pub mod demands;
pub mod distribution;
pub mod hidden;
pub mod laws;
pub mod measured;
pub mod model;
pub mod open;
pub mod resource;
pub mod saturation;
pub mod score;
pub mod study;
pub mod trend;
pub mod twin;
pub mod waits;
