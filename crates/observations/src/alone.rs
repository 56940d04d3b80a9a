//! Intervals of a run that is the only one of its configuration, from its own seconds.

use std::collections::BTreeMap;

use kendall_stats::histogram::Histogram;
use kendall_stats::within_run::{RunWindow, WithinRun, within_run};
use kendall_store::{Extent, Measured, Results, StoreError};

const SECOND_NS: u64 = 1_000_000_000;

/// What the seconds of one run say, all generators and operations of a second together; `None` without a whole
/// second.
pub(crate) fn of(
    results: &Results,
    measured: &Measured,
    quantiles: &[f64],
    confidence: f64,
) -> Result<Option<WithinRun>, StoreError> {
    let window = &measured.window;
    let mut seconds: BTreeMap<u64, Histogram> = BTreeMap::new();
    for generator in results.generators(measured.run.id, Some(Extent::Second))? {
        for row in generator.operations {
            let middle = row.from_ns / 2 + row.to_ns / 2;
            let is_whole = row.to_ns.saturating_sub(row.from_ns) >= SECOND_NS * 9 / 10;
            if is_whole && middle >= window.from_ns && middle < window.to_ns {
                let second = seconds.entry((middle - window.from_ns) / SECOND_NS).or_default();
                second.add(&row.counts.response_time);
            }
        }
    }
    let windows: Vec<RunWindow> = seconds
        .into_values()
        .map(|response_time| RunWindow { length_s: 1.0, response_time })
        .collect();
    let drained = Histogram::new();
    Ok(within_run(&windows, &drained, quantiles, confidence).ok())
}
