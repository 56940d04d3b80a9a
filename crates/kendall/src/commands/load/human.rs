//! What a load test prints for people.

use std::collections::BTreeMap;

use kendall_loadgen::load::LoadProgress;
use kendall_protocols::load_result::{LoadResult, Operation};
use kendall_protocols::snapshot::EncodedHistogram;
use kendall_report::document::{Cell, Level, Section, Table, Unit};
use kendall_stats::histogram::Histogram;
use kendall_stats::within_run::WithinRun;
use kendall_units::{Rate, Seconds, counted, exact_f64};

use super::bars::{TIME, bars};
use super::intervals;
use crate::paint::Paint;
use crate::text;

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

/// One kind of request, or all of them.
struct Requests {
    name: String,
    completed: u64,
    drained: u64,
    errors: u64,
    times: Histogram,
}

impl Requests {
    fn of(result: &LoadResult) -> anyhow::Result<Vec<Self>> {
        let of_name = |(name, operation): (&String, &Operation)| {
            let drained = result.drained.get(name).map_or(0, |drained| drained.completed);
            Ok(Self { drained, ..Self::one(name.clone(), operation)? })
        };
        result.operations.iter().map(of_name).collect()
    }

    /// The parts of requests that are counted by themselves.
    fn steps(result: &LoadResult) -> anyhow::Result<Vec<Self>> {
        let steps = result.steps.iter();
        steps
            .map(|step| Self::one(format!("{}: {}", step.of, step.name), &step.operation))
            .collect()
    }

    fn one(name: String, operation: &Operation) -> anyhow::Result<Self> {
        Ok(Self {
            name,
            completed: operation.completed,
            drained: 0,
            errors: operation.errors.values().sum(),
            times: Histogram::decode(&operation.response_time.0)?,
        })
    }

    fn together(each: &[Self]) -> Self {
        let sum = |of: fn(&Self) -> u64| each.iter().map(of).sum();
        let mut times = Histogram::new();
        each.iter().for_each(|one| times.add(&one.times));
        Self {
            name: "all".to_owned(),
            completed: sum(|one| one.completed),
            drained: sum(|one| one.drained),
            errors: sum(|one| one.errors),
            times,
        }
    }
}

pub(super) fn document(result: &LoadResult, run: Option<&WithinRun>) -> anyhow::Result<Section> {
    let seconds = Seconds::from_nanos(result.ended_ns.saturating_sub(result.started_ns));
    let mut document = Section::new("load", "");
    document.text(format!(
        "{} {} loop on {}: {}, {}, {seconds}",
        result.protocol,
        result.r#loop,
        result.targets.join(", "),
        counted(result.clients, "client"),
        counted(result.threads.len(), "thread"),
    ));
    if let Some(calls) = &result.calls {
        document.text(format!("calls: {calls}"));
    }
    let mut rows = Requests::of(result)?;
    let all = Requests::together(&rows);
    let (drained, times) = (all.drained, all.times.clone());
    if rows.len() > 1 {
        rows.push(all);
    }
    document.table(table(("requests", "Requests"), rows, seconds));
    let steps = Requests::steps(result)?;
    if !steps.is_empty() {
        document.heading("requests of the sequences:");
        document.table(table(("steps", "Requests of the sequences"), steps, seconds));
    }
    if drained > 0 {
        document.text(format!(
            "answered after the end: {drained}; included in the times, not in the throughput"
        ));
    }
    if let Some(run) = run {
        intervals::document(&mut document, run);
    }
    outcomes(&mut document, result);
    if times.count() > 0 {
        document.heading("response times:");
        document.text(bars(&times, text::columns()));
    }
    generator(&mut document, result)?;
    for caveat in &result.caveats {
        document.note(Level::Doubt, caveat.to_string());
    }
    Ok(document)
}

fn table((id, title): (&str, &str), rows: Vec<Requests>, duration: Seconds) -> Table {
    let mut table = Table::of(id, title, rows)
        .column("request", "request", Unit::Text, |row| row.name.clone())
        .column("completed", "completed", Unit::Count, |row| row.completed)
        .column("throughput_per_s", "throughput", Unit::Rate, |row| {
            let counted = exact_f64(row.completed.saturating_sub(row.drained));
            Cell::number_or(Some(counted / duration.get()), "")
        })
        .column("mean_s", "mean", TIME, |row| row.times.mean().map(|ns| ns / 1e9));
    for (quantile, name) in QUANTILES {
        table = table.column(format!("q{quantile}_s"), name, TIME, move |row| {
            row.times.quantile(quantile).map(|ns| exact_f64(ns) / 1e9)
        });
    }
    table.column("errors", "errors", Unit::Count, |row| row.errors).table()
}

/// Hits, errors and status codes.
fn outcomes(document: &mut Section, result: &LoadResult) {
    for (name, Operation { hits, misses, .. }) in &result.operations {
        if hits + misses == 0 {
            continue;
        }
        document.text(if result.protocol == "queue" {
            format!("{name}: {}, {misses} times none", counted(*hits, "message"))
        } else {
            let share = kendall_units::ratio(*hits, hits + misses).unwrap_or(0.0) * 100.0;
            let (hits, misses) = (counted(*hits, "hit"), counted(*misses, "miss"));
            format!("keys of {name}: {hits}, {misses}: {share:.1} % hits")
        });
    }
    for (name, operation) in &result.operations {
        for (kind, count) in &operation.errors {
            document.note(Level::Bad, format!("errors of {name}: {kind} {count}"));
        }
    }
    for step in &result.steps {
        for (kind, count) in &step.operation.errors {
            let text = format!("errors of {}: {}: {kind} {count}", step.of, step.name);
            document.note(Level::Bad, text);
        }
    }
    if result.sent_anew > 0 {
        document.text(format!("not taken and sent anew: {}", counted(result.sent_anew, "request")));
    }
    if let Some(redirects) = result.redirects {
        let (moved, ask) = (redirects.moved, redirects.ask);
        document.text(format!("redirects of the cluster, followed: {moved} MOVED, {ask} ASK"));
    }
    if !result.statuses.is_empty() {
        document.text(format!("status codes: {}", statuses(&result.statuses)));
    }
}

/// Statuses of errors are 400 and above.
fn statuses(statuses: &BTreeMap<u16, u64>) -> String {
    let paint = Paint::of_results();
    let each = statuses.iter().map(|(status, count)| {
        let text = format!("{status}: {count}");
        if *status >= 400 { paint.bad(&text) } else { text }
    });
    each.collect::<Vec<_>>().join(", ")
}

/// What the generator says of itself.
fn generator(document: &mut Section, result: &LoadResult) -> anyhow::Result<()> {
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
        document.text(format!("lateness (planned to sent): {}", late(&result.lateness)?));
    }
    if let Some(check) = &result.gap_check {
        document.text(format!(
            "arrivals: {} planned, {} sent\nvariation of the gaps: {:.3} planned, {:.3} sent{}",
            Rate::per_second(check.planned_rate_per_s),
            Rate::per_second(check.sent_rate_per_s),
            check.planned_variation,
            check.sent_variation,
            check.distance_to_exponential.map_or_else(String::new, |distance| format!(
                ", distance to the exponential {distance:.3}"
            ))
        ));
        document.text(format!("waited for a connection: {}", late(&result.connection_wait)?));
    }
    for (number, thread) in result.threads.iter().enumerate() {
        let cpu = thread.cpu_user_ns + thread.cpu_system_ns;
        let share = |part: u64| {
            kendall_units::ratio(part, thread.wall_ns)
                .map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", share * 100.0))
        };
        document.text(format!(
            "generator thread {number}: at work {}, kept awake {}, waited for a core {}",
            share(cpu),
            share(thread.spun_ns),
            share(thread.run_queue_wait_ns)
        ));
    }
    Ok(())
}
