//! An interval of the squared coefficient of variation that holds it.

use kendall_stats::estimate::{Estimate, Interval};
use kendall_stats::sample::sorted_quantile;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Sample;

/// Resamples; fewer of many times, where the interval hardly needs bending.
const RESAMPLES: usize = 399;

/// Times that are drawn in all, at most.
const MOST_DRAWN: usize = 20_000_000;

/// The squared coefficient of variation of times, and the standard error of its logarithm by the
/// influence of each time: (t² − m₂)/m₁² − 2m₂(t − m₁)/m₁³.
fn of(times: impl Iterator<Item = f64> + Clone, count: f64) -> (f64, f64) {
    let (first, second) =
        times.clone().fold((0.0, 0.0), |(first, second), t| (first + t, second + t * t));
    let (m1, m2) = (first / count, second / count);
    let scv = (m2 / (m1 * m1) - 1.0).max(0.0) * count / (count - 1.0);
    let influence = |t: f64| (t * t - m2) / (m1 * m1) - 2.0 * m2 * (t - m1) / (m1 * m1 * m1);
    let squares: f64 = times.map(|t| influence(t).powi(2)).sum();
    (scv, (squares / count / count).sqrt() / scv)
}

/// By bootstrap of the studentized logarithm: the largest times carry most of a squared coefficient
/// of variation, so its error is skewed, and large where it came out small.
///
/// # Source
/// Efron, Tibshirani 1993 §12.5, on the logarithm.
pub(super) fn scv(sample: &Sample<'_>, seed: u64, confidence: f64) -> Estimate {
    let (scv, error) = of(sample.sorted.iter().copied(), sample.n);
    if scv <= 0.0 || !error.is_finite() || error <= 0.0 {
        return Estimate::with_interval(scv, Interval::around(scv, 0.0, confidence));
    }
    let count = sample.sorted.len();
    let resamples = RESAMPLES.min(MOST_DRAWN / count).max(99);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut drawn = vec![0.0; count];
    let mut ratios: Vec<f64> = (0..resamples)
        .map(|_| {
            drawn.iter_mut().for_each(|t| *t = sample.sorted[rng.random_range(0..count)]);
            let (other, of_other) = of(drawn.iter().copied(), sample.n);
            (other / scv).ln() / of_other
        })
        .filter(|ratio| ratio.is_finite())
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    if ratios.len() < resamples / 2 {
        return Estimate::exact(scv);
    }
    let tail = (1.0 - confidence) / 2.0;
    let (low, high) = (sorted_quantile(&ratios, tail), sorted_quantile(&ratios, 1.0 - tail));
    let interval = Interval {
        low: scv * (-high.max(0.0) * error).exp(),
        high: scv * (-low.min(0.0) * error).exp(),
        confidence,
    };
    Estimate::with_interval(scv, interval)
}
