//! Reports of made-up results, as one binary.

mod browser;
mod chapters;
mod made;
mod synthetic;
mod views;
