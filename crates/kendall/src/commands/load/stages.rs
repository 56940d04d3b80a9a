//! What a load of stages did in each of them.

use kendall_loadgen::stages::{Level, Stages};
use kendall_protocols::load_result::{LoadResult, Operation};
use kendall_report::document::{Table, Unit};
use kendall_stats::histogram::{DecodeError, Histogram};
use kendall_units::{Seconds, exact_f64};

use super::bars::TIME;

/// One stage: of its whole seconds, by the second in whose middle they are.
#[derive(Debug)]
pub(super) struct OfStage {
    from_s: f64,
    to_s: f64,
    /// Clients, or arrivals a second, at its end.
    to: f64,
    completed: u64,
    failed: u64,
    throughput_per_s: Option<f64>,
    times: Histogram,
}

/// Each stage that has a length.
pub(super) fn of(result: &LoadResult, stages: &Stages) -> Result<Vec<OfStage>, DecodeError> {
    let mut from_s = 0.0;
    let mut all = Vec::new();
    for stage in &stages.list {
        let to_s = from_s + stage.length.get();
        if to_s > from_s {
            all.push(one(result, (from_s, to_s), stage.to)?);
        }
        from_s = to_s;
    }
    Ok(all)
}

fn one(result: &LoadResult, (from_s, to_s): (f64, f64), to: f64) -> Result<OfStage, DecodeError> {
    let since = |ns: u64| Seconds::from_nanos(ns.saturating_sub(result.started_ns)).get();
    let (mut length_s, mut times) = (0.0, Histogram::new());
    let (mut completed, mut failed) = (0, 0);
    for window in &result.windows {
        let (start_s, end_s) = (since(window.from_ns), since(window.to_ns));
        if !(from_s..to_s).contains(&f64::midpoint(start_s, end_s)) {
            continue;
        }
        length_s += end_s - start_s;
        for operation in window.operations.values() {
            let Operation { errors, response_time, .. } = operation;
            completed += operation.completed;
            failed += errors.values().sum::<u64>();
            times.add(&Histogram::decode(&response_time.0)?);
        }
    }
    let throughput_per_s = (length_s > 0.0).then(|| exact_f64(completed) / length_s);
    Ok(OfStage { from_s, to_s, to, completed, failed, throughput_per_s, times })
}

impl OfStage {
    fn quantile(&self, quantile: f64) -> Option<f64> {
        self.times.quantile(quantile).map(|ns| exact_f64(ns) / 1e9)
    }
}

/// A row a stage; an object a stage in JSON.
pub(super) fn table(all: &[OfStage], stages: &Stages) -> Table {
    let level = match stages.of {
        Level::Rate => "to (1/s)",
        Level::Clients => "to clients",
    };
    Table::of("stages", "Stages", all)
        .column("from_s", "from", TIME, |stage| stage.from_s)
        .column("to_s", "until", TIME, |stage| stage.to_s)
        .column("to", level, Unit::Level, |stage| stage.to)
        .column("completed", "completed", Unit::Count, |stage| stage.completed)
        .column("throughput_per_s", "throughput", Unit::Rate, |stage| stage.throughput_per_s)
        .column("response_time_mean_s", "mean", TIME, |stage| stage.times.mean().map(|ns| ns / 1e9))
        .column("response_time_p50_s", "median", TIME, |stage| stage.quantile(0.5))
        .column("response_time_p99_s", "99 %", TIME, |stage| stage.quantile(0.99))
        .column("failed", "errors", Unit::Count, |stage| stage.failed)
        .table()
}
