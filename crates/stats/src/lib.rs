//! Statistics of experiments: histograms, estimates, intervals, steady state, comparisons, designs.
//!
//! Pure: no input or output, no clock, and chance is an argument.

pub mod estimate;
pub mod histogram;
