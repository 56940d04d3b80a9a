//! What a study found, configuration by configuration.

use std::path::Path;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use kendall_observations::{Configuration, Observations, short};
use kendall_report::answer::Answer;
use kendall_stats::estimate::{Caveat, Estimate};
use kendall_store::{FactorLevel, Results, SearchFound, SearchLine};
use kendall_study::{StudyFile, Summary};
use kendall_units::counted;
use serde::Serialize;
use serde_json::json;

use crate::output::{self, Stream};

/// Percentiles that are printed.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

/// One configuration over its repetitions.
#[derive(Debug, Serialize)]
struct Row {
    configuration: u32,
    factors: Vec<FactorLevel>,
    runs: usize,
    throughput_per_s: Estimate,
    /// `None` where the load did not say what each request took.
    response_time_mean_s: Option<Estimate>,
    /// Of a job with an end: from its start to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    makespan_s: Option<Estimate>,
    /// `None` where the runs hold too few requests for it.
    response_time_quantiles_s: Vec<(&'static str, Option<f64>)>,
    /// The 99th percentile with its interval over runs.
    response_time_p99_s: Option<Estimate>,
    caveats: usize,
}

fn rows(observations: &Observations) -> Vec<Row> {
    let row = |configuration: &Configuration| {
        let quantile = |q: f64| configuration.percentile_estimate(q).ok();
        let caveats = configuration.repetitions.iter().map(|one| one.run.caveats.len()).sum();
        Some(Row {
            configuration: configuration.number,
            factors: configuration.levels.clone(),
            runs: configuration.repetitions.len(),
            throughput_per_s: configuration.throughput_estimate()?,
            response_time_mean_s: configuration.response_estimate(),
            makespan_s: configuration.makespan_estimate(),
            response_time_quantiles_s: QUANTILES
                .map(|(name, q)| (name, quantile(q).map(|estimate| estimate.center)))
                .into(),
            response_time_p99_s: quantile(0.99),
            caveats,
        })
    };
    observations.configurations.iter().filter_map(row).collect()
}

pub(super) fn text(
    study: &StudyFile,
    results: &Results,
    summary: &Summary,
    report: Option<&Path>,
) -> anyhow::Result<String> {
    let observations = Observations::read(results)?;
    let rows = rows(&observations);
    let mut text = wrapped(&study.title);
    if rows.is_empty() {
        text.push_str("no run can be used, so there are no numbers\n");
    } else {
        text.push_str(&format!(
            "{}\n{}",
            configurations(study, &rows),
            wrapped(&format!(
                "± or (from to) is the {} % interval over repetitions, ± ? where they differ too \
                 much for one; the report has more",
                100.0 * study.base.measure.confidence
            ))
        ));
    }
    text.push_str(&caveats(&observations));
    text.push_str(&searched(&observations.searches));
    text.push_str(&format!("{} done", counted(summary.done, "run")));
    for (count, word) in [(summary.rejected, "rejected"), (summary.failed, "failed")] {
        if count > 0 {
            text.push_str(&format!(", {count} {word} (retry them with --retry-failed)"));
        }
    }
    if summary.earlier > 0 {
        text.push_str(&format!("; {} of them in earlier sessions", summary.earlier));
    }
    if summary.short_of_precision > 0 {
        text.push_str(&format!(
            "\n{} of {} configurations reached `max` repetitions before the precision of `until`:\ntheir \
             intervals are wider, or rest on too few runs",
            summary.short_of_precision,
            rows.len()
        ));
    }
    text.push_str(&format!("\nresults {}\n", results.folder().display()));
    if let Some(report) = report {
        text.push_str(&format!("report  {}\n", report.display()));
    }
    if !observations.configurations.is_empty() {
        text.push('\n');
        text.push_str(&card(&kendall_report::answer_of(&observations)));
    }
    Ok(text)
}

/// Width of results: of the terminal, within reason; 80 columns where the output is no terminal.
fn columns() -> u16 {
    const COLUMNS: u16 = 80;
    const MOST_COLUMNS: u16 = 160;
    let stated = output::columns(Stream::Result);
    stated.map_or(COLUMNS, |width| width.clamp(COLUMNS / 2, MOST_COLUMNS))
}

/// Width of lines of text: 80 columns, or as many as there are.
pub(crate) fn line_columns() -> usize {
    usize::from(columns().min(80))
}

/// A table of the [`columns`] that there are.
pub(crate) fn terminal_table() -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(columns());
    table
}

fn configurations(study: &StudyFile, rows: &[Row]) -> Table {
    let mut table = terminal_table();
    let jobs = study.base.workload.is_job();
    let mut header = short_names(study.factors.iter().map(|factor| factor.key.as_str()));
    let mean = if jobs { "makespan (s)" } else { "mean (ms)" };
    header.extend(["runs", "throughput (1/s)", mean].map(str::to_owned));
    // Many factors leave room for these only; the JSON and the report have all.
    let roomy = study.factors.len() < 4;
    if roomy {
        header.extend(["p99 (ms)", "caveats"].map(str::to_owned));
    }
    table.set_header(header);
    for row in rows {
        let mut cells: Vec<String> = study
            .factors
            .iter()
            .map(|factor| {
                let level = row.factors.iter().find(|level| level.factor == factor.key);
                level.map_or_else(|| "–".to_owned(), |level| level.text.clone())
            })
            .collect();
        cells.push(row.runs.to_string());
        cells.push(with_interval(&row.throughput_per_s, 1.0, 4));
        // With many factors there is no room for the second interval; the JSON has it.
        let (time, scale) =
            if jobs { (&row.makespan_s, 1.0) } else { (&row.response_time_mean_s, 1e3) };
        cells.push(match time {
            None => "–".to_owned(),
            Some(time) if study.factors.len() < 3 => with_interval(time, scale, 3),
            Some(time) => decimal(scale * time.center, 3),
        });
        if roomy {
            let p99 = row.response_time_p99_s.as_ref();
            let p99 = p99.map_or_else(|| "too few".to_owned(), |p99| decimal(1e3 * p99.center, 3));
            cells.push(p99);
            cells.push(row.caveats.to_string());
        }
        table.add_row(cells);
    }
    let numeric = |place: usize| {
        let factor = study.factors.get(place);
        let of = |row: &Row| {
            let level = factor.and_then(|f| row.factors.iter().find(|level| level.factor == f.key));
            level.is_none_or(|level| level.number.is_some())
        };
        factor.is_none() || rows.iter().all(of)
    };
    for (_, column) in table.column_iter_mut().enumerate().filter(|(place, _)| numeric(*place)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// `workers` for `system.workers`, unless another key ends so too.
fn short_names<'a>(keys: impl Iterator<Item = &'a str>) -> Vec<String> {
    let keys: Vec<&str> = keys.collect();
    let alone = |key: &str| keys.iter().filter(|other| short(other) == short(key)).count() == 1;
    keys.iter().map(|key| if alone(key) { short(key) } else { (*key).to_owned() }).collect()
}

/// Caveats in words, most frequent first: a kind a line, with the figures of its first run.
fn caveats(observations: &Observations) -> String {
    const MOST: usize = 4;
    let runs: Vec<_> = observations.configurations.iter().flat_map(|c| &c.repetitions).collect();
    let mut kinds =
        Caveat::by_kind(runs.iter().map(|repetition| repetition.run.caveats.as_slice()));
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut text = String::new();
    for (caveat, count) in kinds.iter().take(MOST) {
        text.push_str(&wrapped(&format!(
            "* caveat, in {count} of {}: {caveat}",
            counted(runs.len(), "run")
        )));
    }
    if kinds.len() > MOST {
        let more = counted(kinds.len() - MOST, "further caveat");
        text.push_str(&format!("* and {more}; the report has all\n"));
    }
    text
}

/// What an adaptive design found; nothing for other designs.
fn searched(lines: &[SearchLine]) -> String {
    let Some(first) = lines.first() else { return String::new() };
    let searched = short(&first.factor);
    let mut table = terminal_table();
    let mut header = short_names(first.levels.iter().map(|level| level.factor.as_str()));
    header.extend(["maximum (1/s)".to_owned(), format!("at {searched}")]);
    header.extend(["N*", "knee in", "runs", "sweep"].map(str::to_owned));
    table.set_header(header);
    let mut notes = String::new();
    for line in lines {
        let mut cells: Vec<String> = line.levels.iter().map(|level| level.text.clone()).collect();
        match &line.found {
            Some(found) => cells.extend(found_cells(found)),
            None => cells.extend(["not found", "–", "–", "–"].map(str::to_owned)),
        }
        cells.extend([line.runs.to_string(), line.sweep_runs.to_string()]);
        table.add_row(cells);
        let mut doubts: Vec<String> = Vec::new();
        match &line.found {
            Some(found) => {
                doubts.extend(found.fit.as_ref().map(|fit| format!("shape: {}", fit.in_words())));
                doubts.extend(found.beyond_in_words());
                doubts
                    .extend(found.maximum_throughput_per_s.caveats.iter().map(ToString::to_string));
            }
            None => doubts.push(line.without.clone()),
        }
        for doubt in doubts {
            let levels: Vec<&str> = line.levels.iter().map(|level| level.text.as_str()).collect();
            let at =
                if levels.is_empty() { String::new() } else { format!("{}: ", levels.join(", ")) };
            notes.push_str(&wrapped(&format!("* {at}{doubt}")));
        }
    }
    let (runs, sweep) =
        lines.iter().fold((0, 0), |s, line| (s.0 + line.runs, s.1 + line.sweep_runs));
    format!(
        "\nFound by the search over {}:\n{table}\n{notes}N* is where waiting begins, the knee where \
         95 % of the maximum is reached;\nsweep: runs that a sweep over all {} levels takes. {} \
         instead of {sweep}.\n\n",
        first.factor,
        first.grid,
        counted(runs, "run")
    )
}

/// The answer, as the last lines: a word at the left, what it says beside it.
pub(crate) fn card(answer: &Answer) -> String {
    const WORD: usize = 9;
    let mut text = String::new();
    for (word, says) in answer.lines() {
        let block = wrapped_at(&says, line_columns() - WORD - 1);
        for (place, line) in block.lines().enumerate() {
            let word = if place == 0 { word } else { "" };
            text.push_str(&format!("{word:<WORD$} {line}\n"));
        }
    }
    text
}

fn wrapped_at(text: &str, columns: usize) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > columns {
            lines.push_str(&line);
            lines.push('\n');
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line
}

/// Lines of at most 80 columns, or as many as there are, further ones indented.
pub(crate) fn wrapped(text: &str) -> String {
    let columns = line_columns();
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > columns {
            lines.push_str(&line);
            lines.push('\n');
            line = "  ".to_owned();
        }
        if !line.trim().is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line + "\n"
}

fn found_cells(found: &SearchFound) -> [String; 4] {
    let (low, high) = found.best_between;
    let at = if low < high {
        format!("{} ({low} to {high})", found.best)
    } else {
        found.best.to_string()
    };
    let (below, above) = found.knee_between;
    [
        with_interval(&found.maximum_throughput_per_s, 1.0, 4),
        at,
        with_interval(&found.saturation_point, 1.0, 3),
        if below < above { format!("{below} to {above}") } else { format!("≤ {above}") },
    ]
}

/// `5762 ± 41`: the half-width with as many decimals as the center. `5762 (4100 to 8100)` where the
/// two sides differ by a tenth and more, `5762 ± ?` where runs differ too much for an interval.
fn with_interval(estimate: &Estimate, scale: f64, figures: usize) -> String {
    let center = decimal(scale * estimate.center, figures);
    let decimals = center.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let refused = estimate.caveats.iter().any(|c| matches!(c, Caveat::IntervalTooWide { .. }));
    match estimate.interval {
        Some(interval) => {
            let (below, above) = (estimate.center - interval.low, interval.high - estimate.center);
            if above > 1.1 * below {
                let end = |value: f64| format!("{:.decimals$}", scale * value);
                return format!("{center} ({} to {})", end(interval.low), end(interval.high));
            }
            format!("{center} ± {:.decimals$}", scale * interval.half_width())
        }
        None if refused => format!("{center} ± ?"),
        None => center,
    }
}

/// So many figures, in plain decimals.
fn decimal(value: f64, figures: usize) -> String {
    kendall_stats::estimate::figures(value, figures)
}

pub(super) fn json(
    study: &StudyFile,
    results: &Results,
    summary: &Summary,
    report: Option<&Path>,
) -> anyhow::Result<serde_json::Value> {
    let observations = Observations::read(results)?;
    Ok(json!({
        "name": study.study,
        "title": study.title,
        "folder": results.folder(),
        "report": report,
        "runs_done": summary.done,
        "runs_rejected": summary.rejected,
        "configurations_short_of_precision": summary.short_of_precision,
        "runs_failed": summary.failed,
        "interrupted": summary.interrupted,
        "confidence": study.base.measure.confidence,
        "answer": kendall_report::answer_of(&observations),
        "configurations": rows(&observations),
        "searches": observations.searches,
    }))
}
