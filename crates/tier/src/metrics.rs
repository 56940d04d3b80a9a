//! The Prometheus text of a tier: standard names, base units.

use kendall_protocols::snapshot::LevelSnapshot;
use kendall_stats::histogram::Histogram;
use kendall_units::exact_f64;

use crate::exposition::{Exposition, Labels, Metric};
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
    let mut page = Exposition::default();
    page.metric("kendall_tier_info", "gauge", "Kind of tier.").sample(&[("tier", totals.tier)], 1);
    requests(&mut page, totals);
    backends(&mut page, totals);
    named(&mut page, "outcomes", "outcome", "Hits, misses and errors by kind.", &totals.outcomes);
    named(&mut page, "limit_hits", "limit", "How often each bound was hit.", &totals.limits);
    let mut bytes = |way, help, count| {
        let name = format!("kendall_client_{way}_bytes_total");
        page.metric(&name, "counter", help).sample(&[], count);
    };
    bytes("received", "Read from clients.", totals.bytes_in);
    bytes("sent", "Written to clients.", totals.bytes_out);
    gauge(
        &mut page,
        "kendall_workers",
        "Workers; 0 without a worker limit.",
        totals.workers.into(),
    );
    level(&mut page, "queue_length", "Requests that wait for a worker.", &totals.queue_length);
    level(&mut page, "workers_busy", "Workers that serve a request.", &totals.workers_busy);
    // Only where a worker serves several requests at once.
    if totals.held_time.count() > 0 {
        let help = "How long workers were held for a batch of requests.";
        let mut held = page.metric("kendall_worker_held_seconds", "histogram", help);
        buckets(&mut held, &[("tier", totals.tier)], &totals.held_time);
    }
    level(&mut page, "connections", "Client connections that are open.", &totals.connections);
    process_metrics(&mut page);
    page.into_text()
}

fn requests(page: &mut Exposition, totals: &Totals) {
    let mut metric = page.metric("kendall_request_arrivals_total", "counter", "Requests read.");
    for (name, request) in &totals.requests {
        metric.sample(&[("type", name)], request.arrivals);
    }
    let mut metric =
        page.metric("kendall_request_completions_total", "counter", "Requests answered.");
    for (name, request) in &totals.requests {
        metric.sample(&[("type", name)], request.completions);
    }
    let help = "Time of requests in each stage.";
    let mut metric = page.metric("kendall_request_stage_seconds", "histogram", help);
    for (name, request) in &totals.requests {
        for (stage, histogram) in &request.stages {
            buckets(&mut metric, &[("type", name), ("stage", stage)], histogram);
        }
    }
}

fn backends(page: &mut Exposition, totals: &Totals) {
    let counts = [
        ("requests", "Requests sent to each backend."),
        ("keys", "Keys sent to each backend."),
        ("errors", "Requests that a backend failed."),
    ];
    for (index, (name, help)) in counts.into_iter().enumerate() {
        let name = format!("kendall_backend_{name}_total");
        let mut metric = page.metric(&name, "counter", help);
        for backend in &totals.backends {
            let count = [backend.requests, backend.keys, backend.errors][index];
            metric.sample(&[("backend", &backend.address)], count);
        }
    }
    let help = "Time until a backend answered.";
    let mut metric = page.metric("kendall_backend_response_seconds", "histogram", help);
    for backend in &totals.backends {
        buckets(&mut metric, &[("backend", &backend.address)], &backend.backend_time);
    }
}

fn named(page: &mut Exposition, name: &str, key: &str, help: &str, counts: &[(&'static str, u64)]) {
    let name = format!("kendall_{name}_total");
    let mut metric = page.metric(&name, "counter", help);
    for (value, count) in counts {
        metric.sample(&[(key, value)], count);
    }
}

fn level(page: &mut Exposition, name: &str, help: &str, level: &LevelSnapshot) {
    gauge(page, &format!("kendall_{name}"), help, level.current);
    let recent = "Its maximum since the previous whole second began.";
    gauge(page, &format!("kendall_{name}_recent_maximum"), recent, level.recent_maximum);
    gauge(page, &format!("kendall_{name}_maximum"), "Its maximum ever.", level.maximum);
    let area = format!("kendall_{name}_seconds_total");
    page.metric(&area, "counter", "Its integral over time: the rate of this is the mean level.")
        .sample(&[], exact_f64(level.integral_ns) / 1e9);
}

fn process_metrics(page: &mut Exposition) {
    let usage = process::usage();
    let cpu = exact_f64(usage.cpu_user_ns + usage.cpu_system_ns) / 1e9;
    let help = "CPU time, user and system.";
    page.metric("process_cpu_seconds_total", "counter", help).sample(&[], cpu);
    let mut by_mode =
        page.metric("kendall_process_cpu_seconds_total", "counter", "CPU time by mode.");
    by_mode.sample(&[("mode", "user")], exact_f64(usage.cpu_user_ns) / 1e9);
    by_mode.sample(&[("mode", "system")], exact_f64(usage.cpu_system_ns) / 1e9);
    gauge(page, "process_resident_memory_bytes", "Resident memory.", usage.resident_bytes);
    gauge(page, "process_virtual_memory_bytes", "Virtual memory.", usage.virtual_bytes);
    gauge(page, "process_open_fds", "Open file descriptors.", usage.open_fds);
    let help = "Most file descriptors allowed.";
    page.metric("process_max_fds", "gauge", help).sample(&[], usage.max_fds);
    gauge(page, "process_threads", "Threads.", usage.threads);
}

fn gauge(page: &mut Exposition, name: &str, help: &str, value: u64) {
    page.metric(name, "gauge", help).sample(&[], value);
}

/// The value that stands for all in a cell.
fn middle(cell: &(u64, u64, u64)) -> u64 {
    cell.0 + (cell.1 - cell.0).div_ceil(2)
}

/// One histogram. A cell that reaches over a bound counts above it, so a bucket never claims
/// more than it holds.
fn buckets(metric: &mut Metric<'_>, labels: Labels<'_>, histogram: &Histogram) {
    let cells: Vec<(u64, u64, u64)> = histogram.cells().collect();
    let mut cumulative = 0;
    let mut rest = cells.iter().peekable();
    let at_most = BOUNDS.map(|(bound, text)| {
        while let Some(cell) = rest.next_if(|cell| cell.1 <= bound) {
            cumulative += cell.2;
        }
        (text.to_owned(), cumulative)
    });
    // In whole nanoseconds: a sum that falls by a rounding is taken for a counter that began anew.
    let sum_ns: u128 = cells.iter().map(|cell| u128::from(middle(cell)) * u128::from(cell.2)).sum();
    let sum = format!("{}.{:09}", sum_ns / 1_000_000_000, sum_ns % 1_000_000_000);
    metric.histogram(labels, at_most, sum, histogram.count());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(histogram: &Histogram) -> f64 {
        let mut page = Exposition::default();
        buckets(&mut page.metric("x", "histogram", ""), &[], histogram);
        let out = page.into_text();
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
