//! `adaptive`: finds a system's maximum throughput and its saturation point in few runs.
//!
//! A state machine without memory of its own: [`Search::next`] looks at all that was recorded and
//! says what to run next, so a study that was interrupted goes on by recording its stored runs.
//!
//! 1. *Explore*: the load doubles from its lowest to its highest value, until the throughput has
//!    fallen, or has not risen for two doublings.
//! 2. *Refine*: a parabola through the throughput against the logarithm of the load, around its
//!    maximum, says where to look next, until that has been looked at.
//! 3. *Knee*: the load that first reaches 95 % of the maximum is bracketed by bisection.
//! 4. *Confirm*: fresh runs at the chosen load and at the lowest one, in turn, until the interval
//!    is as narrow as was asked. Only these make the estimates: the best of many noisy runs is too
//!    good, and so would be an interval around it.
//!
//! What it leaves out: curves with more than one maximum, of which it finds one.

use std::collections::BTreeMap;

use kendall_units::{exact_f64, whole_u64};
use nalgebra::{Matrix3, Vector3};
use serde::{Deserialize, Serialize};

use crate::distribution::t_two_sided;
use crate::estimate::{Caveat, Estimate, Interval};
use crate::sample::{mean, mean_interval, variance};
use crate::stopping::{Decision, RuleError, StoppingRule};

/// Share of the maximum that counts as having reached it.
const KNEE_SHARE: f64 = 0.95;

/// A doubling that raises the throughput by less does not count as rising.
const RISE: f64 = 0.05;

/// A load this far below the best ends the exploration.
const FALL: f64 = 0.85;

/// Loads closer than this ratio are the same to a search whose curve is flat at its top.
const SAME_LOAD: f64 = 1.12;

/// Refinements of the maximum, and of the knee.
const MOST_REFINEMENTS: usize = 4;

/// What is searched, and how sure the answer must be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Lowest load (clients, or requests per second in whole numbers); at least 1.
    pub low: u64,
    /// Highest load.
    pub high: u64,
    /// When the maximum is known well enough; `min` to `max` count the confirming runs.
    pub rule: StoppingRule,
}

/// A search that cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SearchError {
    /// Loads out of order.
    #[error("loads from {low} to {high}: the lowest is at least 1 and below the highest")]
    Loads {
        /// Lowest.
        low: u64,
        /// Highest.
        high: u64,
    },
    /// A stopping rule that cannot be followed.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// A measurement that is none.
    #[error("throughput {throughput} at load {load} is not a positive number")]
    Throughput {
        /// The load.
        load: u64,
        /// What was measured.
        throughput: f64,
    },
}

/// Why a run is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The load doubles.
    Explore,
    /// Around the maximum.
    Refine,
    /// Around the knee.
    Knee,
    /// Fresh runs at the chosen load and at the lowest.
    Confirm,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum Step {
    /// Measure the throughput at this load and record it.
    Run {
        /// The load.
        load: u64,
        /// Why.
        phase: Phase,
    },
    /// Enough is known.
    Done {
        /// What was found.
        outcome: Box<Outcome>,
    },
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Throughput at the best load, from the confirming runs alone.
    pub maximum_throughput: Estimate,
    /// Load of the maximum.
    pub best_load: u64,
    /// Loads that were measured to within the interval of the maximum: the maximum may be there.
    pub best_between: (u64, u64),
    /// N*: where the line of the lowest load would reach the maximum; load without queueing.
    pub saturation_point: Estimate,
    /// Load that first reaches 95 % of the maximum, interpolated.
    pub knee: f64,
    /// Measured loads on either side of the knee.
    pub knee_between: (u64, u64),
    /// Runs in all.
    pub runs: u64,
    /// Mean throughput of every load that was measured, ascending.
    pub curve: Vec<CurvePoint>,
}

/// One load of the curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// The load.
    pub load: u64,
    /// Mean throughput.
    pub throughput: f64,
    /// Runs.
    pub runs: u64,
}

/// The search: settings, and what was measured so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Search {
    settings: Settings,
    measured: Vec<(u64, f64)>,
}

impl Search {
    /// Starts a search.
    ///
    /// # Errors
    /// [`SearchError`] for loads or a rule that make no sense.
    ///
    /// # Example
    /// ```
    /// use kendall_stats::adaptive::{Search, Settings, Step};
    /// use kendall_stats::stopping::StoppingRule;
    /// let rule = StoppingRule { min: 3, max: 10, relative_half_width: 0.03, confidence: 0.95 };
    /// let mut search = Search::new(Settings { low: 1, high: 64, rule })?;
    /// let outcome = loop {
    ///     match search.next() {
    ///         // A system with 8 clients' worth of parallelism.
    ///         Step::Run { load, .. } => search.record(load, 100.0 * (load as f64).min(8.0))?,
    ///         Step::Done { outcome } => break outcome,
    ///     }
    /// };
    /// assert_eq!(outcome.maximum_throughput.center, 800.0);
    /// assert_eq!(outcome.saturation_point.center, 8.0);
    /// # Ok::<(), kendall_stats::adaptive::SearchError>(())
    /// ```
    pub fn new(settings: Settings) -> Result<Self, SearchError> {
        settings.rule.check()?;
        if settings.low == 0 || settings.low >= settings.high {
            return Err(SearchError::Loads { low: settings.low, high: settings.high });
        }
        Ok(Self { settings, measured: Vec::new() })
    }

    /// Records the throughput of a run, in the order of the runs.
    ///
    /// # Errors
    /// [`SearchError::Throughput`] for what is no positive number.
    pub fn record(&mut self, load: u64, throughput: f64) -> Result<(), SearchError> {
        if !(throughput.is_finite() && throughput > 0.0) {
            return Err(SearchError::Throughput { load, throughput });
        }
        self.measured.push((load, throughput));
        Ok(())
    }

    /// What to do next: replays the decisions over what was recorded, and stops at the first that
    /// has no measurement yet.
    #[must_use]
    pub fn next(&self) -> Step {
        let mut replay = Replay { rest: self.measured.as_slice(), seen: BTreeMap::new() };
        match self.decide(&mut replay) {
            Ok(outcome) => Step::Done { outcome: Box::new(outcome) },
            Err(Wanted { load, phase }) => Step::Run { load, phase },
        }
    }

    fn decide(&self, replay: &mut Replay<'_>) -> Result<Outcome, Wanted> {
        self.explore(replay)?;
        for _ in 0..MOST_REFINEMENTS {
            let candidate = self.best_load(&replay.curve());
            if replay.has_near(candidate) {
                break;
            }
            replay.take(candidate, Phase::Refine)?;
        }
        let best = self.best_load(&replay.curve());
        for _ in 0..MOST_REFINEMENTS {
            let curve = replay.curve();
            let (_, (below, above)) = knee(&curve, top(&curve));
            let middle = between(below, above);
            if above <= below + 1
                || exact_f64(above) / exact_f64(below) < SAME_LOAD
                || middle == below
            {
                break;
            }
            replay.take(middle, Phase::Knee)?;
        }
        self.confirm(replay, best)
    }

    fn explore(&self, replay: &mut Replay<'_>) -> Result<(), Wanted> {
        let (mut load, mut best, mut flat) = (self.settings.low, 0.0_f64, 0);
        loop {
            let throughput = replay.take(load, Phase::Explore)?;
            if throughput > best * (1.0 + RISE) {
                flat = 0;
            } else {
                flat += 1;
            }
            best = best.max(throughput);
            if load >= self.settings.high || flat >= 2 || throughput < FALL * best {
                return Ok(());
            }
            load = load.saturating_mul(2);
            // A last step that would be short of the end by less than a third goes to the end.
            if load >= self.settings.high - self.settings.high / 4 {
                load = self.settings.high;
            }
        }
    }

    /// Where the throughput is highest: the top of a parabola in the logarithm of the load through
    /// the highest point and two neighbors on either side; the highest point where there is none.
    fn best_load(&self, curve: &[CurvePoint]) -> u64 {
        let highest = curve
            .iter()
            .enumerate()
            .max_by(|a, b| a.1.throughput.total_cmp(&b.1.throughput))
            .map_or(0, |(index, _)| index);
        let from = highest.saturating_sub(2);
        let near = &curve[from..(highest + 3).min(curve.len())];
        let (low, high) =
            (curve[highest.saturating_sub(1)].load, curve[(highest + 1).min(curve.len() - 1)].load);
        parabola_top(near)
            .map(|log| whole_u64(log.exp().round()).clamp(low, high))
            .unwrap_or(curve[highest].load)
            .clamp(self.settings.low, self.settings.high)
    }

    /// Fresh runs at the best and at the lowest load, in turn, until the rule has had enough.
    fn confirm(&self, replay: &mut Replay<'_>, best: u64) -> Result<Outcome, Wanted> {
        let (mut at_best, mut at_low) = (Vec::new(), Vec::new());
        let maximum = loop {
            at_best.push(replay.take(best, Phase::Confirm)?);
            if exact_f64(at_low.len()) < exact_f64(self.settings.rule.min) {
                at_low.push(replay.take(self.settings.low, Phase::Confirm)?);
            }
            match self.settings.rule.decide(&at_best) {
                Ok(Decision::Continue { .. }) => {}
                Ok(Decision::Enough { estimate } | Decision::CapReached { estimate }) => {
                    break estimate;
                }
                Err(_) => break Estimate::exact(mean(&at_best)),
            }
        };
        let curve = replay.curve();
        let (knee, knee_between) = knee(&curve, maximum.center);
        let interval = maximum.interval.unwrap_or(Interval::around(maximum.center, 0.0, 0.0));
        let near: Vec<u64> =
            curve.iter().filter(|p| p.throughput >= interval.low).map(|p| p.load).collect();
        let saturation = self.saturation_point(&maximum, &at_best, &at_low);
        let limited = best == self.settings.high;
        let limit = exact_f64(self.settings.high);
        let with_limit = |estimate: Estimate| {
            if limited { estimate.doubt(Caveat::SearchLimit { limit }) } else { estimate }
        };
        Ok(Outcome {
            maximum_throughput: with_limit(maximum),
            best_load: best,
            best_between: (
                near.first().copied().unwrap_or(best).min(best),
                near.last().copied().unwrap_or(best).max(best),
            ),
            saturation_point: with_limit(saturation),
            knee,
            knee_between,
            runs: whole_u64(exact_f64(self.measured.len())),
            curve,
        })
    }

    /// N* = low · X(best) / X(low), with the interval of a ratio of means on the log scale.
    ///
    /// Source: asymptotic bounds [LZGS84 §5.2]; the lowest load stands for the light-load line, so
    /// queueing at it makes N* too large.
    fn saturation_point(&self, maximum: &Estimate, at_best: &[f64], at_low: &[f64]) -> Estimate {
        let confidence = self.settings.rule.confidence;
        let low = mean_interval(at_low, confidence).map_or(f64::NAN, |estimate| estimate.center);
        let center = exact_f64(self.settings.low) * maximum.center / low;
        let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
        let (best_logs, low_logs) = (logs(at_best), logs(at_low));
        let (Some(a), Some(b)) = (variance(&best_logs), variance(&low_logs)) else {
            return Estimate::exact(center);
        };
        let (a, b) = (a / exact_f64(at_best.len()), b / exact_f64(at_low.len()));
        if a + b <= 0.0 {
            let interval = Interval::around(center, 0.0, confidence);
            return Estimate::with_interval(center, interval);
        }
        let degrees = (a + b).powi(2)
            / (a * a / exact_f64(at_best.len() - 1) + b * b / exact_f64(at_low.len() - 1));
        let half = t_two_sided(confidence, degrees.max(1.0)) * (a + b).sqrt();
        let interval =
            Interval { low: center * (-half).exp(), high: center * half.exp(), confidence };
        Estimate::with_interval(center, interval)
    }
}

/// A run that is needed and not there.
#[derive(Debug)]
struct Wanted {
    load: u64,
    phase: Phase,
}

/// What was recorded, taken run by run in the order of the decisions.
struct Replay<'a> {
    rest: &'a [(u64, f64)],
    seen: BTreeMap<u64, Vec<f64>>,
}

impl Replay<'_> {
    /// The next recorded run if it has this load; otherwise this run is what is wanted. A run with
    /// another load (left by a search with other settings) is kept as knowledge and passed over.
    fn take(&mut self, load: u64, phase: Phase) -> Result<f64, Wanted> {
        while let Some(((at, throughput), rest)) = self.rest.split_first() {
            self.rest = rest;
            self.seen.entry(*at).or_default().push(*throughput);
            if *at == load {
                return Ok(*throughput);
            }
        }
        Err(Wanted { load, phase })
    }

    fn curve(&self) -> Vec<CurvePoint> {
        self.seen
            .iter()
            .map(|(load, values)| CurvePoint {
                load: *load,
                throughput: mean(values),
                runs: whole_u64(exact_f64(values.len())),
            })
            .collect()
    }

    fn has_near(&self, load: u64) -> bool {
        self.seen.keys().any(|other| {
            let (small, large) = (exact_f64(load.min(*other)), exact_f64(load.max(*other)));
            large / small < SAME_LOAD || large - small < 1.0
        })
    }
}

/// ln of the load at the top of the least-squares parabola; `None` when it has no top.
fn parabola_top(points: &[CurvePoint]) -> Option<f64> {
    if points.len() < 3 {
        return None;
    }
    let (mut normal, mut right) = (Matrix3::zeros(), Vector3::zeros());
    let center =
        points.iter().map(|p| exact_f64(p.load).ln()).sum::<f64>() / exact_f64(points.len());
    for point in points {
        let x = exact_f64(point.load).ln() - center;
        let row = Vector3::new(1.0, x, x * x);
        normal += row * row.transpose();
        right += row * point.throughput;
    }
    let solved = normal.lu().solve(&right)?;
    (solved[2] < 0.0).then(|| center - solved[1] / (2.0 * solved[2]))
}

fn top(curve: &[CurvePoint]) -> f64 {
    curve.iter().map(|point| point.throughput).fold(0.0, f64::max)
}

/// Where the curve first reaches 95 % of `maximum`, and the measured loads on either side.
fn knee(curve: &[CurvePoint], maximum: f64) -> (f64, (u64, u64)) {
    let wanted = KNEE_SHARE * maximum;
    let Some(index) = curve.iter().position(|point| point.throughput >= wanted) else {
        let last = curve.last().map_or(1, |point| point.load);
        return (exact_f64(last), (last, last));
    };
    let above = curve[index];
    let Some(below) = index.checked_sub(1).map(|before| curve[before]) else {
        return (exact_f64(above.load), (above.load, above.load));
    };
    let share = (wanted - below.throughput) / (above.throughput - below.throughput);
    let load = exact_f64(below.load) + share * exact_f64(above.load - below.load);
    (load, (below.load, above.load))
}

/// Geometric middle.
fn between(low: u64, high: u64) -> u64 {
    whole_u64((exact_f64(low) * exact_f64(high)).sqrt().round()).clamp(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: StoppingRule =
        StoppingRule { min: 3, max: 12, relative_half_width: 0.03, confidence: 0.95 };

    fn run(low: u64, high: u64, curve: impl Fn(f64) -> f64) -> Outcome {
        let mut search = Search::new(Settings { low, high, rule: RULE }).unwrap();
        for _ in 0..200 {
            match search.next() {
                Step::Run { load, .. } => search.record(load, curve(exact_f64(load))).unwrap(),
                Step::Done { outcome } => return *outcome,
            }
        }
        panic!("the search does not end");
    }

    #[test]
    fn a_peak_is_found_without_noise() {
        // The build cluster of `models.md`: peak 41.54 at 13.66.
        let usl = |n: f64| {
            8.286_141_5 * n / (1.0 + 0.068_065_2 * (n - 1.0) + 0.004_992_7 * n * (n - 1.0))
        };
        let outcome = run(1, 64, usl);
        assert!((outcome.maximum_throughput.center / 41.54 - 1.0).abs() < 0.005, "{outcome:?}");
        assert!((11..=17).contains(&outcome.best_load), "{outcome:?}");
        assert!(outcome.runs <= 20, "{outcome:?}");
    }

    #[test]
    fn a_maximum_at_the_end_is_said_to_be_a_limit() {
        let outcome = run(1, 50, |n| n);
        assert_eq!(outcome.best_load, 50);
        assert!(matches!(outcome.maximum_throughput.caveats[0], Caveat::SearchLimit { .. }));
    }

    #[test]
    fn an_interrupted_search_goes_on_where_it_was() {
        let settings = Settings { low: 6, high: 198, rule: RULE };
        let curve = |load: u64| 1_000.0 * exact_f64(load.min(40));
        let mut whole = Search::new(settings).unwrap();
        let mut resumed = Search::new(settings).unwrap();
        while let Step::Run { load, .. } = whole.next() {
            assert_eq!(resumed.next(), whole.next());
            whole.record(load, curve(load)).unwrap();
            resumed = Search::new(settings).unwrap();
            for (load, throughput) in &whole.measured {
                resumed.record(*load, *throughput).unwrap();
            }
        }
        assert_eq!(resumed.next(), whole.next());
    }

    #[test]
    fn senseless_searches_and_measurements_are_refused() {
        assert!(Search::new(Settings { low: 0, high: 5, rule: RULE }).is_err());
        assert!(Search::new(Settings { low: 5, high: 5, rule: RULE }).is_err());
        let mut search = Search::new(Settings { low: 1, high: 5, rule: RULE }).unwrap();
        assert!(search.record(1, f64::NAN).is_err() && search.record(1, 0.0).is_err());
    }
}
