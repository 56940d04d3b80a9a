//! Study file to design to runs, on this machine or on hosts, to stored rows.
//!
//! Start with [`StudyFile::read`], which checks a file as a whole; [`Plan::of`] says which runs it
//! asks for; [`run`] runs them, each stored when it ends, and resumes where an earlier session
//! stopped. Tiers and load generators are processes (`kendall serve …`, `kendall load …`, or the
//! user's own commands): a study never links a tier, so neither memory nor allocator is shared.
//!
//! To add a system, write one file in `system/` and one line in [`system::SYSTEMS`]; to add a
//! protocol, the same in `workload/`.

mod baseline;
mod calibration;
mod capacity;
mod entry;
mod environment;
mod error;
mod factor;
mod file;
mod first_pass;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod host_check;
pub mod keys;
mod measured_window;
mod observe;
mod observed;
mod place;
mod placement;
mod plan;
mod programs;
mod record;
mod remarks;
mod search;
mod section;
mod seed;
mod set_aside;
mod settings;
mod speed;
mod study;
pub mod system;
mod template;
pub mod topology;
mod validity;
pub mod workload;

pub use entry::OtherProtocol;
pub use error::StudyError;
pub use factor::Factor;
pub use file::{Adaptive, DesignKind, DesignSpec, Refusal, Stored, StudyFile};
pub use first_pass::FIRST_ANSWER;
pub use host_check::{HostReport, check_hosts};
pub use kendall_keys::{Problem, Section};
pub use kendall_observations::{Condition, Objective};
pub use observe::{Live, LiveHost};
pub use placement::Placement;
pub use plan::{Ended, Levels, Plan, Planned};
pub use programs::check_programs;
pub use set_aside::FIRST_PASS;
pub use settings::{Cut, Link, Measure, Repetitions, Settings};
pub use study::{Beside, Event, Options, Summary, run, run_beside};
pub use template::fill;
pub use validity::LIMITS_ITS_RATE;
