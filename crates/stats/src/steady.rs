//! Steady state: where a series has warmed up, whether it drifts, how much it repeats itself.
//!
//! Works on any series in time order: throughput or mean response time per window, or single
//! response times. [`mser5`] says where a warm-up would end best; whether there is one is what
//! [`transient`] decides, since the fluctuations of a queue resemble a warm-up to any rule that only
//! searches for the best cut.

use kendall_units::exact_f64;
use serde::{Deserialize, Serialize};

use crate::estimate::Caveat;
use crate::sample::{SampleError, check, mean, sum_of_squares};

/// Observations averaged into one, so that single outliers do not steer the cut.
/// Source: White, Cobb and Spratt 2000, who found five to do best.
const MSER_BATCH: usize = 5;

/// Batches below which the rule has nothing to choose from: ten, of which half may be cut.
const FEWEST_BATCHES: usize = 10;

/// Which part of a series is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truncation {
    /// First observation kept.
    pub from: usize,
    /// End of those kept, excluded.
    pub to: usize,
    /// Observations averaged into one before looking.
    pub batch: usize,
    /// [`Caveat::WarmUpNotFound`] or [`Caveat::SeriesTooShort`], if it applies.
    pub caveats: Vec<Caveat>,
}

impl Truncation {
    /// What is kept of `series`, which has the length of the one that was tested.
    #[must_use]
    pub fn kept<'a, T>(&self, series: &'a [T]) -> &'a [T] {
        &series[self.from..self.to]
    }
}

/// Cuts warm-up and cool-down by the rule MSER-5, at both ends.
///
/// Averages in fives and keeps the stretch whose mean has the smallest estimated squared error,
/// Σ(x−x̄)²/n²; the ends are moved in turn until neither moves. At most half of the series is cut
/// at either end: a best cut on that limit means that the warm-up was still going on.
/// In series of fewer than 50 every value is tried as the cut; below 10 nothing is cut.
///
/// # Errors
/// [`SampleError`] for an empty series and for NaN.
///
/// # Source
/// White 1997, "An effective truncation heuristic for bias reduction in simulation output";
/// White, Cobb, Spratt 2000.
///
/// # Example
/// ```
/// let mut series = vec![9.0; 20];
/// series.extend(vec![1.0; 180]);
/// let cut = kendall_stats::steady::mser5(&series)?;
/// assert_eq!((cut.from, cut.to), (20, 200));
/// # Ok::<(), kendall_stats::sample::SampleError>(())
/// ```
pub fn mser5(series: &[f64]) -> Result<Truncation, SampleError> {
    check(series)?;
    let batch = if series.len() < MSER_BATCH * FEWEST_BATCHES { 1 } else { MSER_BATCH };
    let means: Vec<f64> = series.chunks_exact(batch).map(mean).collect();
    if means.len() < FEWEST_BATCHES {
        let caveat = Caveat::SeriesTooShort {
            windows: kendall_units::whole_u64(exact_f64(series.len())),
            need: kendall_units::whole_u64(exact_f64(FEWEST_BATCHES)),
        };
        return Ok(Truncation { from: 0, to: series.len(), batch, caveats: vec![caveat] });
    }
    let sums = PrefixSums::new(&means);
    let (head, tail) = both_ends(&sums, means.len());
    let limit = means.len() / 2;
    let mut caveats = Vec::new();
    if head >= limit {
        caveats.push(Caveat::WarmUpNotFound {
            windows: kendall_units::whole_u64(exact_f64(series.len())),
        });
    }
    // What did not fill the last batch belongs to the end, and stays when the end stays.
    let to = if tail == means.len() { series.len() } else { tail * batch };
    Ok(Truncation { from: head * batch, to, batch, caveats })
}

/// Sums over any stretch in constant time; shifted by the mean, so that squares do not cancel.
struct PrefixSums {
    first: Vec<f64>,
    second: Vec<f64>,
}

impl PrefixSums {
    fn new(values: &[f64]) -> Self {
        let shift = mean(values);
        let (mut first, mut second) = (vec![0.0], vec![0.0]);
        let (mut sum, mut squares) = (0.0, 0.0);
        for value in values {
            let deviation = value - shift;
            sum += deviation;
            squares += deviation * deviation;
            first.push(sum);
            second.push(squares);
        }
        Self { first, second }
    }

    /// Estimated squared error of the mean of `from..to`, as the rule has it.
    fn error(&self, from: usize, to: usize) -> f64 {
        let count = exact_f64(to - from);
        let sum = self.first[to] - self.first[from];
        let squares = self.second[to] - self.second[from];
        (squares - sum * sum / count).max(0.0) / (count * count)
    }
}

/// The kept stretch: each end in turn, from both starts, and the better of the two.
fn both_ends(sums: &PrefixSums, count: usize) -> (usize, usize) {
    let best_head = |tail: usize| best_head(sums, count, tail);
    let best_tail = |head: usize| best_tail(sums, count, head);
    let settle = |mut head: usize, mut tail: usize, head_first: bool| {
        if head_first {
            head = best_head(tail);
        }
        // Every step lowers the error, so this ends; the bound is for rounding.
        for _ in 0..count {
            let next_tail = best_tail(head);
            let next_head = best_head(next_tail);
            if (next_head, next_tail) == (head, tail) {
                break;
            }
            (head, tail) = (next_head, next_tail);
        }
        (head, tail)
    };
    let (a, b) = (settle(0, count, true), settle(0, count, false));
    if sums.error(b.0, b.1) < sums.error(a.0, a.1) { b } else { a }
}

/// The best head for this tail, at most half of all.
fn best_head(sums: &PrefixSums, count: usize, tail: usize) -> usize {
    let heads = (0..=count / 2).filter(|head| tail.saturating_sub(*head) >= FEWEST_BATCHES / 2);
    best(heads, |head| sums.error(head, tail))
}

/// The best tail for this head, at most half of all.
fn best_tail(sums: &PrefixSums, count: usize, head: usize) -> usize {
    let tails = (count - count / 2..=count).rev();
    let tails = tails.filter(|tail| tail.saturating_sub(head) >= FEWEST_BATCHES / 2);
    best(tails, |tail| sums.error(head, tail))
}

/// The first candidate with the smallest error.
fn best(candidates: impl Iterator<Item = usize>, error: impl Fn(usize) -> f64) -> usize {
    let mut chosen = (0, f64::INFINITY);
    for candidate in candidates {
        let value = error(candidate);
        if value < chosen.1 {
            chosen = (candidate, value);
        }
    }
    chosen.0
}

/// Significance below which an end of a series of throughputs counts as a transient. Throughput of
/// a stationary system hardly remembers its past (that of M/M/1 not at all: Burke 1956).
pub const THROUGHPUT_SIGNIFICANCE: f64 = 1e-3;

/// The same for the logarithms of response times. Far stricter: excursions of a queue last, and
/// come at the ends of a run as often as anywhere. By simulation of stationary M/M/1 at 50 to 95 %
/// utilization the cut then biases the mean response time by at most 0.5 ± 0.3 %; at 10⁻⁷ by up to
/// 0.7 ± 0.3, at 10⁻⁶ by 1.05 ± 0.34, at 10⁻⁴ by 3 % (`tests/warm_up.rs`).
pub const RESPONSE_TIME_SIGNIFICANCE: f64 = 1e-8;

/// Values of the rest below which nothing is said about an end.
const FEWEST_REST: usize = 5;

/// Effectively independent values of the rest below which nothing is said about an end.
const FEWEST_EFFECTIVE: f64 = 4.0;

/// Batches that a scale needs for the variance of the mean to be judged at it. Fewer see longer
/// correlations, and cost so much of the power that steps of a factor of two go unseen.
const FEWEST_AT_SCALE: usize = 20;

/// Cuts what differs from the rest of the run at its ends, and nothing else.
///
/// Where to cut is MSER-5's ([`mser5`]); whether to cut is a test of that end against what is kept:
/// the difference of their means against its standard error, widened by the correlation of what is
/// kept, at a `significance` that has to be strict, since an excursion of a queue is not a transient;
/// and no stretch of the rest as long as the end may lie as far out. Without such a difference
/// nothing is cut. The rest must hold five values, and the information of four independent ones.
///
/// # Errors
/// [`SampleError`] for an empty series and for NaN.
///
/// # Source
/// White 1997 for the place; initialization-bias tests: Schruben 1982, Schruben, Singh, Tierney
/// 1983. The bias and the power are measured in `tests/warm_up.rs`.
///
/// # Example
/// ```
/// use kendall_stats::steady::{THROUGHPUT_SIGNIFICANCE, transient};
/// let noise = |i: u32| f64::from(i.wrapping_mul(2_654_435_761) >> 16) / 65_536.0;
/// let mut series: Vec<f64> = (0..10).map(|i| 20.0 + noise(i)).collect();
/// series.extend((10..60).map(|i| 10.0 + noise(i)));
/// let cut = transient(&series, THROUGHPUT_SIGNIFICANCE)?;
/// assert_eq!((cut.from, cut.to), (10, 60));
/// let level: Vec<f64> = (0..60).map(|i| 10.0 + noise(i)).collect();
/// let cut = transient(&level, THROUGHPUT_SIGNIFICANCE)?;
/// assert_eq!((cut.from, cut.to), (0, 60));
/// # Ok::<(), kendall_stats::sample::SampleError>(())
/// ```
pub fn transient(series: &[f64], significance: f64) -> Result<Truncation, SampleError> {
    let best = mser5(series)?;
    let count = series.len();
    let nothing = Truncation { from: 0, to: count, batch: best.batch, caveats: Vec::new() };
    if count / best.batch < FEWEST_BATCHES {
        return Ok(Truncation { caveats: best.caveats, ..nothing });
    }
    let means: Vec<f64> = series.chunks_exact(best.batch).map(mean).collect();
    let sums = PrefixSums::new(&means);
    let told = |end: &[f64], rest: &[f64]| differs(end, rest, significance);
    let head_told = best.from > 0 && told(&series[..best.from], &series[best.from..best.to]);
    let tail_told = best.to < count && told(&series[best.to..], &series[best.from..best.to]);
    let (mut from, mut to) = (0, count);
    match (head_told, tail_told) {
        (true, true) => (from, to) = (best.from, best.to),
        (_, false) => {
            // The end that stays is part of the rest: test once more with it.
            let head = best_head(&sums, means.len(), means.len()) * best.batch;
            if head > 0 && told(&series[..head], &series[head..]) {
                from = head;
            }
        }
        (false, true) => {
            let tail = best_tail(&sums, means.len(), 0);
            let tail = if tail == means.len() { count } else { tail * best.batch };
            if tail < count && told(&series[tail..], &series[..tail]) {
                to = tail;
            }
        }
    }
    let limit = means.len() / 2 * best.batch;
    let endless =
        best.from >= limit && (from >= limit || drift(series).is_some_and(|d| d.significant));
    let caveats = endless
        .then(|| Caveat::WarmUpNotFound { windows: kendall_units::whole_u64(exact_f64(count)) });
    Ok(Truncation { from, to, caveats: caveats.into_iter().collect(), ..nothing })
}

/// Whether one end of a series differs significantly from what is kept of it.
fn differs(end: &[f64], rest: &[f64], significance: f64) -> bool {
    let Some(variance) = crate::sample::variance(rest).filter(|_| rest.len() >= FEWEST_REST) else {
        return false;
    };
    let difference = mean(end) - mean(rest);
    if variance <= 0.0 {
        return difference != 0.0;
    }
    let inflation = variance_inflation(rest);
    let effective = exact_f64(rest.len()) / inflation;
    if effective < FEWEST_EFFECTIVE {
        return false;
    }
    let of_end = (inflation / exact_f64(end.len())).min(1.0);
    let error = (variance * (of_end + 1.0 / effective)).sqrt();
    if crate::distribution::t_p_value(difference / error, effective - 1.0) >= significance {
        return false;
    }
    let length = end.len().min(rest.len());
    let center = mean(end);
    rest.windows(length).all(|stretch| (mean(stretch) < center) == (difference > 0.0))
}

/// By how much correlation widens the variance of the mean of a series: the largest of what first
/// autocorrelations, corrected for their bias, say of it and of its batch means of 2, 4, … values.
fn variance_inflation(series: &[f64]) -> f64 {
    let single = sum_of_squares(series) / exact_f64(series.len() - 1);
    let mut inflation = 1.0_f64;
    let mut size = 1;
    while size == 1 || series.len() / size >= FEWEST_AT_SCALE {
        let count = series.len() / size;
        let means: Vec<f64> =
            series[series.len() - count * size..].chunks_exact(size).map(mean).collect();
        let variance = sum_of_squares(&means) / exact_f64(count - 1);
        let left = corrected_correlation(&means, 0);
        let here = exact_f64(size) * variance / single * (1.0 + left) / (1.0 - left);
        inflation = inflation.max(here);
        size *= 2;
    }
    inflation
}

/// First autocorrelation, less its bias of −(1 + 3r)/n, and of one more part in n for every line
/// that was taken out of the series.
///
/// Source: Kendall 1954; Marriott, Pope 1954.
fn corrected_correlation(series: &[f64], lines: u32) -> f64 {
    let count = exact_f64(series.len());
    let plain = autocorrelation(series, 1).unwrap_or(0.0);
    let lost = f64::from(1 + lines);
    (plain + (lost + (3.0 + f64::from(lines)) * plain) / count).clamp(0.0, 0.95)
}

/// Autocorrelation at `lag`; `None` when the series is constant or too short.
///
/// # Source
/// [Box, Jenkins 1976 §2.1.5]: c(k)/c(0), both divided by n.
#[must_use]
pub fn autocorrelation(series: &[f64], lag: usize) -> Option<f64> {
    if lag >= series.len() {
        return None;
    }
    let center = mean(series);
    let total = sum_of_squares(series);
    let shifted: f64 =
        series.iter().zip(&series[lag..]).map(|(a, b)| (a - center) * (b - center)).sum();
    (total > 0.0).then(|| shifted / total)
}

/// Von Neumann's test of independence against neighbors that resemble each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct VonNeumann {
    /// Σ(xᵢ₊₁−xᵢ)² / Σ(xᵢ−x̄)²; 2 for independent values, below for positive correlation.
    pub ratio: f64,
    /// Standardized; negative for positive correlation.
    pub z: f64,
    /// Probability of a ratio this small when the values are independent.
    pub p_value: f64,
}

/// Von Neumann's ratio with its normal approximation; `None` for a constant series or fewer
/// than 5 values.
///
/// # Source
/// von Neumann 1941; the variance (n−2)/(n²−1) of 1 − ratio/2 as in Fishman 1978 §5.
#[must_use]
pub fn von_neumann(series: &[f64]) -> Option<VonNeumann> {
    let total = sum_of_squares(series);
    if series.len() < 5 || total <= 0.0 {
        return None;
    }
    let steps: f64 = series.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
    let ratio = steps / total;
    let count = exact_f64(series.len());
    let deviation = ((count - 2.0) / (count * count - 1.0)).sqrt();
    let z = (ratio / 2.0 - 1.0) / deviation;
    Some(VonNeumann { ratio, z, p_value: crate::distribution::normal_cdf(z) })
}

/// Whether the level of a series changes over its length.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Mean of the second half over that of the first, minus one.
    pub relative_change: f64,
    /// Probability of so steep a line through a stationary series.
    pub p_value: f64,
    /// Below this p-value, and above this relative change, the series counts as drifting.
    pub significant: bool,
}

/// Relative change that is too small to matter even where it is significant.
const DRIFT_THAT_MATTERS: f64 = 0.02;

/// Significance of the drift test. Strict, since it is made for every run of a study.
const DRIFT_SIGNIFICANCE: f64 = 0.01;

/// Number of values below which a drift is not tested for.
const DRIFT_VALUES: usize = 20;

/// Tests the slope of a line through a series, whose error is widened by the correlation that is
/// left around a line through each half, so that ordinary autocorrelation does not pose as drift
/// and a step does not pose as autocorrelation. A line sees a steady drift with four thirds of the
/// information of a test of the halves. `None` below 20 values or for a constant series.
///
/// # Source
/// Regression on time [Jain91 §14.3]; effective size of an autoregression, Law, Kelton 2000 §4.4.
#[must_use]
pub fn drift(series: &[f64]) -> Option<Drift> {
    if series.len() < DRIFT_VALUES || sum_of_squares(series) <= 0.0 {
        return None;
    }
    let (first, second) = series.split_at(series.len() / 2);
    let (slope, around) = line(series);
    let halves = [line(first).1, line(second).1];
    let correlated =
        f64::midpoint(corrected_correlation(&halves[0], 1), corrected_correlation(&halves[1], 1));
    let inflation = (1.0 + correlated) / (1.0 - correlated);
    let count = exact_f64(series.len());
    let spread = (count * count - 1.0) * count / 12.0;
    let residual: f64 = around.iter().map(|value| value * value).sum::<f64>() / (count - 2.0);
    let error = (residual * inflation / spread).sqrt();
    let degrees = count / inflation - 2.0;
    let p_value = if error <= slope.abs() * 1e-12 {
        0.0
    } else if degrees < 1.0 {
        1.0
    } else {
        crate::distribution::t_p_value(slope / error, degrees)
    };
    let relative_change = mean(second) / mean(first) - 1.0;
    let significant = p_value < DRIFT_SIGNIFICANCE && relative_change.abs() > DRIFT_THAT_MATTERS;
    Some(Drift { relative_change, p_value, significant })
}

/// Slope of the least-squares line over positions 0, 1, …, and what lies around it.
fn line(series: &[f64]) -> (f64, Vec<f64>) {
    let count = exact_f64(series.len());
    let (center, middle) = (mean(series), (count - 1.0) / 2.0);
    let at = |index: usize| exact_f64(index) - middle;
    let squares = (count * count - 1.0) * count / 12.0;
    let along: f64 = series.iter().enumerate().map(|(i, value)| at(i) * (value - center)).sum();
    let slope = along / squares;
    let around =
        series.iter().enumerate().map(|(i, value)| value - center - slope * at(i)).collect();
    (slope, around)
}

impl Drift {
    /// The caveat of the run, if the series drifts.
    #[must_use]
    pub fn caveat(&self) -> Option<Caveat> {
        self.significant.then_some(Caveat::NonStationary {
            relative_change: self.relative_change,
            p_value: self.p_value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_cut() {
        let mut series = vec![3.0; 15];
        series.extend((0..270).map(|i| if i % 2 == 0 { 1.0 } else { 1.1 }));
        series.extend([2.0; 15]);
        let cut = mser5(&series).unwrap();
        assert_eq!((cut.from, cut.to), (15, 285));
        assert!(cut.caveats.is_empty());
        assert_eq!(cut.kept(&series).len(), 270);
    }

    #[test]
    fn a_series_that_never_settles_is_said_to_be_too_short() {
        let series: Vec<f64> = (0..200).map(|i| 1_000.0 - f64::from(i)).collect();
        let cut = mser5(&series).unwrap();
        assert_eq!(cut.caveats, [Caveat::WarmUpNotFound { windows: 200 }]);
    }

    #[test]
    fn short_and_constant_series_are_kept_whole() {
        let short = mser5(&[1.0, 2.0]).unwrap();
        assert_eq!((short.from, short.to), (0, 2));
        assert_eq!(short.caveats, [Caveat::SeriesTooShort { windows: 2, need: 10 }]);
        let constant = mser5(&[4.0; 103]).unwrap();
        assert_eq!((constant.from, constant.to, constant.caveats.len()), (0, 103, 0));
    }

    #[test]
    fn correlation_and_its_absence_are_told_apart() {
        let alternating: Vec<f64> = (0..100).map(|i| f64::from(i % 2)).collect();
        assert!(autocorrelation(&alternating, 1).unwrap() < -0.9);
        let slow: Vec<f64> = (0..100).map(|i| (f64::from(i) / 10.0).sin()).collect();
        assert!(von_neumann(&slow).unwrap().p_value < 1e-6);
        assert!(von_neumann(&alternating).unwrap().p_value > 0.99);
        assert!(von_neumann(&[1.0; 10]).is_none());
    }

    #[test]
    fn a_step_is_drift_and_a_level_is_not() {
        let noise = |i: u32| f64::from(i.wrapping_mul(2_654_435_761) >> 16) / 65_536.0;
        let level: Vec<f64> = (0..200).map(|i| 10.0 + noise(i)).collect();
        assert!(drift(&level).unwrap().caveat().is_none());
        let rising: Vec<f64> = (0..200).map(|i| 10.0 + noise(i) + f64::from(i) / 100.0).collect();
        assert!(drift(&rising).unwrap().caveat().is_some());
    }
}
