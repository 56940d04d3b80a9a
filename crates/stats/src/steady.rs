//! Steady state: where a series has warmed up, whether it drifts, how much it repeats itself.
//!
//! Works on any series in time order: throughput or mean response time per window, or single
//! response times. It does not look for change points in single response times near saturation,
//! where a queue's own excursions look like them.

use kendall_units::exact_f64;
use serde::{Deserialize, Serialize};

use crate::distribution::normal_two_sided;
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
    /// What is kept of `series`, which has the length of the one that was looked at.
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
/// Series of fewer than 50 are looked at one by one; below 10 nothing is cut.
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
    let limit = count / 2;
    let best_head = |tail: usize| {
        best((0..=limit).filter(|head| tail - head >= FEWEST_BATCHES / 2), |h| sums.error(h, tail))
    };
    let best_tail = |head: usize| {
        let tails = (count - limit..=count).rev();
        best(tails.filter(|tail| tail - head >= FEWEST_BATCHES / 2), |t| sums.error(head, t))
    };
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

/// Von Neumann's test of independence against neighbours that resemble each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct VonNeumann {
    /// Σ(xᵢ₊₁−xᵢ)² / Σ(xᵢ−x̄)²; 2 for independent values, below for positive correlation.
    pub ratio: f64,
    /// Standardised; negative for positive correlation.
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

/// Whether the level of a series changes from its first to its second half.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Mean of the second half over that of the first, minus one.
    pub relative_change: f64,
    /// Probability of so large a change in a stationary series.
    pub p_value: f64,
    /// Below this p-value, and above this relative change, the series counts as drifting.
    pub significant: bool,
}

/// Relative change that is too small to matter even where it is significant.
const DRIFT_THAT_MATTERS: f64 = 0.02;

/// Significance of the drift test. Strict, since it is made for every run of a study.
const DRIFT_SIGNIFICANCE: f64 = 0.01;

/// Batches that the drift test groups a series into.
const DRIFT_BATCHES: usize = 20;

/// Tests the halves of a series against each other, with the variance of batch means, so that
/// ordinary autocorrelation does not pose as drift. `None` below 20 values or for a constant
/// series.
///
/// # Source
/// Schruben, Singh and Tierney 1983 for the idea (initialization bias); the batching as in
/// [Jain91 §25.5].
#[must_use]
pub fn drift(series: &[f64]) -> Option<Drift> {
    if series.len() < DRIFT_BATCHES {
        return None;
    }
    let size = series.len() / DRIFT_BATCHES;
    let skip = series.len() - size * DRIFT_BATCHES;
    let means: Vec<f64> = series[skip..].chunks_exact(size).map(mean).collect();
    let (first, second) = means.split_at(DRIFT_BATCHES / 2);
    let within = sum_of_squares(first) + sum_of_squares(second);
    let degrees = exact_f64(DRIFT_BATCHES - 2);
    // Batches of one half that still resemble their neighbours carry less information.
    let correlated = f64::midpoint(
        autocorrelation(first, 1).unwrap_or(0.0),
        autocorrelation(second, 1).unwrap_or(0.0),
    )
    .clamp(0.0, 0.9);
    let inflation = (1.0 + correlated) / (1.0 - correlated);
    let error = (within / degrees * inflation * 2.0 / exact_f64(DRIFT_BATCHES / 2)).sqrt();
    let difference = mean(second) - mean(first);
    if error <= 0.0 && difference == 0.0 {
        return None;
    }
    let p_value = if error > 0.0 {
        crate::distribution::t_p_value(difference / error, degrees)
    } else {
        normal_two_sided(f64::INFINITY)
    };
    let relative_change = mean(second) / mean(first) - 1.0;
    let significant = p_value < DRIFT_SIGNIFICANCE && relative_change.abs() > DRIFT_THAT_MATTERS;
    Some(Drift { relative_change, p_value, significant })
}

impl Drift {
    /// The doubt that goes beside the numbers of the run, if the series drifts.
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
