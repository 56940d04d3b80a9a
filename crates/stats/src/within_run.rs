//! What a single run says of itself: throughput, mean and percentiles of the response time, each
//! with its interval, or with why there is none and how long a run would carry one.
//!
//! For `kendall load`, and for the runs of a study one by one (rows of `operations` whose extent is
//! `second`, those of all generators and operations of one second added up): [`within_run`] takes
//! windows as they are stored, so a list of runs need only call it.
//!
//! What it leaves out: a start-up transient (cut it before, [`crate::steady`]), and what differs
//! between runs, which only replications see ([`crate::sample`]). An interval of one run is no
//! interval of the configuration.

use kendall_units::exact_f64;
use serde::{Deserialize, Serialize};

use crate::correlated::{mean_of_histograms, quantile_of_windows, rate_of_windows};
use crate::estimate::{Caveat, Estimate};
use crate::histogram::Histogram;
use crate::sample::{SampleError, check_confidence, mean};
use crate::steady::{THROUGHPUT_SIGNIFICANCE, drift, transient};

/// A last window shorter than this share of the first is counted with the one before it.
const SHORTEST_LAST: f64 = 0.5;

/// One window of a run, usually a second long.
#[derive(Debug, Clone)]
pub struct RunWindow {
    /// Its length.
    pub length_s: f64,
    /// Response times of what was answered within it without an error, in nanoseconds.
    pub response_time: Histogram,
}

/// What the windows of one run say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WithinRun {
    /// Confidence of all intervals.
    pub confidence: f64,
    /// Length of all windows together.
    pub length_s: f64,
    /// Answered without an error, per second.
    pub throughput_per_s: Estimate,
    /// Mean response time; `None` where nothing was answered.
    pub response_time_mean_s: Option<Estimate>,
    /// Percentiles in the order that was asked for; none where nothing was answered.
    pub response_time_quantiles_s: Vec<QuantileOfRun>,
    /// What speaks against one steady level over the run, which the intervals take for granted.
    pub caveats: Vec<Caveat>,
}

/// A percentile of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuantileOfRun {
    /// Which, 0 to 1.
    pub quantile: f64,
    /// Its value in seconds.
    pub value_s: Estimate,
}

/// Throughput, mean and percentiles of one run, from its windows in their order.
///
/// `drained` is what was answered after the last window (an open loop waits for it): it is in the
/// times, counted with the last window, and in no throughput. Empty for most.
///
/// # Errors
/// [`SampleError`] for no window, and for a quantile or confidence outside (0, 1).
///
/// # Example
/// ```
/// use kendall_stats::histogram::Histogram;
/// use kendall_stats::within_run::{RunWindow, within_run};
/// let second = |count| {
///     let mut response_time = Histogram::new();
///     response_time.record_n(2_000_000, count);
///     RunWindow { length_s: 1.0, response_time }
/// };
/// let windows: Vec<RunWindow> = [98, 103, 99, 101].map(second).into();
/// let run = within_run(&windows, &Histogram::new(), &[0.99], 0.95)?;
/// assert_eq!(run.throughput_per_s.center, 100.25);
/// // Four windows carry no interval; ten would.
/// assert!(run.throughput_per_s.interval.is_none());
/// assert_eq!(run.enough_s(&run.throughput_per_s), Some(10.0));
/// # Ok::<(), kendall_stats::sample::SampleError>(())
/// ```
pub fn within_run(
    windows: &[RunWindow],
    drained: &Histogram,
    quantiles: &[f64],
    confidence: f64,
) -> Result<WithinRun, SampleError> {
    check_confidence(confidence)?;
    let (mut lengths, mut times): (Vec<f64>, Vec<Histogram>) =
        windows.iter().map(|window| (window.length_s, window.response_time.clone())).unzip();
    let length_s: f64 = lengths.iter().sum();
    if lengths.len() > 1 && lengths[lengths.len() - 1] < SHORTEST_LAST * lengths[0] {
        let (length, rest) = (lengths.pop().unwrap_or(0.0), times.pop().unwrap_or_default());
        if let (Some(last_length), Some(last)) = (lengths.last_mut(), times.last_mut()) {
            *last_length += length;
            last.add(&rest);
        }
    }
    let counts: Vec<f64> = times.iter().map(|window| exact_f64(window.count())).collect();
    let throughput_per_s = rate_of_windows(&counts, &lengths, confidence)?;
    if let Some(last) = times.last_mut() {
        last.add(drained);
    }
    let seconds = |estimate: Estimate| estimate.map(|nanoseconds| nanoseconds / 1e9);
    let answered = times.iter().any(|window| window.count() > 0);
    let response_time_mean_s =
        if answered { Some(seconds(mean_of_histograms(&times, confidence)?)) } else { None };
    let mut response_time_quantiles_s = Vec::new();
    for quantile in quantiles.iter().copied().filter(|_| answered) {
        let value_s = seconds(quantile_of_windows(&times, quantile, confidence)?);
        response_time_quantiles_s.push(QuantileOfRun { quantile, value_s });
    }
    Ok(WithinRun {
        confidence,
        length_s,
        throughput_per_s,
        response_time_mean_s,
        response_time_quantiles_s,
        caveats: unsteady(&counts, &lengths)?,
    })
}

/// Windows at the ends of the run that differ from the rest, and a drift over it.
fn unsteady(counts: &[f64], lengths: &[f64]) -> Result<Vec<Caveat>, SampleError> {
    let rates: Vec<f64> = counts.iter().zip(lengths).map(|(n, s)| n / s).collect();
    let cut = transient(&rates, THROUGHPUT_SIGNIFICANCE)?;
    let mut caveats = Vec::new();
    let level = mean(cut.kept(&rates));
    for (which, end) in [("first", &rates[..cut.from]), ("last", &rates[cut.to..])] {
        if !end.is_empty() && level > 0.0 {
            let change = 100.0 * (mean(end) / level - 1.0);
            let text = format!(
                "the {which} part of the run ({}) differs from the rest and is in the numbers: \
                 throughput by {change:+.1} %",
                kendall_units::counted(end.len(), "window")
            );
            caveats.push(Caveat::Note { text });
        }
    }
    caveats.extend(drift(cut.kept(&rates)).and_then(|drift| drift.caveat()));
    Ok(caveats)
}

impl WithinRun {
    /// A percentile of those that were asked for.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<&Estimate> {
        let mut known = self.response_time_quantiles_s.iter();
        known.find(|one| one.quantile.total_cmp(&quantile).is_eq()).map(|one| &one.value_s)
    }

    /// How long a run would have to be for the interval that this one is too short for, as far as
    /// can be estimated from it. `None` where there is an interval.
    #[must_use]
    pub fn enough_s(&self, estimate: &Estimate) -> Option<f64> {
        if estimate.interval.is_some() {
            return None;
        }
        let count = (self.throughput_per_s.center * self.length_s).max(1.0);
        let times = estimate.caveats.iter().filter_map(|caveat| match caveat {
            // Nothing at all tells no more than that it must be much longer.
            Caveat::TooFewSamples { effective, need, .. } => {
                Some((need / effective.max(0.1 * need)).max(need / count))
            }
            Caveat::TooCorrelated { batches, need }
            | Caveat::TooFewWindows { windows: batches, need } => {
                Some(exact_f64(*need) / exact_f64((*batches).max(1)))
            }
            _ => None,
        });
        let most = times.fold(1.0_f64, f64::max);
        (most > 1.0).then(|| round_up(most * self.length_s))
    }
}

/// Two significant figures, upwards: the factor is a guess.
fn round_up(seconds: f64) -> f64 {
    let unit = 10.0_f64.powf((seconds.log10().floor() - 1.0).max(0.0));
    ((seconds / unit) - 1e-9).ceil() * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(count: u64, answered: impl Fn(u64) -> u64) -> Vec<RunWindow> {
        (0..count)
            .map(|number| {
                let mut response_time = Histogram::new();
                for one in 0..answered(number) {
                    response_time.record(1_000_000 + 1_000 * ((7 * one + 13 * number) % 1_000));
                }
                RunWindow { length_s: 1.0, response_time }
            })
            .collect()
    }

    #[test]
    fn a_short_last_window_is_no_slow_second() {
        let mut run = windows(12, |n| {
            1_000 + [3, 8, 1, 9, 4, 0, 7, 2, 6, 10, 5, 1][usize::try_from(n).unwrap()]
        });
        run[11].length_s = 0.01;
        run[11].response_time = Histogram::new();
        let found = within_run(&run, &Histogram::new(), &[0.5], 0.95).unwrap();
        let interval = found.throughput_per_s.interval.unwrap();
        // 1,000 to 1,010 a second in every window but the last.
        assert!(interval.half_width() < 20.0, "{found:?}");
        assert!((found.length_s - 11.01).abs() < 1e-9);
    }

    #[test]
    fn what_was_drained_is_in_the_times_and_in_no_throughput() {
        let run = windows(10, |_| 100);
        let mut drained = Histogram::new();
        drained.record_n(5_000_000_000, 50);
        let found = within_run(&run, &drained, &[0.99], 0.95).unwrap();
        assert!((found.throughput_per_s.center - 100.0).abs() < 1e-9);
        assert!(found.response_time_quantiles_s[0].value_s.center > 4.9);
    }

    #[test]
    fn too_short_a_run_says_how_long_would_do() {
        let run = windows(12, |_| 20);
        let found = within_run(&run, &Histogram::new(), &[0.999], 0.95).unwrap();
        let p999 = &found.response_time_quantiles_s[0].value_s;
        assert!(p999.interval.is_none());
        // 4,995 are needed, 20 come a second.
        assert!(found.enough_s(p999).unwrap() >= 100.0, "{:?}", found.enough_s(p999));
        assert_eq!(found.enough_s(&found.throughput_per_s), None);
        // Nothing beyond it was seen: still no fewer requests than are needed.
        assert!(found.enough_s(p999).unwrap() >= 4_995.0 / 20.0, "{:?}", found.enough_s(p999));
        // Windows that alternate are worth no more than there are requests.
        let alternating = windows(12, |n| 12 + 20 * (n % 2));
        let found = within_run(&alternating, &Histogram::new(), &[0.99], 0.95).unwrap();
        let p99 = &found.response_time_quantiles_s[0].value_s;
        let Caveat::TooFewSamples { effective, need, .. } = p99.caveats[0] else {
            panic!("{p99:?}")
        };
        assert!(effective <= 264.0, "{effective}");
        assert!(found.enough_s(p99).unwrap() >= 12.0 * need / 264.0, "{:?}", found.enough_s(p99));
    }

    #[test]
    fn one_answer_in_many_windows_has_no_interval_of_its_time_and_no_rate_below_0() {
        let run = windows(30, |number| u64::from(number == 7));
        let found = within_run(&run, &Histogram::new(), &[0.5], 0.95).unwrap();
        let mean = found.response_time_mean_s.unwrap();
        assert!(mean.interval.is_none() && !mean.caveats.is_empty(), "{mean:?}");
        assert!(found.response_time_quantiles_s[0].value_s.interval.is_none());
        let rate = found.throughput_per_s.interval.unwrap();
        assert!(rate.low >= 0.0 && rate.high > 0.0, "{rate:?}");
    }

    #[test]
    fn nothing_answered_and_no_window_are_no_panic() {
        let run = windows(12, |_| 0);
        let found = within_run(&run, &Histogram::new(), &[0.99], 0.95).unwrap();
        assert!(found.response_time_mean_s.is_none());
        assert!(found.response_time_quantiles_s.is_empty());
        assert!(within_run(&[], &Histogram::new(), &[0.99], 0.95).is_err());
    }
}
