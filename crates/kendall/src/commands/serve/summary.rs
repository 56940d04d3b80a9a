//! The summary of a tier at its stop, for people.

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use kendall_protocols::snapshot::{EncodedHistogram, LevelSnapshot, TierSnapshot, stage};
use kendall_stats::histogram::Histogram;
use kendall_units::{Rate, Seconds, exact_f64};

/// Steps of the printed histogram: the first with which it has no more rows than this.
const STEPS_NS: [u64; 8] =
    [100_000, 200_000, 500_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 60_000_000_000];
const ROWS: usize = 100;
/// Columns of the longest bar.
const BAR: u64 = 40;

/// Tables of what the tier did from its start to `snapshot`.
pub(crate) fn text(snapshot: &TierSnapshot) -> anyhow::Result<String> {
    let seconds = exact_f64(snapshot.at_ns.saturating_sub(snapshot.started_ns)) / 1e9;
    let mut text = format!("{}, {} s\n", snapshot.tier, Seconds::new(seconds).get().round());
    text.push_str(&requests(snapshot, seconds)?);
    text.push_str(&levels(snapshot));
    if !snapshot.backends.is_empty() {
        text.push_str(&backends(snapshot)?);
    }
    text.push_str(&counts(snapshot));
    text.push_str(&response_times(snapshot)?);
    Ok(text)
}

fn requests(snapshot: &TierSnapshot, seconds: f64) -> anyhow::Result<String> {
    let mut table = new_table(&[
        "request",
        "completed",
        "throughput",
        "waiting",
        "service",
        "backend",
        "response",
        "p50",
        "p90",
        "p99",
    ]);
    for (name, request) in snapshot.requests.iter().filter(|(_, r)| r.arrivals > 0) {
        let stages = |stage: &str| -> anyhow::Result<Histogram> {
            Ok(Histogram::decode(&request.stages.get(stage).cloned().unwrap_or_default().0)?)
        };
        let response = stages(stage::RESPONSE_TIME)?;
        let mut row = vec![
            name.clone(),
            request.completions.to_string(),
            Rate::per_second(exact_f64(request.completions) / seconds).to_string(),
        ];
        for stage in [stage::WAITING_TIME, stage::SERVICE_TIME, stage::BACKEND_TIME] {
            row.push(mean(&stages(stage)?));
        }
        row.push(mean(&response));
        for quantile in [0.5, 0.9, 0.99] {
            row.push(time(response.quantile(quantile)));
        }
        table.add_row(row);
    }
    Ok(format!("{table}\n"))
}

fn levels(snapshot: &TierSnapshot) -> String {
    let elapsed = exact_f64(snapshot.at_ns.saturating_sub(snapshot.started_ns).max(1));
    let mut table = new_table(&["level", "mean", "maximum"]);
    let mut row = |name: &str, level: &LevelSnapshot| {
        let mean = exact_f64(level.integral_ns.min(1 << 53)) / elapsed;
        table.add_row(vec![name.to_owned(), format!("{mean:.2}"), level.maximum.to_string()]);
    };
    row("queue length", &snapshot.queue_length);
    row("workers busy", &snapshot.workers_busy);
    row("connections", &snapshot.connections);
    format!("{table}\n")
}

fn backends(snapshot: &TierSnapshot) -> anyhow::Result<String> {
    let mut table = new_table(&["backend", "requests", "keys", "errors", "mean time", "p99"]);
    for backend in &snapshot.backends {
        let times = decode(&backend.backend_time)?;
        table.add_row(vec![
            backend.address.clone(),
            backend.requests.to_string(),
            backend.keys.to_string(),
            backend.errors.to_string(),
            mean(&times),
            time(times.quantile(0.99)),
        ]);
    }
    Ok(format!("{table}\n"))
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
    format!("{}\n", parts.join(" · "))
}

/// All response times in steps of 0.1 ms, however long; wider steps where those would be too many
/// rows. Steps without requests are left out, and a line says so.
fn response_times(snapshot: &TierSnapshot) -> anyhow::Result<String> {
    let mut all = Histogram::new();
    for request in snapshot.requests.values() {
        if let Some(encoded) = request.stages.get(stage::RESPONSE_TIME) {
            all.add(&decode(encoded)?);
        }
    }
    Ok(histogram(&all))
}

fn histogram(all: &Histogram) -> String {
    let widest = STEPS_NS[STEPS_NS.len() - 1];
    let fits = |step: &u64| all.steps(*step).iter().filter(|row| row.count > 0).count() <= ROWS;
    let step_ns = STEPS_NS.into_iter().find(fits).unwrap_or(widest);
    let rows = all.steps(step_ns);
    let most = rows.iter().map(|row| row.count).max().unwrap_or(0).max(1);
    if rows.iter().all(|row| row.count == 0) {
        return String::new();
    }
    let width = Seconds::from_nanos(step_ns).get() * 1e3;
    let mut text = format!("response time, steps of {width} ms\n");
    let mut next_ns = None;
    for row in rows.iter().filter(|row| row.count > 0) {
        if next_ns.is_some_and(|next| next != row.from_ns) {
            text.push_str("      …\n");
        }
        next_ns = Some(row.from_ns + step_ns);
        let bar = "#".repeat(usize::try_from(row.count * BAR / most).unwrap_or(0));
        let from = Seconds::from_nanos(row.from_ns).get() * 1e3;
        text.push_str(&format!("{from:7.1} ms {:>10} {bar}\n", row.count));
    }
    text
}

fn decode(encoded: &EncodedHistogram) -> anyhow::Result<Histogram> {
    Ok(Histogram::decode(&encoded.0)?)
}

fn mean(histogram: &Histogram) -> String {
    histogram.mean().map_or_else(|| "–".to_owned(), |ns| Seconds::new(ns / 1e9).to_string())
}

fn time(nanoseconds: Option<u64>) -> String {
    nanoseconds.map_or_else(|| "–".to_owned(), |ns| Seconds::from_nanos(ns).to_string())
}

fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header.to_vec());
    table
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Too wide a range for 0.1 ms: wider steps, and no request is lost.
        for ms in 0..2_000_u32 {
            all.record(u64::from(ms) * 1_000_000 + 50_000);
        }
        let text = histogram(&all);
        assert!(
            text.lines().count() <= 2 * ROWS + 1 && !text.contains("steps of 0.1 ms"),
            "{text}"
        );
    }
}
