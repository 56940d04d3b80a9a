//! What a load test prints for people.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use kendall_loadgen::load::LoadProgress;
use kendall_protocols::load_result::{LoadResult, Operation};
use kendall_protocols::snapshot::EncodedHistogram;
use kendall_stats::histogram::Histogram;
use kendall_stats::within_run::WithinRun;
use kendall_units::{Rate, Seconds, counted, exact_f64};

use super::drawn::{self, bars, three_digits};
use super::intervals;
use crate::output::{self, Stream};
use crate::paint::Paint;

/// Quantiles of the table.
const QUANTILES: [(f64, &str); 5] =
    [(0.5, "median"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (1.0, "max")];

/// One line a second.
pub(crate) fn progress(moment: &LoadProgress) -> String {
    let time = |nanoseconds: Option<f64>| {
        nanoseconds.map_or_else(|| "–".to_owned(), |ns| Seconds::new(ns / 1e9).to_string())
    };
    format!(
        "{:>4} s  {:>9}/s  mean {:>9}  p99 {:>9}  errors {}",
        moment.elapsed_s,
        moment.completed,
        time(moment.response_time_mean_ns),
        time(moment.response_time_p99_ns.map(exact_f64)),
        moment.errors
    )
}

/// The result, in as many columns as there are.
pub(super) fn table(
    result: &LoadResult,
    run: Option<&WithinRun>,
    paint: Paint,
) -> anyhow::Result<String> {
    let columns = usize::from(output::columns(Stream::Result).unwrap_or(80));
    let seconds = Seconds::from_nanos(result.ended_ns.saturating_sub(result.started_ns));
    let mut text = format!(
        "{} {} loop on {}: {}, {}, {seconds}\n",
        result.protocol,
        result.r#loop,
        result.targets.join(", "),
        counted(result.clients, "client"),
        counted(result.threads.len(), "thread"),
    );
    if let Some(calls) = &result.calls {
        writeln!(text, "calls: {calls}")?;
    }
    let mut header =
        vec!["request".to_owned(), "completed".into(), "throughput".into(), "mean".into()];
    header.extend(QUANTILES.iter().map(|(_, name)| (*name).to_owned()));
    header.push("errors".into());
    let mut rows = Vec::new();
    let mut all = (0_u64, Histogram::new());
    let mut all_drained = 0;
    for (name, operation) in &result.operations {
        let response_time = Histogram::decode(&operation.response_time.0)?;
        let drained = result.drained.get(name).map_or(0, |drained| drained.completed);
        rows.push(row(name, operation, drained, &response_time, seconds));
        all.0 += operation.completed;
        all_drained += drained;
        all.1.add(&response_time);
    }
    if result.operations.len() > 1 {
        let sum = |pick: fn(&Operation) -> u64| result.operations.values().map(pick).sum::<u64>();
        let total = Operation {
            completed: all.0,
            errors: [("all".to_owned(), sum(errors))].into(),
            ..Operation::default()
        };
        rows.push(row("all", &total, all_drained, &all.1, seconds));
    }
    writeln!(text, "{}", figures(&header, &rows, columns))?;
    if all_drained > 0 {
        writeln!(
            text,
            "answered after the end: {all_drained}; included in the times, not in the throughput"
        )?;
    }
    if let Some(run) = run {
        writeln!(text, "{}", intervals::human(run, paint))?;
    }
    outcomes(&mut text, result, paint)?;
    if all.1.count() > 0 {
        writeln!(text, "{}\n{}", paint.head("response times:"), bars(&all.1, columns))?;
    }
    generator(&mut text, result)?;
    for caveat in &result.caveats {
        writeln!(text, "{}", paint.doubt(&format!("caveat: {caveat}")))?;
    }
    Ok(text)
}

/// A row for each kind of request; where the table is too wide, its figures one after the other.
pub(super) fn figures(header: &[String], rows: &[Vec<String>], columns: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    table.add_rows(rows);
    for (number, column) in table.column_iter_mut().enumerate() {
        // The whole in 80 columns.
        column.set_padding((0, 0));
        if number > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.to_string();
    if columns >= 80 || text.lines().all(|line| line.chars().count() <= columns) {
        return text;
    }
    let block = |row: &Vec<String>| {
        let named = header.iter().zip(row).skip(1).map(|(name, figure)| format!("{name} {figure}"));
        let parts: Vec<String> = row.iter().take(1).cloned().chain(named).collect();
        drawn::rows(&parts, columns)
    };
    rows.iter().map(block).collect::<Vec<_>>().join("\n")
}

/// Hits, errors and status codes.
fn outcomes(text: &mut String, result: &LoadResult, paint: Paint) -> anyhow::Result<()> {
    for (name, operation) in &result.operations {
        let Operation { hits, misses, .. } = operation;
        if hits + misses == 0 {
            continue;
        }
        if result.protocol == "queue" {
            writeln!(text, "{name}: {}, {misses} times none", counted(*hits, "message"))?;
        } else {
            let (hits, misses) = (counted(*hits, "hit"), counted(*misses, "miss"));
            writeln!(text, "keys of {name}: {hits}, {misses}")?;
        }
    }
    for (name, operation) in &result.operations {
        for (kind, count) in &operation.errors {
            writeln!(text, "{}", paint.bad(&format!("errors of {name}: {kind} {count}")))?;
        }
    }
    if !result.statuses.is_empty() {
        let parts: Vec<String> = result
            .statuses
            .iter()
            .map(|(status, count)| of_status(*status, *count, paint))
            .collect();
        writeln!(text, "status codes: {}", parts.join(", "))?;
    }
    Ok(())
}

/// Statuses of errors are 400 and above.
fn of_status(status: u16, count: u64, paint: Paint) -> String {
    let text = format!("{status}: {count}");
    if status >= 400 { paint.bad(&text) } else { text }
}

fn row(
    name: &str,
    operation: &Operation,
    drained: u64,
    response_time: &Histogram,
    duration: Seconds,
) -> Vec<String> {
    let time = |nanoseconds: Option<f64>| nanoseconds.map_or_else(|| "–".to_owned(), three_digits);
    let throughput = exact_f64(operation.completed.saturating_sub(drained)) / duration.get();
    let mut row = vec![
        name.to_owned(),
        operation.completed.to_string(),
        if throughput.is_finite() {
            Rate::per_second(throughput).to_string()
        } else {
            "–".to_owned()
        },
        time(response_time.mean()),
    ];
    row.extend(
        QUANTILES
            .iter()
            .map(|(quantile, _)| time(response_time.quantile(*quantile).map(exact_f64))),
    );
    row.push(errors(operation).to_string());
    row
}

fn errors(operation: &Operation) -> u64 {
    operation.errors.values().sum()
}

/// What the generator says of itself.
fn generator(text: &mut String, result: &LoadResult) -> anyhow::Result<()> {
    let late = |histogram: &EncodedHistogram| -> anyhow::Result<String> {
        let histogram = Histogram::decode(&histogram.0)?;
        let at = |quantile| {
            histogram
                .quantile(quantile)
                .map_or_else(|| "–".to_owned(), |ns| Seconds::from_nanos(ns).to_string())
        };
        Ok(format!("median {}, 99 % {}, max {}", at(0.5), at(0.99), at(1.0)))
    };
    if result.r#loop == "open" {
        writeln!(text, "lateness (planned to sent): {}", late(&result.lateness)?)?;
    }
    if let Some(check) = &result.gap_check {
        writeln!(
            text,
            "arrivals: {} planned, {} sent\nvariation of the gaps: {:.3} planned, {:.3} sent{}",
            Rate::per_second(check.planned_rate_per_s),
            Rate::per_second(check.sent_rate_per_s),
            check.planned_variation,
            check.sent_variation,
            check.distance_to_exponential.map_or_else(String::new, |distance| format!(
                ", distance to the exponential {distance:.3}"
            ))
        )?;
        writeln!(text, "waited for a connection: {}", late(&result.connection_wait)?)?;
    }
    for (number, thread) in result.threads.iter().enumerate() {
        let cpu = thread.cpu_user_ns + thread.cpu_system_ns;
        let share = |part: u64| {
            kendall_units::ratio(part, thread.wall_ns)
                .map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", share * 100.0))
        };
        writeln!(
            text,
            "generator thread {number}: at work {}, kept awake {}, waited for a core {}",
            share(cpu),
            share(thread.spun_ns),
            share(thread.run_queue_wait_ns)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_too_wide_becomes_lines_of_named_figures() {
        let header = ["request", "completed", "throughput", "99 %"].map(str::to_owned);
        let row = ["GET", "123456789012", "12,345.6/s", "1.47 ms"].map(str::to_owned).to_vec();
        assert!(figures(&header, std::slice::from_ref(&row), 80).lines().count() > 3);
        let narrow = figures(&header, &[row], 30);
        assert_eq!(narrow, "GET  completed 123456789012\nthroughput 12,345.6/s\n99 % 1.47 ms");
    }
}
