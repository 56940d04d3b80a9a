//! Increase of a counter over a window, extrapolated as Prometheus does.

use kendall_units::exact_f64;

use crate::samples::Stored;

/// Samples further apart than this many mean distances from an end of the window are not extrapolated to it.
const NEAR: f64 = 1.1;

/// What a counter grew by in the `window_ms` before `at_ms`; NaN with fewer than two samples.
///
/// Resets are added up. At each end of the window the counter is assumed to have grown as it did between
/// its samples, up to the end if the nearest sample is near, else for half the samples' distance;
/// and at the begin not to below zero.
///
/// # Source
/// Prometheus, `extrapolatedRate` of its functions of counters.
pub(super) fn increase(stored: &Stored, at_ms: u64, window_ms: u64) -> f64 {
    let from_ms = at_ms.saturating_sub(window_ms);
    let begin = stored.times_ms.partition_point(|time| *time <= from_ms);
    let end = stored.times_ms.partition_point(|time| *time <= at_ms);
    if end <= begin {
        return f64::NAN;
    }
    let (times, values) = (&stored.times_ms[begin..end], &stored.values[begin..end]);
    if values.iter().any(|value| value.is_nan()) {
        // A marker of a scrape without this sample, as `promtool tsdb dump` prints it: no sample itself.
        let there = times.iter().zip(values).filter(|(_, value)| !value.is_nan());
        let (times, values): (Vec<u64>, Vec<f64>) = there.unzip();
        return extrapolated(&times, &values, from_ms, at_ms);
    }
    extrapolated(times, values, from_ms, at_ms)
}

/// Samples within the window, without gaps.
fn extrapolated(times: &[u64], values: &[f64], from_ms: u64, at_ms: u64) -> f64 {
    if times.len() < 2 {
        return f64::NAN;
    }
    let resets: f64 = values.windows(2).filter(|pair| pair[1] < pair[0]).map(|pair| pair[0]).sum();
    let last = times.len() - 1;
    let grown = values[last] - values[0] + resets;
    let covered = exact_f64(times[last] - times[0]);
    let apart = covered / exact_f64(last as u64);
    let open = |gap_ms: u64| {
        let gap = exact_f64(gap_ms);
        if gap < apart * NEAR { gap } else { apart / 2.0 }
    };
    let mut before = open(times[0] - from_ms);
    if grown > 0.0 && values[0] >= 0.0 {
        before = before.min(covered * values[0] / grown);
    }
    grown * (covered + before + open(at_ms - times[last])) / covered
}
