//! `adaptive`: finds a system's maximum throughput and its saturation point in few runs.
//!
//! A state machine without memory of its own: [`Search::next`] reads all that was recorded and
//! says what to run next, so an interrupted study is resumed by recording its stored runs.
//!
//! 1. *Explore*: the load doubles from its lowest to its highest value, until the throughput has
//!    fallen, or has not risen for two doublings. The load that ends it is run twice before it counts.
//! 2. *Repeat*: what contradicts a curve that gains less and less from load is run again: a load
//!    that did less for each client than the next higher one, or less than both its neighbors. Of
//!    three runs the median counts, so that a disturbed run decides nothing.
//! 3. *Refine*: a parabola through the throughput against the logarithm of the load, around its
//!    maximum, gives the next load; and where the throughput falls off after the highest load
//!    that was measured, the gap is halved until what it may hide is small (a cliff).
//! 4. *Confirm*: fresh runs at the chosen load and at the lowest one, in turn, until the interval
//!    is as narrow as was asked. Only these make the estimates: the best of many noisy runs is too
//!    good, and so would be an interval around it. A load that did better than that interval allows
//!    is run again, and confirmed in its place if it still does.
//! 5. *Knee*: loads are run until 95 % of the maximum is reached between two of them: at the lower
//!    one it is significantly below 95 %, at the upper one above it. The scatter is that of
//!    all loads that were run more than once, together.
//!
//! What it leaves out: curves with more than one maximum, of which it finds one.

pub mod shape;

use std::collections::BTreeMap;

use kendall_units::{exact_f64, whole_u64};
use nalgebra::{Matrix3, Vector3};
use serde::{Deserialize, Serialize};

use crate::distribution::t_two_sided;
use crate::estimate::{Caveat, Estimate, Interval};
use crate::sample::{mean, mean_interval, median, sum_of_squares, variance};
use crate::stopping::{Decision, RuleError, StoppingRule};

/// Share of the maximum that counts as having reached it.
const KNEE_SHARE: f64 = 0.95;

/// A doubling that raises the throughput by less does not count as rising.
const RISE: f64 = 0.05;

/// A load this far below the best ends the exploration.
const FALL: f64 = 0.85;

/// Loads closer than this ratio are the same to a search whose curve is flat at its top.
const SAME_LOAD: f64 = 1.12;

/// Refinements of the maximum.
const MOST_REFINEMENTS: usize = 8;

/// Runs that are spent on the bracket of the knee.
const MOST_KNEE: usize = 10;

/// Runs of one load that the bracket of the knee may ask for.
const RUNS_AT_KNEE: usize = 4;

/// Two runs of a load that differ by more call for a third.
const DISAGREE: f64 = 0.15;

/// A load whose throughput per client is exceeded by so much at the next higher one is suspicious.
const SUPERLINEAR: f64 = 1.15;

/// A load that does less than this share of both its neighbors is suspicious.
const DIP: f64 = 0.92;

/// Loads that may be suspected.
const MOST_SUSPECTED: usize = 8;

/// A load with this share of the highest throughput is about the best.
const NEAR_TOP: f64 = 0.85;

/// Gain that a gap above the best load may hide, by the slope below it, before loads within it are run.
const HIDDEN_GAIN: f64 = 0.02;

/// A confirming run so far below the others' median was disturbed: at least this share, and five
/// times the median distance, which of normal runs one in a thousand exceeds.
const DISTURBED: (f64, f64) = (0.10, 5.0);

/// Times that another load takes the place of the confirmed one.
const MOST_SECOND_THOUGHTS: usize = 2;

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
#[expect(missing_docs, reason = "the error texts say it")]
pub enum SearchError {
    #[error("loads from {low} to {high}: the lowest is at least 1 and below the highest")]
    Loads { low: u64, high: u64 },
    /// A stopping rule that cannot be followed.
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error("throughput {throughput} at load {load} is not a positive number")]
    Throughput { load: u64, throughput: f64 },
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
    /// Again, since a run contradicts the others.
    Repeat,
    /// Fresh runs at the chosen load and at the lowest.
    Confirm,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "fields are named as their types")]
pub enum Step {
    /// Measure the throughput at this load and record it.
    Run { load: u64, phase: Phase },
    /// Enough is known.
    Done { outcome: Box<Outcome> },
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
    /// The knee lies above the first and not above the second: significant at both, where
    /// there is such a load; at worst they are the lowest load and that of the maximum.
    pub knee_between: (u64, u64),
    /// What the curve does beyond its maximum.
    #[serde(default)]
    pub shape: Shape,
    /// How the throughput at the highest load that was run compares with the maximum; `None` where
    /// that is the load of the maximum.
    pub beyond: Option<Beyond>,
    /// Runs in all.
    pub runs: u64,
    /// Mean throughput of every load that was measured, ascending.
    pub curve: Vec<CurvePoint>,
}

/// What a curve does beyond its maximum, where that is significant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// The highest load is the best one: it may grow on.
    Growing,
    /// It stays within 5 % of the maximum, or the runs do not tell that it leaves it.
    #[default]
    Saturating,
    /// It falls by more than 5 %.
    Retrograde,
    /// It falls by more than a fifth between neighboring loads, of which the higher one is less
    /// than half as high again.
    Cliff,
}

impl Shape {
    /// As it is written in results and sentences.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Growing => "growing",
            Self::Saturating => "saturating",
            Self::Retrograde => "retrograde",
            Self::Cliff => "cliff",
        }
    }
}

/// The throughput beyond the maximum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Beyond {
    /// The highest load that was run.
    pub load: u64,
    /// Its throughput over the maximum, with the interval of a ratio.
    pub ratio: Estimate,
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
    /// [`SearchError::Throughput`] for what is not a positive number.
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
        settle_suspicious(replay)?;
        let best = self.refine(replay)?;
        let mut confirmed = self.confirm(replay, best)?;
        for _ in 0..MOST_SECOND_THOUGHTS {
            let Some(other) = confirmed.exceeded_by(&replay.curve()) else { break };
            while replay.count(other) < 3 {
                replay.take(other, Phase::Repeat)?;
            }
            if confirmed.exceeded_by(&replay.curve()) == Some(other) {
                confirmed = self.confirm(replay, other)?;
            }
        }
        let knee_between = self.bracket_knee(replay, &confirmed)?;
        Ok(self.outcome(replay, confirmed, knee_between))
    }

    fn explore(&self, replay: &mut Replay<'_>) -> Result<(), Wanted> {
        let (mut load, mut best, mut flat) = (self.settings.low, 0.0_f64, 0);
        loop {
            let mut throughput = replay.take(load, Phase::Explore)?;
            if throughput <= best * (1.0 + RISE) {
                // It counts against the load: once is not enough.
                throughput = replay.agreed(load)?;
            }
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

    /// Searches around the maximum, and within a gap after which the throughput has fallen.
    fn refine(&self, replay: &mut Replay<'_>) -> Result<u64, Wanted> {
        for _ in 0..MOST_REFINEMENTS {
            let curve = replay.curve();
            let top = self.best_load(&curve);
            let unknown = (!replay.has_near(top)).then_some(top);
            let Some(candidate) = unknown.or_else(|| gap(&curve)) else { break };
            let throughput = replay.take(candidate, Phase::Refine)?;
            if throughput < FALL * highest(&curve).throughput {
                replay.agreed(candidate)?;
            }
        }
        Ok(self.best_load(&replay.curve()))
    }

    /// Where the throughput is highest: the top of a parabola in the logarithm of the load through
    /// the highest point and two neighbors on either side; the highest point where there is none.
    fn best_load(&self, curve: &[CurvePoint]) -> u64 {
        let highest = curve
            .iter()
            .enumerate()
            .max_by(|a, b| a.1.throughput.total_cmp(&b.1.throughput))
            .map_or(0, |(index, _)| index);
        // Before a cliff the throughput grows to its edge; a parabola would miss it.
        if let Some(edge) = edge(curve) {
            return edge.here.load;
        }
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
    fn confirm(&self, replay: &mut Replay<'_>, best: u64) -> Result<Confirmed, Wanted> {
        let (mut at_best, mut at_low) = (Vec::new(), Vec::new());
        let rule = self.settings.rule;
        loop {
            at_best.push(replay.take(best, Phase::Confirm)?);
            if exact_f64(at_low.len()) < exact_f64(rule.min) {
                at_low.push(replay.take(self.settings.low, Phase::Confirm)?);
            }
            let (kept, disturbed) = undisturbed(&at_best);
            // At the cap the rule is to end with what was kept.
            let capped = exact_f64(at_best.len()) >= exact_f64(rule.max);
            let kept_runs = whole_u64(exact_f64(kept.len()));
            let rule = if capped {
                StoppingRule { max: kept_runs, min: rule.min.min(kept_runs).max(2), ..rule }
            } else {
                rule
            };
            let maximum = match rule.decide_independent(&kept) {
                Ok(Decision::Continue { .. }) if !capped => continue,
                Ok(Decision::Enough { estimate }) => estimate,
                Ok(Decision::CapReached { estimate }) => for_looking(estimate, kept_runs),
                _ => Estimate::exact(mean(&kept)),
            };
            let maximum = match disturbed {
                0 => maximum,
                count => maximum.doubt(Caveat::Note {
                    text: format!(
                        "{count} of {} confirming runs measured far less than the others and are \
                         left out: something disturbed them",
                        at_best.len()
                    ),
                }),
            };
            return Ok(Confirmed { load: best, maximum, at_best: kept, at_low });
        }
    }

    /// Runs loads until the knee lies between two that differ from it significantly; the bracket at the end.
    fn bracket_knee(
        &self,
        replay: &mut Replay<'_>,
        confirmed: &Confirmed,
    ) -> Result<(u64, u64), Wanted> {
        for _ in 0..MOST_KNEE {
            let (below, above) = self.knee_bracket(replay, confirmed);
            if above <= below + 1 || exact_f64(above) / exact_f64(below) < SAME_LOAD {
                break;
            }
            let middle = between(below, above);
            let tries = [middle, between(below, middle), between(middle, above)];
            let open =
                |load: &u64| *load > below && *load < above && replay.count(*load) < RUNS_AT_KNEE;
            let Some(load) = tries.into_iter().find(open) else { break };
            replay.take(load, Phase::Knee)?;
        }
        Ok(self.knee_bracket(replay, confirmed))
    }

    /// The highest load that is significantly below the knee and has none below itself that has significantly
    /// reached it; and the lowest above it that has significantly reached it.
    fn knee_bracket(&self, replay: &Replay<'_>, confirmed: &Confirmed) -> (u64, u64) {
        let (deviation, degrees) = replay.scatter(confirmed);
        // One-sided at each end, and the ends are the extremes of several loads.
        let critical = t_two_sided(KNEE_CONFIDENCE, degrees.max(1.0));
        let logs: Vec<f64> = confirmed.at_best.iter().map(|value| value.ln()).collect();
        let wanted = KNEE_SHARE.ln() + mean(&logs);
        let distance = |values: &[f64]| {
            let (kept, _) = undisturbed(values);
            let center = mean(&kept.iter().map(|value| value.ln()).collect::<Vec<f64>>());
            let error = deviation
                * (1.0 / exact_f64(kept.len()) + 1.0 / exact_f64(confirmed.at_best.len())).sqrt();
            (center - wanted, critical * error)
        };
        let mut below = self.settings.low;
        for (load, values) in replay.seen.range(..confirmed.load) {
            let (above_by, margin) = distance(values);
            if above_by < -margin {
                below = *load;
            }
        }
        let reached = replay.seen.range(below..confirmed.load).find(|(_, values)| {
            let (above_by, margin) = distance(values);
            above_by > margin
        });
        (below, reached.map_or(confirmed.load, |(load, _)| *load))
    }

    fn outcome(
        &self,
        replay: &Replay<'_>,
        confirmed: Confirmed,
        knee_between: (u64, u64),
    ) -> Outcome {
        let curve = replay.curve();
        let maximum = &confirmed.maximum;
        let best = confirmed.load;
        let hidden = edge(&curve).filter(|edge| edge.here.load == best).map_or(0.0, |e| e.hidden);
        let (knee, _) = knee(&curve, maximum.center);
        let interval = maximum.interval.unwrap_or(Interval::around(maximum.center, 0.0, 0.0));
        let near: Vec<u64> =
            curve.iter().filter(|p| p.throughput >= interval.low).map(|p| p.load).collect();
        let saturation = self.saturation_point(maximum, &confirmed.at_best, &confirmed.at_low);
        // The highest load is not a limit where a lower one significantly does as well.
        let limited = best == self.settings.high && knee_between.1 == best;
        let limit = exact_f64(self.settings.high);
        let with_limit = |estimate: Estimate| {
            if limited { estimate.doubt(Caveat::SearchLimit { limit }) } else { estimate }
        };
        let shape = if limited { Shape::Growing } else { shape(replay, &confirmed) };
        Outcome {
            best_load: best,
            best_between: (
                near.first().copied().unwrap_or(best).min(best),
                near.last().copied().unwrap_or(best).max(best),
            ),
            saturation_point: with_limit(saturation),
            knee: knee.clamp(exact_f64(knee_between.0), exact_f64(knee_between.1)),
            knee_between,
            shape,
            beyond: self.beyond(replay, &confirmed),
            runs: whole_u64(exact_f64(self.measured.len())),
            curve,
            maximum_throughput: with_limit(with_gap(confirmed.maximum, hidden)),
        }
    }

    /// The highest load against the maximum, with the scatter of all loads together.
    fn beyond(&self, replay: &Replay<'_>, confirmed: &Confirmed) -> Option<Beyond> {
        let (load, values) = replay.seen.last_key_value()?;
        if *load <= confirmed.load {
            return None;
        }
        let (kept, _) = undisturbed(values);
        let center = level(&kept) / confirmed.maximum.center;
        let (deviation, degrees) = replay.scatter(confirmed);
        let error = deviation
            * (1.0 / exact_f64(kept.len()) + 1.0 / exact_f64(confirmed.at_best.len())).sqrt();
        let confidence = self.settings.rule.confidence;
        let half = t_two_sided(confidence, degrees.max(1.0)) * error;
        let log = center.ln();
        let interval = Interval::around(log, half, confidence);
        Some(Beyond { load: *load, ratio: Estimate::with_interval(log, interval).map(f64::exp) })
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

/// A load with its fresh runs.
struct Confirmed {
    load: u64,
    maximum: Estimate,
    /// Without those that were disturbed.
    at_best: Vec<f64>,
    at_low: Vec<f64>,
}

impl Confirmed {
    /// The load, if any, that did better than the interval of the maximum allows.
    fn exceeded_by(&self, curve: &[CurvePoint]) -> Option<u64> {
        let interval = self.maximum.interval?;
        let other = highest(curve);
        (other.load != self.load && other.throughput > interval.high).then_some(other.load)
    }
}

/// Confidence of each end of the knee's bracket, two-sided; by simulation of `tests/adaptive.rs`.
const KNEE_CONFIDENCE: f64 = 0.97;

/// The interval at the cap, wider by 1/n for the looks on the way there, at which the sessions that
/// agreed best ended: 93 % held on 5 % noise without it.
fn for_looking(mut estimate: Estimate, runs: u64) -> Estimate {
    if let Some(interval) = &mut estimate.interval {
        let half_width = interval.half_width() * (1.0 + 1.0 / exact_f64(runs.max(1)));
        *interval = Interval::around(estimate.center, half_width, interval.confidence);
    }
    estimate
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

    /// The level of a load after a second run, and a third where two disagree.
    fn agreed(&mut self, load: u64) -> Result<f64, Wanted> {
        while self.count(load) < 2 || (self.count(load) == 2 && self.disagree(load)) {
            self.take(load, Phase::Repeat)?;
        }
        Ok(level(&self.seen[&load]))
    }

    fn disagree(&self, load: u64) -> bool {
        self.seen.get(&load).is_some_and(|values| {
            let (low, high) = ends(values);
            low < (1.0 - DISAGREE) * high
        })
    }

    fn count(&self, load: u64) -> usize {
        self.seen.get(&load).map_or(0, Vec::len)
    }

    fn curve(&self) -> Vec<CurvePoint> {
        self.seen
            .iter()
            .map(|(load, values)| CurvePoint {
                load: *load,
                throughput: level(values),
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

    /// Standard deviation of the logarithm of a run, from all loads together, and its degrees of
    /// freedom. The confirming runs count for themselves, since the others at that load chose it.
    fn scatter(&self, confirmed: &Confirmed) -> (f64, f64) {
        let (mut squares, mut degrees) = (0.0, 0.0);
        let mut add = |values: &[f64]| {
            let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
            squares += sum_of_squares(&logs);
            degrees += exact_f64(logs.len() - 1);
        };
        add(&confirmed.at_best);
        for (_, values) in self.seen.iter().filter(|(load, _)| **load != confirmed.load) {
            add(&undisturbed(values).0);
        }
        if degrees > 0.0 { ((squares / degrees).sqrt(), degrees) } else { (0.0, 1.0) }
    }
}

/// Runs a load again that does what no system does which only gains less and less from load.
fn settle_suspicious(replay: &mut Replay<'_>) -> Result<(), Wanted> {
    for _ in 0..MOST_SUSPECTED {
        let curve = replay.curve();
        let suspicious = (0..curve.len()).find(|index| {
            let here = &curve[*index];
            let Some(next) = curve.get(index + 1) else { return false };
            let per_client = |point: &CurvePoint| point.throughput / exact_f64(point.load);
            let superlinear = per_client(next) > SUPERLINEAR * per_client(here);
            let dips = index.checked_sub(1).is_some_and(|before| {
                here.throughput < DIP * curve[before].throughput.min(next.throughput)
            });
            let settled = match replay.count(here.load) {
                1 => false,
                2 => !replay.disagree(here.load),
                _ => true,
            };
            (superlinear || dips) && !settled
        });
        let Some(index) = suspicious else { break };
        replay.agreed(curve[index].load)?;
    }
    Ok(())
}

/// Level of a load: its runs' mean, and from three on their median.
fn level(values: &[f64]) -> f64 {
    if values.len() < 3 {
        return mean(values);
    }
    median(values.to_vec())
}

fn ends(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, 0.0), |(low, high), v| (v.min(low), v.max(high)))
}

/// The runs of one load without those far below their median, and how many those are.
fn undisturbed(values: &[f64]) -> (Vec<f64>, usize) {
    if values.len() < 3 {
        return (values.to_vec(), 0);
    }
    let middle = level(values);
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let limit = (DISTURBED.0 * middle).max(DISTURBED.1 * level(&distances));
    let kept: Vec<f64> = values.iter().copied().filter(|value| middle - value <= limit).collect();
    let left_out = values.len() - kept.len();
    // More than a third is not a disturbance but how the system is.
    if 3 * left_out > values.len() { (values.to_vec(), 0) } else { (kept, left_out) }
}

fn highest(curve: &[CurvePoint]) -> CurvePoint {
    let top = curve.iter().copied().max_by(|a, b| a.throughput.total_cmp(&b.throughput));
    top.unwrap_or(CurvePoint { load: 1, throughput: 0.0, runs: 0 })
}

/// The edge of a cliff: a load that is about the best, at which the throughput still grew, and the
/// next one, at which it has broken down.
#[derive(Debug, Clone, Copy)]
struct Edge {
    here: CurvePoint,
    next: CurvePoint,
    /// Share of the throughput that the gap between the two may hide, growing on as before.
    hidden: f64,
}

fn edge(curve: &[CurvePoint]) -> Option<Edge> {
    let top = highest(curve);
    let at = curve.iter().rposition(|point| point.throughput >= NEAR_TOP * top.throughput)?;
    let (here, next) = (curve[at], *curve.get(at + 1)?);
    if next.throughput >= FALL * here.throughput {
        return None;
    }
    // Growth since a load well below: neighbors are too close for their noise.
    let before = curve[..at].iter().rev().find(|point| 3 * here.load >= 4 * point.load)?;
    let growth = here.throughput / before.throughput - 1.0;
    let linear = exact_f64(here.load) / exact_f64(before.load) - 1.0;
    let slope = (growth / linear).min(1.0) / exact_f64(here.load);
    let hidden = slope * exact_f64(next.load - here.load - 1);
    (growth > linear / 2.0).then_some(Edge { here, next, hidden })
}

/// An interval that reaches as far up as the gap behind the best load allows.
fn with_gap(mut maximum: Estimate, hidden: f64) -> Estimate {
    if let Some(interval) = &mut maximum.interval {
        interval.high += hidden.max(0.0) * maximum.center;
    }
    maximum
}

/// The middle of the gap behind an edge, where it may hide a gain.
fn gap(curve: &[CurvePoint]) -> Option<u64> {
    let Edge { here, next, hidden } = edge(curve)?;
    let middle = between(here.load, next.load);
    (hidden > HIDDEN_GAIN && middle > here.load && middle < next.load).then_some(middle)
}

/// What the runs beyond the maximum tell.
fn shape(replay: &Replay<'_>, confirmed: &Confirmed) -> Shape {
    let (deviation, degrees) = replay.scatter(confirmed);
    let critical = t_two_sided(KNEE_CONFIDENCE, degrees.max(1.0));
    let told_below = |high: (f64, usize), low: (f64, usize), share: f64| {
        let error = deviation * (1.0 / exact_f64(high.1) + 1.0 / exact_f64(low.1)).sqrt();
        (share * high.0 / low.0).ln() > critical * error
    };
    let curve = replay.curve();
    let point = |point: &CurvePoint| (point.throughput, replay.count(point.load));
    let beyond: Vec<&CurvePoint> = curve.iter().filter(|p| p.load >= confirmed.load).collect();
    let cliff = beyond.windows(2).any(|pair| {
        2 * pair[1].load < 3 * pair[0].load && told_below(point(pair[0]), point(pair[1]), 0.8)
    });
    let top = (confirmed.maximum.center, confirmed.at_best.len());
    let falls = beyond
        .last()
        .is_some_and(|last| last.load > confirmed.load && told_below(top, point(last), KNEE_SHARE));
    match (cliff, falls) {
        (true, _) => Shape::Cliff,
        (false, true) => Shape::Retrograde,
        (false, false) => Shape::Saturating,
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
