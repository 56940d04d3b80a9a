//! What a load of stages did in each of them.

use kendall_loadgen::stages::{Level, Stages};
use kendall_protocols::load_result::{LoadResult, Operation};
use kendall_stats::histogram::{DecodeError, Histogram};
use kendall_units::{Rate, Seconds, exact_f64};

use super::drawn::three_digits;
use super::human;

/// One stage: of its whole seconds, by the second in whose middle they are.
#[derive(Debug, serde::Serialize)]
pub(super) struct OfStage {
    from_s: f64,
    to_s: f64,
    /// Clients, or arrivals a second, at its end.
    to: f64,
    completed: u64,
    failed: u64,
    throughput_per_s: Option<f64>,
    response_time_mean_s: Option<f64>,
    response_time_p50_s: Option<f64>,
    response_time_p99_s: Option<f64>,
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
    let at = |quantile| times.quantile(quantile).map(|ns| exact_f64(ns) / 1e9);
    Ok(OfStage {
        from_s,
        to_s,
        to,
        completed,
        failed,
        throughput_per_s: (length_s > 0.0).then(|| exact_f64(completed) / length_s),
        response_time_mean_s: times.mean().map(|ns| ns / 1e9),
        response_time_p50_s: at(0.5),
        response_time_p99_s: at(0.99),
    })
}

/// For people: a row a stage.
pub(super) fn human(all: &[OfStage], stages: &Stages, columns: usize) -> String {
    let unit = match stages.of {
        Level::Rate => "/s",
        Level::Clients => " clients",
    };
    let time = |seconds: Option<f64>| {
        seconds.map_or_else(|| "–".to_owned(), |seconds| three_digits(1e9 * seconds))
    };
    let header = ["stage", "to", "completed", "throughput", "mean", "median", "99 %", "errors"];
    let row = |stage: &OfStage| {
        let throughput = stage.throughput_per_s.map(|rate| Rate::per_second(rate).to_string());
        vec![
            format!("{} to {}", Seconds::new(stage.from_s), Seconds::new(stage.to_s)),
            format!("{}{unit}", stage.to),
            stage.completed.to_string(),
            throughput.unwrap_or_else(|| "–".to_owned()),
            time(stage.response_time_mean_s),
            time(stage.response_time_p50_s),
            time(stage.response_time_p99_s),
            stage.failed.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    human::figures(&header.map(str::to_owned), &rows, columns)
}
