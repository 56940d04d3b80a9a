//! How sure one load is of its own figures: intervals from its windows, or why there is none.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kendall_protocols::load_result::{LoadResult, Operation};
use kendall_stats::estimate::{Caveat, Estimate, percent};
use kendall_stats::histogram::{DecodeError, Histogram};
use kendall_stats::within_run::{RunWindow, WithinRun, within_run};
use kendall_units::{Rate, Seconds, exact_f64};

use super::drawn::three_digits;
use crate::paint::Paint;

/// Percentiles that get an interval.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.95, 0.99, 0.999];

/// Confidence of all of them.
const CONFIDENCE: f64 = 0.95;

/// All operations of a load together, with these further quantiles; `None` where it has no window.
pub(super) fn of(result: &LoadResult, more: &[f64]) -> Result<Option<WithinRun>, DecodeError> {
    let windows: Result<Vec<RunWindow>, DecodeError> = result
        .windows
        .iter()
        .filter(|window| window.to_ns > window.from_ns)
        .map(|window| {
            let length_s = Seconds::from_nanos(window.to_ns - window.from_ns).get();
            Ok(RunWindow { length_s, response_time: times(&window.operations)? })
        })
        .collect();
    let mut quantiles = QUANTILES.to_vec();
    quantiles.extend(more.iter().filter(|quantile| !QUANTILES.contains(quantile)));
    quantiles.sort_by(f64::total_cmp);
    Ok(within_run(&windows?, &times(&result.drained)?, &quantiles, CONFIDENCE).ok())
}

fn times(operations: &BTreeMap<String, Operation>) -> Result<Histogram, DecodeError> {
    let mut all = Histogram::new();
    for operation in operations.values() {
        all.add(&Histogram::decode(&operation.response_time.0)?);
    }
    Ok(all)
}

/// One figure in the JSON and the CSV: its interval, or why there is none.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub(super) enum Printed {
    Interval {
        low: f64,
        high: f64,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        caveats: Vec<String>,
    },
    Refused {
        refused: Vec<String>,
        enough_s: Option<f64>,
    },
}

/// What `--format json` says under `intervals`: keys as those of the figures.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(super) struct Intervals {
    confidence: f64,
    #[serde(flatten)]
    of: BTreeMap<String, Printed>,
    caveats: Vec<Caveat>,
}

impl Intervals {
    pub(super) fn new(run: &WithinRun) -> Self {
        let of = figures(run).into_iter().map(|figure| (figure.key, printed(run, figure.value)));
        Self { confidence: run.confidence, of: of.collect(), caveats: run.caveats.clone() }
    }
}

struct Figure<'a> {
    key: String,
    name: String,
    value: &'a Estimate,
    is_time: bool,
}

fn figures(run: &WithinRun) -> Vec<Figure<'_>> {
    let throughput = Figure {
        key: "throughput_per_s".to_owned(),
        name: "throughput".to_owned(),
        value: &run.throughput_per_s,
        is_time: false,
    };
    let mean = run.response_time_mean_s.as_ref().map(|value| Figure {
        key: "response_time_mean_s".to_owned(),
        name: "mean".to_owned(),
        value,
        is_time: true,
    });
    let quantiles = run.response_time_quantiles_s.iter().map(|one| {
        let share = percent(one.quantile);
        Figure {
            key: format!("response_time_p{}_s", share.replace('.', "")),
            name: if share == "50" { "median".to_owned() } else { format!("{share} %") },
            value: &one.value_s,
            is_time: true,
        }
    });
    std::iter::once(throughput).chain(mean).chain(quantiles).collect()
}

fn printed(run: &WithinRun, value: &Estimate) -> Printed {
    match value.interval {
        Some(interval) => Printed::Interval {
            low: interval.low,
            high: interval.high,
            caveats: value.caveats.iter().map(ToString::to_string).collect(),
        },
        None => Printed::Refused {
            refused: value.caveats.iter().map(ToString::to_string).collect(),
            enough_s: enough_s(run, value),
        },
    }
}

/// How long the load would have to be. Its windows are seconds, even where all of it took less than one.
fn enough_s(run: &WithinRun, value: &Estimate) -> Option<f64> {
    let windows = value.caveats.iter().find_map(|caveat| match caveat {
        Caveat::TooFewWindows { need, .. } => Some(exact_f64(*need)),
        _ => None,
    });
    Some(run.enough_s(value)?.max(windows.unwrap_or(0.0)))
}

/// How long the load was: whole seconds, or less than one.
fn seconds_of(run: &WithinRun, windows: u64) -> String {
    if run.length_s < 0.95 { three_digits(1e9 * run.length_s) } else { format!("{windows} s") }
}

/// For people: a line a figure.
pub(super) fn human(run: &WithinRun, paint: Paint) -> String {
    let mut text = String::new();
    if let Some(Caveat::TooFewWindows { windows, need }) = run.throughput_per_s.caveats.first() {
        let length = seconds_of(run, *windows);
        let why =
            format!("no intervals: a load of {length} is too short for them, {need} s are enough");
        return paint.doubt(&why);
    }
    let share = percent(run.confidence);
    let head =
        format!("{share} % intervals, of all requests of this load (others may differ more):");
    writeln!(text, "{}", paint.head(&head)).unwrap_or_default();
    for figure in figures(run) {
        let shown = |value: f64| {
            if figure.is_time {
                three_digits(1e9 * value)
            } else {
                Rate::per_second(value).to_string()
            }
        };
        let end = match figure.value.interval {
            Some(interval) => format!("{} to {}", shown(interval.low), shown(interval.high)),
            None => paint.doubt(&refusal(run, figure.value)),
        };
        writeln!(text, "{:>12} {:>11}  {end}", figure.name, shown(figure.value.center))
            .unwrap_or_default();
    }
    let given = figures(run).into_iter().filter(|figure| figure.value.interval.is_some());
    let of_figures = given.flat_map(|figure| figure.value.caveats.clone());
    for caveat in of_figures.chain(run.caveats.iter().cloned()) {
        writeln!(text, "{}", paint.doubt(&format!("caveat: {caveat}"))).unwrap_or_default();
    }
    text.trim_end().to_owned()
}

/// Why there is no interval, in few words.
fn refusal(run: &WithinRun, value: &Estimate) -> String {
    let why = value.caveats.iter().find_map(|caveat| match caveat {
        Caveat::TooFewSamples { effective, need, .. } => {
            Some(format!("none: worth {effective:.0} independent requests, and it needs {need:.0}"))
        }
        Caveat::TooCorrelated { .. } => {
            Some("none: its requests depend on one another for too long".to_owned())
        }
        _ => None,
    });
    let why = why.unwrap_or_else(|| "none".to_owned());
    match enough_s(run, value) {
        Some(enough) => format!("{why}; try {}", length(enough)),
        None => why,
    }
}

/// A length of time that can be typed.
fn length(seconds: f64) -> String {
    if seconds < 300.0 {
        format!("{seconds:.0}s")
    } else {
        format!("{:.0}min", (seconds / 60.0).ceil())
    }
}

/// A row a figure: `figure,value,low,high,confidence,refused,enough_s`.
pub(super) fn csv(run: &WithinRun) -> String {
    let head = ["figure", "value", "low", "high", "confidence", "refused", "enough_s"];
    let rows = figures(run).into_iter().map(|figure| {
        let mut cells = vec![figure.key, figure.value.center.to_string()];
        match printed(run, figure.value) {
            Printed::Interval { low, high, .. } => {
                cells.extend([low, high, run.confidence].map(|value| value.to_string()));
                cells.extend([String::new(), String::new()]);
            }
            Printed::Refused { refused, enough_s } => {
                let enough = enough_s.map(|enough| enough.to_string()).unwrap_or_default();
                cells.extend([String::new(), String::new(), String::new()]);
                cells.extend([refused.join("; "), enough]);
            }
        }
        cells
    });
    crate::csv::written(std::iter::once(head.map(str::to_owned).to_vec()).chain(rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kendall_protocols::load_result::Window;
    use kendall_protocols::snapshot::EncodedHistogram;

    fn load(seconds: u64) -> LoadResult {
        let windows = (0..seconds).map(|second| {
            let mut times = Histogram::new();
            for request in 0..200_u64 {
                // As good as random, so that windows do not resemble each other.
                let mixed = (second * 200 + request + 11).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                times.record(1_000_000 + 1_000 * ((mixed >> 40) % 400));
            }
            let response_time = EncodedHistogram(times.encode());
            let operation = Operation { completed: 200, response_time, ..Operation::default() };
            let (from_ns, to_ns) = (second * 1_000_000_000, (second + 1) * 1_000_000_000);
            Window { from_ns, to_ns, operations: [("get".to_owned(), operation)].into() }
        });
        LoadResult { windows: windows.collect(), ..LoadResult::default() }
    }

    #[test]
    fn a_short_load_says_once_how_long_would_do() {
        let run = of(&load(3), &[]).unwrap().unwrap();
        let text = human(&run, Paint::of_nothing());
        assert_eq!(text, "no intervals: a load of 3 s is too short for them, 10 s are enough");
        let json = serde_json::to_value(Intervals::new(&run)).unwrap();
        assert_eq!(json["response_time_p99_s"]["enough_s"], 10.0, "{json}");
    }

    /// A load by number of requests (`-n 20`) may be over in milliseconds.
    #[test]
    fn a_load_of_less_than_a_second_needs_ten_seconds_too() {
        let mut few = load(1);
        few.windows[0].to_ns = 13_500_000;
        let run = of(&few, &[]).unwrap().unwrap();
        let text = human(&run, Paint::of_nothing());
        assert_eq!(text, "no intervals: a load of 13.5 ms is too short for them, 10 s are enough");
        let json = serde_json::to_value(Intervals::new(&run)).unwrap();
        assert_eq!(json["throughput_per_s"]["enough_s"], 10.0, "{json}");
        assert!(csv(&run).lines().skip(1).all(|row| row.ends_with(",10")), "{}", csv(&run));
    }

    #[test]
    fn each_figure_has_its_interval_or_its_reason_in_every_format() {
        let run = of(&load(12), &[]).unwrap().unwrap();
        let json = serde_json::to_value(Intervals::new(&run)).unwrap();
        assert!(json["response_time_mean_s"]["low"].as_f64().unwrap() > 0.001, "{json}");
        // 2,400 requests hold 2.4 beyond the 99.9th percentile.
        assert!(json["response_time_p999_s"]["refused"][0].is_string(), "{json}");
        assert!(json["response_time_p999_s"]["enough_s"].as_f64().unwrap() > 20.0, "{json}");
        let (text, table) = (human(&run, Paint::of_nothing()), csv(&run));
        assert!(text.contains("99.9 %") && text.contains("try "), "{text}");
        assert_eq!(text.lines().count(), 8, "{text}");
        assert_eq!(table.lines().count(), 8, "{table}");
        assert!(table.contains("\nresponse_time_mean_s,0.0"), "{table}");
    }
}
