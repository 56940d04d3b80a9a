//! What all runs of a load curve say together: capacity, knee, growth at the upper end.
//!
//! A curve is a smooth function of the load, and its runs scatter around it by a share. So each run
//! says something of every load, and the scatter is that of all runs, not of the two of one
//! configuration. The model, on the logarithm of the throughput X of run r at load n:
//!
//! ```text
//! ln X = c + h(n) + β·t + δ(n) + ε        ε ~ N(0, σ²·(n/n̄)^2γ / w)
//! ```
//!
//! with the shape h from [`Form`] (light load, plateau with a knee of any sharpness, fall), β a
//! trend over the time t in which runs were made, δ what a real curve differs from the family at one
//! load, γ how the scatter depends on the load, and w below 1 for a run that stands out from all
//! others. The posterior is a sum over a grid of shapes, δ and γ, of what is known in closed form of
//! c, β and σ ([`Evidence`]). So an interval holds what is not known of the shape, too.
//!
//! # Source
//! Normal linear model with known correlation: Gelman et al., Bayesian Data Analysis, 3rd ed., §14.
//! Runs that stand out: deleted residuals with Bonferroni's bound, Cook, Weisberg 1982 §2.2.

mod evidence;
mod form;

pub use evidence::{CurveRun, Evidence, Posterior, Shape};
pub use form::Form;

use serde::{Deserialize, Serialize};

use crate::estimate::Estimate;
use form::Grid;

/// Share of the highest throughput that counts as having reached it.
pub const REACHED: f64 = 0.95;

/// What all runs of a curve say together. Every number is about the loads that were run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadCurve {
    /// The highest throughput of the loads.
    pub capacity: Estimate,
    /// The lowest load at which the throughput is [`REACHED`] of the capacity.
    pub knee: Estimate,
    /// N*: where the line of light load crosses the capacity.
    pub crossing: Estimate,
    /// X at the highest load over X at the load before it, less one.
    pub last_gain: Estimate,
    /// X at the highest load over X at half of it, less one.
    pub last_doubling: Estimate,
    /// X at the highest load over the capacity, less one: negative where the curve falls.
    pub fall: Estimate,
    /// Standard deviation of a run, as a share of its throughput.
    pub scatter: f64,
    /// Power of the load with which the scatter grows; its interval says whether it does.
    pub scatter_power: Estimate,
    /// Places of the runs that stand out from all others, in the order given.
    pub outliers: Vec<usize>,
}

/// X of one more run, right after the others, at a load that was not run: median and prediction interval. `None` as for [`load_curve`].
///
/// Beyond the highest load the curve may bend right behind it, may grow in proportion, and may fall: the interval holds
/// what the runs leave of these.
///
/// # Example
/// ```
/// use kendall_stats::load_curve::{CurveRun, run_at};
/// let run = |load: f64| CurveRun { load, throughput_per_s: 100.0 * load.min(4.0), weight: 1.0 };
/// let loads = [1.0, 2.0, 4.0, 8.0, 1.0, 2.0, 4.0, 8.0];
/// let at = run_at(&loads.map(run), 16.0, 0.95).unwrap();
/// assert!((at.center / 400.0 - 1.0).abs() < 0.1);
/// ```
#[must_use]
pub fn run_at(runs: &[CurveRun], load: f64, confidence: f64) -> Option<Estimate> {
    let mut evidence = Evidence::of(runs)?;
    let grid = Grid::reaching(evidence.levels(), load);
    evidence.weigh_outliers(&grid.forms());
    Some(evidence.posterior(grid.around(&evidence).forms()).run_at(&evidence, load, confidence))
}

/// Fits a curve to runs in the order of time; `None` where they are too few to say how they scatter.
#[must_use]
pub fn load_curve(runs: &[CurveRun], confidence: f64) -> Option<LoadCurve> {
    let mut evidence = Evidence::of(runs)?;
    let grid = Grid::whole(evidence.levels());
    let outliers = evidence.weigh_outliers(&grid.forms());
    let posterior = evidence.posterior(grid.around(&evidence).forms());
    let levels = evidence.levels();
    let (low, high) = (levels[0], levels[levels.len() - 1]);
    let before = levels[levels.len() - 2];
    let seen = posterior.map(|form| form.seen(levels));
    let of = |value: fn(&form::Seen) -> f64| posterior.estimate(confidence, |at| value(&seen[at]));
    let gain = |from: f64| {
        posterior.estimate(confidence, |at| {
            let form = &posterior.shapes()[at];
            (form.height(high) - form.height(from)).exp() - 1.0
        })
    };
    Some(LoadCurve {
        capacity: posterior.level(confidence, |at| seen[at].top),
        knee: of(|seen| seen.knee),
        crossing: of(|seen| seen.crossing),
        last_gain: gain(before),
        last_doubling: gain((high / 2.0).max(low)),
        fall: of(|seen| seen.fall.exp() - 1.0),
        scatter: posterior.scatter(),
        scatter_power: posterior.scatter_power(confidence),
        outliers,
    })
}
