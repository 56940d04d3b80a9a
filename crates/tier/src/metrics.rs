//! The Prometheus text of a tier: standard names, base units.

use std::fmt::{self, Write as _};

use kendall_protocols::snapshot::LevelSnapshot;
use kendall_stats::histogram::Histogram;
use kendall_units::exact_f64;

use crate::instruments::Totals;
use crate::process;

/// Upper bounds of the histogram's buckets, in nanoseconds and as Prometheus writes seconds.
const BOUNDS: [(u64, &str); 18] = [
    (25_000, "2.5e-05"),
    (50_000, "5e-05"),
    (100_000, "0.0001"),
    (250_000, "0.00025"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5"),
    (10_000_000_000, "10"),
];

/// The page `GET /metrics`.
pub(crate) fn text(totals: &Totals) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    write_all(&mut text, totals).unwrap_or_default();
    text
}

fn write_all(out: &mut String, totals: &Totals) -> fmt::Result {
    let tier = label("tier", totals.tier);
    family(out, "kendall_tier_info", "gauge", "Kind of tier.")?;
    writeln!(out, "kendall_tier_info{{{tier}}} 1")?;
    requests(out, totals)?;
    backends(out, totals)?;
    named(out, "outcomes", "outcome", "Hits, misses and errors by kind.", &totals.outcomes)?;
    named(out, "limit_hits", "limit", "How often each bound was hit.", &totals.limits)?;
    counter(out, "kendall_client_received_bytes_total", "Read from clients.", totals.bytes_in)?;
    counter(out, "kendall_client_sent_bytes_total", "Written to clients.", totals.bytes_out)?;
    gauge(out, "kendall_workers", "Workers; 0 without a worker limit.", totals.workers.into())?;
    level(out, "queue_length", "Requests that wait for a worker.", &totals.queue_length)?;
    level(out, "workers_busy", "Workers that serve a request.", &totals.workers_busy)?;
    held(out, totals)?;
    level(out, "connections", "Client connections that are open.", &totals.connections)?;
    process_metrics(out)
}

fn requests(out: &mut String, totals: &Totals) -> fmt::Result {
    family(out, "kendall_request_arrivals_total", "counter", "Requests read.")?;
    for (name, request) in &totals.requests {
        let name = label("type", name);
        writeln!(out, "kendall_request_arrivals_total{{{name}}} {}", request.arrivals)?;
    }
    family(out, "kendall_request_completions_total", "counter", "Requests answered.")?;
    for (name, request) in &totals.requests {
        let name = label("type", name);
        writeln!(out, "kendall_request_completions_total{{{name}}} {}", request.completions)?;
    }
    family(out, "kendall_request_stage_seconds", "histogram", "Time of requests in each stage.")?;
    for (name, request) in &totals.requests {
        for (stage, histogram) in &request.stages {
            let labels = format!("{},{}", label("type", name), label("stage", stage));
            buckets(out, "kendall_request_stage_seconds", &labels, histogram)?;
        }
    }
    Ok(())
}

fn backends(out: &mut String, totals: &Totals) -> fmt::Result {
    let counts = [
        ("requests", "Requests sent to each backend."),
        ("keys", "Keys sent to each backend."),
        ("errors", "Requests that a backend failed."),
    ];
    for (index, (name, help)) in counts.into_iter().enumerate() {
        family(out, &format!("kendall_backend_{name}_total"), "counter", help)?;
        for backend in &totals.backends {
            let count = [backend.requests, backend.keys, backend.errors][index];
            let address = label("backend", &backend.address);
            writeln!(out, "kendall_backend_{name}_total{{{address}}} {count}")?;
        }
    }
    let help = "Time until a backend answered.";
    family(out, "kendall_backend_response_seconds", "histogram", help)?;
    for backend in &totals.backends {
        let labels = label("backend", &backend.address);
        buckets(out, "kendall_backend_response_seconds", &labels, &backend.backend_time)?;
    }
    Ok(())
}

/// Only where a worker serves several requests at once.
fn held(out: &mut String, totals: &Totals) -> fmt::Result {
    if totals.held_time.count() == 0 {
        return Ok(());
    }
    let help = "How long workers were held for a batch of requests.";
    family(out, "kendall_worker_held_seconds", "histogram", help)?;
    let tier = label("tier", totals.tier);
    buckets(out, "kendall_worker_held_seconds", &tier, &totals.held_time)
}

fn named(
    out: &mut String,
    name: &str,
    key: &str,
    help: &str,
    counts: &[(&'static str, u64)],
) -> fmt::Result {
    family(out, &format!("kendall_{name}_total"), "counter", help)?;
    for (value, count) in counts {
        writeln!(out, "kendall_{name}_total{{{}}} {count}", label(key, value))?;
    }
    Ok(())
}

fn level(out: &mut String, name: &str, help: &str, level: &LevelSnapshot) -> fmt::Result {
    gauge(out, &format!("kendall_{name}"), help, level.current)?;
    let recent = "Its maximum since the previous whole second began.";
    gauge(out, &format!("kendall_{name}_recent_maximum"), recent, level.recent_maximum)?;
    gauge(out, &format!("kendall_{name}_maximum"), "Its maximum ever.", level.maximum)?;
    let area = format!("kendall_{name}_seconds_total");
    family(out, &area, "counter", "Its integral over time: the rate of this is the mean level.")?;
    writeln!(out, "{area} {}", exact_f64(level.integral_ns) / 1e9)
}

fn process_metrics(out: &mut String) -> fmt::Result {
    let usage = process::usage();
    let cpu = exact_f64(usage.cpu_user_ns + usage.cpu_system_ns) / 1e9;
    family(out, "process_cpu_seconds_total", "counter", "CPU time, user and system.")?;
    writeln!(out, "process_cpu_seconds_total {cpu}")?;
    family(out, "kendall_process_cpu_seconds_total", "counter", "CPU time by mode.")?;
    for (mode, time) in [("user", usage.cpu_user_ns), ("system", usage.cpu_system_ns)] {
        let time = exact_f64(time) / 1e9;
        writeln!(out, "kendall_process_cpu_seconds_total{{mode=\"{mode}\"}} {time}")?;
    }
    gauge(out, "process_resident_memory_bytes", "Resident memory.", usage.resident_bytes)?;
    gauge(out, "process_virtual_memory_bytes", "Virtual memory.", usage.virtual_bytes)?;
    gauge(out, "process_open_fds", "Open file descriptors.", usage.open_fds)?;
    family(out, "process_max_fds", "gauge", "Most file descriptors allowed.")?;
    writeln!(out, "process_max_fds {}", usage.max_fds)?;
    gauge(out, "process_threads", "Threads.", usage.threads)
}

fn family(out: &mut String, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

fn counter(out: &mut String, name: &str, help: &str, count: u64) -> fmt::Result {
    family(out, name, "counter", help)?;
    writeln!(out, "{name} {count}")
}

fn gauge(out: &mut String, name: &str, help: &str, value: u64) -> fmt::Result {
    family(out, name, "gauge", help)?;
    writeln!(out, "{name} {value}")
}

fn label(key: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{key}=\"{value}\"")
}

/// One histogram. A cell that reaches over a bound counts above it, so a bucket never claims
/// more than it holds.
/// The value that stands for all in a cell.
fn middle(cell: &(u64, u64, u64)) -> u64 {
    cell.0 + (cell.1 - cell.0).div_ceil(2)
}

fn buckets(out: &mut String, name: &str, labels: &str, histogram: &Histogram) -> fmt::Result {
    let cells: Vec<(u64, u64, u64)> = histogram.cells().collect();
    let mut cumulative = 0;
    let mut rest = cells.iter().peekable();
    for (bound, text) in BOUNDS {
        while let Some(cell) = rest.next_if(|cell| cell.1 <= bound) {
            cumulative += cell.2;
        }
        writeln!(out, "{name}_bucket{{{labels},le=\"{text}\"}} {cumulative}")?;
    }
    let count = histogram.count();
    // In whole nanoseconds: a sum that falls by a rounding is taken for a counter that began anew.
    let sum_ns: u128 = cells.iter().map(|cell| u128::from(middle(cell)) * u128::from(cell.2)).sum();
    let sum = format!("{}.{:09}", sum_ns / 1_000_000_000, sum_ns % 1_000_000_000);
    writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}")?;
    writeln!(out, "{name}_sum{{{labels}}} {sum}")?;
    writeln!(out, "{name}_count{{{labels}}} {count}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(histogram: &Histogram) -> f64 {
        let mut out = String::new();
        buckets(&mut out, "x", "", histogram).unwrap();
        let line = out.lines().find(|line| line.starts_with("x_sum")).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// As mean times count it fell by a rounding in one of three readings, which Prometheus takes for a
    /// restart: rates of it were hundreds of times too high.
    #[test]
    fn the_sum_of_a_histogram_never_falls() {
        let mut histogram = Histogram::new();
        for value in 1..=400_u64 {
            histogram.record(value * 1_234_567);
        }
        let mut before = sum(&histogram);
        assert!((before / (histogram.mean().unwrap() * 400.0 / 1e9) - 1.0).abs() < 1e-12);
        for _ in 0..2_000 {
            histogram.record(0);
            let now = sum(&histogram);
            assert!(now >= before, "{now} after {before}");
            before = now;
        }
    }
}
