//! Reports of made-up results, as one binary.

mod browser;
mod chapters;
mod synthetic;
mod views;
