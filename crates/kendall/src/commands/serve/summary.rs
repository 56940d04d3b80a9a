//! The summary of a tier at its stop, for people.

use kendall_protocols::snapshot::{EncodedHistogram, TierSnapshot, stage};
use kendall_report::document::{Section, Table, Unit};
use kendall_stats::histogram::Histogram;
use kendall_units::{Seconds, counted, exact_f64};

/// Steps of the printed histogram.
const STEP_NS: u64 = 100_000;
const TIME: Unit = Unit::Time(4);
/// Columns of the longest bar.
const BAR: u64 = 40;

/// What the tier did from its start to `snapshot`, with the histogram of its response times where that is asked for.
pub(crate) fn document(snapshot: &TierSnapshot, in_steps: bool) -> anyhow::Result<Section> {
    let seconds = exact_f64(snapshot.at_ns.saturating_sub(snapshot.started_ns)) / 1e9;
    let title = format!("{}, {} s", snapshot.tier, Seconds::new(seconds).get().round());
    let mut document = Section::new("summary", title);
    document.table(requests(snapshot, seconds)?);
    document.table(levels(snapshot));
    document.table(backends(snapshot)?);
    document.text(counts(snapshot));
    let mut times = Histogram::new();
    for request in snapshot.requests.values() {
        if let Some(encoded) = request.stages.get(stage::RESPONSE_TIME) {
            times.add(&decode(encoded)?);
        }
    }
    document.text(response_times(&times));
    if in_steps {
        document.text(histogram(&times).trim_end());
    }
    Ok(document)
}

fn requests(snapshot: &TierSnapshot, seconds: f64) -> anyhow::Result<Table> {
    const STAGES: [&str; 4] =
        [stage::WAITING_TIME, stage::SERVICE_TIME, stage::BACKEND_TIME, stage::RESPONSE_TIME];
    let mut rows = Vec::new();
    for (name, request) in snapshot.requests.iter().filter(|(_, r)| r.arrivals > 0) {
        let times =
            STAGES.map(|stage| request.stages.get(stage).map_or(Ok(Histogram::new()), decode));
        let [waiting, service, backend, response] = times;
        rows.push((name, request.completions, [waiting?, service?, backend?, response?]));
    }
    let mut table = Table::of("requests", "Requests", rows)
        .column("request", "request", Unit::Text, |(name, ..)| name.as_str())
        .column("completed", "completed", Unit::Count, |(_, completions, _)| *completions)
        .column("throughput_per_s", "throughput", Unit::Rate, |(_, completions, _)| {
            exact_f64(*completions) / seconds
        });
    for (at, name) in ["waiting", "service", "backend", "response"].into_iter().enumerate() {
        table = table.column(format!("{name}_s"), name, TIME, move |(.., times)| mean(&times[at]));
    }
    for (name, quantile) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
        table = table.column(format!("{name}_s"), name, TIME, move |(.., times)| {
            times[3].quantile(quantile).map(|ns| exact_f64(ns) / 1e9)
        });
    }
    Ok(table.table())
}

fn levels(snapshot: &TierSnapshot) -> Table {
    let elapsed = exact_f64(snapshot.at_ns.saturating_sub(snapshot.started_ns).max(1));
    let levels = [
        ("queue length", &snapshot.queue_length),
        ("workers busy", &snapshot.workers_busy),
        ("connections", &snapshot.connections),
    ];
    Table::of("levels", "Levels", levels)
        .column("level", "level", Unit::Text, |(name, _)| *name)
        .column("mean", "mean", Unit::Number, |(_, level)| {
            format!("{:.2}", exact_f64(level.integral_ns.min(1 << 53)) / elapsed)
        })
        .column("maximum", "maximum", Unit::Count, |(_, level)| level.maximum)
        .table()
}

fn backends(snapshot: &TierSnapshot) -> anyhow::Result<Table> {
    let mut rows = Vec::new();
    for backend in &snapshot.backends {
        rows.push((backend, decode(&backend.backend_time)?));
    }
    Ok(Table::of("backends", "Backends", rows)
        .column("backend", "backend", Unit::Text, |(backend, _)| backend.address.as_str())
        .column("requests", "requests", Unit::Count, |(backend, _)| backend.requests)
        .column("keys", "keys", Unit::Count, |(backend, _)| backend.keys)
        .column("errors", "errors", Unit::Count, |(backend, _)| backend.errors)
        .column("mean_s", "mean time", TIME, |(_, times)| mean(times))
        .column("p99_s", "p99", TIME, |(_, times)| {
            times.quantile(0.99).map(|ns| exact_f64(ns) / 1e9)
        })
        .table())
}

fn counts(snapshot: &TierSnapshot) -> String {
    let mut parts: Vec<String> = snapshot
        .outcomes
        .iter()
        .chain(&snapshot.limits_hit)
        .filter(|(_, count)| **count > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    parts.push(format!("bytes in {}", snapshot.bytes_in));
    parts.push(format!("bytes out {}", snapshot.bytes_out));
    let cpu = |ns| Seconds::from_nanos(ns).to_string();
    parts.push(format!("CPU user {}", cpu(snapshot.cpu_user_ns)));
    parts.push(format!("CPU system {}", cpu(snapshot.cpu_system_ns)));
    parts.join(" · ")
}

/// All response times in a line.
fn response_times(all: &Histogram) -> String {
    let Some(mean) = mean(all) else { return String::new() };
    let [p50, p90, p99, max] = [0.5, 0.9, 0.99, 1.0]
        .map(|quantile| Seconds::from_nanos(all.quantile(quantile).unwrap_or(0)));
    format!(
        "response time of {}: mean {}, p50 {p50}, p90 {p90}, p99 {p99}, max {max}",
        counted(all.count(), "request"),
        Seconds::new(mean)
    )
}

/// All response times in steps of 0.1 ms, however long. Steps without requests are left out, and a line
/// says so.
fn histogram(all: &Histogram) -> String {
    let rows = all.steps(STEP_NS);
    let Some(most) = rows.iter().map(|row| row.count).max() else { return String::new() };
    let mut text = "response time, steps of 0.1 ms\n".to_owned();
    let mut next_ns = None;
    for row in &rows {
        // A cell of the histogram is a thousandth of its time wide: beyond 0.1 s, wider than a step.
        if next_ns.is_some_and(|next| row.from_ns > next + row.from_ns / 1_000) {
            text.push_str("      …\n");
        }
        next_ns = Some(row.to_ns);
        let bar = "#".repeat(usize::try_from(row.count * BAR / most).unwrap_or(0));
        let from = Seconds::from_nanos(row.from_ns).get() * 1e3;
        text.push_str(&format!("{from:7.1} ms {:>10} {bar}\n", row.count));
    }
    text
}

fn decode(encoded: &EncodedHistogram) -> anyhow::Result<Histogram> {
    Ok(Histogram::decode(&encoded.0)?)
}

fn mean(histogram: &Histogram) -> Option<f64> {
    histogram.mean().map(|ns| ns / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Under load the steps are more than a thousand lines.
    #[test]
    fn response_times_are_a_line_and_in_steps_where_those_are_asked_for() {
        let mut times = Histogram::new();
        (1..=2_000).for_each(|step| times.record(step * STEP_NS));
        let line = response_times(&times);
        let start = "response time of 2000 requests: mean 100";
        assert!(line.starts_with(start) && line.lines().count() == 1, "{line}");
        assert!(line.contains(", p99 198") && line.contains(", max 200"), "{line}");
        assert_eq!(response_times(&Histogram::new()), "");
    }

    /// Times of 3 ms and more were one line "later", whatever they were.
    #[test]
    fn response_times_beyond_three_milliseconds_have_their_steps() {
        let mut all = Histogram::new();
        for (ms, count) in [(0.25, 10), (4.05, 20), (7.31, 40), (7.42, 5)] {
            all.record_n(kendall_units::whole_u64(ms * 1e6), count);
        }
        let text = histogram(&all);
        assert!(text.starts_with("response time, steps of 0.1 ms\n"), "{text}");
        for (from, count) in [("0.2", "10"), ("4.0", "20"), ("7.3", "40"), ("7.4", "5")] {
            let line = text.lines().find(|line| line.trim_start().starts_with(from));
            assert!(line.is_some_and(|line| line.contains(count)), "{from}: {text}");
        }
        assert_eq!(text.matches('…').count(), 2, "{text}");
        // At a high load more than 100 steps hold something; they were joined to wider ones.
        for step in 0..20_000_u32 {
            all.record(u64::from(step) * STEP_NS + STEP_NS / 2);
        }
        let text = histogram(&all);
        assert!(text.starts_with("response time, steps of 0.1 ms\n"), "{text}");
        let counts =
            text.lines().filter_map(|line| line.split(" ms ").nth(1)?.split_whitespace().next());
        let counts: u64 = counts.map(|count| count.parse::<u64>().unwrap()).sum();
        assert_eq!((counts, text.matches('…').count()), (all.count(), 0), "{text}");
    }
}
