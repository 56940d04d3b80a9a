//! Independent observations: mean, standard deviation, t interval.
//!
//! Observations of one run are not independent (see [`crate::correlated`]); one number per run is.

use kendall_units::exact_f64;

use crate::distribution::t_two_sided;
use crate::estimate::{Caveat, Estimate, Interval};

/// Numbers that no statistic can be made of.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// There is nothing.
    #[error("no observations")]
    Empty,
    /// NaN or infinite.
    #[error("observation {index} is {value}, not a finite number")]
    NotFinite {
        /// Position, from 0.
        index: usize,
        /// What it is.
        value: f64,
    },
    /// A confidence level that is not strictly between 0 and 1.
    #[error("a confidence of {confidence} is not between 0 and 1, such as 0.95")]
    Confidence {
        /// What was asked for.
        confidence: f64,
    },
    /// A quantile that is not strictly between 0 and 1.
    #[error("a quantile of {quantile} is not between 0 and 1, such as 0.99")]
    Quantile {
        /// What was asked for.
        quantile: f64,
    },
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

#[cfg(test)]
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
