//! How sure one load is of its own figures: intervals from its windows, or why there is none.

use std::collections::BTreeMap;

use kendall_protocols::load_result::{LoadResult, Operation};
use kendall_report::document::{Level, Section, Table, Unit};
use kendall_stats::estimate::{Caveat, Estimate, Interval, percent};
use kendall_stats::histogram::{DecodeError, Histogram};
use kendall_stats::within_run::{RunWindow, WithinRun, within_run};
use kendall_units::{Seconds, exact_f64};
use serde_json::{Value, json};

use super::bars::TIME;

/// Percentiles that get an interval.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.95, 0.99, 0.999];

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

/// What `--format json` says under `intervals`: keys as those of the figures.
pub(super) fn json(run: &WithinRun) -> Value {
    let mut all = json!({ "confidence": run.confidence, "caveats": run.caveats });
    for Figure { key, value, enough_s, .. } in figures(run) {
        let caveats: Vec<String> = value.caveats.iter().map(ToString::to_string).collect();
        all[key] = match value.interval {
            Some(Interval { low, high, .. }) if caveats.is_empty() => {
                json!({ "low": low, "high": high })
            }
            Some(Interval { low, high, .. }) => {
                json!({ "low": low, "high": high, "caveats": caveats })
            }
            None => json!({ "refused": caveats, "enough_s": enough_s }),
        };
    }
    all
}

struct Figure<'a> {
    key: String,
    name: String,
    value: &'a Estimate,
    unit: Unit,
    /// How long the load would have to be, where there is no interval.
    enough_s: Option<f64>,
}

fn figures(run: &WithinRun) -> Vec<Figure<'_>> {
    let throughput = Figure {
        key: "throughput_per_s".to_owned(),
        name: "throughput".to_owned(),
        value: &run.throughput_per_s,
        unit: Unit::Rate,
        enough_s: enough_s(run, &run.throughput_per_s),
    };
    let mean = run.response_time_mean_s.as_ref().map(|value| Figure {
        key: "response_time_mean_s".to_owned(),
        name: "mean".to_owned(),
        value,
        unit: TIME,
        enough_s: enough_s(run, value),
    });
    // A percentile farther out needs no shorter load than those before it.
    let mut longest_s = 0.0_f64;
    let quantiles = run.response_time_quantiles_s.iter().map(|one| {
        let share = percent(one.quantile);
        let enough_s = enough_s(run, &one.value_s).map(|enough_s| enough_s.max(longest_s));
        longest_s = longest_s.max(enough_s.unwrap_or(0.0));
        Figure {
            key: format!("response_time_p{}_s", share.replace('.', "")),
            name: if share == "50" { "median".to_owned() } else { format!("{share} %") },
            value: &one.value_s,
            unit: TIME,
            enough_s,
        }
    });
    std::iter::once(throughput).chain(mean).chain(quantiles).collect()
}

/// How long the load would have to be. Its windows are seconds, even where all of it took less than one.
fn enough_s(run: &WithinRun, value: &Estimate) -> Option<f64> {
    let windows = value.caveats.iter().find_map(|caveat| match caveat {
        Caveat::TooFewWindows { need, .. } => Some(exact_f64(*need)),
        _ => None,
    });
    Some(run.enough_s(value)?.max(windows.unwrap_or(0.0)))
}

/// For people: a row a figure.
pub(super) fn document(document: &mut Section, run: &WithinRun) {
    if let Some(Caveat::TooFewWindows { windows, need }) = run.throughput_per_s.caveats.first() {
        // Whole seconds, or less than one.
        let short = run.length_s < 0.95;
        let length = if short { TIME.print(run.length_s) } else { format!("{windows} s") };
        let why =
            format!("no intervals: a load of {length} is too short for them, {need} s are enough");
        return document.note(Level::Doubt, why);
    }
    document.text("intervals of all requests of this load (others may differ more):");
    let interval = |figure: &Figure| match figure.value.interval {
        Some(Interval { low, high, .. }) => {
            format!("{} to {}", figure.unit.print(low), figure.unit.print(high))
        }
        None => refusal(figure),
    };
    let heading = format!("{} % interval", percent(run.confidence));
    let table = Table::of("intervals", "Intervals", figures(run))
        .column("figure", "figure", Unit::Text, |figure| figure.name.clone())
        .column("value", "value", Unit::Number, |figure| figure.unit.print(figure.value.center))
        .column("interval", heading, Unit::Text, interval);
    document.table(table.table());
    let given = figures(run).into_iter().filter(|figure| figure.value.interval.is_some());
    let of_figures = given.flat_map(|figure| figure.value.caveats.clone());
    for caveat in of_figures.chain(run.caveats.iter().cloned()) {
        document.note(Level::Doubt, caveat.to_string());
    }
}

/// Why there is no interval, in few words.
fn refusal(figure: &Figure) -> String {
    let why = figure.value.caveats.iter().find_map(|caveat| match caveat {
        Caveat::TooFewSamples { effective, need, .. } => {
            Some(format!("none: worth {effective:.0} independent requests, and it needs {need:.0}"))
        }
        Caveat::Autocorrelated { effective, .. } => {
            Some(format!("none: worth {effective:.0} independent requests, which are too few"))
        }
        Caveat::TooCorrelated { .. } => {
            Some("none: its requests depend on one another for too long".to_owned())
        }
        _ => None,
    });
    let why = why.unwrap_or_else(|| "none".to_owned());
    match figure.enough_s {
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
    let refused = |figure: &Figure| {
        let caveats = figure.value.caveats.iter().map(ToString::to_string);
        figure.value.interval.is_none().then(|| caveats.collect::<Vec<_>>().join("; "))
    };
    Table::of("intervals", "Intervals", figures(run))
        .column("figure", "", Unit::Text, |figure| figure.key.clone())
        .column("value", "", Unit::Number, |figure| figure.value.center)
        .column("low", "", Unit::Number, |figure| figure.value.interval.map(|i| i.low))
        .column("high", "", Unit::Number, |figure| figure.value.interval.map(|i| i.high))
        .column("confidence", "", Unit::Number, |figure| {
            figure.value.interval.map(|_| run.confidence)
        })
        .column("refused", "", Unit::Text, refused)
        .column("enough_s", "", Unit::Number, |figure| {
            figure.value.interval.is_none().then_some(figure.enough_s).flatten()
        })
        .table()
        .to_csv()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kendall_protocols::load_result::Window;
    use kendall_protocols::snapshot::EncodedHistogram;
    use kendall_stats::within_run::QuantileOfRun;

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
            let operations = [("get".to_owned(), operation)].into();
            Window { from_ns, to_ns, operations, ..Window::default() }
        });
        LoadResult { windows: windows.collect(), ..LoadResult::default() }
    }

    fn text(run: &WithinRun) -> String {
        let mut shown = Section::new("intervals", "");
        document(&mut shown, run);
        crate::text::document(&shown)
    }

    #[test]
    fn a_short_load_says_once_how_long_would_do() {
        let run = of(&load(3), &[]).unwrap().unwrap();
        let why = "caveat: no intervals: a load of 3 s is too short for them, 10 s are enough\n";
        assert_eq!(text(&run), why);
        let json = json(&run);
        assert_eq!(json["response_time_p99_s"]["enough_s"], 10.0, "{json}");
    }

    /// A load by number of requests (`-n 20`) may be over in milliseconds.
    #[test]
    fn a_load_of_less_than_a_second_needs_ten_seconds_too() {
        let mut few = load(1);
        few.windows[0].to_ns = 13_500_000;
        let run = of(&few, &[]).unwrap().unwrap();
        let why =
            "caveat: no intervals: a load of 13.5 ms is too short for them, 10 s are enough\n";
        assert_eq!(text(&run), why);
        let json = json(&run);
        assert_eq!(json["throughput_per_s"]["enough_s"], 10.0, "{json}");
        assert!(csv(&run).lines().skip(1).all(|row| row.ends_with(",10")), "{}", csv(&run));
    }

    #[test]
    fn a_percentile_farther_out_needs_no_shorter_load() {
        let of = |quantile, caveat| QuantileOfRun {
            quantile,
            value_s: Estimate::exact(0.01).doubt(caveat),
        };
        let run = WithinRun {
            confidence: 0.95,
            length_s: 12.0,
            throughput_per_s: Estimate::exact(22.0),
            response_time_mean_s: None,
            response_time_quantiles_s: vec![
                of(0.95, Caveat::TooCorrelated { batches: 1, need: 10 }),
                of(0.99, Caveat::TooFewSamples { quantile: 0.99, effective: 260.0, need: 495.0 }),
            ],
            caveats: Vec::new(),
        };
        let json = json(&run);
        assert_eq!(json["response_time_p95_s"]["enough_s"], 120.0, "{json}");
        assert_eq!(json["response_time_p99_s"]["enough_s"], 120.0, "{json}");
    }

    #[test]
    fn each_figure_has_its_interval_or_its_reason_in_every_format() {
        let run = of(&load(12), &[]).unwrap().unwrap();
        let json = json(&run);
        assert!(json["response_time_mean_s"]["low"].as_f64().unwrap() > 0.001, "{json}");
        // 2,400 requests hold 2.4 beyond the 99.9th percentile.
        assert!(json["response_time_p999_s"]["refused"][0].is_string(), "{json}");
        assert!(json["response_time_p999_s"]["enough_s"].as_f64().unwrap() > 20.0, "{json}");
        let (text, table) = (text(&run), csv(&run));
        assert!(text.contains("99.9 %") && text.contains("try "), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains(" to ")).count(), 6, "{text}");
        assert_eq!(table.lines().count(), 8, "{table}");
        assert!(table.contains("\nresponse_time_mean_s,0.0"), "{table}");
    }
}
