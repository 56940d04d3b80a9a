//! Percentiles from histogram bins: the bounds that the bins allow, never a made-up exact number.

use crate::fetch::TierSeries;

/// Where a quantile lies.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct QuantileBounds {
    /// Lower bound of its bin, in seconds; excluded.
    pub above_s: f64,
    /// Upper bound of its bin; infinite in the last.
    pub at_most_s: f64,
}

/// The bin of a quantile over all steps in `steps`.
///
/// The true quantile lies in the bin, whatever the distribution within: interpolation inside it
/// would be an invention.
///
/// `None` without values.
#[must_use]
pub fn quantile_bounds(
    tier: &TierSeries,
    steps: std::ops::Range<usize>,
    quantile: f64,
) -> Option<QuantileBounds> {
    let totals: Vec<(f64, f64)> = tier
        .buckets
        .iter()
        .map(|(bound, values)| {
            let sum = values.get(steps.clone()).unwrap_or_default();
            (*bound, sum.iter().filter(|value| value.is_finite()).sum())
        })
        .collect();
    let all = totals.last().map(|(_, count)| *count).filter(|count| *count > 0.0)?;
    let at = totals.iter().position(|(_, count)| *count >= quantile * all)?;
    let above_s = if at == 0 { 0.0 } else { totals[at - 1].0 };
    Some(QuantileBounds { above_s, at_most_s: totals[at].0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_in_the_bin_where_the_counts_pass_it() {
        let tier = TierSeries {
            buckets: vec![
                (0.01, vec![30.0, 20.0]),
                (0.1, vec![50.0, 48.0]),
                (f64::INFINITY, vec![50.0, 50.0]),
            ],
            ..TierSeries::default()
        };
        let of = |quantile| quantile_bounds(&tier, 0..2, quantile).unwrap();
        assert_eq!(of(0.5), QuantileBounds { above_s: 0.0, at_most_s: 0.01 });
        assert_eq!(of(0.98), QuantileBounds { above_s: 0.01, at_most_s: 0.1 });
        assert!(of(0.99).at_most_s.is_infinite());
        assert!(quantile_bounds(&TierSeries::default(), 0..2, 0.5).is_none());
    }
}
