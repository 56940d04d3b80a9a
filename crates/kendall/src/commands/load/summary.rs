//! The figures of a load that scripts ask for first, as plain numbers.

use kendall_observations::Metric;
use kendall_protocols::load_result::LoadResult;
use kendall_stats::histogram::{DecodeError, Histogram};
use kendall_units::{Seconds, exact_f64, ratio};

/// All operations together. Times are `null` where nothing completed.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(crate) struct Summary {
    duration_s: f64,
    completed: u64,
    failed: u64,
    /// Failed of those that ended.
    failed_share: Option<f64>,
    throughput_per_s: Option<f64>,
    response_time_mean_s: Option<f64>,
    response_time_standard_deviation_s: Option<f64>,
    response_time_p50_s: Option<f64>,
    response_time_p90_s: Option<f64>,
    response_time_p95_s: Option<f64>,
    response_time_p99_s: Option<f64>,
    response_time_p999_s: Option<f64>,
    response_time_max_s: Option<f64>,
    /// Of all operations.
    #[serde(skip)]
    times: Histogram,
}

impl Summary {
    /// Sums over the operations of `result`.
    pub(crate) fn of(result: &LoadResult) -> Result<Self, DecodeError> {
        let mut times = Histogram::new();
        let (mut completed, mut failed) = (0_u64, 0_u64);
        for operation in result.operations.values() {
            times.add(&Histogram::decode(&operation.response_time.0)?);
            completed += operation.completed;
            failed += operation.errors.values().sum::<u64>();
        }
        let duration_s =
            Seconds::from_nanos(result.ended_ns.saturating_sub(result.started_ns)).get();
        // What came after the end is in the times and in no throughput.
        let drained: u64 = result.drained.values().map(|operation| operation.completed).sum();
        let throughput = exact_f64(completed.saturating_sub(drained)) / duration_s;
        let at = |quantile| times.quantile(quantile).map(|ns| exact_f64(ns) / 1e9);
        Ok(Self {
            duration_s,
            completed,
            failed,
            failed_share: ratio(failed, completed + failed),
            throughput_per_s: throughput.is_finite().then_some(throughput),
            response_time_mean_s: times.mean().map(|ns| ns / 1e9),
            response_time_standard_deviation_s: times.standard_deviation().map(|ns| ns / 1e9),
            response_time_p50_s: at(0.5),
            response_time_p90_s: at(0.9),
            response_time_p95_s: at(0.95),
            response_time_p99_s: at(0.99),
            response_time_p999_s: at(0.999),
            response_time_max_s: times.max().map(|ns| exact_f64(ns) / 1e9),
            times,
        })
    }

    /// What a condition is about, where it was measured.
    pub(super) fn value(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Mean => self.response_time_mean_s,
            Metric::Quantile(quantile) => {
                self.times.quantile(quantile).map(|ns| exact_f64(ns) / 1e9)
            }
            Metric::Throughput => self.throughput_per_s.filter(|_| self.completed > 0),
            Metric::Errors => self.failed_share,
        }
    }
}
