//! A response over an ordered series of result sets, such as the commits of a branch: where it
//! changed.
//!
//! One number a set, the median of its runs, since sets differ by their session as well as by
//! their runs. The series is split where the two sides differ most, if they differ more than the
//! numbers in random order would; then each side is tested in the same way. Several changes are found;
//! a slow drift is found as a change in its middle.

use kendall_units::{exact_f64, whole_u64};
use rand::{Rng, RngExt as _};
use serde::{Deserialize, Serialize};

use super::rank;
use crate::estimate::{Estimate, Interval};
use crate::sample::{SampleError, check, check_confidence, mean, median};

/// Number of sets below which a stretch is not tested: of fewer, no order is unlikely enough.
const FEWEST_SETS: usize = 6;

/// Sets on either side of a change.
const FEWEST_SIDE: usize = 2;

/// Orders that are drawn.
const ORDERS: u32 = 1_999;

/// Where a response changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangePoint {
    /// First set after the change, from 0.
    pub at: u64,
    /// Level after it over level before it, between the neighboring changes; with an interval
    /// where there are sets enough for one.
    pub ratio: Estimate,
    /// Share of random orders in which the best split divides as sharply.
    pub p_value: f64,
}

/// Finds changes in the medians of ordered sets of positive responses; the runs of each set.
///
/// # Errors
/// [`SampleError`] for a set without runs, for what is not finite or not above 0, and for a
/// confidence outside (0, 1).
///
/// # Source
/// Binary segmentation, Scott, Knott 1974; the largest standardized difference over all splits,
/// judged by permutation, as in Matteson, James 2014.
///
/// # Example
/// ```
/// use kendall_stats::compare::trend::change_points;
/// use rand::SeedableRng as _;
/// let sets: Vec<Vec<f64>> =
///     (0..12).map(|i| vec![if i < 7 { 10.0 } else { 12.0 } + 0.1 * f64::from(i % 3)]).collect();
/// let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
/// let found = change_points(&sets, 0.95, &mut rng)?;
/// assert_eq!(found.iter().map(|change| change.at).collect::<Vec<_>>(), [7]);
/// # Ok::<(), kendall_stats::sample::SampleError>(())
/// ```
pub fn change_points(
    sets: &[Vec<f64>],
    confidence: f64,
    rng: &mut impl Rng,
) -> Result<Vec<ChangePoint>, SampleError> {
    check_confidence(confidence)?;
    let mut levels = Vec::new();
    for (index, runs) in sets.iter().enumerate() {
        check(runs)?;
        let median = median(runs.clone());
        if median <= 0.0 {
            return Err(SampleError::NotFinite { index, value: median.ln() });
        }
        levels.push(median.ln());
    }
    let mut splits = Vec::new();
    look(&levels, 0, 1.0 - confidence, rng, &mut splits);
    splits.sort_by_key(|split| split.0);
    let ends: Vec<usize> = splits.iter().map(|split| split.0).chain([levels.len()]).collect();
    let mut from = 0;
    let mut changes = Vec::new();
    for (index, (at, p_value)) in splits.iter().enumerate() {
        let (before, after) = (&levels[from..*at], &levels[*at..ends[index + 1]]);
        let ratio = match rank::of_sets(before, after, confidence) {
            Some(shift) => {
                let interval =
                    Interval { low: shift.low, high: shift.high, confidence: shift.confidence };
                Estimate::with_interval(shift.center, interval)
            }
            None => Estimate::exact(mean(after) - mean(before)),
        };
        changes.push(ChangePoint {
            at: whole_u64(exact_f64(*at)),
            ratio: ratio.map(f64::exp),
            p_value: *p_value,
        });
        from = *at;
    }
    Ok(changes)
}

fn look(
    levels: &[f64],
    offset: usize,
    significance: f64,
    rng: &mut impl Rng,
    found: &mut Vec<(usize, f64)>,
) {
    if levels.len() < FEWEST_SETS {
        return;
    }
    let (at, sharpness) = sharpest(levels);
    let mut order = levels.to_vec();
    let mut as_sharp = 0_u32;
    for _ in 0..ORDERS {
        for index in 1..order.len() {
            order.swap(index, rng.random_range(0..=index));
        }
        as_sharp += u32::from(sharpest(&order).1 >= sharpness * (1.0 - 1e-12));
    }
    let p_value = f64::from(as_sharp + 1) / f64::from(ORDERS + 1);
    if p_value >= significance || sharpness <= 0.0 {
        return;
    }
    found.push((offset + at, p_value));
    look(&levels[..at], offset, significance, rng, found);
    look(&levels[at..], offset + at, significance, rng, found);
}

/// The split with the largest sum of squares between its sides, and that sum.
fn sharpest(levels: &[f64]) -> (usize, f64) {
    let count = exact_f64(levels.len());
    let center = mean(levels);
    let (mut sum, mut best) = (0.0, (0, 0.0));
    for (index, level) in levels.iter().enumerate() {
        sum += level - center;
        let left = index + 1;
        if left < FEWEST_SIDE || levels.len() - left < FEWEST_SIDE {
            continue;
        }
        let before = exact_f64(left);
        let between = sum * sum * count / (before * (count - before));
        if between > best.1 {
            best = (left, between);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::distribution::normal_quantile;

    fn series(steps: &[(usize, f64)], count: usize, seed: u64) -> Vec<Vec<f64>> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..count)
            .map(|set| {
                let level: f64 = steps.iter().filter(|s| s.0 <= set).map(|s| s.1).sum();
                // Sessions differ by 1 %, runs by 2 %.
                let mut normal = || normal_quantile(rng.random::<f64>().clamp(1e-9, 1.0 - 1e-9));
                let session = 0.01 * normal();
                (0..5).map(|_| (level + session + 0.02 * normal()).exp()).collect()
            })
            .collect()
    }

    fn found(steps: &[(usize, f64)], count: usize, seed: u64) -> Vec<ChangePoint> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed + 1);
        change_points(&series(steps, count, seed), 0.95, &mut rng).unwrap()
    }

    /// 5 % and three standard errors of 200 series (4.6 %).
    #[test]
    fn nothing_is_found_where_nothing_changed() {
        let alarms = (0..200).filter(|seed| !found(&[], 12, *seed).is_empty()).count();
        assert!(alarms <= 19, "{alarms}");
    }

    /// Two changes of 10 % and −15 %: both are found at their place in nine of ten series, and the
    /// interval of the first holds its size.
    #[test]
    fn changes_are_found_where_they_are() {
        let mut right = 0;
        for seed in 0..50 {
            let changes = found(&[(8, 0.1), (16, -0.15)], 24, seed);
            let places: Vec<u64> = changes.iter().map(|change| change.at).collect();
            let holds = changes.first().and_then(|change| change.ratio.interval);
            right += u32::from(places == [8, 16] && holds.unwrap().contains(0.1_f64.exp()));
        }
        assert!(right >= 43, "{right}");
    }

    #[test]
    fn short_and_constant_series_have_no_change() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        for count in [1, 5, 20] {
            let sets = vec![vec![3.0, 3.0]; count];
            assert!(change_points(&sets, 0.95, &mut rng).unwrap().is_empty());
        }
        assert!(change_points(&[vec![0.0]], 0.95, &mut rng).is_err());
        assert!(change_points(&[vec![]], 0.95, &mut rng).is_err());
    }
}
