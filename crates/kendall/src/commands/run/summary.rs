//! What a study found, configuration by configuration.

use std::path::Path;

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use kendall_stats::estimate::Estimate;
use kendall_stats::histogram::Histogram;
use kendall_stats::sample::mean_interval;
use kendall_store::{FactorLevel, Measured, Results};
use kendall_study::{StudyFile, Summary};
use kendall_units::{Rate, Seconds};
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
    response_time_quantiles_s: Vec<(&'static str, f64)>,
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
        let quantile = |q: f64| merged.quantile(q).map_or(0.0, |ns| Seconds::from_nanos(ns).get());
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
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    let mut header: Vec<String> = study.factors.iter().map(|factor| factor.key.clone()).collect();
    header.extend(["runs", "throughput (1/s)", "mean response"].map(str::to_owned));
    header.extend(QUANTILES.map(|(name, _)| name.to_owned()));
    header.push("doubts".to_owned());
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
        cells.push(with_interval(&row.throughput_per_s, |value| {
            Rate::per_second(value).to_string().trim_end_matches("/s").to_owned()
        }));
        cells.push(with_interval(&row.response_time_mean_s, |v| Seconds::new(v).to_string()));
        let quantiles = row.response_time_quantiles_s.iter();
        cells.extend(quantiles.map(|(_, value)| Seconds::new(*value).to_string()));
        cells.push(row.caveats.to_string());
        table.add_row(cells);
    }
    let confidence = 100.0 * study.base.measure.confidence;
    let mut text = format!("{}\n{table}\n", study.title);
    text.push_str(&format!(
        "± is the half-width of the {confidence} % interval over repetitions\n"
    ));
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

fn with_interval(estimate: &Estimate, print: impl Fn(f64) -> String) -> String {
    match estimate.interval {
        Some(interval) => format!("{} ± {}", print(estimate.center), print(interval.half_width())),
        None => print(estimate.center),
    }
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
    }))
}
