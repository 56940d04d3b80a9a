//! Statistics of experiments: histograms, estimates, intervals, steady state, comparisons, designs.
//!
//! Pure: no input or output, no clock, and chance is an argument.
#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod adaptive;
pub mod analysis;
pub mod compare;
pub mod correlated;
pub mod covariate;
pub mod design;
pub mod distribution;
pub mod estimate;
pub mod histogram;
pub mod law;
pub mod load_curve;
pub mod power;
pub mod sample;
pub mod steady;
pub mod stopping;
pub mod within_run;
