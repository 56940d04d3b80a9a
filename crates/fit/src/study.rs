//! The model of a study: its runs in, a calibrated twin out, and answers to questions about it.
//!
//! [`Calibration`] holds every usable run with its graph, its accounts and its load.
//! [`Calibration::twin`] fits a twin to those that do the same kind of work; [`StudyModel::answer`] asks
//! it. A question about a key of a study file becomes a [`Question`] by way of the settings that the key leads to.

mod answer;
mod between;
mod by_load;
mod file;
mod ladder;
mod question;
mod runs;
mod signature;

pub use answer::{Answer, AskError, StudyModel};
pub use by_load::Model;
pub use file::{ModelFile, ModelProcess, model_file};
pub use ladder::{Judged, LeftOut, Rung};
pub use question::Question;
pub use runs::{
    Calibration, FactorLevel, PartUse, RunFacts, StudyRun, TierSeen, graph_level, lookup, number,
    small,
};
pub use signature::{Signature, is_of_the_load, structural};
