//! Independent observations: mean, standard deviation, t interval.
//!
//! Observations of one run are not independent (see [`crate::correlated`]); one number per run is.

use kendall_units::exact_f64;

use crate::distribution::t_two_sided;
use crate::estimate::{Caveat, Estimate, Interval};

/// Numbers that no statistic can be made of.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum SampleError {
    #[error("no observations")]
    Empty,
    #[error("observation {index} is {value}, not a finite number")]
    NotFinite { index: usize, value: f64 },
    #[error("{value} is not a positive number")]
    NotPositive { value: f64 },
    #[error("a confidence of {confidence} is not between 0 and 1, such as 0.95")]
    Confidence { confidence: f64 },
    #[error("a quantile of {quantile} is not between 0 and 1, such as 0.99")]
    Quantile { quantile: f64 },
}

/// Refuses nothing, NaN and infinity.
///
/// # Errors
/// [`SampleError`] that says which observation.
pub fn check(values: &[f64]) -> Result<(), SampleError> {
    if values.is_empty() {
        return Err(SampleError::Empty);
    }
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(SampleError::NotFinite { index, value: values[index] }),
        None => Ok(()),
    }
}

/// Refuses a confidence level outside (0, 1).
///
/// # Errors
/// [`SampleError::Confidence`].
pub fn check_confidence(confidence: f64) -> Result<(), SampleError> {
    if confidence > 0.0 && confidence < 1.0 {
        Ok(())
    } else {
        Err(SampleError::Confidence { confidence })
    }
}

/// Refuses a quantile outside (0, 1).
///
/// # Errors
/// [`SampleError::Quantile`].
pub fn check_quantile(quantile: f64) -> Result<(), SampleError> {
    if quantile > 0.0 && quantile < 1.0 { Ok(()) } else { Err(SampleError::Quantile { quantile }) }
}

/// Arithmetic mean; NaN of nothing.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / exact_f64(values.len())
}

/// Sum of squared deviations from the mean (two passes, so that nothing cancels).
#[must_use]
pub fn sum_of_squares(values: &[f64]) -> f64 {
    let center = mean(values);
    values.iter().map(|value| (value - center).powi(2)).sum()
}

/// Variance with n − 1; `None` below two observations.
#[must_use]
pub fn variance(values: &[f64]) -> Option<f64> {
    (values.len() >= 2).then(|| sum_of_squares(values) / exact_f64(values.len() - 1))
}

/// The k-th smallest for p between order statistics: linear interpolation at h = (n−1)p, the
/// usual sample quantile (Hyndman and Fan's type 7). `sorted` is in ascending order; NaN of nothing.
#[must_use]
pub fn sorted_quantile(sorted: &[f64], quantile: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let position = exact_f64(last) * quantile.clamp(0.0, 1.0);
    let below = usize::try_from(kendall_units::whole_u64(position)).unwrap_or(last).min(last);
    let above = (below + 1).min(last);
    let share = position - exact_f64(below);
    sorted[below] + share * (sorted[above] - sorted[below])
}

/// The middle value; NaN of nothing.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    sorted_quantile(&values, 0.5)
}

/// Mean of independent observations, such as one number per run, with its t interval.
///
/// One observation gives no interval but a caveat.
///
/// # Errors
/// [`SampleError`] for nothing, for NaN, and for a confidence outside (0, 1).
///
/// # Source
/// [Jain91 §13.2]: x̄ ± t[1−α/2; n−1]·s/√n.
///
/// # Example
/// ```
/// let throughput = kendall_stats::sample::mean_interval(&[10.0, 12.0, 11.0], 0.95)?;
/// assert_eq!(throughput.center, 11.0);
/// assert!((throughput.interval.unwrap().half_width() - 4.303 / 3.0_f64.sqrt()).abs() < 1e-3);
/// # Ok::<(), kendall_stats::sample::SampleError>(())
/// ```
pub fn mean_interval(values: &[f64], confidence: f64) -> Result<Estimate, SampleError> {
    check(values)?;
    check_confidence(confidence)?;
    let center = mean(values);
    let Some(variance) = variance(values) else {
        return Ok(Estimate::exact(center).doubt(Caveat::TooFewReplications { have: 1, need: 2 }));
    };
    let count = exact_f64(values.len());
    let half_width = t_two_sided(confidence, count - 1.0) * (variance / count).sqrt();
    Ok(Estimate::with_interval(center, Interval::around(center, half_width, confidence)))
}

/// Half-width of an interval on the log scale beyond which it is refused: it would span more than
/// a factor of e² = 7.4, and on the scale of the values themselves it would reach 0.
const WIDEST_LOG: f64 = 1.0;

/// Relative difference below which sums of the same values differ by rounding alone.
const ROUNDING: f64 = 1e-12;

/// A positive value of several runs together (a mean over all requests, a percentile of them, a
/// rate), with an interval from the runs: the jackknife over runs, on the logarithm. `without` has
/// the value of all runs but one, for each.
///
/// No such interval reaches 0, which a t interval of a positive quantity does when runs differ
/// much. Where the runs differ so much that it would span more than a factor of 7, there is none
/// but a caveat; nor where they are equal, since an interval of no width would hold nothing. Runs are the observations: whatever depends on what within a run does not matter.
///
/// # Errors
/// [`SampleError`] for what is not a positive finite number, and for a confidence outside (0, 1).
///
/// # Source
/// Tukey 1958, on ln θ: pseudo-values n·ln θ − (n − 1)·ln θ₍ᵢ₎, Student's t with n − 1 degrees.
/// \[Efron and Tibshirani 1993, ch. 11\]; leaving out whole runs keeps it consistent for
/// percentiles, where leaving out single requests is not.
///
/// # Example
/// ```
/// // Two runs of 90 and 110 per second: 100 together, and each alone when the other is left out.
/// let rate = kendall_stats::sample::positive_interval(100.0, &[110.0, 90.0], 0.95)?;
/// assert!(rate.interval.is_none(), "two runs 20 % apart put it anywhere within a factor of 13");
/// let rate = kendall_stats::sample::positive_interval(100.0, &[101.0, 99.0], 0.95)?;
/// assert!(rate.interval.is_some_and(|i| i.low > 87.0 && i.high < 115.0));
/// # Ok::<(), kendall_stats::sample::SampleError>(())
/// ```
pub fn positive_interval(
    whole: f64,
    without: &[f64],
    confidence: f64,
) -> Result<Estimate, SampleError> {
    check_confidence(confidence)?;
    let all: Vec<f64> = std::iter::once(whole).chain(without.iter().copied()).collect();
    if let Some(index) = all.iter().position(|value| !value.is_finite() || *value <= 0.0) {
        return Err(SampleError::NotPositive { value: all[index] });
    }
    let runs = without.len();
    if runs < 2 {
        let have = kendall_units::whole_u64(exact_f64(runs.max(1)));
        return Ok(Estimate::exact(whole).doubt(Caveat::TooFewReplications { have, need: 2 }));
    }
    let count = exact_f64(runs);
    let log = whole.ln();
    let pseudo: Vec<f64> =
        without.iter().map(|left| count * log - (count - 1.0) * left.ln()).collect();
    let runs = kendall_units::whole_u64(count);
    let spread = variance(&pseudo).unwrap_or(0.0);
    if without.iter().all(|left| (left / whole - 1.0).abs() < ROUNDING) {
        return Ok(Estimate::exact(whole).doubt(Caveat::EqualRuns { runs }));
    }
    let half_width = t_two_sided(confidence, count - 1.0) * (spread / count).sqrt();
    if half_width > WIDEST_LOG {
        let factor = (2.0 * half_width).exp();
        return Ok(Estimate::exact(whole).doubt(Caveat::IntervalTooWide { runs, factor }));
    }
    let interval = Interval::around(log, half_width, confidence).map(f64::exp);
    Ok(Estimate::with_interval(whole, interval))
}

/// Mean over runs of what cannot be negative, with the interval of [`positive_interval`]. Where
/// some run has 0 (a queue that was empty), the t interval, unless it reaches below 0: then none.
///
/// # Errors
/// [`SampleError`] for nothing, for NaN, for negative values, and for a confidence outside (0, 1).
pub fn positive_mean(values: &[f64], confidence: f64) -> Result<Estimate, SampleError> {
    let alike: Vec<(f64, f64)> = values.iter().map(|value| (*value, 1.0)).collect();
    positive_weighted_mean(&alike, confidence)
}

/// Mean of what cannot be negative over all that was counted in several runs: of each run its own
/// mean, and how many there were (requests, for a mean time of a request). The interval is that of
/// [`positive_mean`], which this is where all runs count as much.
///
/// # Errors
/// [`SampleError`] for nothing, for NaN, for negative values, and for a confidence outside (0, 1).
///
/// # Example
/// ```
/// // Of 300 requests, 100 took 4 s on average and 200 took 1 s.
/// let runs = [(4.0, 100.0), (1.0, 200.0)];
/// let mean = kendall_stats::sample::positive_weighted_mean(&runs, 0.95)?;
/// assert_eq!(mean.center, 2.0);
/// # Ok::<(), kendall_stats::sample::SampleError>(())
/// ```
pub fn positive_weighted_mean(
    runs: &[(f64, f64)],
    confidence: f64,
) -> Result<Estimate, SampleError> {
    let (whole, without) = together(runs)?;
    if let Some((value, _)) = runs.iter().find(|(value, _)| *value < 0.0) {
        return Err(SampleError::NotPositive { value: *value });
    }
    if runs.iter().all(|(value, _)| *value > 0.0) {
        return positive_interval(whole, &without, confidence);
    }
    let estimate = jackknifed(whole, &without, confidence)?;
    if estimate.interval.is_some_and(|interval| interval.low < 0.0) {
        let runs = kendall_units::whole_u64(exact_f64(runs.len()));
        let caveat = Caveat::IntervalTooWide { runs, factor: f64::INFINITY };
        return Ok(Estimate { interval: None, ..estimate }.doubt(caveat));
    }
    Ok(estimate)
}

/// The same of what may have either sign, such as a difference: always with the jackknife on the
/// values themselves.
///
/// # Errors
/// [`SampleError`] for nothing, for NaN, and for a confidence outside (0, 1).
pub fn weighted_mean(runs: &[(f64, f64)], confidence: f64) -> Result<Estimate, SampleError> {
    let (whole, without) = together(runs)?;
    jackknifed(whole, &without, confidence)
}

/// The weighted mean of all runs, and of all but one for each. Where nothing has a weight, all
/// count as much.
fn together(runs: &[(f64, f64)]) -> Result<(f64, Vec<f64>), SampleError> {
    check(&runs.iter().map(|(value, _)| *value).collect::<Vec<_>>())?;
    check(&runs.iter().map(|(_, weight)| *weight).collect::<Vec<_>>())?;
    let all_but = |left_out: Option<usize>| {
        let (mut sum, mut plain, mut weights, mut count) = (0.0, 0.0, 0.0, 0.0);
        for (place, (value, weight)) in runs.iter().enumerate() {
            if Some(place) != left_out {
                sum += value * weight;
                plain += value;
                weights += weight;
                count += 1.0;
            }
        }
        if weights > 0.0 { sum / weights } else { plain / count }
    };
    let places = if runs.len() < 2 { 0..0 } else { 0..runs.len() };
    Ok((all_but(None), places.map(|place| all_but(Some(place))).collect()))
}

/// A value of several runs with Tukey's jackknife over the runs, on the values themselves; of a
/// mean it is the t interval.
fn jackknifed(whole: f64, without: &[f64], confidence: f64) -> Result<Estimate, SampleError> {
    check_confidence(confidence)?;
    let count = exact_f64(without.len());
    let pseudo: Vec<f64> =
        without.iter().map(|left| count * whole - (count - 1.0) * left).collect();
    let Some(variance) = variance(&pseudo) else {
        return Ok(Estimate::exact(whole).doubt(Caveat::TooFewReplications { have: 1, need: 2 }));
    };
    let half_width = t_two_sided(confidence, count - 1.0) * (variance / count).sqrt();
    Ok(Estimate::with_interval(whole, Interval::around(whole, half_width, confidence)))
}

/// Observations that lie beyond a percentile at least, even if they were independent. By simulation
/// of M/M/1 at 50 to 95 % utilization, intervals given at 5 or more effectively independent ones
/// cover 94–97 %, below 3 as little as 88.
pub const BEYOND_PERCENTILE: f64 = 5.0;

/// Observations that a percentile needs at least.
#[must_use]
pub fn needed_for(quantile: f64) -> f64 {
    BEYOND_PERCENTILE / quantile.min(1.0 - quantile)
}

/// Whether so many observations are enough for a percentile: the one such test.
///
/// # Errors
/// [`Caveat::TooFewSamples`] with how many it needs.
pub fn enough_for(quantile: f64, count: u64) -> Result<(), Caveat> {
    let (effective, need) = (exact_f64(count), needed_for(quantile));
    // 0.01 is not 1 − 0.99 to the last digit.
    if effective >= need * (1.0 - 1e-9) {
        Ok(())
    } else {
        Err(Caveat::TooFewSamples { quantile, effective, need })
    }
}

/// Median of independent observations, such as one number per run, with the interval between two
/// order statistics; too few of them give no interval but a caveat.
///
/// # Errors
/// [`SampleError`] for nothing, for NaN, and for a confidence outside (0, 1).
///
/// # Source
/// [Jain91 §13.7]; the k-th from either end, with 2·P(Binomial(n, ½) < k) at most 1 − confidence.
pub fn median_interval(values: &[f64], confidence: f64) -> Result<Estimate, SampleError> {
    check(values)?;
    check_confidence(confidence)?;
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let estimate = Estimate::exact(sorted_quantile(&sorted, 0.5));
    // Terms of the binomial distribution from the end on, until they hold too much.
    let count = exact_f64(sorted.len());
    let mut term = (-count * std::f64::consts::LN_2).exp();
    let (mut below, mut outside, mut held) = (term, 0_usize, 0.0);
    while 2.0 * below <= 1.0 - confidence && outside < sorted.len() / 2 {
        held = below;
        outside += 1;
        term *= (count - exact_f64(outside) + 1.0) / exact_f64(outside);
        below += term;
    }
    let Some(at) = outside.checked_sub(1) else {
        let need = (2.0 / (1.0 - confidence)).log2().ceil().max(2.0);
        let have = kendall_units::whole_u64(count);
        let need = kendall_units::whole_u64(need);
        return Ok(estimate.doubt(Caveat::TooFewReplications { have, need }));
    };
    let interval = Interval {
        low: sorted[at],
        high: sorted[sorted.len() - 1 - at],
        confidence: 1.0 - 2.0 * held,
    };
    Ok(Estimate { interval: Some(interval), ..estimate })
}

/// Pearson's correlation of two lists of the same length; `None` where one of them does not vary.
///
/// # Example
/// ```
/// use kendall_stats::sample::correlation;
/// assert_eq!(correlation(&[1.0, 2.0, 3.0], &[6.0, 4.0, 2.0]), Some(-1.0));
/// assert_eq!(correlation(&[1.0, 2.0, 3.0], &[5.0; 3]), None);
/// ```
#[must_use]
pub fn correlation(x: &[f64], y: &[f64]) -> Option<f64> {
    let (center_x, center_y) = (mean(x), mean(y));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| of(x - center_x, y - center_y)).sum()
    };
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact zeros are compared")]
mod tests {
    use super::*;

    #[test]
    fn one_replication_has_a_mean_and_a_caveat() {
        let estimate = mean_interval(&[3.0], 0.95).unwrap();
        assert!(estimate.interval.is_none());
        assert_eq!(estimate.caveats, [Caveat::TooFewReplications { have: 1, need: 2 }]);
    }

    #[test]
    fn nothing_and_nan_are_refused_with_their_place() {
        assert_eq!(mean_interval(&[], 0.95), Err(SampleError::Empty));
        let error = mean_interval(&[1.0, f64::INFINITY], 0.95).unwrap_err();
        assert_eq!(error.to_string(), "observation 1 is inf, not a finite number");
        assert!(mean_interval(&[1.0], 1.0).is_err());
    }

    /// Of runs that count as much the weighted mean is the mean; what has a weight of 0 does not count,
    /// and where nothing has one all count.
    #[test]
    fn a_weighted_mean_is_that_of_all_that_was_counted() {
        let times = [0.010, 0.012, 0.011];
        let alike: Vec<(f64, f64)> = times.iter().map(|time| (*time, 300.0)).collect();
        let (plain, weighted) =
            (positive_mean(&times, 0.95).unwrap(), positive_weighted_mean(&alike, 0.95).unwrap());
        let ends = |estimate: &Estimate| {
            let interval = estimate.interval.unwrap();
            [estimate.center, interval.low, interval.high]
        };
        // The same sums with a factor: they differ by roundings.
        for (one, other) in ends(&plain).into_iter().zip(ends(&weighted)) {
            assert!((one / other - 1.0).abs() < 1e-12, "{one}, {other}");
        }
        let uneven = [(4.0, 100.0), (1.0, 300.0), (9.0, 0.0)];
        assert!((positive_weighted_mean(&uneven, 0.95).unwrap().center - 1.75).abs() < 1e-12);
        let nothing = [(4.0, 0.0), (2.0, 0.0)];
        assert!((positive_weighted_mean(&nothing, 0.95).unwrap().center - 3.0).abs() < 1e-12);
        assert!(positive_weighted_mean(&[(-1.0, 1.0)], 0.95).is_err());
        let signed = weighted_mean(&[(-1.0, 1.0), (2.0, 2.0)], 0.95).unwrap();
        assert!((signed.center - 1.0).abs() < 1e-12);
        let empty = positive_weighted_mean(&[(0.0, 5.0), (0.0, 7.0)], 0.95).unwrap();
        assert_eq!(
            (empty.center, empty.interval.map(|i| (i.low, i.high))),
            (0.0, Some((0.0, 0.0)))
        );
    }

    /// Runs that differ by more than themselves: a t interval would say 0/s to 25 947/s.
    #[test]
    fn an_interval_of_a_positive_value_is_positive_or_refused() {
        let wild = [6_000.0, 13_500.0, 19_000.0];
        let by_t = mean_interval(&wild, 0.95).unwrap().interval.unwrap();
        assert!(by_t.low < 0.0);
        let refused = positive_mean(&wild, 0.95).unwrap();
        assert!(refused.interval.is_none(), "{refused:?}");
        let said = refused.caveats[0].to_string();
        assert!(said.contains("3 runs put it anywhere within a factor of"), "{said}");
        for values in [vec![0.0, 0.0, 3.0], vec![1e-9, 5.0], vec![2.0, 2.2, 4.0]] {
            let low = positive_mean(&values, 0.95).unwrap().interval.map_or(1.0, |i| i.low);
            assert!(low > 0.0, "{values:?}");
        }
        assert!(positive_mean(&[1.0, -1.0], 0.95).is_err());
        // 294.5/s twice stood as "294.5 ± 0"; three thirds of a sum differ by a rounding.
        for equal in [vec![294.5; 2], vec![0.1; 3]] {
            let found = positive_mean(&equal, 0.95).unwrap();
            assert!(found.interval.is_none(), "{found:?}");
            assert!(found.caveats[0].to_string().contains("gave the same value"), "{found:?}");
        }
        assert_eq!(positive_mean(&[0.0, 0.0], 0.95).unwrap().interval.unwrap().low, 0.0);
    }

    /// Runs that agree have the t interval, to the second order of their spread.
    #[test]
    fn close_runs_have_the_usual_interval() {
        let values = [5_700.0, 5_762.0, 5_790.0];
        let usual = mean_interval(&values, 0.95).unwrap();
        let found = positive_mean(&values, 0.95).unwrap();
        assert!((found.center - usual.center).abs() < 1e-9);
        let (found, usual) = (found.interval.unwrap(), usual.interval.unwrap());
        assert!((found.half_width() / usual.half_width() - 1.0).abs() < 0.01);
        assert_eq!(positive_mean(&[3.0], 0.95).unwrap().interval, None);
    }

    #[test]
    fn a_percentile_needs_five_beyond_it() {
        assert!(enough_for(0.99, 500).is_ok() && enough_for(0.99, 499).is_err());
        assert!(enough_for(0.25, 20).is_ok() && enough_for(0.25, 19).is_err());
    }

    /// Nine observations: the second from either end, since P(Binomial(9, ½) ≤ 1) = 10/512.
    #[test]
    fn a_median_lies_between_order_statistics() {
        let values: Vec<f64> = (1..=9).map(f64::from).collect();
        let estimate = median_interval(&values, 0.95).unwrap();
        let interval = estimate.interval.unwrap();
        assert_eq!((estimate.center, interval.low, interval.high), (5.0, 2.0, 8.0));
        assert!((interval.confidence - (1.0 - 20.0 / 512.0)).abs() < 1e-12);
        let few = median_interval(&values[..5], 0.95).unwrap();
        assert_eq!(few.caveats, [Caveat::TooFewReplications { have: 5, need: 6 }]);
        assert!(median_interval(&values[..6], 0.95).unwrap().interval.is_some());
    }

    #[test]
    fn quantiles_interpolate_between_order_statistics() {
        let sorted = [1.0, 2.0, 3.0, 4.0];
        assert!((sorted_quantile(&sorted, 0.5) - 2.5).abs() < 1e-12);
        assert!((sorted_quantile(&sorted, 1.0) - 4.0).abs() < 1e-12);
    }
}
