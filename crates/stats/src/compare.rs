//! Systems compared: differences with intervals, and a verdict against a stated bound.
//!
//! Paired where runs are paired (block by block, measured side by side), unpaired otherwise. The
//! independent unit is the run, never the request. Ratios are taken on the log scale, so that
//! twice and half are equally far. From five runs a side and seven pairs on, differences go by ranks
//! ([`Method::Ranks`]), so that one disturbed run in ten does not hide them; with fewer, or where so
//! many comparisons are made at once that ranks could not tell anything, by Student's t, with the
//! scatter of the runs of all configurations of a response variable ([`Method::Pooled`]). Several
//! comparisons at once are adjusted by Holm's method.
//! An interval that holds "no change" is not called "no change": that takes an interval that lies
//! within the bound.

mod rank;
mod scatter;
pub mod sequential;
pub mod trend;

use std::collections::BTreeMap;

use kendall_units::{exact_f64, whole_u64};
use rand::{Rng, RngExt as _};
use serde::{Deserialize, Serialize};

use self::scatter::{Scatter, Spread};
use crate::covariate::AtOneValue;
use crate::distribution::{t_p_value, t_two_sided};
use crate::estimate::{Caveat, Estimate, Interval, figures};
use crate::sample::{
    SampleError, check, check_confidence, mean, mean_interval, median_interval, variance,
};

/// Relabelings that are counted exactly; beyond it, as many are drawn.
const MOST_RELABELINGS: u64 = 20_000;

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Response times, errors.
    Lower,
    /// Throughput.
    Higher,
}

/// What a response variable measures, which says in which unit it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Events per second.
    Rate,
    /// Seconds.
    Time,
    /// A number of which no unit is known, such as the values of a table.
    #[default]
    Number,
}

impl Quantity {
    /// What a value is multiplied with to be shown, and the unit that it then has.
    #[must_use]
    pub fn shown(self) -> (f64, &'static str) {
        match self {
            Self::Rate => (1.0, "1/s"),
            Self::Time => (1e3, "ms"),
            Self::Number => (1.0, ""),
        }
    }

    /// The name of a response variable without the unit of its values, which is no part of what is shown.
    #[must_use]
    pub fn name_of(self, metric: &str) -> &str {
        let unit = match self {
            Self::Rate => "_per_s",
            Self::Time => "_s",
            Self::Number => "",
        };
        metric.strip_suffix(unit).unwrap_or(metric)
    }
}

/// The runs of one configuration, in both result sets.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    /// What was run, such as `workers=8, clients=66`.
    pub configuration: String,
    /// Response variable, such as `response_time_p99`.
    pub metric: String,
    /// What that measures.
    pub quantity: Quantity,
    /// Which way is better.
    pub better: Better,
    /// First result set: block, if any, and response.
    pub before: Vec<(Option<String>, f64)>,
    /// Second result set.
    pub after: Vec<(Option<String>, f64)>,
}

/// How to compare.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Of all intervals and of the verdict.
    pub confidence: f64,
    /// Relative change that matters, such as 0.05.
    pub bound: f64,
    /// Whether runs of the same block were measured side by side.
    pub paired: bool,
}

/// How a difference was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Means, and Student's t (paired) or Welch's (two sets).
    #[default]
    StudentT,
    /// The same, where the runs of other configurations say too how runs scatter (a moderated t).
    Pooled,
    /// Hodges and Lehmann's shift: the median of all differences, and Wilcoxon's tests.
    Ranks,
}

/// Runs a side, and pairs, from which ranks are taken. Below, a test by ranks loses more with clean
/// runs than it gains with disturbed ones (`tests/comparisons.rs`).
const RANKS_FROM: (usize, usize) = (5, 7);

/// The confidence that ranks achieve where a single comparison of so many runs a side (or pairs) goes by
/// them; `None` where it goes by Student's t.
pub(crate) fn confidence_by_ranks(runs: usize, paired: bool, confidence: f64) -> Option<f64> {
    let enough = if paired { RANKS_FROM.1 } else { RANKS_FROM.0 };
    (runs >= enough).then(|| rank::achieved(runs, (!paired).then_some(runs), confidence))?
}

/// What a comparison comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Significantly worse, by more than the bound.
    Regression,
    /// Significantly better, by more than the bound.
    Improvement,
    /// The whole interval lies within the bound.
    Equivalent,
    /// The runs do not decide it.
    Inconclusive,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Regression => "regression",
            Self::Improvement => "improvement",
            Self::Equivalent => "equivalent",
            Self::Inconclusive => "inconclusive",
        })
    }
}

/// One configuration and metric compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What was run.
    pub configuration: String,
    /// Response variable.
    pub metric: String,
    /// What that measures.
    #[serde(default)]
    pub quantity: Quantity,
    /// Which way is better.
    pub better: Better,
    /// Whether runs were compared block by block.
    pub paired: bool,
    /// How the difference was taken.
    #[serde(default)]
    pub method: Method,
    /// Pairs, or runs of the first and of the second set.
    pub runs: (u64, u64),
    /// Mean of the first set; its median where the difference goes by ranks.
    pub before: Estimate,
    /// Mean of the second set; its median where the difference goes by ranks.
    pub after: Estimate,
    /// Second minus first.
    pub difference: Estimate,
    /// Second over first (of geometric means, or the median of all ratios), with the interval that the
    /// verdict rests on; `None` when a response is not positive.
    pub ratio: Option<Estimate>,
    /// The same at one speed of the machine, by the probe of each run as a covariate; `None` where that
    /// makes the interval hardly narrower, or where there is no probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_one_speed: Option<AtOneValue>,
    /// Probability of so large a difference by chance (two-sided, by the method's test).
    pub p_value: Option<f64>,
    /// The same by relabeling the runs, without assuming a distribution.
    pub p_permutation: Option<f64>,
    /// `p_value` adjusted for the number of comparisons (Holm).
    pub p_adjusted: Option<f64>,
    /// What it comes to.
    pub verdict: Verdict,
    /// In one sentence, with the figures.
    pub words: String,
    /// Its caveats.
    pub caveats: Vec<Caveat>,
}

impl Comparison {
    /// The interval of the ratio, unless it says nothing.
    #[must_use]
    pub fn interval(&self) -> Option<Interval> {
        self.ratio.as_ref()?.interval.filter(|interval| !is_of_no_sense(interval))
    }

    /// Whether it is worse by more than the bound, by chance or not.
    #[must_use]
    pub fn is_worse_by(&self, bound: f64) -> bool {
        let worse = |ratio: f64| match self.better {
            Better::Lower => ratio,
            Better::Higher => 1.0 / ratio,
        };
        self.ratio.as_ref().is_some_and(|ratio| worse(ratio.center) > 1.0 + bound)
    }
}

/// Whether an interval holds no change beside changes so large that its ends have no sense.
fn is_of_no_sense(interval: &Interval) -> bool {
    interval.says_nothing() && interval.contains(1.0)
}

/// Result sets that cannot be compared.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum CompareError {
    #[error("nothing to compare: the result sets have no configuration in common")]
    Nothing,
    #[error("a bound of {bound} is not a share above 0 and below 1, such as 0.05")]
    Bound { bound: f64 },
    #[error("configuration {configuration}: {source}")]
    Sample { configuration: String, source: SampleError },
    /// A confidence outside (0, 1).
    #[error(transparent)]
    Confidence(#[from] SampleError),
}

/// Compares every configuration, and adjusts for their number.
///
/// A change is significant when its adjusted p-value is below 1 − confidence; it is a
/// regression or an improvement when it also exceeds the bound, and equivalent when its whole
/// interval lies within the bound. Intervals are those of the verdicts: all but that of an equivalent
/// one have the confidence of Holm's step, so that one holds no change where it is not significant.
///
/// # Errors
/// [`CompareError`] for nothing to compare, and for numbers, bounds and levels that are none.
///
/// # Source
/// Paired and unpaired t [Jain91 §13.4]; Welch 1947; ranks: Wilcoxon 1945, Mann, Whitney 1947,
/// Hodges, Lehmann 1963; Fisher's permutation test; Holm 1979; equivalence by inclusion of the
/// interval, Schuirmann 1987.
pub fn compare(
    samples: &[Samples],
    options: &Options,
    rng: &mut impl Rng,
) -> Result<Vec<Comparison>, CompareError> {
    check_confidence(options.confidence)?;
    if !(options.bound > 0.0 && options.bound < 1.0) {
        return Err(CompareError::Bound { bound: options.bound });
    }
    if samples.is_empty() {
        return Err(CompareError::Nothing);
    }
    let together = samples.len();
    let compared = samples.iter().map(|one| single(one, options, together, rng));
    let (mut comparisons, judged): (Vec<_>, Vec<_>) =
        compared.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    let scatters = pool(&mut comparisons, &judged, options.confidence);
    let p_values: Vec<_> = comparisons.iter().map(|one| one.p_value).collect();
    let adjusted = holm(&p_values);
    let steps = confidences(&p_values, options.confidence);
    for (at, comparison) in comparisons.iter_mut().enumerate() {
        comparison.p_adjusted = adjusted[at];
        (comparison.verdict, comparison.words) = judge(comparison, options);
        if comparison.verdict != Verdict::Equivalent && comparison.ratio.is_some() {
            let (log_ratio, _) = match scatters.get(&comparison.metric) {
                Some(scatter) if comparison.method == Method::Pooled => {
                    judged[at].by_pooled_t(scatter, steps[at])
                }
                _ => judged[at].difference(comparison.method, steps[at]),
            };
            comparison.ratio = Some(log_ratio.map(f64::exp));
            (comparison.verdict, comparison.words) = judge(comparison, options);
        }
    }
    Ok(comparisons)
}

/// Judges what goes by Student's t with the scatter of all configurations of its response variable,
/// where three were repeated; returns the scatter of each variable.
fn pool(
    comparisons: &mut [Comparison],
    judged: &[Sides],
    confidence: f64,
) -> BTreeMap<String, Scatter> {
    let mut spreads: BTreeMap<String, Vec<Vec<Spread>>> = BTreeMap::new();
    let by_t = |one: &Comparison| {
        one.method == Method::StudentT && one.ratio.is_some() && one.p_value.is_some()
    };
    for (one, sides) in comparisons.iter().zip(judged).filter(|(one, _)| by_t(one)) {
        spreads.entry(one.metric.clone()).or_default().extend(sides.spreads());
    }
    let scatters: BTreeMap<String, Scatter> = spreads
        .into_iter()
        .filter_map(|(metric, spreads)| Some((metric, Scatter::of(&spreads)?)))
        .collect();
    for (one, sides) in comparisons.iter_mut().zip(judged).filter(|(one, _)| by_t(one)) {
        if let Some(scatter) = scatters.get(&one.metric) {
            let (log_ratio, p) = sides.by_pooled_t(scatter, confidence);
            (one.ratio, one.p_value) = (Some(log_ratio.map(f64::exp)), p);
            one.method = Method::Pooled;
        }
    }
    scatters
}

/// The geometric mean of the second runs over that of the first, with Welch's interval on the log
/// scale; `None` for fewer than two runs a side, and for what is not positive.
#[must_use]
pub fn ratio(before: &[f64], after: &[f64], confidence: f64) -> Option<Estimate> {
    check_confidence(confidence).ok()?;
    let logs = |values: &[f64]| -> Option<Vec<f64>> {
        let log = |value: &f64| (*value > 0.0 && value.is_finite()).then(|| value.ln());
        values.iter().map(log).collect()
    };
    let (before, after) = (logs(before)?, logs(after)?);
    (before.len() > 1 && after.len() > 1)
        .then(|| Sides::Unpaired(before, after).by_t(confidence).0.map(f64::exp))
}

/// Holm's step-down adjustment; what has no p-value is left out of the count.
#[must_use]
pub fn holm(p_values: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut order: Vec<(usize, f64)> =
        p_values.iter().enumerate().filter_map(|(index, p)| Some((index, (*p)?))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut adjusted = vec![None; p_values.len()];
    let mut largest = 0.0_f64;
    for (rank, (index, p)) in order.iter().enumerate() {
        largest = largest.max((p * exact_f64(order.len() - rank)).min(1.0));
        adjusted[*index] = Some(largest);
    }
    adjusted
}

/// The confidence at which Holm's method judges each: an interval of it holds no difference where the
/// adjusted p-value is not below 1 − `confidence`, and leaves none out where it is.
fn confidences(p_values: &[Option<f64>], confidence: f64) -> Vec<f64> {
    let mut known: Vec<f64> = p_values.iter().copied().flatten().collect();
    known.sort_by(f64::total_cmp);
    let error = 1.0 - confidence;
    let of_step = |step: usize| error / exact_f64(known.len() - step);
    let told = (0..known.len()).take_while(|step| known[*step] < of_step(*step)).count();
    let last = told.min(known.len().saturating_sub(1));
    let step = |p: f64| known.iter().position(|one| *one >= p).unwrap_or(last).min(last);
    p_values.iter().map(|p| p.map_or(confidence, |p| 1.0 - of_step(step(p)))).collect()
}

fn single(
    samples: &Samples,
    options: &Options,
    together: usize,
    rng: &mut impl Rng,
) -> Result<(Comparison, Sides), CompareError> {
    let values =
        |runs: &[(Option<String>, f64)]| runs.iter().map(|run| run.1).collect::<Vec<f64>>();
    let (before, after) = (values(&samples.before), values(&samples.after));
    for side in [&before, &after] {
        check(side).map_err(|source| CompareError::Sample {
            configuration: samples.configuration.clone(),
            source,
        })?;
    }
    let mut caveats = Vec::new();
    let pairs = if options.paired { pairs(samples, &mut caveats) } else { None };
    let sides = match &pairs {
        Some(pairs) => Sides::Paired(pairs.clone()),
        None => Sides::Unpaired(before.clone(), after.clone()),
    };
    let method = sides.method(options.confidence, together);
    let difference = sides.difference(method, options.confidence);
    let positive = before.iter().chain(&after).all(|value| *value > 0.0);
    let logs = positive.then(|| sides.map(f64::ln));
    let log_difference = logs.as_ref().map(|logs| logs.difference(method, options.confidence));
    let (before, after) = sides.values();
    let judged = logs.unwrap_or(sides);
    let shown = |values: &[f64]| {
        let shown = match method {
            Method::StudentT | Method::Pooled => mean_interval(values, options.confidence),
            Method::Ranks => median_interval(values, options.confidence),
        };
        shown.unwrap_or_else(|_| Estimate::exact(f64::NAN))
    };
    let runs = (whole_u64(exact_f64(before.len())), whole_u64(exact_f64(after.len())));
    if runs.0.min(runs.1) < 2 {
        caveats.push(Caveat::TooFewReplications { have: runs.0.min(runs.1), need: 2 });
    }
    let comparison = Comparison {
        configuration: samples.configuration.clone(),
        metric: samples.metric.clone(),
        quantity: samples.quantity,
        better: samples.better,
        paired: pairs.is_some(),
        method,
        runs,
        before: shown(&before),
        after: shown(&after),
        difference: difference.0,
        p_value: log_difference.as_ref().map_or(difference.1, |(_, p)| *p),
        at_one_speed: None,
        ratio: log_difference.map(|(estimate, _)| estimate.map(f64::exp)),
        p_permutation: judged.permutation_p(rng),
        p_adjusted: None,
        verdict: Verdict::Inconclusive,
        words: String::new(),
        caveats,
    };
    Ok((comparison, judged))
}

/// Runs matched by block; `None`, with the reason as a caveat, where they do not match.
fn pairs(samples: &Samples, caveats: &mut Vec<Caveat>) -> Option<Vec<(f64, f64)>> {
    let by_block = |runs: &[(Option<String>, f64)]| {
        let mut blocks: BTreeMap<String, f64> = BTreeMap::new();
        for (block, value) in runs {
            if blocks.insert(block.clone()?, *value).is_some() {
                return None;
            }
        }
        Some(blocks)
    };
    let mut refuse = |reason: &str| {
        caveats.push(Caveat::NotPaired { reason: reason.to_owned() });
        None
    };
    let (Some(before), Some(after)) = (by_block(&samples.before), by_block(&samples.after)) else {
        return refuse("a run has no block, or a block has two runs of this configuration");
    };
    let matched: Vec<(f64, f64)> =
        before.iter().filter_map(|(block, value)| Some((*value, *after.get(block)?))).collect();
    if matched.len() < 2 {
        return refuse("fewer than two blocks are in both result sets");
    }
    let lonely = before.len() + after.len() - 2 * matched.len();
    if lonely > 0 {
        let runs = kendall_units::counted(lonely, "run");
        let text = format!("left out: {runs} without a partner in the other set");
        caveats.push(Caveat::Note { text });
    }
    Some(matched)
}

/// The numbers that are compared.
#[derive(Debug, Clone)]
enum Sides {
    Paired(Vec<(f64, f64)>),
    Unpaired(Vec<f64>, Vec<f64>),
}

impl Sides {
    fn map(&self, map: impl Fn(f64) -> f64) -> Self {
        match self {
            Self::Paired(pairs) => {
                Self::Paired(pairs.iter().map(|(a, b)| (map(*a), map(*b))).collect())
            }
            Self::Unpaired(a, b) => Self::Unpaired(
                a.iter().map(|x| map(*x)).collect(),
                b.iter().map(|x| map(*x)).collect(),
            ),
        }
    }

    fn values(&self) -> (Vec<f64>, Vec<f64>) {
        match self {
            Self::Paired(pairs) => pairs.iter().copied().unzip(),
            Self::Unpaired(a, b) => (a.clone(), b.clone()),
        }
    }

    /// Ranks where there are enough runs for them to say anything, also once adjusted for so many
    /// comparisons at once.
    fn method(&self, confidence: f64, together: usize) -> Method {
        let (enough, least) = match self {
            Self::Paired(pairs) => {
                (pairs.len() >= RANKS_FROM.1, rank::least_p_value(pairs.len(), None))
            }
            Self::Unpaired(a, b) => {
                (a.len().min(b.len()) >= RANKS_FROM.0, rank::least_p_value(a.len(), Some(b.len())))
            }
        };
        let tells = least * exact_f64(together) < 1.0 - confidence;
        if enough && tells { Method::Ranks } else { Method::StudentT }
    }

    /// Second minus first with its interval, and the p-value of no difference.
    fn difference(&self, method: Method, confidence: f64) -> (Estimate, Option<f64>) {
        if method != Method::Ranks {
            return self.by_t(confidence);
        }
        let shift = match self {
            Self::Paired(pairs) => {
                let differences: Vec<f64> = pairs.iter().map(|(a, b)| b - a).collect();
                rank::of_pairs(&differences, confidence)
            }
            Self::Unpaired(a, b) => rank::of_sets(a, b, confidence),
        };
        let Some(shift) = shift else { return self.by_t(confidence) };
        let interval = Interval { low: shift.low, high: shift.high, confidence: shift.confidence };
        (Estimate::with_interval(shift.center, interval), Some(shift.p_value))
    }

    fn center(&self) -> f64 {
        match self {
            Self::Paired(pairs) => mean(&pairs.iter().map(|(a, b)| b - a).collect::<Vec<f64>>()),
            Self::Unpaired(a, b) => mean(b) - mean(a),
        }
    }

    /// The variance of each mean whose sum is the difference; `None` where one is of a single run.
    fn spreads(&self) -> Option<Vec<Spread>> {
        let of = |values: &[f64]| Some(Spread { variance: variance(values)?, runs: values.len() });
        match self {
            Self::Paired(pairs) => {
                Some(vec![of(&pairs.iter().map(|(a, b)| b - a).collect::<Vec<f64>>())?])
            }
            Self::Unpaired(a, b) => Some(vec![of(a)?, of(b)?]),
        }
    }

    /// The same by Student's t.
    fn by_t(&self, confidence: f64) -> (Estimate, Option<f64>) {
        let center = self.center();
        let Some(spreads) = self.spreads() else {
            let caveat = Caveat::TooFewReplications { have: 1, need: 2 };
            return (Estimate::exact(center).doubt(caveat), None);
        };
        let (error, degrees) = scatter::welch(spreads.iter().map(|one| one.of_mean()));
        if error <= 0.0 {
            let interval = Interval::around(center, 0.0, confidence);
            let p_value = if center == 0.0 { 1.0 } else { 0.0 };
            return (Estimate::with_interval(center, interval), Some(p_value));
        }
        let half_width = t_two_sided(confidence, degrees) * error;
        let interval = Interval::around(center, half_width, confidence);
        (Estimate::with_interval(center, interval), Some(t_p_value(center / error, degrees)))
    }

    /// By Student's t with the scatter that all configurations show.
    fn by_pooled_t(&self, scatter: &Scatter, confidence: f64) -> (Estimate, Option<f64>) {
        let Some(spreads) = self.spreads() else { return self.by_t(confidence) };
        let center = self.center();
        let (half_width, p_value) = scatter.judge(center, &spreads, confidence);
        let interval = Interval::around(center, half_width, confidence);
        (Estimate::with_interval(center, interval), Some(p_value))
    }

    /// Share of the relabelings whose difference is at least as large; the labeling at hand counts.
    fn permutation_p(&self, rng: &mut impl Rng) -> Option<f64> {
        match self {
            Self::Paired(pairs) => {
                let differences: Vec<f64> = pairs.iter().map(|(a, b)| b - a).collect();
                Some(sign_flips(&differences, rng))
            }
            Self::Unpaired(a, b) if a.len() >= 2 && b.len() >= 2 => Some(relabelings(a, b, rng)),
            Self::Unpaired(..) => None,
        }
    }
}

/// Rounding below which two sums count as the same.
fn slack(sum: f64) -> f64 {
    1e-9 * sum.abs()
}

fn sign_flips(differences: &[f64], rng: &mut impl Rng) -> f64 {
    let observed = differences.iter().sum::<f64>().abs();
    let flipped = |signs: u64| {
        let sum: f64 = differences
            .iter()
            .enumerate()
            .map(|(index, d)| if signs >> (index % 64) & 1 == 1 { -d } else { *d })
            .sum();
        sum.abs() >= observed - slack(observed)
    };
    if differences.len() <= 14 {
        let all = 1_u64 << differences.len();
        let extreme = (0..all).filter(|signs| flipped(*signs)).count();
        return exact_f64(extreme) / exact_f64(all);
    }
    let extreme = (0..MOST_RELABELINGS).filter(|_| flipped(rng.random())).count();
    (exact_f64(extreme) + 1.0) / (exact_f64(MOST_RELABELINGS) + 1.0)
}

fn relabelings(a: &[f64], b: &[f64], rng: &mut impl Rng) -> f64 {
    let mut all: Vec<f64> = a.iter().chain(b).copied().collect();
    let (n, m) = (exact_f64(a.len()), exact_f64(b.len()));
    let total: f64 = all.iter().sum();
    let distance = |sum: f64| (sum / n - (total - sum) / m).abs();
    let observed = distance(a.iter().sum());
    let is_extreme = |sum: f64| distance(sum) >= observed - slack(observed);
    let choices =
        (1..=a.len()).fold(1.0, |c, i| c * exact_f64(all.len() - a.len() + i) / exact_f64(i));
    if choices <= exact_f64(MOST_RELABELINGS) {
        let mut counts = (0_u64, 0_u64);
        choose(&all, a.len(), 0.0, &mut |sum| {
            counts.0 += u64::from(is_extreme(sum));
            counts.1 += 1;
        });
        return exact_f64(counts.0) / exact_f64(counts.1);
    }
    let mut extreme = 0_u64;
    for _ in 0..MOST_RELABELINGS {
        // The first n of a partial shuffle are a random choice.
        for index in 0..a.len() {
            let other = rng.random_range(index..all.len());
            all.swap(index, other);
        }
        extreme += u64::from(is_extreme(all[..a.len()].iter().sum()));
    }
    (exact_f64(extreme) + 1.0) / (exact_f64(MOST_RELABELINGS) + 1.0)
}

/// Visits the sum of every choice of `count` values.
fn choose(values: &[f64], count: usize, sum: f64, visit: &mut dyn FnMut(f64)) {
    if count == 0 {
        visit(sum);
        return;
    }
    for (index, value) in values.iter().enumerate() {
        if values.len() - index < count {
            return;
        }
        choose(&values[index + 1..], count - 1, sum + value, visit);
    }
}

/// The change that a ratio is, in percent and with its sign: `-12.3`; from twice on with two figures.
#[must_use]
pub fn change(ratio: f64) -> String {
    let percent = 100.0 * (ratio - 1.0);
    if percent < 99.95 {
        return format!("{percent:+.1}");
    }
    let two_figures: f64 = format!("{percent:.1e}").parse().unwrap_or(percent);
    format!("{two_figures:+.0}")
}

fn judge(comparison: &Comparison, options: &Options) -> (Verdict, String) {
    let bound = figures(100.0 * options.bound, 3);
    let bound = match bound.split_once('.') {
        Some(_) => bound.trim_end_matches('0').trim_end_matches('.'),
        None => &bound,
    };
    let bound = format!("±{bound} %");
    let Some(ratio) = &comparison.ratio else {
        let words = format!(
            "difference {}: not all responses are positive, so there is no relative bound",
            comparison.difference
        );
        return (Verdict::Inconclusive, words);
    };
    let change = change(ratio.center);
    let (Some(interval), Some(p)) = (ratio.interval, comparison.p_adjusted) else {
        let words = format!("{change} %, from one run each: no interval; repeat");
        return (Verdict::Inconclusive, words);
    };
    if is_of_no_sense(&interval) {
        let words = "cannot tell: the runs differ too much for an interval of any sense; repeat more \
                     often, or on a quieter machine";
        return (Verdict::Inconclusive, words.to_owned());
    }
    let range =
        format!("{change} % [{} %, {} %]", self::change(interval.low), self::change(interval.high));
    let (least, most) = (1.0 / (1.0 + options.bound), 1.0 + options.bound);
    if interval.low >= least && interval.high <= most {
        return (Verdict::Equivalent, format!("{range}: within {bound}"));
    }
    let told = p < 1.0 - options.confidence && !interval.contains(1.0);
    let beyond = ratio.center > most || ratio.center < least;
    let worse = (ratio.center > 1.0) == (comparison.better == Better::Lower);
    // What the interval does not carry is the estimate's.
    let surely = interval.low > most || interval.high < least;
    let by = if surely { "" } else { "by the estimate " };
    match (told, beyond, worse) {
        (true, true, true) => {
            (Verdict::Regression, format!("worse: {range}, {by}beyond the bound of {bound}"))
        }
        (true, true, false) => {
            (Verdict::Improvement, format!("better: {range}, {by}beyond the bound of {bound}"))
        }
        (true, false, _) => {
            let way = if worse { "worse" } else { "better" };
            let words =
                format!("{way}: {range}, but perhaps not beyond {bound}; repeat more often");
            (Verdict::Inconclusive, words)
        }
        (false, ..) => {
            let words = format!(
                "{range}: not significant, and not surely within {bound}; repeat more often"
            );
            (Verdict::Inconclusive, words)
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const OPTIONS: Options = Options { confidence: 0.95, bound: 0.05, paired: true };

    fn samples(before: &[f64], after: &[f64]) -> Samples {
        let blocks = |values: &[f64]| {
            values.iter().enumerate().map(|(i, v)| (Some(i.to_string()), *v)).collect()
        };
        Samples {
            configuration: "workers=8".to_owned(),
            metric: "response_time_mean".to_owned(),
            quantity: Quantity::Time,
            better: Better::Lower,
            before: blocks(before),
            after: blocks(after),
        }
    }

    #[test]
    fn the_quantity_says_the_unit_and_not_the_name() {
        let named = |quantity: Quantity, metric| (quantity.name_of(metric), quantity.shown());
        assert_eq!(named(Quantity::Rate, "throughput_per_s"), ("throughput", (1.0, "1/s")));
        assert_eq!(
            named(Quantity::Time, "response_time_p99_s"),
            ("response_time_p99", (1e3, "ms"))
        );
        // A column of a table may be called anything.
        for metric in ["value", "cost_s", "sold_per_s"] {
            assert_eq!(named(Quantity::Number, metric), (metric, (1.0, "")));
        }
        // Comparisons that an earlier version wrote name none.
        assert_eq!(Quantity::default(), Quantity::Number);
    }

    fn one(before: &[f64], after: &[f64], options: &Options) -> Comparison {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        compare(&[samples(before, after)], options, &mut rng).unwrap().remove(0)
    }

    /// [Jain91 §13.4.1]: six workloads on two systems; mean difference −0.32 and 90 % interval
    /// (−7.75, 7.11) as printed.
    #[test]
    fn jains_paired_example_comes_out() {
        let a = [5.4, 16.6, 0.6, 1.4, 0.6, 7.3];
        let b = [19.1, 3.5, 3.4, 2.5, 3.6, 1.7];
        let comparison = one(&b, &a, &Options { confidence: 0.90, ..OPTIONS });
        assert!((comparison.difference.center + 0.32).abs() < 0.005);
        let interval = comparison.difference.interval.unwrap();
        assert!((interval.low + 7.75).abs() < 0.01 && (interval.high - 7.11).abs() < 0.01);
        assert_eq!(comparison.verdict, Verdict::Inconclusive);
    }

    #[test]
    fn the_four_verdicts_are_told_apart() {
        let base = [10.0, 10.1, 9.9, 10.05, 9.95];
        let scaled = |factor: f64, wobble: f64| {
            base.iter()
                .enumerate()
                .map(|(i, v)| v * factor * (1.0 + wobble * exact_f64(i % 3) - wobble))
                .collect::<Vec<_>>()
        };
        assert_eq!(one(&base, &scaled(1.2, 0.005), &OPTIONS).verdict, Verdict::Regression);
        assert_eq!(one(&base, &scaled(0.8, 0.005), &OPTIONS).verdict, Verdict::Improvement);
        assert_eq!(one(&base, &scaled(1.001, 0.005), &OPTIONS).verdict, Verdict::Equivalent);
        assert_eq!(one(&base, &scaled(1.0, 0.3), &OPTIONS).verdict, Verdict::Inconclusive);
        // Surely worse; that it is beyond the bound, the interval does not carry.
        let by_estimate = one(&base, &scaled(1.08, 0.03), &OPTIONS);
        assert_eq!(by_estimate.verdict, Verdict::Regression);
        assert!(
            by_estimate.words.contains("], by the estimate beyond the bound"),
            "{by_estimate:?}"
        );
        let surely = one(&base, &scaled(1.2, 0.005), &OPTIONS).words;
        assert!(surely.contains("], beyond the bound"), "{surely}");
    }

    /// A percentile of a histogram is the same to all digits in both runs; elsewhere such runs differ by a third.
    #[test]
    fn runs_that_happen_to_agree_are_not_taken_for_exact() {
        let same = samples(&[1.5, 1.5], &[1.55, 1.55]);
        let others = [1.0, 2.0, 3.0].map(|by| samples(&[by, by * 1.3], &[by * 1.3, by]));
        let options = Options { paired: false, ..OPTIONS };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let all = [std::slice::from_ref(&same), &others[..]].concat();
        let together = compare(&all, &options, &mut rng).unwrap();
        assert_eq!(together[0].verdict, Verdict::Inconclusive, "{together:?}");
        let alike = compare(&vec![same; 3], &options, &mut rng).unwrap();
        assert_eq!((alike[0].method, alike[0].verdict), (Method::StudentT, Verdict::Equivalent));
        // Of a third that differ, the others are exact.
        let all = [vec![samples(&[1.0, 1.0], &[1.0, 1.0]); 3], others[..1].to_vec()].concat();
        let together = compare(&all, &options, &mut rng).unwrap();
        assert!(together.iter().all(|one| one.verdict != Verdict::Regression), "{together:?}");
    }

    #[test]
    fn higher_throughput_is_no_regression() {
        let mut higher = samples(&[100.0, 101.0, 99.0, 100.5], &[120.0, 121.0, 119.0, 120.5]);
        higher.better = Better::Higher;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let compared = compare(&[higher], &OPTIONS, &mut rng).unwrap();
        assert_eq!(compared[0].verdict, Verdict::Improvement);
    }

    #[test]
    fn blocks_that_do_not_match_are_compared_unpaired_and_said_to_be() {
        let mut lost = samples(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]);
        lost.after[1].0 = None;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let compared = compare(&[lost], &OPTIONS, &mut rng).unwrap().remove(0);
        assert!(!compared.paired);
        assert!(matches!(compared.caveats[0], Caveat::NotPaired { .. }));
    }

    #[test]
    fn one_run_each_gives_no_verdict() {
        let compared = one(&[1.0], &[9.0], &OPTIONS);
        assert_eq!(compared.verdict, Verdict::Inconclusive);
        assert!(compared.caveats.contains(&Caveat::TooFewReplications { have: 1, need: 2 }));
    }

    /// Three pairs that all rise: of 8 sign patterns, 2 are as extreme.
    #[test]
    fn permutation_counts_exactly_where_it_can() {
        let compared = one(&[1.0, 2.0, 3.0], &[2.0, 3.5, 5.0], &OPTIONS);
        assert!((compared.p_permutation.unwrap() - 0.25).abs() < 1e-12);
        let unpaired = Options { paired: false, ..OPTIONS };
        let compared = one(&[1.0, 2.0, 3.0], &[11.0, 12.0, 13.0], &unpaired);
        assert!((compared.p_permutation.unwrap() - 2.0 / 20.0).abs() < 1e-12);
    }

    /// "+154.8 % [+64.2, +295.5] inconclusive" was said of one of many.
    #[test]
    fn an_interval_among_many_is_the_one_that_its_verdict_rests_on() {
        // Each change by itself is significant at 95 %, of runs that differ: 2.2 % to 40 %.
        let base = [100.0, 104.0, 97.0, 101.0, 99.0, 103.0];
        let by = |percent: f64| -> Vec<f64> {
            let wobble = [0.0, 0.02, -0.02, 0.03, -0.01, -0.02];
            base.iter().zip(wobble).map(|(v, w)| v * (1.0 + percent / 100.0 + w)).collect()
        };
        let all: Vec<Samples> =
            [2.25, 40.0, 2.3, 2.2, 2.25, 0.1].map(|percent| samples(&base, &by(percent))).to_vec();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        for options in [OPTIONS, Options { bound: 0.01, ..OPTIONS }] {
            let together = compare(&all, &options, &mut rng).unwrap();
            for one in &together {
                let interval = one.ratio.as_ref().unwrap().interval.unwrap();
                let told = one.p_adjusted.unwrap() < 0.05;
                if one.verdict != Verdict::Equivalent {
                    assert_eq!(told, !interval.contains(1.0), "{one:?}");
                }
            }
            let alone = compare(&all[..1], &options, &mut rng).unwrap();
            assert!(alone[0].p_adjusted.unwrap() < 0.05 && together[0].p_adjusted.unwrap() > 0.05);
        }
        let wide = one(&[1.0, 9.0, 4.0], &[2.0, 30.0, 5.0], &OPTIONS);
        assert!(wide.words.starts_with("cannot tell") && wide.interval().is_none(), "{wide:?}");
        // However wide, it leaves out that nothing changed.
        let told = one(&[1.0, 1.1, 0.9], &[10.0, 40.0, 9.0], &OPTIONS);
        assert_eq!(told.verdict, Verdict::Regression, "{told:?}");
        assert_eq!([0.877, 1.0, 2.548].map(change), ["-12.3", "+0.0", "+150"]);
    }

    #[test]
    fn holm_multiplies_by_what_is_left() {
        let adjusted = holm(&[Some(0.01), None, Some(0.04), Some(0.03)]);
        let wanted = [Some(0.03), None, Some(0.06), Some(0.06)];
        for (got, want) in adjusted.iter().zip(wanted) {
            match (got, want) {
                (Some(got), Some(want)) => assert!((got - want).abs() < 1e-12),
                (got, want) => assert_eq!(*got, want),
            }
        }
    }

    #[test]
    fn senseless_input_is_refused() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        assert_eq!(compare(&[], &OPTIONS, &mut rng), Err(CompareError::Nothing));
        let nan = compare(&[samples(&[f64::NAN], &[1.0])], &OPTIONS, &mut rng);
        assert!(matches!(nan, Err(CompareError::Sample { .. })));
        let wide = Options { bound: 0.0, ..OPTIONS };
        assert!(compare(&[samples(&[1.0], &[1.0])], &wide, &mut rng).is_err());
    }
}
