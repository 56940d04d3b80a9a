//! Statistics against known truths, as one binary.

mod adaptive;
mod comparisons;
mod coverage;
mod designs;
mod drift;
mod drifting_speed;
mod load_curve;
mod trend;
mod warm_up;
mod within_run;
