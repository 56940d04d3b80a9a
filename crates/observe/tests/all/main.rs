//! Reading of monitoring against known truths and kept pages, as one binary.

mod classes_in_the_network;
mod documented;
mod example;
mod imperfect;
mod known_truth;
mod one_more_cache;
mod presets;
mod prometheus_answers;
mod simulated;
mod truths;
