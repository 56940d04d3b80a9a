//! What the only run of a configuration says of itself, from its own seconds.

use kendall_stats::estimate::{Caveat, Estimate};
use kendall_stats::histogram::Histogram;
use kendall_stats::within_run::{RunWindow, WithinRun, within_run};
use kendall_store::Period;

use crate::Configuration;

/// What the seconds of the only run of a configuration say; `None` without a whole second.
///
/// The seconds give how wide the intervals are. Their centers are the configuration's own numbers, which are of
/// the whole window and stand everywhere else. Each carries the doubts of the run, and what speaks against one
/// steady level.
pub(crate) fn of(
    only: &Configuration,
    seconds: &[Period],
    quantiles: &[f64],
    confidence: f64,
) -> Option<WithinRun> {
    let window = |second: &Period| RunWindow {
        length_s: second.length_s(),
        response_time: second.counts.response_time.clone(),
    };
    let windows: Vec<RunWindow> = seconds.iter().map(window).collect();
    let mut run = within_run(&windows, &Histogram::new(), quantiles, confidence).ok()?;
    let of_run = only.doubts().into_iter().filter(|caveat| !caveat.is_remark());
    let caveats: Vec<Caveat> = run.caveats.iter().cloned().chain(of_run).collect();
    let told = |estimate: &Estimate, shown: Option<f64>| {
        caveats.iter().cloned().fold(around(estimate, shown), Estimate::doubt)
    };
    run.throughput_per_s = told(&run.throughput_per_s, Some(only.throughput()));
    let mean = only.response_estimate().map(|mean| mean.center);
    run.response_time_mean_s = run.response_time_mean_s.map(|estimate| told(&estimate, mean));
    for one in &mut run.response_time_quantiles_s {
        let shown = only.percentile_estimate(one.quantile).ok().map(|shown| shown.center);
        one.value_s = told(&one.value_s, shown);
    }
    Some(run)
}

/// An estimate with the number that is shown as its center, and an interval of the same width for its size.
fn around(estimate: &Estimate, shown: Option<f64>) -> Estimate {
    match shown {
        Some(center) if estimate.center > 0.0 => {
            Estimate { center, ..estimate.map(|value| value * center / estimate.center) }
        }
        _ => estimate.clone(),
    }
}
