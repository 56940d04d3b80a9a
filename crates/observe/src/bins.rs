//! Percentiles from histogram bins: the bounds that the bins allow, never a made-up exact number.

use kendall_fit::model::NORMAL;

use crate::fetch::TierSeries;

/// Where a quantile lies, with 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct QuantileBounds {
    /// Lower bound of its lowest bin, in seconds; excluded.
    pub(crate) above_s: f64,
    /// Upper bound of its highest bin; infinite in the last.
    pub(crate) at_most_s: f64,
    /// Bins between them: in one it is the bin that limits what is known, in several the number of requests.
    pub(crate) bins: usize,
}

/// The bins in which a quantile lies over all steps in `steps`, of `step_s` seconds each.
///
/// Within a bin it may be anywhere, whatever interpolation says: of a constant time that lies in the middle of a bin, it
/// would say that all but a hundredth of the requests took less than the bin's end.
///
/// `None` without values.
pub(crate) fn quantile_bounds(
    tier: &TierSeries,
    steps: std::ops::Range<usize>,
    step_s: f64,
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
    // Bins hold rates. As many requests have so many below a quantile, give or take.
    let chance = NORMAL * (quantile * (1.0 - quantile) / (all * step_s)).sqrt();
    let bin_of = |share: f64| totals.iter().position(|(_, count)| *count >= share * all);
    let (low, high) =
        (bin_of((quantile - chance).max(0.0))?, bin_of((quantile + chance).min(1.0))?);
    let above_s = if low == 0 { 0.0 } else { totals[low - 1].0 };
    Some(QuantileBounds { above_s, at_most_s: totals[high].0, bins: high - low + 1 })
}

/// Between which the mean lies, whatever the distribution within each bin; the highest is infinite where
/// requests took longer than the last bound. `None` without values.
pub(crate) fn mean_bounds(tier: &TierSeries, steps: std::ops::Range<usize>) -> Option<(f64, f64)> {
    let (mut least, mut most, mut below, mut bound_below) = (0.0, 0.0, 0.0, 0.0);
    for (bound, values) in &tier.buckets {
        let up_to: f64 = values.get(steps.clone())?.iter().filter(|value| value.is_finite()).sum();
        let count = (up_to - below).max(0.0);
        if count > 0.0 {
            least += count * bound_below;
            most += count * bound;
        }
        (below, bound_below) = (up_to.max(below), *bound);
    }
    (below > 0.0).then(|| (least / below, most / below))
}

/// Bins over several parts of the time: lower bound, upper bound, how many.
pub(crate) fn counts(
    tier: &TierSeries,
    parts: impl Iterator<Item = std::ops::Range<usize>> + Clone,
) -> Vec<(f64, f64, f64)> {
    let (mut below, mut bound_below) = (0.0, 0.0);
    let mut found = Vec::with_capacity(tier.buckets.len());
    for (bound, values) in &tier.buckets {
        let steps = parts.clone().flat_map(|steps| values.get(steps).unwrap_or_default());
        let up_to: f64 = steps.filter(|value| value.is_finite()).sum();
        found.push((bound_below, *bound, (up_to - below).max(0.0)));
        (below, bound_below) = (up_to.max(below), *bound);
    }
    found
}

/// Between which the mean of squares lies, where the mean is known: as even within the bins as the mean
/// allows, and as uneven. `None` where a bin that holds some has no upper bound, or the mean is none that the
/// bins allow.
pub(crate) fn square_bounds(bins: &[(f64, f64, f64)], mean: f64) -> Option<(f64, f64)> {
    let held: Vec<(f64, f64, f64)> = bins.iter().copied().filter(|bin| bin.2 > 0.0).collect();
    let all: f64 = held.iter().map(|bin| bin.2).sum();
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        held.iter().map(|(low, high, count)| count * of(*low, *high)).sum()
    };
    let (least, most) = (sum(&|low, _| low), sum(&|_, high| high));
    let total = mean * all;
    if held.is_empty() || !most.is_finite() || total < least || total > most {
        return None;
    }
    // As even as it can be: all within one bin alike, and as near to one value as their bins let them.
    let (mut below, mut above) = (0.0, held.last()?.1);
    for _ in 0..100 {
        let value = f64::midpoint(below, above);
        let reached = sum(&|low, high| value.clamp(low, high));
        if reached < total { below = value } else { above = value }
    }
    let even = sum(&|low, high| above.clamp(low, high).powi(2));
    // As uneven: all at the ends of their bins, the highest bins up first. A bin that holds the mean μ at its
    // ends a and b has a mean of squares of (a + b)·μ − a·b.
    let mut spare = total - least;
    let mut uneven = 0.0;
    for (low, high, count) in held.iter().rev() {
        let taken = spare.min(count * (high - low));
        spare -= taken;
        uneven += (low + high) * (count * low + taken) - count * low * high;
    }
    Some((even / all, uneven / all))
}

/// Durations over time: a row a block of windows, a column a bin.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Heat {
    /// Upper bound of each bin, s; the last may be infinite.
    pub(crate) bounds: Vec<f64>,
    /// Share of the requests of a row in each bin; `None` without requests.
    pub(crate) rows: Vec<Vec<Option<f64>>>,
    /// Requests of each row over the step: times the length of a step, how many there were.
    pub(crate) requests: Vec<f64>,
}

impl Heat {
    /// Ends of each bin for a logarithmic axis: the lowest begins at 0 and a last without a bound never
    /// ends, so both are drawn as wide as their neighbor.
    pub(crate) fn ends(&self) -> Vec<(f64, f64)> {
        let ratio = |at: usize| match (self.bounds.get(at), self.bounds.get(at + 1)) {
            (Some(low), Some(high)) if *low > 0.0 && high.is_finite() => high / low,
            _ => 2.0,
        };
        let bin = |(at, bound): (usize, &f64)| {
            let low = if at == 0 { None } else { self.bounds.get(at - 1) };
            match (low, bound.is_finite()) {
                (None, true) => (bound / ratio(0), *bound),
                (Some(low), true) => (*low, *bound),
                (Some(low), false) => (*low, low * ratio(at.saturating_sub(2))),
                (None, false) => (1e-3, 1.0),
            }
        };
        self.bounds.iter().enumerate().map(bin).collect()
    }
}

/// Shares by bin of `windows` windows of `steps` steps each, `together` of them in a row, in at most
/// `most` bins: neighbors that hold least are put together, bounds stay those of the histogram.
pub(crate) fn heat(
    tier: &TierSeries,
    windows: usize,
    steps: usize,
    together: usize,
    most: usize,
) -> Option<Heat> {
    let rows = windows.div_ceil(together);
    let counts = |values: &Vec<f64>, row: usize| -> f64 {
        let end = ((row + 1) * together).min(windows) * steps;
        let part = values.get(row * together * steps..end.min(values.len())).unwrap_or_default();
        part.iter().filter(|value| value.is_finite()).sum()
    };
    let mut bounds = Vec::new();
    let mut columns: Vec<Vec<f64>> = Vec::new();
    let mut below = vec![0.0; rows];
    for (bound, values) in &tier.buckets {
        let up_to: Vec<f64> = (0..rows).map(|row| counts(values, row)).collect();
        columns.push(up_to.iter().zip(&below).map(|(a, b)| (a - b).max(0.0)).collect());
        bounds.push(*bound);
        below = up_to;
    }
    // Empty bins at both ends are left out.
    let held = |column: &Vec<f64>| column.iter().sum::<f64>() > 0.0;
    let last = columns.iter().rposition(held)?;
    columns.truncate(last + 1);
    bounds.truncate(last + 1);
    let first = columns.iter().position(held)?.saturating_sub(1);
    columns.drain(..first);
    bounds.drain(..first);
    while columns.len() > most {
        let pair = |at: &usize| -> f64 { columns[*at].iter().chain(&columns[at + 1]).sum() };
        let at = (0..columns.len() - 1).min_by(|a, b| pair(a).total_cmp(&pair(b)))?;
        let right = columns.remove(at + 1);
        columns[at].iter_mut().zip(right).for_each(|(a, b)| *a += b);
        bounds.remove(at);
    }
    let requests: Vec<f64> =
        (0..rows).map(|row| columns.iter().map(|column| column[row]).sum()).collect();
    let shares = |(row, all): (usize, &f64)| {
        columns.iter().map(|column| (*all > 0.0).then(|| column[row] / all)).collect()
    };
    let rows = requests.iter().enumerate().map(shares).collect();
    Some(Heat { bounds, rows, requests })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two windows of two steps: rates below 10, 100 ms, 1 s and above.
    #[test]
    fn durations_over_time_are_shares_of_each_window() {
        let tier = TierSeries {
            buckets: vec![
                (0.001, vec![0.0; 5]),
                (0.01, vec![4.0, 4.0, 0.0, 0.0, 9.0]),
                (0.1, vec![8.0, 8.0, 1.0, f64::NAN, 9.0]),
                (1.0, vec![8.0, 8.0, 4.0, f64::NAN, 9.0]),
                (f64::INFINITY, vec![8.0, 8.0, 4.0, f64::NAN, 9.0]),
            ],
            ..TierSeries::default()
        };
        let found = heat(&tier, 2, 2, 1, 9).unwrap();
        assert_eq!(found.bounds, [0.001, 0.01, 0.1, 1.0]);
        let expected = [[0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.25, 0.75]];
        assert_eq!(found.rows, expected.map(|row| row.map(Some).to_vec()));
        assert_eq!(found.requests, [16.0, 4.0]);
        let ends = found.ends();
        assert_eq!(ends[0], (0.001 / 10.0, 0.001));
        assert_eq!(ends[3], (0.1, 1.0));
        let open = Heat { bounds: vec![0.1, 0.4, f64::INFINITY], rows: vec![], requests: vec![] };
        assert_eq!(open.ends(), [(0.1 / 4.0, 0.1), (0.1, 0.4), (0.4, 1.6)]);
        // Put together, no request is lost and bounds are those that remain.
        let narrow = heat(&tier, 2, 2, 2, 2).unwrap();
        assert_eq!(narrow.rows.len(), 1);
        assert!((narrow.rows[0].iter().flatten().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((narrow.bounds.last().unwrap() - 1.0).abs() < 1e-12);
        assert!(heat(&TierSeries::default(), 2, 2, 1, 9).is_none());
    }

    /// By hand, and of exponential times: the mean of squares is twice the squared mean.
    #[test]
    fn the_spread_lies_between_what_bins_and_mean_allow() {
        // One bin from 1 to 3 and a mean of 2: all at 2, or half at each end.
        let (even, uneven) = square_bounds(&[(1.0, 3.0, 8.0)], 2.0).unwrap();
        assert!((even - 4.0).abs() < 1e-9 && (uneven - 5.0).abs() < 1e-9, "{even} {uneven}");
        // Two bins whose means the known mean decides alone.
        let (even, uneven) = square_bounds(&[(0.0, 1.0, 5.0), (2.0, 4.0, 5.0)], 2.5).unwrap();
        assert!((even - (1.0 + 16.0) / 2.0).abs() < 1e-9, "{even}");
        assert!((uneven - (1.0 + 16.0) / 2.0).abs() < 1e-9, "{uneven}");
        assert!(square_bounds(&[(0.0, 1.0, 5.0)], 1.5).is_none());
        assert!(square_bounds(&[(0.0, f64::INFINITY, 5.0)], 1.5).is_none());
        assert!(square_bounds(&[], 1.5).is_none());
        let mut bins = Vec::new();
        let (mut low, mut high) = (0.0_f64, 0.01_f64);
        while low < 40.0 {
            bins.push((low, high, (-low).exp() - (-high).exp()));
            (low, high) = (high, high * 1.5);
        }
        let (even, uneven) = square_bounds(&bins, 1.0).unwrap();
        assert!(even < 2.0 && 2.0 < uneven, "{even} {uneven}");
        // A value is at most 1.5 times another of its bin, so its square at most 1.5² times.
        assert!(uneven < 1.5 * 1.5 * even, "{even} {uneven}");
    }

    #[test]
    fn counts_are_of_all_parts_of_the_time() {
        let tier = TierSeries {
            buckets: vec![(0.1, vec![1.0, 9.0, 2.0]), (0.2, vec![1.0, 9.0, f64::NAN])],
            ..TierSeries::default()
        };
        let found = counts(&tier, [0..1, 2..3].into_iter());
        assert_eq!(found, [(0.0, 0.1, 3.0), (0.1, 0.2, 0.0)]);
    }

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
        let of = |quantile| quantile_bounds(&tier, 0..2, 1e6, quantile).unwrap();
        assert_eq!(of(0.4), QuantileBounds { above_s: 0.0, at_most_s: 0.01, bins: 1 });
        assert_eq!(of(0.9), QuantileBounds { above_s: 0.01, at_most_s: 0.1, bins: 1 });
        assert!(of(0.99).at_most_s.is_infinite());
        // Of 100 requests half are within 10 ms, give or take 9.8: the median may be in the next bin.
        let few = quantile_bounds(&tier, 0..2, 1.0, 0.5);
        assert_eq!(few, Some(QuantileBounds { above_s: 0.0, at_most_s: 0.1, bins: 2 }));
        assert!(quantile_bounds(&TierSeries::default(), 0..2, 1.0, 0.5).is_none());
        // By hand, of the first step: 30 within 10 ms and 20 within 100 ms. In the second two lie beyond.
        let (least, most) = mean_bounds(&tier, 0..1).unwrap();
        assert!((least - 20.0 * 0.01 / 50.0).abs() < 1e-12, "{least}");
        assert!((most - (30.0 * 0.01 + 20.0 * 0.1) / 50.0).abs() < 1e-12, "{most}");
        assert!(mean_bounds(&tier, 1..2).unwrap().1.is_infinite());
        assert!(mean_bounds(&TierSeries::default(), 0..2).is_none());
    }
}
