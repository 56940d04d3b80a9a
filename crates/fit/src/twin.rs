//! A twin of a measured system: one layered model of its processes, pools, links and processors,
//! calibrated on a few runs, that answers what-if with intervals.
//!
//! The structure is simulated as it is, not fitted: the processors of a host are shared by every
//! process that is placed there, a thread drains its queue before it sleeps (so that wake-ups are
//! shared when there is much to do), pools are held while what is below is waited for, links are
//! delays that wake their relay, a commit serves all who wait for it. What is fitted is what the
//! structure does not say: how much work a request is.
//!
//! - [`System`] is the structure at one configuration; [`simulate()`] runs it.
//! - [`analytic()`] solves it without chance, for sweeps, where there are no batches.
//! - [`demand`] is the form of a process's work: (w + w_b/b + s·v)·h.
//! - [`Twin`] is what [`calibrate()`] makes of [`MeasuredRun`]s; it predicts, says how sure it is, how
//!   far the question lies from what was measured, and refuses what the runs do not determine.
//!
//! Pure: no input or output, no clock; chance is a seed.

mod analytic;
mod calibrate;
pub mod demand;
mod interval;
mod predict;
mod scheduler;
mod simulate;
pub mod structure;
mod system;

pub use analytic::{CurvePoint, Solved, analytic, knee};
pub use calibrate::{
    CalibrationError, Lack, MOST_FOREIGN_CORES, MOST_STOLEN_CORES, MeasuredRun, Misfit, ProcessUse,
    Twin, calibrate, most_stolen,
};
pub use interval::{Interval, Why};
pub(crate) use predict::BUSY;
pub use predict::{Bottleneck, Distance, MOST_REACH, Prediction, Refusal, Share};
pub use simulate::{Length, Machine, Simulated, simulate};
pub use system::{Commit, Host, Pool, Process, Spread, Step, System, SystemError, Work, Workload};
