//! What a study found, configuration by configuration.

use std::path::Path;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use kendall_stats::estimate::Estimate;
use kendall_stats::histogram::Histogram;
use kendall_stats::sample::mean_interval;
use kendall_store::{FactorLevel, Measured, Results, SearchFound, SearchLine};
use kendall_study::{StudyFile, Summary};
use kendall_units::Seconds;
use serde::Serialize;
use serde_json::json;

/// Percentiles that are printed.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

/// One configuration over its repetitions.
#[derive(Debug, Serialize)]
struct Row {
    configuration: u32,
    factors: Vec<FactorLevel>,
    runs: usize,
    throughput_per_s: Estimate,
    response_time_mean_s: Estimate,
    /// `None` where the runs hold too few requests for it.
    response_time_quantiles_s: Vec<(&'static str, Option<f64>)>,
    caveats: usize,
}

fn rows(study: &StudyFile, results: &Results) -> anyhow::Result<Vec<Row>> {
    let runs = results.latest_runs()?;
    let confidence = study.base.measure.confidence;
    let mut rows = Vec::new();
    for group in runs.chunk_by(|a, b| a.configuration == b.configuration) {
        let usable = group.iter().filter(|run| run.is_usable());
        let measured: Vec<Measured> =
            usable.map(|run| results.measured(run.id)).collect::<Result<_, _>>()?;
        let Some(first) = measured.first() else { continue };
        let mut merged = Histogram::new();
        for run in &measured {
            merged.add(&run.response_time);
        }
        let estimate = |value: fn(&Measured) -> f64| {
            let values: Vec<f64> = measured.iter().map(value).collect();
            mean_interval(&values, confidence)
        };
        // Five requests beyond it at least, even if they were independent.
        let quantile = |q: f64| {
            let enough = kendall_units::exact_f64(merged.count()) * (1.0 - q) >= 5.0;
            merged.quantile(q).filter(|_| enough).map(|ns| Seconds::from_nanos(ns).get())
        };
        rows.push(Row {
            configuration: first.run.configuration,
            factors: first.run.factors.clone(),
            runs: measured.len(),
            throughput_per_s: estimate(|run| run.throughput_per_s)?,
            response_time_mean_s: estimate(|run| run.response_time.mean().unwrap_or(0.0) / 1e9)?,
            response_time_quantiles_s: QUANTILES.map(|(name, q)| (name, quantile(q))).into(),
            caveats: group.iter().map(|run| run.caveats.len()).sum(),
        });
    }
    Ok(rows)
}

pub(super) fn text(
    study: &StudyFile,
    results: &Results,
    summary: &Summary,
    report: Option<&Path>,
) -> anyhow::Result<String> {
    let mut text = format!("{}\n{}\n", study.title, configurations(study, results)?);
    let confidence = 100.0 * study.base.measure.confidence;
    text.push_str(&format!(
        "± is the half-width of the {confidence} % interval over repetitions; the report has more\n"
    ));
    text.push_str(&searched(&results.searches()?));
    text.push_str(&format!("{} runs done", summary.done));
    for (count, word) in [(summary.rejected, "rejected"), (summary.failed, "failed")] {
        if count > 0 {
            text.push_str(&format!(", {count} {word} (try again with --retry-failed)"));
        }
    }
    if summary.earlier > 0 {
        text.push_str(&format!("; {} of all had ended before", summary.earlier));
    }
    text.push_str(&format!("\nresults {}\n", results.folder().display()));
    if let Some(report) = report {
        text.push_str(&format!("report  {}\n", report.display()));
    }
    Ok(text)
}

/// A table as wide as a terminal was for forty years.
fn narrow_table() -> Table {
    const COLUMNS: u16 = 80;
    let mut table = Table::new();
    table
        .load_style(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(COLUMNS);
    table
}

fn configurations(study: &StudyFile, results: &Results) -> anyhow::Result<Table> {
    let mut table = narrow_table();
    let mut header = short_names(study.factors.iter().map(|factor| factor.key.as_str()));
    header.extend(["runs", "throughput (1/s)", "mean (ms)"].map(str::to_owned));
    // Many factors leave room for these only; the JSON and the report have all.
    let roomy = study.factors.len() < 4;
    if roomy {
        header.extend(["p99 (ms)", "doubts"].map(str::to_owned));
    }
    table.set_header(header);
    for row in rows(study, results)? {
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
        cells.push(if study.factors.len() < 3 {
            with_interval(&row.response_time_mean_s, 1e3, 3)
        } else {
            decimal(1e3 * row.response_time_mean_s.center, 3)
        });
        if roomy {
            let p99 = row.response_time_quantiles_s.last().and_then(|(_, value)| *value);
            cells.push(p99.map_or_else(|| "too few".to_owned(), |p99| decimal(1e3 * p99, 3)));
            cells.push(row.caveats.to_string());
        }
        table.add_row(cells);
    }
    Ok(table)
}

/// `workers` for `system.workers`, unless another key ends so too.
fn short_names<'a>(keys: impl Iterator<Item = &'a str>) -> Vec<String> {
    let keys: Vec<&str> = keys.collect();
    let alone = |key: &str| keys.iter().filter(|other| last(other) == last(key)).count() == 1;
    keys.iter().map(|key| if alone(key) { last(key) } else { key }.to_owned()).collect()
}

/// `workers` of `system.workers`.
fn last(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// What an adaptive design found; nothing for other designs.
fn searched(lines: &[SearchLine]) -> String {
    let Some(first) = lines.first() else { return String::new() };
    let searched = last(&first.factor);
    let mut table = narrow_table();
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
            Some(found) => doubts
                .extend(found.maximum_throughput_per_s.caveats.iter().map(ToString::to_string)),
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
         95 % of the maximum is reached;\nsweep: runs that a sweep over all {} levels takes. {runs} \
         runs instead of {sweep}.\n\n",
        first.factor, first.grid
    )
}

/// Lines of at most 80 columns, further ones indented.
fn wrapped(text: &str) -> String {
    const COLUMNS: usize = 80;
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
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

/// `5762 ± 41`: the half-width with as many decimals as the center.
fn with_interval(estimate: &Estimate, scale: f64, figures: usize) -> String {
    let center = decimal(scale * estimate.center, figures);
    let decimals = center.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    match estimate.interval {
        Some(interval) => format!("{center} ± {:.decimals$}", scale * interval.half_width()),
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
    Ok(json!({
        "name": study.study,
        "title": study.title,
        "folder": results.folder(),
        "report": report,
        "runs_done": summary.done,
        "runs_rejected": summary.rejected,
        "runs_failed": summary.failed,
        "interrupted": summary.interrupted,
        "confidence": study.base.measure.confidence,
        "configurations": rows(study, results)?,
        "searches": results.searches()?,
    }))
}
