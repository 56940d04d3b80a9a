//! Stored runs to a calibrated twin, and questions to it.
//!
//! [`Calibration::read`] takes what a folder of results holds: every usable run with its graph, its
//! accounts and its load. [`Calibration::twin`] fits a twin to those that do the same kind of work;
//! [`Fitted::answer`] asks it. The study file is not needed for that: who wants to ask about one of
//! its keys makes a [`Question`] from the settings that it leads to.
//!
//! What it leaves out: running anything, and reading the study file.

mod answer;
mod model;
mod rows;
mod signature;

pub use answer::{Answer, AskError, Fitted, Hardware, Question};
pub use model::{ModelFile, ModelProcess, model_file, parameter_half_width};
pub use rows::{Calibration, PartUse, RunFacts, TierSeen, graph_level, lookup, number};
pub use signature::{Signature, is_of_the_load};
