//! From measurement to model: model inputs, predictions, and their error against what was held out.
//!
//! Pure: no input or output, no clock. Takes what was measured as plain numbers
//! ([`measured::OperatingPoint`]) and returns numbers with what they rest on.

pub mod bottleneck;
pub mod demands;
pub mod distribution;
pub mod laws;
pub mod measured;
pub mod models;
pub mod saturation;
pub mod score;
pub mod trend;
pub mod twin;
